//! What a run tells Dagster that started it: the lines of Dagster Pipes, through the built binary.

use std::fs;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::{Value, json};

use crate::common::running::Ran;
use crate::common::workdir::Workdir;

/// A variable as Dagster sets it.
fn encode(value: &Value) -> String {
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(value.to_string().as_bytes()).unwrap();
    STANDARD.encode(zlib.finish().unwrap())
}

/// The step of one asset, with these extras.
fn step(extras: Value) -> Value {
    json!({
        "asset_keys": ["parcels"], "code_version_by_asset_key": { "parcels": null },
        "provenance_by_asset_key": { "parcels": null }, "partition_key": null,
        "partition_key_range": null, "partition_time_window": null, "run_id": "r", "job_name": "j",
        "retry_number": 0, "extras": extras,
    })
}

const CHECKS: [&str; 4] =
    ["gates_0_range", "tolerance_max_null_rate", "tolerance_precision_decimal_threshold", "dead_letters"];

struct Started {
    dir: Workdir,
}

impl Started {
    fn new(gate: &str, values: &[i64]) -> Started {
        let dir = Workdir::new();
        dir.write(
            "m.yaml",
            &format!(
                "pipeline:
  id: parcels
  source: {{ file: in.geojsonl }}
  gates:
    - {gate}
  sink: {{ file: out.gpkg, key: [v] }}
  retry_policy: {{ max_attempts: 3, base_delay: 10ms, retryable_status_codes: [429, 503] }}
  tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: false }}
"
            ),
        );
        let started = Started { dir };
        started.values(values);
        started
    }

    fn values(&self, values: &[i64]) {
        let line = |v: &i64| {
            let x = 16.123_456 + *v as f64;
            format!(
                r#"{{"type":"Feature","properties":{{"v":{v}}},"geometry":{{"type":"Point","coordinates":[{x},48.123456]}}}}"#
            ) + "\n"
        };
        self.dir.write("in.geojsonl", &values.iter().map(line).collect::<String>());
    }

    /// Runs under Dagster; the context is in a file, as Dagster's own client has it.
    fn run(&self, extras: Value) -> (Ran, Vec<Value>) {
        self.dir.write("context.json", &step(extras).to_string());
        let (context, messages) = (self.dir.path("context.json"), self.dir.path("messages"));
        let _ = fs::remove_file(&messages);
        let ran = self.with(&json!({ "path": context }), &json!({ "path": messages }));
        let lines = fs::read_to_string(&messages).unwrap_or_default();
        (ran, lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    fn with(&self, context: &Value, messages: &Value) -> Ran {
        let mut command = self.dir.command(&["run", "m.yaml", "--resume"]);
        command.env("DAGSTER_PIPES_CONTEXT", encode(context)).env("DAGSTER_PIPES_MESSAGES", encode(messages));
        command.output().unwrap().into()
    }
}

fn of<'a>(lines: &'a [Value], method: &str) -> Vec<&'a Value> {
    assert!(lines.iter().all(|line| line["__dagster_pipes_version"] == "0.1"), "{lines:?}");
    lines.iter().filter(|line| line["method"] == method).map(|line| &line["params"]).collect()
}

fn raw<'a>(params: &'a Value, name: &str) -> &'a Value {
    &params["metadata"][name]["raw_value"]
}

