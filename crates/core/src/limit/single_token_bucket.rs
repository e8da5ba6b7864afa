//! A bucket of one token.
//!
//! It refuses whatever comes a hair sooner than a whole interval after the last call, and keeps
//! nothing for later: a pace above its rate loses every second call, and the openings after its
//! refusals say nothing. It shows itself by never accepting two calls as close together as some
//! that it refused. Then the interval itself is sought: wider after a refusal, closer after a clean
//! run, in steps that halve at each turn down to a few thousandths. From there on a long clean run is
//! needed for a small step closer.

use super::rate_estimate::secs;
use crate::time::Mono;

/// The smallest step by which the interval is widened.
const FINE: f64 = 0.004;

/// Calls remembered to find the one before and the one after.
const RECENT: usize = 8;
/// Pairs of either kind that are proof enough.
const PAIRS: u32 = 4;

/// How close together calls were accepted and refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gaps {
    recent: [(u64, Mono, bool); RECENT],
    next: usize,
    /// The least gap between two accepted calls, and how many there were.
    least: f64,
    accepted: u32,
    /// Refusals less than that gap after an accepted call, and others.
    closer: u32,
    wider: u32,
}

impl Gaps {
    pub(super) const NEW: Gaps = Gaps {
        recent: [(u64::MAX, Mono::ZERO, false); RECENT],
        next: 0,
        least: f64::INFINITY,
        accepted: 0,
        closer: 0,
        wider: 0,
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

    fn pair(&mut self, gap: f64, accepted: bool) {
        if accepted {
            if gap < 0.8 * self.least {
                (self.closer, self.wider) = (0, 0);
            }
            self.least = self.least.min(gap);
            self.accepted = self.accepted.saturating_add(1);
        } else if gap < 1.05 * self.least {
            self.closer += u32::from(gap > 0.3 * self.least);
        } else {
            self.wider += 1;
        }
    }

    /// The least gap, if the server is a bucket of one token.
    pub(super) fn tight(&self) -> Option<f64> {
        let proof = self.accepted >= PAIRS && self.closer >= PAIRS;
        (proof && self.wider * 3 <= self.closer).then_some(self.least)
    }
}

/// The search for the interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tight {
    gap: f64,
    step: f64,
    clean: u32,
    /// Refusals in a row with hardly a call between them.
    hard: u32,
    /// Long clean runs in a row.
    easy: u32,
    /// The first call that went at this interval.
    since: u64,
}

impl Tight {
    /// Begins at a gap that was accepted.
    pub(super) fn new(gap: f64) -> Tight {
        Tight { gap: gap.max(1e-6), step: 0.1, clean: 0, hard: 0, easy: 0, since: 0 }
    }

    /// The pace.
    pub(super) fn rate(&self) -> f64 {
        1.0 / self.gap
    }

    /// A call was accepted, and `next` goes next. True if the pace has changed.
    pub(super) fn accepted(&mut self, seq: u64, next: u64) -> bool {
        if seq < self.since {
            return false;
        }
        self.clean += 1;
        let coarse = self.step > FINE;
        // Where nothing is refused for long, the limit has risen: ever sooner and ever more.
        if self.clean < if coarse { 6 } else { (120 >> (self.easy / 2).min(4)).max(8) } {
            return false;
        }
        (self.clean, self.hard) = (0, 0);
        if coarse {
            self.gap /= 1.0 + self.step;
            self.step = (self.step * 0.75).max(FINE);
        } else {
            self.gap /= 1.0 + 0.001 * f64::from(1u32 << self.easy.min(8));
            self.easy += 1;
        }
        self.since = next;
        true
    }

    /// A call was refused, and `next` goes next.
    pub(super) fn refused(&mut self, next: u64) {
        self.since = next;
        self.easy = 0;
        self.hard = if self.clean < 4 { self.hard + 1 } else { 0 };
        self.gap *= 1.0 + self.step;
        self.step = if self.hard >= 3 { (self.step * 2.0).min(0.5) } else { (self.step * 0.5).max(FINE) };
        self.clean = 0;
    }

    /// Whether wider intervals do not help: it is no bucket of one token.
    pub(super) const fn fails(&self) -> bool {
        self.hard >= 12
    }
}
