//! How a lane begins again after an outage.
//!
//! A server that has just come back falls over again when everything that waited arrives at once.
//! So the lane begins with a quarter of its best speed, a hundred and fifty calls a second at most,
//! and keeps to it for as long as the outage lasted, half a minute at most. Then it grows by half
//! every half second until it is where it was. A server that falls over again nevertheless is asked
//! half as fast the next time.

use super::rate_estimate::secs;
use super::token_bucket::Pace;
use crate::time::Mono;
use core::time::Duration;

/// Failures in a row that are an outage.
const OUTAGE: u32 = 3;
const STEP: Duration = Duration::from_millis(500);
/// How long a server is treated as fragile at least and at most.
const FRAGILE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Calls per second, to begin with: never less and never more.
const BEGIN: (f64, f64) = (10.0, 150.0);

/// The pace after an outage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Restart {
    pub(super) pace: Pace,
    changed: Mono,
    failures: u32,
    /// Since when the server is down.
    down: Option<Mono>,
    /// The fastest that it may begin.
    most: f64,
    speed: Speed,
}

impl Restart {
    pub(super) const NEW: Restart = Restart {
        pace: Pace::OPEN,
        changed: Mono::ZERO,
        failures: 0,
        down: None,
        most: BEGIN.1,
        speed: Speed::NEW,
    };

    /// The server answered.
    pub(super) const fn answered(&mut self) {
        self.failures = 0;
    }

    /// The server did the work.
    pub(super) fn accepted(&mut self, now: Mono) {
        self.failures = 0;
        if let Some(down) = self.down.take() {
            let known = if self.speed.most > 0.0 { self.speed.most / 4.0 } else { BEGIN.1 };
            let rate = known.min(self.most).max(BEGIN.0);
            self.pace.set(now, Some(rate), 1.0 + rate * 0.005);
            self.changed = now + now.since(down).clamp(FRAGILE.0, FRAGILE.1);
        }
        self.speed.count(now);
        let Some(rate) = self.pace.rate() else { return };
        if now < self.changed + STEP {
            return;
        }
        self.changed = now;
        let rate = rate * 1.5;
        let open = rate > 1.5 * self.speed.most.max(500.0);
        if open {
            self.most = BEGIN.1;
        }
        self.pace.set(now, (!open).then_some(rate), 1.0 + rate * 0.005);
    }

    /// The server failed. True if that is an outage.
    pub(super) fn failed(&mut self, now: Mono) -> bool {
        self.failures = self.failures.saturating_add(1);
        if self.failures < OUTAGE {
            return false;
        }
        if self.down.is_none() {
            self.down = Some(now);
            if let Some(rate) = self.pace.rate() {
                self.most = self.most.min(0.5 * rate);
            }
        }
        self.pace.set(now, Some(BEGIN.0), 1.0);
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
