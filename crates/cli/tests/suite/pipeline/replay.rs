//! Dead letters that come back: from the step at which they failed, as the record was there, into
//! the sink of their run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::common::canned::{Canned, json as answer};
use crate::common::running::Ran;
use crate::pipeline::bench::{Bench, polygon};

pub(crate) fn dlq(bench: &Bench, args: &[&str]) -> Ran {
    bench.tidegate(&[&["dlq"], args].concat())
}

/// The open letters.
pub(crate) fn open(bench: &Bench) -> Vec<Value> {
    let ran = dlq(bench, &["ls", "--format", "ndjson"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The payload of a letter as it is now.
pub(crate) fn payload(bench: &Bench, letter: &Value) -> Value {
    let id = letter["id"].as_str().unwrap();
    let shown = dlq(bench, &["show", id, "--reveal", "test", "--format", "json"]).json();
    serde_json::from_str(shown["current"].as_str().unwrap()).unwrap()
}

/// Sets a property of the payload of a letter.
pub(crate) fn edit(bench: &Bench, letter: &Value, name: &str, value: Value) {
    let mut feature = payload(bench, letter);
    feature["properties"][name] = value;
    bench.write("edited.json", &feature.to_string());
    let edited = dlq(bench, &["edit", letter["id"].as_str().unwrap(), "--from", "edited.json"]);
    assert_eq!(edited.code, 0, "{}", edited.stderr);
}

/// A service with an owner and a place for everything but what `bad` is in, until it is kind.
pub(crate) fn service() -> (Canned, Arc<AtomicBool>) {
    let kind = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&kind);
    let server = Canned::start(move |head| {
        let line = head.lines().next().unwrap_or_default();
        if line.contains("bad") && !told.load(Ordering::SeqCst) {
            return answer("422 Unprocessable Content", "{}");
        }
        answer("200 OK", r#"{"owner":"Ada","results":[{"lat":48.5,"lon":16.25,"label":"Ada","score":0.5}]}"#)
    });
    (server, kind)
}

/// Five bow ties between five squares.
pub(crate) fn bow_ties() -> String {
    (0..10)
        .map(|n| {
            let (x, y) = (f64::from(n), 48.123_456);
            let (e, t) = (x + 0.5, y + 0.5);
            let ring = if n % 2 == 0 {
                format!("[{x},{y}],[{e},{y}],[{e},{t}],[{x},{t}],[{x},{y}]")
            } else {
                format!("[{x},{y}],[{e},{t}],[{e},{y}],[{x},{t}],[{x},{y}]")
            };
            polygon(&ring, &format!(r#"{{"id":{n}}}"#))
        })
        .collect()
}

pub(crate) const MEND: &str = "tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }\ndead_letters: { incident_share: 1, remedies: [{ rule: make_valid, tolerance: 0.1 }] }\nsource: { file: in.geojsonl }\n";

/// The steps that add a field `owner`, and whether they call the service.
const ADDING: [(&str, bool); 3] = [
    ("http: { service: s, path: \"/of/{street}\", take: { owner: /owner } }", true),
    ("lookup: { file: owners.csv, on: street, take: [owner] }", false),
    ("geocode: { service: s, address: [street], label: owner }", true),
];

/// Where the second of three rows fails: at the step that adds a field, at the next one, at a gate,
/// at the sink. With its street, its number and its key.
const FAILING: [(&str, &str); 4] = [
    ("steps[0]", "2,bad,2,k2"),
    ("steps[1]", "2,good,x,k2"),
    ("gate", "2,good,500,k2"),
    ("sink", "2,good,2,"),
];

#[test]
fn a_letter_goes_on_from_its_step_with_the_fields_it_had_there() {
    for (step, calls) in ADDING {
        for (stage, row) in FAILING {
            let what = format!("{step} failing at {stage}");
            let (server, kind) = service();
            let bench = Bench::new();
            bench.write("in.csv", &format!("id,street,n,k\n1,good,1,k1\n{row}\n3,good,3,k3\n"));
            bench.write("owners.csv", "street,owner\ngood,Ada\n");
            bench.manifest(&format!(
                "dead_letters: {{}}\nsource: {{ file: in.csv, crs: EPSG:4326 }}\nservices: {{ s: {{ profile: generic, url: \"{}\" }} }}\nsteps:\n  - {step}\n  - coerce: {{ fields: {{ n: int }} }}\ngates:\n  - {{ check: range, fields: [n], max: 100 }}\nsink: {{ file: out.gpkg, key: [k] }}",
                server.url()
            ));
            assert_eq!(bench.runs(4)["written"], 2, "{what}");
            let letters = open(&bench);
            assert_eq!(letters.len(), 1, "{what}");
            let at = letters[0]["stage"].as_str().unwrap();
            assert!(at.starts_with(stage), "{what}: {at}");
            // The record as it came to that stage: the field is there only behind the step.
            let owner = &payload(&bench, &letters[0])["properties"]["owner"];
            assert_eq!(owner, &if stage == "steps[0]" { json!(null) } else { json!("Ada") }, "{what}");
            assert_eq!(
                payload(&bench, &letters[0])["properties"].as_object().unwrap().contains_key("owner"),
                stage != "steps[0]",
                "{what}"
            );
            let sent = server.seen().len();
            match stage {
                "steps[0]" => {
                    kind.store(true, Ordering::SeqCst);
                    bench.write("owners.csv", "street,owner\ngood,Ada\nbad,Ada\n");
                }
                "sink" => edit(&bench, &letters[0], "k", json!("k2")),
                "gate" => edit(&bench, &letters[0], "n", json!(2)),
                _ => edit(&bench, &letters[0], "n", json!("2")),
            }
            // The source is not needed.
            std::fs::remove_file(bench.path("in.csv")).unwrap();
            let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all", "--verify"]);
            assert_eq!(replayed.code, 0, "{what}: {}", replayed.stderr);
            assert!(!replayed.stderr.contains("differs"), "{what}: {}", replayed.stderr);
            let rows = bench.sql("out.gpkg", "SELECT id, n, k, owner FROM out ORDER BY id");
            assert_eq!(rows, ["1|1|k1|Ada", "2|2|k2|Ada", "3|3|k3|Ada"], "{what}");
            assert_eq!(open(&bench).len(), 0, "{what}");
            let more = usize::from(calls && stage == "steps[0]");
            assert_eq!(server.seen().len(), sent + more, "{what}: only the failed step calls");
        }
    }
}

#[test]
fn fields_that_flatten_found_in_the_source_are_known_without_it() {
    let bench = Bench::new();
    let line = |id: u32, n: &str| {
        format!(
            r#"{{"type":"Feature","properties":{{"id":{id},"tags":{{"a":{id},"b":{{"c":"x"}}}},"n":"{n}"}},"geometry":{{"type":"Point","coordinates":[16.123456,48.123456]}}}}"#
        ) + "\n"
    };
    bench.write("in.geojsonl", &(line(1, "1") + &line(2, "x")));
    bench.manifest("dead_letters: {}\nsource: { file: in.geojsonl }\nsteps:\n  - flatten: { field: tags }\n  - coerce: { fields: { n: int } }\nsink: { file: out.gpkg, key: [id] }");
    assert_eq!(bench.runs(4)["written"], 1);
    let letters = open(&bench);
    edit(&bench, &letters[0], "n", json!("2"));
    std::fs::remove_file(bench.path("in.geojsonl")).unwrap();
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all", "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    assert!(!replayed.stderr.contains("differs"), "{}", replayed.stderr);
    let columns = bench.sql("out.gpkg", "SELECT group_concat(name) FROM pragma_table_info('out')");
    assert_eq!(columns, ["fid,geom,id,n,tags.a,tags.b.c"]);
    let rows = bench.sql("out.gpkg", "SELECT id, n, \"tags.a\", \"tags.b.c\" FROM out ORDER BY id");
    assert_eq!(rows, ["1|1|1|x", "2|2|2|x"]);
}

#[test]
fn measures_which_geojson_cannot_hold_are_replayed() {
    let bench = Bench::new();
    bench.write("in.csv", "id,n,wkt\n1,1,POINT M (16.123456 48.123456 7)\n2,x,POINT M (16.2 48.2 8.5)\n");
    bench.manifest("dead_letters: {}\nsource: { file: in.csv, crs: EPSG:4326 }\nsteps:\n  - coerce: { fields: { n: int } }\nsink: { file: out.gpkg, key: [id] }");
    assert_eq!(bench.runs(4)["written"], 1);
    let letters = open(&bench);
    let mut feature = payload(&bench, &letters[0]);
    assert_eq!(feature["geometry"]["wkt"], "POINT M (16.2 48.2 8.5)");
    feature["properties"]["n"] = json!("2");
    bench.write("edited.json", &feature.to_string());
    let id = letters[0]["id"].as_str().unwrap();
    assert_eq!(dlq(&bench, &["edit", id, "--from", "edited.json"]).code, 0);
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all", "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    let rows = bench.sql("out.gpkg", "SELECT id, n, length(geom) FROM out ORDER BY id");
    let (first, second) = (rows[0].clone(), rows[1].clone());
    assert_eq!(first.replace("1|1", "2|2"), second, "both have a measure");
}

#[test]
fn a_replay_of_letters_that_are_gone_ends() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &bow_ties());
    bench.manifest(&format!("{MEND}sink: {{ file: out.gpkg, key: [id] }}"));
    bench.runs(4);
    assert_eq!(dlq(&bench, &["fix", "--manifest", "m.yaml"]).code, 0);
    let killed = bench
        .command(&["dlq", "replay", "--manifest", "m.yaml", "--all"])
        .env("TIDEGATE_CRASH", "replay:0")
        .output()
        .unwrap();
    assert_eq!(killed.status.code(), None);
    let list = dlq(&bench, &["replay", "--list"]).json();
    assert_eq!((&list[0]["left"], &list[0]["state"]), (&json!(5), &json!("running")));
    let db = rusqlite::Connection::open(bench.path(".tidegate/letters.db")).unwrap();
    db.execute_batch("DELETE FROM body; DELETE FROM letter").unwrap();
    drop(db);
    let resumed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--resume", "1"]);
    assert_eq!(resumed.code, 2, "{}", resumed.stderr);
    assert!(resumed.stderr.contains("replay 1 is done, not running"), "{}", resumed.stderr);
    assert_eq!(dlq(&bench, &["replay", "--list"]).json(), json!([]));
}

#[test]
fn a_letter_that_died_in_a_killed_replay_is_not_taken_for_resolved() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &bow_ties());
    bench.manifest(&format!(
        "{MEND}gates:\n  - {{ check: range, fields: [id], max: 5 }}\nsink: {{ file: out.gpkg, mode: append }}"
    ));
    // Two squares and three bow ties are beyond the range.
    assert_eq!(bench.runs(4)["rejected"], 7);
    assert_eq!(dlq(&bench, &["fix", "--manifest", "m.yaml"]).code, 0);
    let killed = bench
        .command(&["dlq", "replay", "--manifest", "m.yaml", "--all"])
        .env("TIDEGATE_CRASH", "replayed:0")
        .output()
        .unwrap();
    assert_eq!(killed.status.code(), None);
    let resumed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--resume", "1", "--verify"]);
    assert_eq!(resumed.code, 4, "{}", resumed.stderr);
    assert_eq!(bench.sql("out.gpkg", "SELECT id FROM out ORDER BY id"), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(open(&bench).len(), 4, "6 to 9 are still open");
}

#[test]
fn a_table_that_is_appended_to_takes_replayed_records_without_a_unique_key() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &bow_ties());
    bench.manifest(&format!("{MEND}sink: {{ file: out.gpkg, mode: append, key: [id] }}"));
    bench.runs(4);
    // A second run appends the squares once more.
    bench.runs(4);
    assert_eq!(dlq(&bench, &["fix", "--manifest", "m.yaml"]).code, 0);
    let killed = bench
        .command(&["dlq", "replay", "--manifest", "m.yaml", "--all"])
        .env("TIDEGATE_CRASH", "replayed:0")
        .output()
        .unwrap();
    assert_eq!(killed.status.code(), None);
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--resume", "1", "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*), count(DISTINCT id) FROM out"), ["15|10"]);
}
