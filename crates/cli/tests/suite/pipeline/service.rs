//! Layers of remote services as sources: every page committed with its position, counts compared,
//! the manifest's policies in force.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_chaos::{Config, Dialect, FaultKind, Handle, Unrest, spec};

use crate::common::provider::{chaos, fault};
use crate::pipeline::bench::Bench;

const N: u64 = 230;

/// Every way to page: name, path, profile, and what else the source says.
const WAYS: [(&str, &str, &str, &str); 8] = [
    ("wfs", "/wfs", "geoserver-wfs", ""),
    ("wfs gml", "/wfs", "geoserver-wfs", ", paging: { body: gml }"),
    ("wfs 1.1", "/wfs", "geoserver-wfs", ", paging: { version: 1.1.0 }"),
    ("ogcapi", "/ogc", "ogcapi", ""),
    ("esri ids", "/arcgis/rest/services/parcels/FeatureServer", "esri", ""),
    ("esri offset", "/arcgis/rest/services/parcels/FeatureServer/0", "esri", ", paging: { by: offset }"),
    ("esri geojson", "/arcgis/rest/services/parcels/FeatureServer/0", "esri", ", paging: { body: geojson }"),
    ("stac", "/stac", "stac", ", paging: { size: 50 }"),
];

pub(crate) fn layer(features: u64) -> Config {
    Config { features, page_max: 50, ..Config::default() }
}

/// Source and service of a manifest.
fn from(server: &Handle, (_, path, profile, more): (&str, &str, &str, &str)) -> String {
    format!(
        "services: {{ far: {{ url: \"{}{path}\", profile: {profile} }} }}\nsource: {{ service: far{more} }}\n",
        server.url()
    )
}

/// How often each parcel is in the output, whatever its number is called.
fn parcels(bench: &Bench) -> BTreeMap<u64, u32> {
    let columns = bench.sql("out.gpkg", "SELECT name FROM pragma_table_info('out')");
    let has = |name: &str| columns.iter().any(|column| column == name);
    // The GeoJSON of this ArcGIS server leaves its object ids out of the properties.
    let id = match (has("OBJECTID"), has("id")) {
        (true, true) => "coalesce(OBJECTID, id)",
        (true, false) => "OBJECTID",
        _ => "id",
    };
    let rows = bench.sql("out.gpkg", &format!("SELECT {id}, count(*) FROM out GROUP BY 1"));
    let pair = |row: &String| {
        let (id, n) = row.split_once('|').unwrap();
        (id.parse().unwrap(), n.parse().unwrap())
    };
    rows.iter().map(pair).collect()
}

fn all_once(bench: &Bench, what: &str) {
    assert!(parcels(bench).into_iter().eq((1..=N).map(|id| (id, 1))), "{what}: {:?}", parcels(bench));
}

#[test]
fn every_way_brings_every_feature_once() {
    let server = chaos(layer(N));
    for way in WAYS {
        let bench = Bench::new();
        bench.manifest(&(from(&server, way) + "sink: { file: out.gpkg, mode: append }"));
        let result = bench.runs(0);
        let source = &result["source"];
        assert_eq!(
            (&source["declared"], &source["received"], &source["verdict"]),
            (&json!(N), &json!(N), &json!("exact")),
            "{}: {source}",
            way.0
        );
        assert_eq!((&result["read"], &result["written"]), (&json!(N), &json!(N)), "{}", way.0);
        assert!(result["calls"].as_u64().unwrap() >= 5, "{}: {result}", way.0);
        all_once(&bench, way.0);
    }
}

/// Killed after the rows, after the rejects and after the commit of each page; appended, so that a
/// page that was committed and came again would show.
#[test]
fn killed_at_every_point_of_every_page_each_feature_is_there_once() {
    for way in [WAYS[0], WAYS[3], WAYS[4], WAYS[5], WAYS[7]] {
        let server = chaos(layer(N));
        let bench = Bench::new();
        bench.manifest(&(from(&server, way) + "sink: { file: out.gpkg, mode: append }"));
        let mut args = vec!["run", "m.yaml"];
        let (mut kills, mut done) = (0, false);
        'pages: for _ in 0..10 {
            for point in ["put:0", "rejects:0", "commit:0"] {
                let output = bench.command(&args).env("TIDEGATE_CRASH", point).output().unwrap();
                if output.status.code() == Some(0) {
                    done = true;
                    break 'pages;
                }
                assert_eq!(
                    output.status.code(),
                    None,
                    "{}: {}",
                    way.0,
                    String::from_utf8_lossy(&output.stderr)
                );
                kills += 1;
                args = vec!["run", "m.yaml", "--resume"];
            }
        }
        assert!(kills >= 15, "{}: {kills}", way.0);
        // A further run would append all of it once more.
        if !done {
            let last = bench.run(&["--resume"]);
            assert_eq!(last.code, 0, "{}: {}", way.0, last.stderr);
        }
        all_once(&bench, way.0);
    }
}

