//! A server whose token bucket holds a single token.
//!
//! It refuses whatever comes a little sooner than a whole interval after the last call, and saves
//! nothing: a pace above its rate loses every second call, and the openings after its refusals say
//! nothing. Its sign is that it never accepts two calls as close together as some that it refused.
//! Then the interval itself is searched for: longer after a refusal, shorter after a run of accepted
//! calls, in steps that halve at each turn down to a few thousandths. From there on a long run of
//! accepted calls is needed for a small step. On its way a call may be early by chance; so a refusal after a
//! run of accepted calls lengthens the interval by a small step too, else rare delays would lengthen it on and on.

use super::rate_estimate::secs;
use crate::time::Mono;

/// Calls remembered to find the one before and the one after.
const RECENT: usize = 8;
/// The accepted gap that counts is not the shortest but this one: on its way a call may be late by chance.
const SHORTEST: usize = 3;
/// Pairs of either kind that are proof enough.
const PAIRS: u32 = 4;
/// An accepted gap below this share of the shortest so far makes the refusals counted by it void.
const SHORTER: f64 = 0.8;
/// A refused gap is close if it is below this many times the shortest accepted gap ...
const CLOSE_MAX: f64 = 1.05;
/// ... and above this share of it: shorter ones would be refused by any server.
const CLOSE_MIN: f64 = 0.3;
/// Close refusals per wide one that are proof of a single token.
const CLOSE_PER_WIDE: u32 = 3;

/// The first step of the search, as a share of the interval.
const STEP_START: f64 = 0.1;
/// The smallest step by which the interval is lengthened.
const STEP_MIN: f64 = 0.004;
/// The largest step.
const STEP_MAX: f64 = 0.5;
/// Factor of the step after a step to a shorter interval.
const STEP_AFTER_SHORTER: f64 = 0.75;
/// Factor of the step after a refusal.
const STEP_AFTER_REFUSAL: f64 = 0.5;
/// Factor of the step when refusals go on.
const STEP_AFTER_REFUSALS: f64 = 2.0;
/// Refusals in a row from which on the step grows.
const REFUSALS_GROWING: u32 = 3;
/// Refusals in a row after which it is no bucket of a single token.
const REFUSALS_MAX: u32 = 12;
/// Fewer accepted calls than this between two refusals make them refusals in a row.
const ACCEPTED_BETWEEN: u32 = 4;
/// Accepted calls after which the interval is shortened while the steps are large.
const ACCEPTED_LARGE_STEP: u32 = 6;
/// Accepted calls after which the interval is shortened by a small step at first ...
const ACCEPTED_SMALL_STEP: u32 = 120;
/// ... and at last.
const ACCEPTED_SMALL_STEP_MIN: u32 = 8;
/// They halve after so many small steps in a row, this often.
const STEPS_PER_HALVING: u32 = 2;
const HALVINGS_MAX: u32 = 4;
/// The first small step, as a share of the interval; it doubles each time, this often.
const SMALL_STEP: f64 = 0.001;
const DOUBLINGS_MAX: u32 = 8;
/// An interval that so many calls have kept is long enough: a refusal after them is chance, ...
const ACCEPTED_KEPT: u32 = 30;
/// ... and worth this step, about as much as the calls until the next one take back.
const STEP_CHANCE: f64 = 0.001;
/// So many refusals after the search, if they are a larger share of the calls than this, are not those of a bucket.
const BLOCK_REFUSALS: u32 = 20;
const BLOCK_SHARE_MAX: f64 = 0.08;
/// Shortest interval, in seconds.
const INTERVAL_MIN: f64 = 1e-6;

/// How close together calls were accepted and refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CallGaps {
    /// The last calls, as a ring: number, when it was sent, whether it was accepted.
    recent: [(u64, Mono, bool); RECENT],
    /// Index of the oldest of them.
    next: usize,
    /// Shortest gaps between two accepted calls, in seconds, the shortest first.
    shortest: [f64; SHORTEST],
    /// Pairs of accepted calls.
    accepted: u32,
    /// Refusals less than about that gap after an accepted call.
    refused_close: u32,
    /// Refusals later than that.
    refused_wide: u32,
}

