//! Refusals at random: refusals that have nothing to do with the rate.
//!
//! Some servers refuse a share of all calls whatever their number: a busy backend, an overloaded
//! node behind a balancer, errors that merely say "rate limited". To slow down does not help, and
//! a lane that slows down after each refusal ends at a standstill. The sign is that the pace has
//! fallen by a third and the share of refusals has not. Then the pace goes back to where it was,
//! and grows step by step. After each step the next calls decide between two explanations by a
//! sequential test: the share is as usual, or no more is accepted than before the step. In the
//! second case there is a limit. Whether there is only a limit, the same test tells below it: random
//! refusals stay, those of a limit are gone.

use super::RATE_MAX;
use super::rate_estimate::secs;
use crate::time::Mono;

/// Refusals from which on their share is known.
const REFUSALS_MIN: u32 = 6;
/// Shares of refused calls that may be random: a lower share does little harm, a higher one is more
/// likely a limit.
const SHARES: core::ops::Range<f64> = 0.02..0.45;
/// A higher share of refusals among the last hundred calls or so is not random. At half, a bucket of one token looks as
/// if it were: it refuses every second call at any pace from its rate to twice its rate.
const RECENT_SHARE_MAX: f64 = 0.48;
/// A server that refuses a higher share of a block is closed.
const CLOSED_SHARE: f64 = 0.65;
/// Weight of one call in the share of refusals among the last hundred calls or so.
const RECENT_WEIGHT: f64 = 0.01;
/// How often a limit may be mistaken for random refusals.
const MISTAKES_MAX: u32 = 2;
/// Calls after which a block at one pace is closed.
const BLOCK_CALLS_MAX: u32 = 2000;
/// A pace below this share of the block's pace closes the block: it fell.
const PACE_FELL: f64 = 0.7;
/// A pace above this many times the block's pace closes the block.
const PACE_ROSE: f64 = 1.4;
/// A block whose pace is below this share of the last block's is part of a fall.
const PACE_FALLING: f64 = 0.8;
/// Refusals are random if their share, after the pace fell, is above this share of that before.
const SHARE_UNCHANGED: f64 = 0.6;

/// Growth of the pace after a clean block: at first, and at least after limits were found.
const GROWTH: f64 = 1.5;
const GROWTH_MIN: f64 = 1.1;
/// Clean blocks after a limit was found before the pace grows again by the least growth.
const REST_BLOCKS: u32 = 10;
/// Logarithm of the odds at which a block has found a limit, and at which it has not.
const LIMIT_ODDS: f64 = 5.0;
const CLEAN_ODDS: f64 = -4.0;
/// Calls, one after the other, that are judged together when all are back: refusals come back first.
const GROUP_CALLS: u32 = 24;
/// A call that was sent so many calls later ends a group of which some never come back.
const STRAGGLER_CALLS: u64 = 1000;
/// No group takes less time, in seconds.
const GROUP_SECONDS_MIN: f64 = 1e-6;
/// A server is closed if so many refusals in a row are as unlikely as this at random.
const UNLIKELY: f64 = 1e-5;
/// Share of the pace that is left when the refusals turn out not to be random.
const MISTAKE_SHARE: f64 = 0.3;
/// A limit that was found is undercut to this share of what it accepted, to see whether it was all.
const BELOW_LIMIT: f64 = 0.85;
/// Below a limit that refuses nothing at random, fewer than this share of the usual refusals are left.
const SHARE_GONE: f64 = 0.15;
/// Weight of a block in the usual share: its usual refusals, of this many more.
const USUAL_REFUSALS: f64 = 32.0;
/// Random refusals are over when so many were usual and none came.
const QUIET_REFUSALS: f64 = 12.0;
/// Usual refusals after which a block is over though nothing is decided: the share lies between the two.
const UNDECIDED_REFUSALS: f64 = 24.0;

/// What a group of calls says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockVerdict {
    /// Nothing yet.
    Nothing,
    /// The share is as usual, and the pace may have grown.
    Usual,
    /// A limit was found, or nothing could be decided, and the pace may have fallen.
    Unusual,
    /// Refusals are not random, or not any more: the pace stays for now.
    Over,
}

