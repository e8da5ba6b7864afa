//! A pacer: a token bucket of our own whose rate can change at run time.
//!
//! It is the GCRA told in tokens instead of arrival times, because a change of rate is then one
//! line: what was earned so far was earned at the old rate, what comes is earned at the new one.
//! In every window of length `w` at most `burst + rate × w` calls pass (with the largest rate in
//! force during the window). The burst only serves to catch up after a late timer, so the caller
//! keeps it small.

use crate::time::{Mono, seconds};

/// Tokens are compared with this much grace, so that a caller who waits exactly until the time
/// it was told is let through in spite of rounding to nanoseconds.
const GRACE: f64 = 1e-6;

/// A pacer at some rate, or open when the rate is unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    rate: Option<f64>,
    burst: f64,
    tokens: f64,
    at: Mono,
}

impl Pace {
    /// An open pacer.
    pub const OPEN: Pace = Pace { rate: None, burst: 1.0, tokens: 1.0, at: Mono::ZERO };

    /// Calls per second, none when open.
    #[must_use]
    pub const fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Changes rate and burst from `now` on. A rate that is not a positive number opens the
    /// pacer.
    pub fn set(&mut self, now: Mono, rate: Option<f64>, burst: f64) {
        self.earn(now);
        self.rate = rate.filter(|r| *r > 0.0 && r.is_finite()).map(|r| r.clamp(1e-6, 1e9));
        self.burst = if burst >= 1.0 { burst } else { 1.0 };
        self.tokens = self.tokens.min(self.burst);
    }

    /// The next call is this share of an interval away, at least.
    pub fn rest(&mut self, now: Mono, share: f64) {
        self.earn(now);
        self.tokens = 1.0 - share;
    }

    /// When the next call may go; `now` or earlier means at once.
    #[must_use]
    pub fn ready(&mut self, now: Mono) -> Mono {
        let Some(rate) = self.rate else { return now };
        self.earn(now);
        if self.tokens >= 1.0 - GRACE { now } else { now + seconds((1.0 - self.tokens) / rate) }
    }

    /// Takes one token.
    pub fn take(&mut self, now: Mono) {
        if self.rate.is_some() {
            self.earn(now);
            self.tokens -= 1.0;
        }
    }

    fn earn(&mut self, now: Mono) {
        let dt = now.since(self.at).as_nanos() as f64 * 1e-9;
        self.at = self.at.max(now);
        if let Some(rate) = self.rate {
            self.tokens = (self.tokens + dt * rate).min(self.burst);
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
            let mut pace = Pace::OPEN;
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
        let mut pace = Pace::OPEN;
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
