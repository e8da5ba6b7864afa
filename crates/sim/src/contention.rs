//! Optimistic concurrency control (OCC) with many writers on one row: the contention table of
//! "Exponential Backoff And Jitter".
//!
//! One row on the server has a version. N clients start at once. Each reads the version and writes
//! with it; the write fails if another write came in between, and the client backs off and reads
//! again. Every network hop takes |Normal(10, 2)| milliseconds. The metrics are the number of
//! writes and the time of the last response.
//!
//! Why one event per call and not four: of the four hops only the write changes anything. A read at
//! time r returns the version of the last commit before r, so a write with that version succeeds
//! exactly if no commit came after r. The row therefore keeps the time of its last commit instead
//! of a version, and the read needs no event. Every hop is still drawn.

use core::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_core::retry::{Backoff, Jitter};
use tidegate_core::{Chance, Rng};

use crate::distribution::Normal;
use crate::event_queue::EventQueue;
use crate::outcome::{Axis, MetricTallies, Plot, PlotLine, ScenarioOutcome};
use crate::trace::TraceHash;

/// Nanoseconds per millisecond.
const MILLI: f64 = 1e6;
/// Mean time of a network hop, in nanoseconds.
const HOP_MEAN: f64 = 10.0 * MILLI;
/// Standard deviation of a network hop, in nanoseconds.
const HOP_DEVIATION: f64 = 2.0 * MILLI;
/// Base of the backoff.
const BASE: Duration = Duration::from_millis(5);
/// Cap of the backoff.
const CAP: Duration = Duration::from_secs(2);

/// A backoff strategy: a column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Retry at once.
    None,
    /// Exponential backoff without jitter.
    Exponential,
    /// Half of the backoff fixed, half random.
    Equal,
    /// The whole backoff random.
    Full,
    /// Random between the base and three times the previous delay.
    Decorrelated,
}

impl Strategy {
    /// All strategies, in the order of the table.
    pub const ALL: [Strategy; 5] =
        [Strategy::None, Strategy::Exponential, Strategy::Equal, Strategy::Full, Strategy::Decorrelated];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Strategy::None => "none",
            Strategy::Exponential => "exponential",
            Strategy::Equal => "equal",
            Strategy::Full => "full",
            Strategy::Decorrelated => "decorrelated",
        }
    }

    /// The shipped policy with the parameters of the table.
    #[must_use]
    pub fn backoff(self) -> Backoff {
        let (base, jitter) = match self {
            Strategy::None => (Duration::ZERO, Jitter::None),
            Strategy::Exponential => (BASE, Jitter::None),
            Strategy::Equal => (BASE, Jitter::Equal),
            Strategy::Full => (BASE, Jitter::Full),
            Strategy::Decorrelated => (BASE, Jitter::Decorrelated),
        };
        Backoff::new(base, 2.0, CAP, jitter)
    }
}

/// The contention table, or a part of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct Contention {
    /// The numbers of clients, one row each.
    pub clients: Vec<u32>,
    /// The strategies, one column each; all by default.
    #[serde(default = "all")]
    pub strategies: Vec<Strategy>,
}

fn all() -> Vec<Strategy> {
    Strategy::ALL.to_vec()
}

impl Contention {
    /// Runs all cells. Every cell has its own random generator, so leaving one out changes no
    /// other.
    pub fn run(&self, seed: u64, trials: u32, outcome: &mut ScenarioOutcome) {
        let mut occ = ContendedRow::default();
        let mut plots = ["calls", "time_ms"].map(|metric| Plot {
            title: if metric == "calls" {
                "Calls until all have written"
            } else {
                "Time until all have written"
            }
            .to_owned(),
            x: Axis::log("clients"),
            y: Axis::log(if metric == "calls" { "calls" } else { "time (ms)" }),
            lines: Vec::new(),
        });
        for &strategy in &self.strategies {
            let backoff = strategy.backoff();
            let mut lines = [const { Vec::new() }; 2];
            for &clients in &self.clients {
                let mut rng = Rng::fork(seed, u64::from(clients) << 8 | strategy as u64);
                let mut ledger = MetricTallies::default();
                for _ in 0..trials {
                    let trial = occ.trial(clients, &backoff, &mut rng);
                    ledger.add("calls", trial.calls as f64);
                    ledger.add("time_ms", trial.time_ms);
                }
                let case = ledger.case(format!("{}/{clients}", strategy.name()));
                for (line, metric) in lines.iter_mut().zip(["calls", "time_ms"]) {
                    line.extend(case.get(metric).map(|value| (f64::from(clients), value.mean)));
                }
                outcome.cases.push(case);
            }
            for (plot, points) in plots.iter_mut().zip(lines) {
                plot.lines.push(PlotLine { name: strategy.name().to_owned(), points });
            }
        }
        outcome.plots.extend(plots);
        outcome.events += occ.events;
        outcome.trace ^= occ.trace.hash();
    }
}