impl CallGaps {
    pub(super) const NEW: CallGaps = CallGaps {
        recent: [(u64::MAX, Mono::ZERO, false); RECENT],
        next: 0,
        shortest: [f64::INFINITY; SHORTEST],
        accepted: 0,
        refused_close: 0,
        refused_wide: 0,
    };

    /// A call came back.
    pub(super) fn note(&mut self, seq: u64, sent: Mono, accepted: bool) {
        for i in 0..RECENT {
            let (other, at, was) = self.recent[i];
            if other == u64::MAX {
                continue;
            }
            if was && other + 1 == seq {
                self.pair(secs(at, sent), accepted);
            } else if accepted && seq + 1 == other {
                self.pair(secs(sent, at), was);
            }
        }
        self.recent[self.next] = (seq, sent, accepted);
        self.next = (self.next + 1) % RECENT;
    }

    /// About the shortest gap between two accepted calls, in seconds.
    const fn accepted_min(&self) -> f64 {
        self.shortest[SHORTEST - 1]
    }

    fn pair(&mut self, gap: f64, accepted: bool) {
        let before = self.accepted_min();
        if accepted {
            let mut gap = gap;
            for shortest in &mut self.shortest {
                if gap < *shortest {
                    core::mem::swap(&mut gap, shortest);
                }
            }
            if self.accepted_min() < SHORTER * before {
                (self.refused_close, self.refused_wide) = (0, 0);
            }
            self.accepted = self.accepted.saturating_add(1);
        } else if gap < CLOSE_MAX * before {
            self.refused_close += u32::from(gap > CLOSE_MIN * before);
        } else {
            self.refused_wide += 1;
        }
    }

    /// About the shortest accepted gap in seconds, if the server is a bucket of a single token.
    pub(super) fn single_token(&self) -> Option<f64> {
        let proof = self.accepted >= PAIRS && self.refused_close >= PAIRS;
        (proof && self.refused_wide * CLOSE_PER_WIDE <= self.refused_close).then_some(self.accepted_min())
    }
}

/// The search for the interval of a single-token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SingleTokenBucket {
    /// Interval between two calls, in seconds.
    interval: f64,
    /// Step of the search, as a share of the interval.
    step: f64,
    /// Calls accepted since the interval last changed.
    accepted: u32,
    /// Refusals in a row with hardly a call between them.
    refusals: u32,
    /// Small steps in a row without a refusal.
    small_steps: u32,
    /// The first call that went at this interval.
    since: u64,
    /// Calls since the search, and how many of them were refused, in blocks.
    block_calls: u32,
    block_refused: u32,
    /// A block had too many refusals.
    too_many: bool,
}

impl SingleTokenBucket {
    /// Begins at a gap, in seconds, that was accepted.
    pub(super) fn new(gap: f64) -> SingleTokenBucket {
        SingleTokenBucket {
            interval: gap.max(INTERVAL_MIN),
            step: STEP_START,
            accepted: 0,
            refusals: 0,
            small_steps: 0,
            since: 0,
            block_calls: 0,
            block_refused: 0,
            too_many: false,
        }
    }

    /// The pace, in calls per second.
    pub(super) fn rate(&self) -> f64 {
        1.0 / self.interval
    }

    /// A call was accepted, and `next` goes next. True if the pace has changed.
    pub(super) fn accepted(&mut self, seq: u64, next: u64) -> bool {
        if seq < self.since {
            return false;
        }
        self.accepted += 1;
        self.block_calls += 1;
        let large = self.step > STEP_MIN;
        // Where nothing is refused for long, the limit has risen: shorter ever sooner and ever more.
        let needed = if large {
            ACCEPTED_LARGE_STEP
        } else {
            (ACCEPTED_SMALL_STEP >> (self.small_steps / STEPS_PER_HALVING).min(HALVINGS_MAX))
                .max(ACCEPTED_SMALL_STEP_MIN)
        };
        if self.accepted < needed {
            return false;
        }
        (self.accepted, self.refusals) = (0, 0);
        if large {
            self.interval /= 1.0 + self.step;
            self.step = (self.step * STEP_AFTER_SHORTER).max(STEP_MIN);
        } else {
            self.interval /= 1.0 + SMALL_STEP * f64::from(1u32 << self.small_steps.min(DOUBLINGS_MAX));
            self.small_steps += 1;
        }
        self.since = next;
        true
    }

