//! Calls that are paid for: idempotency keys where a service takes them, and how many calls may
//! have been executed twice where it does not.

use serde_json::json;
use tidegate_chaos::{Config, FaultKind};

use crate::common::canned::{Canned, MATCH, json as answer};
use crate::common::provider::{chaos, fault};
use crate::pipeline::bench::{Bench, addresses};

const GENERIC: &str = include_str!("../../../../../profiles/generic.yaml");

fn manifest(bench: &Bench, url: &str, service: &str) {
    bench.manifest(&format!(
        "source: {{ file: in.csv }}
services: {{ g: {{ url: \"{url}\", {service} }} }}
steps:
  - geocode: {{ service: g, address: [street] }}
sink: {{ file: out.gpkg, key: [id] }}
circuit_breaker: {{ minimum_calls: 1000 }}"
    ));
}

#[test]
fn a_billed_service_without_keys_says_how_many_calls_may_have_been_executed_twice() {
    let bench = Bench::new();
    bench.write("in.csv", &addresses(6));
    let profile = GENERIC.replace("name: generic", "name: billed") + "repeat: billed\n";
    bench.write("keyed.yaml", &profile);
    bench.write("billed.yaml", &profile.replace("idempotency_header: Idempotency-Key\n", ""));
    let losing = || {
        let lost = fault(FaultKind::Reset, "first:1");
        chaos(Config { faults: vec![lost], ..Config::default() })
    };
    let server = losing();
    manifest(&bench, &server.url(), "profile: billed, profiles: billed.yaml");
    let ran = bench.tidegate(&["run", "m.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("6 may have been executed twice"), "{}", ran.stderr);
    assert_eq!(server.stats().requests, 12);
    let result = bench.runs(0);
    assert_eq!(
        result["services"],
        json!([{ "service": "g", "calls": 0, "answered": 0, "maybe_twice": 0 }]),
        "answers are in the cache"
    );

    // With a key the server knows that it has been asked before.
    let server = losing();
    manifest(&bench, &server.url(), "profile: billed, profiles: keyed.yaml, price_per_thousand: 2");
    let result = bench.runs(0);
    let service = &result["services"][0];
    assert_eq!((&service["calls"], &service["maybe_twice"]), (&json!(12), &json!(0)), "{result:#}");
    assert_eq!(server.stats().duplicates_executed, 0);
}

#[test]
fn the_key_is_sent_in_the_header_of_the_profile_and_makes_a_post_safe_to_repeat() {
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let server = Canned::start(move |_| {
        let busy = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        if busy { answer("503 Busy", "{}") } else { answer("200 OK", MATCH) }
    });
    let bench = Bench::new();
    bench.write("in.csv", &addresses(1));
    bench.write(
        "posts.yaml",
        "name: posts\nextends: generic\nforward: { method: POST, path: /geocode, form: { q: \"{address}\" } }\nidempotency_header: X-Request-Id\n",
    );
    manifest(&bench, &server.url(), "profile: posts, profiles: posts.yaml");
    bench.runs(0);
    let keys: Vec<String> = server
        .seen()
        .iter()
        .map(|head| {
            assert!(head.starts_with("POST ") && !head.to_lowercase().contains("idempotency-key"), "{head}");
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            let key = lines.filter(|(name, _)| name.eq_ignore_ascii_case("x-request-id"));
            key.map(|(_, value)| value.to_owned()).collect()
        })
        .collect();
    assert_eq!(keys.len(), 2, "the refused call was repeated");
    assert!(keys[0] == keys[1] && keys[0].len() == 64, "{keys:?}");
}
