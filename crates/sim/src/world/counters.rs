//! Counters of a world for its metrics, and curves for its plots.
//!
//! Curves have a fixed number of bins. When a run exceeds them, bins are merged in pairs, so a year
//! of simulated time takes as much memory as a second.

use crate::outcome::{Axis, MetricTallies, Plot, PlotLine};

/// The number of bins of a curve.
const BINS: usize = 400;

/// Counters of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorldCounts {
    /// The number of requests offered by the workload.
    pub offered: u64,
    /// The number of requests answered.
    pub done: u64,
    /// The number of requests given up.
    pub dead: u64,
    /// The number of requests parked until later.
    pub parked: u64,
    /// The number of calls that arrived at the server.
    pub calls: u64,
    /// The number of calls answered 429.
    pub throttled: u64,
    /// The number of calls answered 5xx.
    pub failed: u64,
    /// The number of calls that timed out.
    pub timeouts: u64,
    /// The number of calls sent before the time that the server had asked for.
    pub early: u64,
    /// The time at which the last request ended, in nanoseconds from the start.
    pub last: u64,
    /// The longest time from arrival to end of a request, in nanoseconds.
    pub longest: u64,
    /// The most calls in flight.
    pub in_flight_max: u32,
    /// The most arrivals in one tick of the measured time.
    pub peak: u32,
    /// The number of requests answered in the measured time.
    pub measured_done: u64,
}

impl WorldCounts {
    /// Adds the metrics of one trial. `window` is the length of the measured time, in seconds.
    pub fn enter(&self, ledger: &mut MetricTallies, window: Option<f64>) {
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let mut add = |name, value| ledger.add(name, value);
        add("offered", self.offered as f64);
        add("done", self.done as f64);
        add("dead", self.dead as f64);
        add("parked", self.parked as f64);
        add("success", share(self.done, self.offered));
        add("residual", share(self.dead + self.parked, self.offered));
        add("calls", self.calls as f64);
        add("load", share(self.calls, self.offered));
        add("throttled", self.throttled as f64);
        add("throttled_share", share(self.throttled, self.calls));
        add("failed", self.failed as f64);
        add("timeouts", self.timeouts as f64);
        add("early", self.early as f64);
        add("peak", f64::from(self.peak));
        add("in_flight_max", f64::from(self.in_flight_max));
        add("time", seconds(self.last));
        add("wait_max", seconds(self.longest));
        if let Some(window) = window {
            add("rate", self.measured_done as f64 / window);
        }
    }
}

/// Curves of one run.
#[derive(Clone, Debug)]
pub struct Curves {
    /// The length of a bin, in nanoseconds.
    bin: u64,
    bins: Vec<Bin>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bin {
    arrivals: u32,
    throttled: u32,
    failed: u32,
    done: u32,
    in_flight: u32,
}

impl Bin {
    fn merged(self, other: Bin) -> Bin {
        Bin {
            arrivals: self.arrivals + other.arrivals,
            throttled: self.throttled + other.throttled,
            failed: self.failed + other.failed,
            done: self.done + other.done,
            in_flight: self.in_flight.max(other.in_flight),
        }
    }
}

impl Default for Curves {
    fn default() -> Curves {
        Curves { bin: 1_000_000, bins: Vec::with_capacity(BINS) }
    }
}

impl Curves {
    fn at(&mut self, now: u64) -> &mut Bin {
        while now / self.bin >= BINS as u64 {
            self.coarsen(self.bin * 2);
        }
        let index = (now / self.bin) as usize;
        if index >= self.bins.len() {
            // The calls in flight do not change without an event.
            let idle = Bin { in_flight: self.bins.last().map_or(0, |b| b.in_flight), ..Bin::default() };
            self.bins.resize(index + 1, idle);
        }
        &mut self.bins[index]
    }

    /// Counts a call that arrived at the server, with the status of its answer.
    pub fn arrival(&mut self, now: u64, status: u16) {
        let bin = self.at(now);
        bin.arrivals += 1;
        bin.throttled += u32::from(status == 429);
        bin.failed += u32::from(status >= 500);
    }

    /// Counts an answered request.
    pub fn done(&mut self, now: u64) {
        self.at(now).done += 1;
    }

    /// Records the number of calls in flight.
    pub fn in_flight(&mut self, now: u64, calls: u32) {
        let bin = self.at(now);
        bin.in_flight = calls;
    }

    /// Merges bins until they are at least `bin` nanoseconds long.
    fn coarsen(&mut self, bin: u64) {
        while self.bin < bin {
            self.bin *= 2;
            self.bins = self
                .bins
                .chunks(2)
                .map(|pair| pair.iter().copied().fold(Bin::default(), Bin::merged))
                .collect();
        }
    }

    fn line(&self, case: &str, mut y: impl FnMut(&Bin) -> u64) -> PlotLine {
        let middle = |i: usize| (i as f64 + 0.5) * self.bin as f64 / 1e9;
        let points = self.bins.iter().enumerate().map(|(i, bin)| (middle(i), y(bin) as f64)).collect();
        PlotLine { name: case.to_owned(), points }
    }

    /// The curves of all cases, with equal bins so that they can be compared.
    #[must_use]
    pub fn plots(mut cases: Vec<(String, Curves)>) -> Vec<Plot> {
        let bin = cases.iter().map(|(_, curves)| curves.bin).max().unwrap_or(1);
        cases.iter_mut().for_each(|(_, curves)| curves.coarsen(bin));
        let per_bin = format!("calls per {} ms", bin as f64 / 1e6);
        let plot = |title: &str, y: &str, line: fn(&str, &Curves) -> PlotLine| Plot {
            title: title.to_owned(),
            x: Axis::linear("time (s)"),
            y: Axis::linear(y),
            lines: cases.iter().map(|(name, curves)| line(name, curves)).collect(),
        };
        vec![
            plot("Arrivals at the server", &per_bin, |name, c| c.line(name, |b| u64::from(b.arrivals))),
            plot("Calls in flight", "calls", |name, c| c.line(name, |b| u64::from(b.in_flight))),
            plot("Calls answered 429", &per_bin, |name, c| c.line(name, |b| u64::from(b.throttled))),
            plot("Calls answered 5xx", &per_bin, |name, c| c.line(name, |b| u64::from(b.failed))),
            plot("Requests done", "requests", |name, c| {
                let mut sum = 0;
                c.line(name, |b| {
                    sum += u64::from(b.done);
                    sum
                })
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_merged_and_nothing_is_lost() {
        let mut curves = Curves::default();
        for second in 0..10_000u64 {
            curves.arrival(second * 1_000_000_000, if second % 4 == 0 { 429 } else { 200 });
            curves.done(second * 1_000_000_000);
        }
        assert!(curves.bins.len() <= BINS);
        assert_eq!(curves.bins.iter().map(|b| b.arrivals).sum::<u32>(), 10_000);
        assert_eq!(curves.bins.iter().map(|b| b.throttled).sum::<u32>(), 2_500);
        let short = Curves::default();
        let plots = Curves::plots(vec![("long".to_owned(), curves), ("short".to_owned(), short)]);
        let done = plots.last().unwrap();
        assert_eq!(done.lines[0].points.last().unwrap().1, 10_000.0);
        assert_eq!(done.lines[1].points, []);
        let sum: f64 = plots[0].lines[0].points.iter().map(|p| p.1).sum();
        assert_eq!(sum, 10_000.0);
        assert_eq!(plots[0].y.label, "calls per 32768 ms");
    }
}
