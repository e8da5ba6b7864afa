//! Several processes that call one host share its limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::canned::{Canned, MATCH, json};
use crate::common::workdir::Workdir;
use crate::geocode::bench::{Bench, chaos, throttled, until_asked};

/// A server that refuses its first call with a Retry-After in seconds, and notes when it was asked.
fn refusing_first(seconds: u32) -> (Canned, Arc<Mutex<Vec<Instant>>>) {
    let (first, asked) = (AtomicBool::new(true), Arc::<Mutex<Vec<Instant>>>::default());
    let noted = Arc::clone(&asked);
    let server = Canned::start(move |_| {
        noted.lock().unwrap().push(Instant::now());
        if first.swap(false, Ordering::SeqCst) {
            json(&format!("429 Too Many Requests\r\nRetry-After: {seconds}"), "{}")
        } else {
            json("200 OK", MATCH)
        }
    });
    (server, asked)
}

#[test]
fn a_wait_that_one_process_was_asked_for_holds_for_another() {
    let (server, asked) = refusing_first(3);
    // Each has its own state directory.
    let (one, other) = (Bench::of_rows(3), Bench::of_rows(3));
    let first = one.start(&server.url(), &["--in-flight", "1"]);
    while asked.lock().unwrap().is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(300));
    let ran = other.geocode(&server.url(), &[]);
    assert_eq!((ran.code, ran.ends()), (0, [3, 0, 0]), "{} {}", ran.stdout, ran.stderr);
    let ran = first.end();
    assert_eq!((ran.code, ran.ends()), (0, [3, 0, 0]), "{} {}", ran.stdout, ran.stderr);
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 7);
    for at in &asked[1..] {
        assert!(at.duration_since(asked[0]) >= Duration::from_secs(3), "{asked:?}");
    }
}

#[test]
fn each_process_counts_its_own_calls_and_one_goes_on_when_the_other_is_killed() {
    let server = chaos(throttled("bucket:100/s,burst=1"));
    let (one, other) = (Bench::of_rows(3000), Bench::of_rows(150));
    let first = one.start(&server.url(), &[]);
    until_asked(&server, 20);
    let second = other.start(&server.url(), &["--log", "json", "--log-level", "debug"]);
    until_asked(&server, 100);
    first.signal("KILL");
    let ran = second.end();
    assert_eq!((ran.code, ran.ends()), (0, [150, 0, 0]), "{} {}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains(r#""role":"member""#), "{}", ran.stderr);
    assert!(ran.stderr.contains("the process that owned the lane is gone"), "{}", ran.stderr);
    assert!(ran.stderr.contains(r#""role":"owner""#), "{}", ran.stderr);
}

#[test]
fn processes_with_a_rate_of_their_own_do_not_wait_for_each_other() {
    let (server, asked) = refusing_first(20);
    let (one, other) = (Bench::of_rows(1), Bench::of_rows(3));
    let first = one.start(&server.url(), &["--in-flight", "1"]);
    while asked.lock().unwrap().is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(300));
    let printed = other.geocode(&server.url(), &["--print-manifest"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    assert!(printed.stdout.contains("rate_limit"), "{}", printed.stdout);
    let alone = printed.stdout.replace("rate_limit:\n", "rate_limit:\n    scope: process\n");
    other.write("alone.yaml", alone.as_bytes());
    let ran = Workdir::command(&other, &["run", "alone.yaml", "--format", "json"]).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let asked = asked.lock().unwrap().clone();
    assert!(asked.len() == 4 && asked[3].duration_since(asked[0]) < Duration::from_secs(20), "{asked:?}");
    drop(first);
}
