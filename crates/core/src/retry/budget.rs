//! How many retries a lane may add to its calls.
//!
//! When a service is down, every caller that retries three times quadruples its load. The budget
//! bounds that: each new call earns a fraction of a retry, time earns a small floor so that a
//! quiet lane can still retry, and a retry is paid when it is decided. Why a token bucket and not
//! a ring of time slots: it expires in O(1) after any idle time, and its bound is a line one can
//! check: `retries ≤ size + ratio · calls + floor · seconds`.
//!
//! A pipeline holds durable records, so by default an empty budget makes a retry wait for its
//! token ([`OnEmpty::Wait`]); an interactive caller gives up instead ([`OnEmpty::GiveUp`]).

use crate::time::{Mono, seconds};
use core::time::Duration;

/// What an empty budget means for the retry that asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnEmpty {
    /// It waits for its token, each waiter behind the last.
    #[default]
    Wait,
    /// It is refused.
    GiveUp,
}

/// The settings of a [`Budget`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetConfig {
    /// Tokens earned by one call; a retry costs one token.
    pub ratio: f64,
    /// Tokens earned per second.
    pub floor_per_second: f64,
    /// Size of the budget, in tokens; it starts full.
    pub size: f64,
    /// Whether a retry waits or is refused when the budget is empty.
    pub on_empty: OnEmpty,
}

impl Default for BudgetConfig {
    /// 20 % of calls plus 10 a second, at most 100 kept; waits when empty.
    fn default() -> BudgetConfig {
        BudgetConfig { ratio: 0.2, floor_per_second: 10.0, size: 100.0, on_empty: OnEmpty::Wait }
    }
}

/// The retry budget of one lane.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Tokens earned by one call.
    ratio: f64,
    /// Tokens earned per second.
    floor: f64,
    /// Size, in tokens.
    size: f64,
    on_empty: OnEmpty,
    /// Tokens at `last`; negative when retries wait for theirs.
    tokens: f64,
    /// When `tokens` was last brought up to date.
    last: Mono,
}

/// The answer to a retry that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Paid: go at this time or later.
    From(Mono),
    /// Refused.
    Refused,
}

impl Budget {
    /// A full budget. Settings that are negative or not a number count as zero.
    #[must_use]
    pub fn new(config: &BudgetConfig) -> Budget {
        let size = config.size.max(0.0);
        Budget {
            ratio: config.ratio.max(0.0),
            floor: config.floor_per_second.max(0.0),
            size,
            on_empty: config.on_empty,
            tokens: size,
            last: Mono::ZERO,
        }
    }

    /// A new call was started: it earns its share.
    pub fn earn(&mut self, now: Mono) {
        self.pass(now);
        self.tokens = (self.tokens + self.ratio).min(self.size);
    }

    /// Pays for one retry.
    pub fn pay(&mut self, now: Mono) -> Grant {
        self.pass(now);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Grant::From(now);
        }
        if self.on_empty == OnEmpty::GiveUp || self.floor <= 0.0 {
            return Grant::Refused;
        }
        let wait = (1.0 - self.tokens) / self.floor;
        self.tokens -= 1.0;
        Grant::From(now + seconds(wait))
    }

    /// Gives back what was paid for a retry that did not happen.
    pub fn refund(&mut self) {
        self.tokens = (self.tokens + 1.0).min(self.size);
    }

    /// Tokens left; negative when retries wait for theirs.
    #[must_use]
    pub const fn left(&self) -> f64 {
        self.tokens
    }

    fn pass(&mut self, now: Mono) {
        let gone: Duration = now.since(self.last);
        if !gone.is_zero() {
            self.tokens = (self.tokens + self.floor * gone.as_secs_f64()).min(self.size);
            self.last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(s: f64) -> Mono {
        Mono::from_secs_f64(s)
    }

    #[test]
    fn calls_and_time_earn_retries() {
        let mut b =
            Budget::new(&BudgetConfig { ratio: 0.5, floor_per_second: 1.0, size: 2.0, ..Default::default() });
        assert_eq!(b.pay(at(0.0)), Grant::From(at(0.0)));
        assert_eq!(b.pay(at(0.0)), Grant::From(at(0.0)));
        // Empty: each waiter behind the last.
        assert_eq!(b.pay(at(0.0)), Grant::From(at(1.0)));
        assert_eq!(b.pay(at(0.0)), Grant::From(at(2.0)));
        // One second pays one debt, two calls the other.
        b.earn(at(1.0));
        b.earn(at(1.0));
        assert_eq!(b.left(), 0.0);
        b.refund();
        assert_eq!(b.pay(at(1.0)), Grant::From(at(1.0)));
    }

    #[test]
    fn an_interactive_budget_refuses() {
        let config = BudgetConfig { ratio: 0.1, floor_per_second: 0.0, size: 1.0, on_empty: OnEmpty::GiveUp };
        let mut b = Budget::new(&config);
        assert_eq!(b.pay(at(0.0)), Grant::From(at(0.0)));
        assert_eq!(b.pay(at(9e9)), Grant::Refused);
    }

    #[test]
    fn a_year_of_idling_costs_nothing_and_overfills_nothing() {
        let mut b = Budget::new(&BudgetConfig::default());
        b.earn(at(3.2e7));
        assert_eq!(b.left(), 100.0);
    }

    proptest! {
        /// retries ≤ size + ratio · calls + floor · seconds, at every moment.
        #[test]
        fn amplification_is_bounded(
            steps in prop::collection::vec((0u64..2_000_000_000, any::<bool>()), 1..400),
            ratio in 0.0..1.0f64, floor in 0.0..20.0f64, size in 0.0..50.0f64, wait in any::<bool>(),
        ) {
            let on_empty = if wait { OnEmpty::Wait } else { OnEmpty::GiveUp };
            let mut b = Budget::new(&BudgetConfig { ratio, floor_per_second: floor, size, on_empty });
            let (mut now, mut calls, mut latest) = (Mono::ZERO, 0.0, Mono::ZERO);
            let mut starts = alloc::vec::Vec::new();
            for (gap, retry) in steps {
                now += Duration::from_nanos(gap);
                if retry {
                    if let Grant::From(t) = b.pay(now) {
                        prop_assert!(t >= now);
                        starts.push(t);
                        latest = latest.max(t);
                    }
                } else {
                    b.earn(now);
                    calls += 1.0;
                }
            }
            starts.sort_unstable();
            let bound = size + ratio * calls + floor * latest.max(now).as_secs_f64();
            prop_assert!(starts.len() as f64 <= bound + 1e-6, "{} > {bound}", starts.len());
        }
    }
}
