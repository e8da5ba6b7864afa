//! Rejected records as dead letters of a run: each once, durable, repaired and replayed into the
//! sink.

use serde_json::{Value, json};
use tidegate_chaos::{Config, FaultKind, spec};

use crate::common::provider::{chaos, fault};
use crate::common::running::Ran;
use crate::pipeline::bench::{BOW_TIE, Bench, SQUARE, addresses, point, polygon};
use crate::pipeline::kill::{BATCHES, STEPS, books, chain, input};

const DEAD: &str = "dead_letters: {}\n";

fn dlq(bench: &Bench, args: &[&str]) -> Ran {
    bench.tidegate(&[&["dlq"], args].concat())
}

/// The letters: stage, code, message and key, sorted.
fn letters(bench: &Bench, args: &[&str]) -> Vec<String> {
    let ran = dlq(bench, &[&["ls", "--format", "ndjson", "--limit", "10000"], args].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let mut all: Vec<String> = ran
        .stdout
        .lines()
        .map(|line| {
            let letter: Value = serde_json::from_str(line).unwrap();
            format!("{} {} {}", letter["stage"], letter["failure"]["code"], letter["idempotency_key"])
        })
        .collect();
    all.sort();
    all
}

#[test]
fn every_record_that_was_given_up_is_a_letter_with_its_story() {
    let bench = Bench::new();
    bench.write(
        "in.geojsonl",
        &(polygon(SQUARE, r#"{"id":1,"v":"1"}"#)
            + &polygon(BOW_TIE, r#"{"id":2,"v":"2"}"#)
            + &polygon(SQUARE, r#"{"id":3,"v":"x"}"#)
            + &polygon(SQUARE, r#"{"id":null,"v":"4"}"#)
            + "{\"type\":\"Feature\",\"properties\":{\"id\":5},\"geometry\":{\"type\":\"Polygon\",\"coordinates\":7}}\n"),
    );
    bench.manifest(&format!(
        "{DEAD}source: {{ file: in.geojsonl }}\nsteps:\n  - coerce: {{ fields: {{ v: int }} }}\nsink: {{ file: out.gpkg, key: [id] }}"
    ));
    let result = bench.runs(4);
    assert_eq!((&result["written"], &result["rejected"]), (&json!(1), &json!(4)));
    assert_eq!(result["rejects"], ".tidegate/letters.db");
    assert!(!bench.path(".tidegate/test/rejects.ndjson").exists());
    let stages: Vec<String> =
        letters(&bench, &[]).iter().map(|letter| letter.split('"').nth(1).unwrap().to_owned()).collect();
    assert_eq!(stages, ["gate", "read", "sink", "steps[0] coerce"]);
    // Tomorrow the same records fail again, and are the same letters.
    let before = letters(&bench, &[]);
    assert_eq!(bench.runs(4)["rejected"], 4);
    assert_eq!(letters(&bench, &[]), before);
    let stats = dlq(&bench, &["stats"]);
    assert!(stats.stdout.contains("CONSTRAINT_VIOLATION"), "{}", stats.stdout);
}

#[test]
fn a_run_that_is_killed_everywhere_leaves_each_letter_once() {
    let sink = "sink: { file: out.gpkg, key: [id] }";
    let whole = Bench::new();
    whole.write("in.geojsonl", &input());
    whole.manifest(&format!("{DEAD}{STEPS}\n{sink}"));
    let expected = whole.runs(4);
    let bench = Bench::new();
    bench.write("in.geojsonl", &input());
    bench.manifest(&format!("{DEAD}{STEPS}\n{sink}"));
    let (result, kills) = chain(&bench);
    assert_eq!(kills, BATCHES * 3 + 1);
    assert_eq!(books(&result), books(&expected));
    let found = letters(&bench, &[]);
    assert_eq!(found, letters(&whole, &[]));
    assert_eq!(json!(found.len()), result["rejected"]);
}

#[test]
fn what_cannot_be_stored_stops_the_run_before_its_batch_counts() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &input());
    bench.manifest(&format!("{DEAD}{STEPS}\nsink: {{ file: out.gpkg, key: [id] }}"));
    std::fs::create_dir_all(bench.path(".tidegate")).unwrap();
    assert_eq!(dlq(&bench, &["capacity", "3"]).code, 0);
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("store is full"), "{}", ran.stderr);
    assert!(!bench.path("out.gpkg").exists());
    assert!(letters(&bench, &[]).len() <= 3);
    // With room again it goes on, and nothing was lost.
    assert_eq!(dlq(&bench, &["capacity", "1000"]).code, 0);
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let result = ran.json();
    assert_eq!(json!(letters(&bench, &[]).len()), result["rejected"]);
    assert_eq!((&result["read"], &result["balanced"]), (&json!(500), &json!(true)));
}

#[test]
fn a_batch_that_fails_as_a_whole_is_one_incident() {
    let bench = Bench::new();
    let good: String =
        (0..25).map(|n| point(16.123_456, 48.1, &format!(r#"{{"id":{n},"v":"{n}"}}"#))).collect();
    let bad: String =
        (25..50).map(|n| point(16.123_456, 48.1, &format!(r#"{{"id":{n},"v":"x"}}"#))).collect();
    bench.write("in.geojsonl", &(good.clone() + &bad));
    let parts = |incident: &str| {
        format!(
            "dead_letters: {{ {incident} }}\nsource: {{ file: in.geojsonl, batch_size: 25 }}\nsteps:\n  - coerce: {{ fields: {{ v: int }} }}\nsink: {{ file: out.gpkg, key: [id] }}"
        )
    };
    bench.manifest(&parts(""));
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 75, "{}", ran.stderr);
    let result = ran.json();
    assert_eq!((&result["status"], &result["written"]), (&json!("suspended"), &json!(25)));
    assert!(ran.stderr.contains("25 of 25 records failed"), "{}", ran.stderr);
    assert_eq!(letters(&bench, &[]).len(), 0);
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 75, "{}", ran.stderr);
    assert!(ran.stderr.contains("suspended by incident 1"), "{}", ran.stderr);
    assert_eq!(dlq(&bench, &["incidents", "--close", "1"]).code, 0);
    // A person has looked at it: these are letters after all.
    bench.manifest(&parts("incident_share: 1"));
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert_eq!(letters(&bench, &[]).len(), 25);
}

const MENDED: &str = "tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
source: { file: in.geojsonl }
steps:
  - rename: { nr: id }
  - reproject: EPSG:31287
  - coerce: { fields: { v: int } }
  - promote_to_multi: true
";

fn broken() -> String {
    polygon("[16.1,48.1],[16.2,48.1],[16.2,48.2],[16.1,48.2],[16.1,48.1]", r#"{"nr":1,"v":"1"}"#)
        + &polygon("[16.1,48.1],[16.2,48.2],[16.2,48.1],[16.1,48.2],[16.1,48.1]", r#"{"nr":2,"v":"2"}"#)
        + &polygon("[16.3,48.1],[16.4,48.1],[16.4,48.2],[16.3,48.2],[16.3,48.1]", r#"{"nr":3,"v":"x"}"#)
}

#[test]
fn letters_are_mended_by_the_rules_of_the_manifest_and_replayed_from_their_stage() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &broken());
    bench.manifest(&format!(
        "dead_letters: {{ remedies: [{{ rule: make_valid, tolerance: 0.1 }}] }}\n{MENDED}sink: {{ file: out.gpkg, key: [id] }}"
    ));
    assert_eq!(bench.runs(4)["rejected_by_code"], json!({"INVALID_GEOMETRY": 1, "SCHEMA_MISMATCH": 1}));
    let fixed = dlq(&bench, &["fix", "--manifest", "m.yaml"]);
    assert_eq!(fixed.code, 0, "{}", fixed.stderr);
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--state", "validated", "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    let rows = "SELECT id, v, ST_GeometryType(geom) FROM out ORDER BY id";
    let rows = rows.replace("ST_GeometryType(geom)", "length(geom) > 100");
    assert_eq!(bench.sql("out.gpkg", &rows), ["1|1|1", "2|2|1"]);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM rtree_out_geom"), ["2"]);
    // What nobody mended dies again, at its stage, and is linked to its first death.
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--code", "SCHEMA_MISMATCH"]);
    assert_eq!(replayed.code, 4, "{}", replayed.stderr);
    // An edit of the payload as it was at that stage is enough: names and system are those there.
    let open = dlq(&bench, &["ls", "--state", "captured", "--format", "ndjson"]);
    let letter: Value = serde_json::from_str(open.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((&letter["lineage"]["generation"], &letter["stage"]), (&json!(1), &json!("steps[2] coerce")));
    let shown =
        dlq(&bench, &["show", letter["id"].as_str().unwrap(), "--reveal", "test", "--format", "json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    let mut payload: Value = serde_json::from_str(shown["current"].as_str().unwrap()).unwrap();
    assert_eq!(payload["properties"], json!({"id": 3, "v": "x"}));
    payload["properties"]["v"] = json!("33");
    bench.write("edited.json", &payload.to_string());
    let edited = dlq(&bench, &["edit", letter["id"].as_str().unwrap(), "--from", "edited.json"]);
    assert_eq!(edited.code, 0, "{}", edited.stderr);
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--state", "validated", "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    assert_eq!(bench.sql("out.gpkg", "SELECT id, v FROM out ORDER BY id"), ["1|1", "2|2", "3|33"]);
    assert_eq!(letters(&bench, &["--state", "captured"]).len(), 0);
}

/// A replay that dies when its batch is in the sink and its letters are still open.
fn replay_killed(bench: &Bench) {
    let killed = bench
        .command(&["dlq", "replay", "--manifest", "m.yaml", "--state", "validated"])
        .env("TIDEGATE_CRASH", "replayed:0")
        .output()
        .unwrap();
    assert_eq!(killed.status.code(), None, "{}", String::from_utf8_lossy(&killed.stderr));
}

#[test]
fn a_replay_that_is_killed_appends_nothing_twice() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &broken());
    bench.manifest(&format!(
        "dead_letters: {{ remedies: [{{ rule: make_valid, tolerance: 0.1 }}] }}\n{MENDED}sink: {{ file: out.gpkg, mode: append }}"
    ));
    bench.runs(4);
    assert_eq!(dlq(&bench, &["fix", "--manifest", "m.yaml"]).code, 0);
    replay_killed(&bench);
    assert_eq!(bench.sql("out.gpkg", "SELECT id FROM out ORDER BY id"), ["1", "2"], "it is in the sink");
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--resume", "1", "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    assert_eq!(bench.sql("out.gpkg", "SELECT id FROM out ORDER BY id"), ["1", "2"], "once");
}

#[test]
fn a_replay_waits_for_the_run_and_refuses_what_is_written_whole() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &input());
    bench.manifest(&format!("{DEAD}{STEPS}\nsink: {{ file: out.gpkg, key: [id] }}"));
    let output = bench.command(&["run", "m.yaml"]).env("TIDEGATE_CRASH", "commit:3").output().unwrap();
    assert_eq!(output.status.code(), None);
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all"]);
    assert_eq!(replayed.code, 75, "{}", replayed.stderr);
    assert!(replayed.stderr.contains("did not finish"), "{}", replayed.stderr);
    let bench = Bench::new();
    bench.write("in.geojsonl", &input());
    bench.manifest(&format!("{DEAD}{STEPS}\nsink: {{ file: out.geojsonl }}"));
    bench.runs(4);
    let before = bench.read("out.geojsonl");
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all"]);
    assert_eq!(replayed.code, 75, "{}", replayed.stderr);
    assert!(
        replayed.stderr.contains("without a key the row of a replayed record cannot be found"),
        "{}",
        replayed.stderr
    );
    assert!(replayed.stderr.contains("mode: replace, key: [id]"), "{}", replayed.stderr);
    for (sink, says) in [
        ("out.gml, mode: replace, key: [id]", "cannot be read back without loss"),
        ("out.esrijson, mode: replace, key: [id]", "write to a .gpkg file"),
    ] {
        bench.manifest(&format!("{DEAD}{STEPS}\nsink: {{ file: {sink} }}"));
        bench.runs(4);
        let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all"]);
        assert_eq!(replayed.code, 75, "{}", replayed.stderr);
        assert!(replayed.stderr.contains(says), "{}", replayed.stderr);
    }
    assert_eq!(bench.read("out.geojsonl"), before);
}

/// Records of every kind of value, with one that fails at its step and one at the gate.
fn kinds() -> String {
    let ring = "[16.1,48.1],[16.2,48.1],[16.2,48.2],[16.1,48.2],[16.1,48.1]";
    let bow = "[16.1,48.1],[16.2,48.2],[16.2,48.1],[16.1,48.2],[16.1,48.1]";
    let more = r#""t":"007","x":1.5,"b":true,"none":null,"q":"a\"b, c\nd""#;
    polygon(ring, &format!(r#"{{"id":"a1","v":"1",{more}}}"#))
        + &polygon(bow, &format!(r#"{{"id":"a2","v":"2",{more}}}"#))
        + &polygon(ring, &format!(r#"{{"id":"a3","v":"x",{more}}}"#))
        + &polygon(ring, &format!(r#"{{"id":"a4","v":"4",{more}}}"#))
}

#[test]
fn a_file_that_is_written_whole_takes_replayed_records_by_their_key() {
    for name in ["out.geojson", "out.geojsonl", "out.geojsons", "out.csv", "out.fgb", "out.parquet"] {
        let bench = Bench::new();
        bench.write("in.geojsonl", &kinds());
        let parts = format!(
            "tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: false }}\ndead_letters: {{ remedies: [{{ rule: make_valid, tolerance: 0.1 }}] }}\nsource: {{ file: in.geojsonl }}\nsteps:\n  - coerce: {{ fields: {{ v: int }} }}\n  - promote_to_multi: true\nsink: {{ file: {name}, mode: replace, key: [id] }}"
        );
        bench.manifest(&parts);
        assert_eq!(bench.runs(4)["written"], 2, "{name}");
        assert_eq!(dlq(&bench, &["fix", "--manifest", "m.yaml"]).code, 0);
        // Killed after the file took its place and before the letter was closed.
        replay_killed(&bench);
        let once = std::fs::read(bench.path(name)).unwrap();
        let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--resume", "1", "--verify"]);
        assert_eq!(replayed.code, 0, "{name}: {}", replayed.stderr);
        assert!(std::fs::read(bench.path(name)).unwrap() == once, "{name}: twice is once");
        // Back again, through a second pipeline: what was there is as it was, what came is there.
        bench.write("own.yaml", &bench.read("m.yaml"));
        bench.manifest(&format!(
            "source: {{ file: {name}, crs: EPSG:4326 }}\nsink: {{ file: back.geojsonl }}"
        ));
        bench.write("m.yaml", &bench.read("m.yaml").replace("id: test", "id: back"));
        if name != "out.geojsons" {
            assert_eq!(bench.runs(0)["written"], 3, "{name}");
            let mut found = bench.properties("back.geojsonl");
            found.sort_by_key(|p| p["id"].as_str().unwrap().to_owned());
            let text = |n: i64| if name == "out.csv" { json!(n.to_string()) } else { json!(n) };
            let ids: Vec<_> =
                found.iter().map(|p| (p["id"].clone(), p["v"].clone(), p["t"].clone())).collect();
            let expected =
                [("a1", 1), ("a2", 2), ("a4", 4)].map(|(id, v)| (json!(id), text(v), json!("007")));
            assert_eq!(ids, expected, "{name}");
            assert!(found.iter().all(|p| p["q"] == "a\"b, c\nd" && p["none"].is_null()), "{name}: {found:?}");
        }
        // The row of a known key is replaced, not doubled: the third record, edited into the first.
        let open = dlq(&bench, &["ls", "--state", "captured", "--format", "ndjson"]);
        let letter: Value = serde_json::from_str(open.stdout.lines().next().unwrap()).unwrap();
        let id = letter["id"].as_str().unwrap();
        let shown = dlq(&bench, &["show", id, "--reveal", "test", "--format", "json"]);
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        let mut payload: Value = serde_json::from_str(shown["current"].as_str().unwrap()).unwrap();
        payload["properties"]["id"] = json!("a1");
        payload["properties"]["v"] = json!("11");
        bench.write("edited.json", &payload.to_string());
        assert_eq!(dlq(&bench, &["edit", id, "--from", "edited.json"]).code, 0);
        let replayed = dlq(&bench, &["replay", "--manifest", "own.yaml", "--state", "validated", "--verify"]);
        assert_eq!(replayed.code, 0, "{name}: {}", replayed.stderr);
        if name != "out.geojsons" {
            assert_eq!(bench.runs(0)["written"], 3, "{name}");
            let found = bench.properties("back.geojsonl");
            let first = found.iter().find(|p| p["id"] == "a1").unwrap();
            assert!(first["v"] == 11 || first["v"] == "11", "{name}: {first}");
        }
    }
}

#[test]
fn a_key_that_does_not_tell_records_apart_leaves_the_file_alone() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &kinds().replace("a4", "a1").replace("a2", "a1"));
    bench.manifest("tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }\ndead_letters: { remedies: [{ rule: make_valid, tolerance: 0.1 }] }\nsource: { file: in.geojsonl }\nsteps:\n  - coerce: { fields: { v: int } }\n  - promote_to_multi: true\nsink: { file: out.geojsonl, mode: replace, key: [id] }");
    bench.runs(4);
    let before = bench.read("out.geojsonl");
    assert_eq!(dlq(&bench, &["fix", "--manifest", "m.yaml"]).code, 0);
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--state", "validated"]);
    assert_eq!(replayed.code, 75, "{}", replayed.stderr);
    assert!(replayed.stderr.contains("several records have the same key"), "{}", replayed.stderr);
    assert_eq!(bench.read("out.geojsonl"), before);
}

#[test]
fn a_rate_bounds_letters_and_calls_of_a_replay() {
    // The service fails twelve times, and refuses what comes faster than six times a second; a
    // replay that keeps to less never meets that.
    let limit = spec::throttle("bucket:6/s,burst=20").unwrap();
    let faults = vec![fault(FaultKind::Status(500), "@1..12")];
    let server = chaos(Config { limit, faults, ..Config::default() });
    let bench = Bench::new();
    bench.write("in.csv", &addresses(12));
    bench.manifest(&format!(
        "dead_letters: {{ incident_share: 1 }}\ncircuit_breaker: {{ minimum_calls: 1000 }}\nsource: {{ file: in.csv }}\nservices: {{ g: {{ profile: generic, url: \"{}\" }} }}\nsteps:\n  - geocode: {{ service: g, address: [street] }}\nsink: {{ file: out.gpkg, key: [id] }}",
        server.url()
    ));
    assert_eq!(bench.runs(4)["rejected"], 12);
    assert_eq!((server.stats().requests, server.stats().throttled), (12, 0));
    let began = std::time::Instant::now();
    let replayed =
        dlq(&bench, &["replay", "--manifest", "m.yaml", "--stage", "steps[0] geocode", "--rate", "4/s"]);
    assert_eq!(replayed.code, 0, "{}\n{}", replayed.stdout, replayed.stderr);
    assert_eq!((server.stats().requests, server.stats().throttled), (24, 0), "each once, and never too fast");
    // Four may go at once; nothing can be faster than that.
    assert!(began.elapsed().as_secs_f64() >= 2.0, "{:?}", began.elapsed());
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*), count(geom) FROM out"), ["12|12"]);
}

#[test]
fn a_rate_bounds_a_replay_that_asks_nobody() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &input());
    bench.manifest(&format!("{DEAD}{STEPS}\nsink: {{ file: out.gpkg, key: [id] }}"));
    let dead = bench.runs(4)["rejected"].as_u64().unwrap();
    assert!(dead > 10, "{dead}");
    let began = std::time::Instant::now();
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all", "--rate", "10/s"]);
    assert_eq!(replayed.code, 4, "{}", replayed.stderr);
    assert!(began.elapsed().as_secs_f64() >= (dead - 10) as f64 / 10.0, "{:?} for {dead}", began.elapsed());
    let wrong = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all", "--rate", "fast"]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
}
