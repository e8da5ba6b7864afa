//! The table, and what misses its target.

use std::fmt::Write as _;

use crate::job::{Job, Who};
use crate::measure::Sample;

/// One line: a job as one program did it.
pub(crate) struct Row<'a> {
    pub(crate) job: &'a Job,
    pub(crate) who: Who,
    pub(crate) samples: Vec<Sample>,
}

impl Row<'_> {
    fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        let mut all: Vec<f64> = self.samples.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn wall(&self) -> f64 {
        self.median(|sample| sample.wall.as_secs_f64())
    }

    /// The worst of the runs, in MB: memory has no noise to take out.
    fn peak(&self) -> f64 {
        self.samples.iter().map(|sample| sample.peak as f64 / 1e6).fold(0.0, f64::max)
    }
}

fn ours<'r, 'a>(rows: &'r [Row<'a>], job: &Job) -> Option<&'r Row<'a>> {
    rows.iter().find(|row| row.job.name == job.name && row.who == Who::Tidegate)
}

pub(crate) fn markdown(rows: &[Row<'_>]) -> String {
    let mut out = String::from(
        "| job | | wall s | CPU s | peak MB | Tidegate is faster by | target |\n|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let (times, target) = match (row.who, ours(rows, row.job)) {
            (Who::Tidegate, _) => (String::new(), format!("≤ {} MB", row.job.peak_max)),
            (_, Some(ours)) => (
                format!("{:.1} ×", row.wall() / ours.wall()),
                row.job.times_min.map_or(String::new(), |times| format!("≥ {times} ×")),
            ),
            (_, None) => (String::new(), String::new()),
        };
        let cpu = row.median(|sample| sample.cpu.as_secs_f64());
        let _ = writeln!(
            out,
            "| {} | {} | {:.2} | {cpu:.2} | {:.0} | {times} | {target} |",
            row.job.name,
            row.who.name(),
            row.wall(),
            row.peak(),
        );
    }
    out
}

/// Targets that are missed; of several peers the fastest counts.
pub(crate) fn missed(rows: &[Row<'_>]) -> Vec<String> {
    let mut out = Vec::new();
    for ours in rows.iter().filter(|row| row.who == Who::Tidegate) {
        let job = ours.job;
        if ours.peak() > job.peak_max {
            out.push(format!("{}: {:.0} MB, at most {} are allowed", job.name, ours.peak(), job.peak_max));
        }
        let fastest = rows
            .iter()
            .filter(|row| row.who != Who::Tidegate && row.job.name == job.name)
            .min_by(|a, b| a.wall().total_cmp(&b.wall()));
        if let (Some(times), Some(peer)) = (job.times_min, fastest)
            && peer.wall() < times * ours.wall()
        {
            let found = peer.wall() / ours.wall();
            out.push(format!("{}: {found:.1} × {}, {times} × are wanted", job.name, peer.who.name()));
        }
    }
    out
}
