//! A service that cannot answer is passed over: each record once, each call counted at its service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_chaos::{Config, FaultKind, Handle};

use crate::common::canned::{Canned, MATCH, json as answer};
use crate::common::provider::{chaos, fault};
use crate::pipeline::bench::{Bench, addresses};

/// A geocoder whose quota is spent by these requests.
fn without_quota(when: &str) -> Handle {
    chaos(Config { faults: vec![fault(FaultKind::Status(402), when)], ..Config::default() })
}

/// Addresses through `main`, which falls back to `other`; one call at a time, so that the numbers
/// are exact.
fn manifest(bench: &Bench, main: &str, other: &str, more: &str) {
    bench.manifest(&format!(
        "source: {{ file: in.csv, batch_size: 10, patience: 200ms }}
services:
  main: {{ profile: generic, url: \"{main}\", price_per_thousand: 4, fallback: [other]{more} }}
  other: {{ profile: generic, url: \"{other}\", price_per_thousand: 10 }}
steps:
  - geocode: {{ service: main, address: [street], outcome: outcome, provider: provider }}
sink: {{ file: out.gpkg, key: [id] }}
rate_limit: {{ max_in_flight: 1, learn: false }}
circuit_breaker: {{ minimum_calls: 2 }}
dead_letters: {{}}"
    ));
}

fn calls(result: &Value, at: usize) -> (&Value, &Value, &Value) {
    let service = &result["services"][at];
    (&service["service"], &service["calls"], &service["answered"])
}

/// How many rows are from each service.
fn providers(bench: &Bench) -> Vec<String> {
    bench.sql("out.gpkg", "SELECT provider, count(*) FROM out GROUP BY provider ORDER BY provider")
}

#[test]
fn the_rest_goes_to_the_fallback_when_the_quota_is_spent() {
    let (main, other) = (without_quota("@31..100000"), chaos(Config::default()));
    let bench = Bench::new();
    bench.write("in.csv", &addresses(60));
    manifest(&bench, &main.url(), &other.url(), "");
    let plan = bench.tidegate(&["plan", "m.yaml"]).stdout;
    assert!(plan.contains("fallback of main"), "{plan}");
    let ran = bench.tidegate(&["run", "m.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("main: 31 calls, 30 answered, costs 0.12"), "{}", ran.stderr);
    assert!(ran.stderr.contains("other: 30 calls, 30 answered, costs 0.30"), "{}", ran.stderr);
    assert_eq!((main.stats().requests, other.stats().requests), (31, 30));
    assert_eq!(providers(&bench), ["main|30", "other|30"]);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM out WHERE geom IS NOT NULL"), ["60"]);

    // The server named no time at which its quota is back, so a new run asks it once more.
    let result = bench.runs(0);
    assert_eq!(calls(&result, 0), (&json!("main"), &json!(1), &json!(0)), "{result:#}");
    assert_eq!((main.stats().requests, other.stats().requests), (32, 30));
    assert_eq!(providers(&bench), ["main|30", "other|30"]);
}

#[test]
fn a_run_that_is_resumed_pays_for_no_record_twice() {
    let (main, other) = (without_quota("@21..100000"), without_quota("@16..16"));
    let bench = Bench::new();
    bench.write("in.csv", &addresses(60));
    manifest(&bench, &main.url(), &other.url(), ", retry_policy: { quota_wait: 1s }");
    let text = bench
        .read("m.yaml")
        .replace("price_per_thousand: 10 }", "price_per_thousand: 10, retry_policy: { quota_wait: 1s } }");
    bench.write("m.yaml", &text);
    // Both are out of quota for longer than the run waits.
    let result = bench.runs(75);
    assert_eq!(calls(&result, 0), (&json!("main"), &json!(21), &json!(20)));
    assert_eq!(calls(&result, 1), (&json!("other"), &json!(16), &json!(15)));
    // Both may be asked again. What the fallback has answered is not asked of the first.
    thread::sleep(Duration::from_millis(1500));
    let killed =
        bench.command(&["run", "m.yaml", "--resume"]).env("TIDEGATE_CRASH", "put:2").output().unwrap();
    assert_eq!(killed.status.code(), None, "{}", String::from_utf8_lossy(&killed.stderr));
    let ran = bench.run(&["--resume"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.json()["balanced"], true);
    assert_eq!(providers(&bench), ["main|20", "other|40"]);
    // Once for each record that it answered, and for each time that it said that its quota is spent.
    let (main, other) = (main.stats(), other.stats());
    assert_eq!((main.executed, main.duplicates_executed), (20, 0));
    assert_eq!((other.executed, other.duplicates_executed), (40, 0));
    assert!(main.requests >= 22, "it was asked again after its quota came back: {}", main.requests);
}

#[test]
fn an_open_breaker_passes_records_on_and_loses_none() {
    let (main, other) = (
        chaos(Config { faults: vec![fault(FaultKind::Status(503), "@1..100000")], ..Config::default() }),
        chaos(Config::default()),
    );
    let bench = Bench::new();
    bench.write("in.csv", &addresses(40));
    manifest(&bench, &main.url(), &other.url(), "");
    let result = bench.runs(0);
    assert_eq!(calls(&result, 0), (&json!("main"), &json!(2), &json!(0)), "{result:#}");
    assert_eq!(calls(&result, 1), (&json!("other"), &json!(40), &json!(40)));
    assert_eq!(providers(&bench), ["other|40"]);
    assert_eq!((main.stats().requests, other.stats().requests), (2, 40));
}

#[test]
fn no_match_is_passed_on_if_the_manifest_says_so() {
    let (main, other) = (chaos(Config { no_match: 0.3, ..Config::default() }), chaos(Config::default()));
    let bench = Bench::new();
    bench.write("in.csv", &addresses(50));
    manifest(&bench, &main.url(), &other.url(), "");
    let result = bench.runs(0);
    let missed = main.stats().no_match;
    assert!((5..25).contains(&missed), "{missed}");
    assert_eq!(result["no_match"], missed);
    assert_eq!(other.stats().requests, 0, "no match is an answer");
    // The answers of the first are known; only those without a match are asked of the other.
    manifest(&bench, &main.url(), &other.url(), ", fallback_on: [no_match]");
    let result = bench.runs(0);
    assert_eq!((&result["no_match"], &result["calls"]), (&json!(0), &json!(missed)), "{result:#}");
    assert_eq!((main.stats().requests, other.stats().requests), (50, missed));
    assert_eq!(providers(&bench), [format!("main|{}", 50 - missed), format!("other|{missed}")]);
}

#[test]
fn a_letter_names_the_service_that_failed_and_its_replay_goes_the_same_way() {
    let mended = Arc::new(AtomicBool::new(false));
    let main = Canned::start(|_| answer("402 Payment Required", "{}"));
    let other = Canned::start({
        let mended = mended.clone();
        move |head| {
            let bad = head.contains("q=3+Harbour") || head.contains("q=3%20Harbour");
            if bad && !mended.load(Ordering::Relaxed) {
                return answer("400 Bad Request", "{}");
            }
            answer("200 OK", MATCH)
        }
    });
    let bench = Bench::new();
    bench.write("in.csv", &addresses(5));
    manifest(&bench, &main.url(), &other.url(), "");
    let text = bench.read("m.yaml").replace(", outcome: outcome, provider: provider", "");
    bench.write("m.yaml", &text);
    let result = bench.runs(4);
    assert_eq!((&result["written"], &result["rejected"]), (&json!(4), &json!(1)), "{result:#}");
    assert_eq!((main.seen().len(), other.seen().len()), (1, 5));
    let listed = bench.tidegate(&["dlq", "ls", "--format", "ndjson"]);
    let letter: Value = serde_json::from_str(&listed.stdout).unwrap();
    let place = other.url().trim_start_matches("http://").to_owned();
    assert!(letter.to_string().contains(&place), "{letter:#}");
    assert_eq!(letter["failure"]["code"], "BAD_REQUEST");

    mended.store(true, Ordering::Relaxed);
    let replayed = bench.tidegate(&["dlq", "replay", "--manifest", "m.yaml", "--all", "--verify"]);
    assert_eq!(replayed.code, 0, "{}\n{}", replayed.stdout, replayed.stderr);
    assert_eq!(bench.sql("out.gpkg", "SELECT count(*) FROM out WHERE geom IS NOT NULL"), ["5"]);
    assert_eq!((main.seen().len(), other.seen().len()), (2, 6), "the first is asked once more");
}

#[test]
fn a_fallback_must_be_another_service() {
    let bench = Bench::new();
    bench.write("in.csv", &addresses(1));
    for (fallback, says) in [
        ("[othr]", "did you mean `other`?"),
        ("[main]", "`main` cannot be its own fallback"),
        ("[other, other]", "listed twice"),
    ] {
        manifest(&bench, "http://127.0.0.1:9", "http://127.0.0.1:9", "");
        let text = bench.read("m.yaml").replace("[other]", fallback);
        bench.write("m.yaml", &text);
        bench.refused(says);
    }
}
