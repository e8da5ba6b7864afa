//! What a run of a scenario gave: numbers, curves and kept or broken promises.
//!
//! The reports know only this type; a new kind of scenario needs no new report.

use serde::Serialize;

use crate::scenario::expect::{Checked, Expectations};
use crate::stats::{Summary, Tally};

/// The result of one scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// Why it exists.
    pub reason: String,
    /// The seed that decided everything.
    pub seed: u64,
    /// Trials per case.
    pub trials: u32,
    /// The numbers, case by case.
    pub cases: Vec<Case>,
    /// The promises of the scenario.
    pub checks: Vec<Checked>,
    /// Curves worth looking at.
    pub plots: Vec<Plot>,
    /// Simulated events, all trials together.
    pub events: u64,
    /// The hash over all events: equal seeds give equal hashes.
    #[serde(serialize_with = "hex")]
    pub trace: u64,
}

fn hex<S: serde::Serializer>(hash: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{hash:016x}"))
}

/// One case: the same question under one set of parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// Its name within the scenario.
    pub name: String,
    /// The numbers, in the order of the table.
    pub metrics: Vec<Metric>,
}

/// One number of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its value over the trials.
    #[serde(flatten)]
    pub value: Summary,
}

impl Case {
    /// The value of a metric.
    #[must_use]
    pub fn get(&self, metric: &str) -> Option<&Summary> {
        self.metrics.iter().find(|m| m.name == metric).map(|m| &m.value)
    }
}

/// Collects the metrics of a case over its trials. Metrics keep the order of their first mention.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Vec<(&'static str, Tally)>);

impl Ledger {
    /// Adds one trial's value.
    pub fn add(&mut self, metric: &'static str, value: f64) {
        match self.0.iter_mut().find(|(name, _)| *name == metric) {
            Some((_, tally)) => tally.add(value),
            None => {
                let mut tally = Tally::default();
                tally.add(value);
                self.0.push((metric, tally));
            }
        }
    }

    /// The finished case.
    #[must_use]
    pub fn case(&self, name: String) -> Case {
        let metrics = self.0.iter().map(|(name, tally)| Metric { name, value: tally.summary() });
        Case { name, metrics: metrics.collect() }
    }
}

/// A picture: some lines over one axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// What it measures, with the unit.
    pub label: String,
    /// Whether it is logarithmic.
    pub log: bool,
}

impl Axis {
    /// A linear axis.
    #[must_use]
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.to_owned(), log: false }
    }

    /// A logarithmic axis.
    #[must_use]
    pub fn log(label: &str) -> Axis {
        Axis { label: label.to_owned(), log: true }
    }
}

/// A line of a plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its points, ordered by x.
    pub points: Vec<(f64, f64)>,
}

impl Outcome {
    /// Whether every promise held.
    #[must_use]
    pub fn held(&self) -> bool {
        self.checks.iter().all(|c| c.held)
    }

    /// Compares the cases with the promises.
    pub fn check(&mut self, expectations: &Expectations) {
        for (case_name, metrics) in expectations {
            let case = self.cases.iter().find(|c| c.name == *case_name);
            for (metric, check) in metrics {
                let value = case.and_then(|c| c.get(metric));
                self.checks.push(Checked {
                    case: case_name.clone(),
                    metric: metric.clone(),
                    wanted: check.to_string(),
                    got: value.map(|v| v.mean),
                    se: value.map_or(0.0, |v| v.se),
                    held: value.is_some_and(|v| check.holds(v)),
                });
            }
        }
    }
}
