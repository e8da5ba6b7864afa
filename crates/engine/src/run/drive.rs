//! The three threads of a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_core::{Code, Rng, Wall};
use tidegate_geo::Batch;

use super::build::{Named, Parts, build};
use super::counts::Counts;
use super::crash;
use super::rejects::{NdjsonRejects, Rejects};
use super::source::{Page, Source};
use super::state::{Checkpoint, State, Status};
use crate::gate::{Gates, Halt, Tally};
use crate::manifest::{Manifest, Mode, Policy};
use crate::sink::{Put, Sink, SinkError};
use crate::step::{Aside, Reject, Seen, StepError};

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
}

/// A run as others see it while it goes on.
#[derive(Debug, Default)]
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
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// All records have an end.
    Done,
    /// A gate ended it.
    Halted(Halt),
    /// It was stopped from outside.
    Stopped,
    /// The other side wants more patience than there is.
    TryLater(Code, Wall),
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct Report {
    /// The pipeline.
    pub pipeline: String,
    /// How it ended.
    pub end: End,
    /// What became of the records, over all resumes.
    pub counts: Counts,
    /// What the gates counted.
    pub gates: Vec<Tally>,
    /// What to tell.
    pub warnings: Vec<String>,
    /// Where the rejects are.
    pub rejects: String,
    /// Where the records are.
    pub sink: String,
    /// From which record on this run worked; 0 if it began anew.
    pub resumed_at: u64,
    /// Calls to services.
    pub calls: u64,
    /// Batches committed by this run.
    pub batches: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// Why a run did not start or broke off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// Nothing was begun: the manifest, the source or the sink cannot be used.
    Setup(String),
    /// It broke off; what was committed stays, and `--resume` goes on.
    Broken(String),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Setup(what) | RunError::Broken(what) => f.write_str(what),
        }
    }
}

/// A batch on its way to the sink.
struct Work {
    batch: Batch,
    rejected: Vec<Reject>,
    seen: Vec<Seen>,
    /// What steps and gates say became of its records; what the sink does is not in it yet.
    delta: Counts,
    gates: Vec<Tally>,
    position: String,
    ended: bool,
}

/// How the middle ended.
enum Ended {
    Done,
    Halted(Halt),
    Stopped,
    TryLater(Code, Wall),
    Broken(String),
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
    let mut rejects = NdjsonRejects::new(&state.file("rejects.ndjson"), id);
    if options.resume && last == Some(Status::Done) {
        return Ok(nothing_to_resume(id, rejects.place(), began));
    }
    let parts =
        build(manifest, &options.folder, Some(state.dir().to_owned()), watch.stop.clone()).map_err(setup)?;
    let Parts { fingerprint, mut source, mut steps, mut gates, mut sink, services, .. } = parts;
    (sink.resume, sink.atomic) = (options.resume, options.atomic);
    let unfinished = matches!(
        last,
        Some(Status::Running | Status::Halted | Status::Stopped | Status::TryLater | Status::Failed)
    );
    if !options.resume && unfinished && sink.mode == Mode::Append && sink.keeps_checkpoints() {
        return Err(setup(format!(
            "the last run of {id} did not finish, and `mode: append` would add its records again; use --resume, or take them out and remove {}",
            state.file("run.json").display()
        )));
    }
    let mut target = sink.open().map_err(setup)?;
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
            source.seek(&known.position).map_err(setup)?;
        }
        for seen in &saved.seen {
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
    state.keep(&json!({ "pipeline": id, "status": Status::Running })).map_err(setup)?;
    watch.total.store(source.layer().records.unwrap_or(0), Ordering::Relaxed);
    watch.read.store(from.counts.read, Ordering::Relaxed);
    watch.done.store(from.counts.read, Ordering::Relaxed);
    watch.resumed.store(from.counts.read, Ordering::Relaxed);
    watch.begun.store(true, Ordering::Relaxed);
    let declared = source.layer().records;
    let policy = Policy::from(manifest);
    let retry = !(options.atomic && matches!(sink.target, crate::sink::Target::Table(_)));
    let mut landing = Landing {
        sink: target.as_mut(),
        rejects: &mut rejects,
        checkpoint: from,
        policy,
        retry,
        watch,
        batches: 0,
    };
    let ended = pump(source, steps, &mut gates, &mut landing, watch, declared);
    let (counts, gate_tallies, batches) =
        (landing.checkpoint.counts.clone(), gates.tallies(), landing.batches);
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
        Ended::Broken(what) => (End::Stopped, Status::Failed, Some(what)),
    };
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
        calls: services.calls.load(Ordering::Relaxed),
        batches,
        elapsed: began.elapsed(),
    };
    state.keep(&report.to_json(status)).map_err(RunError::Broken)?;
    match broken {
        Some(what) => Err(RunError::Broken(what)),
        None => Ok(report),
    }
}

