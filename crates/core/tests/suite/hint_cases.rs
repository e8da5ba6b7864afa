//! All known header formats and deviations, with the exact hints that must be parsed.

use std::time::Duration;
use tidegate_core::Wall;
use tidegate_core::hint::{HintProfile, Hints, Meaning, TimeUnit, read};

/// Sun, 15 Nov 2026 05:00:00 GMT.
const NOW: i64 = 1_794_718_800;

/// The hints as one line: `retry 2s | limit 100 window 60s left 5 reset 30s/1s | offset -5ms | malformed 1`.
fn show(hints: &Hints) -> String {
    let mut parts = Vec::new();
    parts.extend(hints.retry_after.map(|d| format!("retry {d:?}")));
    for quota in hints.quotas.iter().flatten() {
        let words = [
            quota.limit.map(|n| format!("limit {n}")),
            quota.window.map(|d| format!("window {d:?}")),
            quota.remaining.map(|n| format!("left {n}")),
            quota.reset.map(|d| format!("reset {d:?}/{:?}", quota.reset_step)),
        ];
        parts.push(words.into_iter().flatten().collect::<Vec<_>>().join(" "));
    }
    parts.extend(hints.clock_offset_ms.map(|ms| format!("offset {ms}ms")));
    if hints.malformed > 0 {
        parts.push(format!("malformed {}", hints.malformed));
    }
    parts.join(" | ")
}

/// Parses the headers of `text`, one per line, in both orders.
fn read_text(text: &str, profile: &HintProfile) -> String {
    let headers: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect();
    let forward = read(headers.iter().copied(), Wall::from_secs(NOW), profile);
    let backward = read(headers.iter().rev().copied(), Wall::from_secs(NOW), profile);
    assert_eq!(forward, backward, "the order of the headers matters in {text}");
    show(&forward)
}

fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(read_text(text, &HintProfile::default()), *expected, "{text}");
    }
}

#[test]
fn retry_after_in_every_form() {
    check(&[
        ("Retry-After: 120", "retry 120s"),
        ("retry-after: 0", "retry 0ns"),
        ("Retry-After: 1.5", "retry 1.5s"),
        ("Retry-After: 0.0001", "retry 1ms"),
        ("Retry-After: 1m0s", "retry 60s"),
        ("Retry-After: 90s", "retry 90s"),
        ("Retry-After: 1m30s", "retry 90s"),
        ("Retry-After: 500ms", "retry 500ms"),
        ("Retry-After: 30 seconds", "retry 30s"),
        ("Retry-After: Sun, 15 Nov 2026 05:02:00 GMT", "retry 120s"),
        ("Retry-After: Sunday, 15-Nov-26 05:02:00 GMT", "retry 120s"),
        ("Retry-After: Sun Nov 15 05:02:00 2026", "retry 120s"),
        ("Retry-After: 2026-11-15T05:02:00Z", "retry 120s"),
    ]);
}

#[test]
fn retry_after_that_others_choke_on() {
    check(&[
        ("Retry-After: -1", "malformed 1"),
        ("Retry-After:", "malformed 1"),
        ("Retry-After: soon", "malformed 1"),
        ("Retry-After: Sun", "malformed 1"),
        ("Retry-After: 1e3", "malformed 1"),
        ("Retry-After: \u{ff11}\u{ff12}", "malformed 1"),
        ("Retry-After: 120, 60", "retry 120s"),
        ("Retry-After: 60, 120", "retry 120s"),
        ("Retry-After: 120, soon", "retry 120s | malformed 1"),
        ("Retry-After: 60\nRetry-After: 120", "retry 120s"),
        ("Retry-After: 60\nRetry-After: -1", "retry 60s | malformed 1"),
        ("Retry-After: Sun, 15 Nov 2026 05:02:00 GMT, Sun, 15 Nov 2026 05:01:00 GMT", "retry 120s"),
        ("Retry-After: 200, Sunday, 15-Nov-26 05:02:00 GMT", "retry 200s"),
        // A date in the past means now.
        ("Retry-After: Sun, 15 Nov 2026 04:00:00 GMT", "retry 0ns"),
        ("Retry-After: Sunday, 06-Nov-94 08:49:37 GMT", "retry 0ns"),
        // The server's clock is an hour behind or ahead of the local one: only its own dates count.
        (
            "Date: Sun, 15 Nov 2026 04:00:00 GMT\nRetry-After: Sun, 15 Nov 2026 04:02:00 GMT",
            "retry 120s | offset -3600000ms",
        ),
        (
            "Retry-After: Sun, 15 Nov 2026 06:02:00 GMT\nDate: Sun, 15 Nov 2026 06:00:00 GMT",
            "retry 120s | offset 3600000ms",
        ),
        ("Date: yesterday\nRetry-After: Sun, 15 Nov 2026 05:02:00 GMT", "retry 120s | malformed 1"),
        // The earlier of two Dates applies, because it makes the wait longer.
        (
            "Date: Sun, 15 Nov 2026 05:00:00 GMT\nDate: Sun, 15 Nov 2026 05:01:00 GMT\n\
             Retry-After: Sun, 15 Nov 2026 05:02:00 GMT",
            "retry 120s | offset 0ms",
        ),
        ("Retry-After: Fri, 31 Dec 99999 23:59:59 GMT", "retry 3091733261999s"),
    ]);
    let digits = format!("Retry-After: {}", "9".repeat(5000));
    assert_eq!(read_text(&digits, &HintProfile::default()), "retry 18446744073709551.615s");
    let year = format!("Retry-After: Fri, 31 Dec {} 23:59:59 GMT", "9".repeat(5000));
    assert_eq!(read_text(&year, &HintProfile::default()), "retry 31493021684399s");
}

