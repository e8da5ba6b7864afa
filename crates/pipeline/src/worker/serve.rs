//! Runs pipelines until they are told to stop.
//!
//! Each pipeline takes the path of a run, again and again: a run ends when its provider wants no calls
//! for a while, or its sink is down. Then everything that it holds goes back to the queue, and the next
//! run begins when the time has come. Other pipelines of the worker go on meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_core::hex::hex;
use tidegate_queue::{QueueAddress, QueueDepth, QueueError, QueueOptions, Transport, now_ms, open};
use tokio::runtime::{Builder, Runtime};
use tracing::{info, warn};

use super::desk::{DeskSetup, TaskDesk};
use super::feed::{Feed, FeedSetup};
use super::link::TaskLink;
use crate::lock::lock;
use crate::manifest::{Check, DeadLetters, Manifest, SourceSpec, TaskSource, WriteMode};
use crate::run::{End, RunError, RunOptions, RunReport, RunWatch, StateDir, run};
use crate::secret::fetch_given;
use crate::telemetry::{Sample, Telemetry, metric};

/// The most tasks of a page.
const PAGE_MAX: usize = 1000;
/// The number of pages in work: one in the steps, one in the sink. More need memory and are no faster.
const PAGES: usize = 2;
/// The pause after the sink was down, and the longest.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The longest that a task waits in the queue because its pipeline cannot work.
const REQUEUE_MAX: Duration = Duration::from_secs(900);

/// How a worker works.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Its name: unique, never used again.
    pub worker: String,
    /// Whether it ends when the queue is empty.
    pub is_once: bool,
    /// The most tasks of a pipeline in work at once; by default as many as are fastest.
    pub at_once: Option<usize>,
    /// Set to stop: what is in work is committed or returned.
    pub stop: Arc<AtomicBool>,
}

/// A pipeline of a worker.
pub struct WorkerJob {
    manifest: Manifest,
    options: RunOptions,
    telemetry: Arc<Telemetry>,
    desk: Arc<TaskDesk>,
    address: QueueAddress,
    group: String,
    lease: Duration,
    bytes_max: u64,
    feed: Option<Arc<Feed>>,
}

/// How a pipeline of a worker ended.
pub type PipelineEnd = Result<RunReport, RunError>;

/// A name that no other worker has or had.
#[must_use]
pub fn worker_name() -> String {
    let mut chance = [0; 6];
    // Without random bytes, the time and the process make it unique.
    let _unused = getrandom::fill(&mut chance);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()).unwrap_or(host);
    let host: String = host.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect();
    let host = if host.is_empty() { "worker".to_owned() } else { host };
    format!("{host}-{}-{:x}{}", std::process::id(), now_ms(), hex(&chance))
}

/// The address of the queue of a manifest.
///
/// # Errors
/// When it cannot be read.
pub fn address_of(text: &str, folder: &Path) -> Result<QueueAddress, String> {
    let held = fetch_given(text)?;
    Ok(match QueueAddress::parse(held.reveal()).map_err(|e| e.to_string())? {
        QueueAddress::Sqlite(path, name) => QueueAddress::Sqlite(folder.join(path), name),
        server @ QueueAddress::Server(_) => server,
    })
}

