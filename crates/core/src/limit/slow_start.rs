//! Slow start: how fast a lane begins after an outage.
//!
//! A server that has just recovered falls over again when everything that waited arrives at once.
//! So the lane begins with a quarter of its peak rate, a hundred and fifty calls a second at most,
//! and keeps to it for as long as the outage lasted, half a minute at most. Then it grows by half
//! every half second until it is unlimited. A server that falls over again nevertheless is asked
//! half as fast the next time.

use super::rate_estimate::secs;
use super::token_bucket::TokenBucket;
use crate::time::Mono;
use core::time::Duration;

/// Failures in a row that are an outage: at least, and at most where calls fail at random.
const OUTAGE_FAILURES: (u32, u32) = (3, 12);
/// Random failures are not taken for an outage if so many in a row are as unlikely as this.
const UNLIKELY: f64 = 1e-4;
/// Time between two steps of growth.
const STEP: Duration = Duration::from_millis(500);
/// Growth of the rate per step.
const STEP_GROWTH: f64 = 1.5;
/// How long the start rate is kept after an outage: never shorter and never longer.
const FRAGILE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Start rate in calls per second: never less and never more.
const START_RATE: (f64, f64) = (10.0, 150.0);
/// The peak rate divided by this is the start rate.
const PEAK_DIVISOR: f64 = 4.0;
/// Share of the rate at which the server fell over again that bounds the next start rate.
const RELAPSE_SHARE: f64 = 0.5;
/// Burst in seconds of the rate, beyond one token: the slack of timers.
const BURST_SECONDS: f64 = 0.005;
/// The slow start is over at this many times the peak rate ...
const OVER_FACTOR: f64 = 1.5;
/// ... of which the peak, in calls per second, is not taken to be lower than this.
const OVER_RATE_MIN: f64 = 500.0;
/// Length of the blocks, in seconds, by which the peak rate is measured.
const PEAK_BLOCK: f64 = 0.5;
/// Weight of a block in a peak rate that falls.
const PEAK_DECAY: f64 = 0.1;

/// The pace after an outage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SlowStart {
    /// The pace; unlimited except after an outage.
    pub(super) pace: TokenBucket,
    /// When the rate last changed, or until when the start rate is kept.
    changed: Mono,
    /// Failures in a row.
    failures: u32,
    /// When the first of them came back, and how many calls were out then.
    first: Mono,
    out: u32,
    /// Since when the server is down.
    down: Option<Mono>,
    /// Upper bound of the start rate, in calls per second.
    start_rate_max: f64,
    /// The peak rate of the lane.
    peak: PeakRate,
}

impl SlowStart {
    pub(super) const NEW: SlowStart = SlowStart {
        pace: TokenBucket::OPEN,
        changed: Mono::ZERO,
        failures: 0,
        first: Mono::ZERO,
        out: 0,
        down: None,
        start_rate_max: START_RATE.1,
        peak: PeakRate::NEW,
    };

    /// Whether the server is down.
    pub(super) const fn is_down(&self) -> bool {
        self.down.is_some()
    }

    /// The server answered, though it did not do the work.
    pub(super) const fn answered(&mut self) {
        self.failures = 0;
    }

    /// The server did the work.
    pub(super) fn accepted(&mut self, now: Mono) {
        self.failures = 0;
        if let Some(down) = self.down.take() {
            let known = if self.peak.rate > 0.0 { self.peak.rate / PEAK_DIVISOR } else { START_RATE.1 };
            let rate = known.min(self.start_rate_max).max(START_RATE.0);
            self.pace.set(now, Some(rate), 1.0 + rate * BURST_SECONDS);
            self.changed = now + now.since(down).clamp(FRAGILE.0, FRAGILE.1);
        }
        self.peak.count(now);
        let Some(rate) = self.pace.rate() else { return };
        if now < self.changed + STEP {
            return;
        }
        self.changed = now;
        let rate = rate * STEP_GROWTH;
        let over = rate > OVER_FACTOR * self.peak.rate.max(OVER_RATE_MIN);
        if over {
            self.start_rate_max = START_RATE.1;
        }
        self.pace.set(now, (!over).then_some(rate), 1.0 + rate * BURST_SECONDS);
    }

    /// The server failed while `out` other calls are out; the round trip is in seconds, and `random` is the share
    /// of calls that are known to fail at random. True if that is an outage: what was out when the first call failed
    /// must fail too, or take longer than a round trip.
    pub(super) fn failed(&mut self, now: Mono, out: u32, round_trip: f64, random: f64) -> bool {
        if self.failures == 0 {
            (self.first, self.out) = (now, out);
        }
        self.failures = self.failures.saturating_add(1);
        let all_failed = self.failures > self.out || secs(self.first, now) > round_trip;
        let likely =
            self.failures < OUTAGE_FAILURES.1 && libm::pow(random, f64::from(self.failures)) > UNLIKELY;
        if self.failures < OUTAGE_FAILURES.0 || likely || !all_failed {
            return false;
        }
        if self.down.is_none() {
            self.down = Some(now);
            if let Some(rate) = self.pace.rate() {
                self.start_rate_max = self.start_rate_max.min(RELAPSE_SHARE * rate);
            }
        }
        self.pace.set(now, Some(START_RATE.0), 1.0);
        true
    }
}

/// The peak rate of the lane, measured by blocks of half a second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PeakRate {
    /// When the current block began.
    from: Mono,
    /// Calls in the current block.
    count: u32,
    /// Calls per second; 0 before the first block.
    rate: f64,
}

impl PeakRate {
    const NEW: PeakRate = PeakRate { from: Mono::ZERO, count: 0, rate: 0.0 };

    fn count(&mut self, now: Mono) {
        self.count += 1;
        let span = secs(self.from, now);
        if span >= PEAK_BLOCK {
            let rate = f64::from(self.count) / span;
            self.rate = if rate > self.rate { rate } else { self.rate + (rate - self.rate) * PEAK_DECAY };
            (self.from, self.count) = (now, 0);
        }
    }
}
