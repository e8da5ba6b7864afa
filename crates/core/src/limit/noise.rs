//! Refusals that have nothing to do with the rate.
//!
//! Some servers refuse a share of all calls whatever their number: a busy backend, an overloaded
//! node behind a balancer, errors that merely say "rate limited". To slow down does not help, and
//! a lane that slows down after each refusal ends at a standstill. The sign is that the pace falls
//! and falls and the share of refusals stays. Then the pace goes back to where it was, and from
//! there it is judged by blocks of calls: a block with no more than the usual share of refusals is
//! clean and the pace may grow; a block with clearly more has found a real limit.

/// Falls in a row, without a clean run between them, that are no coincidence.
const FALLS: u32 = 8;
/// The larger share is more likely a limit than noise.
const SHARE_MAX: f64 = 0.5;

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
}

/// Counts calls and refusals, first to recognise noise and then to judge by it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Noise {
    /// Since the last clean run.
    calls: u32,
    refused: u32,
    /// The pace before the falls, how many there were, and the calls of the first half of them.
    peak: f64,
    falls: u32,
    half: u32,
    share: Option<f64>,
    rest: u32,
    quiet: u32,
}

impl Noise {
    pub(super) const NEW: Noise = Noise { calls: 0, refused: 0, peak: 0.0, falls: 0, half: 0, share: None, rest: 0, quiet: 0 };

    /// Whether refusals are known to be noise.
    pub(super) const fn is_known(&self) -> bool {
        self.share.is_some()
    }

    /// The falls stopped: the limit is real.
    pub(super) fn settled(&mut self, pace: f64) {
        if self.share.is_none() {
            (self.calls, self.refused, self.peak, self.falls) = (0, 0, pace, 0);
        }
    }

    /// The pace fell to this. Where to go back to, if it fell so often that the refusals must be noise:
    /// at a real limit they become rarer with every fall.
    pub(super) fn fell(&mut self, pace: f64) -> Option<f64> {
        if self.peak == 0.0 {
            return None;
        }
        self.falls += 1;
        if self.falls == FALLS / 2 {
            self.half = self.calls;
        }
        if self.share.is_some() || self.falls < FALLS {
            return None;
        }
        let share = f64::from(self.refused) / f64::from(self.calls.max(1));
        let rarer = self.calls - self.half > 2 * self.half;
        let peak = self.peak;
        (self.calls, self.refused, self.rest, self.quiet, self.falls) = (0, 0, 0, 0, 0);
        if rarer || share > SHARE_MAX || pace > 0.9 * peak {
            self.peak = pace;
            return None;
        }
        self.share = Some(share);
        Some(peak)
    }

    /// Counts a call.
    pub(super) fn count(&mut self, refused: bool) {
        self.calls = self.calls.saturating_add(1);
        self.refused += u32::from(refused);
    }

    /// Judges the block when it is over.
    pub(super) fn judge(&mut self) -> Verdict {
        let Some(share) = self.share else { return Verdict::Open };
        let usual = share * f64::from(self.calls);
        let refused = f64::from(self.refused);
        if refused > 2.0 * usual + 6.0 {
            let through = 1.0 - refused / f64::from(self.calls.max(1)) + share;
            (self.calls, self.refused, self.rest) = (0, 0, 10);
            return Verdict::Limit(through.min(0.98));
        }
        if usual < 8.0 {
            return Verdict::Open;
        }
        let seen = refused / f64::from(self.calls);
        (self.calls, self.refused) = (0, 0);
        self.share = Some(share + (seen - share) * 0.2);
        self.quiet = if refused == 0.0 { self.quiet + 1 } else { 0 };
        self.rest = self.rest.saturating_sub(1);
        if self.quiet >= 2 {
            self.share = None;
            return Verdict::Gone;
        }
        Verdict::Clean(if self.rest == 0 { 1.1 } else { 1.0 })
    }
}
