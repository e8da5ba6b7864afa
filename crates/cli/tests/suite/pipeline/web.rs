//! Files of web servers and buckets as sources, and buckets as sinks.

use serde_json::json;
use tidegate_chaos::{Config, FaultKind};

use crate::common::provider::{chaos, fault};
use crate::pipeline::bench::Bench;
use crate::pipeline::service::layer;

const MANY: u64 = 3000;

#[test]
fn a_file_of_a_web_server_is_fetched_read_and_known_again() {
    let faults = vec![fault(FaultKind::Cut, "first:1")];
    let server = chaos(Config { faults, ..layer(MANY) });
    let bench = Bench::new();
    bench.manifest(&format!(
        "source: {{ file: \"{}/file/parcels.geojson\", batch_size: 500 }}\nsink: {{ file: out.gpkg, key: [id] }}",
        server.url()
    ));
    // Killed while its batches are written: what was fetched is not fetched again.
    let output = bench.command(&["run", "m.yaml"]).env("TIDEGATE_CRASH", "commit:2").output().unwrap();
    assert_eq!(output.status.code(), None, "{}", String::from_utf8_lossy(&output.stderr));
    let asked = server.stats().requests;
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!((&ran.json()["read"], server.stats().requests), (&json!(MANY), asked));
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*), count(DISTINCT id) FROM out"), ["3000|3000"]);
    // A new run asks again.
    assert_eq!(bench.runs(0)["unchanged"], MANY);
    assert!(server.stats().requests > asked);
}

#[test]
fn from_bucket_to_bucket() {
    let bench = Bench::new();
    let store = format!("store: {{ endpoint: \"{}\" }}", crate::pipeline::stranger::bucket());
    bench.write(
        "in.geojsonl",
        &(0..40)
            .map(|n| crate::pipeline::bench::point(16.123_456, 48.1, &format!(r#"{{"id":{n}}}"#)))
            .collect::<String>(),
    );
    bench.manifest(&format!(
        "source: {{ file: in.geojsonl }}\nsink: {{ file: \"s3://tide/out/a.parquet\", {store} }}"
    ));
    let result = bench.runs(0);
    assert_eq!((&result["written"], &result["sink"]), (&json!(40), &json!("s3://tide/out/a.parquet")));
    bench.manifest(&format!(
        "source: {{ file: \"s3://tide/out/a.parquet\", {store} }}\nsink: {{ file: back.geojsonl }}"
    ));
    assert_eq!(bench.runs(0)["written"], 40);
    let ids: Vec<_> = bench.properties("back.geojsonl").iter().map(|p| p["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (0..40).collect::<Vec<_>>());
    bench.manifest(&format!(
        "source: {{ file: \"s3://tide/none.geojson\", {store} }}\nsink: {{ file: b.gpkg }}"
    ));
    // The manifest is good; what it names is not there.
    let error = bench.runs(1)["error"].to_string();
    assert!(error.contains("none.geojson") && error.contains("NOT_FOUND"), "{error}");
}

#[test]
fn what_cannot_be_fetched_or_added_to_is_said() {
    let bench = Bench::new();
    for (parts, says) in [
        (
            "source: { file: \"http://127.0.0.1:1/a.shp\" }\nsink: { file: a.gpkg }",
            "a Shapefile consists of several files",
        ),
        (
            "services: { w: { url: \"http://127.0.0.2:1/\" } }\nsource: { file: \"http://127.0.0.1:1/a.csv\", service: w }\nsink: { file: a.gpkg }",
            "is not on the host of",
        ),
        (
            "source: { file: a.csv }\nsink: { file: \"s3://b/a.gpkg\", key: [id] }",
            "can only be written as a whole",
        ),
        ("source: { file: a.csv }\nsink: { file: a.gml, mode: append }", "can only be written as a whole"),
        ("source: { file: a.csv }\nsink: { file: a.xyz }", ".gml or .esrijson"),
        (
            "source: { file: a.csv, store: { access_key: abc } }\nsink: { file: a.gpkg }",
            "a manifest must not contain a secret",
        ),
    ] {
        bench.manifest(parts);
        bench.refused(says);
    }
}