/// Calls at about one pace.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PaceBlock {
    /// Calls per second.
    pace: f64,
    calls: u32,
    refused: u32,
}

impl PaceBlock {
    const NEW: PaceBlock = PaceBlock { pace: 0.0, calls: 0, refused: 0 };

    fn count(&mut self, refused: bool) {
        self.calls = self.calls.saturating_add(1);
        self.refused += u32::from(refused);
    }

    fn refused_share(&self) -> Option<f64> {
        (self.refused >= REFUSALS_MIN).then(|| f64::from(self.refused) / f64::from(self.calls.max(1)))
    }
}

/// What a call says about two shares of refused calls: logarithms of how much more likely it is with the other
/// share than with the usual one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ShareTest {
    refused: f64,
    accepted: f64,
    /// Their sum over the calls of the block.
    odds: f64,
}

impl ShareTest {
    fn new(usual: f64, other: f64) -> ShareTest {
        let (refused, accepted) = (libm::log(other / usual), libm::log((1.0 - other) / (1.0 - usual)));
        ShareTest { refused, accepted, odds: 0.0 }
    }

    fn count(&mut self, group: &PaceBlock) {
        let accepted = group.calls.saturating_sub(group.refused);
        self.odds += f64::from(group.refused) * self.refused + f64::from(accepted) * self.accepted;
    }
}

/// Counts calls and refusals, first to recognise random refusals and then to judge by them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RandomRefusals {
    /// The last block.
    last: PaceBlock,
    /// The current block.
    current: PaceBlock,
    /// The first call of the current group, how many of it are back, and those of them that were counted.
    from: u64,
    returned: u32,
    group: PaceBlock,
    /// When the first and the last call of the group were sent.
    sent: (Mono, Mono),
    /// Calls per second at which the fall began, and then the pace to keep.
    pace: f64,
    /// The pace to which it had fallen when refusals were found to be random: a lower one would gain nothing.
    pace_min: f64,
    /// The usual share of refused calls; none while refusals are not known to be random.
    usual_share: Option<f64>,
    /// Whether the usual share is too high for the current block.
    test: ShareTest,
    /// The pace is below a limit that was found; then the pace that it accepted.
    below_limit: Option<f64>,
    /// Clean blocks before the pace grows again.
    rest: u32,
    /// Calls in groups without any refusal, in a row.
    quiet: u32,
    /// Refusals in a row.
    in_a_row: u32,
    /// Growth of the pace after a clean block.
    growth: f64,
    /// Share of refusals among the last hundred calls or so.
    recent_share: f64,
    /// How often a limit was mistaken for random refusals.
    mistakes: u32,
}

impl RandomRefusals {
    pub(super) const NEW: RandomRefusals = RandomRefusals {
        last: PaceBlock::NEW,
        current: PaceBlock::NEW,
        from: 0,
        returned: 0,
        group: PaceBlock::NEW,
        sent: (Mono::ZERO, Mono::ZERO),
        pace: 0.0,
        pace_min: 0.0,
        usual_share: None,
        test: ShareTest { refused: 0.0, accepted: 0.0, odds: 0.0 },
        below_limit: None,
        rest: 0,
        quiet: 0,
        in_a_row: 0,
        growth: GROWTH,
        recent_share: 0.0,
        mistakes: 0,
    };

    /// Whether refusals are known to be random.
    pub(super) const fn is_known(&self) -> bool {
        self.usual_share.is_some()
    }

    /// The pace to keep, or that was kept at last, in calls per second.
    pub(super) const fn pace(&self) -> f64 {
        self.pace
    }

    /// Call `seq` is back, was abandoned or never went, whether it is counted or not.
    pub(super) fn returned(&mut self, seq: u64) {
        if self.is_in_group(seq) {
            self.returned = self.returned.saturating_add(1);
        } else if seq > self.from + STRAGGLER_CALLS {
            self.returned = GROUP_CALLS;
        }
    }

    fn is_in_group(&self, seq: u64) -> bool {
        (self.from..self.from + u64::from(GROUP_CALLS)).contains(&seq)
    }

