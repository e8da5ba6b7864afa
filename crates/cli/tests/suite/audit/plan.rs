//! What a plan predicts, without writing or asking.

use serde_json::{Value, json};

use crate::pipeline::bench::{Bench, addresses};

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

/// Lines of a plan that begin with this word, with those that continue it.
fn section(text: &str, name: &str) -> Vec<String> {
    let rows = text.lines().skip_while(|line| !line.starts_with(&format!("  {name} ")));
    let first = rows.clone().take(1);
    let more = rows.skip(1).take_while(|line| line.starts_with("     "));
    first.chain(more).map(|line| line.trim().trim_start_matches(name).trim().to_owned()).collect()
}

#[test]
fn the_rows_of_a_csv_are_counted() {
    let bench = Bench::new();
    // A quoted line break is not the end of a row, and a blank line is none.
    bench.write("in.csv", "id,street\n1,\"a\nb\"\n\n2,c\n3,\n");
    manifest(&bench, "url: \"http://127.0.0.1:9\"");
    let plan = bench.tidegate(&["plan", "m.yaml", "--format", "json"]).json();
    assert_eq!((&plan["records"], &plan["calls"]), (&json!(3), &json!(3)), "{plan:#}");
    bench.manifest("source: { file: in.csv, crs: \"EPSG:4326\" }\nsink: { file: out.csv }");
    let read = bench.runs(0)["read"].clone();
    assert_eq!(read, 3, "the run reads as many");
}

#[test]
fn a_rate_above_that_of_the_profile_is_a_warning() {
    let bench = Bench::new();
    bench.write("in.csv", &addresses(10));
    let warnings = |service: &str| {
        manifest(&bench, service);
        bench.tidegate(&["plan", "m.yaml", "--format", "json"]).json()["warnings"].clone()
    };
    let said = warnings("requests_per_second: 10");
    assert!(said[0].as_str().unwrap().contains("10 calls/s were asked for"), "{said}");
    assert!(said[0].as_str().unwrap().contains("nominatim allows 1;"), "{said}");
    let said = warnings("requests_per_second: 10, url: \"http://127.0.0.1:9\"");
    assert!(said[0].as_str().unwrap().contains("a server of your own may allow more"), "{said}");
    assert_eq!(warnings("requests_per_second: 1"), Value::Null);
    assert_eq!(warnings("language: de"), Value::Null);
}

#[test]
fn large_runs_are_scaled_with_care() {
    let bench = Bench::new();
    bench.write("in.csv", &addresses(1));
    bench.manifest(
        "source: { file: in.csv, patience: 10m }\nservices: { g: { profile: nominatim, user_agent: test, url: \"http://127.0.0.1:9\" } }\nsteps:\n  - geocode: { service: g, address: [street] }\nsink: { file: out.gpkg, key: [id] }",
    );
    let of = |records: &str| {
        let plan = bench.tidegate(&["plan", "m.yaml", "--records", records, "--format", "json"]).json();
        plan["predictions"].clone()
    };
    let find =
        |all: &Value, name: &str| all.as_array().unwrap().iter().find(|p| p["case"] == name).unwrap().clone();
    // The number of records of the file goes before the one that was passed.
    assert_eq!(find(&of("50000"), "answers")["answered"], 1);
    bench.write("in.csv", &addresses(50_000));
    let all = of("1");
    let (answers, down) = (find(&all, "answers"), find(&all, "down for a minute"));
    let later = down["seconds"].as_f64().unwrap() - answers["seconds"].as_f64().unwrap();
    assert!((1.0..1800.0).contains(&later), "one outage, not 25: {later}");
    assert_eq!(down["note"], Value::Null);
    let never = find(&all, "fails always");
    assert_eq!(never["seconds"], 600.0, "the run loses patience: {never}");
    assert!(never["note"].as_str().unwrap().contains("exit code 75"), "{never}");
    // Whatever was seen fewer than ten times among 2,000 has a bound, and the bound is above it.
    for p in all.as_array().unwrap() {
        let dead = p["dead"].as_u64().unwrap();
        assert_eq!(p["simulated"], 2000);
        if let Some(bound) = p["dead_fewer_than"].as_u64() {
            assert!((1..250).contains(&dead) && bound > dead, "{p}");
        }
    }
    bench.write("in.csv", &addresses(20));
    let down = find(&of("1"), "down for a minute");
    assert!(down["note"].as_str().unwrap().contains("longer than the run"), "{down}");
    let table = bench.tidegate(&["plan", "m.yaml"]).stdout;
    assert!(table.contains("; the outage is longer than the run would be without it"), "{table}");
}

