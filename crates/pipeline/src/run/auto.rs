//! Remedies that run unasked: `dead_letters.auto`, and letters whose time has come.
//!
//! What is due, and how much of it, is decided in [`tidegate_core::letter::auto`]; this repairs,
//! plans and replays, by the same calls as `tidegate dlq fix` and `dlq replay`. Before a run, all
//! letters of its pipeline are looked at: the run then writes what the source holds now over what a
//! letter held. After it, only those that failed in it, because an older letter may hold an outdated
//! record.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use tidegate_core::letter::auto::{ReplayLimit, retry_at_ms};
use tidegate_core::letter::{FailureClass, LetterState};
use tidegate_core::quote::shell;

use super::definition::{DefinitionKind, NamedPipeline, StoredDefinition};
use super::lifecycle::{RUN_FILE, RunEntry, RunStatus};
use super::replay::ManifestReplay;
use super::state::StateDir;
use crate::letter::remedy::{Fixer, RepairRule};
use crate::letter::replay::{self, Pace, Rerun};
use crate::letter::seal::Keyring;
use crate::letter::store::{Amend, LetterPage, SqlDialect, rule_spec};
use crate::letter::{Letter, LetterError, LetterFilter, LetterStore, LetterStoreLocation, Letters, now_ms};
use crate::manifest::{AutoRemedy, DeadLetters};

/// The most letters of one rule in one go.
const LETTERS_MAX: u32 = 10_000;
/// How often a record may die before its letters are left to a person.
const GENERATIONS_MAX: u32 = 3;
/// The same for rules with a delay, which grows.
const DELAYED_GENERATIONS_MAX: u32 = 10;
/// The code under which parked letters are counted.
pub const PARKED: &str = "parked";

/// What was done unasked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AutoReport {
    /// Letters that a remedy repaired.
    pub repaired: u64,
    /// Letters whose replay was scheduled.
    pub scheduled: u64,
    /// Replayed letters whose records are in the sink.
    pub resolved: u64,
    /// Replayed letters that failed again.
    pub failed: u64,
    /// Letters that could not be tried, or that a limit holds up.
    pub waiting: u64,
}

impl AutoReport {
    /// Whether nothing was done.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == AutoReport::default()
    }
}

impl std::ops::Add for AutoReport {
    type Output = AutoReport;
    fn add(self, other: AutoReport) -> AutoReport {
        AutoReport {
            repaired: self.repaired + other.repaired,
            scheduled: self.scheduled + other.scheduled,
            resolved: self.resolved + other.resolved,
            failed: self.failed + other.failed,
            waiting: self.waiting + other.waiting,
        }
    }
}

impl std::fmt::Display for AutoReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AutoReport { repaired, scheduled, resolved, failed, waiting } = self;
        write!(
            f,
            "{repaired} letters repaired, {scheduled} scheduled, {resolved} resolved, {failed} failed again, {waiting} waiting"
        )
    }
}

/// Repairs and replays the letters of a named pipeline that are due, by the rules of its manifest, if
/// its store exists and knows it; only letters that failed at or after `since_ms`, if it is given.
///
/// # Errors
/// When the store cannot be used, or the pipeline cannot be replayed now. What was done stays.
pub fn remedy(
    place: &LetterStoreLocation,
    named: &NamedPipeline,
    since_ms: Option<i64>,
    stop: &AtomicBool,
) -> Result<AutoReport, String> {
    let say = |e: LetterError| e.to_string();
    if matches!(place, LetterStoreLocation::File(path) if !path.exists()) {
        return Ok(AutoReport::default());
    }
    let mut store = LetterStore::open(place).map_err(say)?;
    let pipeline = named.id();
    let stored = StoredDefinition::read(&mut store, pipeline).map_err(say)?;
    let Some(stored) = stored.filter(|stored| stored.kind() == DefinitionKind::Manifest) else {
        return Ok(AutoReport::default());
    };
    // Nobody is there with the key of sealed payloads.
    if store.setting("recipient").map_err(say)?.is_some() {
        return Ok(AutoReport::default());
    }
    if !store.incidents(Some(pipeline)).map_err(say)?.is_empty() {
        return Ok(AutoReport::default());
    }
    // Nobody is there who could see that the fields of the records are not what they were.
    if let Some(why) = store.check_definition(pipeline).map_err(say)? {
        let check = shell(&place.to_string()).into_owned();
        return Err(format!(
            "{why}; look with `tidegate audit verify --store {check}`. The next run of {pipeline} stores its own"
        ));
    }
    let form = named.manifest.pipeline.dead_letters.clone().unwrap_or_default();
    let done = AutoReport::default();
    let mut desk = AutoDesk { store, place, named, stored, since_ms, runner: None, done, stop };
    desk.unfinished().map_err(say)?;
    for rule in &form.auto {
        desk.rule(rule, &form)?;
    }
    if form.replay_parked {
        let mut due = desk.due(&[], &[LetterState::Scheduled], GENERATIONS_MAX, None).map_err(say)?;
        // A rule says what happens to the letters of its code, and how many.
        due.retain(|letter| form.auto.iter().all(|rule| rule.code != letter.failure.code.as_str()));
        desk.replay(due, &rule_spec(PARKED, ""), None).map_err(say)?;
    }
    Ok(desk.done)
}

