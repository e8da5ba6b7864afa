//! Drives a run: its identity, its starting point, its three threads and its result.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use serde_json::json;
use tracing::warn;

use super::alone::{self, TrySpec};
use super::begin::{self, Begin, Commits, SinkProgress};
use super::build::{Folders, Named, PipelineParts, RunContext, Start, build_from, fingerprint, run_number};
use super::crash;
use super::described::Described;
use super::fetched;
use super::in_work::InWork;
use super::landing::{Landing, Sync, check_rows};
use super::letters::{self, DeadRejects};
use super::lifecycle::{RunEntry, RunStatus, Started};
use super::patience::patiently;
use super::rejects::{NdjsonRejects, Rejects};
use super::report::{Began, End, RunError, RunReport};
use super::row_keys::RowKeys;
use super::since::{self, ReadScope};
use super::source::{self, Source, Told};
use super::state::{RunCheckpoint, StateDir};
use super::trail::Trail;
use super::transform::{PageRead, TransformEnd, transform};
use crate::gate::Gates;
use crate::gate::deletions::MAX_DELETED;
use crate::gate::drift;
use crate::lock::lock;
use crate::manifest::{self, Manifest, Policy, SinceSpec, WriteMode, YamlScalar};
use crate::sink::{
    self, ManagedColumns, RunTime, Saved, Sink, SinkError, SinkTarget, Spec, Standing, WORKER_MARK,
};
use crate::source::{ChangeMark, CountTolerance};
use crate::telemetry::{Telemetry, Teller};
use crate::traffic::Traffic;
use crate::worker::{self, TaskLink};

/// The options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The directory that paths in the manifest are relative to.
    pub folder: PathBuf,
    /// The state directory.
    pub state: PathBuf,
    /// Whether to continue the unfinished run, if there is one.
    pub resume: bool,
    /// Whether everything becomes visible at once, or nothing.
    pub atomic: bool,
    /// Whether to keep calling a service that refuses every record.
    pub keep_going: bool,
    /// Whether everything is read, although the source is read incrementally.
    pub full: bool,
    /// Whether the manifest was built from command-line options, which errors then refer to.
    pub from_options: bool,
    /// The program that tries records alone with [`TRY_VERB`](super::TRY_VERB), after the process died
    /// on some; without it, they are not looked for.
    pub program: Option<PathBuf>,
    /// The desk of the worker that runs this pipeline, if its source is a queue.
    pub tasks: Option<TaskLink>,
}

impl RunOptions {
    /// The options for a manifest built from command-line options: its paths are relative to the
    /// working directory, and the output appears when it is complete.
    #[must_use]
    pub fn of_preset(state: &Path, resume: bool, keep_going: bool) -> RunOptions {
        let (folder, state) = (PathBuf::new(), state.to_owned());
        RunOptions {
            folder,
            state,
            resume,
            atomic: true,
            keep_going,
            full: false,
            from_options: true,
            program: None,
            tasks: None,
        }
    }
}

/// The state of a running run, for observers.
#[derive(Default)]
pub struct RunWatch {
    /// The number of records read, including those of the resumed run.
    pub read: AtomicU64,
    /// The number of records committed.
    pub written: AtomicU64,
    /// The number of records rejected.
    pub dead: AtomicU64,
    /// The number of records in committed batches, whatever their outcome.
    pub done: AtomicU64,
    /// Of those, the number done before the resume.
    pub resumed: AtomicU64,
    /// The identity of the run, once it is decided and recorded.
    pub run: OnceLock<Began>,
    /// Whether reading has begun; before that the source is examined.
    pub begun: AtomicBool,
    /// The number of records in the source; 0 if unknown.
    pub total: AtomicU64,
    /// The counts of a remote source, also while it is downloaded.
    pub source: Arc<Mutex<Option<Told>>>,
    /// The highest value that was read of the field of `since`.
    pub highest: Mutex<Option<ChangeMark>>,
    /// The number of records read that are older than what was asked for.
    pub early: AtomicU64,
    /// Set to stop: the current batches are committed.
    pub stop: Arc<AtomicBool>,
    /// The metrics.
    pub telemetry: Arc<Telemetry>,
}

