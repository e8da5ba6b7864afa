//! Refusals at random: refusals that have nothing to do with the rate.
//!
//! Some servers refuse a share of all calls whatever their number: a busy backend, an overloaded
//! node behind a balancer, errors that merely say "rate limited". To slow down does not help, and
//! a lane that slows down after each refusal ends at a standstill. The sign is that the pace has
//! fallen by a third and the share of refusals has not. Then the pace goes back to where it was,
//! and from there it is judged by blocks of calls: a block with no more than the usual share of
//! refusals is clean and the pace may grow; a block with clearly more has found a real limit.

/// Refusals from which on their share is known.
const REFUSALS_MIN: u32 = 6;
/// Shares of refused calls that may be random: a lower share does little harm, a higher one is more
/// likely a limit.
const SHARES: core::ops::Range<f64> = 0.02..0.35;
/// A higher share of refusals among the last fifty calls or so, or in a block, is not random.
const RECENT_SHARE_MAX: f64 = 0.65;
/// Weight of one call in the share of refusals among the last fifty calls or so.
const RECENT_WEIGHT: f64 = 0.02;
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

/// Growth of the pace after a clean block, before and after a limit was found.
const GROWTH: f64 = 1.5;
const GROWTH_AFTER_LIMIT: f64 = 1.1;
/// Clean blocks after a limit was found before the pace grows again.
const REST_BLOCKS: u32 = 10;
/// Share of the pace that is left when the refusals turn out not to be random.
const MISTAKE_SHARE: f64 = 0.3;
/// A limit is found by this many times the usual refusals ...
const LIMIT_FACTOR: f64 = 2.0;
/// ... and this many more.
const LIMIT_REFUSALS: f64 = 6.0;
/// Share of the pace that is left at most when a limit is found.
const LIMIT_SHARE_MAX: f64 = 0.98;
/// Usual refusals that a block must have room for before it is judged.
const BLOCK_REFUSALS: f64 = 8.0;
/// Weight of a block in the usual share of refusals.
const BLOCK_WEIGHT: f64 = 0.2;
/// Blocks in a row without any refusal after which the random refusals are over.
const QUIET_BLOCKS: u32 = 2;

/// What a block of calls says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BlockVerdict {
    /// Not over yet.
    Open,
    /// As usual: the pace may be multiplied by this.
    Clean(f64),
    /// Clearly more refusals than usual: this share of the pace was accepted.
    Limit(f64),
    /// No refusals any more.
    Gone,
    /// The refusals were those of a limit: this share of the pace was accepted.
    Mistaken(f64),
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

    fn refused_share(&self) -> Option<f64> {
        (self.refused >= REFUSALS_MIN).then(|| f64::from(self.refused) / f64::from(self.calls.max(1)))
    }
}

/// Counts calls and refusals, first to recognise random refusals and then to judge by them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RandomRefusals {
    /// The last block.
    last: PaceBlock,
    /// The current block.
    current: PaceBlock,
    /// Calls per second at which the fall began.
    peak: f64,
    /// The usual share of refused calls; none while refusals are not known to be random.
    usual_share: Option<f64>,
    /// Clean blocks before the pace grows again.
    rest: u32,
    /// Blocks in a row without any refusal.
    quiet: u32,
    /// Growth of the pace after a clean block.
    growth: f64,
    /// Share of refusals among the last fifty calls or so.
    recent_share: f64,
    /// How often a limit was mistaken for random refusals.
    mistakes: u32,
}

impl RandomRefusals {
    pub(super) const NEW: RandomRefusals = RandomRefusals {
        last: PaceBlock::NEW,
        current: PaceBlock::NEW,
        peak: 0.0,
        usual_share: None,
        rest: 0,
        quiet: 0,
        growth: GROWTH,
        recent_share: 0.0,
        mistakes: 0,
    };

    /// Whether refusals are known to be random.
    pub(super) const fn is_known(&self) -> bool {
        self.usual_share.is_some()
    }

    /// Counts a call.
    pub(super) fn count(&mut self, refused: bool) {
        self.current.calls = self.current.calls.saturating_add(1);
        self.current.refused += u32::from(refused);
        self.recent_share += RECENT_WEIGHT * (f64::from(u8::from(refused)) - self.recent_share);
    }

