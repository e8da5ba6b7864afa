//! One lane per host and credential, whoever sends: the source, the steps, the sink. What they send
//! is counted, entered in the audit and foreseen by the plan.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_chaos::{Config, Dialect, FaultKind, Service, spec};

use crate::common::provider::{chaos, fault};
use crate::pipeline::bench::Bench;
use crate::pipeline::service::layer;
use crate::pipeline::twin::Held;

const N: u64 = 230;

/// A source and a step that ask one service, under names of their own.
fn both(url: &str, more: &str) -> String {
    format!(
        "services:
  far: {{ url: \"{url}/ogc\", profile: ogcapi{more} }}
  near: {{ url: \"{url}/ogc\"{more} }}
source: {{ service: far, paging: {{ size: 10 }} }}
steps:
  - http: {{ service: near, path: \"/collections/parcels/items/parcels.{{id}}\", take: {{ kind: /geometry/type }} }}
sink: {{ file: out.gpkg, key: [id] }}
"
    )
}

fn rows(bench: &Bench) -> Vec<String> {
    bench.sql("out.gpkg", "SELECT count(*), count(DISTINCT id), count(kind) FROM out")
}

#[test]
fn source_and_step_together_never_have_more_calls_out_than_one_lane() {
    let limit = spec::throttle("concurrency:1").unwrap();
    let server = chaos(Config { limit, service: Service::Uniform(0.002, 0.004), ..layer(N) });
    let bench = Bench::new();
    bench.manifest(&format!("{}rate_limit: {{ max_in_flight: 1 }}\n", both(&server.url(), "")));
    let result = bench.runs(0);
    assert_eq!(rows(&bench), ["230|230|230"]);
    let stats = server.stats();
    // Two lanes of one call each would have met, and one of the two would have been refused.
    assert_eq!((stats.in_flight_max, stats.throttled), (1, 0));
    assert_eq!(result["calls"], json!(stats.requests));
}

#[test]
fn what_the_server_tells_one_of_them_holds_for_both() {
    let limit = spec::throttle("fixed:40/1s").unwrap();
    // Calls that left before the hint came back are no violation, however slow this machine is.
    let grace = Duration::from_millis(500);
    let server = chaos(Config { limit, grace, headers: Dialect::RetryAfter, ..layer(N) });
    let bench = Bench::new();
    bench.manifest(&both(&server.url(), ""));
    let patient = "max_attempts: 3, throttles_free: 50, deadline: 5m,";
    bench.write("m.yaml", &bench.read("m.yaml").replace("max_attempts: 3,", patient));
    let result = bench.runs(0);
    assert_eq!(rows(&bench), ["230|230|230"]);
    let stats = server.stats();
    assert!(stats.throttled > 0, "the limit was met: {stats:?}");
    assert_eq!(stats.retry_after_violations, 0, "{stats:?}");
    assert_eq!(result["calls"], json!(stats.requests));
}

#[test]
fn another_credential_is_another_lane() {
    let server = chaos(Config { service: Service::Uniform(0.002, 0.004), ..layer(N) });
    let bench = Bench::new();
    let parts = both(&server.url(), "").replacen("/ogc\" }", "/ogc\", key: env:OTHER }", 1);
    bench.manifest(&format!("{parts}rate_limit: {{ max_in_flight: 1 }}\n"));
    let ran = bench.command(&["run", "m.yaml", "--format", "json"]).env("OTHER", "k").output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(rows(&bench), ["230|230|230"]);
    assert_eq!(server.stats().in_flight_max, 2, "one of the source, one of the step");
}

#[test]
fn prefixes_of_a_bucket_are_counted_with_the_rest() {
    let bench = Bench::new();
    let store = format!("store: {{ endpoint: \"{}\" }}", crate::pipeline::stranger::bucket());
    bench.write("in.geojsonl", &crate::pipeline::bench::point(16.1, 48.1, r#"{"id":1}"#));
    bench.manifest(&format!(
        "audit: {{ attempts: true }}\nsource: {{ file: in.geojsonl }}\nsink: {{ file: \"s3://tide/out/a.fgb\", {store} }}"
    ));
    let put = bench.runs(0)["calls"].as_u64().unwrap();
    assert!(put >= 1, "{put}");
    assert_eq!(calls(&bench, "s3://tide"), put);
    bench.manifest(&format!(
        "audit: {{ attempts: true }}\nsource: {{ file: \"s3://tide/out/a.fgb\", {store} }}\nsink: {{ file: \"s3://tide/out/b.fgb\", {store} }}"
    ));
    let plan = bench.tidegate(&["plan", "m.yaml", "--format", "json"]).json();
    let get = plan["asked"][0]["source"]["requests"].as_u64().unwrap();
    assert_eq!((&plan["asked"][0]["service"], get), (&json!("s3://tide"), 1), "{plan:#}");
    let both = bench.runs(0)["calls"].as_u64().unwrap();
    assert_eq!((both, calls(&bench, "s3://tide")), (get + put, put + both));
}

/// The entries of the audit about calls.
fn attempts(bench: &Bench) -> Vec<Value> {
    let ran = bench
        .tidegate(&["audit", "show", "m.yaml", "--act", "attempt", "--format", "ndjson", "--limit", "10000"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Attempts to one service, by the audit.
fn calls(bench: &Bench, to: &str) -> u64 {
    let of = |entry: &Value| entry["detail"]["calls"].as_u64().unwrap();
    attempts(bench).iter().filter(|entry| entry["to"] == to).map(of).sum()
}

#[test]
fn calls_of_the_source_are_in_the_audit() {
    let fails = |at: &&str| fault(FaultKind::Status(503), at);
    let faults = ["@2", "@5", "@20", "@100"].iter().map(fails).collect();
    let server = chaos(Config { faults, ..layer(N) });
    let bench = Bench::new();
    let quiet = "circuit_breaker: { minimum_calls: 1000 }\n";
    bench.manifest(&(both(&server.url(), "") + quiet + "audit: { attempts: true }\n"));
    let result = bench.run(&[]);
    assert_eq!(result.code, 0, "{}", result.stderr);
    let all = result.json();
    let source = all["source"]["calls"].as_u64().unwrap();
    assert_eq!((calls(&bench, "far"), calls(&bench, "near")), (source, server.stats().requests - source));
    assert_eq!(all["calls"], json!(server.stats().requests));
    let pages = attempts(&bench).iter().filter(|entry| entry["key"] == "parcels, a page").count();
    assert_eq!(json!(pages), all["source"]["pages"]);
    let sound = bench.tidegate(&["audit", "verify", "m.yaml"]);
    assert_eq!(sound.code, 0, "{}", sound.stderr);
}

#[test]
fn calls_of_the_source_are_in_the_metrics() {
    let fails = |at: &&str| fault(FaultKind::Status(503), at);
    let faults = ["@2", "@5", "@20", "@100"].iter().map(fails).collect();
    let server = chaos(Config { faults, ..layer(N) });
    let bench = Bench::new();
    let policy = "circuit_breaker: { minimum_calls: 1000 }\nrate_limit: { max_in_flight: 1 }\n";
    bench.manifest(&(both(&server.url(), "") + policy));
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    // Held when all is done and before the process ends.
    let held = Held::start(&bench, &["run", "m.yaml", "--quiet", "--metrics", &at], "finish:0");
    let mut stream = TcpStream::connect(&at).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(held.go().code, 0);
    let host = server.url().replace("http://", "");
    let sent = |attempt: u64| -> f64 {
        let label = format!("host=\"{host}\"");
        let number = format!("attempt=\"{attempt}\"");
        let own = |line: &&str| {
            line.starts_with("tidegate_attempts_total{") && line.contains(&label) && line.contains(&number)
        };
        text.lines().filter(own).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    assert_eq!((sent(1), sent(2)), (server.stats().requests as f64 - 4.0, 4.0), "{text}");
    // One lane, however many ask through it: what may be out is not counted twice.
    let cap = text.lines().find(|line| line.starts_with("tidegate_lane_in_flight_limit{")).unwrap();
    assert!(cap.ends_with(" 1"), "{cap}");
}

#[test]
fn calls_that_failed_are_in_the_audit_of_a_run_that_could_not_begin() {
    let faults = vec![fault(FaultKind::Status(503), "1")];
    let server = chaos(Config { faults, ..layer(N) });
    let bench = Bench::new();
    bench.manifest(&both(&server.url(), ""));
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 75, "the service is down: {}", ran.stderr);
    assert_eq!((calls(&bench, "far"), server.stats().requests), (3, 3));
    let entry = &attempts(&bench)[0];
    assert_eq!(
        (&entry["code"], &entry["detail"]["attempts"][2]["status"]),
        (&json!("SERVICE_UNAVAILABLE"), &json!(503))
    );
}

#[test]
fn a_fetched_file_is_counted_and_entered() {
    let server = chaos(layer(3000));
    let bench = Bench::new();
    bench.manifest(&format!(
        "audit: {{ attempts: true }}\nsource: {{ file: \"{}/file/parcels.geojson\" }}\nsink: {{ file: out.gpkg, key: [id] }}",
        server.url()
    ));
    let plan = bench.tidegate(&["plan", "m.yaml", "--format", "json"]).json();
    let planned = server.stats().requests;
    assert_eq!(plan["asked"][0]["source"]["requests"], json!(planned));
    assert!(!bench.path(".tidegate").exists());
    let result = bench.runs(0);
    assert_eq!(result["calls"], json!(planned));
    assert_eq!(calls(&bench, "127.0.0.1"), planned);
    assert!(attempts(&bench)[0]["key"].as_str().unwrap().starts_with("parcels.geojson, bytes from 0"));
}

/// What becomes of all questions of a prediction.
fn ends(prediction: &Value) -> u64 {
    ["answered", "dead", "parked"].iter().map(|end| prediction[end].as_u64().unwrap()).sum()
}

#[test]
fn the_plan_foresees_every_request_of_a_run() {
    let server = chaos(layer(N));
    for (path, profile, more) in [
        ("/wfs", "geoserver-wfs", ""),
        ("/wfs", "geoserver-wfs", ", paging: { version: 1.1.0 }"),
        ("/ogc", "ogcapi", ", paging: { size: 20 }"),
        ("/arcgis/rest/services/parcels/FeatureServer", "esri", ""),
        ("/arcgis/rest/services/parcels/FeatureServer/0", "esri", ", paging: { by: offset }"),
        ("/stac", "stac", ", paging: { size: 50 }"),
    ] {
        let bench = Bench::new();
        bench.manifest(&format!(
            "services: {{ far: {{ url: \"{}{path}\", profile: {profile}, price_per_thousand: 10 }} }}\nsource: {{ service: far{more} }}\nsink: {{ file: out.gpkg, mode: append }}",
            server.url()
        ));
        let before = server.stats().requests;
        let ran = bench.tidegate(&["plan", "m.yaml", "--format", "json"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let plan = ran.json();
        let source = &plan["asked"][0]["source"];
        assert_eq!(source["opening"], json!(server.stats().requests - before), "{path}{more}");
        assert!(!bench.path(".tidegate").exists() && !bench.path("out.gpkg").exists(), "nothing was written");
        let result = bench.runs(0);
        assert_eq!(
            (&plan["calls"], &source["requests"]),
            (&result["calls"], &result["calls"]),
            "{path}{more}"
        );
        assert_eq!(
            plan["calls_max"],
            json!(result["calls"].as_u64().unwrap() * 23),
            "three attempts and 20 refusals each"
        );
        // The simulated server keeps to the rate of the profile, so some are asked again.
        let answers = &plan["predictions"][0];
        assert_eq!((&answers["case"], ends(answers)), (&json!("answers"), result["calls"].as_u64().unwrap()));
        assert_eq!(answers["cost"].as_f64().unwrap(), answers["calls"].as_f64().unwrap() / 100.0);
        assert!(answers["seconds"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn the_plan_adds_pages_and_questions_of_one_service() {
    let server = chaos(layer(N));
    let bench = Bench::new();
    bench.manifest(&both(&server.url(), ""));
    let plan = bench.tidegate(&["plan", "m.yaml", "--format", "json"]).json();
    assert_eq!(plan["asked"].as_array().unwrap().len(), 1, "one lane: {plan:#}");
    assert_eq!(plan["asked"][0]["service"], "far and near");
    let result = bench.runs(0);
    assert_eq!(plan["calls"], result["calls"]);
    let table = bench.tidegate(&["plan", "m.yaml"]).stdout;
    assert!(table.contains("far and near") && table.contains("10 records per page"), "{table}");
}

#[test]
fn a_service_that_declares_nothing_is_said_to_be_unknown() {
    let server = chaos(Config { unknown_total: true, ..layer(N) });
    let bench = Bench::new();
    bench.manifest(&format!(
        "services: {{ far: {{ url: \"{}/ogc\", profile: ogcapi }} }}\nsource: {{ service: far, paging: {{ size: 10 }} }}\nsink: {{ file: out.gpkg, mode: append }}",
        server.url()
    ));
    let plan = bench.tidegate(&["plan", "m.yaml", "--format", "json"]).json();
    assert_eq!((&plan["asked"][0]["source"]["requests"], &plan["calls"]), (&Value::Null, &Value::Null));
    assert_eq!(plan["predictions"], json!([]));
    let table = bench.tidegate(&["plan", "m.yaml"]).stdout;
    assert!(table.contains("number of pages unknown"), "{table}");
    // Whoever knows can say it: the description, and 23 pages.
    let told = bench.tidegate(&["plan", "m.yaml", "--records", "230", "--format", "json"]).json();
    let opening = plan["asked"][0]["source"]["opening"].as_u64().unwrap();
    assert_eq!(ends(&told["predictions"][0]), opening + 22);
}
