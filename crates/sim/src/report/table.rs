//! The outcome as a table for the terminal.
//!
//! Cases called `a/b` are a grid and are printed as one: a table per metric, `b` down, `a`
//! across. Other cases are lines with their metrics across; metrics that are zero everywhere are
//! left out.

use std::fmt::Write;

use super::short;
use crate::outcome::{Case, Outcome};

/// Colours of a terminal, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether to colour.
    pub colour: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The rows of a table, the first of which is its head.
pub(super) type Rows = Vec<Vec<String>>;

/// The whole report.
#[must_use]
pub fn table(outcome: &Outcome, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", style.paint("1", &outcome.name));
    let _ = writeln!(out, "{}\n", outcome.reason);
    for (title, rows) in numbers(&outcome.cases) {
        if !title.is_empty() {
            let _ = writeln!(out, "{}", style.paint("1", title));
        }
        let _ = writeln!(out, "{}", align(&rows));
    }
    if !outcome.checks.is_empty() {
        let _ = writeln!(out, "{}", align(&checks(outcome, style)));
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

/// The numbers of all cases as titled tables.
pub(super) fn numbers(cases: &[Case]) -> Vec<(&'static str, Rows)> {
    grid(cases).unwrap_or_else(|| vec![("", lines(cases))])
}

fn value(case: &Case, metric: &str) -> String {
    case.get(metric).map_or_else(String::new, |v| {
        let mean = short(v.mean);
        if v.se > 0.0 { format!("{mean} ±{}", short(two_digits(v.se))) } else { mean }
    })
}

/// A standard error means nothing beyond two digits.
fn two_digits(x: f64) -> f64 {
    let unit = 10f64.powf(x.abs().log10().floor() - 1.0);
    (x / unit).round() * unit
}

fn metrics(cases: &[Case]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for metric in cases.iter().flat_map(|c| &c.metrics) {
        if !names.contains(&metric.name) && metric.value.max > 0.0 {
            names.push(metric.name);
        }
    }
    names
}

fn lines(cases: &[Case]) -> Rows {
    let names = metrics(cases);
    let mut rows: Rows =
        vec![core::iter::once("case").chain(names.iter().copied()).map(str::to_owned).collect()];
    rows.extend(cases.iter().map(|case| {
        let mut row = vec![case.name.clone()];
        row.extend(names.iter().map(|metric| value(case, metric)));
        row
    }));
    rows
}

fn grid(cases: &[Case]) -> Option<Vec<(&'static str, Rows)>> {
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
    let table = |metric| {
        let mut rows: Rows =
            vec![core::iter::once("").chain(across.iter().copied()).map(str::to_owned).collect()];
        rows.extend(down.iter().map(|&b| {
            let mut row = vec![b.to_owned()];
            row.extend(across.iter().map(|&a| find(a, b).map_or_else(String::new, |c| value(c, metric))));
            row
        }));
        (metric, rows)
    };
    (cases.len() > 1).then(|| metrics(cases).into_iter().map(table).collect())
}

fn checks(outcome: &Outcome, style: Style) -> Rows {
    let mut rows: Rows = vec![["case", "metric", "expected", "got", ""].map(str::to_owned).to_vec()];
    for check in &outcome.checks {
        let got = check.got.map_or_else(|| "no such metric".to_owned(), short);
        let mark = if check.held { style.paint("32", "ok") } else { style.paint("31", "FAIL") };
        rows.push(vec![check.case.clone(), check.metric.clone(), check.wanted.clone(), got, mark]);
    }
    rows
}

/// Columns in line: words to the left, numbers to the right.
fn align(rows: &Rows) -> String {
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

/// Characters that take room: colours take none.
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
    use crate::scenario::{Options, Scenario};

    #[test]
    fn a_report_reads_well() {
        let scenario = Scenario::parse(
            "{name: x, reason: y, contention: {clients: [1], strategies: [none, full]},
              expect: {none/1: {calls: {equals: 1}}, full/1: {calls: {equals: 2}}}}",
        )
        .unwrap();
        let outcome = scenario.run(&Options::default()).unwrap();
        let text = table(&outcome, Style::default());
        assert!(text.contains("   none  full\n1     1     1\n"), "{text}");
        assert!(text.contains("none/1  calls        = 1    1  ok\n"), "{text}");
        assert!(text.contains("1 of 2 expectations fail"), "{text}");
        let colour = table(&outcome, Style { colour: true });
        assert!(colour.contains("\x1b[31mFAIL\x1b[0m"));
        assert_eq!(visible("\x1b[31mFAIL\x1b[0m"), 4);
    }
}
