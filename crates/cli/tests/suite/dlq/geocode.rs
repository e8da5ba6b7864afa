//! Rows that `geocode` gave up: letters, and back into their rows.

use crate::common::canned::{Canned, MATCH, json};
use crate::common::running::Ran;
use crate::dlq::desk::Desk;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn geocode(desk: &Desk, url: &str, more: &[&str]) -> Ran {
    let args = [
        "geocode",
        "in.csv",
        "--address",
        "address",
        "--url",
        url,
        "-o",
        "out.csv",
        "--quiet",
        "--format",
        "json",
        "--attempts",
        "2",
        "--dead-letters",
        "letters.db",
    ];
    // A replay needs the manifest of these options.
    let printed = desk.run(&[&args[..], &["--print-manifest"]].concat());
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    desk.write("geocode.yaml", &printed.stdout);
    desk.run(&[&args[..], more].concat())
}

/// A server that refuses addresses with `bad` in them until it is told to be kind.
fn picky(status: &'static str) -> (Canned, Arc<AtomicBool>) {
    let kind = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&kind);
    let server = Canned::start(move |head| {
        let refused =
            head.lines().next().is_some_and(|line| line.contains("bad")) && !told.load(Ordering::SeqCst);
        if refused { json(status, "{}") } else { json("200 OK", MATCH) }
    });
    (server, kind)
}

fn table(n: usize) -> String {
    let row = |i: usize| format!("{i},{} street {i}\n", if i.is_multiple_of(5) { "bad" } else { "good" });
    format!("id,address\n{}", (1..=n).map(row).collect::<String>())
}

#[test]
fn failed_rows_are_letters_and_a_replay_puts_them_into_their_rows() {
    let (server, kind) = picky("422 Unprocessable Content");
    let desk = Desk::new();
    desk.write("in.csv", &table(20));
    let ran = geocode(&desk, &server.url(), &[]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert_eq!((&ran.json()["matched"], &ran.json()["failed"]), (&16.into(), &4.into()));
    let letters = desk.letters();
    let tasks: Vec<_> = letters.iter().map(|l| l["task"].as_str().unwrap()).collect();
    assert_eq!(tasks, ["record 4", "record 9", "record 14", "record 19"]);
    let first = &letters[0];
    assert_eq!(first["failure"]["code"], "UNPROCESSABLE");
    assert_eq!(first["failure"]["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(first["failure"]["http"]["status"], 422);
    assert_eq!(geocode(&desk, &server.url(), &[]).code, 4);
    assert_eq!(desk.letters().len(), 4, "the same failure of the same row is one letter");
    let first = &desk.letters()[0];
    assert_eq!((&first["times"], &first["address"]), (&2.into(), &"bad street 5".into()));
    assert!(desk.dlq(&["ls"]).stdout.contains("bad street 5"));

    let sent = server.seen().len();
    let dead =
        desk.dlq(&["replay", "--manifest", "geocode.yaml", "--code", "UNPROCESSABLE", "--format", "json"]);
    assert_eq!((dead.code, &dead.json()[0]["dead"]), (4, &4.into()), "{}", dead.stderr);
    assert_eq!(server.seen().len(), sent + 4, "only what failed is asked, and the preflight asks nothing");
    let letters = desk.letters();
    assert_eq!(letters.len(), 8);
    assert_eq!(letters[4]["lineage"]["generation"], 1);
    assert_eq!(letters[4]["lineage"]["parent"], letters[0]["id"]);
    assert_eq!(letters[4]["lineage"]["first_failed_ms"], letters[0]["lineage"]["first_failed_ms"]);

    kind.store(true, Ordering::SeqCst);
    let ran = desk.dlq(&[
        "replay",
        "--manifest",
        "geocode.yaml",
        "--state",
        "captured",
        "--verify",
        "--format",
        "json",
    ]);
    assert_eq!((ran.code, &ran.json()[0]["resolved"]), (0, &4.into()), "{}", ran.stderr);
    assert!(!ran.stderr.contains("differs"), "its own manifest: {}", ran.stderr);
    let out = std::fs::read_to_string(desk.path("out.csv")).unwrap();
    let rows: Vec<&str> = out.lines().collect();
    assert_eq!(rows.len(), 21);
    for (n, row) in rows.iter().enumerate().skip(1) {
        assert!(row.starts_with(&format!("{n},")) && row.contains("matched"), "{row}");
    }
    assert_eq!(desk.states().iter().filter(|s| *s == "resolved").count(), 4);
}

#[test]
fn the_cap_of_deaths_stops_the_loop() {
    let (server, _) = picky("400 Bad Request");
    let desk = Desk::new();
    desk.write("in.csv", &table(5));
    geocode(&desk, &server.url(), &[]);
    for _ in 0..2 {
        assert_eq!(
            desk.dlq(&["replay", "--manifest", "geocode.yaml", "--all", "--max-generation", "2"]).code,
            4
        );
    }
    let last = desk.dlq(&[
        "replay",
        "--manifest",
        "geocode.yaml",
        "--all",
        "--max-generation",
        "2",
        "--format",
        "json",
    ]);
    assert_eq!((last.code, last.json()), (0, serde_json::json!([])));
    assert_eq!(desk.states(), ["dead", "dead", "captured"]);
}

#[test]
fn a_key_that_expires_is_one_incident_and_not_a_flood() {
    let server = Canned::start(|_| json("401 Unauthorized", "{}"));
    let desk = Desk::new();
    desk.write("in.csv", &table(200));
    // A key that never worked stops the run before there is anything to tell of.
    let ran = geocode(&desk, &server.url(), &[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(server.seen().len() < 200 && desk.letters().is_empty());
    assert_eq!(desk.dlq(&["incidents", "--format", "json"]).json(), serde_json::json!([]));
    let ran = geocode(&desk, &server.url(), &["--keep-going"]);
    assert_eq!(ran.code, 75, "{}", ran.stderr);
    let incident = ran.word("incident");
    assert!(incident.contains("incident 1: 200 of 200 records failed with UNAUTHORIZED"), "{incident}");
    assert!(!desk.path("out.csv").exists());
    assert!(desk.letters().is_empty(), "nothing was written instead");
    let suspended = geocode(&desk, &server.url(), &[]);
    assert_eq!(suspended.code, 75, "{}", suspended.stderr);
    let open = desk.dlq(&["incidents", "--format", "json"]).json();
    assert_eq!(open[0]["failed"], 200);
    assert!(open[0]["pipeline"].as_str().is_some_and(|id| id.starts_with("geocode:in-")), "{open}");
    assert_eq!(desk.dlq(&["incidents", "--close", "1"]).code, 0);
    assert_eq!(geocode(&desk, &server.url(), &[]).code, 1, "it runs again, and the cause is still there");
}

#[test]
fn a_store_that_cannot_be_written_stops_the_run() {
    let (server, _) = picky("422 Unprocessable Content");
    let desk = Desk::new();
    desk.write("in.csv", &table(20));
    desk.dlq(&["capacity", "2"]);
    let ran = geocode(&desk, &server.url(), &[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("full") && !desk.path("out.csv").exists(), "{}", ran.stderr);
    desk.write("letters.db", &"x".repeat(9000));
    assert_eq!(geocode(&desk, &server.url(), &[]).code, 2);
}
