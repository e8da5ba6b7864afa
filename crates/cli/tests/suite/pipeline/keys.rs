//! One record has one key, however it is spelled and whoever gives it up.

use serde_json::Value;

use crate::common::canned::{Canned, json};
use crate::pipeline::bench::{Bench, point};

/// A bow tie in five spellings: as it is, attributes in another order, numbers written otherwise,
/// another start of the ring, the other direction.
fn spellings() -> [String; 5] {
    let feature = |properties: &str, ring: &str| {
        format!(
            r#"{{"type":"Feature","properties":{{{properties}}},"geometry":{{"type":"Polygon","coordinates":[[{ring}]]}}}}"#
        ) + "\n"
    };
    [
        feature(r#""a":1,"b":0"#, "[0,0],[2,2],[2,0],[0,2],[0,0]"),
        feature(r#""b":0,"a":1"#, "[0,0],[2,2],[2,0],[0,2],[0,0]"),
        feature(r#""a":1.0,"b":-0.0"#, "[0,0],[2,2.0],[2e0,0],[-0.0,2],[0,0]"),
        feature(r#""a":1,"b":0"#, "[2,0],[0,2],[0,0],[2,2],[2,0]"),
        feature(r#""a":1,"b":0"#, "[0,0],[0,2],[2,0],[2,2],[0,0]"),
    ]
}

fn letters(bench: &Bench, store: &str) -> Vec<Value> {
    let ran = bench.tidegate(&["dlq", "ls", "--store", store, "--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn only_key(bench: &Bench, store: &str) -> String {
    let letters = letters(bench, store);
    assert_eq!(letters.len(), 1, "{letters:#?}");
    letters[0]["idempotency_key"].as_str().unwrap().to_owned()
}

#[test]
fn run_and_capture_give_five_spellings_of_a_feature_one_key() {
    let bench = Bench::new();
    for (n, spelling) in spellings().iter().enumerate() {
        // Where it stands in the file makes no difference either.
        let before: String = (0..n).map(|at| point(at as f64, 1.0, r#"{"a":7,"b":7}"#)).collect();
        bench.write("in.geojsonl", &(before + spelling));
        bench.manifest(
            "source: { file: in.geojsonl }\nsink: { file: out.geojsonl }\ndead_letters: { store: run.db }",
        );
        let report = bench.runs(4);
        assert_eq!(report["rejected"], 1, "{spelling}");
        let args = ["--pipeline", "test", "--into", "good.gpkg", "--store", "captured.db"];
        let ran = bench.tidegate(&[&["dlq", "capture", "in.geojsonl"], &args[..]].concat());
        assert_eq!(ran.code, 4, "{spelling}: {}", ran.stderr);
    }
    assert_eq!(only_key(&bench, "run.db"), only_key(&bench, "captured.db"));
}

#[test]
fn geocode_gives_five_spellings_of_a_row_one_key() {
    let server = Canned::start(|_| json("400 Bad Request", "{}"));
    let bench = Bench::new();
    for spelling in [
        "id,address\n7,1 Harbour Road\n",
        "address,id\n1 Harbour Road,7\n",
        "id,address\n\"7\",\"1 Harbour Road\"\n",
        "id;address\r\n7;1 Harbour Road\r\n",
        "\u{feff}id,address\r\n7,\"1 Harbour Road\"",
    ] {
        bench.write("in.csv", spelling);
        let ran = bench.tidegate(&[
            "geocode",
            "in.csv",
            "--address",
            "address",
            "--url",
            &server.url(),
            "-o",
            "out.csv",
            "--dead-letters",
            "letters.db",
            "--no-cache",
        ]);
        assert_eq!(ran.code, 4, "{spelling:?}: {}", ran.stderr);
    }
    only_key(&bench, "letters.db");
}

#[test]
fn equal_records_without_an_identifier_stay_several() {
    let bench = Bench::new();
    let twice = spellings()[0].repeat(2);
    bench.write("in.geojsonl", &twice);
    bench.manifest(
        "source: { file: in.geojsonl, batch_size: 1 }\nsink: { file: out.geojsonl }\ndead_letters: { store: run.db }",
    );
    for _ in 0..2 {
        assert_eq!(bench.runs(4)["rejected"], 2);
        assert_eq!(letters(&bench, "run.db").len(), 2);
    }
}
