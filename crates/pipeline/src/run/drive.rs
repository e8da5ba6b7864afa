//! A run from its beginning to its end: its identity, what it starts from, its three threads, what
//! it leaves.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use serde_json::json;

use super::begin::{self, Begin, Commits, SinkProgress};
use super::build::{Folders, Named, PipelineParts, RunContext, Start, build_from, fingerprint, run_number};
use super::crash;
use super::described::Described;
use super::fetched;
use super::landing::{Landing, check_rows};
use super::letters::{self, DeadRejects};
use super::lifecycle::{RunEntry, RunStatus, Started};
use super::rejects::{NdjsonRejects, Rejects};
use super::report::{Began, End, RunError, RunReport};
use super::source::{self, Source, Told};
use super::state::{RunCheckpoint, StateDir};
use super::trail::Trail;
use super::transform::{PageRead, TransformEnd, transform};
use crate::gate::Gates;
use crate::lock::lock;
use crate::manifest::{self, Manifest, Policy, WriteMode};
use crate::sink::{Saved, Sink, SinkError, SinkTarget, Standing};
use crate::telemetry::{Telemetry, Teller};
use crate::traffic::Traffic;

/// How to run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Relative paths of the manifest start here.
    pub folder: PathBuf,
    /// Where state is kept.
    pub state: PathBuf,
    /// Continue the unfinished run, if there is one.
    pub resume: bool,
    /// All becomes visible at once, or nothing.
    pub atomic: bool,
    /// Ask for every record, however many a service refuses.
    pub keep_going: bool,
    /// The manifest was made of the options of a command: those are what an error names.
    pub from_options: bool,
}

impl RunOptions {
    /// For a manifest that was made of the options of a command: its paths are those of the person
    /// who typed them, and the output appears when it is whole.
    #[must_use]
    pub fn of_preset(state: &Path, resume: bool, keep_going: bool) -> RunOptions {
        let (folder, state) = (PathBuf::new(), state.to_owned());
        RunOptions { folder, state, resume, atomic: true, keep_going, from_options: true }
    }
}

/// A run as others see it while it goes on.
#[derive(Default)]
pub struct RunWatch {
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
    /// Which run it is, once that is decided and written down.
    pub run: OnceLock<Began>,
    /// Reading has begun; before that the source is looked at.
    pub begun: AtomicBool,
    /// Records in the source; 0 if that is unknown.
    pub total: AtomicU64,
    /// What a remote source has counted so far, also while it is kept before it is read.
    pub source: Arc<Mutex<Option<Told>>>,
    /// Set to stop: what is under way is committed.
    pub stop: Arc<AtomicBool>,
    /// What is counted.
    pub telemetry: Arc<Telemetry>,
}

/// Runs a pipeline.
///
/// # Errors
/// When it cannot begin, or breaks off.
pub fn run(manifest: &Manifest, options: &RunOptions, watch: &RunWatch) -> Result<RunReport, RunError> {
    let clock = Instant::now();
    let id = &manifest.pipeline.id;
    let state = StateDir::open(&options.state, id)?;
    let last = state.last().map_err(|e| RunError::Broken(e.into()))?;
    if let Some(form) = &manifest.pipeline.dead_letters {
        let place = letters::place(form, &options.folder, &options.state)?;
        let why = letters::suspended(&place, id).map_err(|e| RunError::Setup(e.to_string()))?;
        why.map_or(Ok(()), |why| Err(RunError::Later(why)))?;
    }
    let mode = manifest.pipeline.sink.as_ref().map_or(WriteMode::Replace, manifest::SinkSpec::mode);
    let traffic = Traffic::new(manifest, None, Some(watch.telemetry.clone()))
        .keeping(&options.state)
        .going_on(options.keep_going)
        .from_options(options.from_options)
        .telling(&watch.source);
    let before = last.status();
    let setup = Setup { manifest, options, watch, state: &state, clock, before, traffic: traffic.clone() };
    let fingerprint = fingerprint(manifest);
    let begin = begin::decide(last, options.resume, &fingerprint, mode)?;
    // Before the source, the sink or a service is touched.
    let mut identity = Identity::new(begin, &state, id, &fingerprint).map_err(RunError::Broken)?;
    crash::point("started", 0);
    let mut trail = match Trail::open(manifest, &options.folder, &options.state, &state) {
        Ok(trail) => trail,
        Err(why) => return Err(identity.started.fail(RunError::Setup(why))),
    };
    let (parts, rejects) = match setup.look(&identity) {
        Ok(found) => found,
        Err(why) => {
            let why = identity.started.fail(why);
            trail.calls(traffic.noted()).map_err(RunError::Broken)?;
            return Err(why);
        }
    };
    match begin::same_source(&identity.started.entry, identity.committed, (&parts.source.stamp(), mode)) {
        Ok(None) => {}
        Ok(Some(why)) => {
            let begin = Begin::New(why);
            identity = Identity::new(begin, &state, id, &fingerprint).map_err(RunError::Broken)?;
        }
        Err(why) => return Err(identity.started.fail(why)),
    }
    watch.run.get_or_init(|| identity.began.clone());
    let Identity { began, started, committed } = identity;
    match setup.open(parts, rejects, (&began, &started.entry, committed)) {
        Err(why) => Err(started.fail(why)),
        Ok(RunOpening::Completed(report)) => {
            started.done(report.to_json(RunStatus::Done)).map_err(RunError::Broken)?;
            fetched::sweep(state.dir());
            Ok(*report)
        }
        Ok(RunOpening::Ready(ready)) => setup.go(*ready, began, started, &mut trail),
    }
}