/// The same between runs, for a server: nothing while a run is in progress or if the runs use another
/// state directory, whose lock is not this one, and only letters that failed in the last run, unless
/// runs read changes only.
///
/// # Errors
/// As [`remedy`].
pub fn remedy_between_runs(
    place: &LetterStoreLocation,
    named: &NamedPipeline,
    stop: &AtomicBool,
) -> Result<AutoReport, String> {
    let say = |e: LetterError| e.to_string();
    let Some(mut store) = LetterStore::look(place).map_err(say)? else { return Ok(AutoReport::default()) };
    let stored = StoredDefinition::read(&mut store, named.id()).map_err(say)?;
    if !stored.is_some_and(|stored| stored.is_state(&named.state)) {
        return Ok(AutoReport::default());
    }
    let file = StateDir::dir_of(&named.state, named.id()).join(RUN_FILE);
    let Some(last) = std::fs::read(file).ok().and_then(|text| serde_json::from_slice::<RunEntry>(&text).ok())
    else {
        return Ok(AutoReport::default());
    };
    if last.status != RunStatus::Done {
        return Ok(AutoReport::default());
    }
    let since = last.scope.is_none().then_some(last.began_ms);
    remedy(place, named, since, stop)
}

/// The number of open letters of a pipeline that failed at or after this time.
///
/// # Errors
/// When the store cannot be read.
pub fn open_since(place: &LetterStoreLocation, pipeline: &str, since_ms: i64) -> Result<u64, String> {
    let Some(mut store) = LetterStore::look(place).map_err(|e| e.to_string())? else { return Ok(0) };
    let filter = LetterFilter {
        pipeline: Some(pipeline.to_owned()),
        states: LetterState::ALL.into_iter().filter(|state| state.is_open()).collect(),
        since_ms: Some(since_ms),
        ..LetterFilter::default()
    };
    store.count(&filter).map_err(|e| e.to_string())
}

/// The letters of a pipeline, and what is needed to act on them.
struct AutoDesk<'a> {
    store: LetterStore,
    place: &'a LetterStoreLocation,
    named: &'a NamedPipeline,
    stored: StoredDefinition,
    since_ms: Option<i64>,
    /// Made when the first letter is replayed.
    runner: Option<ManifestReplay>,
    done: AutoReport,
    stop: &'a AtomicBool,
}