#[test]
fn a_resumed_run_asks_for_no_page_again() {
    for way in WAYS {
        let server = chaos(layer(N));
        let bench = Bench::new();
        let slow = from(&server, way).replace("profile:", "requests_per_second: 1000, profile:");
        bench.manifest(&format!(
            "{slow}rate_limit: {{ max_in_flight: 1 }}\nsink: {{ file: out.gpkg, mode: append }}"
        ));
        let output = bench.command(&["run", "m.yaml"]).env("TIDEGATE_CRASH", "commit:2").output().unwrap();
        assert_eq!(output.status.code(), None, "{}", way.0);
        let ran = bench.run(&["--resume"]);
        assert_eq!(ran.code, 0, "{}: {}", way.0, ran.stderr);
        let result = ran.json();
        assert!(result["resumed_at"].as_u64().unwrap() >= 140, "{}: {result}", way.0);
        assert_eq!(
            (&result["read"], &result["source"]["verdict"]),
            (&json!(N), &json!("exact")),
            "{}",
            way.0
        );
        // Pages are counted over both runs.
        let whole = Bench::new();
        whole.manifest(&(from(&server, way) + "sink: { file: out.gpkg, mode: append }"));
        assert_eq!(result["source"]["pages"], whole.runs(0)["source"]["pages"], "{}", way.0);
        all_once(&bench, way.0);
    }
}

#[test]
fn a_layer_that_changes_while_it_is_read_loses_nothing() {
    for unrest in
        [Unrest { delete_every: 2, ..Unrest::default() }, Unrest { insert_every: 2, ..Unrest::default() }]
    {
        for way in [WAYS[0], WAYS[3], WAYS[4]] {
            let step = if unrest.insert_every > 0 { tidegate_chaos::ROOM } else { 1 };
            let server = chaos(Config { unrest, ..layer(N) });
            let bench = Bench::new();
            bench.manifest(&(from(&server, way) + "sink: { file: out.gpkg, mode: append }"));
            let output =
                bench.command(&["run", "m.yaml"]).env("TIDEGATE_CRASH", "commit:2").output().unwrap();
            assert_eq!(output.status.code(), None, "{}", way.0);
            let ran = bench.run(&["--resume"]);
            assert_eq!(ran.code, 0, "{}: {}", way.0, ran.stderr);
            let gone: Vec<u64> =
                server.layer()["deleted"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
            let found = parcels(&bench);
            assert!(found.values().all(|n| *n == 1), "{}: {found:?}", way.0);
            let lost: Vec<u64> = (1..=N)
                .map(|n| n * step)
                .filter(|id| !found.contains_key(id) && !gone.contains(id))
                .collect();
            assert_eq!(lost, [0; 0], "{}", way.0);
        }
    }
}

#[test]
fn another_count_than_declared_fails_unless_it_is_tolerated() {
    let server = chaos(Config { unrest: Unrest { miscount: 7, ..Unrest::default() }, ..layer(N) });
    let bench = Bench::new();
    let sink = "sink: { file: out.gpkg, mode: append }";
    bench.manifest(&(from(&server, WAYS[0]) + sink));
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("237 features declared, 230 received"), "{}", ran.stderr);
    assert!(ran.stderr.contains("COUNT_MISMATCH") && !bench.path("out.gpkg").exists(), "{}", ran.stderr);
    let tolerant = |more| (WAYS[0].0, WAYS[0].1, WAYS[0].2, more);
    for (more, verdict) in [(", tolerate: 7", 0), (", tolerate: 1%", 1), (", tolerate: 4%", 0)] {
        let bench = Bench::new();
        bench.manifest(&(from(&server, tolerant(more)) + sink));
        assert_eq!(bench.run(&[]).code, verdict, "{more}");
    }
}

#[test]
fn the_lists_of_the_manifest_say_which_status_is_tried_again() {
    for (status, code) in [(503, 0), (500, 1)] {
        let server = chaos(Config { faults: vec![fault(FaultKind::Status(status), "first:1")], ..layer(N) });
        let bench = Bench::new();
        bench.manifest(
            &(from(&server, WAYS[3])
                + "circuit_breaker: { minimum_calls: 1000 }\nsink: { file: out.gpkg, mode: append }"),
        );
        assert_eq!(bench.run(&[]).code, code, "{status}");
    }
}

