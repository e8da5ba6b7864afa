//! `kill -9` at any moment: nothing lost, nothing doubled, every act audited. The moments differ
//! from run to run; what must hold afterwards does not.

use std::time::{Duration, Instant};

use crate::common::running::Running;
use crate::dlq::desk::{Desk, end};

const RECORDS: usize = 400;

/// 400 features, a quarter of them bow ties.
fn desk() -> Desk {
    let desk = Desk::new();
    let feature = |i: usize| {
        let (x, y) = ((i % 20) as f64, (i / 20) as f64);
        let ring = if i.is_multiple_of(4) {
            format!("[[{x},{y}],[{0},{1}],[{0},{y}],[{x},{1}],[{x},{y}]]", x + 0.5, y + 0.5)
        } else {
            format!("[[{x},{y}],[{0},{y}],[{0},{1}],[{x},{y}]]", x + 0.5, y + 0.5)
        };
        format!(
            r#"{{"type":"Feature","id":{i},"properties":{{"name":"f{i}"}},"geometry":{{"type":"Polygon","coordinates":[{ring}]}}}}"#
        )
    };
    let lines: Vec<String> = (0..RECORDS).map(feature).collect();
    desk.write("in.geojsonl", &lines.join("\n"));
    desk
}

/// Ever later: 8 ms, then half as much more each time.
fn moment(kills: i32) -> Duration {
    Duration::from_secs_f64(0.008 * 1.5f64.powi(kills))
}

/// Starts the command again and again, killing it ever later, until one run ends by itself.
fn torture(desk: &Desk, args: &[&str], ok: &[i32]) {
    for kills in 0..25 {
        let mut child = desk.start(args);
        std::thread::sleep(moment(kills));
        if child.try_wait().unwrap().is_none() {
            let _ = child.kill();
            let _ = child.wait();
            continue;
        }
        let ran = end(child);
        assert!(ok.contains(&ran.code), "{args:?}: {} {}", ran.code, ran.stderr);
        return;
    }
    panic!("{args:?} never ended");
}

#[test]
fn at_every_step() {
    let desk = desk();
    let dlq = |args: &[&str]| -> Vec<String> {
        ["dlq", "--store", "letters.db"].iter().chain(args).map(ToString::to_string).collect()
    };
    let torture = |args: &[&str], ok: &[i32]| {
        let words = dlq(args);
        torture(&desk, &words.iter().map(String::as_str).collect::<Vec<_>>(), ok);
    };
    assert_eq!(desk.run(&["keys", "generate", "--key", "a.key", "--store", "letters.db"]).code, 0);
    torture(&["capture", "in.geojsonl", "--into", "out.geojson"], &[4]);
    let letters = desk.letters();
    assert_eq!(letters.len(), RECORDS / 4, "none lost, none duplicated");
    assert_eq!(desk.out().len(), RECORDS * 3 / 4);

    torture(&["fix", "--rule", "make_valid", "--all", "--key", "a.key"], &[0]);
    assert_eq!(desk.states(), vec!["validated"; RECORDS / 4]);
    for letter in desk.letters().iter().take(10) {
        assert_eq!(letter["remedies"].as_array().unwrap().len(), 1);
        assert_eq!(desk.acts(letter["id"].as_str().unwrap()), ["fix"], "one change, one entry");
    }

    let rotate = ["keys", "rotate", "--key", "a.key", "--store", "letters.db"];
    self::torture(&desk, &rotate, &[0]);

    // A replay that was killed is resumed; what it had leased is taken over.
    for kills in 0..25 {
        let running = desk.dlq(&["replay", "--list"]).json();
        let number = running[0]["plan"].as_i64().map(|n| n.to_string());
        let words = match &number {
            Some(n) => {
                dlq(&["replay", "--into", "out.geojson", "--resume", n, "--batch", "10", "--key", "a.key"])
            }
            None => dlq(&[
                "replay",
                "--into",
                "out.geojson",
                "--state",
                "validated",
                "--batch",
                "10",
                "--key",
                "a.key",
            ]),
        };
        let mut child = desk.start(&words.iter().map(String::as_str).collect::<Vec<_>>());
        std::thread::sleep(moment(kills));
        if child.try_wait().unwrap().is_some() {
            let ran = end(child);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            break;
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    assert_eq!(desk.states(), vec!["resolved"; RECORDS / 4]);
    let mut names: Vec<String> = desk.out().into_iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    assert_eq!((desk.out().len(), names.len()), (RECORDS, RECORDS), "one row for each record");
    let some = desk.letters();
    for letter in some.iter().take(10) {
        let acts = desk.acts(letter["id"].as_str().unwrap());
        assert_eq!(acts.iter().filter(|a| *a == "replay").count(), 1, "{acts:?}");
    }

    torture(&["archive", "--all", "--to", "cold"], &[0]);
    assert!(desk.letters().iter().all(|l| l["archive"].is_string()));
    torture(&["purge", "--archived", "--all", "--yes"], &[0]);
    assert!(desk.letters().is_empty());
    let db = rusqlite::Connection::open(desk.path("letters.db")).unwrap();
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let quarter = (RECORDS / 4) as i64;
    assert_eq!(count("SELECT count(*) FROM tombstone"), quarter);
    assert_eq!(count("SELECT count(*) FROM audit WHERE act = 'purge'"), quarter);
    assert_eq!(
        count("SELECT count(*) FROM body") + count("SELECT count(*) FROM blob"),
        0,
        "nothing is left behind"
    );
    desk.audited();
}

/// A service manager stops a replay with SIGTERM. It has a hundred letters and takes one per second.
#[test]
fn a_replay_stops_after_its_batch_on_sigterm_and_goes_on_later() {
    let desk = desk();
    let captured = desk.dlq(&["capture", "in.geojsonl", "--into", "out.geojson"]);
    assert_eq!(captured.code, 4, "{}", captured.stderr);
    let fixed = desk.dlq(&["fix", "--rule", "make_valid", "--all"]);
    assert_eq!(fixed.code, 0, "{}", fixed.stderr);
    let replay = ["dlq", "--store", "letters.db", "replay", "--into", "out.geojson", "--all"];
    let slowly = [&replay[..], &["--batch", "1", "--rate", "1/s"]].concat();
    let mut child = Running::of(desk.start(&slowly));
    // A replay is in the list when its letters are fixed; the signals were registered before.
    let began = Instant::now();
    while desk.dlq(&["replay", "--list"]).json().as_array().is_none_or(Vec::is_empty) {
        assert!(child.is_running() && began.elapsed() < Duration::from_secs(60), "no replay began");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.signal("TERM");
    let ran = child.end();
    assert_eq!(ran.code, 75, "{}", ran.stderr);
    assert!(ran.stderr.contains("stopping after this batch"), "{}", ran.stderr);
    assert!(ran.stderr.contains("replay --resume 1 --into out.geojson"), "{}", ran.stderr);
    let ran = desk.dlq(&["replay", "--into", "out.geojson", "--resume", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(desk.states(), vec!["resolved"; RECORDS / 4]);
}
