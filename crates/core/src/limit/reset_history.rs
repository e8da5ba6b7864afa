//! How a quota comes back, where its headers say too little about it.
//!
//! Headers tell waits in whole seconds, so a wait of a second may be any shorter one. It is asked for
//! sooner, by halves, until a call was refused that asked too soon; after many more returns that is tried
//! once more. A quota that comes back sooner than seconds can tell, or is full again whenever an answer
//! comes, is no measure at all: there the refusals tell more.

use super::rate_estimate::secs;
use crate::time::Mono;

/// Returns between which windows are counted.
const RETURNS: usize = 3;
/// Three windows of a second do not fit into so many seconds, but for one that was asked for late.
const HASTY: f64 = 2.4;
/// So often it may be found full again and be a measure nevertheless.
const FULL: u32 = 4;

/// The returns of a quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Back {
    /// How often it has come back as a whole, and when it last did.
    times: u32,
    last: [Mono; RETURNS],
    /// The share of a rounded wait that is really waited, and after how many returns it may fall.
    share: f64,
    again: u32,
    /// It came back sooner than its headers can tell.
    hasty: bool,
    /// How often it was full again although much of it had been spent.
    full: u32,
}

impl Back {
    pub(super) const fn new(now: Mono) -> Back {
        Back { times: 0, last: [now; RETURNS], share: 1.0, again: 0, hasty: false, full: 0 }
    }

    /// How often it has come back as a whole.
    pub(super) const fn times(&self) -> u32 {
        self.times
    }

    /// The share of a rounded wait that is really waited.
    pub(super) const fn share(&self) -> f64 {
        self.share
    }

    /// The seconds between its last two returns.
    pub(super) fn every(&self) -> Option<f64> {
        let nth = |n: u32| self.last[n as usize % RETURNS];
        (self.times > 1).then(|| secs(nth(self.times - 1), nth(self.times))).filter(|every| *every > 0.0)
    }

    /// Whether it comes back too fast for its headers to be a measure.
    pub(super) const fn is_hasty(&self) -> bool {
        self.hasty || self.full > FULL
    }

    /// A call sent then found it back as a whole, after a wait that is `rounded`; `puzzling` if nothing else
    /// tells how it comes back.
    pub(super) fn returned(&mut self, sent: Mono, rounded: bool, puzzling: bool) {
        self.times = self.times.saturating_add(1);
        let slot = self.times as usize % RETURNS;
        let since = core::mem::replace(&mut self.last[slot], sent);
        self.hasty |= puzzling && self.times as usize > RETURNS && secs(since, sent) < HASTY;
        if rounded && self.times >= self.again {
            self.share = (0.5 * self.share).max(0.01);
        }
    }

    /// It was full again although much of it had been spent.
    pub(super) const fn filled(&mut self) {
        self.full = self.full.saturating_add(1);
    }

    /// A call was refused that asked whether it is back. True if that was too soon.
    pub(super) const fn too_soon(&mut self) -> bool {
        let soon = self.share < 1.0;
        if soon {
            self.share = if self.share < 0.5 { 2.0 * self.share } else { 1.0 };
            self.again = self.times.saturating_mul(8).saturating_add(16);
        }
        soon
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::tests::at;

    /// Comes back every so many seconds, so many times.
    fn back(every: f64, times: u32) -> Back {
        let mut back = Back::new(at(0.0));
        (1..=times).for_each(|n| back.returned(at(every * f64::from(n)), true, true));
        back
    }

    #[test]
    fn windows_of_less_than_a_second_are_too_fast_to_be_told() {
        for (every, hasty) in [(0.1, true), (0.5, true), (0.75, true), (1.0, false), (10.0, false)] {
            assert_eq!(back(every, 8).is_hasty(), hasty, "{every}");
        }
        assert!(!back(0.1, 3).is_hasty(), "three returns are no proof");
        assert_eq!(back(0.5, 1).every(), None);
        for times in 2..9 {
            assert_eq!(back(0.5, times).every(), Some(0.5));
        }
        let mut known = Back::new(at(0.0));
        (1..9).for_each(|n| known.returned(at(0.1 * f64::from(n)), true, false));
        assert!(!known.is_hasty(), "a slope tells more");
    }

    #[test]
    fn a_quota_that_is_always_full_tells_nothing() {
        let mut back = Back::new(at(0.0));
        (0..FULL).for_each(|_| back.filled());
        assert!(!back.is_hasty());
        back.filled();
        assert!(back.is_hasty());
    }

    #[test]
    fn a_rounded_wait_is_shortened_until_that_was_too_soon_and_then_seldom() {
        let mut back = back(1.0, 2);
        assert_eq!(back.share(), 0.25);
        assert!(back.too_soon());
        assert_eq!(back.share(), 0.5);
        (3..32).for_each(|n| back.returned(at(f64::from(n)), true, true));
        assert_eq!(back.share(), 0.5, "not before the 32nd return");
        back.returned(at(32.0), true, true);
        assert_eq!(back.share(), 0.25);
        assert!(!Back::new(at(0.0)).too_soon(), "a whole wait is not too soon");
    }
}
