//! The gates of a manifest, before the records are known: those that it lists and those that its
//! `tolerance` implies, with what each of them does.
//!
//! `run`, `plan` and `validate` all take them from here, so that they cannot disagree about what
//! halts a run and what only warns.

use super::{services, word};
use crate::manifest::{Check, Gate, Manifest, Per, Severity, ToleranceSpec};
use crate::run::step_label;

/// A gate of a manifest.
#[derive(Clone, Debug)]
pub struct DeclaredGate {
    /// Its settings.
    pub form: Gate,
    /// Its name, such as `gates[0] unique`.
    pub label: String,
    /// What it does with failures.
    pub severity: Severity,
    /// The share of failures, from 0 to 1, above which it halts or warns.
    pub max_rate: f64,
    /// Whether it applies only to records in longitude and latitude.
    pub only_in_degrees: bool,
}

impl DeclaredGate {
    /// The name of its severity.
    #[must_use]
    pub const fn severity_name(&self) -> &'static str {
        word(self.severity)
    }
}

/// The gates of a manifest, for records in degrees or not.
#[must_use]
pub fn declared(manifest: &Manifest, degrees: bool) -> Vec<DeclaredGate> {
    let pipeline = &manifest.pipeline;
    let mut implied = implied(&pipeline.tolerance, degrees);
    // A manifest with an explicit gate for invalid geometries replaces the implied one, unless that
    // halts the run.
    if !pipeline.tolerance.halt_on_geometry_invalid
        && pipeline.gates.iter().any(|gate| gate.check == Check::IsValid)
    {
        implied.retain(|(gate, _)| gate.check != Check::IsValid);
    }
    let only_in_degrees =
        |label: &str| label == PRECISION && pipeline.tolerance.precision_decimal_threshold.is_none();
    let own = pipeline
        .gates
        .iter()
        .enumerate()
        .map(|(at, form)| (form.clone(), format!("gates[{at}] {}", form.check.name())));
    implied
        .into_iter()
        .chain(own)
        .map(|(form, label)| {
            let whole = matches!(form.check, Check::NullRate | Check::Count);
            let severity = form.severity.unwrap_or(if whole { Severity::Halt } else { Severity::Reject });
            let max_rate = form.max_rate.unwrap_or(if severity == Severity::Reject { 1.0 } else { 0.0 });
            DeclaredGate { only_in_degrees: only_in_degrees(&label), form, label, severity, max_rate }
        })
        .collect()
}

/// All gates of a manifest: those of [`declared`] for records in degrees, and the tolerances of its
/// steps and services. Each with its name, its severity and its highest failure rate, from 0 to 1.
#[must_use]
pub fn all_gates(manifest: &Manifest) -> Vec<(String, &'static str, f64)> {
    let own = declared(manifest, true).into_iter().map(|gate| {
        let severity = gate.severity_name();
        (gate.label, severity, gate.max_rate)
    });
    let steps = manifest.pipeline.steps.iter().enumerate();
    let steps = steps
        .filter_map(|(at, form)| Some((step_label(at, form), word(Severity::Halt), form.max_reject_rate?)));
    let services = services::of(manifest).into_iter().map(|gate| (gate.tally.gate, "reject", gate.max_rate));
    own.chain(steps).chain(services).collect()
}

const PRECISION: &str = "tolerance.precision_decimal_threshold";

/// The gates that `tolerance` implies.
fn implied(tolerance: &ToleranceSpec, degrees: bool) -> Vec<(Gate, String)> {
    let gate = |check| Gate {
        check,
        severity: None,
        max_rate: None,
        per: Per::Run,
        fields: Vec::new(),
        min: None,
        max: None,
        is: None,
        values: Vec::new(),
        decimals: None,
        bbox: Vec::new(),
        tolerate: None,
    };
    let valid = if tolerance.halt_on_geometry_invalid { Severity::Halt } else { Severity::Reject };
    let mut gates = vec![
        (
            Gate { severity: Some(valid), ..gate(Check::IsValid) },
            "tolerance.halt_on_geometry_invalid".to_owned(),
        ),
        (
            Gate { max_rate: Some(tolerance.max_null_rate), ..gate(Check::NullRate) },
            "tolerance.max_null_rate".to_owned(),
        ),
    ];
    let severity =
        if tolerance.precision_decimal_threshold.is_some() { Severity::Halt } else { Severity::Warn };
    let decimals = tolerance.precision_decimal_threshold.or(degrees.then_some(ToleranceSpec::PRECISION));
    if let Some(decimals) = decimals.filter(|decimals| *decimals > 0) {
        let form = Gate { severity: Some(severity), decimals: Some(decimals), ..gate(Check::Precision) };
        gates.push((form, PRECISION.to_owned()));
    }
    gates
}
