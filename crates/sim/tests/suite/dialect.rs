//! What a simulated server says, the shipped parsers must understand.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::Wall;
use tidegate_core::hint::{Hints, date, read};
use tidegate_sim::dialect::{AdvertisedQuota, Dialect, UnknownDialect};
use tidegate_sim::scenario::Scenario;

/// Sun, 15 Nov 2026 05:00:00.250 GMT.
const WALL: Wall = Wall::from_millis(1_794_718_800_250);

fn emitted(dialect: Dialect, truth: &AdvertisedQuota) -> Vec<(&'static str, String)> {
    let mut headers = Vec::new();
    dialect.emit(truth, WALL, &mut headers);
    headers
}

/// The client's clock is `skew` milliseconds ahead of the server's.
fn heard(dialect: Dialect, truth: &AdvertisedQuota, skew: i64) -> Hints {
    let headers = emitted(dialect, truth);
    let wall = Wall::from_millis(WALL.millis() + skew);
    read(headers.iter().map(|(name, value)| (*name, value.as_str())), wall, &dialect.profile())
}

fn throttle() -> AdvertisedQuota {
    AdvertisedQuota {
        limit: 100,
        window: Duration::from_secs(60),
        remaining: 0,
        reset: Duration::from_millis(12_300),
        retry_after: Some(Duration::from_millis(1_500)),
        throttled: true,
    }
}

#[test]
fn names_round_trip() {
    for dialect in Dialect::ALL {
        assert_eq!(dialect.to_string().parse(), Ok(dialect));
    }
    let error = "RFC".parse::<Dialect>().unwrap_err();
    assert_eq!(error, UnknownDialect("RFC".to_string()));
    assert!(error.to_string().starts_with("no header dialect is called `RFC`; known are none, retry-after,"));
}