impl RunWatch {
    /// Shows what another watch shows.
    pub(crate) fn follow(&self, other: &RunWatch) {
        for (to, from) in [
            (&self.read, &other.read),
            (&self.written, &other.written),
            (&self.dead, &other.dead),
            (&self.done, &other.done),
        ] {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        if let Some(began) = other.run.get() {
            self.run.get_or_init(|| began.clone());
        }
        self.begun.store(other.begun.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Runs a pipeline.
///
/// # Errors
/// When it cannot start, or is aborted.
pub fn run(manifest: &Manifest, options: &RunOptions, watch: &RunWatch) -> Result<RunReport, RunError> {
    let clock = Instant::now();
    let id = &manifest.pipeline.id;
    let is_queue = manifest.pipeline.source.as_ref().is_some_and(|source| source.queue.is_some());
    if is_queue && options.tasks.is_none() {
        return worker::run_once(manifest, options, watch);
    }
    let state = match &options.tasks {
        None => StateDir::open(&options.state, id)?,
        Some(link) => StateDir::of_worker(&options.state, id, link.worker())?,
    };
    let last = state.last().map_err(|e| RunError::Broken(e.into()))?;
    if let Some(form) = &manifest.pipeline.dead_letters {
        let place = letters::place(form, &options.folder, &options.state)?;
        let policy = Policy::from(manifest).call;
        let why = patiently(&policy, &watch.stop, || letters::suspended(&place, id));
        let why = why.map_err(letters::not_started)?;
        why.map_or(Ok(()), |why| Err(RunError::Later(why)))?;
    }
    let mode = manifest.pipeline.sink.as_ref().map_or(WriteMode::Replace, manifest::SinkSpec::mode);
    let traffic = Traffic::new(manifest, None, Some(watch.telemetry.clone()))
        .keeping(&options.state)
        .going_on(options.keep_going)
        .from_options(options.from_options)
        .telling(&watch.source)
        .with_fleet(manifest)?;
    let _leaving = traffic.leaving();
    let before = last.status();
    let described = last.layer();
    let setup =
        Setup { manifest, options, watch, state: &state, clock, before, described, traffic: traffic.clone() };
    let fingerprint = fingerprint(manifest);
    let begin = begin::decide(last, options.resume, &fingerprint, mode)?;
    // Recorded before the source, the sink or a service is used.
    let mut identity = Identity::new(begin, &state, id, &fingerprint).map_err(RunError::Broken)?;
    crash::point("started", 0);
    let mut trail = match Trail::open(manifest, &options.folder, &options.state, &state) {
        Ok(trail) => trail,
        Err(why) => return Err(identity.started.fail(RunError::Setup(why))),
    };
    let (parts, rejects) = match setup.look(&mut identity) {
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
            let scope = identity.started.entry.scope.take();
            identity = Identity::new(begin, &state, id, &fingerprint).map_err(RunError::Broken)?;
            identity.started.entry.scope = scope;
        }
        Err(why) => return Err(identity.started.fail(why)),
    }
    watch.run.get_or_init(|| identity.began.clone());
    let Identity { began, mut started, committed } = identity;
    match setup.open(parts, rejects, (&began, &started.entry, committed)) {
        Err(why) => Err(started.fail(why)),
        Ok(RunOpening::Completed(report)) => {
            started.entry.data_version.clone_from(&report.data_version);
            drift::settle(state.dir()).map_err(RunError::Broken)?;
            started.done(report.to_json(RunStatus::Done)).map_err(RunError::Broken)?;
            fetched::sweep(state.dir());
            Ok(*report)
        }
        Ok(RunOpening::Ready(ready)) => match setup.find_poison(&ready.from, &mut started) {
            Ok(()) => setup.go(*ready, began, started, &mut trail),
            Err(why) => Err(started.fail(why)),
        },
    }
}

/// The identity of a run.
struct Identity<'a> {
    began: Began,
    started: Started<'a>,
    /// The number of the last batch that an earlier attempt at this run committed.
    committed: u64,
}

impl<'a> Identity<'a> {
    /// Records the identity.
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

/// The state of a run before its source and sink are opened.
struct Setup<'a> {
    manifest: &'a Manifest,
    options: &'a RunOptions,
    watch: &'a RunWatch,
    state: &'a StateDir,
    clock: Instant,
    /// The status of the previous run.
    before: Option<RunStatus>,
    /// The description of its source.
    described: Option<Described>,
    traffic: Traffic,
}

/// A run with an open sink and its starting point.
struct PreparedRun {
    parts: PipelineParts,
    rejects: Box<dyn Rejects>,
    sink: Box<dyn Sink>,
    from: RunCheckpoint,
}

enum RunOpening {
    Ready(Box<PreparedRun>),
    /// The run was killed after the sink was complete; nothing is left to do.
    Completed(Box<RunReport>),
}

impl Setup<'_> {
    /// Examines the source and builds the parts.
    fn look(&self, identity: &mut Identity<'_>) -> Result<(PipelineParts, Box<dyn Rejects>), RunError> {
        let scope = self.scope(&identity.started.entry)?;
        let start = match (&identity.began, &scope) {
            (Began { resumed: true, .. }, _) => Start::Resumed(identity.started.entry.layer.as_ref()),
            (_, Some(ReadScope::Changes { .. })) => Start::Changes(self.described.as_ref()),
            _ => Start::New,
        };
        let manifest = self.scoped(scope.as_ref());
        identity.started.entry.scope = scope;
        let context = RunContext {
            stop: self.watch.stop.clone(),
            traffic: self.traffic.clone(),
            tasks: self.options.tasks.clone(),
        };
        let folder = self.options.folder.as_path();
        let folders = Folders {
            manifest: folder,
            state: Some(self.state.dir().to_owned()),
            answers: Some(self.options.state.clone()),
            run: run_number(&identity.started.entry.run),
        };
        let parts = build_from(&manifest, folders, context, &start)?;
        let rejects: Box<dyn Rejects> = match &self.manifest.pipeline.dead_letters {
            None => Box::new(NdjsonRejects::new(&self.state.file("rejects.ndjson"), &parts.id)),
            Some(form) => {
                let places = (folder, self.options.state.as_path());
                Box::new(DeadRejects::open(form, self.manifest, &parts, places, self.options.tasks.clone())?)
            }
        };
        Ok((parts, rejects))
    }

    /// The manifest, with the time from which a source is read incrementally.
    fn scoped(&self, scope: Option<&ReadScope>) -> Cow<'_, Manifest> {
        let mut manifest = Cow::Borrowed(self.manifest);
        if let Some(from) = scope.and_then(ReadScope::from)
            && let Some(since) = manifest.to_mut().pipeline.source.as_mut().and_then(|s| s.since.as_mut())
        {
            since.from = Some(from);
        }
        manifest
    }

