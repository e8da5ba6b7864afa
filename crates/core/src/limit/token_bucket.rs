//! The client's own token bucket, whose rate can change at run time: the pacer of a lane.
//!
//! It is the generic cell rate algorithm (GCRA) in tokens instead of arrival times, because a change
//! of rate is then one line: what was earned so far was earned at the old rate, what comes is earned
//! at the new one. In every window of length `w` at most `burst + rate × w` calls pass (with the
//! largest rate in force during the window). The burst only serves to catch up after a late timer,
//! so the caller keeps it small.

use super::rate_estimate::secs;
use crate::time::{Mono, seconds};

/// Tolerance, in tokens, when a token is due: a caller who waits exactly until the time that it was
/// told passes in spite of rounding to nanoseconds.
const TOLERANCE: f64 = 1e-6;
/// Slowest rate, in calls per second.
const RATE_MIN: f64 = 1e-6;
/// Fastest rate, in calls per second.
const RATE_MAX: f64 = 1e9;

/// A token bucket with a rate, or unlimited while the rate is unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenBucket {
    /// Tokens earned per second, one per call; none when unlimited.
    rate: Option<f64>,
    /// Capacity, in tokens.
    burst: f64,
    /// Tokens at `refilled`; negative after calls that were not allowed yet.
    tokens: f64,
    /// When `tokens` was last brought up to date.
    refilled: Mono,
    /// Seconds for which it was full, and earned nothing.
    idle: f64,
}

impl TokenBucket {
    /// Unlimited.
    pub const OPEN: TokenBucket =
        TokenBucket { rate: None, burst: 1.0, tokens: 1.0, refilled: Mono::ZERO, idle: 0.0 };

    /// Calls per second; none when unlimited.
    #[must_use]
    pub const fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Changes the rate (calls per second) and the burst (tokens) from `now` on. A rate that is not a
    /// positive number means unlimited.
    pub fn set(&mut self, now: Mono, rate: Option<f64>, burst: f64) {
        self.refill(now);
        self.rate = rate.filter(|r| *r > 0.0 && r.is_finite()).map(|r| r.clamp(RATE_MIN, RATE_MAX));
        self.burst = if burst >= 1.0 { burst } else { 1.0 };
        self.tokens = self.tokens.min(self.burst);
    }

    /// Delays the next call by this many intervals (1 / rate).
    pub fn delay(&mut self, now: Mono, intervals: f64) {
        self.refill(now);
        self.tokens = 1.0 - intervals;
    }

    /// Tokens now.
    #[must_use]
    pub fn tokens(&mut self, now: Mono) -> f64 {
        self.refill(now);
        self.tokens
    }

    /// Seconds for which it was full, so far.
    #[must_use]
    pub const fn idle(&self) -> f64 {
        self.idle
    }

    /// As many tokens more, beyond the burst if need be.
    pub fn grant(&mut self, now: Mono, tokens: f64) {
        self.refill(now);
        self.tokens += tokens;
        self.burst = self.burst.max(self.tokens);
    }

    /// What was saved is gone: at most this many tokens are left.
    pub fn empty_to(&mut self, now: Mono, tokens: f64) {
        self.refill(now);
        self.tokens = self.tokens.min(tokens);
    }

    /// When the next call may go; `now` or earlier means at once.
    #[must_use]
    pub fn ready(&mut self, now: Mono) -> Mono {
        let Some(rate) = self.rate else { return now };
        self.refill(now);
        let from = now.max(self.refilled);
        if self.tokens >= 1.0 - TOLERANCE { now } else { from + seconds((1.0 - self.tokens) / rate) }
    }

    /// Takes one token.
    pub fn take(&mut self, now: Mono) {
        if self.rate.is_some() {
            self.refill(now);
            self.tokens -= 1.0;
        }
    }

    fn refill(&mut self, now: Mono) {
        let elapsed = secs(self.refilled, now);
        self.refilled = self.refilled.max(now);
        if let Some(rate) = self.rate {
            let tokens = self.tokens + elapsed * rate;
            self.tokens = tokens.min(self.burst);
            self.idle += (tokens - self.tokens) / rate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// In every window at most `burst + rate × window` calls pass, also when the rate changes.
        #[test]
        fn arrivals_stay_below_the_line(
            rates in prop::collection::vec((1.0..500.0f64, 1u32..40), 1..6), burst in 1.0..10.0f64,
        ) {
            let mut pace = TokenBucket::OPEN;
            let (mut now, mut sent, mut most) = (Mono::ZERO, alloc::vec::Vec::new(), 0.0f64);
            for (rate, calls) in rates {
                pace.set(now, Some(rate), burst);
                most = most.max(rate);
                for _ in 0..calls {
                    let at = pace.ready(now);
                    now = now.max(at);
                    pace.take(now);
                    sent.push(now);
                }
            }
            for (i, from) in sent.iter().enumerate() {
                for (j, to) in sent.iter().enumerate().skip(i) {
                    let bound = burst + most * to.since(*from).as_secs_f64();
                    prop_assert!((j - i + 1) as f64 <= bound + 1e-3);
                }
            }
        }
    }

    #[test]
    fn a_caller_who_waits_as_told_is_let_through() {
        let mut pace = TokenBucket::OPEN;
        pace.set(Mono::ZERO, Some(3.0), 1.0);
        let mut now = Mono::ZERO;
        for _ in 0..1000 {
            let at = pace.ready(now);
            assert!(at >= now);
            now = at;
            assert!(pace.ready(now) <= now);
            pace.take(now);
        }
        assert!((now.as_secs_f64() - 333.0).abs() < 0.01);
    }
}
