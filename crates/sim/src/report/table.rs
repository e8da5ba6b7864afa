//! The outcome as a table for the terminal.
//!
//! Cases called `a/b` form a grid: one table per metric, `b` down, `a` across. Other cases are rows
//! with their metrics across; metrics that are zero everywhere are omitted. Of many expectations
//! only the failed ones are listed; JSON has them all.

use std::fmt::Write;

use super::short;
use crate::outcome::{Case, ScenarioOutcome};

/// Whether to use terminal colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether to use colours.
    pub colour: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The most expectations that are listed individually while they hold.
pub(super) const CHECKS_MAX: usize = 24;

/// The rows of a table; the first is the header.
pub(super) type TableRows = Vec<Vec<String>>;

/// The whole report.
#[must_use]
pub fn table(outcome: &ScenarioOutcome, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", style.paint("1", &outcome.name));
    let _ = writeln!(out, "{}\n", outcome.reason);
    for (title, rows) in numbers(&outcome.cases) {
        if !title.is_empty() {
            let _ = writeln!(out, "{}", style.paint("1", &title));
        }
        let _ = writeln!(out, "{}", align(&rows));
    }
    if !outcome.checks.is_empty() {
        let rows = checks(outcome, style);
        if rows.len() > 1 {
            let _ = writeln!(out, "{}", align(&rows));
        }
        let (broken, all) = (outcome.checks.iter().filter(|c| !c.held).count(), outcome.checks.len());
        let _ = match broken {
            0 => writeln!(out, "{}", style.paint("32", &format!("all {all} expectations hold"))),
            n => writeln!(out, "{}", style.paint("31", &format!("{n} of {all} expectations fail"))),
        };
    }
    let _ = writeln!(
        out,
        "seed {}, trials {}, events {}, trace {:016x}",
        outcome.seed, outcome.trials, outcome.events, outcome.trace
    );
    out
}

/// The metrics of all cases as titled tables.
pub(super) fn numbers(cases: &[Case]) -> Vec<(String, TableRows)> {
    grid(cases).unwrap_or_else(|| vec![(String::new(), lines(cases))])
}

fn value(case: &Case, metric: &str) -> String {
    case.get(metric).map_or_else(String::new, |v| match (v.se, unit(metric)) {
        (se, _) if se > 0.0 => give_or_take(v.mean, se),
        (_, "%") => format!("{:.2}", v.mean),
        _ => short(v.mean),
    })
}

/// A mean with its standard error, rounded to two digits of the error.
fn give_or_take(mean: f64, se: f64) -> String {
    let digits = (1.0 - se.log10().floor()).clamp(0.0, 7.0) as usize;
    format!("{mean:.digits$} ±{se:.digits$}")
}

fn unit(metric: &str) -> &'static str {
    match metric {
        "utilisation" | "refused" => "%",
        "time" | "wait_max" => "s",
        "rate" => "per s",
        _ => "",
    }
}

/// The name of a metric with its unit.
fn named(metric: &str) -> String {
    match unit(metric) {
        "" => metric.to_owned(),
        unit => format!("{metric} ({unit})"),
    }
}

fn metrics(cases: &[Case]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for metric in cases.iter().flat_map(|c| &c.metrics) {
        if !names.contains(&metric.name) {
            names.push(metric.name);
        }
    }
    names.retain(|name| cases.iter().any(|c| c.get(name).is_some_and(|v| v.max > 0.0)));
    names
}

fn lines(cases: &[Case]) -> TableRows {
    let names = metrics(cases);
    let mut rows: TableRows =
        vec![core::iter::once("case".to_owned()).chain(names.iter().map(|m| named(m))).collect()];
    rows.extend(cases.iter().map(|case| {
        let mut row = vec![case.name.clone()];
        row.extend(names.iter().map(|metric| value(case, metric)));
        row
    }));
    rows
}

fn grid(cases: &[Case]) -> Option<Vec<(String, TableRows)>> {
    let (mut down, mut across): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for case in cases {
        let (a, b) = case.name.split_once('/')?;
        if !across.contains(&a) {
            across.push(a);
        }
        if !down.contains(&b) {
            down.push(b);
        }
    }
    let find = |a: &str, b: &str| cases.iter().find(|c| c.name.split_once('/') == Some((a, b)));
    let table = |metric: &str| {
        let mut rows: TableRows =
            vec![core::iter::once("").chain(across.iter().copied()).map(str::to_owned).collect()];
        rows.extend(down.iter().map(|&b| {
            let mut row = vec![b.to_owned()];
            row.extend(across.iter().map(|&a| find(a, b).map_or_else(String::new, |c| value(c, metric))));
            row
        }));
        (named(metric), rows)
    };
    (cases.len() > 1).then(|| metrics(cases).into_iter().map(table).collect())
}

