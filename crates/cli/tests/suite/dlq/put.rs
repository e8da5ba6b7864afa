//! `dlq put`: letters from one's own program or shell.

use crate::dlq::desk::{Desk, end};
use crate::dlq::nightly::MANIFEST;
use std::io::Write;
use std::process::Stdio;

const FEATURE: &str = r#"{"type":"Feature","id":"P-17","properties":{"code":"P-17","v":"1"},"geometry":{"type":"Point","coordinates":[16.1,48.1]}}"#;

fn put<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["put", "--pipeline", "import", "--code", "SCHEMA_MISMATCH"], more].concat()
}

#[test]
fn a_feature_becomes_a_letter_on_the_map() {
    let desk = Desk::new();
    desk.write("parcel.json", FEATURE);
    let ran = desk.dlq(&put(&["--payload", "parcel.json", "--message", "the owner is missing"]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let letters = desk.letters();
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    assert_eq!(letter["id"], ran.stdout.trim());
    assert_eq!((&letter["pipeline"], &letter["stage"]), (&"import".into(), &"put".into()));
    assert_eq!(letter["failure"]["message"], "the owner is missing");
    assert_eq!((&letter["effect_key"], &letter["times"]), (&"import#P-17".into(), &1.into()));
    let table = desk.dlq(&["ls"]).stdout;
    assert!(table.contains("P-17") && table.contains("~16.1 48.1"), "{table}");
    assert_eq!(desk.dlq(&["map", "-o", "dead.html"]).code, 0);
    assert!(desk.read("dead.html").contains("\"lat\":48.1"));
    assert_eq!(desk.audited(), 1);
    // A position in another system is drawn where it is.
    let meters = FEATURE.replace("[16.1,48.1]", "[1792243.8,6124440.9]");
    desk.write("meters.json", &meters.replace("P-17", "P-18"));
    assert_eq!(desk.dlq(&put(&["--payload", "meters.json", "--crs", "EPSG:3857"])).code, 0);
    let table = desk.dlq(&["ls"]).stdout;
    assert_eq!(table.matches("~16.1 48.1").count(), 2, "{table}");
}

#[test]
fn the_same_record_and_code_is_one_letter_that_counts_the_calls() {
    let desk = Desk::new();
    desk.write("a.json", "{\"v\": 1}");
    desk.write("b.json", "{\"v\": 2}");
    let known = |args: &[&str]| {
        let ran = desk.dlq(&[&put(args)[..], &["--format", "json"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        !ran.json()["new"].as_bool().unwrap()
    };
    assert!(!known(&["--record", "17", "--payload", "a.json"]));
    assert!(known(&["--record", "17", "--payload", "a.json", "--message", "once more"]));
    assert!(known(&["--record", "17", "--payload", "b.json"]));
    assert!(!known(&["--record", "18", "--payload", "a.json"]), "another record");
    assert!(!known(&["--payload", "a.json"]), "by its content");
    assert!(known(&["--payload", "a.json"]));
    assert!(!known(&["--payload", "b.json"]));
    let other = ["put", "--pipeline", "import", "--code", "TIMEOUT", "--record", "17", "--payload", "a.json"];
    assert_eq!(desk.dlq(&other).code, 0);
    let letters = desk.letters();
    let times: Vec<_> = letters.iter().map(|l| l["times"].as_u64().unwrap()).collect();
    assert_eq!(times, [3, 1, 2, 1, 1]);
    assert_eq!(letters[0]["content_type"], "application/json");
    // After it is closed, the next call is a new letter.
    let id = letters[0]["id"].as_str().unwrap();
    assert_eq!(desk.dlq(&["dismiss", "--id", id, "--why", "known"]).code, 0);
    assert!(!known(&["--record", "17", "--payload", "a.json"]));
}

#[test]
fn a_letter_comes_through_a_pipe_and_bad_input_stores_nothing() {
    let desk = Desk::new();
    let mut child =
        desk.command(&[&["dlq", "--store", "letters.db"][..], &put(&["--payload", "-"])].concat());
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(FEATURE.as_bytes()).unwrap();
    assert_eq!(end(child).code, 0);
    assert_eq!(desk.letters().len(), 1);
    desk.write("text.json", "no json");
    desk.write("many.json", "{\"type\":\"FeatureCollection\",\"features\":[]}");
    desk.write("good.json", FEATURE);
    for (args, said) in [
        (put(&["--payload", "text.json"]), "not JSON"),
        (put(&["--payload", "many.json"]), "a letter holds one feature"),
        (put(&["--payload", "none.json"]), "none.json"),
        (put(&["--payload", "good.json", "--crs", "EPSG:1"]), "EPSG:1"),
        (put(&["--payload", "good.json", "--record", ""]), "--record"),
        (vec!["put", "--pipeline", "p", "--code", "lower", "--payload", "good.json"], "--code"),
        (vec!["put", "--pipeline", "p", "--code", "OK", "--payload", "good.json"], "--code"),
    ] {
        let ran = desk.dlq(&args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    }
    assert_eq!(desk.letters().len(), 1);
}

#[test]
fn a_letter_for_a_pipeline_with_a_manifest_is_replayed_from_its_first_step() {
    let desk = Desk::at(".tidegate/letters.db");
    desk.write("import.yaml", &MANIFEST.replace("id: nightly", "id: import"));
    desk.write("in.geojsonl", &format!("{}\n", FEATURE.replace("P-17", "P-1")));
    let ran = desk.run(&["run", "import.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    desk.write("good.json", FEATURE);
    desk.write("raw.json", "{\"v\": 1}");
    assert_eq!(desk.dlq(&put(&["--payload", "good.json"])).code, 0);
    assert_eq!(desk.dlq(&put(&["--payload", "raw.json", "--record", "raw"])).code, 0);
    let ran = desk.dlq(&["replay", "--manifest", "import.yaml"]);
    assert_eq!(ran.code, 4, "one of them is no feature: {}", ran.stderr);
    let letters = desk.letters();
    assert_eq!(letters[0]["state"], "resolved", "{letters:?}");
    assert!(desk.run(&["inspect", "out.gpkg"]).stdout.contains('2'));
    // Without a manifest there is nothing to replay through.
    let alone = Desk::new();
    alone.write("good.json", FEATURE);
    assert_eq!(alone.dlq(&put(&["--payload", "good.json"])).code, 0);
    let ran = alone.dlq(&["replay", "--all"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("name the manifest of import with --manifest FILE"), "{}", ran.stderr);
    // Nor without a run: nobody knows the fields of its source.
    alone.write("import.yaml", &desk.read("import.yaml"));
    let ran = alone.dlq(&["replay", "--manifest", "import.yaml"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot replay import"), "{}", ran.stderr);
}

#[test]
fn a_letter_for_a_captured_pipeline_is_replayed_only_if_it_is_a_feature() {
    let desk = Desk::parcels();
    desk.write("good.json", &FEATURE.replace("\"v\"", "\"name\""));
    desk.write("raw.json", "{\"name\": \"raw\"}");
    let put = ["put", "--pipeline", "parcels", "--code", "TIMEOUT", "--payload"];
    for file in ["good.json", "raw.json"] {
        assert_eq!(desk.dlq(&[&put[..], &[file]].concat()).code, 0);
    }
    let ran = desk.dlq(&["replay", "--into", "out.geojson", "--code", "TIMEOUT"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert_eq!(desk.out().len(), 3, "two were good");
    let open = desk.dlq(&["ls", "--code", "TIMEOUT"]).stdout;
    assert!(open.contains("not a GeoJSON feature"), "{open}");
}
