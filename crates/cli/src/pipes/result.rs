//! The result of a run in the words of Dagster: asset checks, metadata, a data version.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};
use tidegate_pipeline::gate::Reading;
use tidegate_pipeline::run::{End, RunReport};

use super::PipesStep;
use crate::exit::Exit;

/// The name of the check that fails if records became dead letters.
const DEAD_LETTERS: &str = "dead_letters";

/// How a run ended.
pub(crate) struct PipesResult<'a> {
    /// The result of the run; `None` if it did not start or was aborted.
    pub(crate) report: Option<&'a RunReport>,
    /// The last state of the gates.
    pub(crate) gates: Vec<Reading>,
    /// The result as JSON, as `--format json` prints it.
    pub(crate) json: Value,
    /// The HTML report, if one was written.
    pub(crate) page: Option<&'a Path>,
    /// The exit code.
    pub(crate) exit: Exit,
}

/// The name of the check of a gate: letters, digits and `_`, such as `gates_0_unique`.
pub(crate) fn check_name(gate: &str) -> String {
    let words = gate.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

/// A value of the metadata; its type is one of Dagster's.
fn typed(kind: &str, value: impl Into<Value>) -> Value {
    json!({ "type": kind, "raw_value": value.into() })
}

impl PipesResult<'_> {
    /// The messages, in order.
    pub(super) fn messages(&self, step: &PipesStep) -> Vec<(&'static str, Value)> {
        let mut messages = Vec::new();
        if let Some(asset) = step.asset() {
            for name in step.checks() {
                if let Some(mut check) = self.check(name) {
                    check["asset_key"] = asset.into();
                    check["check_name"] = name.into();
                    messages.push(("report_asset_check", check));
                }
            }
            if let Some(report) = self.complete() {
                let params = json!({
                    "asset_key": asset,
                    "metadata": self.metadata(report, step),
                    "data_version": report.data_version,
                });
                messages.push(("report_asset_materialization", params));
            }
        }
        let mut result = self.json.clone();
        result["exit_code"] = (self.exit as u8).into();
        messages.push(("report_custom_message", json!({ "payload": { "tidegate": result } })));
        messages
    }

    /// The result, if the sink is complete. After a service that did not answer at all it is not: the
    /// run is to be repeated.
    fn complete(&self) -> Option<&RunReport> {
        self.report.filter(|report| report.end == End::Done && self.exit != Exit::TryLater)
    }

    /// The outcome of a check; `None` if it is unknown, because the run ended before.
    fn check(&self, name: &str) -> Option<Value> {
        let report = self.report?;
        if name == DEAD_LETTERS {
            let dead = report.counts.unsuccessful();
            let metadata = json!({
                "dead_letters": typed("int", dead),
                "by_code": typed("json", json!(report.counts.rejected)),
                "place": typed("text", report.rejects.as_str()),
            });
            return Some(json!({ "passed": dead == 0, "severity": "WARN", "metadata": metadata }));
        }
        let Some(gate) = self.gates.iter().find(|gate| check_name(&gate.tally.gate) == name) else {
            // A gate that does not apply to these records, such as one for coordinates in degrees.
            let metadata = json!({ "checked": typed("int", 0), "failed": typed("int", 0) });
            return self
                .complete()
                .map(|_| json!({ "passed": true, "severity": "WARN", "metadata": metadata }));
        };
        let tally = &gate.tally;
        let mut metadata = json!({
            "checked": typed("int", tally.looked),
            "failed": typed("int", tally.failed),
            "max_rate": typed("float", gate.limit),
            "gate": typed("text", tally.gate.as_str()),
            "severity": typed("text", tally.severity.as_str()),
        });
        if let (End::Halted(halt), true) = (&report.end, gate.halted) {
            metadata["halt"] = typed("text", halt.to_string());
        }
        // What a gate rejects is a dead letter: the rest of the data is good.
        let severity = if gate.halted || tally.severity == "halt" { "ERROR" } else { "WARN" };
        Some(json!({ "passed": passed(gate), "severity": severity, "metadata": metadata }))
    }

    fn metadata(&self, report: &RunReport, step: &PipesStep) -> Value {
        let counts = &report.counts;
        let mut all = Map::new();
        let mut add = |name: &str, value: Value| {
            all.insert(name.to_owned(), value);
        };
        if step.partition_key.is_some() {
            add("dagster/partition_row_count", typed("int", counts.written()));
        }
        add("dagster/row_count", typed("int", report.sink_rows.unwrap_or_else(|| counts.written())));
        for (name, n) in [("read", counts.read), ("written", counts.written()), ("rejected", counts.dead())] {
            add(name, typed("int", n));
        }
        for (name, n) in [
            ("inserted", counts.inserted),
            ("updated", counts.updated),
            ("unchanged", counts.unchanged),
            ("deleted", counts.deleted),
            ("filtered", counts.filtered),
            ("deduped", counts.deduped),
            ("no_match", counts.no_match),
            ("failed", counts.failed),
            ("repaired", counts.repaired),
            ("calls", report.calls),
        ] {
            if n > 0 {
                add(name, typed("int", n));
            }
        }
        if let Some(extent) = self.json.get("extent").filter(|extent| extent.is_array()) {
            add("extent", typed("json", extent.clone()));
        }
        if let Some(page) = self.page {
            let page = std::path::absolute(page).unwrap_or_else(|_| page.to_owned());
            add("report", typed("path", page.display().to_string()));
        }
        if !self.gates.is_empty() {
            add("gates", typed("md", self.gate_table()));
        }
        if counts.unsuccessful() > 0 {
            add("dead_letters", typed("text", report.rejects.as_str()));
        }
        add("sink", typed("text", report.sink.as_str()));
        add("crs", typed("text", report.crs.as_str()));
        add("run", typed("text", report.began.run.as_str()));
        add("seconds", typed("float", report.elapsed.as_secs_f64()));
        Value::Object(all)
    }

    fn gate_table(&self) -> String {
        let mut text = "| gate | severity | checked | failed |\n|---|---|---|---|\n".to_owned();
        for Reading { tally, .. } in &self.gates {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} |",
                tally.gate, tally.severity, tally.looked, tally.failed
            );
        }
        text
    }
}

/// Whether a check passes: a gate that rejects passes if it had nothing to reject, the others within
/// their tolerance.
fn passed(gate: &Reading) -> bool {
    let tally = &gate.tally;
    !gate.halted
        && match tally.severity.as_str() {
            "reject" => tally.failed == 0,
            _ => tally.rate() <= gate.limit,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_pipeline::gate::GateTally;

    fn gate(severity: &str, failed: u64, limit: f64) -> Reading {
        let tally =
            GateTally { gate: "gates[0] unique".into(), severity: severity.into(), looked: 10, failed };
        Reading { tally, limit, nulls: false, spatial: false, halted: false }
    }

    #[test]
    fn names_of_checks_are_words() {
        assert_eq!(check_name("gates[0] unique"), "gates_0_unique");
        assert_eq!(check_name("tolerance.max_null_rate"), "tolerance_max_null_rate");
        assert_eq!(check_name("steps[1] geocode"), "steps_1_geocode");
    }

    #[test]
    fn what_a_gate_tolerates_passes_and_what_it_rejects_does_not() {
        assert!(passed(&gate("halt", 1, 0.1)));
        assert!(!passed(&gate("halt", 2, 0.1)));
        assert!(passed(&gate("warn", 0, 0.0)));
        assert!(!passed(&gate("warn", 1, 0.0)));
        assert!(passed(&gate("reject", 0, 1.0)));
        assert!(!passed(&gate("reject", 1, 1.0)));
    }
}
