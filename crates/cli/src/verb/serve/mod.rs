//! `tidegate serve`: monitors pipelines and dead letters over HTTP.
//!
//! One loop reads the state directory and the dead-letter stores, purges letters whose retention
//! has ended, replays letters that are due, evaluates the alerts about letters and starts their
//! actions. Requests are answered from the last reading; only the map reads the stores itself. It
//! never starts or stops a run.
//!
//! | file | holds |
//! |---|---|
//! | `look` | what is read, how often, and the alerts |
//! | `metrics` | the result as metrics |
//! | `page` | the result as a page |

mod look;
mod metrics;
mod page;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use serde_json::json;
use tidegate_client::lock::lock;
use tidegate_client::secret;
use tidegate_core::hex::hex;
use tidegate_ledger::audit::AuditEvent;
use tidegate_ledger::letter::{LetterError, LetterFilter, LetterStore, LetterStoreLocation, now_ms};
use tidegate_pipeline::alert::PATIENCE;
use tidegate_pipeline::run::{NamedPipeline, letters};
use tidegate_pipeline::telemetry::otlp::{OtlpConfig, Pusher};
use tidegate_sim::report::html;
use tokio::task::JoinSet;

use super::dlq::map::{self, Drawing};
use super::plan::VariableArgs;
use super::{calls, plan};
use crate::exit::Exit;
use crate::given::GivenAddress;
use crate::stop::StopSignals;
use crate::web::{self, Answers, WebResponse};
use crate::{log, observe, out};
use look::{Keeper, StoreView};

/// The most letters per store on the map.
const DRAWN_MAX: u32 = 5000;
/// The shortest interval between readings.
const LOOK: Duration = Duration::from_secs(10);
/// Reading may take at most one part in this many of the time.
const SHARE: u32 = 20;

/// Monitor pipelines and dead letters over HTTP
///
/// Read the state directory and the dead letter stores, and serve an overview at /, a map of the dead
/// letters at /dead-letters, Prometheus metrics at /metrics, /healthz and /readyz. Letters past their
/// retention period are purged at the start and at every --every interval; with --manifest, letters that
/// are due are repaired and replayed between runs, and open ones archived. All of it is recorded in the
/// audit. The alerts about letters are evaluated continuously. Exits with 0 on Ctrl-C and SIGTERM.
/// OTEL_* variables work as in a run.
///
/// What a store says of its pipelines is shown and compared, never executed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate serve
  tidegate serve --manifest parcels.yaml --manifest roads.yaml
  tidegate serve --state /var/lib/tidegate --alerts parcels.yaml
  tidegate serve --dead-letters letters.db --dead-letters env:LETTERS_URL --every 1h
  tidegate serve --listen 0.0.0.0:9464 --allow-host tidegate.internal
  tidegate serve --check

Exit codes: 0 stopped by a signal, or healthy with --check; 1 failure; 2 usage error, such as an address
in use or nothing to monitor; 75 the server of a store is down at the start, try again later.")]
pub(crate) struct Args {
    /// State directory with the last run of each pipeline, and letters.db if it exists
    #[arg(long, value_name = "DIR", default_value = ".tidegate", value_parser = calls::state_dir())]
    state: PathBuf,

    /// Dead letter store: a file, postgres://…, or env:NAME and file:PATH that contain either; can be
    /// repeated
    #[arg(long, value_name = "PLACE")]
    dead_letters: Vec<GivenAddress>,

    /// Address to listen on; there is no authentication
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9464")]
    listen: SocketAddr,

    /// Additional host name to accept besides IP addresses and localhost, such as that of a proxy; can
    /// be repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,

    /// Manifest whose rules apply to the letters of its pipeline (`dead_letters.auto`, `replay_parked`,
    /// `archive`); its store is monitored, too; can be repeated [default: nothing is repaired or replayed]
    #[arg(long, value_name = "FILE")]
    manifest: Vec<PathBuf>,

    #[command(flatten)]
    variables: VariableArgs,

    /// How often to purge letters past their retention period, and to replay those that are due
    #[arg(long, value_name = "SPAN", default_value = "10m", value_parser = calls::time)]
    every: Duration,

