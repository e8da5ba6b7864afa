//! A run from its beginning to its end: what it starts from, its three threads, what it leaves.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;

use serde_json::json;

use super::build::{Named, Parts, Start, build_from};
use super::crash;
use super::kept::Kept;
use super::landing::Landing;
use super::letters::{self, DeadRejects};
use super::rejects::{NdjsonRejects, Rejects};
use super::report::{End, Report, RunError};
use super::source::{self, Source, Told};
use super::state::{Checkpoint, State, Status};
use super::trail::Trail;
use super::transform::{Ended, Read, transform};
use crate::gate::Gates;
use crate::manifest::{Manifest, Mode, Policy};
use crate::telemetry::{Telemetry, Teller};
use crate::traffic::Traffic;

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Relative paths of the manifest start here.
    pub folder: PathBuf,
    /// Where state is kept.
    pub state: PathBuf,
    /// Go on from the last checkpoint.
    pub resume: bool,
    /// All becomes visible at once, or nothing.
    pub atomic: bool,
    /// Ask for every record, however many a service refuses.
    pub keep_going: bool,
}

/// A run as others see it while it goes on.
#[derive(Default)]
pub struct Watch {
    /// Records read, by this run and those it resumes.
    pub read: AtomicU64,
    /// Records committed.
    pub written: AtomicU64,
    /// Records given up.
    pub dead: AtomicU64,
    /// Records of committed batches, whatever became of them.
    pub done: AtomicU64,
    /// Of those, how many an earlier run did.
    pub resumed: AtomicU64,
    /// Reading has begun; before that the source is looked at.
    pub begun: AtomicBool,
    /// Records in the source; 0 if that is unknown.
    pub total: AtomicU64,
    /// Set to stop: what is under way is committed.
    pub stop: Arc<AtomicBool>,
    /// What is counted.
    pub telemetry: Arc<Telemetry>,
}