    /// Counts call `seq`.
    pub(super) fn count(&mut self, seq: u64, sent: Mono, refused: bool) {
        self.recent_share += RECENT_WEIGHT * (f64::from(u8::from(refused)) - self.recent_share);
        self.in_a_row = if refused { self.in_a_row.saturating_add(1) } else { 0 };
        if self.usual_share.is_none() {
            self.current.count(refused);
        } else if self.is_in_group(seq) {
            let (first, last) = if self.group.calls == 0 { (sent, sent) } else { self.sent };
            self.sent = (first.min(sent), last.max(sent));
            self.group.count(refused);
        }
    }

    /// The pace is this now, in calls per second, and call `next` goes next. True if refusals
    /// turn out to be random: the pace goes back to where the fall began.
    pub(super) fn recognise(&mut self, pace: f64, next: u64) -> bool {
        if self.usual_share.is_some() {
            return false;
        }
        let fell = pace < PACE_FELL * self.current.pace;
        // A pace that falls with every few refusals is judged when there are enough of them.
        if fell && self.current.refused < REFUSALS_MIN {
            return false;
        }
        if !fell && pace < PACE_ROSE * self.current.pace && self.current.calls < BLOCK_CALLS_MAX {
            return false;
        }
        let (before, now) = (self.last.refused_share(), self.current.refused_share());
        let falling = self.current.pace < PACE_FALLING * self.last.pace;
        self.pace = if falling { self.pace } else { self.current.pace };
        if let (Some(before), Some(now)) = (before, now)
            && falling
            && fell
            && now > SHARE_UNCHANGED * before
            && SHARES.contains(&now)
            && self.mistakes < MISTAKES_MAX
        {
            let (calls, refused) =
                (self.last.calls + self.current.calls, self.last.refused + self.current.refused);
            let usual = f64::from(refused) / f64::from(calls.max(1));
            (self.recent_share, self.pace_min) = (usual, pace);
            (self.rest, self.quiet, self.growth, self.below_limit) = (0, 0, GROWTH, None);
            self.begin_block(usual, self.pace / pace, next);
            return true;
        }
        (self.last, self.current) = (self.current, PaceBlock { pace, ..PaceBlock::NEW });
        false
    }

    /// A block begins with call `next`, at a pace that has grown by `grown`: with a limit, no more is accepted than
    /// before.
    fn begin_block(&mut self, usual: f64, grown: f64, next: u64) {
        let usual = usual.clamp(SHARES.start, SHARES.end);
        let other = if self.below_limit.is_some() {
            usual * SHARE_GONE
        } else {
            1.0 - (1.0 - usual) / grown.max(GROWTH_MIN)
        };
        (self.usual_share, self.test) = (Some(usual), ShareTest::new(usual, other));
        (self.last, self.current) = (PaceBlock::NEW, PaceBlock::NEW);
        self.begin_group(next);
    }

    const fn begin_group(&mut self, next: u64) {
        (self.group, self.from, self.returned) = (PaceBlock::NEW, next, 0);
    }

    /// Refusals are not known to be random any more. A share of the pace is left.
    fn end(&mut self, share: f64, mistaken: bool) -> BlockVerdict {
        (self.usual_share, self.pace) = (None, self.pace * share);
        (self.last, self.current) = (PaceBlock::NEW, PaceBlock::NEW);
        self.mistakes = self.mistakes.saturating_add(u32::from(mistaken));
        BlockVerdict::Over
    }

