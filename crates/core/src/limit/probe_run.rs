//! A run between two refusals, and what it tells of the server's rate.
//!
//! Below the rate a bucket loses nothing; above it the run spends the burst, and is refused when that
//! is gone. So the points at which the run had reached a pace are remembered. For every rate that may
//! be, the most that the run took beyond it, from any of its points to its end, is the burst that
//! it spent. Two runs of different shapes agree on the burst for one rate only: that is the rate.

/// Points that are remembered.
const STEPS: usize = 48;

/// A run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Run {
    /// Seconds from its first call to the refused one, and calls accepted between them.
    pub(super) time: f64,
    pub(super) calls: f64,
    /// The pace at its end.
    pub(super) pace: f64,
    /// Where its pace grew: seconds since it began, and calls until then.
    steps: [(f64, f64); STEPS],
    len: usize,
}

impl Run {
    pub(super) const NEW: Run =
        Run { time: 0.0, calls: 0.0, pace: f64::INFINITY, steps: [(0.0, 0.0); STEPS], len: 1 };

    /// Longer than any.
    pub(super) const ENDLESS: Run = Run { calls: f64::INFINITY, ..Run::NEW };

    /// The pace grows from here on.
    pub(super) const fn note(&mut self, time: f64, calls: f64) {
        if self.len < STEPS {
            self.steps[self.len] = (time, calls);
            self.len += 1;
        }
    }

    /// The burst that it spent, if this is the rate, at least: what came back while its last call was on
    /// its way included.
    pub(super) fn spent(&self, rate: f64) -> f64 {
        let over = |&(at, before): &(f64, f64)| (self.calls - before) - rate * (self.time - at).max(0.0);
        let steps = self.steps[..self.len].iter().filter(|step| step.0 <= self.time);
        steps.map(over).fold(0.0, f64::max) + rate / self.pace
    }

    /// The rate, not less than `low`, beyond which it took this burst. Calls are whole: between what it
    /// spent at least and one more, the middle is taken.
    pub(super) fn crossed(&self, low: f64, burst: impl Fn(f64) -> f64) -> f64 {
        let (mut low, mut high) = (low.min(self.pace), self.pace);
        for _ in 0..30 {
            let mid = 0.5 * (low + high);
            let spent = self.spent(mid) + 0.5 * (1.0 - mid / self.pace);
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
        let mut fast = Run::NEW;
        (fast.calls, fast.time) = (burst, 1e-6);
        let mut run = Run { pace: rate / 12.0, ..Run::NEW };
        let (mut level, mut noted) = (burst, run.pace);
        loop {
            if level < 1.0 {
                return run.crossed(0.0, |rate| fast.spent(rate).max(1.0));
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
        let fast = Run { time: 0.03, calls: 63.0, ..Run::NEW };
        // 48 calls at once and 500 a second, asked 600 times a second.
        let even = Run { time: 0.48, calls: 288.0, pace: 600.0, ..Run::NEW };
        let rate = even.crossed(10.0, |rate| fast.spent(rate).max(1.0));
        assert!((495.0..505.0).contains(&rate), "{rate}");
    }
}