fn checks(outcome: &ScenarioOutcome, style: Style) -> TableRows {
    let mut rows: TableRows = vec![["case", "metric", "expected", "got", ""].map(str::to_owned).to_vec()];
    let all = outcome.checks.len() <= CHECKS_MAX;
    for check in outcome.checks.iter().filter(|c| all || !c.held) {
        let got = check.got.map_or_else(|| "no such metric".to_owned(), short);
        let mark = if check.held { style.paint("32", "ok") } else { style.paint("31", "FAIL") };
        rows.push(vec![check.case.clone(), check.metric.clone(), check.wanted.clone(), got, mark]);
    }
    rows
}

/// Aligns columns: text to the left, numbers to the right.
fn align(rows: &TableRows) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cells = |column: usize| rows.iter().filter_map(move |r| r.get(column));
    let widths: Vec<usize> =
        (0..columns).map(|c| cells(c).map(|cell| visible(cell)).max().unwrap_or(0)).collect();
    let numeric = |c: usize| cells(c).skip(1).all(|cell| !cell.starts_with(char::is_alphabetic));
    let right: Vec<bool> = (0..columns).map(|c| c > 0 && numeric(c)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, width), right) in row.iter().zip(&widths).zip(&right) {
            let pad = " ".repeat(width - visible(cell));
            let _ = if *right { write!(line, "{pad}{cell}  ") } else { write!(line, "{cell}{pad}  ") };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// The number of visible characters, without colour codes.
fn visible(text: &str) -> usize {
    let mut inside = false;
    let takes_room = |&c: &char| {
        let counts = !inside && c != '\x1b';
        inside = (inside || c == '\x1b') && c != 'm';
        counts
    };
    text.chars().filter(takes_room).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Scenario, ScenarioOptions};

    #[test]
    fn a_report_reads_well() {
        let scenario = Scenario::parse(
            "{name: x, reason: y, contention: {clients: [1], strategies: [none, full]},
              expect: {none/1: {calls: {equals: 1}}, full/1: {calls: {equals: 2}}}}",
        )
        .unwrap();
        let outcome = scenario.run(&ScenarioOptions::default()).unwrap();
        let text = table(&outcome, Style::default());
        assert!(text.contains("   none  full\n1     1     1\n"), "{text}");
        assert!(text.contains("none/1  calls        = 1    1  ok\n"), "{text}");
        assert!(text.contains("1 of 2 expectations fail"), "{text}");
        let colour = table(&outcome, Style { colour: true });
        assert!(colour.contains("\x1b[31mFAIL\x1b[0m"));
        assert_eq!(visible("\x1b[31mFAIL\x1b[0m"), 4);
    }

    #[test]
    fn a_mean_has_the_digits_of_its_error() {
        for (mean, se, text) in [
            (0.000_194_9, 0.000_014_2, "0.000195 ±0.000014"),
            (3.343e-6, 1.4e-6, "0.0000033 ±0.0000014"),
            (2_001.04, 0.11, "2001.04 ±0.11"),
            (63_504.6, 118.0, "63505 ±118"),
            (1.0, 1e-12, "1.0000000 ±0.0000000"),
        ] {
            assert_eq!(give_or_take(mean, se), text);
        }
        assert_eq!([named("time"), named("calls")], ["time (s)", "calls"]);
    }

    #[test]
    fn of_many_expectations_only_the_broken_are_listed() {
        let checks = |n: usize| {
            let check = |i: usize| crate::scenario::expect::CheckedExpectation {
                case: format!("case{i}"),
                metric: "m".to_owned(),
                wanted: "= 1".to_owned(),
                got: Some(1.0),
                se: 0.0,
                held: i != 3,
            };
            table(
                &ScenarioOutcome { checks: (0..n).map(check).collect(), ..ScenarioOutcome::default() },
                Style::default(),
            )
        };
        assert!(checks(CHECKS_MAX).contains("case7"));
        let many = checks(CHECKS_MAX + 1);
        assert!(many.contains("case3") && !many.contains("case7"), "{many}");
        assert!(many.contains("1 of 25 expectations fail"), "{many}");
    }
}