    /// A call was refused, and `next` goes next.
    pub(super) fn refused(&mut self, next: u64) {
        self.since = next;
        self.small_steps = 0;
        self.judge_block();
        if self.accepted >= ACCEPTED_KEPT {
            self.interval *= 1.0 + STEP_CHANCE;
            (self.accepted, self.refusals) = (0, 0);
            return;
        }
        self.refusals = if self.accepted < ACCEPTED_BETWEEN { self.refusals + 1 } else { 0 };
        self.interval *= 1.0 + self.step;
        self.step = if self.refusals >= REFUSALS_GROWING {
            (self.step * STEP_AFTER_REFUSALS).min(STEP_MAX)
        } else {
            (self.step * STEP_AFTER_REFUSAL).max(STEP_MIN)
        };
        self.accepted = 0;
    }

    /// Counts a refusal. A bucket refuses few calls once its interval is known, chance refuses the same share always.
    fn judge_block(&mut self) {
        if self.step > STEP_MIN {
            (self.block_calls, self.block_refused) = (0, 0);
            return;
        }
        (self.block_calls, self.block_refused) = (self.block_calls + 1, self.block_refused + 1);
        if self.block_refused >= BLOCK_REFUSALS {
            self.too_many = f64::from(self.block_refused) > BLOCK_SHARE_MAX * f64::from(self.block_calls);
            (self.block_calls, self.block_refused) = (0, 0);
        }
    }

    /// Whether longer intervals do not help: it is no bucket of a single token.
    pub(super) const fn is_refuted(&self) -> bool {
        self.refusals >= REFUSALS_MAX || self.too_many
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Notes calls that are so many milliseconds apart, each accepted or not.
    fn gaps(calls: &[(f64, bool)]) -> CallGaps {
        let (mut gaps, mut now) = (CallGaps::NEW, 0.0);
        for (seq, (gap, accepted)) in (0u64..).zip(calls) {
            now += gap / 1e3;
            gaps.note(seq, Mono::from_secs_f64(now), *accepted);
        }
        gaps
    }

    /// Calls 11 ms apart. Every fourth is refused, because it came only so many milliseconds after the one before.
    fn refused_after(times: [f64; 5]) -> impl Iterator<Item = (f64, bool)> {
        times.into_iter().flat_map(|time| [(11.0, true), (11.0, true), (11.0, true), (time, false)])
    }

    #[test]
    fn a_call_that_was_late_on_its_way_hides_no_single_token() {
        let lucky = [(11.0, true), (8.7, true)];
        let calls: Vec<_> = lucky.into_iter().chain(refused_after([9.2, 9.6, 9.9, 9.4, 9.7])).collect();
        let found = gaps(&calls).single_token().unwrap();
        assert!((found - 0.011).abs() < 1e-9, "{found}");
    }

    #[test]
    fn a_share_of_refusals_that_stays_refutes_the_interval() {
        for (every, refuted) in [(40, false), (8, true)] {
            let mut bucket = SingleTokenBucket::new(0.01);
            (0..400 * BLOCK_REFUSALS).for_each(|n| {
                if n % every == every - 1 {
                    bucket.refused(u64::from(n) + 1);
                } else {
                    let _ = bucket.accepted(u64::from(n), u64::from(n) + 1);
                }
            });
            assert_eq!(bucket.is_refuted(), refuted, "{every} {bucket:?}");
        }
    }

    #[test]
    fn a_bucket_that_saves_calls_is_none_of_a_single_token() {
        let burst = [(1.0, true); 5];
        let calls: Vec<_> = burst.into_iter().chain(refused_after([9.2, 9.6, 9.9, 9.4, 9.7])).collect();
        assert_eq!(gaps(&calls).single_token(), None);
    }
}