/// Which run this is.
struct Identity<'a> {
    began: Began,
    started: Started<'a>,
    /// The last batch that an earlier attempt at this run committed.
    committed: u64,
}

impl<'a> Identity<'a> {
    /// Writes it down.
    fn new(begin: Begin, state: &'a StateDir, id: &str, fingerprint: &str) -> Result<Identity<'a>, String> {
        let (started, committed, resumed, why) = match begin {
            Begin::New(why) => (Started::new(state, id, fingerprint)?, 0, false, why),
            Begin::Continue(run) => {
                let why = format!("it was {}", run.entry.status.ending());
                let committed = run.committed;
                (run.resume(state)?, committed, true, why)
            }
        };
        Ok(Identity { began: Began { run: started.entry.run.clone(), resumed, why }, started, committed })
    }
}

/// What a run has before its source and sink are opened.
struct Setup<'a> {
    manifest: &'a Manifest,
    options: &'a RunOptions,
    watch: &'a RunWatch,
    state: &'a StateDir,
    clock: Instant,
    /// How the run before it ended.
    before: Option<RunStatus>,
    traffic: Traffic,
}

/// A run whose sink is open, and from where it goes on.
struct PreparedRun {
    parts: PipelineParts,
    rejects: Box<dyn Rejects>,
    sink: Box<dyn Sink>,
    from: RunCheckpoint,
}

enum RunOpening {
    Ready(Box<PreparedRun>),
    /// The run was killed after the sink was complete, and there is nothing left to do.
    Completed(Box<RunReport>),
}

