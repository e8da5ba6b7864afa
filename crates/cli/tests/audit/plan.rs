//! What a plan predicts, without writing or asking.

use serde_json::{Value, json};

use crate::bench::{Bench, addresses};

fn manifest(bench: &Bench, service: &str) {
    bench.manifest(&format!(
        "source: {{ file: in.csv }}\nservices: {{ g: {{ profile: nominatim, user_agent: test, {service} }} }}\nsteps:\n  - geocode: {{ service: g, address: [street] }}\nsink: {{ file: out.gpkg, key: [id] }}"
    ));
}

fn case<'a>(plan: &'a Value, name: &str) -> &'a Value {
    let all = plan["predictions"].as_array().unwrap();
    all.iter().find(|p| p["case"] == name).unwrap_or_else(|| panic!("no {name}: {plan:#}"))
}

#[test]
fn services_are_simulated_under_the_policy_and_priced() {
    let bench = Bench::new();
    bench.write("in.csv", &addresses(300));
    // Nobody is asked: there is nobody there.
    manifest(&bench, "url: \"http://127.0.0.1:9\", price_per_thousand: 5");
    let ran = bench.tidegate(&["plan", "m.yaml", "--records", "300", "--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let plan = ran.json();
    assert_eq!((&plan["asked"][0]["service"], &plan["asked"][0]["steps"]), (&json!("g"), &json!(1)));
    let answers = case(&plan, "answers");
    let seconds = answers["seconds"].as_f64().unwrap();
    assert!((290.0..360.0).contains(&seconds), "one call a second: {seconds}");
    assert_eq!((&answers["answered"], &answers["dead"]), (&json!(300), &json!(0)));
    assert_eq!(answers["cost"].as_f64().unwrap(), answers["calls"].as_f64().unwrap() * 0.005);
    let fails = case(&plan, "fails always");
    assert_eq!(fails["answered"], 0);
    assert!(fails["calls"].as_u64().unwrap() <= 900, "three attempts each at most");
    let flaky = case(&plan, "fails 1 in 5");
    assert!(flaky["calls"].as_u64() > answers["calls"].as_u64());
    assert!(!bench.path(".tidegate").exists() && !bench.path("out.gpkg").exists(), "nothing was written");
    let again = bench.tidegate(&["plan", "m.yaml", "--records", "300", "--format", "json"]);
    assert_eq!(again.json(), plan, "the same manifest, the same prediction");
    let table = bench.tidegate(&["plan", "m.yaml", "--records", "300"]).stdout;
    assert!(table.contains("limit 1 calls/s") && table.contains("costs 1."), "{table}");
}

#[test]
fn a_told_rate_and_a_price_from_outside_count() {
    let bench = Bench::new();
    bench.write("in.csv", &addresses(100));
    manifest(&bench, "url: \"http://127.0.0.1:9\", requests_per_second: 0.5");
    let plan =
        bench.tidegate(&["plan", "m.yaml", "--records", "100", "--price", "1", "--format", "json"]).json();
    let answers = case(&plan, "answers");
    assert!((190.0..215.0).contains(&answers["seconds"].as_f64().unwrap()), "{answers}");
    assert_eq!(answers["cost"].as_f64().unwrap(), answers["calls"].as_f64().unwrap() / 1000.0);
    assert_eq!(bench.tidegate(&["plan", "m.yaml", "--price", "-1"]).code, 2);
}