#[test]
fn a_run_reports_its_gates_its_counts_and_a_version_that_changes_with_the_data() {
    let started = Started::new("{ check: range, fields: [v], min: 0, max: 10 }", &[1, 2, 3, 99]);
    let (ran, lines) = started.run(json!({ "checks": CHECKS }));
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert_eq!(lines.first().unwrap()["method"], "opened");
    assert_eq!(lines.last().unwrap()["method"], "closed");
    assert_eq!(lines.last().unwrap()["params"], json!({}), "dead letters are no failure of the process");
    let log = of(&lines, "log");
    assert!(log.iter().any(|line| line["message"].as_str().unwrap().contains("all records accounted for")));

    let checks = of(&lines, "report_asset_check");
    let outcome = |name: &str| {
        let check = checks.iter().find(|check| check["check_name"] == name).unwrap();
        assert_eq!(check["asset_key"], "parcels");
        (check["passed"].as_bool().unwrap(), check["severity"].as_str().unwrap(), raw(check, "failed"))
    };
    assert_eq!(checks.len(), CHECKS.len());
    assert_eq!(outcome("gates_0_range"), (false, "WARN", &json!(1)));
    assert_eq!(outcome("tolerance_max_null_rate"), (true, "ERROR", &json!(0)));
    assert_eq!(outcome("tolerance_precision_decimal_threshold"), (true, "WARN", &json!(0)));
    let dead = checks.iter().find(|check| check["check_name"] == "dead_letters").unwrap();
    assert_eq!((dead["passed"].as_bool(), raw(dead, "dead_letters")), (Some(false), &json!(1)));

    let made = of(&lines, "report_asset_materialization");
    assert_eq!(made.len(), 1);
    assert_eq!(raw(made[0], "dagster/row_count"), 3);
    assert_eq!((raw(made[0], "read"), raw(made[0], "rejected")), (&json!(4), &json!(1)));
    assert_eq!(raw(made[0], "extent"), &json!([17.123_456, 48.123_456, 19.123_456, 48.123_456]));
    let first = made[0]["data_version"].as_str().unwrap().to_owned();
    assert_eq!(raw(made[0], "run"), first.as_str());
    let result = &of(&lines, "report_custom_message")[0]["payload"]["tidegate"];
    assert_eq!((&result["exit_code"], &result["written"]), (&json!(4), &json!(3)));

    // Nothing changes: another run, the same version. Then something does.
    let version = |lines: &[Value]| of(lines, "report_asset_materialization")[0]["data_version"].clone();
    let (_, again) = started.run(json!({}));
    assert_eq!(version(&again), first.as_str());
    assert!(of(&again, "report_asset_check").is_empty(), "Dagster fails on checks that it does not know");
    started.values(&[1, 2, 3, 4]);
    let (ran, changed) = started.run(json!({}));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_ne!(version(&changed), first.as_str());
}

#[test]
fn a_gate_that_halts_is_a_failed_check_and_nothing_is_materialised() {
    let gate = "{ check: range, fields: [v], min: 0, max: 10, severity: halt }";
    let (ran, lines) = Started::new(gate, &[1, 99]).run(json!({ "checks": CHECKS }));
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let checks = of(&lines, "report_asset_check");
    let halted = checks.iter().find(|check| check["check_name"] == "gates_0_range").unwrap();
    assert_eq!((&halted["passed"], &halted["severity"]), (&json!(false), &json!("ERROR")));
    assert!(raw(halted, "halt").as_str().unwrap().contains("record 1"), "{halted}");
    assert!(of(&lines, "report_asset_materialization").is_empty());
    assert_eq!(of(&lines, "closed")[0]["exception"]["name"], "Halted");
}

#[test]
fn an_invalid_manifest_is_told_and_variables_that_cannot_be_read_end_the_run() {
    let started = Started::new("{ check: range, fields: [v], min: 0, max: 10 }", &[1]);
    started.dir.write("m.yaml", "pipeline: { id: parcels, sink: 7 }\n");
    let (ran, lines) = started.run(json!({}));
    assert_eq!(ran.code, 2);
    let closed = of(&lines, "closed")[0];
    assert_eq!(closed["exception"]["name"], "Usage");
    assert!(closed["exception"]["message"].as_str().unwrap().contains("sink"), "{closed}");

    let started = Started::new("{ check: range, fields: [v], min: 0, max: 10 }", &[1]);
    let (context, messages) =
        (json!({ "data": step(json!({})) }), json!({ "bucket": "b", "key_prefix": "p" }));
    let ran = started.with(&context, &messages);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("DAGSTER_PIPES_MESSAGES") && ran.stderr.contains("bucket"), "{}", ran.stderr);
    assert!(!started.dir.path("out.gpkg").exists(), "nothing was started");
    let ran = started.with(&context, &json!({ "stdio": "stdout" }));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains(r#""method":"report_asset_materialization""#), "{}", ran.stdout);
    // A disk that is full: Dagster would not learn of the success.
    let ran = started.with(&context, &json!({ "path": "/dev/full" }));
    assert_eq!(ran.code, 2, "{}", ran.stderr);
}
