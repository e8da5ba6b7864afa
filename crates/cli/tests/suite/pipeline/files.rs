//! GeoPackage and file sinks: upsert, append, replace, atomic, and what was there before.

use serde_json::json;

use crate::common::canned::{Canned, json as json_answer};
use crate::pipeline::bench::{Bench, point, there};

fn input(ids: std::ops::Range<u32>, x: f64) -> String {
    ids.map(|n| {
        point(x + f64::from(n) / 1000.0 + 0.000_000_1, 48.123_456, &format!(r#"{{"id":{n},"s":"a{n}"}}"#))
    })
    .collect()
}

#[test]
fn an_upsert_replayed_changes_nothing() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &input(0..100, 16.0));
    bench.manifest("source: { file: in.geojsonl, batch_size: 30 }\nsink: { file: out.gpkg, key: [id] }");
    assert_eq!(bench.runs(0)["inserted"], 100);
    let again = bench.runs(0);
    assert_eq!(
        (&again["inserted"], &again["updated"], &again["unchanged"]),
        (&json!(0), &json!(0), &json!(100))
    );
    bench.write("in.geojsonl", &(input(90..95, 17.0) + &input(95..110, 16.0)));
    let third = bench.runs(0);
    assert_eq!(
        (&third["inserted"], &third["updated"], &third["unchanged"]),
        (&json!(10), &json!(5), &json!(5))
    );
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*), count(DISTINCT id) FROM out"), ["110|110"]);
    // The index follows, and no table of ours stays.
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM rtree_out_geom"), ["110"]);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM rtree_out_geom WHERE minx > 17"), ["5"]);
    assert_eq!(
        bench.sql(
            "out.gpkg",
            "SELECT count(*) FROM sqlite_master WHERE name LIKE 'tidegate%' AND type = 'table'"
        ),
        ["0"]
    );
    assert_eq!(bench.sql("out.gpkg", "PRAGMA integrity_check"), ["ok"]);
}

#[test]
fn append_adds_and_replace_replaces_one_layer() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &input(0..10, 16.0));
    bench.manifest("source: { file: in.geojsonl }\nsink: { file: out.gpkg, layer: a, mode: append }");
    bench.runs(0);
    bench.runs(0);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM a"), ["20"]);
    bench.manifest("source: { file: in.geojsonl }\nsink: { file: out.gpkg, layer: b, mode: replace }");
    bench.runs(0);
    bench.runs(0);
    assert_eq!(bench.sql("out.gpkg", "SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)"), ["20|10"]);
    assert_eq!(bench.sql("out.gpkg", "SELECT table_name FROM gpkg_contents ORDER BY 1"), ["a", "b"]);
}

#[test]
fn a_layer_that_does_not_fit_is_refused() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &input(0..10, 16.0));
    bench.manifest("source: { file: in.geojsonl }\nsink: { file: out.gpkg, key: [id] }");
    bench.runs(0);
    bench.manifest("source: { file: in.geojsonl }\nsteps:\n  - constant: { more: 1 }\nsink: { file: out.gpkg, key: [id] }");
    bench.refused("the layer out has no column more");
    bench.manifest("source: { file: in.geojsonl }\nsteps:\n  - reproject: EPSG:3857\nsink: { file: out.gpkg, key: [id] }");
    bench.refused("is in EPSG:4326, the records are in EPSG:3857");
}

#[test]
fn atomic_shows_all_or_nothing() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &input(0..100, 16.0));
    bench.manifest("source: { file: in.geojsonl, batch_size: 10 }\nsink: { file: out.gpkg, key: [id] }");
    bench.runs(0);
    bench.write("in.geojsonl", &(input(100..150, 16.0) + &point(1.0, 2.0, r#"{"id":null,"s":"x"}"#)));
    bench.manifest("source: { file: in.geojsonl, batch_size: 10 }\ngates:\n  - { check: not_null, fields: [id], severity: halt }\nsink: { file: out.gpkg, key: [id] }");
    let ran = bench.run(&["--atomic"]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM out"), ["100"], "nothing of the run shows");
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 3);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM out"), ["150"], "without it the good batches do");
    bench.write("in.geojsonl", &input(150..160, 16.0));
    assert_eq!(bench.run(&["--atomic"]).code, 0);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM out"), ["160"]);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM rtree_out_geom"), ["160"]);
}

