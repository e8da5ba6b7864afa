//! The server's own counter, mirrored from its headers.
//!
//! Each answer says how many calls were left after it. What is left, less what was sent since, may
//! go at once. When nothing is left:
//!
//! - if the whole quota was spent, it comes back when the server said, or one window after it
//!   began to be spent, whichever is earlier: one call then asks, and its answer tells how much
//!   came back. So a window is spent as soon as it opens, whether it is fixed or slides, and no
//!   boundary need be known better than the server tells it, because the next one comes a whole
//!   window later;
//! - if it was not, the quota is a bucket smaller than its policy, or shared: then calls go at the
//!   rate of the policy or, where no window is told, at the slope of what the server has granted.
//!   That is the calls accepted so far plus those left; it grows with time and nothing else. A
//!   slope that is too small does no harm: what it leaves shows up as calls left and is spent.
//!
//! Headers lie, count only some calls, or are shared with other clients. When refusals come where
//! calls should be left, the meter is given up and the refusals themselves are the measure.

use super::learn::secs;
use crate::hint::Quota;
use crate::time::{Mono, seconds};

/// Calls granted that a slope must rest on.
const GRANTS: f64 = 4.0;

/// When the next call may go by the meter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Left {
    /// Now.
    Now,
    /// Not before.
    At(Mono),
    /// When an answer has come.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    at: Mono,
    granted: f64,
}

/// The mirror of one quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Meter {
    limit: f64,
    window: Option<f64>,
    /// The newest call whose answer told something.
    seq: u64,
    /// What is left after all that was sent.
    left: f64,
    /// When the quota began to be spent, and how much of it has been.
    began: Mono,
    spent: f64,
    /// When the server said that it comes back.
    reset: Option<Mono>,
    granted: Point,
    /// Points behind, for the slope.
    old: Point,
    mid: Option<Point>,
    slope: Option<f64>,
    /// The last call that went without anything left.
    paced: Mono,
    calls: f64,
    misses: f64,
    /// Calls that the server counts later than it tells.
    bias: f64,
    /// Answers that told nothing.
    silent: u32,
    /// It has come back as a whole, and the length that was told then.
    whole: u32,
    length: f64,
    /// Calls spread at the end of the first quota.
    tries: u32,
}

impl Meter {
    /// A meter from the first answer that told a quota, to the call `seq`.
    pub(super) fn new(quota: &Quota, seq: u64, sent: Mono, now: Mono, granted: f64, out: f64) -> Option<Meter> {
        let (limit, left) = (quota.limit? as f64, quota.remaining? as f64);
        if limit < 1.0 {
            return None;
        }
        let point = Point { at: sent, granted };
        Some(Meter {
            limit,
            window: quota.window.map(|w| w.as_secs_f64()).filter(|w| *w > 0.0),
            seq,
            left: left - out,
            began: sent,
            spent: (limit - left).max(1.0) + out,
            reset: quota.reset.map(|r| now + r),
            granted: point,
            old: point,
            mid: None,
            slope: None,
            paced: sent,
            calls: 0.0,
            misses: 0.0,
            bias: 0.0,
            silent: 0,
            whole: 0,
            length: 0.0,
            tries: 0,
        })
    }

    /// Whether it is a meter of this quota.
    pub(super) fn is(&self, quota: &Quota) -> bool {
        quota.limit.is_some_and(|l| l as f64 == self.limit)
            && quota.window.map(|w| w.as_secs_f64()) == self.window
    }

    /// Whether it has been wrong too often: a counter that is mirrored well brings no refusal.
    pub(super) fn lies(&self) -> bool {
        self.misses > 6.0 + 0.004 * self.calls
    }

    /// Calls per second, as far as they are known.
    pub(super) fn rate(&self) -> Option<f64> {
        self.slope.or(self.window.map(|w| self.limit / w))
    }

    /// An answer told the quota. `granted` are the calls accepted up to this one and those left;
    /// `out` calls are out.
    pub(super) fn told(&mut self, quota: &Quota, seq: u64, sent: Mono, now: Mono, granted: f64, out: f64, next: u64) {
        let Some(left) = quota.remaining.map(|r| r as f64) else { return };
        self.silent = 0;
        if seq < self.seq {
            return;
        }
        self.seq = seq;
        let since = next.saturating_sub(seq + 1) as f64;
        self.left = left - self.bias - since.max(out);
        self.reset = quota.reset.map(|r| now + r);
        let grown = granted - self.granted.granted;
        if grown > 0.5 && left + 1.0 >= 0.8 * self.limit && left >= 2.0 {
            // It came back as a whole: a new window, or a bucket that was left to fill.
            (self.began, self.spent) = (sent, self.limit - left);
            let point = Point { at: sent, granted };
            (self.old, self.mid, self.granted) = (point, None, point);
                self.learn(quota);
            return;
        }
        if grown > 0.5 {
            self.granted = Point { at: sent, granted };
            self.measure(out);
        }
    }

