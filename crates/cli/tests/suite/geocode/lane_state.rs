//! What a server asked for outlives the process.

use std::time::{Duration, Instant};

use crate::common::canned::{Canned, MATCH, json};
use crate::geocode::bench::{Bench, Ran};

const FILE: &str = ".tidegate/lanes.json";

fn later(seconds: u64) -> Canned {
    Canned::start(move |_| json(&format!("429 Too Many Requests\r\nRetry-After: {seconds}"), "{}"))
}

fn ask(bench: &Bench, url: &str, key: &str) -> Ran {
    bench.command(url, &["--key", "env:K"]).env("K", key).output().unwrap().into()
}

#[test]
fn the_next_run_does_not_ask_before_the_time() {
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let server = Canned::start(move |_| json(&format!("{status}\r\nRetry-After: 3600"), "{}"));
        let bench = Bench::of_rows(5);
        let ran = bench.geocode(&server.url(), &["--in-flight", "1"]);
        assert_eq!(ran.code, 75, "{status}: {} {}", ran.stdout, ran.stderr);
        let calls = server.seen().len();
        assert_eq!(calls, 1, "{status}");
        for args in [&["--resume"][..], &[], &["--no-cache"]] {
            let ran = bench.geocode(&server.url(), args);
            assert_eq!(
                (ran.code, server.seen().len()),
                (75, calls),
                "{status}: {} {}",
                ran.stdout,
                ran.stderr
            );
            let error = ran.word("error");
            let host = format!("127.0.0.1:{} asked to wait until ", server.port());
            assert!(error.starts_with(&host), "{error}");
            assert!(error.ends_with(" UTC (Retry-After: 3600)"), "{error}");
            assert!(ran.json()["not_before_ms"].as_u64().is_some());
        }
        // Another host is not concerned.
        let other = Canned::matching();
        let ran = bench.geocode(&other.url(), &[]);
        assert_eq!((ran.code, other.seen().len()), (0, 5), "{} {}", ran.stdout, ran.stderr);
        // Who knows better forgets it.
        std::fs::remove_file(bench.path(FILE)).unwrap();
        bench.geocode(&server.url(), &["--in-flight", "1"]);
        assert_eq!(server.seen().len(), calls + 1);
    }
}

#[test]
fn a_hint_holds_for_a_key_and_no_key_is_kept() {
    let server = later(3600);
    let bench = Bench::of_rows(1);
    for (key, calls) in [("hunter-one", 1), ("hunter-one", 1), ("hunter-two", 2), ("hunter-two", 2)] {
        let ran = ask(&bench, &server.url(), key);
        assert_eq!((ran.code, server.seen().len()), (75, calls), "{key}: {} {}", ran.stdout, ran.stderr);
    }
    let text = std::fs::read_to_string(bench.path(FILE)).unwrap();
    assert!(text.contains("127.0.0.1") && !text.contains("hunter"), "{text}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(bench.path(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_spent_quota_without_an_end_is_asked_about_once_by_each_run() {
    let server = Canned::start(|_| json("402 Payment Required", "{}"));
    let bench = Bench::of_rows(3);
    for calls in 1..=3 {
        let ran = bench.geocode(&server.url(), &["--in-flight", "1"]);
        assert_eq!((ran.code, server.seen().len()), (75, calls), "{} {}", ran.stdout, ran.stderr);
        assert!(ran.word("error").contains("quota"), "{}", ran.stdout);
    }
}

#[test]
fn a_wait_within_patience_is_waited_for() {
    let bench = Bench::of_rows(1);
    let began = Instant::now();
    let count = std::sync::atomic::AtomicU64::new(0);
    let server = Canned::start(move |_| match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => json("429 Too Many Requests\r\nRetry-After: 4", "{}"),
        _ => json("200 OK", MATCH),
    });
    let ran = bench.geocode(&server.url(), &["--patience", "1s"]);
    assert_eq!(ran.code, 75, "{} {}", ran.stdout, ran.stderr);
    assert!(began.elapsed() < Duration::from_secs(3), "it did not wait");
    let ran = bench.geocode(&server.url(), &[]);
    assert_eq!((ran.code, server.seen().len()), (0, 2), "{} {}", ran.stdout, ran.stderr);
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}: earlier than asked", began.elapsed());
}

#[test]
fn a_damaged_file_is_reported_and_ignored() {
    for text in ["", "not json", "{\"version\":1,\"lanes\":[]}", "{\"version\":7,\"lanes\":{}}"] {
        let server = Canned::matching();
        let bench = Bench::of_rows(2);
        std::fs::create_dir(bench.path(".tidegate")).unwrap();
        bench.write(FILE, text.as_bytes());
        let ran = bench.geocode(&server.url(), &[]);
        assert_eq!((ran.code, server.seen().len()), (0, 2), "{text}: {} {}", ran.stdout, ran.stderr);
        assert!(
            ran.stderr.contains("lanes.json") && ran.stderr.contains("ignored"),
            "{text}: {}",
            ran.stderr
        );
    }
}
