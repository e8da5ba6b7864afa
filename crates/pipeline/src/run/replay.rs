//! Replays dead letters into the sink, from the failed stage onward.
//!
//! What is called and where is written comes from the manifest that a person named, see `definition`.
//! The letter store says which fields the records came with, so a replay needs no source. The mark of
//! each letter is committed with its rows, so a replay that is killed between the sink and the letter
//! finds the mark and writes nothing twice, even if records are appended.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::letter::{LetterId, LetterState};
use tidegate_core::refusal;
use tidegate_core::{Code, Rng};
use tidegate_geo::Batch;
use tracing::warn;

use super::build::{Folders, PipelineParts, RunContext, Start, build_from};
use super::crash;
use super::definition::{NamedPipeline, StoredDefinition};
use super::described::Described;
use super::fitting;
use super::in_place::{self, FileRows};
use super::lifecycle::Last;
use super::payload::read;
use super::state::StateDir;
use crate::error::SetupError;
use crate::gate::Gates;
use crate::gate::drift;
use crate::letter::remedy::RepairRule;
use crate::letter::replay::{ReplayError, Rerun, replay_failure};
use crate::letter::store::ReplayOutcome;
use crate::letter::{Letter, Payload, now_ms, worker};
use crate::manifest::{Policy, WriteMode, objects};
use crate::sink::{HeldShape, RowCounts, RunTime, Sink, SinkError, Spec};
use crate::step::{Aside, Reject, SeenKey, StepError};
use crate::telemetry::trace::{self, Tracer};
use crate::traffic::Traffic;

/// The scope under which a sink stores the marks of replayed letters.
const SCOPE: u16 = u16::MAX - 1;

/// Replays the letters of a manifest.
pub struct ManifestReplay {
    named: NamedPipeline,
    /// The source that the letters came from.
    source: Described,
    ready: Option<PreparedReplay>,
    /// The highest call rate to any service, in calls per second.
    rate_max: Option<f64>,
    /// The letters and batches written last, for verification.
    last: Vec<(Vec<LetterId>, Batch)>,
    /// The parts with which remedies are checked.
    checked: Option<(PipelineParts, HeldShape)>,
}

struct PreparedReplay {
    parts: PipelineParts,
    /// The file whose rows are changed by number.
    in_place: Option<FileRows>,
    /// The geometry types that the sink holds.
    held: HeldShape,
    lock: StateDir,
}

impl ManifestReplay {
    /// Of a named pipeline, with the fields that the store knows, and at most `rate_max` calls per
    /// second to any service.
    ///
    /// # Errors
    /// When another version stored the fields.
    pub fn new(
        named: NamedPipeline,
        stored: &StoredDefinition,
        rate_max: Option<f64>,
    ) -> Result<ManifestReplay, SetupError> {
        let source = stored.source()?;
        let named = NamedPipeline { manifest: stored.with_found_fields(&named.manifest), ..named };
        Ok(ManifestReplay { named, source, ready: None, rate_max, last: Vec::new(), checked: None })
    }

    /// A rule that may open what the records of the pipeline may name.
    ///
    /// # Errors
    /// When the manifest cannot be used.
    pub fn opening(&self, rule: &RepairRule) -> Result<RepairRule, SetupError> {
        let NamedPipeline { manifest, folder, .. } = &self.named;
        let objects = objects::of_rasters(&manifest.pipeline, folder).map_err(|e| e.to_string())?;
        Ok(rule.clone().opening(&objects, folder))
    }

    /// The parts of the pipeline, for letters instead of a source.
    fn parts(&self, state: Option<PathBuf>) -> Result<PipelineParts, String> {
        let NamedPipeline { manifest, folder, state: answers, .. } = &self.named;
        let folders = Folders { manifest: folder, state, answers: Some(answers.clone()), run: 0 };
        let traffic = Traffic::new(manifest, self.rate_max, None)
            .keeping(answers)
            .going_on(true)
            .with_fleet(manifest)?;
        let context = RunContext { stop: Arc::default(), traffic, tasks: None };
        let mut parts = build_from(manifest, folders, context, &Start::Replay(&self.source))?;
        parts.gates = Gates::new(manifest, &parts.flow)?.one_by_one();
        Ok(parts)
    }