#[test]
fn a_dry_run_of_geocode_shows_its_requests_without_secrets() {
    let bench = Bench::new();
    bench.write("in.csv", &addresses(30));
    let args = ["geocode", "in.csv", "--address", "street", "--profile", "opencage", "--key", "env:GEO_KEY"];
    let more = ["-o", "out.gpkg", "--dry-run", "--price", "2", "--rate", "5"];
    let mut command = bench.command(&[&args[..], &more[..]].concat());
    let ran: crate::common::running::Ran = command.env("GEO_KEY", "open-sesame-now").output().unwrap().into();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let requests = section(&ran.stdout, "requests");
    assert_eq!(requests.len(), 10, "{}", ran.stdout);
    assert!(requests[0].starts_with("GET https://api.opencagedata.com/"), "{requests:?}");
    assert!(requests.iter().all(|request| request.contains("key=***")), "{requests:?}");
    assert!(!ran.stdout.contains("open-sesame"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("30 without retries") && ran.stdout.contains(", costs 0.0"),
        "{}",
        ran.stdout
    );
    assert!(!bench.path(".tidegate").exists() && !bench.path("out.gpkg").exists(), "nothing was written");
    let ran = bench.tidegate(&["geocode", "in.csv", "--address", "street", "-o", "o.csv", "--price", "1"]);
    assert_eq!(ran.code, 2, "a price is for a dry run: {}", ran.stderr);
}

#[test]
fn validate_and_plan_agree_about_gates() {
    let bench = Bench::new();
    bench.write("in.csv", "id,lon,lat\n1,16.123456,48.123456\n");
    let parts = "source: { file: in.csv, crs: \"EPSG:4326\" }\nsink: { file: out.gpkg, key: [id] }";
    for more in [
        "tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }",
        "tolerance: { max_null_rate: 0.005, halt_on_geometry_invalid: true }",
        "tolerance: { max_null_rate: 0, halt_on_geometry_invalid: true, precision_decimal_threshold: 7 }",
        "tolerance: { max_null_rate: 0.5, halt_on_geometry_invalid: false }\ngates:\n  - { check: is_valid, severity: warn }\n  - { check: count, min: 1 }\n  - { check: not_null, fields: [id], max_rate: 0.2 }",
    ] {
        bench.manifest(&format!("{parts}\n{more}"));
        let (plan, valid) = (bench.tidegate(&["plan", "m.yaml"]), bench.tidegate(&["validate", "m.yaml"]));
        assert_eq!((plan.code, valid.code), (0, 0), "{}{}", plan.stderr, valid.stderr);
        let of_plan = section(&plan.stdout, "gates");
        let of_validate: Vec<String> = section(&valid.stdout, "gates")
            .iter()
            .map(|line| line.replace(" (only for records in degrees)", ""))
            .collect();
        assert!(of_plan.len() >= 3, "{}", plan.stdout);
        assert_eq!(of_plan, of_validate, "{more}");
    }
}

#[test]
fn validate_names_a_service_as_the_source() {
    let bench = Bench::new();
    bench.manifest(
        "source: { service: wfs, layer: parcels }\nservices: { wfs: { url: \"https://geo.example/wfs?tenant=7\" } }\nsink: { file: out.gpkg, key: [id] }",
    );
    let ran = bench.tidegate(&["validate", "m.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let source = section(&ran.stdout, "source");
    assert!(
        source[0].starts_with("service wfs, https://geo.example/wfs?tenant=7, layer parcels,"),
        "{source:?}"
    );
}
