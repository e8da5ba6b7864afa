//! geocode and http steps against a provider that misbehaves, on loopback.

use serde_json::json;
use tidegate_chaos::{Config, FaultKind};

use crate::common::canned::{Canned, json as answer};
use crate::common::provider::{chaos, fault};
use crate::pipeline::bench::{Bench, point};

fn addresses(n: usize) -> String {
    let rows: String = (1..=n).map(|i| format!("{i},{i} Harbour Road,Wien\n")).collect();
    format!("id,street,city\n{rows}")
}

#[test]
fn geocode_asks_once_keeps_answers_and_counts_what_was_not_found() {
    let server = chaos(Config { no_match: 0.3, ..Config::default() });
    let bench = Bench::new();
    bench.write("in.csv", &addresses(60));
    let parts = |no_match: &str| {
        format!(
            "source: {{ file: in.csv, batch_size: 20 }}\nservices: {{ g: {{ profile: generic, url: \"{}\" }} }}\nsteps:\n  - geocode: {{ service: g, address: [street, city], label: label, no_match: {no_match} }}\nsink: {{ file: out.gpkg, key: [id] }}",
            server.url()
        )
    };
    bench.manifest(&parts("keep"));
    let result = bench.runs(0);
    let missed = server.stats().no_match;
    assert!(missed > 5 && missed < 30, "{missed}");
    assert_eq!(
        (&result["written"], &result["no_match"], &result["calls"]),
        (&json!(60), &json!(missed), &json!(60))
    );
    assert_eq!(
        bench.sql("out.gpkg", "SELECT count(*) FROM out WHERE geom IS NULL AND label IS NULL"),
        [missed.to_string()]
    );
    // Answers are kept: nothing is asked again but what had none.
    bench.manifest(&parts("reject"));
    let result = bench.runs(4);
    assert_eq!(
        (&result["rejected_by_code"]["NO_MATCH"], &result["written"]),
        (&json!(missed), &json!(60 - missed))
    );
    assert_eq!(server.stats().requests, 60, "the second run asked nothing");
}

#[test]
fn transient_failures_are_retried_and_permanent_ones_are_rejected() {
    let transient = fault(FaultKind::Status(503), "0.2");
    let server = chaos(Config { faults: vec![transient], bad_rows: 0.1, ..Config::default() });
    let bench = Bench::new();
    bench.write("in.csv", &addresses(50));
    bench.manifest(&format!(
        "source: {{ file: in.csv }}\nservices: {{ g: {{ profile: generic, url: \"{}\" }} }}\nsteps:\n  - geocode: {{ service: g, address: [street, city] }}\nsink: {{ file: out.gpkg, key: [id] }}\ncircuit_breaker: {{ minimum_calls: 1000 }}",
        server.url()
    ));
    let ran = bench.run(&[]);
    let result = ran.json();
    assert_eq!(result["balanced"], true);
    let codes = result["rejected_by_code"].as_object().unwrap();
    assert!(codes.contains_key("BAD_REQUEST"), "{codes:?}");
    assert_eq!(result["read"], 50);
    assert!(result["calls"].as_u64().unwrap() > 50, "some were asked again");
}

#[test]
fn http_takes_values_out_of_the_answer() {
    let server = chaos(Config { features: 10, ..Config::default() });
    let bench = Bench::new();
    let input: String =
        [1, 2, 99].iter().map(|n| point(16.123_456, 48.1, &format!(r#"{{"id":{n}}}"#))).collect();
    bench.write("in.geojsonl", &input);
    bench.manifest(&format!(
        "source: {{ file: in.geojsonl }}\nservices: {{ p: {{ url: \"{}/ogc\" }} }}\nsteps:\n  - http: {{ service: p, path: \"/collections/parcels/items/parcels.{{id}}\", take: {{ kind: /geometry/type, fid: /id }} }}\nsink: {{ file: out.geojsonl }}",
        server.url()
    ));
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stderr, bench.rejects().len());
    let found: Vec<_> =
        bench.properties("out.geojsonl").iter().map(|p| (p["id"].clone(), p["kind"].clone())).collect();
    assert_eq!(found, [(json!(1), json!("Polygon")), (json!(2), json!("Polygon")), (json!(99), json!(null))]);
    assert_eq!(ran.json()["no_match"], 1);
}

#[test]
fn a_service_that_nobody_knows_is_refused() {
    let bench = Bench::new();
    bench.write("in.csv", &addresses(1));
    bench.manifest("source: { file: in.csv }\nservices: { g: { profile: nobody } }\nsteps:\n  - geocode: { service: g, address: [street] }\nsink: { file: out.gpkg }");
    bench.refused("steps[0] geocode");
}

/// Rows 1 to 5 through an `http` step of a service with these settings, which answers 3 with an
/// error in a 200 and the others with a value.
fn errors_in_a_200(settings: &str) -> (Bench, Canned) {
    let server = Canned::start(|head| {
        if head.contains("/3 ") {
            answer("200 OK", r#"{"error":{"code":499,"message":"Token Required","details":[]}}"#)
        } else {
            answer("200 OK", r#"{"kind":"house"}"#)
        }
    });
    let bench = Bench::new();
    bench.write("in.csv", &addresses(5));
    bench.manifest(&format!(
        "source: {{ file: in.csv, crs: \"EPSG:4326\" }}\nservices: {{ s: {{ url: \"{}\"{settings} }} }}\nsteps:\n  - http: {{ service: s, path: \"/{{id}}\", take: {{ kind: /kind }}, no_match: keep }}\nsink: {{ file: out.csv }}",
        server.url()
    ));
    (bench, server)
}

#[test]
fn an_http_step_takes_the_word_of_its_profile_for_an_error_in_a_200() {
    let (bench, server) = errors_in_a_200(", profile: esri");
    let result = bench.runs(4);
    assert_eq!(result["rejected_by_code"], json!({ "UNAUTHORIZED": 1 }));
    assert_eq!((&result["written"], &result["no_match"]), (&json!(4), &json!(0)));
    assert_eq!(server.seen().len(), 5, "a refusal is not asked again");
    let reject = bench.read(".tidegate/test/rejects.ndjson");
    assert!(reject.contains("the service said “Token Required”"), "{reject}");
}

#[test]
fn an_error_in_place_of_the_values_is_no_empty_answer_without_a_profile_either() {
    let (bench, _server) = errors_in_a_200("");
    let result = bench.runs(4);
    assert_eq!(result["rejected_by_code"], json!({ "SERVICE_EXCEPTION": 1 }));
    assert_eq!((&result["written"], &result["no_match"]), (&json!(4), &json!(0)));
    let reject = bench.read(".tidegate/test/rejects.ndjson");
    assert!(reject.contains("Token Required"), "{reject}");
}