/// Runs a pipeline.
///
/// # Errors
/// When it cannot begin, or breaks off.
pub fn run(manifest: &Manifest, options: &Options, watch: &Watch) -> Result<Report, RunError> {
    let began = Instant::now();
    let setup = RunError::Setup;
    let id = &manifest.pipeline.id;
    let state = State::open(&options.state, id).map_err(setup)?;
    let last = state.last();
    if options.resume && last == Some(Status::Done) {
        return Ok(Report::nothing_to_resume(id, began));
    }
    let mut trail = Trail::open(manifest, &options.folder, &options.state, &state).map_err(setup)?;
    let letters = manifest.pipeline.dead_letters.as_ref();
    if let Some(form) = letters {
        let place = letters::place(form, &options.folder, &options.state).map_err(setup)?;
        let why = letters::suspended(&place, id).map_err(|e| setup(e.to_string()))?;
        why.map_or(Ok(()), |why| Err(RunError::Later(why)))?;
    }
    let kept = state.kept().filter(|_| options.resume);
    let begin = if options.resume { Start::Resumed(kept.as_ref()) } else { Start::New };
    let cache = Some(state.dir().to_owned());
    let traffic = Traffic::new(manifest, None, Some(watch.telemetry.clone()))
        .keeping(&options.state)
        .going_on(options.keep_going);
    let ways = (watch.stop.clone(), traffic.clone());
    let parts = match build_from(manifest, (&options.folder, cache), ways, &begin) {
        Ok(parts) => parts,
        Err(why) => {
            trail.calls(traffic.noted()).map_err(setup)?;
            return Err(why.into());
        }
    };
    let mut rejects: Box<dyn Rejects> = match letters {
        None => Box::new(NdjsonRejects::new(&state.file("rejects.ndjson"), id)),
        Some(form) => {
            let places = (options.folder.as_path(), options.state.as_path());
            Box::new(DeadRejects::open(form, manifest, &parts, places).map_err(setup)?)
        }
    };
    let Parts { fingerprint, mut source, mut steps, mut gates, mut sink, flow, .. } = parts;
    (sink.resume, sink.atomic) = (options.resume, options.atomic);
    let unfinished = matches!(
        last,
        Some(
            Status::Running
                | Status::Halted
                | Status::Stopped
                | Status::TryLater
                | Status::Suspended
                | Status::Failed
        )
    );
    if !options.resume && unfinished && sink.mode == Mode::Append && sink.keeps_checkpoints() {
        return Err(setup(format!(
            "the last run of {id} did not finish, and `mode: append` would add its records again; use --resume, or take them out and remove {}",
            state.file("run.json").display()
        )));
    }
    let mut target = sink.open().map_err(setup)?;
    crash::point("opened", 0);
    let mut from =
        Checkpoint { pipeline: fingerprint.clone(), stamp: source.stamp(), ..Checkpoint::default() };
    let saved = if options.resume { target.saved().map_err(|e| setup(e.to_string()))? } else { None };
    let mut resumed_at = 0;
    if let Some(saved) = saved {
        let known: Checkpoint = serde_json::from_str(&saved.checkpoint)
            .map_err(|e| setup(format!("the checkpoint cannot be read: {e}")))?;
        if known.pipeline != fingerprint {
            return Err(setup("source, steps or sink of the manifest have changed since the run that is to be resumed; run without --resume".into()));
        }
        if known.stamp != from.stamp {
            return Err(setup(format!(
                "the source has changed since the run that is to be resumed (it was {}, it is {}); run without --resume",
                known.stamp, from.stamp
            )));
        }
        if !known.position.is_empty() {
            let own = saved.seen.iter().filter(|seen| seen.scope == source::SCOPE);
            source.seek(&known.position, own.map(|seen| seen.hash).collect())?;
        }
        for seen in saved.seen.iter().filter(|seen| seen.scope != source::SCOPE) {
            steps.iter_mut().for_each(|named| named.step.remember(seen));
            gates.remember(seen);
        }
        gates.restore(&known.gates);
        resumed_at = known.counts.read;
        from = known;
    }
    if resumed_at == 0 {
        rejects.begin().map_err(setup)?;
    } else {
        rejects.rewind(from.rejects).map_err(setup)?;
    }
    if kept.is_none() {
        state.keep_source(&Kept::of(source.as_ref())).map_err(setup)?;
    }
    state.keep(json!({ "pipeline": id, "status": Status::Running })).map_err(setup)?;
    let detail =
        json!({ "resume": options.resume, "atomic": options.atomic, "records": source.layer().records });
    trail.begin(&mut from, (sink.describe(), sink.keeps_checkpoints()), last, detail).map_err(setup)?;
    watch.total.store(source.layer().records.unwrap_or(0), Ordering::Relaxed);
    watch.read.store(from.counts.read, Ordering::Relaxed);
    watch.done.store(from.counts.read, Ordering::Relaxed);
    watch.resumed.store(from.counts.read, Ordering::Relaxed);
    watch.begun.store(true, Ordering::Relaxed);
    watch.telemetry.begin(gates.readings(None), &from.counts);
    let stages = steps.iter().map(|named| (named.label.as_str(), named.crs.as_ref()));
    let teller = Teller::new(&watch.telemetry, stages, flow.crs.as_ref());
    let policy = Policy::from(manifest);
    let retry = !(options.atomic && matches!(sink.target, crate::sink::Target::Table(_)));
    let mut landing = Landing {
        sink: target.as_mut(),
        rejects: rejects.as_mut(),
        trail: &mut trail,
        checkpoint: from,
        policy,
        retry,
        watch,
        teller,
        rejected: Vec::new(),
        batches: 0,
    };
    let (ended, told) = pump(source, steps, &mut gates, &mut landing, (watch, &traffic));
    let (counts, gate_tallies, batches) =
        (landing.checkpoint.counts.clone(), gates.tallies(), landing.batches);
    // Before the sink forgets its checkpoint.
    let ended = match (landing.trail.flush(&mut landing.checkpoint), ended) {
        (Err(what), Ended::Done) => Ended::Broken(what),
        (_, ended) => ended,
    };
    let run = landing.checkpoint.run.clone();
    let halted = if let Ended::Halted(halt) = &ended { Some(halt.gate.as_str()) } else { None };
    watch.telemetry.gates(gates.readings(halted));
    let ended = match ended {
        // What is to be visible at once must be whole.
        Ended::Done => match landing.sink.finish() {
            Ok(()) => Ended::Done,
            Err(e) => Ended::Broken(e.to_string()),
        },
        other => other,
    };
    crash::point("finish", 0);
    let mut warnings = gates.warnings();
    warnings.extend(landing.sink.notes());
    let (end, status, broken) = match ended {
        Ended::Done if !counts.balanced() => (
            End::Stopped,
            Status::Failed,
            Some(format!("the books do not balance, records are missing; please report this: {counts:?}")),
        ),
        Ended::Done => (End::Done, Status::Done, None),
        Ended::Halted(halt) => (End::Halted(halt), Status::Halted, None),
        Ended::Stopped => (End::Stopped, Status::Stopped, None),
        Ended::TryLater(code, until) => (End::TryLater(code, until), Status::TryLater, None),
        Ended::Suspended(what) => (End::Suspended(what), Status::Suspended, None),
        Ended::Broken(what) => (End::Stopped, Status::Failed, Some(what)),
    };
    if matches!(end, End::TryLater(..)) {
        warnings.extend(traffic.later());
    }
    if end != End::Done && !sink.keeps_checkpoints() {
        warnings
            .push("nothing was written: this sink shows a run when it is whole, and begins again".to_owned());
    }
    let report = Report {
        pipeline: id.clone(),
        end,
        counts,
        gates: gate_tallies,
        warnings,
        rejects: rejects.place(),
        sink: sink.describe(),
        resumed_at,
        calls: traffic.calls(),
        source: told,
        operations: flow.operations,
        batches,
        elapsed: began.elapsed(),
    };
    trail.end(&run, &report, status, (broken.as_deref(), traffic.noted())).map_err(RunError::Broken)?;
    state.keep(report.to_json(status)).map_err(RunError::Broken)?;
    match broken {
        Some(what) => Err(RunError::Broken(what)),
        None => Ok(report),
    }
}