impl WorkerJob {
    /// A pipeline whose source is a queue.
    ///
    /// # Errors
    /// When the manifest cannot be used by a worker.
    pub fn new(
        manifest: &Manifest,
        (run, options): (RunOptions, &WorkerOptions),
        telemetry: Arc<Telemetry>,
    ) -> Result<WorkerJob, RunError> {
        let mut manifest = manifest.clone();
        let (source, tasks) = queue_of(&manifest)?;
        let address = source.queue.as_deref().unwrap_or_default();
        let address =
            address_of(address, &run.folder).map_err(|e| RunError::Setup(format!("source.queue: {e}")))?;
        let mode =
            manifest.pipeline.sink.as_ref().map_or(WriteMode::Replace, crate::manifest::SinkSpec::mode);
        if !matches!(mode, WriteMode::Upsert | WriteMode::Append) {
            return Err(RunError::Setup(
                "a queue delivers one task after the other, so the sink must be written by key or appended to; set `sink.key`, or `sink.mode: append`".into(),
            ));
        }
        if manifest.pipeline.steps.iter().any(|step| step.dedupe.is_some()) {
            return Err(RunError::Setup(
                "steps: `dedupe` looks for duplicates in a whole run, and a worker has none; use `sink.key` so that the last one counts".into(),
            ));
        }
        if manifest.pipeline.gates.iter().any(|gate| gate.check == Check::Drift) {
            return Err(RunError::Setup(
                "gates: `drift` compares with the last run, and a worker has none; use it in a run".into(),
            ));
        }
        let id = manifest.pipeline.id.clone();
        let kinds = if tasks.kinds.is_empty() { vec![id.clone()] } else { tasks.kinds.clone() };
        let lease = Duration::from_secs_f64(tasks.lease_seconds);
        let bytes_max = tasks.bytes_max;
        let group = source.group.clone().unwrap_or(id);
        let at_once = options.at_once.unwrap_or(PAGES * PAGE_MAX).max(1);
        let capacity = PAGE_MAX.min(source.batch_size as usize).min(at_once);
        let letters = manifest.pipeline.dead_letters.get_or_insert_with(DeadLetters::default);
        let desk = TaskDesk::new(DeskSetup {
            kinds,
            worker: &options.worker,
            capacity,
            work_max: at_once,
            in_flight_bytes: usize::try_from(manifest.pipeline.limits.in_flight_bytes).unwrap_or(usize::MAX),
            publishes_dead: letters.also.is_some(),
        });
        Ok(WorkerJob {
            manifest,
            options: run,
            telemetry,
            desk,
            address,
            group,
            lease,
            bytes_max,
            feed: None,
        })
    }

    /// Returns everything to the queue that is not committed.
    pub fn give_up(&self) {
        if let Some(feed) = &self.feed {
            feed.requeue(&self.desk, self.desk.abandon(), Duration::ZERO);
        }
    }

    /// The manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The numbers of its tasks.
    #[must_use]
    pub fn desk(&self) -> &TaskDesk {
        &self.desk
    }

    /// Sets the metrics of its queue and tasks.
    pub fn measure(&self) {
        let counts = &self.desk.counts;
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let task = |outcome: &str, count: &AtomicU64| Sample::of(&metric::TASKS, &[outcome], get(count));
        let mut samples = vec![
            task("done", &counts.done),
            task("dead", &counts.dead),
            task("repeated", &counts.repeated),
            task("taken_over", &counts.lost),
            task("requeued", &counts.requeued),
            Sample::number(&metric::TASKS_RECEIVED, get(&counts.received)),
            Sample::number(&metric::TASKS_REDELIVERED, get(&counts.redelivered)),
        ];
        if let Some(depth) = self.depth() {
            let mut state = |name: &str, count: Option<u64>| {
                samples.extend(count.map(|n| Sample::of(&metric::QUEUE_MESSAGES, &[name], n as f64)));
            };
            state("ready", Some(depth.ready));
            state("leased", depth.leased);
            state("waiting", depth.waiting);
            samples.extend(depth.oldest_ms.map(|ms| Sample::number(&metric::QUEUE_OLDEST, ms as f64 / 1e3)));
        }
        self.telemetry.tasks(samples);
    }

    /// The metrics.
    #[must_use]
    pub fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// The queue.
    #[must_use]
    pub fn address(&self) -> &QueueAddress {
        &self.address
    }

    /// The depth of its queue, as it was read last.
    #[must_use]
    pub fn depth(&self) -> Option<QueueDepth> {
        self.feed.as_ref().and_then(|feed| feed.depth())
    }
}

fn queue_of(manifest: &Manifest) -> Result<(&SourceSpec, &TaskSource), RunError> {
    let source = manifest.pipeline.source.as_ref().filter(|source| source.queue.is_some());
    source.and_then(|source| Some((source, source.tasks.as_ref()?))).ok_or_else(|| {
        RunError::Setup(
            "the source is not a queue; use `tidegate run`, or set `source.queue` and `source.tasks`".into(),
        )
    })
}

fn unusable(e: &QueueError) -> RunError {
    if e.is_transient() { RunError::Later(e.to_string()) } else { RunError::Setup(e.to_string()) }
}