fn nothing_to_resume(id: &str, rejects: String, began: Instant) -> Report {
    Report {
        pipeline: id.to_owned(),
        end: End::Done,
        counts: Counts::default(),
        gates: Vec::new(),
        warnings: vec!["the last run finished: there is nothing to resume".to_owned()],
        rejects,
        sink: String::new(),
        resumed_at: 0,
        calls: 0,
        batches: 0,
        elapsed: began.elapsed(),
    }
}

impl Report {
    /// The result for machines.
    #[must_use]
    pub fn to_json(&self, status: Status) -> serde_json::Value {
        let (halt, until) = match &self.end {
            End::Halted(halt) => (Some(halt), None),
            End::TryLater(_, until) => (None, Some(until.millis())),
            _ => (None, None),
        };
        json!({
            "pipeline": self.pipeline,
            "status": status,
            "read": self.counts.read,
            "added": self.counts.added,
            "written": self.counts.written(),
            "inserted": self.counts.inserted,
            "updated": self.counts.updated,
            "unchanged": self.counts.unchanged,
            "rejected": self.counts.dead(),
            "rejected_by_code": self.counts.rejected,
            "filtered": self.counts.filtered,
            "deduped": self.counts.deduped,
            "no_match": self.counts.no_match,
            "repaired": self.counts.repaired,
            "balanced": self.counts.balanced(),
            "gates": self.gates,
            "halt": halt,
            "not_before_ms": until,
            "warnings": self.warnings,
            "rejects": self.rejects,
            "sink": self.sink,
            "resumed_at": self.resumed_at,
            "calls": self.calls,
            "batches": self.batches,
            "elapsed_seconds": self.elapsed.as_secs_f64(),
        })
    }

    /// The status that its end means.
    #[must_use]
    pub fn status(&self) -> Status {
        match self.end {
            End::Done => Status::Done,
            End::Halted(_) => Status::Halted,
            End::Stopped => Status::Stopped,
            End::TryLater(..) => Status::TryLater,
        }
    }
}

/// Lets the three threads run to their end.
fn pump(
    source: Box<dyn Source>,
    steps: Vec<Named>,
    gates: &mut Gates,
    landing: &mut Landing<'_>,
    watch: &Watch,
    declared: Option<u64>,
) -> Ended {
    let (pages, incoming) = sync_channel(2);
    let (works, ready) = sync_channel(2);
    let committed = landing.checkpoint.counts.written();
    let already = landing.checkpoint.counts.read;
    std::thread::scope(|scope| {
        scope.spawn(move || read(source, &pages, watch));
        let middle =
            scope.spawn(move || transform(&incoming, &works, steps, gates, committed, (already, declared)));
        let mut failed = None;
        for work in &ready {
            if let Err(what) = landing.land(work) {
                failed = Some(what);
                break;
            }
        }
        // Whoever still sends finds nobody there, and ends.
        drop(ready);
        let ended = middle.join().unwrap_or_else(|_| {
            Ended::Broken("a step failed on a fault of its own; please report this".into())
        });
        match failed {
            Some(what) => Ended::Broken(what),
            None => ended,
        }
    })
}