    /// The time to the reset that is told right after a whole return is the window, if it is told twice
    /// and in whole seconds.
    fn learn(&mut self, quota: &Quota) {
        self.whole += 1;
        let Some(told) = quota.reset.map(|r| r.as_secs_f64()) else { return };
        let exact = told >= 1.0 && told - libm::floor(told) == 0.0;
        if self.window.is_none() && exact && told == self.length {
            self.window = Some(told);
        }
        self.length = told;
    }

    fn measure(&mut self, out: f64) {
        let span = secs(self.old.at, self.granted.at);
        // Calls that are out may overtake each other.
        let grants = self.granted.granted - self.old.granted;
        if span > 0.0 && grants >= GRANTS + 0.5 * out {
            self.slope = Some((grants - 1.0) / span);
        }
        match self.mid {
            None if grants >= 200.0 => self.mid = Some(self.granted),
            Some(mid) if self.granted.granted - mid.granted >= 200.0 => {
                (self.old, self.mid) = (mid, Some(self.granted));
            }
            _ => {}
        }
    }

    /// When a call may go, with `out` calls out.
    pub(super) fn ready(&self, now: Mono, out: u32) -> Left {
        if self.silent < 3 && self.left >= 1.0 {
            let puzzling = self.window.is_none() && self.slope.is_none() && self.whole == 0;
            if !puzzling || self.left > (0.5 * self.limit).min(8.0) {
                return Left::Now;
            }
            // The last calls are spread, to see whether the quota grows meanwhile.
            let at = self.paced + seconds(0.01 * f64::from(1u32 << self.tries.min(8)));
            return match () {
                () if out > 0 => Left::Unknown,
                () if now < at => Left::At(at),
                () => Left::Now,
            };
        }
        let whole = self.silent < 3 && self.spent + 0.5 >= self.limit && !self.drips();
        if whole {
            let after = self.window.map(|w| self.began + seconds(w * 1.0005));
            let at = match (after, self.reset) {
                (Some(a), Some(b)) => a.min(b),
                (a, b) => a.or(b).unwrap_or(now),
            };
            return match () {
                () if now < at => Left::At(at),
                () if out > 0 => Left::Unknown,
                () => Left::Now,
            };
        }
        match self.rate() {
            Some(rate) => {
                let at = self.paced + seconds(1.0 / (rate * 0.999));
                if now >= at { Left::Now } else { Left::At(at) }
            }
            None if out > 0 => Left::Unknown,
            None => Left::Now,
        }
    }

    /// Whether the quota comes back call by call.
    fn drips(&self) -> bool {
        self.window.is_none() && self.slope.is_some()
    }

    /// A call goes.
    pub(super) fn sent(&mut self, now: Mono) {
        self.calls += 1.0;
        if self.left >= 1.0 {
            self.tries += u32::from(self.left <= (0.5 * self.limit).min(8.0));
            (self.paced, self.spent) = (now, self.spent + 1.0);
        } else if self.spent + 0.5 >= self.limit && !self.drips() {
            (self.paced, self.began, self.spent) = (now, now, 1.0);
        } else {
            // A late call may be caught up, but only one.
            let gap = seconds(self.rate().map_or(0.0, |r| 1.0 / r));
            self.paced = (self.paced + gap).max(now.back(gap)).min(now);
            self.spent += 1.0;
        }
        self.left -= 1.0;
    }

    /// A call was refused although something should have been left.
    pub(super) fn missed(&mut self, now: Mono) {
        self.misses += 1.0;
        if self.bias < 1.0 && self.misses >= 2.0 {
            self.bias += 1.0;
        }
        self.left = self.left.min(0.0);
        if self.window.is_some() && self.reset.is_some_and(|r| r > now) {
            self.spent = self.spent.max(self.limit);
        }
        if let Some(slope) = &mut self.slope {
            *slope *= 0.98;
        }
        self.paced = now;
    }

    /// An accepted call's answer told nothing.
    pub(super) fn silent(&mut self) {
        self.silent = self.silent.saturating_add(1);
    }
}