    /// Finds the records that kill the process, if it died on the same records repeatedly.
    fn find_poison(&self, from: &RunCheckpoint, started: &mut Started<'_>) -> Result<(), RunError> {
        let entry = &started.entry;
        let suspects = entry.suspects.filter(|known| alone::are_tried(*known));
        let (Some((first, end, deaths)), Some(program)) = (suspects, &self.options.program) else {
            return Ok(());
        };
        warn!(target: "tidegate::run", "the process died {deaths} times: trying records {first} to {} alone", end - 1);
        let spec = TrySpec {
            manifest: self.scoped(entry.scope.as_ref()).into_owned(),
            folder: self.options.folder.clone(),
            state: self.state.dir().to_owned(),
            answers: self.options.state.clone(),
            run: run_number(&entry.run),
            layer: entry.layer.clone(),
            position: from.position.clone(),
            read: from.counts.read,
            suspects: (first, end),
            poison: entry.poison.clone(),
        };
        let poison = alone::find(program, spec, &self.watch.stop).map_err(RunError::Broken)?;
        started.poisoned(poison).map_err(RunError::Broken)
    }

    /// Opens the sink and determines the starting point.
    fn open(
        &self,
        mut parts: PipelineParts,
        mut rejects: Box<dyn Rejects>,
        (began, entry, committed): (&Began, &RunEntry, u64),
    ) -> Result<RunOpening, RunError> {
        let setup = RunError::Setup;
        rejects.of_run(&began.run);
        let spec = &mut parts.sink;
        (spec.resume, spec.atomic) = (began.resumed, self.options.atomic);
        spec.at = RunTime(entry.began_ms);
        spec.must_exist = committed > 0 && spec.keeps_checkpoints();
        if let Some(link) = &self.options.tasks {
            // Each worker has a checkpoint of its own; the tasks belong to the pipeline.
            spec.pipeline = format!("{}{WORKER_MARK}{}", spec.pipeline, link.worker());
            spec.by_tasks = true;
        }
        if let Some(last) = entry.finishing.as_deref().filter(|_| began.resumed)
            && let Some(standing) = self.patiently(|| spec.completed()).map_err(RunError::of_sink)?
        {
            let standing = check_rows(&last.sink, standing).map_err(RunError::Broken)?;
            rejects.verify(last.rejects, &last.counts).map_err(RunError::Broken)?;
            let mut report = self.report((began, &parts, rejects.as_ref()), last, standing.rows);
            report.data_version = entry.clone().version(&last.counts);
            return Ok(RunOpening::Completed(Box::new(report)));
        }
        let gone = |error: SinkError| match error {
            SinkError::Fatal(what) if committed > 0 && began.resumed => begin::refuse(entry, &what),
            other => RunError::of_sink(other),
        };
        parts.gates.open_baseline(self.state.dir(), began.resumed).map_err(RunError::Broken)?;
        let mut sink = self.patiently(|| spec.open()).map_err(gone)?;
        if let Some(link) = &self.options.tasks {
            link.set_table(self.patiently(|| spec.open_tasks()).map_err(RunError::of_sink)?);
        }
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
            if spec.mode == WriteMode::Append && !spec.by_tasks {
                begin::stray(saved.as_ref())?;
            }
            SinkProgress::Nothing
        };
        match found {
            SinkProgress::Nothing => {
                if began.resumed {
                    // Rows of an older run do not belong to this one.
                    drop(sink);
                    spec.resume = false;
                    sink = spec.open().map_err(RunError::of_sink)?;
                    standing = sink.standing().map_err(RunError::of_sink)?;
                }
                // With `replace`, the table is emptied by the first batch.
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

    /// Runs, and records how the run ended.
    fn go(
        &self,
        ready: PreparedRun,
        began: Began,
        started: Started<'_>,
        trail: &mut Trail,
    ) -> Result<RunReport, RunError> {
        let PreparedRun { parts, mut rejects, sink: mut target, mut from } = ready;
        let (watch, broken) = (self.watch, RunError::Broken);
        let PipelineParts { source, mut steps, mut gates, sink, flow, start, .. } = parts;
        alone::guard(&mut steps, &start, &started.entry.poison);
        let scope = started.entry.scope.clone();
        let running = started.running(Described::of(source.as_ref())).map_err(broken)?;
        let resumed_at = from.counts.read;
        let in_work = InWork::begin(self.state, &from.run, resumed_at).map_err(RunError::Broken)?;
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
            row_keys: RowKeys::of(self.manifest, &sink),
            sync: self.sync(&sink)?,
            since: self.since().cloned().map(|since| since.field).zip(scope.clone()),
            warnings: Vec::new(),
            in_work: &in_work,
            tasks: self.options.tasks.clone(),
        };
        let (ended, told, panicked) = pump(source, steps, &mut gates, &mut landing, (watch, &self.traffic));
        let ended = landing.complete(ended, &flow.schema);
        let halted = if let TransformEnd::Halted(halt) = &ended { Some(halt.gate.as_str()) } else { None };
        watch.telemetry.gates(gates.readings(halted));
        let mut warnings = gates.warnings();
        warnings.extend(landing.sink.notes());
        warnings.append(&mut landing.warnings);
        let Landing { checkpoint, mut running, batches, .. } = landing;
        warnings.extend(
            running.entry.poison.iter().map(|known| {
                format!("record {} kills the process {known}; it is a dead letter", known.record)
            }),
        );
        if !panicked {
            in_work.end(self.state);
        }
        let (end, status, failure) = ended.into_end();
        warnings.extend(self.ignored(scope.as_ref()));
        let said = self.traffic.later().filter(|_| matches!(end, End::TryLater(..)));
        warnings.extend(said.clone());
        if status != RunStatus::Done && !running.is_finishing() && !sink.keeps_checkpoints() {
            warnings.push(
                "nothing was written: this sink is written as a whole at the end of a run, which starts again".to_owned(),
            );
        }
        let data_version = running.entry.version(&checkpoint.counts);
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
            services: self.traffic.by_service(),
            source: told,
            operations: flow.operations,
            batches,
            elapsed: self.clock.elapsed(),
            said,
            scope,
            data_version,
        };
        let said = failure.as_ref().map(ToString::to_string);
        trail
            .end(&checkpoint.run, &report, status, (said.as_deref(), self.traffic.noted()))
            .map_err(broken)?;
        if status == RunStatus::Done {
            drift::settle(self.state.dir()).map_err(broken)?;
        }
        running.end(status, report.to_json(status)).map_err(broken)?;
        if status == RunStatus::Done {
            fetched::sweep(self.state.dir());
        }
        match failure {
            Some(why) => Err(why),
            None => Ok(report),
        }
    }

