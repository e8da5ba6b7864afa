//! How often a quota was restored, where its headers say too little about it.
//!
//! Headers give the reset in whole seconds, so a reset of one second may be any shorter one. The lane
//! asks sooner, each time after half the wait, until a call was refused because it asked too soon; after
//! many more resets it tries once more. A quota that is restored faster than whole seconds can express,
//! or that is full whenever an answer comes, is no usable measure: there the refusals say more.

use super::rate_estimate::secs;
use crate::time::Mono;

/// Resets between which windows are counted.
const RESETS: usize = 3;
/// Seconds into which [`RESETS`] windows of one second do not fit, except that the first was asked for
/// late: faster resets cannot be expressed in whole seconds.
const TOO_FAST_SECONDS: f64 = 2.4;
/// How often the quota may be found full after much of it was spent before its headers are given up.
const FULL_MAX: u32 = 4;
/// Factor by which the share of a rounded wait falls after each reset.
const WAIT_SHARE_STEP: f64 = 0.5;
/// Smallest share of a rounded wait.
const WAIT_SHARE_MIN: f64 = 0.01;
/// After a call that asked too soon, a shorter wait is tried again when the number of resets has grown
/// by this factor ...
const RETRY_AFTER_FACTOR: u32 = 8;
/// ... and by this many more.
const RETRY_AFTER_RESETS: u32 = 16;

/// The resets of one quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ResetHistory {
    /// Resets of the whole quota so far.
    count: u32,
    /// When the last resets were noticed, as a ring indexed by `count`.
    recent: [Mono; RESETS],
    /// Share (0 to 1) of a rounded wait that is really waited.
    wait_share: f64,
    /// The share may fall again from this number of resets on.
    shorten_from: u32,
    /// The quota was restored faster than its headers can express.
    too_fast: bool,
    /// How often the quota was full although much of it had been spent.
    full: u32,
}

impl ResetHistory {
    pub(super) const fn new(now: Mono) -> ResetHistory {
        ResetHistory {
            count: 0,
            recent: [now; RESETS],
            wait_share: 1.0,
            shorten_from: 0,
            too_fast: false,
            full: 0,
        }
    }

    /// Resets of the whole quota so far.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Share (0 to 1) of a rounded wait that is really waited.
    pub(super) const fn wait_share(&self) -> f64 {
        self.wait_share
    }

    /// Seconds between the last two resets.
    pub(super) fn interval(&self) -> Option<f64> {
        let nth = |n: u32| self.recent[n as usize % RESETS];
        (self.count > 1)
            .then(|| secs(nth(self.count - 1), nth(self.count)))
            .filter(|interval| *interval > 0.0)
    }

    /// Whether the quota is restored too fast for its headers to be a measure.
    pub(super) const fn is_too_fast(&self) -> bool {
        self.too_fast || self.full > FULL_MAX
    }

    /// A call sent at `sent` found the whole quota restored, after a wait that is `rounded` up to a second;
    /// `unexplained` if neither a window nor a slope says how the quota is restored.
    pub(super) fn reset(&mut self, sent: Mono, rounded: bool, unexplained: bool) {
        self.count = self.count.saturating_add(1);
        let slot = self.count as usize % RESETS;
        let since = core::mem::replace(&mut self.recent[slot], sent);
        self.too_fast |= unexplained && self.count as usize > RESETS && secs(since, sent) < TOO_FAST_SECONDS;
        if rounded && self.count >= self.shorten_from {
            self.wait_share = (WAIT_SHARE_STEP * self.wait_share).max(WAIT_SHARE_MIN);
        }
    }

    /// The quota was full although much of it had been spent.
    pub(super) const fn filled(&mut self) {
        self.full = self.full.saturating_add(1);
    }

    /// A call that asked whether the quota was restored was refused. True if it had asked too soon.
    pub(super) const fn too_soon(&mut self) -> bool {
        let soon = self.wait_share < 1.0;
        if soon {
            self.wait_share =
                if self.wait_share < WAIT_SHARE_STEP { self.wait_share / WAIT_SHARE_STEP } else { 1.0 };
            self.shorten_from =
                self.count.saturating_mul(RETRY_AFTER_FACTOR).saturating_add(RETRY_AFTER_RESETS);
        }
        soon
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::tests::at;

    /// A quota that was restored `times` times, every `every` seconds.
    fn history(every: f64, times: u32) -> ResetHistory {
        let mut history = ResetHistory::new(at(0.0));
        (1..=times).for_each(|n| history.reset(at(every * f64::from(n)), true, true));
        history
    }

    #[test]
    fn windows_of_less_than_a_second_are_too_fast_to_be_told() {
        for (every, too_fast) in [(0.1, true), (0.5, true), (0.75, true), (1.0, false), (10.0, false)] {
            assert_eq!(history(every, 8).is_too_fast(), too_fast, "{every}");
        }
        assert!(!history(0.1, 3).is_too_fast(), "three resets are no proof");
        assert_eq!(history(0.5, 1).interval(), None);
        for times in 2..9 {
            assert_eq!(history(0.5, times).interval(), Some(0.5));
        }
        let mut known = ResetHistory::new(at(0.0));
        (1..9).for_each(|n| known.reset(at(0.1 * f64::from(n)), true, false));
        assert!(!known.is_too_fast(), "a slope tells more");
    }

    #[test]
    fn a_quota_that_is_always_full_tells_nothing() {
        let mut history = ResetHistory::new(at(0.0));
        (0..FULL_MAX).for_each(|_| history.filled());
        assert!(!history.is_too_fast());
        history.filled();
        assert!(history.is_too_fast());
    }

    #[test]
    fn a_rounded_wait_is_shortened_until_that_was_too_soon_and_then_seldom() {
        let mut history = history(1.0, 2);
        assert_eq!(history.wait_share(), 0.25);
        assert!(history.too_soon());
        assert_eq!(history.wait_share(), 0.5);
        (3..32).for_each(|n| history.reset(at(f64::from(n)), true, true));
        assert_eq!(history.wait_share(), 0.5, "not before the 32nd reset");
        history.reset(at(32.0), true, true);
        assert_eq!(history.wait_share(), 0.25);
        assert!(!ResetHistory::new(at(0.0)).too_soon(), "a whole wait is not too soon");
    }
}