/// Connects the jobs to their queues; jobs with the same queue and group share a feed.
fn connect(
    jobs: &mut [WorkerJob],
    options: &WorkerOptions,
) -> Result<(Vec<Arc<Feed>>, Arc<Runtime>), RunError> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("queue")
        .enable_all()
        .build()
        .map_err(|e| RunError::Broken(format!("cannot start the threads of the queue: {e}")))?;
    let runtime = Arc::new(runtime);
    let mut together: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for (at, job) in jobs.iter().enumerate() {
        together.entry((job.address.identity(), job.group.clone())).or_default().push(at);
    }
    let mut feeds = Vec::new();
    for ((_, group), members) in together {
        let own: Vec<&WorkerJob> = members.iter().filter_map(|at| jobs.get(*at)).collect();
        let Some(first) = own.first() else { continue };
        let lease = own.iter().map(|job| job.lease).min().unwrap_or(first.lease);
        let queue = QueueOptions { group, worker: options.worker.clone(), lease };
        let transport = runtime.block_on(open(&first.address, &queue)).map_err(|e| unusable(&e))?;
        let mut desks = Vec::new();
        for job in &own {
            desks.push((job.desk.clone(), dead_queue(job, &queue, &runtime)?));
        }
        let (is_once, stop) = (options.is_once, options.stop.clone());
        let bytes_max = own.iter().map(|job| job.bytes_max).max().unwrap_or(u64::MAX);
        let runtime = runtime.clone();
        let feed = Feed::new(FeedSetup { transport, runtime, desks, lease, bytes_max, is_once, stop });
        for at in members {
            if let Some(job) = jobs.get_mut(at) {
                job.feed = Some(feed.clone());
            }
        }
        feeds.push(feed);
    }
    Ok((feeds, runtime))
}

/// The queue to which dead letters are published, too.
fn dead_queue(
    job: &WorkerJob,
    queue: &QueueOptions,
    runtime: &Runtime,
) -> Result<Option<Arc<dyn Transport>>, RunError> {
    let also = job.manifest.pipeline.dead_letters.as_ref().and_then(|letters| letters.also.as_deref());
    let Some(also) = also else { return Ok(None) };
    let address = address_of(also, &job.options.folder)
        .map_err(|e| RunError::Setup(format!("dead_letters.also: {e}")))?;
    runtime.block_on(open(&address, queue)).map(Some).map_err(|e| unusable(&e))
}

/// Works until it is told to stop, or until its queues are empty if it runs once. Returns the end of
/// each pipeline. `watch` shows each run when it begins.
///
/// # Errors
/// When a queue cannot be used.
pub fn serve(
    jobs: &mut [WorkerJob],
    options: &WorkerOptions,
    watch: &(dyn Fn(&WorkerJob, &Arc<RunWatch>) + Sync),
    meanwhile: &(dyn Fn(&[WorkerJob], &AtomicBool) + Sync),
) -> Result<Vec<PipelineEnd>, RunError> {
    let (feeds, runtime) = connect(jobs, options)?;
    let jobs = &*jobs;
    let is_over = AtomicBool::new(false);
    let ends = std::thread::scope(|scope| {
        for feed in &feeds {
            scope.spawn(|| feed.receive());
            scope.spawn(|| feed.keep());
            scope.spawn(|| feed.settle_all());
        }
        scope.spawn(|| meanwhile(jobs, &is_over));
        let threads: Vec<_> = jobs.iter().map(|job| scope.spawn(move || work(job, options, watch))).collect();
        let gone = || Err(RunError::Broken("internal error in a worker; please report this bug".into()));
        let ends = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect();
        feeds.iter().for_each(|feed| feed.end());
        is_over.store(true, Ordering::Relaxed);
        ends
    });
    // What was on its way when the pipelines ended.
    for job in jobs {
        job.give_up();
    }
    if let Some(why) = feeds.iter().find_map(|feed| feed.failure()) {
        return Err(RunError::Later(why));
    }
    drop(feeds);
    // A call to the queue that hangs does not hold up the end.
    if let Ok(runtime) = Arc::try_unwrap(runtime) {
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
    Ok(ends)
}

/// Runs a manifest whose source is a queue until the queue is empty.
///
/// # Errors
/// When it cannot start, or is aborted.
pub fn run_once(manifest: &Manifest, options: &RunOptions, watch: &RunWatch) -> Result<RunReport, RunError> {
    let worker =
        WorkerOptions { worker: worker_name(), is_once: true, at_once: None, stop: watch.stop.clone() };
    let job = WorkerJob::new(manifest, (options.clone(), &worker), watch.telemetry.clone())?;
    let mut jobs = [job];
    let shown: Mutex<Option<Arc<RunWatch>>> = Mutex::default();
    let follow = |_: &[WorkerJob], is_over: &AtomicBool| {
        while !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
            if let Some(own) = &*lock(&shown) {
                watch.follow(own);
            }
        }
    };
    let begun = |_: &WorkerJob, own: &Arc<RunWatch>| *lock(&shown) = Some(own.clone());
    let mut ends = serve(&mut jobs, &worker, &begun, &follow)?;
    if let Some(own) = &*lock(&shown) {
        watch.follow(own);
    }
    ends.pop().unwrap_or(Err(RunError::Stopped))
}