#[test]
fn bytes_that_are_no_text() {
    let hints =
        read([(&b"Retry-After"[..], &b"\xff\xfe"[..])], Wall::from_secs(NOW), &HintProfile::default());
    assert_eq!(show(&hints), "malformed 1");
}

#[test]
fn the_kin_of_retry_after() {
    check(&[
        ("retry-after-ms: 1500", "retry 1.5s"),
        ("retry-after-ms: 0.5", "retry 1ms"),
        ("x-ms-retry-after-ms: 20", "retry 20ms"),
        ("x-amz-retry-after: 750", "retry 750ms"),
        ("Retry-After: 2\nretry-after-ms: 1500", "retry 2s"),
        ("X-Rate-Limit-Retry-After-Seconds: 7", "retry 7s"),
    ]);
    let sentinel_hub = HintProfile { retry_after_unit: TimeUnit::Milliseconds, ..HintProfile::default() };
    assert_eq!(read_text("Retry-After: 1500", &sentinel_hub), "retry 1.5s");
    assert_eq!(read_text("Retry-After: 2s", &sentinel_hub), "retry 2s");
    assert_eq!(read_text("Retry-After: Sun, 15 Nov 2026 05:02:00 GMT", &sentinel_hub), "retry 120s");
}

#[test]
fn ietf_current() {
    check(&[
        (
            "RateLimit-Policy: \"burst\";q=100;w=60,\"daily\";q=1000;w=86400\nRateLimit: \"burst\";r=50;t=30",
            "limit 100 window 60s left 50 reset 30s/1s | limit 1000 window 86400s",
        ),
        (
            "RateLimit-Policy: \"burst\";q=100;w=60\nRateLimit-Policy: \"daily\";q=1000;w=86400\n\
             RateLimit: \"daily\";r=3;t=7200\nRateLimit: \"burst\";r=50;t=30",
            "limit 1000 window 86400s left 3 reset 7200s/1s | limit 100 window 60s left 50 reset 30s/1s",
        ),
        // Partition keys, unknown parameters, and no reset.
        (
            "RateLimit-Policy: \"p\";q=10;w=1;pk=:cHNsZWVw:;com=?1\nRateLimit: \"p\";r=0;pk=:cHNsZWVw:",
            "limit 10 window 1s left 0",
        ),
        // Units other than requests are not calls.
        ("RateLimit-Policy: \"b\";q=65535;qu=\"content-bytes\";w=10\nRateLimit: \"b\";r=9;t=3", ""),
        ("RateLimit-Policy: \"b\";q=5;qu=\"requests\";w=10", "limit 5 window 10s"),
        ("RateLimit: default;r=1;t=2", "left 1 reset 2s/1s"),
        // A syntax error invalidates the whole field, an invalid member only itself; both are counted.
        ("RateLimit: \"a\";r=0;t=3, !", "malformed 1"),
        ("RateLimit: \"a\";r=0;t=3, \"b\";t=1", "left 0 reset 3s/1s | malformed 1"),
        ("RateLimit: \"a\";r=-1", "malformed 1"),
        ("RateLimit: \"a\";r=1;t=-1", "malformed 1"),
        ("RateLimit-Policy: \"a\";w=1", "malformed 1"),
        ("RateLimit-Policy: \"a\";q=1;w=0", "malformed 1"),
        ("RateLimit-Policy: \"a\";q=1;qu=3", "malformed 1"),
        ("RateLimit:", "malformed 1"),
        // Retry-After is reported next to the quota.
        ("RateLimit: \"a\";r=0;t=3\nRetry-After: 9", "retry 9s | left 0 reset 3s/1s"),
    ]);
}