    fn ready(&mut self) -> Result<&mut PreparedReplay, String> {
        let ready = match self.ready.take() {
            Some(ready) => ready,
            None => {
                let lock = StateDir::open(&self.named.state, self.named.id()).map_err(|e| e.to_string())?;
                if let Last::Unfinished(run) = lock.last()?
                    && run.has_committed()
                {
                    return Err("its last run did not finish; run it with --resume first".into());
                }
                let mut parts = self.parts(Some(lock.dir().to_owned()))?;
                parts.gates.open_baseline(lock.dir(), false)?;
                let in_place = in_place::file(&self.named.manifest, &parts.sink)?;
                let say = |e: SinkError| e.to_string();
                parts.sink = beside(parts.sink, in_place.is_some());
                parts.sink.ready_for_replay().map_err(say)?;
                let held = parts.sink.held_shape().map_err(say)?;
                parts.sink.set_shape(held.only);
                PreparedReplay { parts, in_place, held, lock }
            }
        };
        Ok(self.ready.insert(ready))
    }
}

/// The sink of a run, opened to add records. Where the run appends, keys need not be unique, and a
/// replay appends too: its marks keep it from doing so twice.
fn beside(sink: Spec, by_number: bool) -> Spec {
    let appends = sink.key.is_empty() || sink.mode == WriteMode::Append;
    let mode = if appends { WriteMode::Append } else { WriteMode::Upsert };
    let pipeline = sink.replay_pipeline();
    Spec { pipeline, mode, at: RunTime(now_ms()), resume: true, atomic: false, by_number, ..sink }
}

fn mark(letter: &Letter) -> SeenKey {
    SeenKey { scope: SCOPE, hash: letter.id.to_bytes() }
}

impl Rerun for ManifestReplay {
    fn preflight(&mut self) -> Result<(), ReplayError> {
        self.ready()?;
        Ok(())
    }

    fn run(&mut self, letters: &[Letter]) -> Result<Vec<ReplayOutcome>, ReplayError> {
        let policy = Policy::from(&self.named.manifest);
        let PreparedReplay { parts, in_place, held, lock } = self.ready()?;
        let say = |e: SinkError| e.to_string();
        let mut sink = parts.sink.open_for_replay().map_err(say)?;
        let known: HashSet<[u8; 16]> = sink
            .saved()
            .map_err(say)?
            .map(|saved| saved.seen.iter().filter(|seen| seen.scope == SCOPE).map(|seen| seen.hash).collect())
            .unwrap_or_default();
        crash::point("replay", 0);
        let note = format!("in {}", parts.sink.describe());
        let mut ended: Vec<Option<ReplayOutcome>> = letters
            .iter()
            .map(|letter| {
                known.contains(&mark(letter).hash).then(|| ReplayOutcome::Resolved { note: note.clone() })
            })
            .collect();
        let mut last = Vec::new();
        for (stage, of) in stages(letters, &ended) {
            if let Err(why) = parts.stage(stage) {
                warn!(target: "tidegate::letter", "{} letters stay as they are: {why}", of.len());
                for at in &of {
                    set(&mut ended, *at, ReplayOutcome::Back { not_before_ms: None, note: why.clone() });
                }
                continue;
            }
            if let Some(rows) = in_place
                && !rows.check_stage(stage, &of, &mut ended)?
            {
                continue;
            }
            let Some((batch, mut aside)) = attempt(parts, (stage, &of), letters, &mut ended)? else {
                continue;
            };
            let (mut batch, widen) = fitting::fit(batch, held, &parts.sink, &mut aside);
            if widen {
                drop(sink);
                parts.sink.hold_any_shape().map_err(say)?;
                *held = HeldShape::default();
                sink = parts.sink.open_for_replay().map_err(say)?;
            }
            for reject in aside.rejected.iter().chain(&aside.failed) {
                let at = reject.record as usize;
                if let Some(letter) = letters.get(at) {
                    set(&mut ended, at, ReplayOutcome::Dead(Box::new(died(letter, reject))));
                }
            }
            // Each letter by the number of its record in the batch.
            let mut numbers: BTreeMap<u64, usize> = of.iter().map(|at| (*at as u64, *at)).collect();
            if let Some(rows) = in_place {
                let before = parts.stage(stage)?.1.schema.clone();
                (batch, numbers) = rows.numbered(&batch, letters, &before, &mut ended)?;
            }
            numbers.retain(|_, at| ended.get(*at).is_some_and(Option::is_none));
            let landed = |put: &RowCounts| {
                let refused: HashSet<u64> = put.refused.iter().map(|(row, _)| batch.record(*row)).collect();
                let landed = numbers.iter().filter(|(number, _)| !refused.contains(number));
                landed.filter_map(|(_, at)| letters.get(*at)).collect()
            };
            let put = land(sink.as_mut(), &batch, landed, &policy)?;
            let there: HashSet<u64> = (0..batch.len()).map(|row| batch.record(row)).collect();
            let mut refused = Aside { stage: "sink".into(), ..Aside::default() };
            let good = refused.set_aside(batch, put.refused);
            for (number, at) in &numbers {
                let Some(letter) = letters.get(*at) else { continue };
                let how = match refused.rejected.iter().find(|reject| reject.record == *number) {
                    Some(reject) => ReplayOutcome::Dead(Box::new(died(letter, reject))),
                    None if in_place.is_some() => ReplayOutcome::Resolved {
                        note: format!("row {} of {}", number + 1, parts.sink.describe()),
                    },
                    None if !there.contains(number) => {
                        ReplayOutcome::Resolved { note: "removed by a filter, a clip or a dedupe".into() }
                    }
                    None => ReplayOutcome::Resolved { note: note.clone() },
                };
                set(&mut ended, *at, how);
            }
            let of = numbers.values();
            last.push((of.filter_map(|at| letters.get(*at)).map(|letter| letter.id).collect(), good));
        }
        sink.finish().map_err(say)?;
        crash::point("replayed", 0);
        // Whoever replays a record that drifted accepts its numbers.
        parts.gates.write_notes()?;
        drift::settle(lock.dir())?;
        parts.gates.open_baseline(lock.dir(), false)?;
        self.last = last;
        Ok(all_ended(ended))
    }

