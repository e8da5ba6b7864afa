//! `tidegate chaos`: a faulty provider on this machine.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use tidegate_chaos::{
    Chaos, Config, Dialect, Draw, FaultKind, FaultRule, Handle, Outage, Scope, ServerLimit, Service,
};
use tidegate_chaos::{Quirk, Unrest, When, preset, spec};

use crate::exit::Exit;
use crate::{metrics, out};

/// Run a faulty local provider for tests and demos
///
/// Simulate a geocoder, a WFS, an OGC API, an ArcGIS server, a STAC API and an object store with
/// generated data. The first line on standard output is the URL. `/__stats` returns statistics,
/// `/__reset` resets them, `/__config` returns the configuration, `/__quit` stops the server.
#[derive(clap::Args)]
#[command(after_help = "\
WHEN a fault occurs: 1% (a probability), @7 or @10..20 (request numbers), every:7, or first:2 (the
first attempts of each request). All random choices depend on --seed only.

Examples:
  tidegate chaos --throttle bucket:500/s,burst=50 --headers retry-after
  tidegate chaos --status 500=1% --status 502=@10..20 --reset 1% --cut 1% --error-200 1%
  tidegate chaos --outage 5s..10s,collapse=20 --service-ms 2..5
  tidegate chaos --preset nominatim --bad-rows 5% --no-match 5%
  tidegate chaos --rasters scenes --range-fault zeros=10%,swapped=10%
  tidegate chaos --throttle fixed:5/100ms --scope prefix --throttle-status 503")]
