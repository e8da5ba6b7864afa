//! Every way of telling a quota: nothing lost, nothing done twice, nobody early.
//!
//! How little is wasted depends on how busy the machine is and is measured by the benches.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tidegate_chaos::{Config, Dialect, Stats};

use crate::common::canned::{Canned, MATCH, json};
use crate::geocode::bench::{Bench, chaos, throttled};

const ROWS: usize = 60;

/// Geocodes [`ROWS`] rows; what holds however busy the machine is.
fn obeys(dialect: Dialect, limit: &str, more: &[&str]) -> Stats {
    let grace = std::time::Duration::ZERO;
    let server = chaos(Config { headers: dialect, grace, ..throttled(limit) });
    let bench = Bench::of_rows(ROWS);
    let profile = if dialect == Dialect::SentinelHub { "sentinel-hub" } else { "generic" };
    // The profile for the unit, the template for the question.
    let url = format!("{}/geocode?q={{address}}", server.url());
    let args = [&["--profile", profile, "--no-cache", "--key", "env:GEO_TEST_KEY"], more].concat();
    let ran = crate::geocode::bench::run(bench.command(&url, &args).env("GEO_TEST_KEY", "k3y-of-the-tests"));
    let stats = server.stats();
    let what = format!("{dialect:?} {limit}: {stats:?}\n{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(ran.code, 0, "{what}");
    let [matched, no_match, failed] = ran.ends();
    assert_eq!((matched + no_match, failed), (ROWS as u64, 0), "{what}");
    assert_eq!(stats.executed, ROWS as u64, "{what}");
    assert_eq!((ran.count("throttled"), stats.duplicates_executed), (stats.throttled, 0), "{what}");
    assert_eq!((stats.requests, ran.count("calls")), (stats.executed + stats.throttled, stats.requests));
    // A request that was told to wait has read the hint, so its next arrival is no race. Another one
    // may have been under way when the hint was sent, for as long as a busy machine likes.
    assert_eq!(stats.retry_after_violations_same_request, 0, "{what}");
    stats
}

fn all(act: impl Fn(Dialect) + Sync) {
    let left = Mutex::new(Dialect::ALL.to_vec());
    // A few at a time: they mostly wait.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(dialect) = { left.lock().unwrap().pop() } {
                    act(dialect);
                }
            });
        }
    });
}

#[test]
fn a_bucket_in_every_dialect() {
    all(|dialect| _ = obeys(dialect, "bucket:100/s,burst=10", &[]));
}

#[test]
fn a_fixed_window_in_every_dialect() {
    all(|dialect| _ = obeys(dialect, "fixed:20/500ms", &[]));
}

/// With one call at a time each arrival follows the last hint: then no other row may be early either.
#[test]
fn a_hint_to_one_row_holds_for_all() {
    all(|dialect| {
        let stats = obeys(dialect, "fixed:45/1s", &["--in-flight", "1"]);
        assert_eq!(stats.retry_after_violations, 0, "{dialect:?} {stats:?}");
    });
}

#[test]
fn malformed_hints_are_counted_and_survived() {
    const GARBAGE: [&str; 6] = ["", "-1", "soon", "0x10", "Thu, 99 Foo 2026 99:00:00 GMT", "12 parsecs"];
    let asked = AtomicUsize::new(0);
    let server = Canned::start(move |_| match GARBAGE.get(asked.fetch_add(1, Ordering::SeqCst)) {
        Some(garbage) => json(&format!("429 Too Many Requests\r\nRetry-After: {garbage}"), "{}"),
        None => json("200 OK", MATCH),
    });
    let bench = Bench::of_rows(6);
    let ran = bench.geocode(&server.url(), &[]);
    assert_eq!((ran.code, ran.ends(), ran.count("throttled")), (0, [6, 0, 0], 6), "{}", ran.stderr);
    assert!(ran.count("malformed_headers") >= 4, "{}", ran.stdout);
}

#[test]
fn a_clock_that_is_wrong_does_not_matter() {
    for skew in [-90_000, 90_000] {
        let server =
            chaos(Config { headers: Dialect::RetryAfterDate, skew, ..throttled("bucket:50/s,burst=5") });
        let bench = Bench::of_rows(30);
        let ran = bench.geocode(&server.url(), &[]);
        assert_eq!((ran.code, ran.ends()), (0, [30, 0, 0]), "{}", ran.stderr);
        assert_eq!(server.stats().retry_after_violations_same_request, 0);
    }
}

#[test]
fn a_limit_on_calls_at_once_is_found() {
    let service = tidegate_chaos::spec::service_ms("5").unwrap();
    let server = chaos(Config { service, ..throttled("concurrency:4") });
    let bench = Bench::of_rows(200);
    let ran = bench.geocode(&server.url(), &[]);
    let stats = server.stats();
    assert_eq!((ran.code, ran.ends(), stats.executed), (0, [200, 0, 0], 200), "{}", ran.stderr);
    assert_eq!(stats.requests, 200 + stats.throttled, "{stats:?}");
}
