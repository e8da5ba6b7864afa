//! The retry budget: limits the number of retries of a lane.
//!
//! When a service is down, a caller with three retries per call quadruples its load. The budget
//! bounds that: each new call adds a fraction of a token, each second adds a small floor so that a
//! lane with few calls can still retry, and a retry costs one token. Why a token bucket and not a
//! ring of time slots: the update takes O(1) after any idle time, and its bound is a simple formula:
//! `retries ≤ size + ratio · calls + floor · seconds`.
//!
//! The records of a pipeline are durable, so by default a retry waits for its token when the budget
//! is empty ([`OnEmpty::Wait`]); an interactive caller gives up instead ([`OnEmpty::GiveUp`]).

use crate::time::{Mono, seconds};
use core::time::Duration;

/// What happens to a retry when the budget is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnEmpty {
    /// It waits for its token, in order.
    #[default]
    Wait,
    /// It is refused.
    GiveUp,
}

/// The settings of a [`Budget`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetConfig {
    /// The number of tokens added per call; a retry costs one token.
    pub ratio: f64,
    /// The number of tokens added per second.
    pub floor_per_second: f64,
    /// The size of the budget, in tokens; it starts full.
    pub size: f64,
    /// Whether a retry waits or is refused when the budget is empty.
    pub on_empty: OnEmpty,
}

impl Default for BudgetConfig {
    /// 20 % of the calls plus 10 per second, size 100; waits when empty.
    fn default() -> BudgetConfig {
        BudgetConfig { ratio: 0.2, floor_per_second: 10.0, size: 100.0, on_empty: OnEmpty::Wait }
    }
}

/// The retry budget of one lane.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The number of tokens added per call.
    ratio: f64,
    /// The number of tokens added per second.
    floor: f64,
    /// The size, in tokens.
    size: f64,
    on_empty: OnEmpty,
    /// The number of tokens at `last`; negative when retries wait for theirs.
    tokens: f64,
    /// The time of the last update of `tokens`.
    last: Mono,
}

/// The result of [`Budget::pay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The retry is paid and may be sent from this time on.
    From(Mono),
    /// The budget is empty and the retry is not allowed.
    Refused,
}

impl Budget {
    /// Creates a full budget. Settings that are negative or NaN count as zero.
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

    /// Adds the tokens for a new call.
    pub fn earn(&mut self, now: Mono) {
        self.pass(now);
        self.tokens = (self.tokens + self.ratio).min(self.size);
    }

    /// Takes the token for one retry.
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

    /// Returns the token of a retry that was not sent.
    pub fn refund(&mut self) {
        self.tokens = (self.tokens + 1.0).min(self.size);
    }

    /// The number of tokens left; negative when retries wait for theirs.
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
        // Empty: the waiters are served in order.
        assert_eq!(b.pay(at(0.0)), Grant::From(at(1.0)));
        assert_eq!(b.pay(at(0.0)), Grant::From(at(2.0)));
        // One second adds one missing token, two calls add the other.
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