#[test]
fn a_null_key_rejects_the_record_and_no_other() {
    let bench = Bench::new();
    bench.write(
        "in.geojsonl",
        &(input(0..5, 16.0) + &point(1.0, 2.0, r#"{"id":null,"s":"x"}"#) + &input(5..9, 16.0)),
    );
    bench.manifest("source: { file: in.geojsonl }\nsink: { file: out.gpkg, key: [id] }");
    let result = bench.runs(4);
    assert_eq!((&result["written"], &result["rejected"]), (&json!(9), &json!(1)));
    assert_eq!(bench.rejects(), [(5, "sink".into(), "CONSTRAINT_VIOLATION".into(), "id".into())]);
}

#[test]
fn every_file_format_takes_all_records_and_shows_them_whole() {
    for name in [
        "out.geojson",
        "out.geojsonl",
        "out.geojsons",
        "out.csv",
        "out.fgb",
        "out.gpkg",
        "out.parquet",
        "out.gml",
        "out.esrijson",
    ] {
        let bench = Bench::new();
        bench.write("in.geojsonl", &input(0..250, 16.0));
        bench
            .manifest(&format!("source: {{ file: in.geojsonl, batch_size: 100 }}\nsink: {{ file: {name} }}"));
        assert_eq!(bench.runs(0)["written"], 250, "{name}");
        let hidden = std::fs::read_dir(bench.root())
            .unwrap()
            .filter(|e| e.as_ref().unwrap().file_name().to_str().unwrap().starts_with(".out"))
            .count();
        assert_eq!(hidden, 0, "{name} leaves something behind");
        // Back again, through a second pipeline.
        if name != "out.geojsons" {
            bench.manifest(&format!("source: {{ file: {name} }}\nsink: {{ file: back.geojsonl }}"));
            assert_eq!(bench.runs(0)["written"], 250, "{name}");
        }
    }
}

#[test]
fn a_second_run_at_once_is_refused() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &input(0..10, 16.0));
    bench.manifest("source: { file: in.geojsonl }\nsink: { file: out.gpkg, key: [id] }");
    std::fs::create_dir_all(bench.path(".tidegate/test")).unwrap();
    let lock = std::fs::File::create(bench.path(".tidegate/test/lock")).unwrap();
    lock.lock().unwrap();
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 75, "{}", ran.stderr);
    assert!(ran.stderr.contains("another run of test is active"), "{}", ran.stderr);
    drop(lock);
    bench.runs(0);
}