#[test]
fn ietf_older() {
    check(&[
        (
            "RateLimit: limit=20, remaining=19, reset=1\nRateLimit-Policy: 20;w=1, 4000;w=1800",
            "limit 20 window 1s left 19 reset 1s/1s | limit 4000 window 1800s",
        ),
        ("RateLimit: limit=20, remaining=19, reset=1", "limit 20 left 19 reset 1s/1s"),
        ("RateLimit: limit=20, remaining=x, reset=1", "malformed 1"),
        // The reset decides between two policies with the same limit.
        (
            "RateLimit: limit=20, remaining=0, reset=40\nRateLimit-Policy: 20;w=1, 20;w=60",
            "limit 20 window 60s left 0 reset 40s/1s | limit 20 window 1s",
        ),
        (
            "RateLimit-Limit: 100, 100;w=60\nRateLimit-Remaining: 5\nRateLimit-Reset: 30",
            "limit 100 window 60s left 5 reset 30s/1s",
        ),
        (
            "RateLimit-Limit: 10, 10;w=1, 1000;w=3600;comment=\"fixed window\"\nRateLimit-Remaining: 9",
            "limit 10 window 1s left 9 | limit 1000 window 3600s",
        ),
        ("RateLimit-Limit: 100;w=60\nRateLimit-Remaining: 5", "limit 100 window 60s left 5"),
        ("RateLimit-Limit: lots\nRateLimit-Remaining: 5", "left 5 | malformed 1"),
    ]);
}

#[test]
fn x_ratelimit_epoch_or_delta() {
    let triple = |reset: &str| {
        let text = format!("X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: {reset}");
        read_text(&text, &HintProfile::default())
    };
    for (reset, expected) in [
        ("30", "reset 30s/1s"),
        ("0", "reset 0ns/1s"),
        ("1.25", "reset 1.25s/10ms"),
        ("86400", "reset 86400s/1s"),
        ("1794718830", "reset 30s/1s"),
        ("1794718830.123", "reset 30.123s/1ms"),
        ("1794718830500", "reset 30.5s/1ms"),
        ("1794718830500000", "reset 30.5s/1ms"),
        ("1794718830500000000", "reset 30.5s/1ms"),
        ("1794718000", "reset 0ns/1s"),
        ("1m30s", "reset 90s/1s"),
        ("500ms", "reset 500ms/1ms"),
        ("2026-11-15T05:00:30Z", "reset 30s/1s"),
        ("Sun, 15 Nov 2026 05:00:30 GMT", "reset 30s/1s"),
        ("30, 20", "reset 30s/1s"),
    ] {
        assert_eq!(triple(reset), format!("limit 60 left 0 {expected}"), "{reset}");
    }
    for reset in ["", "-5", "never", "30, never"] {
        assert_eq!(triple(reset), "limit 60 left 0 | malformed 1", "{reset}");
    }
    check(&[
        // With a Date, epochs are relative to the server's clock, with a resolution of two seconds.
        (
            "Date: Sun, 15 Nov 2026 06:00:00 GMT\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1794722430",
            "left 0 reset 30s/2s | offset 3600000ms",
        ),
        ("X-RateLimit-Remaining: 5\nX-RateLimit-Remaining: 3", "left 3"),
        ("X-RateLimit-Remaining: -2", "left 0"),
        ("X-RateLimit-Remaining: many", "malformed 1"),
        ("X-RateLimit-Limit: 99999999999999999999999", "limit 18446744073709551615"),
        ("X-RateLimit-Limit: 10\nX-RateLimit-Used: 4", "limit 10 left 6"),
        ("X-RateLimit-Limit: 10\nX-RateLimit-Used: 40", "limit 10 left 0"),
    ]);
}

