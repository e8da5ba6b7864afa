//! Several workers, and workers that stop.

use std::time::{Duration, Instant};

use super::{depth, each_once, once, parcels, publish, rows, states, task, until_empty};
use crate::common::running::Running;

/// Waits until something holds.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_worker_that_was_stopped_for_longer_than_its_lease_cannot_write() {
    let dir = parcels();
    publish(&dir, &(0..10).map(|n| task("parcels", n)).collect::<Vec<_>>());
    let gate = dir.path("gate");
    let first = dir
        .command(&["worker", "parcels.yaml", "--once", "--format", "json"])
        .env("TIDEGATE_HOLD", format!("task:p9={}", gate.display()))
        .spawn()
        .unwrap();
    let first = Running::of(first);
    wait_for("the first worker has claimed the tasks", || dir.path("gate.here").exists());
    first.signal("STOP");
    // Not in the middle of a write: SQLite would keep everybody out until it goes on.
    while ["tasks.db", "parcels.gpkg"].iter().any(|file| is_locked(&dir.path(file))) {
        first.signal("CONT");
        std::thread::sleep(Duration::from_millis(20));
        first.signal("STOP");
    }
    // The lease ends, and another worker does the tasks.
    until_empty(&dir);
    assert_eq!(rows(&dir, "parcels"), each_once(0..10));
    std::fs::write(&gate, b"").unwrap();
    first.signal("CONT");
    let ran = first.end();
    assert_eq!(rows(&dir, "parcels"), each_once(0..10), "{}", ran.stderr);
    assert_eq!(ran.json()["pipelines"][0]["taken_over"], 10, "{}", ran.stderr);
    assert_eq!(states(&dir, "parcels"), [("done".to_owned(), 10)].into());
}

/// Whether a process is writing to a database.
fn is_locked(file: &std::path::Path) -> bool {
    let db = rusqlite::Connection::open(file).unwrap();
    db.busy_timeout(Duration::ZERO).unwrap();
    db.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err()
}

#[test]
fn a_lease_is_extended_while_the_worker_lives() {
    let dir = parcels();
    publish(&dir, &(0..10).map(|n| task("parcels", n)).collect::<Vec<_>>());
    let gate = dir.path("gate");
    let first = dir
        .command(&["worker", "parcels.yaml", "--once", "--format", "json"])
        .env("TIDEGATE_HOLD", format!("put:0={}", gate.display()))
        .spawn()
        .unwrap();
    let first = Running::of(first);
    wait_for("the first worker is at work", || dir.path("gate.here").exists());
    // Three leases later nobody else has got anything.
    let end = Instant::now() + Duration::from_secs(6);
    while Instant::now() < end {
        assert_eq!(depth(&dir).leased, Some(10));
        std::thread::sleep(Duration::from_millis(200));
    }
    std::fs::write(&gate, b"").unwrap();
    let ran = first.end();
    assert_eq!((ran.code, &ran.json()["pipelines"][0]["done"]), (0, &10.into()), "{}", ran.stderr);
    assert_eq!(rows(&dir, "parcels"), each_once(0..10));
}

#[test]
fn a_worker_that_is_told_to_stop_returns_what_it_did_not_do() {
    let dir = parcels();
    publish(&dir, &(0..2000).map(|n| task("parcels", n)).collect::<Vec<_>>());
    let gate = dir.path("gate");
    let first = dir
        .command(&["worker", "parcels.yaml", "--concurrency", "100", "--format", "json"])
        .env("TIDEGATE_HOLD", format!("put:1={}", gate.display()))
        .spawn()
        .unwrap();
    let first = Running::of(first);
    wait_for("the worker is at its second batch", || dir.path("gate.here").exists());
    first.signal("TERM");
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(&gate, b"").unwrap();
    let ran = first.end();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let done = ran.json()["pipelines"][0]["done"].as_u64().unwrap();
    assert!((100..2000).contains(&done), "{done}");
    assert_eq!(rows(&dir, "parcels").len() as u64, done);
    let left = depth(&dir);
    assert_eq!(
        (left.ready + left.waiting.unwrap_or(0), left.leased),
        (2000 - done, Some(0)),
        "nothing is held any more"
    );
    // No attempt was charged: the rest is done without suspicion.
    until_empty(&dir);
    assert_eq!(rows(&dir, "parcels"), each_once(0..2000));
}

#[test]
fn two_workers_share_the_tasks_of_one_queue() {
    let dir = parcels();
    publish(&dir, &(0..4000).map(|n| task("parcels", n)).collect::<Vec<_>>());
    let start = || {
        let args = ["worker", "parcels.yaml", "--once", "--concurrency", "200", "--format", "json"];
        Running::of(dir.command(&args).spawn().unwrap())
    };
    let (a, b) = (start(), start());
    let ran = [a.end(), b.end()];
    let done: u64 = ran.iter().map(|ran| ran.json()["pipelines"][0]["done"].as_u64().unwrap()).sum();
    assert_eq!((ran[0].code, ran[1].code), (0, 0), "{} {}", ran[0].stderr, ran[1].stderr);
    assert_eq!(done, 4000, "{} {}", ran[0].stderr, ran[1].stderr);
    assert_eq!(rows(&dir, "parcels"), each_once(0..4000));
    assert_eq!(once(&dir, &[]).json()["pipelines"][0]["received"], 0);
}
