//! The outcome of a scenario: metrics, plots and checked expectations.
//!
//! Reports depend only on this type, so a new kind of scenario needs no new report.

use serde::Serialize;

use crate::scenario::expect::{CheckedExpectation, Expectations};
use crate::stats::{TrialSummary, TrialTally};

/// The result of one scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScenarioOutcome {
    /// The name of the scenario.
    pub name: String,
    /// One sentence on why it exists.
    pub reason: String,
    /// The seed of the random generator.
    pub seed: u64,
    /// Trials per case.
    pub trials: u32,
    /// The metrics of each case.
    pub cases: Vec<Case>,
    /// The expectations of the scenario, checked.
    pub checks: Vec<CheckedExpectation>,
    /// The plots.
    pub plots: Vec<Plot>,
    /// The number of simulated events in all trials.
    pub events: u64,
    /// The hash over all events: equal seeds give equal hashes.
    #[serde(serialize_with = "hex")]
    pub trace: u64,
}

fn hex<S: serde::Serializer>(hash: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{hash:016x}"))
}

/// One case: the same experiment with one set of parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// Its name within the scenario.
    pub name: String,
    /// The metrics, in the order of the table.
    pub metrics: Vec<CaseMetric>,
}

/// One metric of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseMetric {
    /// Its name.
    pub name: &'static str,
    /// Its value over the trials.
    #[serde(flatten)]
    pub value: TrialSummary,
}

impl Case {
    /// The value of a metric.
    #[must_use]
    pub fn get(&self, metric: &str) -> Option<&TrialSummary> {
        self.metrics.iter().find(|m| m.name == metric).map(|m| &m.value)
    }
}

/// Collects the metrics of a case over its trials, in the order of their first use.
#[derive(Clone, Debug, Default)]
pub struct MetricTallies(Vec<(&'static str, TrialTally)>);

impl MetricTallies {
    /// Adds the value of one trial.
    pub fn add(&mut self, metric: &'static str, value: f64) {
        match self.0.iter_mut().find(|(name, _)| *name == metric) {
            Some((_, tally)) => tally.add(value),
            None => {
                let mut tally = TrialTally::default();
                tally.add(value);
                self.0.push((metric, tally));
            }
        }
    }

    /// The case with its summarized metrics.
    #[must_use]
    pub fn case(&self, name: String) -> Case {
        let metrics = self.0.iter().map(|(name, tally)| CaseMetric { name, value: tally.summary() });
        Case { name, metrics: metrics.collect() }
    }
}

/// A plot: lines over one axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<PlotLine>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// The label: the quantity with its unit.
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
pub struct PlotLine {
    /// Its name.
    pub name: String,
    /// Its points, ordered by x.
    pub points: Vec<(f64, f64)>,
}

/// The most lines that can be told apart in one plot.
pub const LINES_MAX: usize = 6;

impl ScenarioOutcome {
    /// Keeps the lines of the `wanted` cases, under whatever policy they ran; if there are none,
    /// the first six. For cases called `a/b`, the six have the same `b`, so that they can be
    /// compared.
    pub fn choose_lines(&mut self, wanted: &[String]) {
        for plot in &mut self.plots {
            let all = plot.lines.len();
            let is_wanted = |name: &str| {
                let case = name.split_once('/').map_or(name, |(_, case)| case);
                wanted.iter().any(|w| w == name || w == case)
            };
            if !wanted.is_empty() {
                plot.lines.retain(|line| is_wanted(&line.name));
            }
            if plot.lines.len() > LINES_MAX {
                let row = |line: &PlotLine| line.name.split_once('/').map(|(_, row)| row.to_owned());
                if let Some(first) = plot.lines.first().and_then(row) {
                    plot.lines.retain(|line| row(line).as_ref() == Some(&first));
                }
                plot.lines.truncate(LINES_MAX);
            }
            if plot.lines.len() < all {
                plot.title = format!("{} ({} of {all} cases)", plot.title, plot.lines.len());
            }
        }
    }

    /// Whether all expectations held.
    #[must_use]
    pub fn held(&self) -> bool {
        self.checks.iter().all(|c| c.held)
    }

    /// Checks the expectations.
    pub fn check(&mut self, expectations: &Expectations) {
        for (case_name, metrics) in expectations {
            let case = self.cases.iter().find(|c| c.name == *case_name);
            for (metric, check) in metrics {
                let value = case.and_then(|c| c.get(metric));
                self.checks.push(CheckedExpectation {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str], wanted: &[&str]) -> (String, Vec<String>) {
        let line = |name: &&str| PlotLine { name: (*name).to_owned(), points: vec![] };
        let plot = Plot {
            title: "T".to_owned(),
            x: Axis::linear("x"),
            y: Axis::linear("y"),
            lines: names.iter().map(line).collect(),
        };
        let mut outcome = ScenarioOutcome { plots: vec![plot], ..ScenarioOutcome::default() };
        outcome.choose_lines(&wanted.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        let plot = outcome.plots.remove(0);
        (plot.title, plot.lines.into_iter().map(|l| l.name).collect())
    }

    #[test]
    fn a_picture_has_lines_that_can_be_told_apart() {
        let few = ["a", "b", "c"];
        assert_eq!(chosen(&few, &[]), ("T".to_owned(), few.map(str::to_owned).to_vec()));
        assert_eq!(chosen(&few, &["b"]), ("T (1 of 3 cases)".to_owned(), vec!["b".to_owned()]));
        let grid = ["own/x", "own/y", "own/z", "own/w", "full/x", "full/y", "full/z", "full/w"];
        let rows = ["own/x", "full/x"].map(str::to_owned).to_vec();
        assert_eq!(chosen(&grid, &[]), ("T (2 of 8 cases)".to_owned(), rows));
        let rows = ["own/z", "full/z"].map(str::to_owned).to_vec();
        assert_eq!(chosen(&grid, &["z"]).1, rows, "under whatever policy");
        assert_eq!(chosen(&["1", "2", "3", "4", "5", "6", "7"], &[]).1.len(), LINES_MAX);
    }
}