#[test]
fn every_dialect_word_for_word() {
    for (dialect, expected) in [
        (Dialect::None, ""),
        (Dialect::RetryAfter, "Retry-After: 2"),
        (
            Dialect::RetryAfterDate,
            "Date: Sun, 15 Nov 2026 05:00:00 GMT\nRetry-After: Sun, 15 Nov 2026 05:00:02 GMT",
        ),
        (Dialect::RetryAfterMs, "retry-after-ms: 1500"),
        (Dialect::Amz, "x-amz-retry-after: 1500"),
        (Dialect::SentinelHub, "Retry-After: 1500"),
        (
            Dialect::Ietf,
            "RateLimit-Policy: \"default\";q=100;w=60\nRateLimit: \"default\";r=0;t=13\nRetry-After: 2",
        ),
        (
            Dialect::IetfOlder,
            "RateLimit-Policy: 100;w=60\nRateLimit: limit=100, remaining=0, reset=13\nRetry-After: 2",
        ),
        (
            Dialect::IetfOldest,
            "RateLimit-Limit: 100, 100;w=60\nRateLimit-Remaining: 0\nRateLimit-Reset: 13\nRetry-After: 2",
        ),
        (
            Dialect::XRatelimitEpoch,
            "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 0\nDate: Sun, 15 Nov 2026 05:00:00 GMT\n\
             X-RateLimit-Reset: 1794718813\nRetry-After: 2",
        ),
        (
            Dialect::XRatelimitEpochMs,
            "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1794718812550\nRetry-After: 2",
        ),
        (
            Dialect::XRatelimitDelta,
            "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 13\nRetry-After: 2",
        ),
        (
            Dialect::XRateLimit,
            "X-Rate-Limit-Limit: 100\nX-Rate-Limit-Remaining: 0\nX-Rate-Limit-Reset: 13\nRetry-After: 2",
        ),
        (
            Dialect::Github,
            "Date: Sun, 15 Nov 2026 05:00:00 GMT\nx-ratelimit-limit: 100\nx-ratelimit-remaining: 0\n\
             x-ratelimit-used: 100\nx-ratelimit-resource: core\nx-ratelimit-reset: 1794718813\nRetry-After: 2",
        ),
        (
            Dialect::Openai,
            "x-ratelimit-limit-requests: 100\nx-ratelimit-remaining-requests: 0\n\
             x-ratelimit-reset-requests: 12.300s\nx-ratelimit-limit-tokens: 150000\n\
             x-ratelimit-remaining-tokens: 149984\nx-ratelimit-reset-tokens: 6ms\n\
             retry-after-ms: 1500\nRetry-After: 2",
        ),
        (
            Dialect::Mapbox,
            "Date: Sun, 15 Nov 2026 05:00:00 GMT\nX-Rate-Limit-Interval: 60\nX-Rate-Limit-Limit: 100\n\
             X-Rate-Limit-Reset: 1794718813",
        ),
        (Dialect::Esri, "X-Esri-Org-Request-Units-Per-Min: usage=100;max=100"),
        (
            Dialect::Geoserver,
            "Date: Sun, 15 Nov 2026 05:00:00 GMT\nX-Rate-Limit-Context: Any OGC request\n\
             X-Rate-Limit-Limit: 100\nX-Rate-Limit-Remaining: 0\nX-Rate-Limit-Reset: 1794718813\n\
             X-Rate-Limit-Action: Reject excess requests",
        ),
        (
            Dialect::Kong,
            "RateLimit-Limit: 100\nRateLimit-Remaining: 0\nRateLimit-Reset: 13\n\
             X-RateLimit-Limit-Minute: 100\nX-RateLimit-Remaining-Minute: 0\nRetry-After: 2",
        ),
        (Dialect::Pelias, "X-RateLimit-Limit-Minute: 100\nX-RateLimit-Remaining-Minute: 0\nRetry-After: 2"),
        (
            Dialect::Discord,
            "Date: Sun, 15 Nov 2026 05:00:00 GMT\nX-RateLimit-Limit: 100\nX-RateLimit-Remaining: 0\n\
             X-RateLimit-Reset: 1794718813\nX-RateLimit-Reset-After: 12.300\nX-RateLimit-Bucket: tide\n\
             Retry-After: 2",
        ),
    ] {
        let lines: Vec<String> = emitted(dialect, &throttle())
            .into_iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        assert_eq!(lines.join("\n"), expected, "{dialect}");
    }
}

#[test]
fn a_success_asks_for_no_wait() {
    for dialect in Dialect::ALL {
        let truth = AdvertisedQuota { throttled: false, ..throttle() };
        assert_eq!(heard(dialect, &truth, 0).retry_after, None, "{dialect}");
    }
}

/// How a dialect tells the quota: nothing, or these fields.
struct ToldFields {
    window: bool,
    remaining: bool,
    reset: bool,
}

fn tells(dialect: Dialect) -> Option<ToldFields> {
    let (window, remaining, reset) = match dialect {
        Dialect::None
        | Dialect::RetryAfter
        | Dialect::RetryAfterDate
        | Dialect::RetryAfterMs
        | Dialect::Amz
        | Dialect::SentinelHub => return None,
        Dialect::Ietf | Dialect::IetfOlder | Dialect::IetfOldest | Dialect::Kong => (true, true, true),
        Dialect::Mapbox => (true, false, true),
        Dialect::Esri | Dialect::Pelias => (true, true, false),
        _ => (false, true, true),
    };
    Some(ToldFields { window, remaining, reset })
}

fn truth() -> impl Strategy<Value = AdvertisedQuota> {
    let window = prop::sample::select(vec![1, 60, 3_600, 86_400]);
    (1..100_000_u64, window, 0.0..=1.0, 0.0..=1.0, prop::option::of(0..10_000_000_u64), any::<bool>())
        .prop_map(|(limit, window, left, reset, wait, throttled)| AdvertisedQuota {
            limit,
            window: Duration::from_secs(window),
            remaining: (limit as f64 * left) as u64,
            reset: Duration::from_secs_f64(window as f64 * reset),
            retry_after: wait.map(Duration::from_micros),
            throttled,
        })
}

