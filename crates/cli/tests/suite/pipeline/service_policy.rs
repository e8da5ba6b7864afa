//! What a service says about its own calls comes before what the pipeline says.

use serde_json::json;

use crate::common::canned::{Canned, json as answer};
use crate::pipeline::bench::{Bench, addresses};

/// Answers 503 about this record, and all others with a value.
fn failing_for(id: &'static str, status: &'static str) -> Canned {
    Canned::start(move |head| {
        if head.contains(&format!("/{id} ")) {
            answer(status, "{}")
        } else {
            answer("200 OK", r#"{"kind":"house"}"#)
        }
    })
}

/// How often a server was asked about a record.
fn asked(server: &Canned, id: &str) -> usize {
    server.seen().iter().filter(|head| head.contains(&format!("/{id} "))).count()
}

#[test]
fn each_service_is_retried_by_its_own_policy() {
    let (first, second) = (failing_for("1", "503 Busy"), failing_for("2", "503 Busy"));
    let bench = Bench::new();
    bench.write("in.csv", &addresses(3));
    bench.manifest(&format!(
        "source: {{ file: in.csv, crs: \"EPSG:4326\" }}
services:
  a: {{ url: \"{}\", retry_policy: {{ max_attempts: 5, base_delay: 1ms, deadline: 2m }} }}
  b: {{ url: \"{}\" }}
steps:
  - http: {{ service: a, path: \"/{{id}}\", take: {{ kind: /kind }} }}
  - http: {{ service: b, path: \"/{{id}}\", take: {{ other: /kind }} }}
sink: {{ file: out.csv }}",
        first.url(),
        second.url()
    ));
    let plan = bench.tidegate(&["plan", "m.yaml", "--format", "json"]).json();
    let retry = |at: usize| plan["asked"][at]["retry"].clone();
    assert_eq!(
        retry(0),
        json!({ "set_by": "services.a.retry_policy", "max_attempts": 5, "deadline_seconds": 120.0 })
    );
    assert_eq!(
        retry(1),
        json!({ "set_by": "pipeline.retry_policy", "max_attempts": 3, "deadline_seconds": 30.0 })
    );
    assert_eq!((&plan["calls"], &plan["calls_max"]), (&json!(6), &json!(3 * (5 + 20) + 3 * (3 + 20))));
    assert_eq!(plan["record_seconds_max"], 120.0);
    let table = bench.tidegate(&["plan", "m.yaml"]).stdout;
    assert!(table.contains("5 attempts within 2m (services.a.retry_policy)"), "{table}");
    assert!(table.contains("3 attempts within 30s (pipeline.retry_policy)"), "{table}");

    let result = bench.runs(4);
    assert_eq!((&result["written"], &result["rejected"]), (&json!(1), &json!(2)), "{result:#}");
    assert_eq!((asked(&first, "1"), asked(&first, "2")), (5, 1));
    assert_eq!((asked(&second, "1"), asked(&second, "2"), asked(&second, "3")), (0, 3, 1));
}

#[test]
fn the_status_lists_of_a_service_replace_those_of_the_pipeline() {
    let server = failing_for("1", "418 Teapot");
    let bench = Bench::new();
    bench.write("in.csv", &addresses(2));
    let manifest = |policy: &str| {
        bench.manifest(&format!(
            "source: {{ file: in.csv, crs: \"EPSG:4326\" }}
services: {{ a: {{ url: \"{}\"{policy} }} }}
steps:
  - http: {{ service: a, path: \"/{{id}}\", take: {{ kind: /kind }} }}
sink: {{ file: out.csv }}",
            server.url()
        ));
    };
    manifest("");
    bench.runs(4);
    assert_eq!(asked(&server, "1"), 1, "not in the list of the pipeline");
    manifest(", retry_policy: { retryable_status_codes: [418] }");
    bench.runs(4);
    assert_eq!(asked(&server, "1"), 1 + 3);
    manifest(
        ", retry_policy: { base_delay: 2m, retryable_status_codes: [418], terminal_status_codes: [418, 200] }",
    );
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 2);
    for flaw in [
        "`base_delay_seconds` is 120, more than `max_delay_seconds`, which is 60 by default",
        "status 418 is in both lists",
        "status 200 means success",
    ] {
        assert!(ran.stderr.contains(flaw), "{flaw}: {}", ran.stderr);
    }
}

#[test]
fn a_service_that_fails_for_more_records_than_it_may_halts_the_run() {
    let server = Canned::start(|head| {
        let bad = ["/4 ", "/5 ", "/6 "].iter().any(|id| head.contains(id));
        answer(if bad { "400 No" } else { "200 OK" }, r#"{"kind":"house"}"#)
    });
    let bench = Bench::new();
    bench.write("in.csv", &addresses(10));
    let manifest = |rate: &str| {
        bench.manifest(&format!(
            "source: {{ file: in.csv, crs: \"EPSG:4326\", batch_size: 5 }}
services: {{ a: {{ url: \"{}\"{rate} }} }}
steps:
  - http: {{ service: a, path: \"/{{id}}\", take: {{ kind: /kind }} }}
sink: {{ file: out.gpkg, key: [id] }}",
            server.url()
        ));
    };
    // Two of the first five fail, then one of the other five.
    manifest(", max_reject_rate: 0.3");
    let plan = bench.tidegate(&["plan", "m.yaml"]).stdout;
    assert!(plan.contains("halts above 30 % failed"), "{plan}");
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let halt = ran.json()["halt"].clone();
    assert_eq!((&halt["gate"], &halt["record"]), (&json!("services.a"), &json!(3)), "{halt}");
    let reason = halt["reason"].as_str().unwrap();
    assert!(reason.contains("2 of 5 records in the run so far failed at this service"), "{reason}");
    // The batch was not committed; a resumed run judges as if it had never stopped.
    let calls = server.seen().len();
    manifest(", max_reject_rate: 0.4");
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let result = ran.json();
    assert_eq!((&result["written"], &result["rejected"]), (&json!(7), &json!(3)), "{result:#}");
    assert!(server.seen().len() <= calls + 10);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM out"), ["7"]);
}
