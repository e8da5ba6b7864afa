//! Repairs, and what a replay makes of them.

use crate::dlq::desk::Desk;
use serde_json::json;

fn rules(desk: &Desk, dry: bool) -> Vec<[u64; 3]> {
    let all: [&[&str]; 5] = [
        &["--rule", "make_valid", "--all"],
        &["--rule", "close_rings", "--code", "UNCLOSED_RING"],
        &["--rule", "swap_axes", "--code", "AXIS_ORDER_SWAPPED"],
        &["--rule", "crs_lookup", "--default-crs", "EPSG:21781", "--all"],
        &["--rule", "clip", "--code", "OUT_OF_BOUNDS"],
    ];
    all.iter()
        .map(|args| {
            let mut words = [&["fix", "--format", "json"], *args].concat();
            if dry {
                words.push("--dry-run");
            }
            let ran = desk.dlq(&words);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            let count = &ran.json()[0]["count"];
            ["seen", "validated", "review"].map(|name| count[name].as_u64().unwrap())
        })
        .collect()
}

#[test]
fn each_remedy_repairs_its_letter_and_the_replay_gives_one_row_each() {
    let desk = Desk::parcels();
    let before = (desk.audited(), desk.letters());
    let predicted = rules(&desk, true);
    assert_eq!((desk.audited(), desk.letters()), before, "a dry run writes nothing");
    assert_eq!(predicted, [[1, 1, 0]; 5]);
    assert_eq!(rules(&desk, false), predicted, "and predicts the counts");
    assert_eq!(desk.states(), ["validated"; 5]);
    let keys: Vec<_> = before
        .1
        .iter()
        .zip(desk.letters())
        .map(|(was, is)| {
            assert_eq!(was["effect_key"], is["effect_key"], "the effect key stays");
            assert_eq!(was["lineage"]["root_key"], is["lineage"]["root_key"]);
            was["idempotency_key"] != is["idempotency_key"]
        })
        .collect();
    assert_eq!(keys, [true; 5], "a changed payload has a key of its own");

    let dry = desk.dlq(&["replay", "--all", "--dry-run", "--format", "json"]).json();
    assert_eq!(
        dry,
        json!({"dry_run": true, "replay": [{"pipeline": "parcels", "letters": 5}], "left_out": 0})
    );
    assert_eq!(desk.states(), ["validated"; 5]);
    let ran = desk.dlq(&[
        "replay",
        "--into",
        "out.geojson",
        "--all",
        "--verify",
        "--batch",
        "2",
        "--format",
        "json",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!((&ran.json()[0]["resolved"], &ran.json()[0]["state"]), (&5.into(), &"done".into()));
    assert_eq!(desk.states(), ["resolved"; 5]);
    let once = desk.out();
    let names: Vec<&str> = once.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["good", "good too", "bow tie", "unclosed", "swapped", "no crs", "too far"]);
    assert_eq!(once[2].1["type"], "MultiPolygon");
    assert_eq!(once[4].1["coordinates"], json!([116.3, 48.2]));
    let bern = &once[5].1["coordinates"];
    assert!((bern[0].as_f64().unwrap() - 7.44).abs() < 0.01, "{bern}");
    let again = desk.dlq(&["replay", "--into", "out.geojson", "--all", "--format", "json"]);
    assert_eq!((again.code, again.json(), desk.out()), (0, json!([]), once), "twice is once");
}

#[test]
fn a_change_beyond_the_tolerance_is_for_a_person() {
    let desk = Desk::new();
    // A hole that lies outside: by its linework the area nearly doubles.
    let bad = r#"{"type":"Feature","id":1,"properties":{"name":"x"},"geometry":{"type":"Polygon","coordinates":
        [[[0,0],[4,0],[4,4],[0,4],[0,0]],[[1,1],[1,3],[3,3],[3,1],[1,1]],[[1.5,1.5],[2.9,1.5],[2.9,2.9],[1.5,1.5]]]}}"#;
    desk.write("one.geojson", bad);
    desk.dlq(&["capture", "one.geojson", "--into", "out.geojson"]);
    let strict = desk
        .dlq(&["fix", "--rule", "make_valid", "--tolerance", "0.0001", "--all", "--format", "json"])
        .json();
    assert_eq!((&strict[0]["count"]["review"], &strict[0]["count"]["validated"]), (&1.into(), &0.into()));
    assert_eq!(desk.states(), ["review"]);
    let replay = desk.dlq(&["replay", "--all", "--dry-run", "--format", "json"]).json();
    assert_eq!(replay["left_out"], 1, "what is in review is not replayed");
    let loose =
        desk.dlq(&["fix", "--rule", "make_valid", "--tolerance", "0.5", "--all", "--format", "json"]).json();
    assert_eq!(loose[0]["count"]["validated"], 1);
}

#[test]
fn a_letter_is_edited_by_hand_and_must_pass_the_gates() {
    let desk = Desk::parcels();
    let id = desk.id("INVALID_GEOMETRY");
    desk.write(
        "bad.json",
        r#"{"type":"Feature","properties":{},"geometry":{"type":"Point","coordinates":[500,0]}}"#,
    );
    let ran = desk.dlq(&["edit", &id, "--from", "bad.json"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("outside the range of longitude and latitude"), "{}", ran.stderr);
    let good = r#"{"type":"Feature","properties":{"name":"by hand"},"geometry":{"type":"Point","coordinates":[15.5,47.1]}}"#;
    desk.write("good.json", good);
    assert_eq!(desk.dlq(&["edit", &id, "--from", "good.json"]).code, 0);
    assert_eq!(desk.acts(&id), ["edit"]);
    assert_eq!(desk.dlq(&["replay", "--into", "out.geojson", "--id", &id]).code, 0);
    assert!(desk.out().iter().any(|(name, _)| name == "by hand"));
    assert_eq!(desk.dlq(&["edit", &id, "--from", "good.json"]).code, 2, "a resolved letter is not edited");
}

#[test]
fn a_command_of_ones_own_and_renamed_fields() {
    let desk = Desk::parcels();
    desk.write("mend.sh", "#!/bin/sh\nread line\necho '{\"type\":\"Feature\",\"properties\":{\"name\":\"own\"},\"geometry\":{\"type\":\"Point\",\"coordinates\":[1,2]}}'\n");
    let own = [
        "fix",
        "--rule",
        "command",
        "--command",
        "sh mend.sh",
        "--code",
        "INVALID_GEOMETRY",
        "--format",
        "json",
    ];
    assert_eq!(desk.dlq(&own).json()[0]["count"]["validated"], 1);
    let broken =
        ["fix", "--rule", "command", "--command", "false", "--code", "UNCLOSED_RING", "--format", "json"];
    assert_eq!(desk.dlq(&broken).json()[0]["count"]["review"], 1);
    let remap =
        ["fix", "--rule", "remap", "--map", "name=title", "--code", "INVALID_GEOMETRY", "--format", "json"];
    assert_eq!(desk.dlq(&remap).json()[0]["count"]["validated"], 1);
    let id = desk.id("INVALID_GEOMETRY");
    let shown = desk.dlq(&["show", &id, "--reveal", "test", "--format", "json"]).json();
    assert!(shown["current"].as_str().unwrap().contains("\"title\":\"own\""), "{}", shown["current"]);
    assert_eq!(shown["remedies"].as_array().unwrap().len(), 2);
    assert_eq!(desk.dlq(&["fix", "--rule", "nonsense", "--all"]).code, 2);
    assert_eq!(desk.dlq(&["fix", "--rule", "make_valid"]).code, 2, "an empty filter is refused");
}
