//! How a lane begins again after an outage.
//!
//! A server that has just come back falls over again when everything that waited arrives at once.
//! So the lane begins with a twentieth of its best speed, ten calls a second at least, and grows by
//! half every half second, from a hundred a second on by steps, until it is where it was.

use super::learn::secs;
use super::pace::Pace;
use crate::time::Mono;
use core::time::Duration;

/// Failures in a row that are an outage.
const OUTAGE: u32 = 3;
const STEP: Duration = Duration::from_millis(500);

/// The pace after an outage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Restart {
    pub(super) pace: Pace,
    changed: Mono,
    failures: u32,
    speed: Speed,
}

impl Restart {
    pub(super) const NEW: Restart =
        Restart { pace: Pace::OPEN, changed: Mono::ZERO, failures: 0, speed: Speed::NEW };

    /// The server answered.
    pub(super) const fn answered(&mut self) {
        self.failures = 0;
    }

    /// The server did the work.
    pub(super) fn accepted(&mut self, now: Mono) {
        self.failures = 0;
        self.speed.count(now);
        let Some(rate) = self.pace.rate() else { return };
        if now.since(self.changed) < STEP {
            return;
        }
        self.changed = now;
        let rate = (rate * 1.5).min(rate.max(75.0) + 25.0);
        let open = rate > 1.5 * self.speed.most.max(500.0);
        self.pace.set(now, (!open).then_some(rate), 1.0 + rate * 0.005);
    }

    /// The server failed. True if that is an outage.
    pub(super) fn failed(&mut self, now: Mono) -> bool {
        self.failures = self.failures.saturating_add(1);
        if self.failures < OUTAGE {
            return false;
        }
        let slow = (self.speed.most / 20.0).max(10.0);
        self.pace.set(now, Some(slow), 1.0);
        self.changed = now;
        true
    }
}

/// How fast the lane went at its best, by half seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Speed {
    from: Mono,
    count: u32,
    most: f64,
}

impl Speed {
    const NEW: Speed = Speed { from: Mono::ZERO, count: 0, most: 0.0 };

    fn count(&mut self, now: Mono) {
        self.count += 1;
        let span = secs(self.from, now);
        if span >= 0.5 {
            let speed = f64::from(self.count) / span;
            self.most = if speed > self.most { speed } else { self.most + (speed - self.most) * 0.1 };
            (self.from, self.count) = (now, 0);
        }
    }
}
