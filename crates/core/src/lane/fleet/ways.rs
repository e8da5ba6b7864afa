//! How long permits travel, and how they are made to travel equally long.
//!
//! A lane learns from the order of its calls: what was sent before a refused call has used up the limit. The
//! owner's own calls leave at once, and those of a member after the way of its permit. So a call would overtake
//! those that were let out before it, by as many as go out in that time, and what the lane learns would be
//! wrong: at 500 calls per second and 25 ms, a third of all calls was refused. Permits of those that are near are
//! therefore held back until all are equally far. Where no call goes out in that time, none is held back.

use alloc::collections::BTreeMap;
use core::time::Duration;

/// The longest way that others are held back for.
const WAY_MAX: Duration = Duration::from_millis(100);
/// A new way counts for one part in this many.
const SMOOTHING: u32 = 8;
/// Calls that may overtake others.
const OVERTAKING_MAX: f64 = 0.5;

/// The ways of permits to the members of a lane. `M` names a member.
#[derive(Clone, Debug)]
pub struct PermitWays<M> {
    ways: BTreeMap<M, Duration>,
    longest: Duration,
}

impl<M> Default for PermitWays<M> {
    fn default() -> PermitWays<M> {
        PermitWays { ways: BTreeMap::new(), longest: Duration::ZERO }
    }
}

impl<M: Copy + Ord> PermitWays<M> {
    /// A permit went to a member and its report came back; the time that the member had it is not part of that.
    pub fn note(&mut self, member: M, round_trip: Duration) {
        let way = (round_trip / 2).min(WAY_MAX);
        let old = self.ways.get(&member).copied();
        let new = old.map_or(way, |old| (old * (SMOOTHING - 1) + way) / SMOOTHING);
        self.ways.insert(member, new);
        if new >= self.longest {
            self.longest = new;
        } else if old == Some(self.longest) {
            self.find_longest();
        }
    }

    /// A member is gone.
    pub fn forget(&mut self, member: M) {
        if self.ways.remove(&member) == Some(self.longest) {
            self.find_longest();
        }
    }

    fn find_longest(&mut self) {
        self.longest = self.ways.values().max().copied().unwrap_or_default();
    }

    /// How long a permit is held back before it goes to a member, or to a call of the owner itself (`None`), in a
    /// lane that lets out `rate` calls per second. A member that is not known yet gets it at once.
    #[must_use]
    pub fn delay(&self, member: Option<M>, rate: Option<f64>) -> Duration {
        let way = match member {
            Some(member) => self.ways.get(&member).copied().unwrap_or(self.longest),
            None => Duration::ZERO,
        };
        let delay = self.longest.saturating_sub(way);
        let overtaken = rate.map_or(f64::INFINITY, |rate| rate * self.longest.as_secs_f64());
        if overtaken > OVERTAKING_MAX { delay } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn all_are_equally_far() {
        let mut ways = PermitWays::default();
        assert_eq!(ways.delay(None, Some(500.0)), Duration::ZERO);
        ways.note('a', ms(50));
        ways.note('b', ms(10));
        let delays = |ways: &PermitWays<char>| {
            [None, Some('a'), Some('b'), Some('c')].map(|m| ways.delay(m, Some(500.0)))
        };
        assert_eq!(delays(&ways), [ms(25), ms(0), ms(20), ms(0)]);
        // Where the limit is not known, calls may go fast.
        assert_eq!(ways.delay(None, None), ms(25));
        ways.forget('a');
        assert_eq!(delays(&ways), [ms(5), ms(0), ms(0), ms(0)]);
    }

    #[test]
    fn a_way_on_which_nothing_is_overtaken_holds_nobody_back() {
        let mut ways = PermitWays::default();
        ways.note(1, ms(1));
        assert_eq!((ways.delay(None, Some(1000.0)), ways.delay(None, Some(1001.0))), (ms(0), ms(1) / 2));
    }

    #[test]
    fn a_way_changes_slowly_and_has_a_bound() {
        let mut ways = PermitWays::default();
        ways.note(1, ms(16));
        ways.note(1, ms(32));
        assert_eq!(ways.delay(None, None), ms(9));
        ways.note(1, ms(0));
        assert_eq!(ways.delay(None, None), ms(63) / 8, "the longest is looked for anew");
        ways.note(2, Duration::MAX);
        assert_eq!(ways.delay(None, None), WAY_MAX);
    }
}