proptest! {
    #[test]
    fn what_is_said_is_heard(
        truth in truth(),
        dialect in prop::sample::select(Dialect::ALL.to_vec()),
        skew in -100_000_i64..100_000,
    ) {
        // Epoch milliseconds come without a Date, as many servers' proxies strip it: there the
        // client must trust its own clock. Esri counts per minute and nothing else.
        let skew = if dialect == Dialect::XRatelimitEpochMs { 0 } else { skew };
        let window = if dialect == Dialect::Esri { Duration::from_secs(60) } else { truth.window };
        let hints = heard(dialect, &truth, skew);
        prop_assert_eq!(hints.malformed, 0);

        let asked = truth.retry_after.filter(|_| truth.throttled);
        let silent = matches!(dialect, Dialect::None | Dialect::Mapbox | Dialect::Esri | Dialect::Geoserver);
        match asked.filter(|_| !silent) {
            None => prop_assert_eq!(hints.retry_after, None),
            Some(asked) => {
                let got = hints.retry_after.unwrap_or_default();
                prop_assert!(got >= asked, "{dialect}: {got:?} is earlier than {asked:?}");
                prop_assert!(got < asked + Duration::from_secs(2), "{dialect}: {got:?} is long after {asked:?}");
            }
        }

        let Some(tells) = tells(dialect) else {
            prop_assert_eq!(hints.quotas, [None; 4]);
            return Ok(());
        };
        prop_assert_eq!(&hints.quotas[1..], &[None; 3], "{} tells one quota", dialect);
        let quota = hints.quotas[0].unwrap_or_default();
        prop_assert_eq!(quota.limit, Some(truth.limit));
        prop_assert_eq!(quota.window, tells.window.then_some(window));
        prop_assert_eq!(quota.remaining, tells.remaining.then_some(truth.remaining));
        prop_assert_eq!(quota.reset.is_some(), tells.reset);
        if let Some(reset) = quota.reset {
            prop_assert!(reset >= truth.reset, "{dialect}: {reset:?} is earlier than {:?}", truth.reset);
            prop_assert!(reset < truth.reset + quota.reset_step, "{dialect}: {reset:?} is far from {:?}", truth.reset);
        }
    }
}

#[test]
fn the_clock_of_the_server_is_told() {
    let hints = heard(Dialect::Github, &throttle(), 5_000);
    let date = date::parse(b"Sun, 15 Nov 2026 05:00:00 GMT", WALL).unwrap();
    assert_eq!(hints.clock_offset_ms, Some(date.millis() - WALL.millis() - 5_000));
}

#[test]
fn a_scenario_says_the_names_of_the_dialects_and_a_misspelt_one_is_guessed() {
    let scenario = |headers: &str| {
        format!(
            "name: x\nreason: y\nworld:\n  workload: {{ drain: {{ requests: 9 }} }}\n  server:\n    \
             limit: {{ bucket: {{ rate: 5, burst: 5 }} }}\n    headers: {headers}\n"
        )
    };
    for dialect in Dialect::ALL {
        let text = scenario(dialect.name());
        let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{dialect}: {error}"));
        let server = scenario.world.unwrap().server.unwrap();
        assert_eq!(server.headers, dialect);
    }
    let error = Scenario::parse(&scenario("x-ratelimit-epoc")).unwrap_err().to_string();
    assert!(error.contains("line 7 column 14"), "{error}");
    assert!(error.ends_with("help: did you mean `x-ratelimit-epoch`?"), "{error}");
    let error = Scenario::parse(&scenario("ietf").replace("headers", "heders")).unwrap_err().to_string();
    assert!(error.ends_with("help: did you mean `headers`?"), "{error}");
}