/// Runs one pipeline until its end.
fn work(
    job: &WorkerJob,
    options: &WorkerOptions,
    watch: &(dyn Fn(&WorkerJob, &Arc<RunWatch>) + Sync),
) -> PipelineEnd {
    let Some(feed) = job.feed.clone() else { return Err(RunError::Stopped) };
    let link = TaskLink { desk: job.desk.clone(), feed: feed.clone() };
    let run_options = RunOptions { tasks: Some(link), resume: false, atomic: false, ..job.options.clone() };
    let mut pause = PAUSE;
    loop {
        let began = Instant::now();
        let own = Arc::new(RunWatch { telemetry: job.telemetry.clone(), ..RunWatch::default() });
        watch(job, &own);
        let run = || run(&job.manifest, &run_options, &own);
        let run = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        let end = with_stop(&options.stop, &own.stop, run).unwrap_or_else(|_| {
            Err(RunError::Broken("internal error in a worker; please report this bug".into()))
        });
        if began.elapsed() > PAUSE_MAX {
            pause = PAUSE;
        }
        let wait = retry_after(&end, &mut pause)
            .filter(|_| !options.is_once && !options.stop.load(Ordering::Relaxed));
        // Nothing more comes while the rest is returned.
        feed.park(&job.desk, i64::MAX);
        let back = job.desk.abandon();
        if !back.is_empty() {
            let delay = match (&wait, &end) {
                (Some(wait), _) => (*wait).min(REQUEUE_MAX),
                (None, Ok(RunReport { end: End::TryLater(_, until), .. })) => {
                    left(until.millis()).min(REQUEUE_MAX)
                }
                _ => Duration::ZERO,
            };
            feed.requeue(&job.desk, back, delay);
        }
        StateDir::remove_worker(&run_options.state, &job.manifest.pipeline.id, &options.worker);
        // Nobody takes the tasks of this pipeline any more; those of others are not held up.
        let Some(wait) = wait else { return end };
        let until = now_ms().saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
        feed.park(&job.desk, until);
        let id = &job.manifest.pipeline.id;
        match &end {
            Ok(report) => {
                info!(target: "tidegate::worker", pipeline = %id, wait_s = wait.as_secs(), "waits: {}", report.said.as_deref().unwrap_or("the other side asked for it"));
            }
            Err(e) => {
                warn!(target: "tidegate::worker", pipeline = %id, wait_s = wait.as_secs(), "waits: {e}");
            }
        }
        while now_ms() < until && !options.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
        if options.stop.load(Ordering::Relaxed) {
            return end;
        }
        feed.park(&job.desk, 0);
    }
}

fn left(until: i64) -> Duration {
    Duration::from_millis(u64::try_from(until.saturating_sub(now_ms())).unwrap_or(0))
}

/// How long to wait for the next run; `None` if there is none.
fn retry_after(end: &PipelineEnd, pause: &mut Duration) -> Option<Duration> {
    let mut backoff = || {
        let wait = *pause;
        *pause = (*pause * 2).min(PAUSE_MAX);
        wait
    };
    match end {
        Ok(RunReport { end: End::TryLater(_, until), .. }) => Some(left(until.millis()).max(backoff())),
        Err(RunError::Service { until: Some(until), .. }) => Some(left(until.millis()).max(backoff())),
        Ok(RunReport { end: End::Suspended(_), .. })
        | Err(RunError::SinkUnavailable(_) | RunError::Later(_)) => Some(backoff()),
        _ => None,
    }
}

/// Runs something, and passes a stop on to it.
fn with_stop<T>(from: &AtomicBool, to: &AtomicBool, work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                if from.load(Ordering::Relaxed) {
                    to.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let done = work();
        is_done.store(true, Ordering::Relaxed);
        done
    })
}