/// `None` is the end of the source; a channel that closes without it is a stop.
type Read = Result<Option<Page>, String>;

fn read(mut source: Box<dyn Source>, pages: &SyncSender<Read>, watch: &Watch) {
    loop {
        if watch.stop.load(Ordering::Relaxed) {
            return;
        }
        let page = source.next();
        let last = !matches!(page, Ok(Some(_)));
        if let Ok(Some(page)) = &page {
            watch.read.fetch_add((page.batch.len() + page.rejected.len()) as u64, Ordering::Relaxed);
        }
        if pages.send(page).is_err() || last {
            return;
        }
    }
}

fn transform(
    pages: &Receiver<Read>,
    works: &SyncSender<Work>,
    mut steps: Vec<Named>,
    gates: &mut Gates,
    committed: u64,
    (already, declared): (u64, Option<u64>),
) -> Ended {
    let mut held: Option<Work> = None;
    let (mut passed, mut read) = (committed, already);
    let gone = || Ended::Broken("the sink has stopped".into());
    loop {
        let page = match pages.recv() {
            Ok(Ok(Some(page))) => page,
            Ok(Ok(None)) => break,
            Ok(Err(what)) => {
                // What was judged before is good.
                if let Some(work) = held.take() {
                    let _ = works.send(work);
                }
                return Ended::Broken(what);
            }
            Err(_) => {
                if let Some(work) = held.take()
                    && works.send(work).is_err()
                {
                    return gone();
                }
                return Ended::Stopped;
            }
        };
        let work = match process(page, &mut steps, gates) {
            Ok(work) => work,
            Err(ended) => {
                if let Some(work) = held.take()
                    && works.send(work).is_err()
                {
                    return gone();
                }
                return ended;
            }
        };
        passed += work.batch.len() as u64;
        read += work.delta.read;
        if let Some(before) = held.replace(work)
            && works.send(before).is_err()
        {
            return gone();
        }
    }
    if let Some(declared) = declared.filter(|declared| *declared != read) {
        return Ended::Broken(format!(
            "the source declared {declared} records and gave {read}; nothing of the last batch was committed"
        ));
    }
    if let Err(halt) = gates.end(passed) {
        return Ended::Halted(halt);
    }
    if let Some(mut work) = held.take() {
        work.ended = true;
        work.gates = gates.tallies();
        if works.send(work).is_err() {
            return gone();
        }
    }
    Ended::Done
}

/// One page through steps and gates.
fn process(page: Page, steps: &mut [Named], gates: &mut Gates) -> Result<Work, Ended> {
    let mut aside = Aside { stage: "read".into(), ..Aside::default() };
    let mut delta = Counts { read: (page.batch.len() + page.rejected.len()) as u64, ..Counts::default() };
    for rejected in page.rejected {
        aside.rejected.push(Reject {
            record: rejected.record,
            stage: "read".into(),
            problems: rejected.problems,
            feature: String::from_utf8(rejected.raw.clone()).unwrap_or_default(),
            raw: rejected.raw,
        });
    }
    gates.unreadable(&aside.rejected).map_err(Ended::Halted)?;
    let mut batch = page.batch;
    for named in steps {
        aside.stage.clone_from(&named.label);
        batch = named.step.apply(batch, &mut aside).map_err(|e| match e {
            StepError::TryLater { code, until } => Ended::TryLater(code, until),
            StepError::Cancelled => Ended::Stopped,
            StepError::Broken(what) => Ended::Broken(format!("{}: {what}", named.label)),
        })?;
    }
    let batch = gates.judge(batch, &mut aside).map_err(Ended::Halted)?;
    delta.aside(&aside);
    Ok(Work {
        batch,
        rejected: aside.rejected,
        seen: aside.seen,
        delta,
        gates: gates.tallies(),
        position: page.position,
        ended: false,
    })
}

