//! Refusals that have nothing to do with the rate.
//!
//! Some servers refuse a share of all calls whatever their number: a busy backend, an overloaded
//! node behind a balancer, errors that merely say "rate limited". To slow down does not help, and
//! a lane that slows down after each refusal ends at a standstill. The sign is that the pace has
//! fallen by a third and the share of refusals has not. Then the pace goes back to where it was,
//! and from there it is judged by blocks of calls: a block with no more than the usual share of
//! refusals is clean and the pace may grow; a block with clearly more has found a real limit.

/// Refusals that make a share.
const REFUSALS: u32 = 6;
/// A share below this does little harm, a share above is more likely a limit than noise.
const SHARES: core::ops::Range<f64> = 0.02..0.35;
/// Of the last fifty calls or so, more than this share refused is no noise.
const LOUD: f64 = 0.65;
/// So often a limit is taken for noise, and not again.
const WRONG: u32 = 2;
/// Calls after which a stretch at one pace is closed.
const CALLS_MAX: u32 = 2000;

/// What a block of calls says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Not over yet.
    Open,
    /// As usual: the pace may be multiplied by this.
    Clean(f64),
    /// Clearly more than usual: so much of the pace got through.
    Limit(f64),
    /// No refusals any more.
    Gone,
    /// It was a limit after all: so much of the pace got through.
    Wrong(f64),
}

/// Calls at one pace, more or less.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    pace: f64,
    calls: u32,
    refused: u32,
}

impl Stretch {
    const NEW: Stretch = Stretch { pace: 0.0, calls: 0, refused: 0 };

    fn share(&self) -> Option<f64> {
        (self.refused >= REFUSALS).then(|| f64::from(self.refused) / f64::from(self.calls.max(1)))
    }
}

/// Counts calls and refusals, first to recognise noise and then to judge by it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Noise {
    before: Stretch,
    now: Stretch,
    /// The pace at which the fall began.
    peak: f64,
    share: Option<f64>,
    rest: u32,
    quiet: u32,
    growth: f64,
    /// The share of refusals among the last fifty calls or so.
    loud: f64,
    /// How often a limit was taken for noise.
    wrong: u32,
}

impl Noise {
    pub(super) const NEW: Noise = Noise {
        before: Stretch::NEW,
        now: Stretch::NEW,
        peak: 0.0,
        share: None,
        rest: 0,
        quiet: 0,
        growth: 1.5,
        loud: 0.0,
        wrong: 0,
    };

    /// Whether refusals are known to be noise.
    pub(super) const fn is_known(&self) -> bool {
        self.share.is_some()
    }

    /// Counts a call.
    pub(super) fn count(&mut self, refused: bool) {
        self.now.calls = self.now.calls.saturating_add(1);
        self.now.refused += u32::from(refused);
        self.loud += 0.02 * (f64::from(u8::from(refused)) - self.loud);
    }

    /// The pace is this now. Where to go back to, if refusals have nothing to do with it.
    pub(super) fn recognise(&mut self, pace: f64) -> Option<f64> {
        if self.share.is_some() || !pace.is_finite() {
            return None;
        }
        let fell = pace < 0.7 * self.now.pace;
        if !fell && pace < 1.4 * self.now.pace && self.now.calls < CALLS_MAX {
            return None;
        }
        let (before, now) = (self.before.share(), self.now.share());
        let falling = self.now.pace < 0.8 * self.before.pace;
        self.peak = if falling { self.peak } else { self.now.pace };
        if let (Some(before), Some(now)) = (before, now)
            && falling
            && fell
            && now > 0.6 * before
            && SHARES.contains(&now)
            && self.wrong < WRONG
        {
            (self.share, self.rest, self.quiet, self.growth, self.loud) = (Some(now), 0, 0, 1.5, now);
            (self.before, self.now) = (Stretch::NEW, Stretch::NEW);
            return Some(self.peak);
        }
        (self.before, self.now) = (self.now, Stretch { pace, ..Stretch::NEW });
        None
    }

    /// Judges the block when it is over.
    pub(super) fn judge(&mut self) -> Verdict {
        let Some(share) = self.share else { return Verdict::Open };
        let (calls, refused) = (f64::from(self.now.calls), f64::from(self.now.refused));
        let usual = share * calls;
        if self.loud > LOUD {
            // No noise is as loud as that.
            (self.share, self.now) = (None, Stretch::NEW);
            self.wrong = self.wrong.saturating_add(1);
            return Verdict::Wrong(0.3);
        }
        if refused > 2.0 * usual + 6.0 {
            self.now = Stretch::NEW;
            (self.rest, self.growth) = (10, 1.1);
            return Verdict::Limit((1.0 - refused / calls + share).min(0.98));
        }
        if usual < 8.0 {
            return Verdict::Open;
        }
        self.now = Stretch::NEW;
        self.share = Some((share + (refused / calls - share) * 0.2).min(SHARES.end));
        self.quiet = if refused == 0.0 { self.quiet + 1 } else { 0 };
        self.rest = self.rest.saturating_sub(1);
        if self.quiet >= 2 {
            self.share = None;
            return Verdict::Gone;
        }
        Verdict::Clean(if self.rest == 0 { self.growth } else { 1.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lane falls from 200 to 140 and then 90 calls a second while a fifth of its calls is refused.
    fn falls(noise: &mut Noise) -> Option<f64> {
        let mut at = |pace: f64| {
            for i in 0..100 {
                noise.count(i % 5 == 0);
            }
            noise.recognise(pace)
        };
        at(200.0).or_else(|| at(130.0)).or_else(|| at(80.0)).or_else(|| at(50.0))
    }

    #[test]
    fn most_calls_refused_is_no_noise_and_then_never_taken_for_it_again() {
        let mut noise = Noise::NEW;
        for _ in 0..WRONG {
            assert!(falls(&mut noise).is_some() && noise.is_known());
            (0..200).for_each(|i| noise.count(i % 5 != 0));
            assert_eq!(noise.judge(), Verdict::Wrong(0.3));
            assert!(!noise.is_known());
        }
        assert_eq!(falls(&mut noise), None);
    }
}