    /// Waits for a sink that is down.
    fn patiently<T>(&self, open: impl FnMut() -> Result<T, SinkError>) -> Result<T, SinkError> {
        patiently(&Policy::from(self.manifest).call, &self.watch.stop, open)
    }

    fn since(&self) -> Option<&SinceSpec> {
        self.manifest.pipeline.source.as_ref()?.since.as_ref()
    }

    /// What the run reads: what an unfinished run read, or what the watermark in the sink says.
    fn scope(&self, entry: &RunEntry) -> Result<Option<ReadScope>, RunError> {
        let (Some(since), Some(form)) = (self.since(), &self.manifest.pipeline.sink) else {
            return Ok(None);
        };
        if !form.mode().is_keyed() {
            let what =
                "source.since: only changes are read, so the sink must be written by key; set `sink.key`";
            return Err(RunError::Setup(what.into()));
        }
        if let Some(scope) = &entry.scope {
            return Ok(Some(scope.clone()));
        }
        let saved =
            self.patiently(|| sink::watermark(form, &self.manifest.pipeline.id, &self.options.folder));
        let saved = saved.map_err(RunError::of_sink)?;
        let known = (self.options.full, self.described.is_some());
        Ok(Some(since::decide(since, saved.as_ref(), known)))
    }

    /// A warning if the source did not take the condition.
    fn ignored(&self, scope: Option<&ReadScope>) -> Option<String> {
        let from = scope.and_then(ReadScope::from)?;
        let early = self.watch.early.load(Ordering::Relaxed);
        (early > 0).then(|| {
            format!("the source ignores `since`: {early} of the records read are from before {from}; the result is complete, but every run reads more than it needs")
        })
    }