/// The last stage: rejects durable, then rows and checkpoint together.
struct Landing<'a> {
    sink: &'a mut dyn Sink,
    rejects: &'a mut dyn Rejects,
    checkpoint: Checkpoint,
    policy: Policy,
    retry: bool,
    watch: &'a Watch,
    batches: u64,
}

impl Landing<'_> {
    fn land(&mut self, work: Work) -> Result<(), String> {
        let mut rng = Rng::new(self.batches);
        let mut attempt = 0;
        let mut waited = Duration::ZERO;
        loop {
            let (checkpoint, error) = match self.attempt(&work) {
                Ok(checkpoint) => {
                    self.landed(checkpoint);
                    return Ok(());
                }
                Err(failed) => failed,
            };
            self.sink.rollback();
            self.rejects.rewind(self.checkpoint.rejects)?;
            let SinkError::Transient { .. } = &error else { return Err(format!("the sink: {error}")) };
            attempt += 1;
            if !self.retry || attempt >= self.policy.call.attempts_max {
                return Err(format!(
                    "the sink: {error}; gave up after {attempt} attempts, --resume goes on from the last batch"
                ));
            }
            let wait = self.policy.call.backoff.delay(attempt - 1, waited, &mut rng);
            waited = wait;
            std::thread::sleep(wait);
            // A commit whose answer was lost may have counted.
            if let (Some(text), Ok(Some(saved))) = (checkpoint, self.sink.saved())
                && saved.checkpoint == text
            {
                let checkpoint = serde_json::from_str(&text).map_err(|e| e.to_string())?;
                self.landed(checkpoint);
                return Ok(());
            }
        }
    }

    fn landed(&mut self, checkpoint: Checkpoint) {
        self.watch.done.store(checkpoint.counts.read, Ordering::Relaxed);
        self.watch.written.store(checkpoint.counts.written(), Ordering::Relaxed);
        self.watch.dead.store(checkpoint.counts.dead(), Ordering::Relaxed);
        self.checkpoint = checkpoint;
        crash::point("commit", self.batches);
        self.batches += 1;
    }

    /// One attempt; a failure of the commit itself tells the checkpoint that it was to write.
    fn attempt(&mut self, work: &Work) -> Result<Checkpoint, (Option<String>, SinkError)> {
        let put: Put = self.sink.put(&work.batch).map_err(|e| (None, e))?;
        crash::point("put", self.batches);
        let mut aside = Aside { stage: "sink".into(), ..Aside::default() };
        let mut next = self.checkpoint.clone();
        add(&mut next.counts, &work.delta);
        next.counts.put(&put);
        let mut rejected = work.rejected.clone();
        if !put.refused.is_empty() {
            drop(aside.set_aside(work.batch.clone(), put.refused));
            next.counts.rejects(&aside.rejected);
            rejected.append(&mut aside.rejected);
        }
        next.rejects = self.rejects.put(&rejected).map_err(|e| (None, SinkError::Fatal(e)))?;
        crash::point("rejects", self.batches);
        next.position.clone_from(&work.position);
        next.gates.clone_from(&work.gates);
        next.ended = work.ended;
        let text = serde_json::to_string(&next).map_err(|e| (None, SinkError::Fatal(e.to_string())))?;
        self.sink.commit(&text, &work.seen).map_err(|e| (Some(text), e))?;
        Ok(next)
    }
}

fn add(total: &mut Counts, delta: &Counts) {
    total.read += delta.read;
    total.added += delta.added;
    total.filtered += delta.filtered;
    total.deduped += delta.deduped;
    total.no_match += delta.no_match;
    total.repaired += delta.repaired;
    for (code, count) in &delta.rejected {
        *total.rejected.entry(code.clone()).or_default() += count;
    }
}
