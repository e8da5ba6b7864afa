//! Observes a run: one thread takes samples for the report, serves metrics, evaluates alerts, and
//! pushes metrics and spans to a collector.
//!
//! It only reads the registry, so it can neither slow the run down nor end it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_ledger::letter::{LetterStore, LetterStoreLocation, now_ms};
use tidegate_pipeline::alert::{Fired, PATIENCE, Watchman};
use tidegate_pipeline::manifest::AlertsSpec;
use tidegate_pipeline::telemetry::otlp::{OtlpConfig, PushError, Pusher};
use tidegate_pipeline::telemetry::trace::{self, Tracer, now_nanos};
use tidegate_pipeline::telemetry::{Telemetry, together};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::report::{Timeline, TimelineSample};
use crate::{log, metrics};

/// The interval between samples of the run.
const EVERY: Duration = Duration::from_millis(100);
/// The interval between evaluations of the alerts.
const JUDGE: Duration = Duration::from_secs(1);
/// The interval between readings of the dead-letter store.
const LETTERS: Duration = Duration::from_secs(30);

/// What `geocode`, `fetch` and `run` can be told about being watched.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Serve Prometheus metrics at this address during the run, such as 127.0.0.1:9090
    #[arg(long, value_name = "ADDR")]
    metrics: Option<std::net::SocketAddr>,

    /// Write an HTML report of the run with a map and charts, as one self-contained file
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

/// The run to observe.
pub(crate) struct Subject<'a> {
    /// The registry of its metrics.
    pub(crate) telemetry: &'a Arc<Telemetry>,
    /// The name of the command.
    pub(crate) task: &'static str,
    /// The alerts of the manifest.
    pub(crate) alerts: Option<&'a AlertsSpec>,
    /// The location of its dead letters.
    pub(crate) letters: Option<LetterStoreLocation>,
}

/// A running observation.
pub(crate) struct Observer {
    /// Time of the start, in nanoseconds since 1970.
    began: u64,
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<Observation>,
}

/// The result of an observation.
#[derive(Default)]
pub(crate) struct Observation {
    /// The samples over time.
    pub(crate) timeline: Timeline,
    /// The duration of the observation.
    pub(crate) took: Duration,
    /// Alerts that fired.
    pub(crate) fired: Vec<Fired>,
    /// Whether one of them sets the exit code.
    pub(crate) exits: bool,
}