/// One client under optimistic concurrency control.
#[derive(Clone, Copy)]
struct OccWriter {
    /// The time at which its read reached the row, in nanoseconds.
    read_at: u64,
    /// The number of failed writes.
    attempt: u32,
    /// Last backoff delay, in nanoseconds.
    previous: u64,
}

/// The result of one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The number of writes.
    pub calls: u64,
    /// Time of the last event, in milliseconds.
    pub time_ms: f64,
}

/// The row and its clients; memory is reused between trials.
#[derive(Default)]
pub struct ContendedRow {
    queue: EventQueue<u32>,
    clients: Vec<OccWriter>,
    normal: Normal,
    /// The hash over all trials so far.
    pub trace: TraceHash,
    /// The number of events handled so far.
    pub events: u64,
}

impl ContendedRow {
    /// Runs one trial: `n` clients until all have written.
    pub fn trial(&mut self, n: u32, backoff: &Backoff, chance: &mut Rng) -> Trial {
        self.queue.reset();
        self.clients.clear();
        for id in 0..n {
            let read_at = self.hop(chance);
            self.clients.push(OccWriter { read_at, attempt: 0, previous: 0 });
            let write_at = read_at + self.hop(chance) + self.hop(chance);
            self.queue.push(write_at, id);
        }
        let (mut calls, mut last_event, mut last_commit) = (0, 0, 0);
        while let Some((now, id)) = self.queue.pop() {
            calls += 1;
            self.trace.note(now, u64::from(id));
            let answer_at = now + self.hop(chance);
            let Some(client) = self.clients.get_mut(id as usize) else { continue };
            if client.read_at > last_commit {
                last_commit = now;
                last_event = last_event.max(answer_at);
                continue;
            }
            client.attempt += 1;
            client.previous = backoff.delay_nanos(client.attempt, client.previous, chance);
            client.read_at = answer_at + client.previous + hop(self.normal, chance);
            let write_at = client.read_at + hop(self.normal, chance) + hop(self.normal, chance);
            self.queue.push(write_at, id);
        }
        self.events += calls;
        Trial { calls, time_ms: last_event as f64 / MILLI }
    }

    fn hop(&self, chance: &mut impl Chance) -> u64 {
        hop(self.normal, chance)
    }
}

#[inline]
fn hop(normal: Normal, chance: &mut impl Chance) -> u64 {
    (HOP_MEAN + HOP_DEVIATION * normal.draw(chance)).abs() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_writes_once() {
        let mut rng = Rng::new(5);
        let trial = ContendedRow::default().trial(1, &Strategy::Full.backoff(), &mut rng);
        assert_eq!(trial.calls, 1);
        assert!((20.0..60.0).contains(&trial.time_ms), "four hops: {trial:?}");
        assert_eq!(ContendedRow::default().trial(0, &Strategy::Full.backoff(), &mut rng).calls, 0);
    }

    #[test]
    fn a_seed_decides_and_cells_are_independent() {
        let run = |clients: &[u32]| {
            let mut outcome = ScenarioOutcome::default();
            Contention { clients: clients.to_vec(), strategies: all() }.run(9, 3, &mut outcome);
            outcome
        };
        assert_eq!(run(&[10, 20]), run(&[10, 20]));
        let (both, one) = (run(&[10, 20]), run(&[20]));
        for case in &one.cases {
            assert!(both.cases.contains(case), "{}", case.name);
        }
    }
}