impl AutoDesk<'_> {
    fn rule(&mut self, rule: &AutoRemedy, form: &DeadLetters) -> Result<(), String> {
        let say = |e: LetterError| e.to_string();
        let name = rule.remedy.map_or("", |remedy| remedy.word());
        if let Some(remedy) = rule.remedy {
            let set = form.remedies.iter().find(|known| known.rule == remedy);
            let repair =
                set.map_or_else(|| RepairRule::named(name), RepairRule::of).map_err(|e| e.to_string())?;
            self.repair(&repair, &rule.code).map_err(say)?;
        }
        let after_ms = rule.retry_after_seconds.map(|seconds| (seconds * 1e3) as i64);
        if let Some(after_ms) = after_ms {
            self.schedule(&rule.code, after_ms).map_err(say)?;
        }
        if !rule.replay {
            return Ok(());
        }
        let generations = if after_ms.is_some() { DELAYED_GENERATIONS_MAX } else { GENERATIONS_MAX };
        let mut states = vec![LetterState::Validated, LetterState::Scheduled];
        if rule.remedy.is_none() && after_ms.is_none() {
            states.push(LetterState::Captured);
        }
        let due = self.due(&[&rule.code], &states, generations, after_ms).map_err(say)?;
        let limit = rule.at_most.as_deref().and_then(ReplayLimit::parse);
        self.replay(due, &rule_spec(&rule.code, name), limit).map_err(say)
    }

    fn filter(&self, codes: &[&str], states: &[LetterState]) -> LetterFilter {
        LetterFilter {
            pipeline: Some(self.named.id().to_owned()),
            codes: codes.iter().map(|code| (*code).to_owned()).collect(),
            states: states.to_vec(),
            // What is ambiguous or kills the process is left to a person.
            classes: vec![FailureClass::Transient, FailureClass::Fatal, FailureClass::Systemic],
            since_ms: self.since_ms,
            ..LetterFilter::default()
        }
    }

    /// Gives letters that are still as they failed a time for their replay.
    fn schedule(&mut self, code: &str, after_ms: i64) -> Result<(), LetterError> {
        let page = LetterPage { limit: LETTERS_MAX, newest_first: false, payload: false };
        for row in self.store.find(&self.filter(&[code], &[LetterState::Captured]), page)? {
            let mut letter = row.letter.clone();
            let at = retry_at_ms(letter.failure.failed_ms, after_ms, letter.lineage.generation);
            letter.state = LetterState::Scheduled;
            letter.not_before_ms = Some(letter.not_before_ms.map_or(at, |known| known.max(at)));
            let detail =
                serde_json::json!({ "retry_after_ms": after_ms, "not_before_ms": letter.not_before_ms });
            self.store.amend(&Amend { row, letter, payload: None, act: "schedule", detail }, now_ms())?;
            self.done.scheduled += 1;
        }
        Ok(())
    }

    /// The letters that may be replayed now.
    fn due(
        &mut self,
        codes: &[&str],
        states: &[LetterState],
        generations: u32,
        after_ms: Option<i64>,
    ) -> Result<Vec<Letter>, LetterError> {
        let page = LetterPage { limit: LETTERS_MAX, newest_first: false, payload: false };
        let now = now_ms();
        let rows = self.store.find(&self.filter(codes, states), page)?;
        let letters = rows.into_iter().map(|row| row.letter);
        Ok(letters
            .filter(|letter| {
                let generation = letter.lineage.generation;
                let delayed = after_ms.map(|after| retry_at_ms(letter.failure.failed_ms, after, generation));
                let at = letter.not_before_ms.or(delayed);
                generation < generations && at.is_none_or(|at| at <= now)
            })
            .collect())
    }

    fn replay(
        &mut self,
        due: Vec<Letter>,
        spec: &str,
        limit: Option<ReplayLimit>,
    ) -> Result<(), LetterError> {
        let now = now_ms();
        let may = match limit {
            None => u64::MAX,
            Some(limit) => {
                limit.left(self.store.rule_replayed_since(self.named.id(), spec, limit.since_ms(now))?)
            }
        };
        let take = usize::try_from(may).unwrap_or(usize::MAX).min(due.len());
        self.done.waiting += (due.len() - take) as u64;
        if take == 0 || self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.ready()?;
        let filter = LetterFilter::of_ids(due.iter().take(take).map(|letter| letter.id));
        let plan = self.store.plan(self.named.id(), &filter, DELAYED_GENERATIONS_MAX, spec, now)?;
        self.go(plan.plan)
    }

    /// Continues replays that a killed process left.
    fn unfinished(&mut self) -> Result<(), LetterError> {
        let mut plans = self.store.plans_running()?;
        plans.retain(|plan| plan.pipeline == self.named.id() && plan.spec.starts_with("{\"auto\":"));
        for plan in plans {
            self.ready()?;
            self.go(plan.plan)?;
        }
        Ok(())
    }

    /// Repairs the letters of a code, if the sink can hold the result.
    fn repair(&mut self, repair: &RepairRule, code: &str) -> Result<(), LetterError> {
        let filter = self.filter(&[code], &[LetterState::Captured]);
        if self.store.count(&filter)? == 0 {
            return Ok(());
        }
        self.ready()?;
        let repair = match &self.runner {
            Some(runner) => runner.opening(repair).map_err(|e| LetterError::Refused(e.into()))?,
            None => repair.clone(),
        };
        let (keys, runner) = (Keyring::default(), &mut self.runner);
        let refusal = &mut |letter: &Letter, payload: &[u8]| match runner {
            Some(runner) => runner.refusal(letter, payload).map_err(|e| LetterError::Refused(e.to_string())),
            None => Ok(None),
        };
        let mut fixer = Fixer { store: &mut self.store, keys: &keys, dry_run: false };
        let fixed = fixer.fix_for(&repair, &filter, now_ms(), refusal)?;
        self.done.repaired += fixed.validated;
        self.done.scheduled += fixed.scheduled;
        Ok(())
    }

    /// Checks that the pipeline can be replayed, before letters are planned.
    fn ready(&mut self) -> Result<(), LetterError> {
        if self.runner.is_none() {
            let refused = |why: String| LetterError::Refused(why);
            let runner = ManifestReplay::new(self.named.clone(), &self.stored, None);
            let mut runner = runner.map_err(|e| refused(e.into()))?;
            runner.preflight().map_err(|why| refused(why.to_string()))?;
            self.runner = Some(runner);
        }
        Ok(())
    }

    fn go(&mut self, plan: i64) -> Result<(), LetterError> {
        let Some(runner) = &mut self.runner else { return Ok(()) };
        let letters = Letters::open(self.place)?;
        // With SQLite, another holder of a lease was on this machine, and the lock of the pipeline
        // says that it has ended.
        let pace = Pace { takeover: self.store.dialect() == SqlDialect::Sqlite, ..Pace::default() };
        let keys = Keyring::default();
        let stop = self.stop;
        let done = replay::go(&mut self.store, &letters, &keys, plan, runner, pace, |_| {
            !stop.load(Ordering::Relaxed)
        });
        letters.close();
        let done = done?;
        self.done.resolved += done.resolved;
        self.done.failed += done.dead;
        self.done.waiting += done.back + done.left;
        Ok(())
    }
}