    /// Judges a group when all of it is back. Call `next` goes next, `out` calls are out; `paced` if the pace holds
    /// calls back.
    pub(super) fn judge(&mut self, next: u64, out: u32, paced: bool) -> BlockVerdict {
        let Some(usual) = self.usual_share else { return BlockVerdict::Nothing };
        // What is out may still be accepted.
        let in_a_row = self.in_a_row;
        let closed = || libm::pow(usual, f64::from(in_a_row)) < UNLIKELY;
        if in_a_row > out && closed() {
            return self.end(MISTAKE_SHARE, false);
        }
        if self.recent_share > RECENT_SHARE_MAX {
            return self.end(MISTAKE_SHARE, !closed());
        }
        if self.returned < GROUP_CALLS {
            return BlockVerdict::Nothing;
        }
        self.current.calls = self.current.calls.saturating_add(self.group.calls);
        self.current.refused += self.group.refused;
        self.quiet = if self.group.refused > 0 { 0 } else { self.quiet.saturating_add(self.group.calls) };
        self.test.count(&self.group);
        // Calls per second that really went: the pace may not be what holds them back.
        let time = secs(self.sent.0, self.sent.1).max(GROUP_SECONDS_MIN);
        let went = if self.group.calls > 1 { f64::from(self.group.calls) / time } else { f64::INFINITY };
        self.begin_group(next);
        if usual * f64::from(self.quiet) > QUIET_REFUSALS {
            return self.end(1.0, false);
        }
        let (differs, as_usual) = (self.test.odds > LIMIT_ODDS, self.test.odds < CLEAN_ODDS);
        let (calls, refused) = (f64::from(self.current.calls), f64::from(self.current.refused));
        let usual_refused = usual * calls;
        let undecided = !differs && !as_usual;
        if undecided && usual_refused < UNDECIDED_REFUSALS {
            return BlockVerdict::Nothing;
        }
        // A server that refuses nearly everything at once is closed, and says nothing about a share.
        if refused > CLOSED_SHARE * calls {
            return self.end(MISTAKE_SHARE, false);
        }
        if self.below_limit.is_some() && differs {
            return self.end(1.0, true);
        }
        let share = usual + usual * (refused - usual_refused) / (usual_refused + USUAL_REFUSALS);
        if let Some(accepted) = self.below_limit.take() {
            self.growth = libm::sqrt(self.growth).max(GROWTH_MIN);
            self.rest = if self.growth > GROWTH_MIN { 0 } else { REST_BLOCKS };
            self.pace = accepted / (1.0 - share.min(SHARES.end));
            if self.pace < self.pace_min {
                return self.end(1.0, true);
            }
            self.begin_block(share, GROWTH_MIN, next);
            return if as_usual { BlockVerdict::Usual } else { BlockVerdict::Unusual };
        }
        if differs {
            let accepted = 1.0 - refused / calls;
            self.below_limit = Some(self.pace * accepted);
            // A group that waited says little about the pace.
            self.pace = self.pace.min(went.max(self.pace_min)) * accepted * BELOW_LIMIT;
            self.begin_block(usual, 1.0, next);
            return BlockVerdict::Unusual;
        }
        self.rest = self.rest.saturating_sub(u32::from(as_usual));
        let grows = as_usual && self.rest == 0 && paced;
        self.pace = if grows { (self.pace * self.growth).min(RATE_MAX) } else { self.pace };
        self.begin_block(share, self.growth, next);
        if as_usual { BlockVerdict::Usual } else { BlockVerdict::Unusual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(i: u64) -> Mono {
        Mono::from_millis(i)
    }

    fn answered(refusals: &mut RandomRefusals, seq: u64, refused: bool) {
        refusals.returned(seq);
        refusals.count(seq, at(seq), refused);
    }

    /// A lane falls from 200 to 130, 80 and 50 calls a second while a fifth of its calls is refused.
    fn falls(refusals: &mut RandomRefusals) -> bool {
        [200.0, 130.0, 80.0, 50.0].into_iter().any(|pace| {
            (0..100).for_each(|i| answered(refusals, i, i % 5 == 0));
            refusals.recognise(pace, 0)
        })
    }

    /// Calls of which every `nth` is refused, until the group says something new.
    fn judged(refusals: &mut RandomRefusals, nth: u64) -> BlockVerdict {
        (0..1000)
            .map(|i| {
                answered(refusals, refusals.from + i % u64::from(GROUP_CALLS), i % nth == nth - 1);
                refusals.judge(0, 64, true)
            })
            .find(|verdict| *verdict != BlockVerdict::Nothing)
            .unwrap_or(BlockVerdict::Nothing)
    }

    #[test]
    fn the_pace_grows_while_the_share_is_as_usual() {
        let mut refusals = RandomRefusals::NEW;
        assert!(falls(&mut refusals) && refusals.is_known());
        assert_eq!(refusals.pace(), 200.0, "where the fall began");
        assert_eq!(judged(&mut refusals, 5), BlockVerdict::Usual);
        assert_eq!(refusals.pace(), 300.0);
        assert_eq!(judged(&mut refusals, 5), BlockVerdict::Usual);
        assert_eq!(refusals.pace(), 450.0);
        let over = (0..20).any(|_| judged(&mut refusals, 1000) == BlockVerdict::Over);
        assert!(over && !refusals.is_known() && refusals.mistakes == 0, "no refusals any more");
    }

    #[test]
    fn a_limit_beside_random_refusals_is_found_and_kept() {
        let mut refusals = RandomRefusals::NEW;
        assert!(falls(&mut refusals));
        assert_eq!(judged(&mut refusals, 2), BlockVerdict::Unusual);
        let below = refusals.pace();
        assert!(refusals.below_limit.is_some() && (80.0..90.0).contains(&below), "{below}");
        assert_eq!(judged(&mut refusals, 5), BlockVerdict::Usual);
        let at = refusals.pace();
        assert!(refusals.is_known() && (115.0..135.0).contains(&at), "{at}");
    }

    #[test]
    fn refusals_that_are_gone_below_a_limit_were_those_of_the_limit() {
        let mut refusals = RandomRefusals::NEW;
        for _ in 0..MISTAKES_MAX {
            assert!(falls(&mut refusals));
            assert_eq!(judged(&mut refusals, 2), BlockVerdict::Unusual);
            assert_eq!(judged(&mut refusals, 1000), BlockVerdict::Over);
        }
        assert!(!falls(&mut refusals), "never taken for random again");
    }

    #[test]
    fn refusals_that_come_back_first_are_judged_with_what_is_still_out() {
        let mut refusals = RandomRefusals::NEW;
        assert!(falls(&mut refusals));
        // A fifth of a group is refused at once, and the rest is accepted later.
        let group = u64::from(GROUP_CALLS);
        for i in (0..group).step_by(5) {
            answered(&mut refusals, i, true);
            assert_eq!(refusals.judge(group, 64, true), BlockVerdict::Nothing, "{i}");
        }
        (0..group).filter(|i| i % 5 != 0).for_each(|i| answered(&mut refusals, i, false));
        let _ = refusals.judge(group, 64, true);
        assert!(refusals.test.odds < 0.0 || refusals.pace() > 200.0, "{refusals:?}");
    }

    #[test]
    fn a_group_does_not_wait_for_calls_that_count_for_nothing() {
        let mut refusals = RandomRefusals::NEW;
        assert!(falls(&mut refusals));
        let group = u64::from(GROUP_CALLS);
        (0..4).for_each(|i| refusals.returned(i));
        (4..group).for_each(|i| answered(&mut refusals, i, i % 5 == 0));
        assert_eq!((refusals.judge(group, 64, true), refusals.from), (BlockVerdict::Usual, group));
        // One that never comes back is waited for, but not for ever.
        (group..2 * group - 1).for_each(|i| answered(&mut refusals, i, i % 5 == 0));
        assert_eq!((refusals.judge(2 * group, 64, true), refusals.from), (BlockVerdict::Nothing, group));
        answered(&mut refusals, group + STRAGGLER_CALLS + 1, false);
        let _ = refusals.judge(2000, 64, true);
        assert_eq!(refusals.from, 2000);
    }

    #[test]
    fn so_many_refusals_in_a_row_that_they_cannot_be_random_are_no_noise() {
        let mut refusals = RandomRefusals::NEW;
        assert!(falls(&mut refusals));
        (0..7).for_each(|i| answered(&mut refusals, i, true));
        assert_eq!(refusals.judge(7, 0, true), BlockVerdict::Nothing);
        answered(&mut refusals, 7, true);
        assert_eq!(refusals.judge(8, 8, true), BlockVerdict::Nothing, "what is out may still be accepted");
        assert_eq!(refusals.judge(8, 7, true), BlockVerdict::Over);
        assert_eq!(refusals.pace(), 200.0 * MISTAKE_SHARE);
    }

    #[test]
    fn most_calls_refused_is_no_noise() {
        let mut refusals = RandomRefusals::NEW;
        assert!(falls(&mut refusals));
        (0..200).for_each(|i| answered(&mut refusals, i, i % 5 != 0));
        assert_eq!(refusals.judge(0, 64, true), BlockVerdict::Over);
        assert!(!refusals.is_known() && refusals.pace() == 200.0 * MISTAKE_SHARE);
    }
}
