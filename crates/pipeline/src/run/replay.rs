//! Replays dead letters into the sink, from the failed stage onward.
//!
//! The letter store keeps what ran when the letters were made: the manifest with its variables
//! resolved, and the description of the source. So a replay writes where the run wrote, and needs
//! no source. The mark of each letter is committed with its rows, so a replay that is killed
//! between the sink and the letter finds the mark and writes nothing twice, even if records are
//! appended.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tidegate_core::letter::{LetterId, LetterState};
use tidegate_core::refusal;
use tidegate_core::{Code, Rng};
use tidegate_geo::Batch;

use super::build::{Folders, PipelineParts, RunContext, Start, build_from};
use super::crash;
use super::described::Described;
use super::in_place::{self, FileRows};
use super::lifecycle::Last;
use super::payload::read;
use super::state::StateDir;
use crate::error::SetupError;
use crate::gate::Gates;
use crate::letter::replay::{ReplayError, Rerun, RowSelector, holds, merge, replay_failure};
use crate::letter::store::ReplayOutcome;
use crate::letter::{Letter, PUT_STAGE, Payload, now_ms};
use crate::manifest::{Manifest, Policy, WriteMode};
use crate::sink::{RowCounts, RunTime, Sink, SinkError, Spec};
use crate::step::{Aside, Reject, SeenKey, StepError};
use crate::traffic::Traffic;

/// The scope under which a sink stores the marks of replayed letters.
const SCOPE: u16 = u16::MAX - 1;

/// How to replay a pipeline, as the letter store keeps it.
#[derive(Deserialize)]
struct ReplayKit {
    manifest: Manifest,
    folder: PathBuf,
    state: PathBuf,
    source: Described,
}

/// Replays the letters of a manifest.
pub struct ManifestReplay {
    kit: ReplayKit,
    ready: Option<PreparedReplay>,
    /// The highest call rate to any service, in calls per second.
    rate_max: Option<f64>,
    /// The letters and batches written last, for verification.
    last: Vec<(Vec<LetterId>, Batch)>,
}

struct PreparedReplay {
    parts: PipelineParts,
    /// The file whose rows are changed by number.
    in_place: Option<FileRows>,
    _lock: StateDir,
}

impl ManifestReplay {
    /// From the stored specification, with at most `rate_max` calls per second to any service.
    ///
    /// # Errors
    /// When another version stored it.
    pub fn new(spec: serde_json::Value, rate_max: Option<f64>) -> Result<ManifestReplay, SetupError> {
        let kit = serde_json::from_value(spec)
            .map_err(|e| format!("cannot read the stored pipeline definition: {e}"))?;
        Ok(ManifestReplay { kit, ready: None, rate_max, last: Vec::new() })
    }

    fn ready(&mut self) -> Result<&mut PreparedReplay, String> {
        let ready = match self.ready.take() {
            Some(ready) => ready,
            None => {
                let kit = &self.kit;
                let lock =
                    StateDir::open(&kit.state, &kit.manifest.pipeline.id).map_err(|e| e.to_string())?;
                if let Last::Unfinished(run) = lock.last()?
                    && run.has_committed()
                {
                    return Err("its last run did not finish; run it with --resume first".into());
                }
                let folders = Folders {
                    manifest: &kit.folder,
                    state: Some(lock.dir().to_owned()),
                    answers: Some(kit.state.clone()),
                    run: 0,
                };
                let begin = Start::Replay(&kit.source);
                let traffic =
                    Traffic::new(&kit.manifest, self.rate_max, None).keeping(&kit.state).going_on(true);
                let context = RunContext { stop: Arc::default(), traffic };
                let mut parts = build_from(&kit.manifest, folders, context, &begin)?;
                parts.gates = Gates::new(&kit.manifest, &parts.flow)?.one_by_one();
                let in_place = in_place::file(&kit.manifest, &parts.sink)?;
                parts.sink = beside(parts.sink);
                match &in_place {
                    Some(rows) => in_place::check(&rows.path)?,
                    None => parts.sink.ready_for_replay().map_err(|e| e.to_string())?,
                }
                PreparedReplay { parts, in_place, _lock: lock }
            }
        };
        Ok(self.ready.insert(ready))
    }
}

