//! `tidegate simulate` through the built binary.
#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

mod common;

use common::{tidegate, tidegate_with};

const HERD: &str = "../../scenarios/herd.yaml";

#[test]
fn a_scenario_that_holds() {
    let ran = tidegate(&["simulate", HERD, "--trials", "3"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    assert!(ran.stdout.contains("all 12 expectations hold"), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\u{1b}'), "no colour in a pipe");
}

#[test]
fn json_names_the_trace_and_a_seed_decides_it() {
    let trace = |seed| {
        let ran = tidegate(&["simulate", HERD, "--trials=1", "--seed", seed, "--format=json"]);
        let outcome: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        outcome["trace"].as_str().unwrap().to_owned()
    };
    assert_eq!(trace("7"), trace("7"));
    assert_ne!(trace("7"), trace("8"));
}

#[test]
fn a_broken_expectation_is_a_failure() {
    let scenario = b"{name: x, reason: y, world: {workload: {drain: {requests: 2}}},
        expect: {run: {calls: {equals: 3}}}}";
    let ran = tidegate_with(&["simulate", "-"], scenario);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stdout.contains("1 of 1 expectations fail"), "{}", ran.stdout);
}

#[test]
fn a_misspelt_key_is_refused_at_its_place() {
    let ran = tidegate_with(&["simulate", "-"], b"name: x\nreason: y\nworld:\n  clents: 3\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("line 4 column 3") && ran.stderr.contains("clents"), "{}", ran.stderr);
    let ran = tidegate(&["simulate", HERD, "--compare", "fast"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("unknown policy `fast`"), "{}", ran.stderr);
}

#[test]
fn a_manifest_meets_the_usual_servers() {
    let ran = tidegate(&["simulate", "tests/manifests/good/example.yaml"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    for server in ["steady", "throttled", "down for a minute", "flaky"] {
        assert!(ran.stdout.contains(server), "{}", ran.stdout);
    }
}
