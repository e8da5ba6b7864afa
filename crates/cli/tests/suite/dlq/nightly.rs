//! The same record that fails night after night is one open letter with a count.

use crate::dlq::desk::Desk;
use serde_json::Value;

/// A pipeline whose records fail if `v` is no number.
pub(crate) const MANIFEST: &str = "pipeline:
  id: nightly
  dead_letters: {}
  source: { file: in.geojsonl }
  steps:
    - coerce: { fields: { v: int } }
  sink: { file: out.gpkg, key: [code] }
  retry_policy: { max_attempts: 3, base_delay: 10ms, retryable_status_codes: [429, 503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
";

fn record(code: &str, v: &str) -> String {
    format!(
        "{{\"type\":\"Feature\",\"properties\":{{\"code\":\"{code}\",\"v\":\"{v}\"}},\"geometry\":{{\"type\":\"Point\",\"coordinates\":[16.1,48.1]}}}}\n"
    )
}

fn nightly() -> Desk {
    let desk = Desk::at(".tidegate/letters.db");
    desk.write("nightly.yaml", MANIFEST);
    let good: String = (0..5).map(|n| record(&format!("G{n}"), "1")).collect();
    desk.write("in.geojsonl", &(good + &record("A-17", "x") + &record("B-2", "y")));
    desk
}

fn times(letters: &[Value]) -> Vec<u64> {
    letters.iter().map(|l| l["times"].as_u64().unwrap()).collect()
}

#[test]
fn a_record_that_fails_every_night_is_one_letter_with_a_count() {
    let desk = nightly();
    for _ in 0..3 {
        let ran = desk.run(&["run", "nightly.yaml"]);
        assert_eq!(ran.code, 4, "{}", ran.stderr);
    }
    let letters = desk.letters();
    assert_eq!(times(&letters), [3, 3]);
    let (first, last) =
        (letters[0]["first_seen"].as_str().unwrap(), letters[0]["last_seen"].as_str().unwrap());
    assert!(
        first <= last && letters[0]["last_seen_ms"].as_i64() > letters[0]["failure"]["failed_ms"].as_i64()
    );
    // The key of the record is what a person looks it up by.
    let table = desk.dlq(&["ls"]).stdout;
    let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head[..4], ["id", "times", "first", "last"], "{table}");
    let row = table.lines().find(|line| line.contains("A-17")).unwrap_or_else(|| panic!("{table}"));
    assert_eq!(row.split_whitespace().nth(1), Some("3"), "{row}");
    let id = letters[0]["id"].as_str().unwrap();
    let shown = desk.dlq(&["show", id]).stdout;
    assert!(shown.contains("failed in 3 runs") && shown.contains("A-17"), "{shown}");
    // Every export has it too.
    assert_eq!(desk.dlq(&["map", "-o", "dead.html"]).code, 0);
    assert!(desk.read("dead.html").contains("\"times\":3"));
    assert_eq!(desk.dlq(&["export", "-o", "dead.csv"]).code, 0);
    let csv = desk.read("dead.csv");
    let column = csv.lines().next().unwrap().split(',').position(|name| name == "times").unwrap();
    assert!(csv.lines().skip(1).all(|line| line.split(',').nth(column) == Some("3")), "{csv}");
    assert_eq!(desk.dlq(&["export", "-o", "dead.geojson"]).code, 0);
    assert!(desk.read("dead.geojson").contains("\"last_seen\":"));
    let groups = desk.dlq(&["stats", "--format", "json"]).json();
    assert_eq!(groups[0]["last_failed"], letters[1]["last_seen"]);
}

#[test]
fn a_run_that_is_killed_and_resumed_counts_once() {
    let desk = nightly();
    assert_eq!(desk.run(&["run", "nightly.yaml"]).code, 4);
    let mut killed = desk.command(&["run", "nightly.yaml"]);
    // After the letters are durable and before their batch is committed.
    let killed = crate::dlq::desk::end(killed.env("TIDEGATE_CRASH", "rejects:0").spawn().unwrap());
    assert_ne!(killed.code, 4, "{}", killed.stderr);
    assert_eq!(times(&desk.letters()), [2, 2], "{}", killed.stderr);
    let resumed = desk.run(&["run", "nightly.yaml", "--resume"]);
    assert_eq!(resumed.code, 4, "{}", resumed.stderr);
    assert_eq!(times(&desk.letters()), [2, 2], "the same run");
    assert_eq!(desk.run(&["run", "nightly.yaml"]).code, 4);
    assert_eq!(times(&desk.letters()), [3, 3]);
}

#[test]
fn a_letter_that_a_person_closed_is_not_opened_or_counted() {
    let desk = nightly();
    assert_eq!(desk.run(&["run", "nightly.yaml"]).code, 4);
    let first = desk.letters()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(desk.dlq(&["dismiss", "--id", &first, "--why", "known"]).code, 0);
    let listed = desk.dlq(&["ls", "--format", "json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "closed letters are not listed");
    assert_eq!(desk.run(&["run", "nightly.yaml"]).code, 4);
    let all = desk.letters();
    assert_eq!((all.len(), times(&all)), (3, vec![1, 2, 1]));
    assert_eq!(all[0]["state"], "dismissed");
}

#[test]
fn a_letter_whose_replay_failed_counts_the_next_night_too() {
    let desk = nightly();
    assert_eq!(desk.run(&["run", "nightly.yaml"]).code, 4);
    let replayed = desk.dlq(&["replay", "--manifest", "nightly.yaml"]);
    assert_eq!(replayed.code, 4, "{}", replayed.stderr);
    assert_eq!(desk.run(&["run", "nightly.yaml"]).code, 4);
    let open = desk.dlq(&["ls", "--format", "json"]).json();
    let open = open.as_array().unwrap();
    assert_eq!(times(open), [2, 2], "the letter of the replay is the open letter of the record");
    assert!(open.iter().all(|l| l["lineage"]["generation"] == 1));
}