    fn refusal(&mut self, letter: &Letter, payload: &[u8]) -> Result<Option<String>, ReplayError> {
        let (mut parts, held) = match self.checked.take() {
            Some(known) => known,
            None => {
                let parts = self.parts(None)?;
                let held = parts.sink.held_shape().map_err(|e| e.to_string())?;
                (parts, held)
            }
        };
        let why = fitting::refusal(&mut parts, &held, letter, payload);
        self.checked = Some((parts, held));
        Ok(why?)
    }

    fn verify(&mut self, letters: &[Letter]) -> Result<Vec<bool>, ReplayError> {
        let last = std::mem::take(&mut self.last);
        let PreparedReplay { parts, in_place, .. } = self.ready()?;
        let mut sink = parts.sink.open_for_replay().map_err(|e| e.to_string())?;
        let mut missing: HashSet<LetterId> = HashSet::new();
        if parts.sink.mode == WriteMode::Upsert || in_place.is_some() {
            // Rows that are unchanged are in the sink.
            for (ids, batch) in &last {
                let put = sink.put(batch).map_err(|e| e.to_string())?;
                sink.rollback();
                if put.unchanged != batch.len() as u64 {
                    missing.extend(ids);
                }
            }
        } else {
            let saved = sink.saved().map_err(|e| e.to_string())?.unwrap_or_default();
            missing.extend(letters.iter().filter(|l| !saved.seen.contains(&mark(l))).map(|l| l.id));
        }
        // Verification leaves nothing behind.
        sink.finish().map_err(|e| e.to_string())?;
        Ok(letters.iter().map(|letter| !missing.contains(&letter.id)).collect())
    }
}

/// Replays the letters of one stage; `None` if a service asks for a longer wait than allowed, which
/// is then their outcome.
fn attempt(
    parts: &mut PipelineParts,
    (stage, of): (&str, &[usize]),
    letters: &[Letter],
    ended: &mut [Option<ReplayOutcome>],
) -> Result<Option<(Batch, Aside)>, String> {
    let mut aside = Aside { stage: stage.to_owned(), ..Aside::default() };
    match through(parts, stage, letters, of, &mut aside) {
        Ok(_) if nobody_answered(&aside, of.len()) => {
            // Nothing of this is landed: the letters are as they were, and have not died once more.
            let code = Code::CONNECTION_REFUSED;
            for at in of {
                set(ended, *at, ReplayOutcome::Back { not_before_ms: None, note: code.to_string() });
            }
            Ok(None)
        }
        Ok(batch) => Ok(Some((batch, aside))),
        Err(StepError::TryLater { code, until, .. }) => {
            let not_before_ms = Some(until.millis());
            for at in of {
                set(ended, *at, ReplayOutcome::Back { not_before_ms, note: code.to_string() });
            }
            Ok(None)
        }
        Err(other) => Err(other.into()),
    }
}

/// Whether every letter failed because the service refused the connection: it is down.
fn nobody_answered(aside: &Aside, letters: usize) -> bool {
    let failed = || aside.rejected.iter().chain(&aside.failed);
    let codes = failed().flat_map(|reject| &reject.problems).map(|problem| problem.code.as_str());
    failed().count() == letters && refusal::nobody_answered(0, codes)
}