/// Lets the three threads run to their end.
fn pump(
    source: Box<dyn Source>,
    steps: Vec<Named>,
    gates: &mut Gates,
    landing: &mut Landing<'_>,
    (watch, traffic): (&Watch, &Traffic),
) -> (Ended, Option<Told>) {
    let (pages, incoming) = sync_channel(2);
    let (works, ready) = sync_channel(2);
    let committed = landing.checkpoint.counts.written();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || read(source, &pages, watch));
        let middle = scope.spawn(move || transform(&incoming, &works, steps, (gates, traffic), committed));
        let mut failed = None;
        for work in &ready {
            if let Err(what) = landing.land(work) {
                failed = Some(what);
                // Nobody need wait for a service any more.
                watch.stop.store(true, Ordering::Relaxed);
                break;
            }
        }
        // Whoever still sends finds nobody there, and ends.
        drop(ready);
        let ended = middle.join().unwrap_or_else(|_| {
            Ended::Broken("a step failed on a fault of its own; please report this".into())
        });
        let told = reader.join().unwrap_or_default();
        (failed.unwrap_or(ended), told)
    })
}

fn read(mut source: Box<dyn Source>, pages: &SyncSender<Read>, watch: &Watch) -> Option<Told> {
    while !watch.stop.load(Ordering::Relaxed) {
        let page = source.next();
        let last = !matches!(page, Ok(Some(_)));
        if let Ok(Some(page)) = &page {
            let records = (page.batch.len() + page.rejected.len()) as u64;
            watch.read.fetch_add(records, Ordering::Relaxed);
            watch.telemetry.records.read(records);
        }
        if pages.send(page).is_err() || last {
            break;
        }
    }
    source.told()
}
