//! `--log json`.

use serde_json::Value;

use crate::telemetry::bench::{Bench, geocoder};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
fn every_line_is_json_with_its_trace_and_without_secrets() {
    let geocoder = geocoder(|n| if n < 2 { "503 Busy" } else { "200 OK" });
    let bench = Bench::addresses(3);
    let url = geocoder.url();
    let args = [
        "geocode",
        "in.csv",
        "--address",
        "address",
        "--url",
        &url,
        "-o",
        "out.csv",
        "--key",
        "env:GEO_KEY",
        "--log",
        "json",
        "--log-level",
        "debug",
    ];
    let ran = bench.run(&args, &[("GEO_KEY", "correct-horse-battery")]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let lines = lines(&ran.stderr);
    for line in &lines {
        assert_eq!(line["task"], "geocode", "{line}");
        assert!(line["pipeline"].as_str().is_some_and(|id| id.starts_with("geocode:in-")), "{line}");
        assert_eq!(line["trace_id"].as_str().unwrap().len(), 32, "{line}");
        assert!(line["time"].as_str().unwrap().ends_with('Z') && line["message"].is_string(), "{line}");
    }
    assert!(
        lines.iter().any(|l| l["level"] == "debug" && l["target"] == "tidegate::call" && l["attempts"] == 2),
        "{}",
        ran.stderr
    );
    let end = lines.iter().find(|l| l["message"] == "run ended").expect("the end of the run");
    assert_eq!((&end["level"], &end["status"]), (&"info".into(), &"done".into()), "{end}");
    assert_eq!((&end["written"], &end["no_match"]), (&3.into(), &0.into()), "{end}");
    assert!(!ran.stderr.contains("correct-horse"), "{}", ran.stderr);
}

#[test]
fn a_batch_tells_its_box_coarsely_and_exactly_only_at_debug() {
    let bench = Bench::new();
    let point = |x: f64, y: f64| {
        format!(
            "{{\"type\":\"Feature\",\"properties\":{{\"id\":1}},\"geometry\":{{\"type\":\"Point\",\"coordinates\":[{x},{y}]}}}}\n"
        )
    };
    bench.write("in.geojsonl", &(point(16.123_456, 48.234_567) + &point(17.5, 47.5)));
    bench.manifest("source: { file: in.geojsonl }\nsink: { file: out.geojsonl }");
    let ran = bench.run(&["run", "m.yaml", "--log", "json", "--quiet"], &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let all = lines(&ran.stderr);
    let batch = all.iter().find(|l| l["target"] == "tidegate::batch").expect("a batch");
    assert_eq!((&batch["records"], batch["bbox"].as_str()), (&2.into(), Some("16,47,18,49")), "{batch}");
    assert!(
        batch["crs"].as_str().unwrap().contains("4326") || batch["crs"].as_str().unwrap().contains("CRS84"),
        "{batch}"
    );
    assert!(!ran.stderr.contains("16.1234"), "{}", ran.stderr);
    let ran = bench.run(&["run", "m.yaml", "--log", "json", "--log-level", "debug"], &[]);
    assert!(ran.stderr.contains("16.123456,47.5,17.5,48.234567"), "{}", ran.stderr);
}

#[test]
fn errors_have_the_level_of_errors() {
    let bench = Bench::new();
    bench.write("in.geojsonl", "{\"type\":\"Feature\",\"properties\":{\"id\":1},\"geometry\":null}\n");
    bench.manifest("source: { file: missing.geojsonl }\nsink: { file: out.geojsonl }");
    let ran = bench.run(&["run", "m.yaml", "--log", "json"], &[]);
    let all = lines(&ran.stderr);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        all.iter()
            .any(|l| l["level"] == "error" && l["message"].as_str().unwrap().contains("missing.geojsonl"))
    );
    bench.write("m.yaml", "pipeline: 7");
    let ran = bench.run(&["run", "m.yaml", "--log", "json"], &[]);
    assert!(lines(&ran.stderr).iter().all(|l| l["level"] == "error"), "{}", ran.stderr);
}

#[test]
fn every_retry_is_a_line_and_every_end_a_warning() {
    let geocoder = geocoder(|n| match n {
        0 => "503 Busy\r\nRetry-After: 1",
        1 => "503 Busy",
        _ => "400 Bad Request",
    });
    let bench = Bench::addresses(1);
    let url = geocoder.url();
    let args = ["geocode", "in.csv", "--address", "address", "--url", &url, "-o", "out.csv"];
    let ran = bench.run(&[&args[..], &["--log", "json"]].concat(), &[]);
    let lines = lines(&ran.stderr);
    let calls: Vec<&Value> = lines.iter().filter(|l| l["target"] == "tidegate::call").collect();
    let retries: Vec<&&Value> = calls.iter().filter(|l| l["message"] == "retry").collect();
    assert_eq!(retries.len(), 2, "{}", ran.stderr);
    for (retry, attempt) in retries.iter().zip(1..) {
        assert_eq!((&retry["level"], &retry["attempt"]), (&"info".into(), &attempt.into()), "{retry}");
        assert_eq!(
            (&retry["code"], &retry["status"]),
            (&"SERVICE_UNAVAILABLE".into(), &503.into()),
            "{retry}"
        );
        assert!(retry["wait_ms"].is_u64(), "{retry}");
    }
    assert_eq!((&retries[0]["asked_by"], &retries[1]["asked_by"]), (&"server".into(), &"backoff".into()));
    let ends: Vec<&&Value> = calls.iter().filter(|l| l["level"] == "warn").collect();
    assert!(ends.len() == 1 && ends[0]["status"] == 400, "{}", ran.stderr);
}
