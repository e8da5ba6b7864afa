//! The lane's own calls of the last window.
//!
//! A window forgets a call when it is as old as the window, whether the window slides or begins anew
//! for all. So with the window known, the lane's own log says when a slot is free again, and nobody
//! need ask. The log is a curve of calls over time through a few points: a line goes on for as long
//! as it passes every call it stands for within `fine` seconds.

use super::rate_estimate::secs;
use crate::time::{Mono, seconds};

/// Points of the curve.
const POINTS: usize = 48;
/// A line passes its calls within so many seconds, at first.
const FINE: f64 = 0.0005;

/// Calls sent and not refused, over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Log {
    points: [(Mono, f64); POINTS],
    first: u8,
    len: u8,
    fine: f64,
    /// Seconds per call, least and most, that the last line may have.
    least: f64,
    most: f64,
}

impl Log {
    /// A log that begins with so many calls.
    pub(super) const fn new(at: Mono, calls: f64) -> Log {
        let points = [(at, calls); POINTS];
        Log { points, first: 0, len: 1, fine: FINE, least: 0.0, most: f64::INFINITY }
    }

    const fn index(&self, nth: usize) -> usize {
        (self.first as usize + nth) % POINTS
    }

    fn point(&self, nth: usize) -> (Mono, f64) {
        self.points[self.index(nth)]
    }

    /// A call goes, and makes so many of them. What is older than `since` is not asked for any more.
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
        if len > 1 && self.swing(self.point(len - 2), point) {
            let at = self.index(len - 1);
            self.points[at] = point;
            return;
        }
        (self.least, self.most) = (0.0, f64::INFINITY);
        self.swing(self.point(len - 1), point);
        self.len += 1;
        let at = self.index(len);
        self.points[at] = point;
    }

    /// Whether a line from one point to the other passes all that lies between.
    fn swing(&mut self, from: (Mono, f64), to: (Mono, f64)) -> bool {
        let (time, calls) = (secs(from.0, to.0), (to.1 - from.1).max(1e-9));
        let slope = time / calls;
        if slope < self.least || slope > self.most {
            return false;
        }
        self.least = self.least.max((time - self.fine) / calls);
        self.most = self.most.min((time + self.fine) / calls);
        true
    }

    /// Lines are drawn anew, through fewer points.
    fn thin(&mut self) {
        while self.len as usize > POINTS * 3 / 4 {
            self.fine *= 2.0;
            let (old, first, len) = (self.points, self.first as usize, self.len as usize);
            (self.first, self.len, self.points[0]) = (0, 1, old[first]);
            for nth in 1..len {
                self.push(old[(first + nth) % POINTS]);
            }
        }
    }

    /// A call sent then was refused, and does not count.
    pub(super) fn refused(&mut self, sent: Mono) {
        for nth in (0..self.len as usize).rev() {
            let at = self.index(nth);
            if self.points[at].0 < sent {
                return;
            }
            self.points[at].1 -= 1.0;
        }
    }

    /// Calls that had certainly been sent then.
    pub(super) fn until(&self, then: Mono) -> f64 {
        let (mut low, then) = (self.point(0), then.back(seconds(self.fine)));
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

    /// When so many had certainly been sent.
    pub(super) fn when(&self, calls: f64) -> Mono {
        let mut low = self.point(0);
        for nth in 1..self.len as usize {
            let high = self.point(nth);
            if calls <= low.1 {
                break;
            }
            if calls <= high.1 {
                let share = (calls - low.1) / (high.1 - low.1);
                return low.0 + seconds(secs(low.0, high.0) * share + self.fine);
            }
            low = high;
        }
        low.0 + seconds(self.fine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::tests::at;
    use crate::{Chance, Rng};

    #[test]
    fn bursts_are_steps() {
        let mut log = Log::new(at(0.0), 0.0);
        for n in 1..=50 {
            log.sent(at(f64::from((n - 1) / 10)), f64::from(n), Mono::ZERO);
        }
        for (calls, then) in [(1.0, 0.0), (10.0, 0.0), (11.0, 1.0), (20.0, 1.0), (41.0, 4.0), (50.0, 4.0)] {
            let when = secs(at(0.0), log.when(calls));
            assert!((then..then + 0.002).contains(&when), "call {calls} at {when}");
        }
        assert_eq!(log.until(at(1.5)).round(), 20.0);
        assert_eq!(log.until(at(9.0)), 50.0);
    }

    #[test]
    fn a_call_is_never_said_to_be_older_than_it_is() {
        // Whatever the lane does: bursts, gaps, even stretches, more than the points could hold.
        let mut rng = Rng::new(5);
        let (mut log, mut now, mut sent) = (Log::new(at(0.0), 0.0), 0.0, [0.0; 4000]);
        for n in 1..=4000 {
            let gap = [0.0, 0.0001, 0.01, 0.3][rng.below(4) as usize] * rng.unit();
            now += gap;
            sent[n as usize - 1] = now;
            log.sent(at(now), f64::from(n), Mono::ZERO);
        }
        for (n, then) in sent.iter().enumerate() {
            let when = secs(at(0.0), log.when((n + 1) as f64));
            assert!(when >= then - 1e-6, "call {n} went at {then}, not at {when}");
        }
    }

    #[test]
    fn refused_calls_and_old_ones_are_forgotten() {
        let mut log = Log::new(at(0.0), 0.0);
        for (then, n) in [(1.0, 1.0), (2.0, 2.0), (4.0, 3.0), (4.1, 4.0), (5.0, 5.0)] {
            log.sent(at(then), n, Mono::ZERO);
        }
        log.refused(at(5.0));
        assert_eq!(log.until(at(9.0)), 4.0);
        log.sent(at(7.0), 5.0, at(3.0));
        assert_eq!(log.until(at(1.0)), f64::NEG_INFINITY);
        assert_eq!(log.until(at(7.1)), 5.0);
    }
}
