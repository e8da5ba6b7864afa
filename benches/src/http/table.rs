//! What is told: one table in Markdown, and every run in JSON.

use serde_json::{Value, json};

use crate::client::{Client, Run};
use crate::scenario::{Job, Scenario};

/// All runs of one client in one scenario.
pub(crate) struct Cell<'a> {
    pub(crate) client: Client,
    pub(crate) scenario: &'a Scenario,
    pub(crate) load: String,
    pub(crate) runs: Vec<Run>,
}

impl Cell<'_> {
    /// The median; of an even number, the lower of the two in the middle.
    fn median(&self, of: impl Fn(&Run) -> f64) -> f64 {
        let mut values: Vec<f64> = self.runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
    }

    fn worst(&self, of: impl Fn(&Run) -> u64) -> u64 {
        self.runs.iter().map(of).max().unwrap_or(0)
    }

    fn lost(&self) -> u64 {
        self.worst(|run| self.scenario.rows.saturating_sub(run.answered + run.refused))
    }

    fn times(&self) -> f64 {
        self.median(|run| run.stats.times_earliest)
    }

    fn wasted(&self) -> f64 {
        self.median(|run| run.stats.wasted_percent)
    }

    fn calls_per_row(&self) -> f64 {
        self.median(|run| run.stats.requests as f64 / self.scenario.rows as f64)
    }

    fn rows_per_second(&self) -> f64 {
        self.median(|run| self.scenario.rows as f64 / run.wall.as_secs_f64())
    }

    fn cpu(&self) -> f64 {
        self.median(|run| run.cpu.as_secs_f64())
    }

    /// The figures, in the order that the scenario's heading names.
    fn figures(&self) -> String {
        if self.runs.iter().all(|run| run.timed_out) {
            return "too long".into();
        }
        let (lost, cpu, target) = (self.lost(), self.cpu(), self.scenario.target);
        if self.scenario.kill {
            return format!("{lost} / {} / {cpu:.1}", self.worst(|run| run.twice));
        }
        if target.rows_per_second.is_some() {
            let micros = cpu * 1e6 / self.scenario.rows as f64;
            return format!("{:.0} / {lost} / {micros:.0}", self.rows_per_second());
        }
        let times = self.times();
        match heading(self.scenario) {
            LAYER => format!("{times:.2} / {lost} / {} / {cpu:.1}", self.worst(|run| run.twice)),
            TIMES => format!("{times:.2} / {:.1} / {lost} / {cpu:.1}", self.wasted()),
            _ => format!("{:.4} / {lost} / {cpu:.1}", self.calls_per_row()),
        }
    }

    /// One line for the eye, while it runs.
    pub(crate) fn words(&self) -> String {
        let mut line = format!("{} ({})", self.figures(), heading(self.scenario));
        let collapses = self.worst(|run| run.stats.collapses);
        let early = self.worst(|run| run.stats.retry_after_violations);
        let twice = self.worst(|run| run.twice);
        for (count, what) in
            [(collapses, "collapses"), (early, "calls earlier than told"), (twice, "duplicates")]
        {
            if count > 0 {
                line.push_str(&format!(", {count} {what}"));
            }
        }
        let missed = self.missed();
        if self.client == Client::Tidegate && !missed.is_empty() {
            line.push_str(&format!("; MISSED: {}", missed.join(", ")));
        }
        line
    }

    /// Targets that were not reached.
    fn missed(&self) -> Vec<String> {
        let target = self.scenario.target;
        let above = |what: &str, is: f64, target: Option<f64>| {
            target.filter(|t| is > *t).map(|t| format!("{what} {is:.3} > {t}"))
        };
        let below = target.rows_per_second.filter(|t| self.rows_per_second() < *t);
        let mut missed: Vec<String> = [
            above("time ×", self.times(), target.times),
            above("wasted %", self.wasted(), target.wasted),
            above("calls per row", self.calls_per_row(), target.calls),
            above("rows lost", self.lost() as f64, Some(0.0)),
            above("duplicates", self.worst(|run| run.twice) as f64, Some(0.0)),
            above("collapses", self.worst(|run| run.stats.collapses) as f64, Some(0.0)),
            above(
                "calls earlier than told",
                self.worst(|run| run.stats.retry_after_violations) as f64,
                Some(0.0),
            ),
        ]
        .into_iter()
        .flatten()
        .collect();
        missed.extend(below.map(|t| format!("rows/s {:.0} < {t}", self.rows_per_second())));
        missed
    }
}