/// Whether the first page fails or a later one: the same end gives the same exit code.
#[test]
fn a_service_that_is_down_is_75_and_one_that_refuses_is_1_however_late() {
    for (status, exit, word) in [(503, 75, "waiting"), (404, 1, "failed")] {
        for from in [1, 4] {
            let faults = vec![fault(FaultKind::Status(status), &format!("@{from}..9999"))];
            let server = chaos(Config { faults, ..layer(N) });
            let bench = Bench::new();
            bench.manifest(
                &(from_slowly(&server)
                    + "circuit_breaker: { minimum_calls: 1000 }\nsink: { file: out.gpkg, mode: append }"),
            );
            let ran = bench.run(&[]);
            let at = format!("{status} from {from}: {} {}", ran.stdout, ran.stderr);
            assert_eq!((ran.code, &ran.json()["status"]), (exit, &json!(word)), "{at}");
            assert!(ran.stderr.contains("SERVICE_UNAVAILABLE") || ran.stderr.contains("NOT_FOUND"), "{at}");
        }
    }
}

/// By links, one request at a time.
fn from_slowly(server: &Handle) -> String {
    from(server, WAYS[3]) + "rate_limit: { max_in_flight: 1 }\n"
}

#[test]
fn a_spent_quota_ends_with_75_and_goes_on_another_day() {
    let limit = spec::throttle("fixed:6/1h").unwrap();
    let server = chaos(Config { limit, headers: Dialect::RetryAfter, ..layer(N) });
    let bench = Bench::new();
    bench.manifest(
        &(from(&server, (WAYS[0].0, WAYS[0].1, WAYS[0].2, ", patience: 1s"))
            + "rate_limit: { max_in_flight: 1 }\nsink: { file: out.gpkg, mode: append }"),
    );
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 75, "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(
        (&ran.json()["status"], &ran.json()["written"]),
        (&json!("waiting"), &json!(148)),
        "{}",
        ran.stdout
    );
    server.reset();
    let ran = bench.run(&["--resume"]);
    assert_eq!((ran.code, server.stats().requests), (75, 0), "not before the time: {}", ran.stderr);
    std::fs::remove_file(bench.path(".tidegate/lanes.json")).unwrap();
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    all_once(&bench, "quota");
}

#[test]
fn features_that_no_list_of_numbers_holds_are_known_again() {
    // Identifiers without numbers do not fit into a position; their marks lie in the sink.
    let server = crate::pipeline::stranger::collection(120, 20);
    let bench = Bench::new();
    bench.manifest(&format!(
        "services: {{ far: {{ url: \"{}/collections/things/items\" }} }}\nsource: {{ service: far, paging: {{ size: 20 }} }}\nsink: {{ file: out.gpkg, mode: append }}",
        server.url
    ));
    let mut args = vec!["run", "m.yaml"];
    for point in ["commit:0", "put:0", "commit:1", "rejects:0"] {
        let output = bench.command(&args).env("TIDEGATE_CRASH", point).output().unwrap();
        assert_eq!(output.status.code(), None, "{}", String::from_utf8_lossy(&output.stderr));
        args = vec!["run", "m.yaml", "--resume"];
    }
    // The service has forgotten its links meanwhile: it is read from its start.
    server.forget();
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!((&ran.json()["read"], &ran.json()["source"]["verdict"]), (&json!(120), &json!("exact")));
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*), count(DISTINCT n) FROM out"), ["120|120"]);
}

#[test]
fn what_cannot_work_is_said_before_anything_is_asked() {
    let bench = Bench::new();
    let sink = "sink: { file: out.gpkg, mode: append }";
    for (parts, says) in [
        ("source: { service: far }", "unknown service `far`"),
        ("services: { far: {} }\nsource: { service: far }", "services.far: it has no `url`"),
        (
            "services: { far: { url: \"http://127.0.0.1:1/x\" } }\nsource: { service: far }",
            "cannot detect the protocol",
        ),
        ("source: { file: a.csv, paging: { size: 5 } }", "`paging` and `spool` require a `service`"),
        ("services: { far: {} }\nsource: { service: far, file: a.csv }", "has both"),
        ("services: { far: {} }\nsource: { service: far, tolerate: some }", "invalid tolerance"),
    ] {
        bench.manifest(&format!("{parts}\n{sink}"));
        bench.refused(says);
    }
}