#[test]
fn services() {
    check(&[
        // GitHub
        (
            "x-ratelimit-limit: 5000\nx-ratelimit-remaining: 4987\nx-ratelimit-used: 13\n\
             x-ratelimit-resource: core\nx-ratelimit-reset: 1794720600",
            "limit 5000 left 4987 reset 1800s/1s",
        ),
        // OpenAI; tokens are not calls.
        (
            "x-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 59\n\
             x-ratelimit-reset-requests: 1m30s\nx-ratelimit-limit-tokens: 150000\n\
             x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 6m0s",
            "limit 60 left 59 reset 90s/1s",
        ),
        ("x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 500ms", "left 0 reset 500ms/1ms"),
        // Mapbox
        (
            "X-Rate-Limit-Interval: 60\nX-Rate-Limit-Limit: 600\nX-Rate-Limit-Reset: 1794718815",
            "limit 600 window 60s reset 15s/1s",
        ),
        ("X-Rate-Limit-Interval: 1s\nX-Rate-Limit-Limit: 10", "limit 10 window 1s"),
        ("X-Rate-Limit-Interval: 0\nX-Rate-Limit-Limit: 10", "limit 10 | malformed 1"),
        // GeoServer control-flow
        (
            "X-Rate-Limit-Context: Any OGC request\nX-Rate-Limit-Limit: 10\nX-Rate-Limit-Remaining: 0\n\
             X-Rate-Limit-Reset: 1794718860\nX-Rate-Limit-Action: Reject excess requests",
            "limit 10 left 0 reset 60s/1s",
        ),
        // Esri
        ("X-Esri-Org-Request-Units-Per-Min: usage=97;max=10000", "limit 10000 window 60s left 9903"),
        ("X-Esri-Org-Request-Units-Per-Min: usage=12000;max=10000", "limit 10000 window 60s left 0"),
        ("X-Esri-Org-Request-Units-Per-Min: usage=97", "malformed 1"),
        ("X-Esri-Org-Request-Units-Per-Min: lots", "malformed 1"),
        // Pelias, geocode.earth
        (
            "X-Ratelimit-Remaining-Second: 9\nX-Ratelimit-Limit-Second: 10\nX-Ratelimit-Remaining-Day: 0\n\
             X-Ratelimit-Limit-Day: 25000",
            "limit 25000 window 86400s left 0 | limit 10 window 1s left 9",
        ),
        // Kong sends one quota in two formats.
        (
            "RateLimit-Limit: 20\nRateLimit-Remaining: 19\nRateLimit-Reset: 47\n\
             X-RateLimit-Limit-Minute: 20\nX-RateLimit-Remaining-Minute: 19",
            "limit 20 window 60s left 19 reset 47s/1s",
        ),
        // Discord: the delta needs no clock and has precedence over the epoch.
        (
            "X-RateLimit-Limit: 5\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1470173023.123\n\
             X-RateLimit-Reset-After: 64.57\nX-RateLimit-Bucket: abcd1234",
            "limit 5 left 0 reset 64.57s/10ms",
        ),
        // Nominatim
        ("retry-after: 0", "retry 0ns"),
        // No hints
        ("Content-Type: text/html\nX-Request-Id: 1\nServer: tide", ""),
        ("Date: Sun, 15 Nov 2026 05:00:00 GMT", "offset 0ms"),
    ]);
}

#[test]
fn a_floor_raises_what_is_asked_for_and_asks_for_nothing() {
    let floor = Duration::from_millis(500);
    let profile = HintProfile { floor, ..HintProfile::default() };
    let wait = |value: &str| read([("retry-after", value)], Wall::from_secs(NOW), &profile).retry_after;
    assert_eq!(wait("0"), Some(floor));
    assert_eq!(wait("2"), Some(Duration::from_secs(2)));
    assert_eq!(wait("soon"), None);
}

#[test]
fn headers_of_one_provider_only() {
    let profile = HintProfile {
        extra: vec![
            ("X-Calls-Left".to_string(), Meaning::Remaining),
            ("X-Calls-Max".to_string(), Meaning::Limit),
            ("X-Calls-Per".to_string(), Meaning::Window),
            ("X-Calls-Again".to_string(), Meaning::Reset),
            ("X-Pause".to_string(), Meaning::RetryAfter(TimeUnit::Milliseconds)),
            ("X-RateLimit-Remaining".to_string(), Meaning::Nothing),
        ],
        ..HintProfile::default()
    };
    let text = "x-calls-left: 3\nx-calls-max: 9\nx-calls-per: 1m\nx-calls-again: 20\nx-pause: 250\n\
                X-RateLimit-Remaining: 0";
    assert_eq!(read_text(text, &profile), "retry 250ms | limit 9 window 60s left 3 reset 20s/1s");
}

#[test]
fn what_a_throttled_call_waits_for() {
    let wait = |text: &str| {
        let headers: Vec<(&str, &str)> = text.lines().filter_map(|l| l.split_once(": ")).collect();
        read(headers, Wall::from_secs(NOW), &HintProfile::default()).throttle_wait().map(|d| d.as_secs())
    };
    assert_eq!(wait("RateLimit: \"a\";r=0;t=30, \"b\";r=5;t=900\nRetry-After: 7"), Some(7));
    assert_eq!(wait("RateLimit: \"a\";r=0;t=30, \"b\";r=5;t=900, \"c\";r=0;t=20"), Some(30));
    assert_eq!(wait("X-Rate-Limit-Limit: 600\nX-Rate-Limit-Reset: 1794718815"), Some(15));
    assert_eq!(wait("RateLimit: \"b\";r=5;t=900"), None);
    assert_eq!(wait("X-Rate-Limit-Limit: 600"), None);
}