#[test]
fn a_dry_run_writes_nothing() {
    let bench = Bench::new();
    bench.write("in.geojsonl", &input(0..10, 16.0));
    bench.manifest(
        "source: { file: in.geojsonl }\nsteps:\n  - rename: { s: t }\nsink: { file: out.gpkg, key: [id] }",
    );
    let ran = bench.tidegate(&["run", "m.yaml", "--dry-run"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let planned = bench.tidegate(&["plan", "m.yaml"]);
    assert_eq!(ran.stdout, planned.stdout);
    assert!(ran.stdout.contains("read     10 records of in in 1 batch, in OGC:CRS84"), "{}", ran.stdout);
    assert!(ran.stdout.contains("become   id int, t text"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("write    out.gpkg, layer out, upsert by id, Point in OGC:CRS84"),
        "{}",
        ran.stdout
    );
    assert!(!there(&bench.path("out.gpkg")) && !there(&bench.path(".tidegate")));
    let plan = bench.tidegate(&["plan", "m.yaml", "--format", "json"]).json();
    assert_eq!(
        (&plan["records"], &plan["batches"], &plan["resumable"]),
        (&json!(10), &json!(1), &json!(true))
    );
}

#[test]
fn what_gml_and_esri_json_cannot_hold_is_rejected_alone() {
    let bench = Bench::new();
    let square = "[0.123456,0],[4,0],[4,4],[0.123456,0]";
    bench.write(
        "in.geojsonl",
        &(format!("{}\n", r#"{"type":"Feature","properties":{"id":0,"s":"x"},"geometry":null}"#)
            + &input(1..40, 16.0)
            + &point(16.0, 48.0, r#"{"id":40,"s":"a\u0001b"}"#)
            + &crate::pipeline::bench::polygon(square, r#"{"id":41,"s":"<&>"}"#)
            + &input(42..60, 16.0)),
    );
    for (name, written, refused) in
        [("out.gml", 59, [(40, "DATA_EXCEPTION")]), ("out.esrijson", 59, [(41, "UNPROCESSABLE")])]
    {
        bench.manifest(&format!("source: {{ file: in.geojsonl, batch_size: 10 }}\nsink: {{ file: {name} }}"));
        // Killed in the middle: nothing shows, and the run begins again.
        let killed = bench.command(&["run", "m.yaml"]).env("TIDEGATE_CRASH", "commit:2").output().unwrap();
        assert_eq!(killed.status.code(), None);
        assert!(!bench.path(name).exists(), "{name}");
        let ran = bench.run(&["--resume"]);
        assert_eq!(ran.code, 4, "{}", ran.stderr);
        assert_eq!(ran.json()["written"], written, "{name}");
        let rejects: Vec<(u64, String)> =
            bench.rejects().into_iter().map(|(n, _, code, _)| (n, code)).collect();
        assert_eq!(rejects, refused.map(|(n, code)| (n, code.to_owned())), "{name}");
        bench.manifest(&format!("source: {{ file: {name} }}\nsink: {{ file: back.geojsonl }}"));
        let back = bench.runs(0);
        assert_eq!((&back["written"], &back["rejected"]), (&json!(written), &json!(0)), "{name}");
        bench.write("m.yaml", &bench.read("m.yaml"));
    }
}

#[test]
fn coordinates_that_cannot_be_in_their_system_are_refused_before_they_are_committed() {
    let bench = Bench::new();
    let feet = point(12_745_374.0, 471_932.0, r#"{"id":1}"#);
    bench.write("in.geojsonl", &feet);
    bench.manifest("source: { file: in.geojsonl }\nsink: { file: out.gpkg }");
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert_eq!(ran.json()["code"], "CRS_MISMATCH");
    assert!(ran.stderr.contains("12745374"), "{}", ran.stderr);
    assert!(ran.stderr.contains("source.trust_crs"), "{}", ran.stderr);
    assert!(!there(&bench.path("out.gpkg")));
    // Degrees under the label of a projected system.
    bench.write("in.geojsonl", &point(16.0, 48.0, r#"{"id":1}"#));
    bench.manifest(
        "source: { file: in.geojsonl }\nsteps: [{ set_crs: \"EPSG:25832\" }]\nsink: { file: out.gpkg }",
    );
    assert_eq!(bench.run(&[]).json()["code"], "CRS_MISMATCH");
    // The second batch is looked at like the first, and the first stays.
    let rows: String = (0..10).map(|n| point(16.0, 48.0, &format!(r#"{{"id":{n}}}"#))).collect();
    bench.write("in.geojsonl", &(rows + &point(1.0e6, 48.0, r#"{"id":10}"#)));
    bench.manifest("source: { file: in.geojsonl, batch_size: 5 }\nsink: { file: out.gpkg, key: [id] }");
    assert_eq!(bench.run(&[]).json()["code"], "CRS_MISMATCH");
    // Whoever knows better says so.
    bench.manifest("source: { file: in.geojsonl, trust_crs: true }\nsink: { file: trusted.gpkg, key: [id] }");
    assert_eq!(bench.runs(0)["written"], 11);
}

#[test]
fn half_a_position_in_csv_is_rejected_with_its_column() {
    let bench = Bench::new();
    bench.write("in.csv", "n,lon,lat\n1,16.37,\n2,16.37,48.21\n3,,\n");
    bench.manifest("source: { file: in.csv }\nsink: { file: out.geojsonl }");
    let result = bench.runs(4);
    assert_eq!((&result["written"], &result["rejected"]), (&json!(2), &json!(1)));
    let rejects = bench.rejects();
    assert_eq!(rejects.len(), 1);
    assert_eq!((rejects[0].0, rejects[0].2.as_str(), rejects[0].3.as_str()), (0, "INVALID_GEOMETRY", "lat"));
}

#[test]
fn what_a_file_says_of_its_system_counts_and_the_manifest_may_not_contradict() {
    let bench = Bench::new();
    let named = r#""crs":{"type":"name","properties":{"name":"EPSG:25832"}},"#;
    let feature = |crs: &str| {
        format!(
            r#"{{"type":"Feature",{crs}"properties":{{"id":1}},"geometry":{{"type":"Point","coordinates":[500000,5300000]}}}}"#
        )
    };
    let collection =
        |crs: &str, features: &str| format!(r#"{{"type":"FeatureCollection",{crs}"features":[{features}]}}"#);
    let geometry = format!(r#"{{"type":"Point",{named}"coordinates":[500000,5300000]}}"#);
    for (name, text) in [
        ("a.geojson", collection(named, &feature(""))),
        ("b.geojson", collection("", &feature(named))),
        ("c.geojson", feature(named)),
        ("d.geojson", geometry),
        ("e.geojsonl", feature(named)),
    ] {
        bench.write(name, &text);
        bench.manifest(&format!("source: {{ file: {name} }}\nsink: {{ file: out.gpkg, mode: replace }}"));
        let report = bench.runs(0);
        assert_eq!(report["crs"], "EPSG:25832", "{name}");
        bench.manifest(&format!(
            "source: {{ file: {name}, crs: \"EPSG:25833\" }}\nsink: {{ file: out.gpkg, mode: replace }}"
        ));
        bench.refused("and `source.crs` says EPSG:25833");
    }
    // One that says nothing is what the manifest says.
    bench.write("f.geojsonl", &feature(""));
    bench.manifest(
        "source: { file: f.geojsonl, crs: \"EPSG:25832\" }\nsink: { file: out.gpkg, mode: replace }",
    );
    assert_eq!(bench.runs(0)["crs"], "EPSG:25832");
}

#[test]
fn a_format_that_the_name_does_not_show_is_named_in_the_manifest() {
    let bench = Bench::new();
    bench.write("rows.dat", &point(16.0, 48.0, r#"{"id":1}"#).repeat(3));
    bench.manifest("source: { file: rows.dat, format: geojsonl }\nsink: { file: out.geojsonl }");
    assert_eq!(bench.runs(0)["written"], 3);
    bench.manifest("services: { a: { url: \"http://127.0.0.1:1/wfs\" } }\nsource: { service: a, format: gml }\nsink: { file: out.gpkg }");
    bench.refused("`format` requires a `file`");
}

#[test]
fn features_of_a_page_that_name_another_system_than_the_layer_are_refused() {
    let body = r#"{"type":"FeatureCollection","features":[{"type":"Feature","id":1,"crs":{"type":"name","properties":{"name":"EPSG:25832"}},"properties":{"n":1},"geometry":{"type":"Point","coordinates":[10,50]}}]}"#;
    let server = Canned::start(move |_| json_answer("200 OK", body));
    let bench = Bench::new();
    bench.manifest(&format!(
        "services: {{ far: {{ url: \"{}/collections/a/items\" }} }}\nsource: {{ service: far }}\nsink: {{ file: out.gpkg }}",
        server.url()
    ));
    let ran = bench.run(&[]);
    assert_eq!((ran.code, &ran.json()["code"]), (1, &json!("CRS_MISMATCH")), "{}", ran.stderr);
    assert!(ran.stderr.contains("features say that they are in EPSG:25832"), "{}", ran.stderr);
    assert!(!there(&bench.path("out.gpkg")));
}