    /// The pace is this now, in calls per second. The pace to go back to, if refusals are random.
    pub(super) fn recognise(&mut self, pace: f64) -> Option<f64> {
        if self.usual_share.is_some() || !pace.is_finite() {
            return None;
        }
        let fell = pace < PACE_FELL * self.current.pace;
        if !fell && pace < PACE_ROSE * self.current.pace && self.current.calls < BLOCK_CALLS_MAX {
            return None;
        }
        let (before, now) = (self.last.refused_share(), self.current.refused_share());
        let falling = self.current.pace < PACE_FALLING * self.last.pace;
        self.peak = if falling { self.peak } else { self.current.pace };
        if let (Some(before), Some(now)) = (before, now)
            && falling
            && fell
            && now > SHARE_UNCHANGED * before
            && SHARES.contains(&now)
            && self.mistakes < MISTAKES_MAX
        {
            (self.usual_share, self.recent_share) = (Some(now), now);
            (self.rest, self.quiet, self.growth) = (0, 0, GROWTH);
            (self.last, self.current) = (PaceBlock::NEW, PaceBlock::NEW);
            return Some(self.peak);
        }
        (self.last, self.current) = (self.current, PaceBlock { pace, ..PaceBlock::NEW });
        None
    }

    /// Judges the block when it is over.
    pub(super) fn judge(&mut self) -> BlockVerdict {
        let Some(share) = self.usual_share else { return BlockVerdict::Open };
        let (calls, refused) = (f64::from(self.current.calls), f64::from(self.current.refused));
        let usual = share * calls;
        let limit = refused > LIMIT_FACTOR * usual + LIMIT_REFUSALS;
        // A server that refuses nearly everything at once is closed, and says nothing about a share.
        let closed = limit && refused > RECENT_SHARE_MAX * calls;
        let mistaken = self.recent_share > RECENT_SHARE_MAX;
        if mistaken || closed {
            (self.usual_share, self.current) = (None, PaceBlock::NEW);
            self.mistakes = self.mistakes.saturating_add(u32::from(mistaken));
            return BlockVerdict::Mistaken(MISTAKE_SHARE);
        }
        if limit {
            self.current = PaceBlock::NEW;
            (self.rest, self.growth) = (REST_BLOCKS, GROWTH_AFTER_LIMIT);
            return BlockVerdict::Limit((1.0 - refused / calls + share).min(LIMIT_SHARE_MAX));
        }
        if usual < BLOCK_REFUSALS {
            return BlockVerdict::Open;
        }
        self.current = PaceBlock::NEW;
        self.usual_share = Some((share + (refused / calls - share) * BLOCK_WEIGHT).min(SHARES.end));
        self.quiet = if refused == 0.0 { self.quiet + 1 } else { 0 };
        self.rest = self.rest.saturating_sub(1);
        if self.quiet >= QUIET_BLOCKS {
            self.usual_share = None;
            return BlockVerdict::Gone;
        }
        BlockVerdict::Clean(if self.rest == 0 { self.growth } else { 1.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lane falls from 200 to 140 and then 90 calls a second while a fifth of its calls is refused.
    fn falls(refusals: &mut RandomRefusals) -> Option<f64> {
        let mut at = |pace: f64| {
            for i in 0..100 {
                refusals.count(i % 5 == 0);
            }
            refusals.recognise(pace)
        };
        at(200.0).or_else(|| at(130.0)).or_else(|| at(80.0)).or_else(|| at(50.0))
    }

    #[test]
    fn most_calls_refused_is_no_noise_and_then_never_taken_for_it_again() {
        let mut refusals = RandomRefusals::NEW;
        for _ in 0..MISTAKES_MAX {
            assert!(falls(&mut refusals).is_some() && refusals.is_known());
            (0..200).for_each(|i| refusals.count(i % 5 != 0));
            assert_eq!(refusals.judge(), BlockVerdict::Mistaken(0.3));
            assert!(!refusals.is_known());
        }
        assert_eq!(falls(&mut refusals), None);
    }
}
