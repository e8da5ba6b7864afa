//! What is measured: one server behaviour each, with the target that Tidegate must reach.

use tidegate_chaos::{Config, Dialect, FaultKind, FaultRule, Scope, ServerLimit, Service, When, spec};

/// What the clients do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    /// Ask a geocoder once per row.
    Geocode,
    /// Put one small object per row under one prefix.
    Put,
    /// Read a layer of an OGC API, of which each row is a feature, into GeoJSON lines.
    Fetch,
}

/// What must be reached; `None` where nothing is promised.
#[derive(Clone, Copy, Default)]
pub(crate) struct Target {
    /// Time as a multiple of the theoretical one.
    pub(crate) times: Option<f64>,
    /// Wasted calls in per cent.
    pub(crate) wasted: Option<f64>,
    /// Calls per row.
    pub(crate) calls: Option<f64>,
    /// Rows per second.
    pub(crate) rows_per_second: Option<f64>,
}

/// One column of the table.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) job: Job,
    pub(crate) rows: u64,
    pub(crate) server: Config,
    /// What the client that knows everything is told.
    pub(crate) told: &'static [&'static str],
    pub(crate) cache: bool,
    /// Whether Tidegate is killed on the way and resumed.
    pub(crate) kill: bool,
    pub(crate) target: Target,
}

fn base(name: &'static str, about: &'static str, rows: u64, server: Config) -> Scenario {
    let (job, told, target) = (Job::Geocode, &[][..], Target::default());
    Scenario { name, about, job, rows, server, told, cache: true, kill: false, target }
}

fn bucket(name: &'static str, about: &'static str, headers: Dialect, times: f64, wasted: f64) -> Scenario {
    let limit = ServerLimit::TokenBucket { rate: 500.0, burst: 50.0 };
    let target = Target { times: Some(times), wasted: Some(wasted), ..Target::default() };
    let server = Config { limit, headers, ..Config::default() };
    Scenario { told: &["rate=500", "burst=45"], target, ..base(name, about, 5_000, server) }
}

fn fetch(name: &'static str, about: &'static str, rows: u64, server: Config) -> Scenario {
    Scenario { job: Job::Fetch, ..base(name, about, rows, Config { features: rows, ..server }) }
}

/// All scenarios.
pub(crate) fn all() -> Result<Vec<Scenario>, spec::SpecError> {
    let chance = |kind, p| FaultRule { kind, when: When::Chance(p) };
    let outage = spec::outage("0s..5s,collapse=20,within=100ms,again=2s,fragile=5s")?;
    let four_ms = Service::Uniform(0.004, 0.004);
    let open = Target { rows_per_second: Some(15_000.0), ..Target::default() };
    let kept = Target { rows_per_second: Some(5_000.0), ..Target::default() };
    let layer = Target { rows_per_second: Some(50_000.0), ..Target::default() };
    let pages = Config {
        page_max: 100,
        limit: ServerLimit::TokenBucket { rate: 100.0, burst: 20.0 },
        headers: Dialect::None,
        ..Config::default()
    };
    Ok(vec![
        bucket("bucket", "bucket 500/s burst 50, no headers", Dialect::None, 1.03, 1.0),
        bucket("bucket-retry-after", "same, Retry-After", Dialect::RetryAfter, 1.06, 1.0),
        bucket("bucket-x-ratelimit", "same, X-RateLimit", Dialect::XRatelimitDelta, 1.01, 0.3),
        bucket("bucket-ietf", "same, RateLimit (IETF)", Dialect::Ietf, 1.01, 0.3),
        Scenario {
            job: Job::Put,
            told: &["rate=49.5"],
            target: Target { times: Some(1.05), wasted: Some(2.0), ..Target::default() },
            ..base(
                "hot-prefix",
                "hot prefix, 5 per 100 ms, PUT",
                1_000,
                Config { limit: spec::throttle("fixed:5/100ms")?, scope: Scope::Prefix, ..Config::default() },
            )
        },
        Scenario {
            told: &["in-flight=8"],
            target: Target { times: Some(1.15), wasted: Some(2.0), ..Target::default() },
            ..base(
                "concurrency",
                "at most 8 at once, 20 ms each",
                2_000,
                Config {
                    limit: ServerLimit::Concurrency { limit: 8 },
                    service: Service::Uniform(0.02, 0.02),
                    ..Config::default()
                },
            )
        },
        Scenario {
            told: &["after=5.02", "rate=160", "in-flight=15", "again=2.02"],
            target: Target { times: Some(1.2), ..Target::default() },
            ..base(
                "outage",
                "5 s outage, collapses above 20 per 100 ms",
                400,
                Config { outages: vec![outage], service: four_ms, ..Config::default() },
            )
        },
        Scenario {
            target: Target { calls: Some(1.001), ..Target::default() },
            ..base(
                "bad-rows",
                "5 % bad rows, 5 % without a match",
                2_000,
                Config { bad_rows: 0.05, no_match: 0.05, service: four_ms, ..Config::default() },
            )
        },
        base(
            "faults",
            "5 % faults: 3 % status 500, 2 % resets",
            20_000,
            Config {
                faults: vec![chance(FaultKind::Status(500), 0.03), chance(FaultKind::Reset, 0.02)],
                ..Config::default()
            },
        ),
        Scenario {
            cache: false,
            target: open,
            ..base("open", "no faults, cache off", 50_000, Config::default())
        },
        Scenario { target: kept, ..base("open-cache", "no faults, cache on", 50_000, Config::default()) },
        Scenario {
            kill: true,
            ..base(
                "kill",
                "killed twice (kill -9) and resumed",
                10_000,
                Config {
                    limit: ServerLimit::TokenBucket { rate: 2_000.0, burst: 50.0 },
                    service: four_ms,
                    ..Config::default()
                },
            )
        },
        Scenario {
            target: layer,
            ..fetch("fetch", "a layer in pages of 1,000, no faults", 200_000, Config::default())
        },
        fetch(
            "fetch-bucket",
            "the same in pages of 100, bucket 100/s burst 20, no headers",
            50_000,
            pages.clone(),
        ),
        fetch(
            "fetch-faults",
            "the same, and 6 % faults: status 503, resets, cut bodies",
            20_000,
            Config {
                faults: vec![
                    chance(FaultKind::Status(503), 0.02),
                    chance(FaultKind::Reset, 0.02),
                    chance(FaultKind::Cut, 0.02),
                ],
                ..pages
            },
        ),
    ])
}