/// The outcome of each letter; a letter that no stage took is unchanged.
fn all_ended(ended: Vec<Option<ReplayOutcome>>) -> Vec<ReplayOutcome> {
    let lost = || ReplayOutcome::Back { not_before_ms: None, note: "not tried".into() };
    ended.into_iter().map(|how| how.unwrap_or_else(lost)).collect()
}

pub(super) fn set(ended: &mut [Option<ReplayOutcome>], at: usize, how: ReplayOutcome) {
    if let Some(slot) = ended.get_mut(at) {
        *slot = Some(how);
    }
}

/// The remaining letters by the stage at which they failed.
fn stages<'a>(letters: &'a [Letter], ended: &[Option<ReplayOutcome>]) -> BTreeMap<&'a str, Vec<usize>> {
    let mut stages: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, letter) in letters.iter().enumerate() {
        if ended.get(at).is_some_and(Option::is_none) {
            stages.entry(letter.stage.as_str()).or_default().push(at);
        }
    }
    stages
}

/// Takes the letters of one stage through it and the following ones. The index of a letter is the
/// number of its record.
fn through(
    parts: &mut PipelineParts,
    stage: &str,
    letters: &[Letter],
    of: &[usize],
    aside: &mut Aside,
) -> Result<Batch, StepError> {
    let (from, flow, after) = parts.stage(stage)?;
    let mut batch = Batch::new(flow.schema.clone());
    for at in of {
        if let Some(letter) = letters.get(*at) {
            read(letter, *at as u64, (flow, after), &mut batch, aside)?;
        }
    }
    for step in parts.steps.iter_mut().skip(from) {
        aside.stage.clone_from(&step.label);
        batch = step.step.apply(batch, aside)?;
    }
    parts.gates.judge(batch, aside).map_err(|halt| StepError::Broken(halt.to_string()))
}

/// Writes rows and the marks of their letters in one transaction, with retries while the sink is locked.
/// `landed` tells the letters whose rows the sink has taken.
fn land<'a>(
    sink: &mut dyn Sink,
    batch: &Batch,
    landed: impl Fn(&RowCounts) -> Vec<&'a Letter>,
    policy: &Policy,
) -> Result<RowCounts, String> {
    let (mut attempt, mut waited, mut rng) = (0, Duration::ZERO, Rng::new(0));
    loop {
        let done = sink.put(batch).and_then(|put| {
            crash::point("replay_put", 0);
            let letters = landed(&put);
            let geotasks: Vec<String> =
                letters.iter().filter_map(|letter| letter.geotask()).map(ToOwned::to_owned).collect();
            if !geotasks.is_empty() {
                sink.resolve_tasks(&geotasks)?;
            }
            let marks: Vec<SeenKey> = letters.into_iter().map(mark).collect();
            sink.commit("{}", &marks).map(|()| put)
        });
        attempt += 1;
        match done {
            Ok(put) => return Ok(put),
            Err(SinkError::Transient { .. }) if attempt < policy.call.attempts_max => {
                sink.rollback();
                waited = policy.call.backoff.delay(attempt - 1, waited, &mut rng);
                std::thread::sleep(waited);
            }
            Err(error) => {
                sink.rollback();
                return Err(error.to_string());
            }
        }
    }
}

/// The letter of a replay that failed: the stage and failure of now.
fn died(letter: &Letter, reject: &Reject) -> Letter {
    let first = reject.problems.first();
    let message = first.map_or_else(String::new, |problem| match problem.path.as_str() {
        "" => problem.message.clone(),
        path => format!("{path}: {}", problem.message),
    });
    let code = first.map_or(Code::UNKNOWN, |problem| problem.code);
    let mut child = replay_failure(letter, code, message, now_ms());
    child.stage.clone_from(&reject.stage);
    child.failure.worker = worker();
    child.failure.trace_id = trace::tracer().map_or_else(String::new, Tracer::trace_id);
    (child.failure.service, child.failure.service_name, child.failure.http) = Default::default();
    child.failure.driver = "run".into();
    if let Some(call) = &reject.call {
        child.failure.attempts.clone_from(&call.attempts);
        child.failure.service.clone_from(&call.service);
        child.failure.service_name.clone_from(&call.name);
        child.failure.driver.clone_from(&call.driver);
        child.failure.http = Some(call.http());
        if let Some(not_before_ms) = call.not_before_ms {
            child.not_before_ms = Some(not_before_ms);
            child.state = LetterState::Scheduled;
        }
    }
    let received = child.payload.received.clone();
    let current = Some(reject.feature().as_bytes().to_vec()).filter(|feature| *feature != received);
    child.payload = Payload { received, current };
    child
}
