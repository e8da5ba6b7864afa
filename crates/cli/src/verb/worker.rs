//! `tidegate worker`: works on the tasks of queues.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tidegate_pipeline::run::{End, RunOptions, RunWatch};
use tidegate_pipeline::telemetry::{Telemetry, sample};
use tidegate_pipeline::worker::{PipelineEnd, WorkerJob, WorkerOptions, serve, worker_name};

use super::plan;
use crate::exit::Exit;
use crate::out::{self, OutputFormat};
use crate::progress::thousands;
use crate::stop::{AFTER_CALLS, listen};
use crate::web::{self, WebResponse};

/// Work on the tasks of queues
///
/// Serve one or several manifests whose source is a queue, until SIGTERM or Ctrl-C, or with --once
/// until the queues are empty. A task belongs to the pipeline whose `source.tasks.kinds` lists its
/// kind. Rows and the end of a task are committed in one transaction, and the message is
/// acknowledged after it, so a task that is delivered twice has one effect. A worker that is killed
/// loses nothing: others take its tasks when their leases end.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate worker parcels.yaml
  tidegate worker pipelines/*.yaml --concurrency 8 --metrics 127.0.0.1:9090
  tidegate worker parcels.yaml --listen 0.0.0.0:9464      # in a container, for probes from outside
  tidegate worker parcels.yaml --once      # for a job under an orchestrator

The address of --metrics or --listen also answers /healthz (it runs) and /readyz (it is connected and
not stopping).

Exit codes: 0 stopped, or all done with --once; 1 failure; 2 a manifest, its queue or its sink cannot
be used; 3 a gate halted a pipeline; 4 with --once: some tasks are dead letters; 75 with --once, or at
the start: a service, the queue or the sink is down or asked to wait; also if an incident ended a
pipeline.")]
pub(crate) struct Args {
    /// The manifests
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    include: plan::IncludeArgs,

    /// End when the queues have nothing that can be delivered now
    #[arg(long)]
    once: bool,

    /// The most tasks of a pipeline in work at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: Option<u32>,

    /// How long to finish the tasks in work after SIGTERM; then they are returned to the queue
    #[arg(long, value_name = "SECONDS", default_value_t = 25)]
    drain: u64,

    /// Serve Prometheus metrics, /healthz and /readyz at this loopback address
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,

    /// The same at any address, for probes from outside; there is no authentication
    #[arg(long, value_name = "ADDR", conflicts_with = "metrics")]
    listen: Option<SocketAddr>,

    /// State directory: dead letters, audit log, cached responses
    #[arg(long, value_name = "DIR", default_value = ".tidegate", value_parser = super::calls::state_dir())]
    state: PathBuf,

    /// Print no progress and no summary
    #[arg(long, short)]
    quiet: bool,

    /// Output on standard output: none (table) or the result as JSON
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let stop = Arc::new(AtomicBool::new(false));
    listen(&stop, AFTER_CALLS);
    let options = WorkerOptions {
        worker: worker_name(),
        is_once: args.once,
        at_once: args.concurrency.map(|n| n as usize),
        stop: stop.clone(),
    };
    let mut jobs = Vec::new();
    for file in &args.files {
        let Some(manifest) = plan::load(file, &args.include.options()) else { return Ok(Exit::Usage) };
        let run =
            RunOptions { folder: plan::folder(file), ..RunOptions::of_preset(&args.state, false, false) };
        let run = RunOptions { from_options: false, atomic: false, ..run };
        let telemetry = Arc::new(Telemetry::new(&manifest.pipeline.id));
        match WorkerJob::new(&manifest, (run, &options), telemetry) {
            Ok(job) => jobs.push(job),
            Err(e) => {
                out::say(&format!("tidegate: {}: {e}", file.display()));
                return Ok(Exit::from(&e));
            }
        }
    }
    let registries: Vec<Arc<Telemetry>> = jobs.iter().map(|job| job.telemetry().clone()).collect();
    let readiness = Arc::new(Readiness { is_connected: AtomicBool::new(false), stop: stop.clone() });
    let _server = match endpoints(args, registries, readiness.clone()) {
        Ok(server) => server,
        Err(e) => {
            out::say(&format!("tidegate: {e}"));
            return Ok(Exit::Usage);
        }
    };
    let drain = Duration::from_secs(args.drain);
    let began = |_: &WorkerJob, _: &Arc<RunWatch>| {};
    let watch = |jobs: &[WorkerJob], is_over: &AtomicBool| {
        readiness.is_connected.store(true, Ordering::Relaxed);
        follow(args, jobs, (&stop, is_over), drain);
    };
    if !args.quiet {
        out::say(&format!("worker {} takes tasks from {}", options.worker, queues(&jobs)));
    }
    let started = Instant::now();
    let ends = match serve(&mut jobs, &options, &began, &watch) {
        Ok(ends) => ends,
        Err(e) => {
            out::say(&format!("tidegate: {e}"));
            return Ok(Exit::from(&e));
        }
    };
    let is_stopped = !args.once && stop.load(Ordering::Relaxed);
    finish(args, is_stopped, (&jobs, &ends), started.elapsed())
}

fn queues(jobs: &[WorkerJob]) -> String {
    let mut names: Vec<String> = jobs.iter().map(|job| job.address().to_string()).collect();
    names.dedup();
    names.join(", ")
}

/// How long the return of tasks may take after a drain that took too long.
const RETURN_MAX: Duration = Duration::from_secs(2);

/// Shows the numbers now and then, and ends the process if a drain takes too long: its tasks are returned,
/// and others take the tasks.
fn follow(args: &Args, jobs: &[WorkerJob], (stop, is_over): (&AtomicBool, &AtomicBool), drain: Duration) {
    let (mut said, mut stopped) = (Instant::now(), None);
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
        jobs.iter().for_each(WorkerJob::measure);
        if !args.quiet && said.elapsed() > Duration::from_secs(10) {
            said = Instant::now();
            jobs.iter().for_each(|job| out::say(&line(job)));
        }
        if stop.load(Ordering::Relaxed) {
            let since = *stopped.get_or_insert_with(Instant::now);
            if since.elapsed() > drain {
                out::say("tidegate: the tasks in work did not end in time; they are returned to the queue");
                #[allow(clippy::exit, reason = "as after kill -9: nothing is lost")]
                let exit = || std::process::exit(Exit::Failure as i32);
                std::thread::spawn(move || {
                    std::thread::sleep(RETURN_MAX);
                    exit()
                });
                jobs.iter().for_each(WorkerJob::give_up);
                exit();
            }
        }
    }
    jobs.iter().for_each(WorkerJob::measure);
}

/// One line about the tasks of a pipeline.
fn line(job: &WorkerJob) -> String {
    let counts = &job.desk().counts;
    let get = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    let mut parts = vec![format!("{} done", thousands(get(&counts.done)))];
    for (count, word) in [
        (&counts.dead, "dead"),
        (&counts.repeated, "done before"),
        (&counts.lost, "taken over by others"),
        (&counts.requeued, "returned to the queue"),
    ] {
        if get(count) > 0 {
            parts.push(format!("{} {word}", thousands(get(count))));
        }
    }
    let depth = job.depth().map(|depth| format!("; the queue holds {}", thousands(depth.lag())));
    format!("{}: {}{}", job.manifest().pipeline.id, parts.join(", "), depth.unwrap_or_default())
}

fn finish(
    args: &Args,
    is_stopped: bool,
    (jobs, ends): (&[WorkerJob], &[PipelineEnd]),
    took: Duration,
) -> io::Result<Exit> {
    let mut exit = Exit::Done;
    let mut results = Vec::new();
    for (job, end) in jobs.iter().zip(ends) {
        let dead = job.desk().counts.dead.load(Ordering::Relaxed);
        let (own, why) = match end {
            Ok(report) => match &report.end {
                End::Halted(halt) => {
                    (Exit::Halted, Some(format!("halted by {}: {}", halt.gate, halt.reason)))
                }
                End::TryLater(code, _) => (Exit::TryLater, Some(format!("stopped by a service ({code})"))),
                End::Suspended(what) => (Exit::TryLater, Some(what.clone())),
                End::Done if args.once && dead > 0 => (Exit::DeadLetters, None),
                End::Done | End::Stopped => (Exit::Done, None),
            },
            Err(e) => (Exit::from(e), Some(e.to_string())),
        };
        // Who stops a worker that waits wants nothing else of it.
        let own = if is_stopped && own == Exit::TryLater { Exit::Done } else { own };
        if !args.quiet {
            out::say(&line(job));
        }
        if let Some(why) = &why {
            out::say(&format!("tidegate: {}: {why}", job.manifest().pipeline.id));
        }
        if severity(own) > severity(exit) {
            exit = own;
        }
        results.push(result(job, end, why));
    }
    if args.format == OutputFormat::Json {
        let value = json!({ "pipelines": results, "seconds": took.as_secs_f64() });
        out::data(&format!("{value:#}\n"))?;
    }
    Ok(exit)
}

fn severity(exit: Exit) -> u8 {
    match exit {
        Exit::Done => 0,
        Exit::Alerted => 1,
        Exit::DeadLetters => 2,
        Exit::TryLater => 3,
        Exit::Halted => 4,
        Exit::Usage => 5,
        Exit::Failure => 6,
    }
}

fn result(job: &WorkerJob, end: &PipelineEnd, why: Option<String>) -> Value {
    let counts = &job.desk().counts;
    let get = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    json!({
        "pipeline": job.manifest().pipeline.id,
        "queue": job.address().to_string(),
        "received": get(&counts.received),
        "redelivered": get(&counts.redelivered),
        "done": get(&counts.done),
        "dead": get(&counts.dead),
        "repeated": get(&counts.repeated),
        "taken_over": get(&counts.lost),
        "requeued": get(&counts.requeued),
        "run": end.as_ref().ok().map(|report| report.to_json(report.status())),
        "error": why,
    })
}

/// Whether a worker can take tasks.
struct Readiness {
    is_connected: AtomicBool,
    stop: Arc<AtomicBool>,
}

impl Readiness {
    fn answer(&self) -> WebResponse {
        if self.stop.load(Ordering::Relaxed) {
            WebResponse::text("503 Service Unavailable", "stopping\n")
        } else if self.is_connected.load(Ordering::Relaxed) {
            WebResponse::text("200 OK", "ready\n")
        } else {
            WebResponse::text("503 Service Unavailable", "not connected to its queues yet\n")
        }
    }
}

/// The socket for metrics and health, if one is wanted.
fn socket(args: &Args) -> Result<Option<TcpListener>, String> {
    if let Some(addr) = args.metrics {
        return crate::metrics::bind(addr).map(Some).map_err(|e| format!("--metrics {addr}: {e}"));
    }
    let Some(addr) = args.listen else { return Ok(None) };
    let bound = TcpListener::bind(addr).and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
    let bound = bound.map_err(|e| format!("--listen {addr}: {}", crate::metrics::in_use(e)))?;
    if !addr.ip().is_loopback() {
        out::say("tidegate worker: warning: this address is not loopback and there is no authentication");
    }
    Ok(Some(bound))
}

/// Serves metrics and health until it is dropped.
fn endpoints(
    args: &Args,
    registries: Vec<Arc<Telemetry>>,
    readiness: Arc<Readiness>,
) -> Result<Option<tokio::runtime::Runtime>, String> {
    let Some(listener) = socket(args)? else { return Ok(None) };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("metrics")
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    let answers = move |path: String| {
        let answer = match path.as_str() {
            "/metrics" => {
                let all: Vec<_> = registries.iter().map(|one| (one.pipeline(), one.samples())).collect();
                let all: Vec<_> =
                    all.iter().map(|(name, samples)| (Some(*name), samples.as_slice())).collect();
                WebResponse::metrics(sample::prometheus(&all))
            }
            "/healthz" => WebResponse::text("200 OK", "ok\n"),
            "/readyz" => readiness.answer(),
            _ => WebResponse::text("404 Not Found", "see /metrics /healthz /readyz\n"),
        };
        Box::pin(std::future::ready(answer)) as BoxFuture<'static, WebResponse>
    };
    runtime.spawn(async move { web::serve(listener, Vec::new(), Arc::new(answers)).await });
    Ok(Some(runtime))
}
