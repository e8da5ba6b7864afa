//! A run whose pace grows all the time, to find where it crosses the server's rate.
//!
//! Below the rate a bucket loses nothing; above it the run spends the burst, and is refused when that
//! is gone. The run before, as fast as it could, tells the burst for each rate that may be. So the
//! points at which the run had reached a pace are remembered, and from the refusal they are walked
//! back until what was spent since is the burst.

/// A climb doubles its pace in this share of a silence, and grows by so much from one call to the
/// next at most.
pub(super) const RAMP: f64 = 0.4;
const STRIDE: f64 = 1.35;
/// Points that are remembered.
const STEPS: usize = 32;

/// A climbing run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Climb {
    /// The run before, as fast as it went.
    time: f64,
    pub(super) calls: f64,
    pub(super) pace: f64,
    at: f64,
    /// When it had reached which pace, and the calls until then.
    steps: [(f64, f64, f64); STEPS],
    len: usize,
}

impl Climb {
    pub(super) fn new(time: f64, calls: f64, pace: f64) -> Climb {
        let steps = [(0.0, 0.0, pace); STEPS];
        Climb { time, calls, pace, at: 0.0, steps, len: 1 }
    }

    /// A call goes at that time into the run. True if the pace has changed.
    pub(super) fn sent(&mut self, at: f64, calls: f64, double: f64, paced: bool) -> bool {
        if !paced {
            self.at = at;
            return false;
        }
        let grown = libm::exp2((at - self.at) / double).min(STRIDE);
        if grown < 1.01 {
            return false;
        }
        (self.pace, self.at) = (self.pace * grown, at);
        if self.pace > 1.25 * self.steps[self.len - 1].2 && self.len < STEPS {
            self.steps[self.len] = (at, calls, self.pace);
            self.len += 1;
        }
        true
    }

    /// The calls that may go at once, by the run before, if this is the rate.
    pub(super) fn burst(&self, rate: f64) -> f64 {
        (self.calls - rate * self.time).max(1.0)
    }

    /// The rate that the pace had crossed when it had spent what may go at once: below the rate it
    /// spent nothing. Rather too low by what it grows from one call to the next.
    pub(super) fn crossed(&self, time: f64, calls: f64, double: f64) -> f64 {
        let found = self.crossing(time, calls);
        found / libm::exp2(1.0 / (found * double)).min(STRIDE)
    }

    fn crossing(&self, time: f64, calls: f64) -> f64 {
        let spent = |(at, before, pace): (f64, f64, f64)| {
            (calls - before) - pace * (time - at).max(0.0) + 1.0 - self.burst(pace)
        };
        let last = self.steps[..self.len].iter().rposition(|step| step.0 <= time).unwrap_or(0);
        let (from, to) = (self.steps[last], self.steps.get(last + 1).filter(|_| last + 1 < self.len));
        let to = to.map_or((self.at, self.pace), |next| (next.0, next.2));
        let share = ((time - from.0) / (to.0 - from.0).max(1e-9)).clamp(0.0, 1.0);
        let mut above = from.2 + (to.1 - from.2) * share;
        let mut over = 1.0 - self.burst(above);
        for step in self.steps[..=last].iter().rev() {
            let here = spent(*step);
            if here >= 0.0 {
                let share = if here > over { (-over / (here - over)).clamp(0.0, 1.0) } else { 1.0 };
                return above + (step.2 - above) * share;
            }
            (above, over) = (step.2, here);
        }
        self.steps[0].2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bucket that was drained as fast as it goes, and has filled itself since, meets a climb.
    fn found(rate: f64, burst: f64) -> f64 {
        let fast = 10.0 * rate;
        let time = burst / (fast - rate);
        let mut climb = Climb::new(time, (fast * time).max(1.0), rate / 12.0);
        let (mut level, mut at, mut calls) = (burst, 0.0, 0.0);
        loop {
            climb.sent(at, calls, 0.4, true);
            if level < 1.0 {
                return climb.crossed(at, calls, 0.4);
            }
            (level, calls) = (level - 1.0, calls + 1.0);
            let gap = 1.0 / climb.pace;
            (level, at) = ((level + gap * rate).min(burst), at + gap);
        }
    }

    #[test]
    fn the_rate_is_where_the_burst_began_to_be_spent() {
        for (rate, burst) in [(500.0, 50.0), (163.0, 1.0), (40.0, 5.0), (1000.0, 20.0), (8.0, 1.0)] {
            let found = found(rate, burst) / rate;
            assert!((0.8..1.08).contains(&found), "{rate}/s of {burst}: {found}");
        }
    }

    #[test]
    fn a_pace_that_held_nothing_back_does_not_grow() {
        let mut climb = Climb::new(0.01, 4.0, 2.0);
        assert!(!climb.sent(5.0, 10.0, 0.4, false));
        assert_eq!(climb.pace, 2.0);
        // Not even after a long time by more than a stride.
        assert!(climb.sent(9.0, 11.0, 0.4, true));
        assert_eq!(climb.pace, 2.0 * STRIDE);
    }
}
