//! Remedies that run unasked: by rule, with a limit and a delay, and when the time of a letter has
//! come.

use crate::common::running::Running;
use crate::dlq::desk::Desk;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const POLICY: &str = "
  retry_policy: { max_attempts: 3, base_delay: 10ms, retryable_status_codes: [429, 503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
";

fn desk(letters: &str, steps: &str) -> Desk {
    let desk = Desk::at(".tidegate/letters.db");
    desk.write("m.yaml", &manifest(letters, steps));
    desk
}

fn manifest(letters: &str, steps: &str) -> String {
    format!(
        "pipeline:\n  id: parcels\n  dead_letters: {letters}\n  source: {{ file: in.geojsonl }}\n{steps}\n  sink: {{ file: out.gpkg, key: [id] }}{POLICY}"
    )
}

const MULTI: &str = "  steps: [{ promote_to_multi: true }]\n  gates: [{ check: is_valid, severity: reject }]";

fn square(id: u32) -> String {
    let (w, e) = (f64::from(id), f64::from(id) + 0.5);
    format!(
        "{{\"type\":\"Feature\",\"properties\":{{\"id\":{id}}},\"geometry\":{{\"type\":\"Polygon\",\"coordinates\":[[[{w},48],[{e},48],[{e},48.5],[{w},48.5],[{w},48]]]}}}}\n"
    )
}

fn bow_tie(id: u32) -> String {
    let (w, e) = (f64::from(id), f64::from(id) + 0.5);
    format!(
        "{{\"type\":\"Feature\",\"properties\":{{\"id\":{id}}},\"geometry\":{{\"type\":\"Polygon\",\"coordinates\":[[[{w},48],[{e},48.5],[{e},48],[{w},48.5],[{w},48]]]}}}}\n"
    )
}

fn ids(desk: &Desk) -> Vec<u32> {
    let db = rusqlite::Connection::open(desk.path("out.gpkg")).unwrap();
    let mut rows = db.prepare("SELECT id FROM out ORDER BY id").unwrap();
    rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn bow_ties_are_repaired_and_replayed_by_the_run_itself() {
    let desk = desk("{ auto: [{ code: INVALID_GEOMETRY, remedy: make_valid, replay: true }] }", MULTI);
    desk.write("in.geojsonl", &(square(1) + &bow_tie(2) + &square(3)));
    let ran = desk.run(&["run", "m.yaml", "--format", "json"]);
    assert_eq!(ran.code, 0, "nothing is missing: {}", ran.stderr);
    assert_eq!((ran.count("rejected"), ran.count("written")), (1, 2));
    assert_eq!(ran.json()["spatial_write_success_rate"], 1.0, "the replay wrote it");
    let done = json!({ "repaired": 1, "scheduled": 0, "resolved": 1, "failed": 0, "waiting": 0 });
    assert_eq!(ran.json()["remedied"], done);
    assert_eq!((ids(&desk), desk.states()), (vec![1, 2, 3], vec!["resolved".to_owned()]));
    let stats = desk.dlq(&["stats"]);
    assert!(
        stats.stderr.contains(
            "unasked, parcels: INVALID_GEOMETRY make_valid: 1 resolved, 0 failed again, 100 % success"
        ),
        "{}",
        stats.stderr
    );
    let metrics = desk.dlq(&["stats", "--metrics"]).stdout;
    let line = "tidegate_remedy_letters_total{code=\"INVALID_GEOMETRY\",remedy=\"make_valid\",outcome=\"resolved\"} 1";
    assert!(metrics.contains(line), "{metrics}");
    // The next night it is in the sink, and neither repaired nor written once more.
    assert_eq!(desk.run(&["run", "m.yaml"]).code, 0);
    assert_eq!(ids(&desk), [1, 2, 3]);
    // What was done is in the audit, and the measured success survives a purge.
    assert_eq!(desk.dlq(&["purge", "--all", "--yes"]).code, 0);
    let metrics = desk.dlq(&["stats", "--metrics"]).stdout;
    assert!(metrics.contains("outcome=\"resolved\"} 1"), "{metrics}");
    assert!(metrics.contains("tidegate_letter_replay_success_ratio 1\n"), "{metrics}");
    desk.audited();
}

#[test]
fn a_rule_keeps_its_limit_and_the_exit_code_says_what_is_left() {
    let desk =
        desk("{ auto: [{ code: INVALID_GEOMETRY, remedy: make_valid, replay: true, at_most: 2/h }] }", MULTI);
    let ties: String = (10..15).map(bow_tie).collect();
    desk.write("in.geojsonl", &(square(1) + &ties));
    for _ in 0..2 {
        let ran = desk.run(&["run", "m.yaml", "--format", "json"]);
        assert_eq!(ran.code, 4, "{}", ran.stderr);
        assert_eq!(ids(&desk).len(), 3, "two in an hour, whoever starts it");
        // In the second run the two that were resolved are in the sink, and not repaired once more.
        assert_eq!(open(&desk).iter().filter(|l| l["state"] == "validated").count(), 3);
    }
}

const NARROW: &str = "  gates: [{ check: bbox, bbox: [0, 40, 1.9, 50], severity: reject }]";
const WIDE: &str = "  gates: [{ check: bbox, bbox: [0, 40, 9, 50], severity: reject }]";
const HOURLY: &str = "{ auto: [{ code: INVALID_GEOMETRY, retry_after: 1h }] }";

fn open(desk: &Desk) -> Vec<Value> {
    desk.dlq(&["ls", "--format", "json"]).json().as_array().unwrap().clone()
}

/// The time between the failure of the only letter and its replay, in milliseconds.
fn delay_ms(desk: &Desk) -> i64 {
    let letters = open(desk);
    assert_eq!((letters.len(), &letters[0]["state"]), (1, &json!("scheduled")), "{letters:#?}");
    letters[0]["not_before_ms"].as_i64().unwrap() - letters[0]["failure"]["failed_ms"].as_i64().unwrap()
}

/// A letter that waits for an hour.
fn parked() -> Desk {
    let desk = desk(HOURLY, NARROW);
    desk.write("in.geojsonl", &(square(1) + &square(2)));
    let ran = desk.run(&["run", "m.yaml"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert_eq!(delay_ms(&desk), 3_600_000);
    desk
}

/// The hour passes.
fn hour_passes(desk: &Desk) {
    let db = rusqlite::Connection::open(desk.path(".tidegate/letters.db")).unwrap();
    assert_eq!(db.execute("UPDATE letter SET not_before_ms = 1 WHERE state = 1", []).unwrap(), 1);
}

/// The cause is gone, and so is the record from the source: only a replay can bring it.
fn cause_is_gone(desk: &Desk) {
    desk.write("m.yaml", &manifest("{}", WIDE));
    desk.write("in.geojsonl", &square(1));
    assert_eq!(desk.run(&["run", "m.yaml"]).code, 0);
    assert_eq!((ids(desk), desk.states()), (vec![1], vec!["scheduled".to_owned()]), "not before its time");
}

#[test]
fn a_delay_doubles_with_each_failure() {
    let desk = parked();
    assert_eq!(desk.run(&["run", "m.yaml"]).code, 4);
    assert_eq!((delay_ms(&desk), &open(&desk)[0]["lineage"]["generation"]), (3_600_000, &json!(0)));
    hour_passes(&desk);
    assert_eq!(desk.run(&["run", "m.yaml"]).code, 4);
    assert_eq!((delay_ms(&desk), &open(&desk)[0]["lineage"]["generation"]), (7_200_000, &json!(1)));
    let stats = desk.dlq(&["stats"]).stderr;
    assert!(stats.contains("INVALID_GEOMETRY: 0 resolved, 1 failed again, 0 % success"), "{stats}");
}

#[test]
fn a_rule_decides_about_the_letters_of_its_code() {
    let desk = parked();
    // The limit of the rule is spent, or it does not replay: the letter is not replayed as a parked one.
    let none = "{ auto: [{ code: INVALID_GEOMETRY, retry_after: 1h, replay: false }] }";
    desk.write("m.yaml", &manifest(none, WIDE));
    desk.write("in.geojsonl", &square(1));
    hour_passes(&desk);
    assert_eq!(desk.run(&["run", "m.yaml"]).code, 0);
    assert_eq!((ids(&desk), desk.states()), (vec![1], vec!["scheduled".to_owned()]));
    desk.write("m.yaml", &manifest("{ replay_parked: false }", WIDE));
    assert_eq!(desk.run(&["run", "m.yaml"]).code, 0);
    assert_eq!(desk.states(), ["scheduled"]);
    desk.write("m.yaml", &manifest(HOURLY, WIDE));
    assert_eq!(desk.run(&["run", "m.yaml"]).code, 0);
    assert_eq!((ids(&desk), desk.states()), (vec![1, 2], vec!["resolved".to_owned()]));
}

#[test]
fn a_parked_letter_is_replayed_at_the_start_of_the_next_run() {
    let desk = parked();
    cause_is_gone(&desk);
    hour_passes(&desk);
    let ran = desk.run(&["run", "m.yaml", "--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.json()["remedied"]["resolved"], 1);
    assert_eq!((ids(&desk), desk.states()), (vec![1, 2], vec!["resolved".to_owned()]));
}

#[test]
fn a_replay_that_was_killed_is_continued_by_the_next_run() {
    let desk = parked();
    cause_is_gone(&desk);
    hour_passes(&desk);
    let mut killed = desk.command(&["run", "m.yaml"]);
    let killed = crate::dlq::desk::end(killed.env("TIDEGATE_CRASH", "replayed:0").spawn().unwrap());
    assert_eq!((killed.code, desk.states()), (-1, vec!["planned".to_owned()]), "{}", killed.stderr);
    assert_eq!(desk.run(&["run", "m.yaml"]).code, 0);
    assert_eq!((ids(&desk), desk.states()), (vec![1, 2], vec!["resolved".to_owned()]));
}

#[test]
fn a_server_replays_parked_letters_of_its_last_run_too() {
    let desk = parked();
    // Only what was seen in the last run: an older letter may hold an outdated record. What the manifest
    // says now applies, and that it is not what the last run had is said.
    desk.write("m.yaml", &manifest(HOURLY, WIDE));
    hour_passes(&desk);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--every", "1s", "--manifest", "m.yaml"];
    let server = Running::of(desk.start(&serve));
    let began = Instant::now();
    while desk.states() != ["resolved"] {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", desk.letters());
        std::thread::sleep(Duration::from_millis(100));
    }
    server.signal("TERM");
    let ended = server.end();
    assert!(
        ended.stderr.contains("parcels: 0 letters repaired, 0 scheduled, 1 resolved"),
        "{}",
        ended.stderr
    );
    let says = "the definition of parcels in the store differs from m.yaml in gates; m.yaml applies";
    assert!(ended.stderr.contains(says), "{}", ended.stderr);
    assert_eq!(ids(&desk), [1, 2]);
}

#[test]
fn a_rule_that_cannot_work_is_refused_at_validate() {
    for (rule, says) in [
        ("{ code: INVALID_GEOMTRY, remedy: make_valid }", "did you mean `INVALID_GEOMETRY`?"),
        ("{ code: TIMEOUT, remedy: make_valid }", "rule `make_valid` does not repair `TIMEOUT`"),
        ("{ code: TIMEOUT, at_most: lots }", "`100/h`"),
    ] {
        let desk = desk(&format!("{{ auto: [{rule}] }}"), MULTI);
        let ran = desk.run(&["validate", "m.yaml"]);
        assert_eq!(ran.code, 2, "{rule}");
        assert!(
            ran.stderr.contains(says) || ran.stdout.contains(says),
            "{rule}: {} {}",
            ran.stdout,
            ran.stderr
        );
    }
}
