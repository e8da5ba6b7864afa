//! The lane's own calls of the last window, as a sliding-window log.
//!
//! A window forgets a call when it is as old as the window, whether the window slides or is fixed. So
//! with the window known, the lane's own log says when a slot is free again, without a probe. The log is
//! a piecewise linear curve of calls over time through a few points: a line goes on for as long as it
//! passes every call it stands for within `tolerance` seconds.

use super::rate_estimate::secs;
use crate::time::{Mono, seconds};

/// Points of the curve.
const POINTS: usize = 48;
/// Points that are left when a full curve is drawn anew, at most.
const POINTS_THINNED: usize = POINTS * 3 / 4;
/// Initial tolerance of a line, in seconds.
const TOLERANCE: f64 = 0.0005;
/// Growth of the tolerance when the curve is drawn anew.
const TOLERANCE_GROWTH: f64 = 2.0;
/// Fewest calls between two points, so that nothing is divided by zero.
const CALLS_MIN: f64 = 1e-9;

/// Calls sent and not refused, over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CallLog {
    /// Time and number of calls until then, as a ring.
    points: [(Mono, f64); POINTS],
    /// Index of the oldest point.
    first: u8,
    /// Number of points.
    len: u8,
    /// Tolerance of a line, in seconds.
    tolerance: f64,
    /// Bounds of the slope of the last line, in seconds per call.
    slope_min: f64,
    slope_max: f64,
}

impl CallLog {
    /// A log that begins with `calls` calls.
    pub(super) const fn new(at: Mono, calls: f64) -> CallLog {
        CallLog {
            points: [(at, calls); POINTS],
            first: 0,
            len: 1,
            tolerance: TOLERANCE,
            slope_min: 0.0,
            slope_max: f64::INFINITY,
        }
    }

    const fn index(&self, nth: usize) -> usize {
        (self.first as usize + nth) % POINTS
    }

    fn point(&self, nth: usize) -> (Mono, f64) {
        self.points[self.index(nth)]
    }

    /// A call goes, the `calls`-th. What is older than `since` may be forgotten.
    pub(super) fn sent(&mut self, now: Mono, calls: f64, since: Mono) {
        while self.len > 2 && self.point(1).0 < since {
            (self.first, self.len) = (self.index(1) as u8, self.len - 1);
        }
        if self.len as usize == POINTS {
            self.thin();
        }
        self.push((now, calls));
    }

    fn push(&mut self, point: (Mono, f64)) {
        let len = self.len as usize;
        if len > 1 && self.extends(self.point(len - 2), point) {
            let at = self.index(len - 1);
            self.points[at] = point;
            return;
        }
        (self.slope_min, self.slope_max) = (0.0, f64::INFINITY);
        self.extends(self.point(len - 1), point);
        self.len += 1;
        let at = self.index(len);
        self.points[at] = point;
    }

    /// Whether a line from one point to the other passes all calls between within the tolerance; narrows
    /// the bounds of its slope.
    fn extends(&mut self, from: (Mono, f64), to: (Mono, f64)) -> bool {
        let (time, calls) = (secs(from.0, to.0), (to.1 - from.1).max(CALLS_MIN));
        let slope = time / calls;
        if slope < self.slope_min || slope > self.slope_max {
            return false;
        }
        self.slope_min = self.slope_min.max((time - self.tolerance) / calls);
        self.slope_max = self.slope_max.min((time + self.tolerance) / calls);
        true
    }

    /// Draws the curve anew through fewer points, with a larger tolerance.
    fn thin(&mut self) {
        while self.len as usize > POINTS_THINNED {
            self.tolerance *= TOLERANCE_GROWTH;
            let (old, first, len) = (self.points, self.first as usize, self.len as usize);
            (self.first, self.len, self.points[0]) = (0, 1, old[first]);
            for nth in 1..len {
                self.push(old[(first + nth) % POINTS]);
            }
        }
    }

    /// A call sent at `sent` was refused, and does not count.
    pub(super) fn refused(&mut self, sent: Mono) {
        for nth in (0..self.len as usize).rev() {
            let at = self.index(nth);
            if self.points[at].0 < sent {
                return;
            }
            self.points[at].1 -= 1.0;
        }
    }

    /// Calls that had certainly been sent at `then`.
    pub(super) fn calls_until(&self, then: Mono) -> f64 {
        let (mut low, then) = (self.point(0), then.saturating_sub(seconds(self.tolerance)));
        if then < low.0 {
            return f64::NEG_INFINITY;
        }
        for nth in 1..self.len as usize {
            let high = self.point(nth);
            if then < high.0 {
                let share = secs(low.0, then) / secs(low.0, high.0);
                return low.1 + (high.1 - low.1) * share;
            }
            low = high;
        }
        low.1
    }

    /// When `calls` calls had certainly been sent.
    pub(super) fn time_of(&self, calls: f64) -> Mono {
        let mut low = self.point(0);
        for nth in 1..self.len as usize {
            let high = self.point(nth);
            if calls <= low.1 {
                break;
            }
            if calls <= high.1 {
                let share = (calls - low.1) / (high.1 - low.1);
                return low.0 + seconds(secs(low.0, high.0) * share + self.tolerance);
            }
            low = high;
        }
        low.0 + seconds(self.tolerance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::tests::at;
    use crate::{Chance, Rng};

    #[test]
    fn bursts_are_steps() {
        let mut log = CallLog::new(at(0.0), 0.0);
        for n in 1..=50 {
            log.sent(at(f64::from((n - 1) / 10)), f64::from(n), Mono::ZERO);
        }
        for (calls, then) in [(1.0, 0.0), (10.0, 0.0), (11.0, 1.0), (20.0, 1.0), (41.0, 4.0), (50.0, 4.0)] {
            let when = secs(at(0.0), log.time_of(calls));
            assert!((then..then + 0.002).contains(&when), "call {calls} at {when}");
        }
        assert_eq!(log.calls_until(at(1.5)).round(), 20.0);
        assert_eq!(log.calls_until(at(9.0)), 50.0);
    }

    #[test]
    fn a_call_is_never_said_to_be_older_than_it_is() {
        // Whatever the lane does: bursts, gaps, even stretches, more than the points could hold.
        let mut rng = Rng::new(5);
        let (mut log, mut now, mut sent) = (CallLog::new(at(0.0), 0.0), 0.0, [0.0; 4000]);
        for n in 1..=4000 {
            let gap = [0.0, 0.0001, 0.01, 0.3][rng.below(4) as usize] * rng.unit();
            now += gap;
            sent[n as usize - 1] = now;
            log.sent(at(now), f64::from(n), Mono::ZERO);
        }
        for (n, then) in sent.iter().enumerate() {
            let when = secs(at(0.0), log.time_of((n + 1) as f64));
            assert!(when >= then - 1e-6, "call {n} went at {then}, not at {when}");
        }
    }

    #[test]
    fn refused_calls_and_old_ones_are_forgotten() {
        let mut log = CallLog::new(at(0.0), 0.0);
        for (then, n) in [(1.0, 1.0), (2.0, 2.0), (4.0, 3.0), (4.1, 4.0), (5.0, 5.0)] {
            log.sent(at(then), n, Mono::ZERO);
        }
        log.refused(at(5.0));
        assert_eq!(log.calls_until(at(9.0)), 4.0);
        log.sent(at(7.0), 5.0, at(3.0));
        assert_eq!(log.calls_until(at(1.0)), f64::NEG_INFINITY);
        assert_eq!(log.calls_until(at(7.1)), 5.0);
    }
}