pub(crate) struct Args {
    /// Address to listen on, loopback only; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:0")]
    addr: SocketAddr,
    /// Additional host name to accept besides loopback addresses and localhost; can be repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Behave like a well-known provider; other options override it
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Random seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// bucket:500/s,burst=50 | fixed:5/100ms | sliding:100/10s | counter:100/10s | concurrency:8 |
    /// leaky:100/s,burst=20,delay=0 (nginx) | stick:100/1s (HAProxy); join several with +, all must
    /// admit the call
    #[arg(long, value_name = "LIMIT", value_parser = spec::throttle)]
    throttle: Option<ServerLimit>,
    /// Scope of the throttle
    #[arg(long)]
    scope: Option<Scope>,
    /// Status of a throttled call; 200 puts the error into the body
    #[arg(long, value_name = "STATUS", value_parser = spec::status)]
    throttle_status: Option<u16>,
    /// Wait before a throttled call is answered (a tarpit)
    #[arg(long, value_name = "SPAN", value_parser = spec::span)]
    throttle_after: Option<Duration>,
    /// Rate limit headers: none, retry-after, ietf, x-ratelimit-epoch, … (see docs/chaos.md)
    #[arg(long, value_name = "DIALECT")]
    headers: Option<Dialect>,
    /// Service time of an accepted call, in milliseconds: 3, 2..5 or exp:4
    #[arg(long, value_name = "MS", value_parser = spec::service_ms)]
    service_ms: Option<Service>,
    /// Outage FROM..TO after the first request; collapse=20,within=100ms,again=2s,fragile=5s,
    /// status=503,hint
    #[arg(long, value_name = "OUTAGE", value_parser = spec::outage)]
    outage: Vec<Outage>,
    /// Return a status with the error body of the provider, such as 500=1%
    #[arg(long, value_name = "STATUS=WHEN", value_parser = spec::status_fault, value_delimiter = ',')]
    status: Vec<FaultRule>,
    /// Reset the connection, before the headers or in the body
    #[arg(long, value_name = "WHEN", value_parser = spec::when)]
    reset: Option<When>,
    /// Never answer
    #[arg(long, value_name = "WHEN", value_parser = spec::when)]
    hang: Option<When>,
    /// How long to hold a connection that is never answered
    #[arg(long, value_name = "SPAN", value_parser = spec::span, default_value = "60s")]
    hang_for: Duration,
    /// Send the body in pieces
    #[arg(long, value_name = "WHEN", value_parser = spec::when)]
    slow: Option<When>,
    /// Duration of a slow body
    #[arg(long, value_name = "SPAN", value_parser = spec::span, default_value = "5s")]
    slow_for: Duration,
    /// Truncate the body
    #[arg(long, value_name = "WHEN", value_parser = spec::when)]
    cut: Option<When>,
    /// Return an error with status 200, in the format of the provider
    #[arg(long, value_name = "WHEN", value_parser = spec::when)]
    error_200: Option<When>,
    /// Silently omit the second half of a page
    #[arg(long, value_name = "WHEN", value_parser = spec::when)]
    short: Option<When>,
    /// Redirect, such as 1%=URL
    #[arg(long, value_name = "WHEN=URL", value_parser = spec::redirect)]
    redirect: Vec<FaultRule>,
    /// Directory whose files are served by ranges, at /raster/NAME and as objects at /s3/BUCKET/NAME
    #[arg(long, value_name = "DIR")]
    rasters: Option<PathBuf>,
    /// Spoil answers to requests for ranges of --rasters: length, etag, whole, shifted, swapped or
    /// zeros, such as zeros=10%
    #[arg(long, value_name = "FAULT=WHEN", value_parser = spec::range_fault, value_delimiter = ',')]
    range_fault: Vec<FaultRule>,
    /// Share of addresses that are always rejected
    #[arg(long, value_name = "SHARE", value_parser = spec::share, default_value = "0%")]
    bad_rows: f64,
    /// Status of a rejected address
    #[arg(long, value_name = "STATUS", value_parser = spec::status, default_value = "400")]
    bad_status: u16,
    /// Share of addresses without a match
    #[arg(long, value_name = "SHARE", value_parser = spec::share, default_value = "0%")]
    no_match: f64,
    /// Share of malformed rate limit headers
    #[arg(long, value_name = "SHARE", value_parser = spec::share, default_value = "0%")]
    garbage: f64,
    /// Offset of the Date header, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true)]
    skew: i64,
    /// Number of features in the generated layer
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    features: u64,
    /// Maximum page size, whatever is requested
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    page_max: u64,
    /// Do not return the number of matching features, as the standards allow
    #[arg(long)]
    unknown_total: bool,
    /// Insert a feature at a random position after every N pages; ids are then multiples of 16
    #[arg(long, value_name = "N", default_value_t = 0)]
    insert_every: u64,
    /// Remove a random feature after every N pages
    #[arg(long, value_name = "N", default_value_t = 0)]
    delete_every: u64,
    /// Return a number of features that is wrong by N
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    miscount: i64,
    /// After N features, link the next page back to the second; 0 for never
    #[arg(long, value_name = "N", default_value_t = 0)]
    loop_after: u64,
    /// A quirk of a real server; may be repeated
    #[arg(long, value_name = "HABIT")]
    quirk: Vec<Quirk>,
    /// What a random choice depends on besides the seed
    #[arg(long, default_value = "content")]
    draw: Draw,
    /// Minimum number of distinct requests to remember, for counting duplicates
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    remember: usize,
    /// Tolerance for requests that were sent before a Retry-After arrived
    #[arg(long, value_name = "SPAN", value_parser = spec::span, default_value = "50ms")]
    grace: Duration,
    /// Stop after this many requests
    #[arg(long, value_name = "N")]
    stop_after: Option<u64>,
    /// Worker threads; 0 for one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Output format of the URL and the final statistics
    #[arg(long, default_value = "text")]
    format: ChaosFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ChaosFormat {
    Text,
    Json,
}

/// Starts the server.
pub(crate) fn start(args: &Args) -> Result<Handle, String> {
    let config = config(args)?;
    let addr = config.addr;
    Chaos::start(config).map_err(|error| format!("--addr {addr}: {}", metrics::in_use(error)))
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let handle = match start(args) {
        Ok(handle) => handle,
        Err(why) => {
            out::say(&format!("tidegate chaos: {why}"));
            return Ok(Exit::Usage);
        }
    };
    let (addr, url) = (handle.addr(), handle.url());
    handle.wait_after(|| match args.format {
        ChaosFormat::Text => out::data(&format!("{url}\n")),
        ChaosFormat::Json => {
            let address = serde_json::json!({"addr": addr.to_string(), "url": url});
            out::data(&format!("{address}\n"))
        }
    })?;
    let stats = serde_json::to_value(handle.stats()).map_err(io::Error::other)?;
    match args.format {
        ChaosFormat::Text => out::say(&format!("{stats:#}")),
        ChaosFormat::Json => out::data(&format!("{stats}\n"))?,
    }
    Ok(Exit::Done)
}

fn config(args: &Args) -> Result<Config, String> {
    let base = args
        .preset
        .as_deref()
        .map_or_else(|| Ok(Config::default()), preset::find)
        .map_err(|e| e.to_string())?;
    let simple = [
        (args.reset, FaultKind::Reset),
        (args.hang, FaultKind::Hang(args.hang_for)),
        (args.slow, FaultKind::Slow(args.slow_for)),
        (args.cut, FaultKind::Cut),
        (args.error_200, FaultKind::Error200),
        (args.short, FaultKind::Short),
    ];
    let simple = simple.into_iter().filter_map(|(when, kind)| Some(FaultRule { kind, when: when? }));
    let faults =
        args.status.iter().chain(&args.redirect).chain(&args.range_fault).cloned().chain(simple).collect();
    Ok(Config {
        hosts: args.allow_host.clone(),
        addr: args.addr,
        seed: args.seed,
        features: args.features,
        page_max: args.page_max,
        limit: args.throttle.clone().unwrap_or(base.limit),
        scope: args.scope.unwrap_or(base.scope),
        throttle_status: args.throttle_status.unwrap_or(base.throttle_status),
        throttle_after: args.throttle_after.unwrap_or(base.throttle_after),
        headers: args.headers.unwrap_or(base.headers),
        service: args.service_ms.unwrap_or(base.service),
        outages: args.outage.clone(),
        faults,
        bad_rows: args.bad_rows,
        bad_status: args.bad_status,
        no_match: args.no_match,
        garbage: args.garbage,
        skew: args.skew,
        unknown_total: args.unknown_total,
        unrest: Unrest {
            insert_every: args.insert_every,
            delete_every: args.delete_every,
            miscount: args.miscount,
            loop_after: args.loop_after,
        },
        quirks: args.quirk.clone(),
        rasters: args.rasters.clone(),
        draw: args.draw,
        remember: args.remember,
        grace: args.grace,
        stop_after: args.stop_after,
        threads: args.threads,
    })
}