const TIMES: &str = "time × / wasted % / lost / CPU s";
const LAYER: &str = "time × / lost / duplicates / CPU s";

fn heading(scenario: &Scenario) -> &'static str {
    if scenario.kill {
        "lost / duplicates / CPU s"
    } else if scenario.target.rows_per_second.is_some() {
        "rows per s / lost / CPU µs per row"
    } else if scenario.job == Job::Fetch {
        LAYER
    } else if scenario.target.calls.is_some() || !scenario.server.faults.is_empty() {
        "calls per row / lost / CPU s"
    } else {
        TIMES
    }
}

/// Without faults, 95 % of the throughput of bare reqwest is the target.
fn slower(cell: &Cell, cells: &[Cell]) -> Option<String> {
    let bare =
        cells.iter().find(|c| c.client.name() == "reqwest" && c.scenario.name == cell.scenario.name)?;
    let share = cell.rows_per_second() / bare.rows_per_second();
    (cell.scenario.target.rows_per_second.is_some() && share < 0.95)
        .then(|| format!("{:.0} % of bare reqwest < 95 %", 100.0 * share))
}

/// One row per client, one column per scenario.
pub(crate) fn markdown(cells: &[Cell]) -> String {
    let mut clients: Vec<Client> = Vec::new();
    let mut scenarios: Vec<&Scenario> = Vec::new();
    for cell in cells {
        if !clients.contains(&cell.client) {
            clients.push(cell.client);
        }
        if scenarios.iter().all(|s| s.name != cell.scenario.name) {
            scenarios.push(cell.scenario);
        }
    }
    let mut out = String::from("| client |");
    for scenario in &scenarios {
        out.push_str(&format!(" {}, {} rows: {} |", scenario.about, scenario.rows, heading(scenario)));
    }
    out.push_str(&format!("\n|---|{}\n", "---|".repeat(scenarios.len())));
    for client in clients {
        out.push_str(&format!("| {} |", client.words()));
        for scenario in &scenarios {
            let cell = cells.iter().find(|c| c.client == client && c.scenario.name == scenario.name);
            out.push_str(&format!(" {} |", cell.map_or("–".into(), Cell::figures)));
        }
        out.push('\n');
    }
    let ours = cells.iter().filter(|cell| cell.client == Client::Tidegate);
    let missed: Vec<String> = ours
        .filter_map(|cell| {
            let missed: Vec<String> = cell.missed().into_iter().chain(slower(cell, cells)).collect();
            (!missed.is_empty()).then(|| format!("{}: {}", cell.scenario.name, missed.join(", ")))
        })
        .collect();
    let verdict = if missed.is_empty() { "none".into() } else { missed.join("; ") };
    format!("{out}\ntargets missed: {verdict}")
}

/// Everything, for machines.
pub(crate) fn json(cells: &[Cell], before: &str, after: &str) -> Value {
    let runs = |cell: &Cell| -> Vec<Value> {
        let run = |run: &Run| {
            json!({
                "seed": run.seed,
                "answered": run.answered,
                "refused": run.refused,
                "twice": run.twice,
                "lost": cell.scenario.rows.saturating_sub(run.answered + run.refused),
                "wall_seconds": run.wall.as_secs_f64(),
                "cpu_seconds": run.cpu.as_secs_f64(),
                "timed_out": run.timed_out,
                "server": run.stats,
            })
        };
        cell.runs.iter().map(run).collect()
    };
    let cell = |cell: &Cell| {
        json!({
            "client": cell.client.name(),
            "scenario": cell.scenario.name,
            "rows": cell.scenario.rows,
            "load_after": cell.load,
            "missed": if cell.client == Client::Tidegate { cell.missed() } else { Vec::new() },
            "runs": runs(cell),
        })
    };
    json!({
        "load_before": before,
        "load_after": after,
        "cells": cells.iter().map(cell).collect::<Vec<_>>(),
    })
}