/// The sink of a run, opened to add records.
fn beside(sink: Spec) -> Spec {
    let mode = if sink.key.is_empty() { WriteMode::Append } else { WriteMode::Upsert };
    let pipeline = format!("{}#replay", sink.pipeline);
    Spec { pipeline, mode, at: RunTime(now_ms()), resume: true, atomic: false, ..sink }
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
        let mut last = Vec::new();
        let policy = Policy::from(&self.kit.manifest);
        let PreparedReplay { parts, in_place, .. } = self.ready()?;
        if let Some(rows) = in_place {
            return Ok(rows_in_place(parts, rows, letters)?);
        }
        let mut sink = parts.sink.open_for_replay().map_err(|e| e.to_string())?;
        let say = |e: SinkError| e.to_string();
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
        for (stage, of) in stages(letters, &ended) {
            let Some((batch, mut aside)) = attempt(parts, (stage, &of), letters, &mut ended)? else {
                continue;
            };
            let put = land(sink.as_mut(), &batch, letters, (&of, &policy))?;
            aside.stage = "sink".into();
            let good = aside.set_aside(batch, put.refused);
            let dead: BTreeMap<u64, &Reject> =
                aside.rejected.iter().chain(&aside.failed).map(|reject| (reject.record, reject)).collect();
            for at in &of {
                let (Some(letter), reject) = (letters.get(*at), dead.get(&(*at as u64))) else { continue };
                let how = match reject {
                    Some(reject) => ReplayOutcome::Dead(Box::new(died(letter, reject))),
                    None => ReplayOutcome::Resolved { note: note.clone() },
                };
                set(&mut ended, *at, how);
            }
            last.push((of.iter().filter_map(|at| letters.get(*at)).map(|letter| letter.id).collect(), good));
        }
        sink.finish().map_err(say)?;
        crash::point("replayed", 0);
        self.last = last;
        Ok(all_ended(ended))
    }

    fn verify(&mut self, letters: &[Letter]) -> Result<Vec<bool>, ReplayError> {
        let last = std::mem::take(&mut self.last);
        let PreparedReplay { parts, in_place, .. } = self.ready()?;
        if let Some(FileRows { path, .. }) = in_place {
            let rows = letters.iter().map(|letter| in_place::row(letter).map(RowSelector::Row));
            return holds(path, &rows.collect::<Result<Vec<_>, _>>()?);
        }
        let mut sink = parts.sink.open_for_replay().map_err(|e| e.to_string())?;
        let mut missing: HashSet<LetterId> = HashSet::new();
        if parts.sink.mode == WriteMode::Upsert {
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

/// Replays letters into the rows that they have in the file.
fn rows_in_place(
    parts: &mut PipelineParts,
    FileRows { path, stages: kept }: &FileRows,
    letters: &[Letter],
) -> Result<Vec<ReplayOutcome>, String> {
    let mut ended: Vec<Option<ReplayOutcome>> = vec![None; letters.len()];
    let mut updates = Vec::new();
    for (stage, of) in stages(letters, &ended) {
        if stage == PUT_STAGE {
            let note = format!("it has no row in {}", path.display());
            for at in of {
                set(&mut ended, at, ReplayOutcome::Back { not_before_ms: None, note: note.clone() });
            }
            continue;
        }
        if !kept.iter().any(|label| label == stage) {
            return Err(format!("records of the stage {stage:?} have no row in {}", path.display()));
        }
        let Some((batch, aside)) = attempt(parts, (stage, &of), letters, &mut ended)? else { continue };
        for reject in aside.rejected.iter().chain(&aside.failed) {
            let at = reject.record as usize;
            if let Some(letter) = letters.get(at) {
                set(&mut ended, at, ReplayOutcome::Dead(Box::new(died(letter, reject))));
            }
        }
        for row in 0..batch.len() {
            let at = batch.record(row) as usize;
            let (Some(letter), Some(None)) = (letters.get(at), ended.get(at)) else { continue };
            let number = in_place::row(letter)?;
            updates.push(in_place::update(&batch, row, number));
            set(
                &mut ended,
                at,
                ReplayOutcome::Resolved { note: format!("row {number} of {}", path.display()) },
            );
        }
    }
    crash::point("replay_put", 0);
    merge(path, &updates).map_err(|e| e.to_string())?;
    crash::point("replayed", 0);
    Ok(all_ended(ended))
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

fn set(ended: &mut [Option<ReplayOutcome>], at: usize, how: ReplayOutcome) {
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
    let from = match stage {
        "read" | PUT_STAGE => 0,
        "gate" | "sink" => parts.steps.len(),
        label => parts
            .steps
            .iter()
            .position(|step| step.label == label)
            .ok_or_else(|| format!("the pipeline no longer has a stage {label:?}"))?,
    };
    let flow = match stage {
        "read" | PUT_STAGE => &parts.start,
        _ => parts.steps.get(from).map_or(&parts.flow, |step| &step.before),
    };
    let after = parts.steps.get(from + 1).map_or(&parts.flow, |step| &step.before);
    let mut batch = Batch::new(flow.schema.clone());
    for at in of {
        if let Some(letter) = letters.get(*at) {
            read(letter, *at as u64, (flow, &after.schema), &mut batch, aside)?;
        }
    }
    for step in parts.steps.iter_mut().skip(from) {
        aside.stage.clone_from(&step.label);
        batch = step.step.apply(batch, aside)?;
    }
    parts.gates.judge(batch, aside).map_err(|halt| StepError::Broken(halt.to_string()))
}

/// Writes rows and marks in one transaction, with retries while the sink is locked.
fn land(
    sink: &mut dyn Sink,
    batch: &Batch,
    letters: &[Letter],
    (of, policy): (&[usize], &Policy),
) -> Result<RowCounts, String> {
    let marks: Vec<SeenKey> = of.iter().filter_map(|at| letters.get(*at)).map(mark).collect();
    let (mut attempt, mut waited, mut rng) = (0, Duration::ZERO, Rng::new(0));
    loop {
        let landed = sink.put(batch).and_then(|put| {
            crash::point("replay_put", 0);
            sink.commit("{}", &marks).map(|()| put)
        });
        attempt += 1;
        match landed {
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
    if let Some(call) = &reject.call {
        child.failure.attempts.clone_from(&call.attempts);
        if let Some(not_before_ms) = call.not_before_ms {
            child.not_before_ms = Some(not_before_ms);
            child.state = LetterState::Scheduled;
        }
    }
    let received = child.payload.received.clone();
    let current = Some(reject.feature.clone().into_bytes()).filter(|feature| *feature != received);
    child.payload = Payload { received, current };
    child
}
