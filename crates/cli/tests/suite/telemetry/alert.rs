//! Alerts of a run: told, posted, run, and in the exit code.

use std::collections::HashSet;
use std::sync::Mutex;

use serde_json::Value;

use crate::common::canned::{Canned, json};
use crate::telemetry::bench::{Bench, taking};

/// 40 records that ask a service which refuses every first attempt.
fn fighting(bench: &Bench, alerts: &str) -> Canned {
    let seen = Mutex::new(HashSet::new());
    let server = Canned::start(move |head| {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let first = seen.lock().unwrap().insert(path);
        if first { json("503 Busy", "{}") } else { json("200 OK", "{\"kind\":\"x\"}") }
    });
    let rows: String = (0..40).map(|i| format!("{i},{}\n", i * 2)).collect();
    bench.write("in.csv", &format!("id,area\n{rows}"));
    bench.manifest(&format!(
        "source: {{ file: in.csv, crs: \"EPSG:4326\" }}\nservices: {{ s: {{ url: \"{}\", requests_per_second: 10000 }} }}\ncircuit_breaker: {{ minimum_calls: 100000 }}\nsteps:\n  - http: {{ service: s, path: \"/{{id}}\", take: {{ kind: /kind }} }}\nsink: {{ file: out.csv }}\n{alerts}",
        server.url()
    ));
    server
}

#[test]
fn an_alert_is_logged_posted_run_and_in_the_exit_code() {
    let bench = Bench::new();
    let hook = taking();
    let _server = fighting(
        &bench,
        &format!(
            "alerts:\n  minimum_time: 0s\n  off: [backoff_share, spike_503]\n  actions:\n    - {{ exit_code: true, on: [retry_ratio] }}\n    - {{ webhook: \"{}/hook\", key: \"env:HOOK\", on: [retry_ratio] }}\n    - {{ command: [sh, -c, \"cat > told.json; echo $TIDEGATE_ALERT >> names\"], on: [first_attempt_success] }}",
            hook.url()
        ),
    );
    let ran = bench.run(&["run", "m.yaml", "--quiet", "--report", "r.html"], &[("HOOK", "open-sesame-now")]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("tidegate: warn: retry_ratio: 50.0 % of the calls are retries"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("backoff_share"), "it is off: {}", ran.stderr);
    let posted = hook.asked();
    assert_eq!(posted.len(), 1, "{posted:?}");
    assert!(
        posted[0].head.starts_with("POST /hook ")
            && posted[0].head.contains("authorization: Bearer open-sesame-now")
    );
    let body: Value = serde_json::from_slice(&posted[0].body).unwrap();
    assert_eq!(
        (&body["alert"], &body["firing"], &body["pipeline"]),
        (&"retry_ratio".into(), &true.into(), &"parcels".into())
    );
    let told: Value = serde_json::from_str(&bench.read("told.json")).unwrap();
    assert_eq!(told["alert"], "first_attempt_success");
    assert_eq!(bench.read("names"), "first_attempt_success\n");
    let page = bench.read("r.html");
    assert!(page.contains("retry_ratio") && page.contains("50.0 % of the calls are retries"));
}

#[test]
fn what_cannot_work_is_said_before_the_run() {
    let bench = Bench::new();
    let server = fighting(&bench, "alerts: { actions: [{ webhook: \"ftp://nowhere\" }] }");
    let ran = bench.run(&["run", "m.yaml", "--quiet"], &[]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("alerts.actions[0]"), "{}", ran.stderr);
    assert!(server.asked().is_empty() && !bench.path("out.csv").exists());
    let _server = fighting(&bench, "alerts: { retry_ratio: 1.5, off: [nonsense] }");
    let ran = bench.run(&["run", "m.yaml", "--quiet"], &[]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("retry_ratio") && ran.stderr.contains("nonsense"), "{}", ran.stderr);
}

#[test]
fn a_command_that_fails_is_told_and_changes_nothing() {
    let bench = Bench::new();
    let _server = fighting(
        &bench,
        "alerts: { minimum_time: 0s, actions: [{ command: [\"/no/such/program\"], on: [retry_ratio] }] }",
    );
    let ran = bench.run(&["run", "m.yaml", "--quiet"], &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("/no/such/program cannot be started"), "{}", ran.stderr);
}

#[test]
fn a_run_of_a_moment_warns_of_nothing_and_counts_everything() {
    let bench = Bench::new();
    let _server = fighting(&bench, "alerts: { minimum_time: 1h, actions: [{ exit_code: true }] }");
    let ran = bench.run(&["run", "m.yaml", "--format", "json"], &[]);
    assert_eq!(ran.code, 0, "no hour has passed: {}", ran.stderr);
    assert!(!ran.stderr.contains("warn:"), "{}", ran.stderr);
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&result["calls"], &result["retry_count_total"]), (&80.into(), &40.into()), "{result:#}");
}
