//! A probe run: the calls between two costly refusals, and what they say about the server's rate.
//!
//! Below the rate a bucket loses nothing; above it the run spends the burst, and is refused when that
//! is gone. So the points at which the run had reached a pace are remembered. For every rate that is
//! possible, the most that the run took beyond it, from any of its points to its end, is the burst that
//! it spent. Two runs of different shapes agree on the burst for one rate only: that is the rate.

/// Points that are remembered.
const POINTS: usize = 48;
/// Halvings of the interval in which the rate is searched: to a billionth of it.
const HALVINGS: u32 = 30;
/// Share of the last call that a run is taken to have spent: between what it spent at least and one
/// call more, the middle.
const LAST_CALL_SHARE: f64 = 0.5;

/// A probe run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProbeRun {
    /// Seconds from its first call to the refused one.
    pub(super) time: f64,
    /// Calls accepted in that time.
    pub(super) calls: f64,
    /// The pace at its end, in calls per second.
    pub(super) pace: f64,
    /// Where its pace grew: seconds since it began, and calls accepted until then.
    points: [(f64, f64); POINTS],
    /// Number of points; the first is the start.
    len: usize,
}

impl ProbeRun {
    pub(super) const NEW: ProbeRun =
        ProbeRun { time: 0.0, calls: 0.0, pace: f64::INFINITY, points: [(0.0, 0.0); POINTS], len: 1 };

    /// Longer than any.
    pub(super) const ENDLESS: ProbeRun = ProbeRun { calls: f64::INFINITY, ..ProbeRun::NEW };

    /// The pace grows from here on.
    pub(super) const fn note(&mut self, time: f64, calls: f64) {
        if self.len < POINTS {
            self.points[self.len] = (time, calls);
            self.len += 1;
        }
    }

    /// The burst, in calls, that it spent at least if this is the rate: what was earned while its last call
    /// was on its way included.
    pub(super) fn burst_spent(&self, rate: f64) -> f64 {
        let over = |&(at, before): &(f64, f64)| (self.calls - before) - rate * (self.time - at).max(0.0);
        let points = self.points[..self.len].iter().filter(|point| point.0 <= self.time);
        points.map(over).fold(0.0, f64::max) + rate / self.pace
    }

    /// The rate, not less than `low`, for which the run spent just the burst that `burst` gives for that
    /// rate.
    pub(super) fn rate_for_burst(&self, low: f64, burst: impl Fn(f64) -> f64) -> f64 {
        let (mut low, mut high) = (low.min(self.pace), self.pace);
        for _ in 0..HALVINGS {
            let mid = f64::midpoint(low, high);
            let spent = self.burst_spent(mid) + LAST_CALL_SHARE * (1.0 - mid / self.pace);
            if spent > burst(mid) { low = mid } else { high = mid }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bucket that was drained as fast as it goes, and has filled itself since, meets a run whose
    /// pace doubles in 0.3 s.
    fn found(rate: f64, burst: f64) -> f64 {
        let mut fast = ProbeRun::NEW;
        (fast.calls, fast.time) = (burst, 1e-6);
        let mut run = ProbeRun { pace: rate / 12.0, ..ProbeRun::NEW };
        let (mut level, mut noted) = (burst, run.pace);
        loop {
            if level < 1.0 {
                return run.rate_for_burst(0.0, |rate| fast.burst_spent(rate).max(1.0));
            }
            (level, run.calls) = (level - 1.0, run.calls + 1.0);
            let gap = 1.0 / run.pace;
            (level, run.time) = ((level + gap * rate).min(burst), run.time + gap);
            run.pace *= libm::exp2(gap / 0.3).min(1.35);
            if run.pace > 1.25 * noted {
                noted = run.pace;
                run.note(run.time, run.calls);
            }
        }
    }

    #[test]
    fn the_rate_is_the_one_for_which_both_runs_spent_the_same() {
        for (rate, burst) in [(500.0, 50.0), (163.0, 1.0), (40.0, 5.0), (1000.0, 20.0), (8.0, 1.0)] {
            let found = found(rate, burst) / rate;
            assert!((0.9..1.1).contains(&found), "{rate}/s of {burst}: {found}");
        }
        for (rate, burst) in [(500.0, 50.0), (2000.0, 200.0), (1000.0, 20.0)] {
            let found = found(rate, burst) / rate;
            assert!((0.98..1.02).contains(&found), "{rate}/s of {burst}: {found}");
        }
    }

    #[test]
    fn a_run_above_the_rate_from_its_start_is_measured_too() {
        let fast = ProbeRun { time: 0.03, calls: 63.0, ..ProbeRun::NEW };
        // 48 calls at once and 500 a second, asked 600 times a second.
        let even = ProbeRun { time: 0.48, calls: 288.0, pace: 600.0, ..ProbeRun::NEW };
        let rate = even.rate_for_burst(10.0, |rate| fast.burst_spent(rate).max(1.0));
        assert!((495.0..505.0).contains(&rate), "{rate}");
    }
}