    /// What may be deleted at the end, with `mode: sync`.
    fn sync(&self, spec: &Spec) -> Result<Option<Sync>, RunError> {
        let form = self.manifest.pipeline.sink.as_ref().filter(|_| spec.mode == WriteMode::Sync);
        let Some(form) = form else { return Ok(None) };
        let max = match &form.max_deleted {
            None | Some(YamlScalar::Null) => Ok(MAX_DELETED),
            Some(YamlScalar::Int(n)) => CountTolerance::parse(&n.to_string()),
            Some(YamlScalar::Text(text)) => CountTolerance::parse(text),
            Some(other) => Err(format!("sink.max_deleted: invalid value {other:?}").into()),
        };
        let keeps_rows = spec.managed != ManagedColumns::None;
        Ok(Some(Sync { key: spec.key.clone(), max: max?, keeps_rows }))
    }

    /// The report of a run that was killed after its end was recorded.
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
            services: self.traffic.by_service(),
            source: parts.source.told(),
            operations: parts.flow.operations.clone(),
            batches: 0,
            elapsed: self.clock.elapsed(),
            said: None,
            scope: None,
            data_version: String::new(),
        }
    }
}

/// Restores source, steps and gates from the checkpoint.
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
    /// Starts reading from this checkpoint.
    fn begin(&self, source: &dyn Source, from: &RunCheckpoint) {
        self.total.store(source.layer().records.unwrap_or(0), Ordering::Relaxed);
        *lock(&self.highest) = from.highest;
        for counter in [&self.read, &self.done, &self.resumed] {
            counter.store(from.counts.read, Ordering::Relaxed);
        }
        self.begun.store(true, Ordering::Relaxed);
    }
}