impl Observer {
    /// Starts to observe.
    ///
    /// # Errors
    /// When the metrics address, a collector or an alert action cannot be set up. Nothing has
    /// started then.
    pub(crate) fn start(subject: Subject<'_>, args: &Args) -> Result<Observer, String> {
        let listener = match args.metrics {
            Some(addr) => Some(metrics::bind(addr).map_err(|e| format!("--metrics {addr}: {e}"))?),
            None => None,
        };
        if args.report.is_some() {
            subject.telemetry.places.want();
        }
        let push = pusher(&subject)?;
        let mut watchman = Watchman::new(subject.telemetry, subject.alerts)?;
        if let Some(place) = &subject.letters {
            watchman = watchman.of_store(&place.to_string());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| format!("cannot start the monitoring thread: {e}"))?;
        let (stop, stopped) = oneshot::channel();
        let watch = WatchState {
            telemetry: Arc::clone(subject.telemetry),
            watchman,
            push,
            letters: subject.letters,
            began: Instant::now(),
            timeline: Timeline::default(),
            breakers: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("observer".into())
            .spawn(move || {
                let seen = runtime.block_on(watch.go(listener, stopped));
                // Do not wait for a reading of the letters in progress.
                runtime.shutdown_background();
                seen
            })
            .map_err(|e| format!("cannot start the monitoring thread: {e}"))?;
        Ok(Observer { began: now_nanos(), stop, thread })
    }

    /// Ends the observation.
    pub(crate) fn end(self, outcome: &str, failed: bool) -> Observation {
        if let Some(tracer) = trace::tracer() {
            tracer.ended(self.began, outcome, failed);
        }
        // The receiver is gone only if the thread panicked.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

/// Sets up the OTLP exporter from the environment, and adds the trace id to every log line.
fn pusher(subject: &Subject<'_>) -> Result<Option<Arc<Pusher>>, String> {
    let config = OtlpConfig::from_env(&|name| std::env::var(name).ok()).map_err(|e| e.to_string())?;
    let mut chance = [0; 24];
    // If the system provides no random bytes, the trace id is derived from the time.
    chance[16..].copy_from_slice(&now_nanos().to_le_bytes());
    let _ = getrandom::fill(&mut chance);
    let parent = std::env::var("TRACEPARENT").ok();
    let queue = config.as_ref().map_or(0, |config| config.span_queue);
    let tracer = Tracer::new(parent.as_deref(), chance, queue);
    log::about(vec![
        ("trace_id", tracer.trace_id()),
        ("pipeline", subject.telemetry.pipeline().to_owned()),
        ("task", subject.task.to_owned()),
    ]);
    let Some(config) = config else { return Ok(None) };
    if config.traces.is_some() {
        trace::install(tracer);
    }
    Pusher::new(config).map(|pusher| Some(Arc::new(pusher))).map_err(|e| e.to_string())
}

struct WatchState {
    telemetry: Arc<Telemetry>,
    watchman: Watchman,
    push: Option<Arc<Pusher>>,
    letters: Option<LetterStoreLocation>,
    began: Instant,
    timeline: Timeline,
    breakers: Vec<(String, u8)>,
}

impl WatchState {
    async fn go(
        mut self,
        listener: Option<std::net::TcpListener>,
        mut stopped: oneshot::Receiver<()>,
    ) -> Observation {
        let mut tasks = JoinSet::new();
        if let Some(listener) = listener {
            let telemetry = Arc::clone(&self.telemetry);
            tasks.spawn(async move { metrics::serve(listener, move || telemetry.prometheus()).await });
        }
        if let Some(push) = &self.push {
            tasks.spawn(push_metrics(Arc::clone(push), Arc::clone(&self.telemetry)));
            tasks.spawn(push_spans(Arc::clone(push), Arc::clone(&self.telemetry)));
        }
        let mut acting = JoinSet::new();
        let mut judged = Instant::now();
        let mut looked: Option<Instant> = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                _ = &mut stopped => break,
            }
            let sample = sample(&self.telemetry, self.began);
            self.timeline.take(sample);
            self.breakers();
            if looked.is_none_or(|at| at.elapsed() >= LETTERS) {
                looked = Some(Instant::now());
                if let Some(place) = self.letters.clone() {
                    let telemetry = Arc::clone(&self.telemetry);
                    tokio::task::spawn_blocking(move || letters(&place, &telemetry));
                }
            }
            if judged.elapsed() >= JUDGE {
                judged = Instant::now();
                self.judge(&mut acting);
            }
        }
        let sample = sample(&self.telemetry, self.began);
        self.timeline.take(sample);
        let took = self.began.elapsed();
        if let Some(place) = self.letters.clone() {
            let telemetry = Arc::clone(&self.telemetry);
            // The client of PostgreSQL blocks, which it may not do on this thread. If the reading
            // fails, the last one counts.
            let _ = tokio::task::spawn_blocking(move || letters(&place, &telemetry)).await;
        }
        self.judge(&mut acting);
        tasks.abort_all();
        let done = async { while acting.join_next().await.is_some() {} };
        // Actions have timeouts of their own; this one bounds everything else.
        let _ = tokio::time::timeout(PATIENCE * 2, done).await;
        if let Some(push) = &self.push {
            warn_if_push_failed(metrics_now(push, &self.telemetry).await);
            if let Some(tracer) = trace::tracer() {
                warn_if_push_failed(spans_now(push, tracer, &self.telemetry).await);
            }
        }
        let (fired, exits) = (self.watchman.fired().to_vec(), self.watchman.exits());
        Observation { timeline: self.timeline, took, fired, exits }
    }

    /// Evaluates the alerts and starts their actions.
    fn judge(&mut self, acting: &mut JoinSet<()>) {
        for change in self.watchman.look(self.began.elapsed()) {
            let (actions, telemetry) = (self.watchman.actions(), Arc::clone(&self.telemetry));
            let store = self.letters.as_ref().map(ToString::to_string);
            acting.spawn(async move {
                actions.act(&change, telemetry.pipeline(), store.as_deref()).await;
            });
        }
    }

    /// Logs state changes of breakers.
    fn breakers(&mut self) {
        for service in self.telemetry.services() {
            let now = together(std::slice::from_ref(&service)).breaker;
            let host = service.host.as_str();
            let was = match self.breakers.iter_mut().find(|(name, _)| name == host) {
                Some((_, state)) => std::mem::replace(state, now),
                None => {
                    self.breakers.push((host.to_owned(), now));
                    0
                }
            };
            match (was, now) {
                (0, 1..) => warn!(
                    target: "tidegate::breaker", code = "CIRCUIT_OPEN", host,
                    "circuit breaker opened: the service is failing, calls wait"
                ),
                (1.., 0) => {
                    info!(target: "tidegate::breaker", host, "circuit breaker closed: the service responds again");
                }
                _ => {}
            }
        }
    }
}

/// Reads the dead-letter store. After an error the next reading tries again.
fn letters(place: &LetterStoreLocation, telemetry: &Telemetry) {
    let there = !matches!(place, LetterStoreLocation::File(path) if !path.exists());
    if there && let Ok(health) = LetterStore::open(place).and_then(|mut store| store.health(now_ms())) {
        telemetry.letters(health);
    }
}

async fn push_metrics(push: Arc<Pusher>, telemetry: Arc<Telemetry>) {
    loop {
        tokio::time::sleep(push.config().interval).await;
        warn_if_push_failed(metrics_now(&push, &telemetry).await);
    }
}

async fn push_spans(push: Arc<Pusher>, telemetry: Arc<Telemetry>) {
    let Some(tracer) = trace::tracer() else { return };
    loop {
        tokio::time::sleep(push.config().span_delay).await;
        warn_if_push_failed(spans_now(&push, tracer, &telemetry).await);
    }
}

/// Pushes the current values of the registry.
async fn metrics_now(push: &Pusher, telemetry: &Telemetry) -> Result<(), PushError> {
    push.readings(&[(Some(telemetry.pipeline()), &telemetry.samples())]).await
}

/// Pushes the spans that have ended, and counts those that were dropped.
async fn spans_now(push: &Pusher, tracer: &Tracer, telemetry: &Telemetry) -> Result<(), PushError> {
    let (spans, dropped) = tracer.drain();
    telemetry.spans_dropped(dropped);
    push.spans(tracer, telemetry.pipeline(), &spans).await
}

/// Logs a failed push; it has no other effect.
pub(crate) fn warn_if_push_failed(pushed: Result<(), PushError>) {
    if let Err(why) = pushed {
        warn!(target: "tidegate::otlp", "cannot export telemetry to the collector: {why}");
    }
}

fn sample(telemetry: &Telemetry, began: Instant) -> TimelineSample {
    let services = telemetry.services();
    let lanes = together(&services);
    TimelineSample {
        at: began.elapsed(),
        sent: lanes.sent,
        throttled: lanes.throttled,
        failed_calls: lanes.failed,
        backoff: services.iter().map(|service| service.calls.in_backoff()).sum(),
        done: telemetry.records.all(),
        in_flight: lanes.in_flight,
        waiting: lanes.waiting as u64,
        rate: lanes.rate,
    }
}