impl Setup<'_> {
    /// Looks at the source and builds the parts.
    fn look(&self, identity: &Identity<'_>) -> Result<(PipelineParts, Box<dyn Rejects>), RunError> {
        let start = match &identity.began {
            Began { resumed: true, .. } => Start::Resumed(identity.started.entry.layer.as_ref()),
            _ => Start::New,
        };
        let context = RunContext { stop: self.watch.stop.clone(), traffic: self.traffic.clone() };
        let folder = self.options.folder.as_path();
        let folders = Folders {
            manifest: folder,
            state: Some(self.state.dir().to_owned()),
            answers: Some(self.options.state.clone()),
            run: run_number(&identity.started.entry.run),
        };
        let parts = build_from(self.manifest, folders, context, &start)?;
        let rejects: Box<dyn Rejects> = match &self.manifest.pipeline.dead_letters {
            None => Box::new(NdjsonRejects::new(&self.state.file("rejects.ndjson"), &parts.id)),
            Some(form) => {
                let places = (folder, self.options.state.as_path());
                Box::new(DeadRejects::open(form, self.manifest, &parts, places).map_err(RunError::Setup)?)
            }
        };
        Ok((parts, rejects))
    }

    /// Opens the sink and finds from where the run goes on.
    fn open(
        &self,
        mut parts: PipelineParts,
        mut rejects: Box<dyn Rejects>,
        (began, entry, committed): (&Began, &RunEntry, u64),
    ) -> Result<RunOpening, RunError> {
        let setup = RunError::Setup;
        let spec = &mut parts.sink;
        (spec.resume, spec.atomic) = (began.resumed, self.options.atomic);
        spec.must_exist = committed > 0 && spec.keeps_checkpoints();
        if let Some(last) = entry.finishing.as_deref().filter(|_| began.resumed)
            && let Some(standing) = spec.completed().map_err(RunError::of_sink)?
        {
            let standing = check_rows(&last.sink, standing).map_err(RunError::Broken)?;
            rejects.verify(last.rejects, &last.counts).map_err(RunError::Broken)?;
            let report = self.report((began, &parts, rejects.as_ref()), last, standing.rows);
            return Ok(RunOpening::Completed(Box::new(report)));
        }
        let gone = |error: SinkError| match error {
            SinkError::Fatal(what) if committed > 0 && began.resumed => begin::refuse(entry, &what),
            other => RunError::of_sink(other),
        };
        let mut sink = spec.open().map_err(gone)?;
        crash::point("opened", 0);
        let mut saved = sink.saved().map_err(RunError::of_sink)?;
        let mut standing = sink.standing().map_err(RunError::of_sink)?;
        let mut from = RunCheckpoint {
            pipeline: parts.fingerprint.clone(),
            stamp: parts.source.stamp(),
            run: entry.run.clone(),
            rejects_in: rejects.identity().map_err(setup)?,
            ..RunCheckpoint::default()
        };
        let keeps = spec.keeps_checkpoints();
        let found = if began.resumed {
            begin::find(entry, Commits { batches: committed, keeps }, saved.as_ref(), standing.clone())?
        } else {
            if spec.mode == WriteMode::Append {
                begin::stray(saved.as_ref())?;
            }
            SinkProgress::Nothing
        };
        match found {
            SinkProgress::Nothing => {
                if began.resumed {
                    // What an older run left is not of this one.
                    drop(sink);
                    spec.resume = false;
                    sink = spec.open().map_err(RunError::of_sink)?;
                    standing = sink.standing().map_err(RunError::of_sink)?;
                }
                // A table is emptied with the first batch.
                let rows = standing.rows.map(|rows| if spec.mode == WriteMode::Replace { 0 } else { rows });
                from.sink = Standing { rows, ..standing };
                rejects.begin().map_err(setup)?;
            }
            SinkProgress::Checkpoint(known) => {
                if known.rejects_in != from.rejects_in && known.counts.unsuccessful() > 0 {
                    let what = format!(
                        "its dead letters are no longer in {}: the store was removed or replaced",
                        rejects.place()
                    );
                    return Err(begin::refuse(entry, &what));
                }
                rejects.rewind(known.rejects).map_err(|what| begin::refuse(entry, &what))?;
                restore(&mut parts, &known, saved.take())?;
                from = *known;
            }
        }
        Ok(RunOpening::Ready(Box::new(PreparedRun { parts, rejects, sink, from })))
    }

    /// Lets it run, and writes down how it ended.
    fn go(
        &self,
        ready: PreparedRun,
        began: Began,
        started: Started<'_>,
        trail: &mut Trail,
    ) -> Result<RunReport, RunError> {
        let PreparedRun { parts, mut rejects, sink: mut target, mut from } = ready;
        let (watch, broken) = (self.watch, RunError::Broken);
        let PipelineParts { source, steps, mut gates, sink, flow, .. } = parts;
        let running = started.running(Described::of(source.as_ref())).map_err(broken)?;
        let resumed_at = from.counts.read;
        let detail = json!({
            "resume": self.options.resume, "atomic": self.options.atomic, "records": source.layer().records,
        });
        trail
            .begin(&mut from, (sink.describe(), sink.keeps_checkpoints()), self.before, detail)
            .map_err(broken)?;
        watch.begin(source.as_ref(), &from);
        watch.telemetry.begin(gates.readings(None), &from.counts);
        let stages = steps.iter().map(|named| (named.label.as_str(), named.crs.as_ref()));
        let teller = Teller::new(&watch.telemetry, stages, flow.crs.as_ref());
        let one_transaction = self.options.atomic && matches!(sink.target, SinkTarget::Table(_));
        let mut landing = Landing {
            sink: target.as_mut(),
            rejects: rejects.as_mut(),
            trail,
            checkpoint: from,
            policy: Policy::from(self.manifest),
            retry: !one_transaction,
            watch,
            teller,
            rejected: Vec::new(),
            batches: 0,
            running,
            keeps: sink.keeps_checkpoints(),
        };
        let (ended, told) = pump(source, steps, &mut gates, &mut landing, (watch, &self.traffic));
        let ended = landing.complete(ended, &flow.schema);
        let halted = if let TransformEnd::Halted(halt) = &ended { Some(halt.gate.as_str()) } else { None };
        watch.telemetry.gates(gates.readings(halted));
        let mut warnings = gates.warnings();
        warnings.extend(landing.sink.notes());
        let Landing { checkpoint, running, batches, .. } = landing;
        let (end, status, failure) = ended.into_end();
        let said = self.traffic.later().filter(|_| matches!(end, End::TryLater(..)));
        warnings.extend(said.clone());
        if status != RunStatus::Done && !running.is_finishing() && !sink.keeps_checkpoints() {
            warnings.push(
                "nothing was written: this sink is written as a whole at the end of a run, which starts again".to_owned(),
            );
        }
        let report = RunReport {
            pipeline: self.manifest.pipeline.id.clone(),
            began,
            end,
            sink_rows: checkpoint.sink.rows.filter(|_| checkpoint.ended),
            counts: checkpoint.counts,
            gates: gates.tallies(),
            warnings,
            rejects: rejects.place(),
            sink: sink.describe(),
            crs: sink.crs.to_string(),
            resumed_at,
            calls: self.traffic.calls(),
            source: told,
            operations: flow.operations,
            batches,
            elapsed: self.clock.elapsed(),
            said,
        };
        let said = failure.as_ref().map(ToString::to_string);
        trail
            .end(&checkpoint.run, &report, status, (said.as_deref(), self.traffic.noted()))
            .map_err(broken)?;
        running.end(status, report.to_json(status)).map_err(broken)?;
        if status == RunStatus::Done {
            fetched::sweep(self.state.dir());
        }
        match failure {
            Some(why) => Err(why),
            None => Ok(report),
        }
    }

    /// The report of a run whose end was written down before it was killed.
    fn report(
        &self,
        (began, parts, rejects): (&Began, &PipelineParts, &dyn Rejects),
        last: &RunCheckpoint,
        sink_rows: Option<u64>,
    ) -> RunReport {
        RunReport {
            pipeline: parts.id.clone(),
            began: began.clone(),
            end: End::Done,
            counts: last.counts.clone(),
            gates: last.gates.clone(),
            warnings: Vec::new(),
            rejects: rejects.place(),
            sink: parts.sink.describe(),
            crs: parts.sink.crs.to_string(),
            sink_rows,
            resumed_at: last.counts.read,
            calls: self.traffic.calls(),
            source: parts.source.told(),
            operations: parts.flow.operations.clone(),
            batches: 0,
            elapsed: self.clock.elapsed(),
            said: None,
        }
    }
}

