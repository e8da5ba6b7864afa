//! A wrong key, a wrong profile: the run ends after a few calls and not after every row.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::canned::{Canned, MATCH, json};
use crate::geocode::bench::{Bench, Ran};

/// Refusals that stop a run.
const LIMIT: usize = 10;
/// Calls that may be out when the last of them comes.
const IN_FLIGHT: usize = 64;

fn ask(bench: &Bench, server: &Canned, args: &[&str]) -> Ran {
    let flight = IN_FLIGHT.to_string();
    let mut usual = vec!["--key", "env:K"];
    if !args.contains(&"--in-flight") {
        usual.extend(["--in-flight", &flight]);
    }
    let mut command = bench.command(&server.url(), &[&usual[..], args].concat());
    command.env("K", "s3cr3t").output().unwrap().into()
}

#[test]
fn a_wrong_key_costs_a_few_calls() {
    for (profile, status, body, code) in [
        ("generic", "401 Unauthorized", r#"{"error":"invalid key"}"#, "401 UNAUTHORIZED"),
        ("generic", "403 Forbidden", r#"{"error":"invalid key"}"#, "403 FORBIDDEN"),
        (
            "google",
            "200 OK",
            r#"{"results":[],"status":"REQUEST_DENIED","error_message":"invalid key"}"#,
            "200 FORBIDDEN",
        ),
    ] {
        let server = Canned::start(move |_| json(status, body));
        let bench = Bench::of_rows(1000);
        let ran = ask(&bench, &server, &["--profile", profile]);
        assert_eq!(ran.code, 1, "{code}: {} {}", ran.stdout, ran.stderr);
        let calls = server.seen().len();
        assert!((LIMIT..=LIMIT + IN_FLIGHT).contains(&calls), "{code}: {calls} calls");
        let error = ran.word("error");
        for part in [code, "invalid key", "--key", "--keep-going", "calls in a row"] {
            assert!(error.contains(part), "{part:?} is not in {error}");
        }
        // Another answer may be counted before the first that stops the run is told.
        let (_, rest) = error.split_once("rejected ").unwrap();
        let counted: usize = rest.split(' ').next().unwrap().parse().unwrap();
        assert!((LIMIT..=calls).contains(&counted), "{counted} of {calls} calls: {error}");
        assert!(!error.contains("s3cr3t"));
        assert_eq!(ran.word("status"), "failed");
        assert!(!bench.path("out.csv").exists(), "no output that looks whole");
    }
}

#[test]
fn words_name_the_flag() {
    let server = Canned::start(|_| json("401 Unauthorized", "{}"));
    let bench = Bench::of_rows(100);
    let ran: Ran = bench
        .bare(&["in.csv", "--address", "address", "--url", &server.url(), "-o", "out.csv", "--quiet"])
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("Check the key (--key)"), "{}", ran.stderr);
}

#[test]
fn a_wrong_profile_costs_a_few_calls() {
    // Well-formed, but nothing that this profile knows.
    let server = Canned::start(|_| json("200 OK", r#"{"places":[{"y":48.5,"x":16.25}]}"#));
    let bench = Bench::of_rows(1000);
    let ran = ask(&bench, &server, &["--profile", "opencage"]);
    assert_eq!(ran.code, 1, "{} {}", ran.stdout, ran.stderr);
    assert!(server.seen().len() <= LIMIT + IN_FLIGHT, "{}", server.seen().len());
    assert!(ran.word("error").contains("--profile"), "{}", ran.stdout);
}

#[test]
fn keep_going_asks_for_every_row() {
    let server = Canned::start(|_| json("401 Unauthorized", "{}"));
    let bench = Bench::of_rows(200);
    let ran = ask(&bench, &server, &["--keep-going"]);
    assert_eq!((ran.code, server.seen().len()), (4, 200), "{} {}", ran.stdout, ran.stderr);
    assert_eq!(ran.ends(), [0, 0, 200]);
}

#[test]
fn a_right_key_asks_for_what_was_refused() {
    let wrong = Arc::new(AtomicBool::new(true));
    let key = Arc::clone(&wrong);
    let server = Canned::start(move |_| match key.load(Ordering::Relaxed) {
        true => json("401 Unauthorized", "{}"),
        false => json("200 OK", MATCH),
    });
    let bench = Bench::of_rows(100);
    let letters = ["--dead-letters", "letters.db"];
    let ran = ask(&bench, &server, &letters);
    assert_eq!(ran.code, 1, "{} {}", ran.stdout, ran.stderr);
    let listed = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["dlq", "ls", "--store"])
        .arg(bench.path("letters.db"))
        .args(["--format", "json"])
        .output()
        .unwrap();
    let listed: Ran = listed.into();
    assert!(!listed.stdout.contains("UNAUTHORIZED"), "a wrong key makes no dead letters: {}", listed.stdout);
    wrong.store(false, Ordering::Relaxed);
    let ran = ask(&bench, &server, &[&letters[..], &["--resume"]].concat());
    assert_eq!((ran.code, ran.ends()), (0, [100, 0, 0]), "{} {}", ran.stdout, ran.stderr);
}

#[test]
fn refusals_of_single_rows_do_not_stop_a_run() {
    // One answer is enough to know that key and profile are right.
    let count = AtomicU64::new(0);
    let server = Canned::start(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => json("200 OK", MATCH),
        _ => json("400 Bad Request", "{}"),
    });
    let bench = Bench::of_rows(60);
    let ran = ask(&bench, &server, &["--in-flight", "1"]);
    assert_eq!((ran.code, ran.ends()), (4, [1, 0, 59]), "{} {}", ran.stdout, ran.stderr);
    // Nor do refusals of the request that differ.
    let count = AtomicU64::new(0);
    let server = Canned::start(move |_| match count.fetch_add(1, Ordering::Relaxed) % 5 {
        0 => json("404 Not Found", "{}"),
        _ => json("400 Bad Request", "{}"),
    });
    let bench = Bench::of_rows(60);
    let ran = ask(&bench, &server, &["--in-flight", "1"]);
    assert_eq!((ran.code, ran.ends()), (4, [0, 0, 60]), "{} {}", ran.stdout, ran.stderr);
    // The same one is probably not about the rows.
    let server = Canned::start(|_| json("400 Bad Request", "{}"));
    let ran = ask(&Bench::of_rows(60), &server, &["--in-flight", "1"]);
    assert_eq!(ran.code, 1, "{} {}", ran.stdout, ran.stderr);
    // One may be out, and each thread may have an answer that is not counted yet.
    let more = 1 + std::thread::available_parallelism().map_or(1, usize::from);
    let calls = server.seen().len();
    assert!((LIMIT..=LIMIT + more).contains(&calls), "{calls} calls");
}