/// Runs the three threads to their end.
fn pump(
    source: Box<dyn Source>,
    steps: Vec<Named>,
    gates: &mut Gates,
    landing: &mut Landing<'_, '_>,
    (watch, traffic): (&RunWatch, &Traffic),
) -> (TransformEnd, Option<Told>, bool) {
    let (pages, incoming) = sync_channel(2);
    let (works, ready) = sync_channel(2);
    let committed = landing.checkpoint.counts.written();
    let in_work = landing.in_work;
    let endless = source.is_endless().then_some(watch.stop.as_ref());
    let since = landing.since.as_ref().map(|(field, scope)| (field.clone(), scope.from()));
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || read(source, &pages, (watch, in_work), since));
        let middle =
            scope.spawn(move || transform(incoming, &works, steps, (gates, traffic), (committed, endless)));
        let mut failed = None;
        for work in &ready {
            if let Err(what) = landing.land(work) {
                failed = Some(what);
                // Nobody needs to wait for a service any more.
                watch.stop.store(true, Ordering::Relaxed);
                break;
            }
        }
        // Senders find the channel closed, and end.
        drop(ready);
        let ended = middle.join();
        let panicked = ended.is_err();
        let mut ended = ended.unwrap_or_else(|_| {
            TransformEnd::Broken("internal error in a step; please report this bug".into())
        });
        let read = reader.join();
        if read.is_err() {
            ended = TransformEnd::Broken("internal error in the source; please report this bug".into());
        }
        let told = read.unwrap_or_default();
        (failed.unwrap_or(ended), told, panicked)
    })
}

fn read(
    mut source: Box<dyn Source>,
    pages: &SyncSender<PageRead>,
    (watch, in_work): (&RunWatch, &InWork),
    since: Option<(String, Option<ChangeMark>)>,
) -> Option<Told> {
    while !watch.stop.load(Ordering::Relaxed) {
        let page = source.next();
        let last = !matches!(page, Ok(Some(_)));
        if let Ok(Some(page)) = &page {
            let records = (page.batch.len() + page.rejected.len()) as u64;
            in_work.reached(watch.read.fetch_add(records, Ordering::Relaxed) + records);
            watch.telemetry.records.read(records);
            if let Some((field, from)) = &since {
                let (highest, early) = ChangeMark::highest(&page.batch, field, *from);
                watch.early.fetch_add(early, Ordering::Relaxed);
                let mut known = lock(&watch.highest);
                *known = known.max(highest);
            }
        }
        // Before the end is sent: the last batch is judged by it.
        if let Some(told) = source.told() {
            *lock(&watch.source) = Some(told);
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