    /// Manifest whose `alerts` set the thresholds and actions [default: default thresholds, alerts are
    /// only logged]
    #[arg(long, value_name = "MANIFEST")]
    alerts: Option<PathBuf>,

    /// Show exact coordinates on the map; the reason is recorded in the audit with each request. Only
    /// on loopback
    #[arg(long, value_name = "WHY")]
    reveal: Option<String>,

    /// With --reveal, show pictures of the rasters in this directory that letters name
    #[arg(long, value_name = "DIR", requires = "reveal")]
    rasters: Option<PathBuf>,

    /// Check the health of the server at --listen, and exit
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    if args.check {
        return Ok(check(args.listen));
    }
    let refuse = |why: String| {
        out::say(&format!("tidegate serve: {why}"));
        Ok(Exit::Usage)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before the stores are opened, which may take a while.
    let stop = runtime.block_on(async { StopSignals::listen() })?;
    let alerts = match &args.alerts {
        None => None,
        Some(path) => match plan::load(path, &args.variables.options()) {
            Some(manifest) => manifest.pipeline.alerts,
            None => return Ok(Exit::Usage),
        },
    };
    let Some(named) = named(args) else { return Ok(Exit::Usage) };
    let places = match places(args, &named) {
        Ok(places) => places,
        Err(why) => return refuse(why),
    };
    // A store that goes down later is reported by the server; at the start it is what a
    // supervisor waits for.
    if let Some((place, why)) = down(&places) {
        out::say(&format!("tidegate serve: {}", secret::mask(&format!("{place}: {why}"))));
        return Ok(Exit::TryLater);
    }
    log::about(vec![("task", "serve".into())]);
    let keeper = match Keeper::new(args.state.is_dir().then(|| args.state.clone()), &places, alerts.as_ref())
    {
        Ok(keeper) => keeper.every(args.every).acting_for(named),
        Err(why) => return refuse(why),
    };
    let push = match OtlpConfig::from_env(&|name| std::env::var(name).ok()) {
        Ok(None) => None,
        Ok(Some(config)) => match Pusher::new(config) {
            Ok(push) => Some(Arc::new(push)),
            Err(why) => return refuse(why.to_string()),
        },
        Err(why) => return refuse(why.to_string()),
    };
    let listener = match TcpListener::bind(args.listen).and_then(|l| l.set_nonblocking(true).map(|()| l)) {
        Ok(listener) => listener,
        Err(why) => return refuse(format!("--listen {}: {}", args.listen, crate::metrics::in_use(why))),
    };
    let (reveal, rasters) = (args.reveal.clone(), args.rasters.clone());
    let desk = Arc::new(ServeState { view: Mutex::default(), places, reveal, rasters });
    let ended = runtime.block_on(serve(args, (keeper, desk), push, listener, stop));
    // An interrupted reading is a transaction that is rolled back.
    runtime.shutdown_background();
    ended
}

/// The first store whose server cannot be reached, and why.
fn down(places: &[LetterStoreLocation]) -> Option<(&LetterStoreLocation, LetterError)> {
    let servers = places.iter().filter(|place| matches!(place, LetterStoreLocation::Url(_)));
    servers.into_iter().find_map(|place| match LetterStore::look(place) {
        Err(why @ LetterError::Unreachable(_)) => Some((place, why)),
        _ => None,
    })
}

/// The pipelines whose rules apply; `None` after printing the problems of a manifest.
fn named(args: &Args) -> Option<Vec<NamedPipeline>> {
    let options = args.variables.options();
    let named = args.manifest.iter().map(|file| {
        Some(NamedPipeline {
            manifest: plan::load(file, &options)?,
            name: file.display().to_string(),
            folder: plan::folder(file),
            state: args.state.clone(),
        })
    });
    named.collect()
}

/// The locations of the stores to monitor.
fn places(args: &Args, named: &[NamedPipeline]) -> Result<Vec<LetterStoreLocation>, String> {
    for (at, one) in named.iter().enumerate() {
        if let Some(other) = named.iter().take(at).find(|other| other.id() == one.id()) {
            return Err(format!("{} and {} are both manifests of {}", other.name, one.name, one.id()));
        }
    }
    if args.reveal.is_some() && !args.listen.ip().is_loopback() {
        return Err("--reveal shows exact coordinates and requires a loopback address in --listen".into());
    }
    if args.every < Duration::from_secs(1) {
        return Err("--every must be at least 1s".into());
    }
    let mut places = Vec::new();
    if args.state.is_dir() {
        places.push(LetterStoreLocation::File(args.state.join("letters.db")));
    } else if args.dead_letters.is_empty() && named.is_empty() {
        return Err(format!(
            "nothing to monitor: directory {} does not exist; set --state, --dead-letters or --manifest",
            args.state.display()
        ));
    }
    for given in &args.dead_letters {
        let place = LetterStoreLocation::of(given).map_err(|e| format!("--dead-letters: {e}"))?;
        if !places.contains(&place) {
            places.push(place);
        }
    }
    for one in named {
        let Some(form) = &one.manifest.pipeline.dead_letters else { continue };
        let place =
            letters::place(form, &one.folder, &one.state).map_err(|e| format!("{}: {e}", one.name))?;
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Ok(places)
}

/// The state shared by the request handlers.
struct ServeState {
    view: Mutex<Option<Arc<StoreView>>>,
    places: Vec<LetterStoreLocation>,
    reveal: Option<String>,
    /// The directory of rasters that may be shown.
    rasters: Option<PathBuf>,
}

impl ServeState {
    fn seen(&self) -> Option<Arc<StoreView>> {
        lock(&self.view).clone()
    }

    fn see(&self, view: StoreView) {
        *lock(&self.view) = Some(Arc::new(view));
    }
}

async fn serve(
    args: &Args,
    (mut keeper, desk): (Keeper, Arc<ServeState>),
    push: Option<Arc<Pusher>>,
    listener: TcpListener,
    mut stop: StopSignals,
) -> io::Result<Exit> {
    let addr = listener.local_addr()?;
    let mut tasks = JoinSet::new();
    tasks.spawn(web::serve(listener, args.allow_host.clone(), answers(&desk)));
    if let Some(push) = &push {
        tasks.spawn(pushing(Arc::clone(push), Arc::clone(&desk)));
    }
    out::say(&format!("tidegate serve: http://{addr}/"));
    if !addr.ip().is_loopback() {
        out::say("tidegate serve: warning: this address is not loopback and there is no authentication");
    }
    let mut acting = JoinSet::new();
    let ended = loop {
        let began = Instant::now();
        let mut looking = tokio::task::spawn_blocking(move || {
            let seen = keeper.look();
            (keeper, seen)
        });
        let looked = tokio::select! {
            looked = &mut looking => looked,
            asked = stop.asked() => {
                // A purge and its audit entry are one transaction; give it a moment to finish.
                let _ = tokio::time::timeout(PATIENCE, looking).await;
                break asked.map(|()| Exit::Done);
            }
        };
        let Ok((kept, (view, changes))) = looked else {
            out::say("tidegate serve: internal error while reading the stores; please report this bug");
            break Ok(Exit::Failure);
        };
        keeper = kept;
        if desk.seen().is_none() {
            out::say(&format!("tidegate serve: monitoring {}", view.told()));
            if args.manifest.is_empty() {
                out::say(
                    "tidegate serve: no --manifest: letters are shown, and none is repaired or replayed",
                );
            }
        }
        desk.see(view);
        for change in changes {
            acting.spawn(async move {
                change.actions.act(&change.change, &change.name, Some(&change.place)).await;
            });
        }
        while acting.try_join_next().is_some() {}
        let pause = LOOK.min(args.every).max(began.elapsed() * SHARE);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            asked = stop.asked() => break asked.map(|()| Exit::Done),
        }
    };
    tasks.abort_all();
    let done = async { while acting.join_next().await.is_some() {} };
    // Actions have timeouts of their own; this one bounds everything else.
    let _ = tokio::time::timeout(PATIENCE * 2, done).await;
    if let (Some(push), Some(view)) = (&push, desk.seen()) {
        observe::warn_if_push_failed(push.readings(&metrics::of(&metrics::readings(&view, now_ms()))).await);
    }
    out::say("tidegate serve: stopped");
    ended
}

async fn pushing(push: Arc<Pusher>, desk: Arc<ServeState>) {
    loop {
        tokio::time::sleep(push.config().interval).await;
        if let Some(view) = desk.seen() {
            observe::warn_if_push_failed(
                push.readings(&metrics::of(&metrics::readings(&view, now_ms()))).await,
            );
        }
    }
}

/// The request handler.
fn answers(desk: &Arc<ServeState>) -> Answers {
    let desk = Arc::clone(desk);
    Arc::new(move |path| {
        let desk = Arc::clone(&desk);
        Box::pin(async move { answer(&desk, &path).await }) as BoxFuture<'static, WebResponse>
    })
}

async fn answer(desk: &Arc<ServeState>, path: &str) -> WebResponse {
    const LATER: &str = "503 Service Unavailable";
    match (path, desk.seen()) {
        ("/healthz", _) => WebResponse::text("200 OK", "ok\n"),
        ("/dead-letters", _) => {
            let desk = Arc::clone(desk);
            let drawn = tokio::task::spawn_blocking(move || draw(&desk)).await;
            drawn.unwrap_or_else(|_| {
                WebResponse::text("500 Internal Server Error", "internal error while drawing the map\n")
            })
        }
        ("/" | "/metrics" | "/readyz", None) => {
            WebResponse::text(LATER, "not ready yet; try again in a moment\n")
        }
        ("/", Some(view)) => WebResponse::page(html::policy(), page::page(&view, now_ms())),
        ("/metrics", Some(view)) => WebResponse::metrics(metrics::prometheus(&view, now_ms())),
        ("/readyz", Some(view)) => match view.faults() {
            faults if faults.is_empty() => WebResponse::text("200 OK", "ready\n"),
            faults => WebResponse::text(LATER, faults.concat()),
        },
        _ => WebResponse::text("404 Not Found", "see / /dead-letters /metrics /healthz /readyz\n"),
    }
}

/// The map of all letters currently in the stores.
fn draw(desk: &ServeState) -> WebResponse {
    let mut chance = [0; 16];
    if getrandom::fill(&mut chance).is_err() {
        return WebResponse::text("500 Internal Server Error", "no random numbers available\n");
    }
    let nonce = hex(&chance);
    let mut drawing = Drawing::new(desk.reveal.is_some(), desk.rasters.as_deref());
    for place in &desk.places {
        if let Err(why) = draw_store(desk, place, &mut drawing) {
            let why = secret::mask(&format!("cannot read the store {place}: {why}\n")).into_owned();
            return WebResponse::text("503 Service Unavailable", why);
        }
    }
    WebResponse::page(map::policy(&nonce), drawing.page(now_ms(), Some(&nonce)))
}

fn draw_store(
    desk: &ServeState,
    place: &LetterStoreLocation,
    drawing: &mut Drawing,
) -> Result<(), LetterError> {
    if !look::is_there(place) {
        return Ok(());
    }
    let mut store = LetterStore::open(place)?;
    if let Some(why) = &desk.reveal {
        store.enter(AuditEvent::new(now_ms(), "reveal", json!({ "verb": "serve", "why": why })))?;
    }
    drawing.add(&mut store, &LetterFilter::default(), DRAWN_MAX)
}

/// Asks a running server for its health.
fn check(listen: SocketAddr) -> Exit {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let addr = SocketAddr::new(ip, listen.port());
    let patience = Duration::from_secs(3);
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&addr, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(format!("GET /healthz HTTP/1.1\r\nHost: {addr}\r\n\r\n").as_bytes())?;
        let mut text = String::new();
        stream.take(4096).read_to_string(&mut text)?;
        Ok(text)
    };
    match ask() {
        Ok(text) if text.starts_with("HTTP/1.1 200 ") => Exit::Done,
        Ok(_) => {
            out::say(&format!("tidegate serve: the server at {addr} is not healthy"));
            Exit::Failure
        }
        Err(why) => {
            out::say(&format!("tidegate serve: cannot reach {addr}: {why}"));
            Exit::Failure
        }
    }
}