/// Brings source, steps and gates to where the checkpoint says.
fn restore(parts: &mut PipelineParts, known: &RunCheckpoint, saved: Option<Saved>) -> Result<(), RunError> {
    let seen = saved.map(|saved| saved.seen).unwrap_or_default();
    if !known.position.is_empty() {
        let own = seen.iter().filter(|seen| seen.scope == source::SCOPE);
        parts.source.seek(&known.position, own.map(|seen| seen.hash).collect())?;
    }
    for seen in seen.iter().filter(|seen| seen.scope != source::SCOPE) {
        parts.steps.iter_mut().for_each(|named| named.step.remember(seen));
        parts.gates.remember(seen);
    }
    parts.gates.restore(&known.gates);
    Ok(())
}

impl RunWatch {
    /// Reading begins, from here.
    fn begin(&self, source: &dyn Source, from: &RunCheckpoint) {
        self.total.store(source.layer().records.unwrap_or(0), Ordering::Relaxed);
        for counter in [&self.read, &self.done, &self.resumed] {
            counter.store(from.counts.read, Ordering::Relaxed);
        }
        self.begun.store(true, Ordering::Relaxed);
    }
}

/// Lets the three threads run to their end.
fn pump(
    source: Box<dyn Source>,
    steps: Vec<Named>,
    gates: &mut Gates,
    landing: &mut Landing<'_, '_>,
    (watch, traffic): (&RunWatch, &Traffic),
) -> (TransformEnd, Option<Told>) {
    let (pages, incoming) = sync_channel(2);
    let (works, ready) = sync_channel(2);
    let committed = landing.checkpoint.counts.written();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || read(source, &pages, watch));
        let middle = scope.spawn(move || transform(incoming, &works, steps, (gates, traffic), committed));
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
            TransformEnd::Broken("internal error in a step; please report this bug".into())
        });
        let told = reader.join().unwrap_or_default();
        (failed.unwrap_or(ended), told)
    })
}

fn read(mut source: Box<dyn Source>, pages: &SyncSender<PageRead>, watch: &RunWatch) -> Option<Told> {
    while !watch.stop.load(Ordering::Relaxed) {
        let page = source.next();
        let last = !matches!(page, Ok(Some(_)));
        if let Ok(Some(page)) = &page {
            let records = (page.batch.len() + page.rejected.len()) as u64;
            watch.read.fetch_add(records, Ordering::Relaxed);
            watch.telemetry.records.read(records);
            if let Some(told) = source.told() {
                *lock(&watch.source) = Some(told);
            }
        }
        if pages.send(page).is_err() || last {
            break;
        }
    }
    let told = source.told();
    if told.is_some() {
        lock(&watch.source).clone_from(&told);
    }
    told
}
