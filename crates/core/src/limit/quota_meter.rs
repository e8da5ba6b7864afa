//! The server's own counter, mirrored from its headers.
//!
//! Each answer says how many calls were left after it. What is left, less what was sent since, may
//! go at once. When nothing is left:
//!
//! - if the whole quota was spent, it comes back when the server said, or one window after it
//!   began to be spent, whichever is earlier: one call then asks, and its answer tells how much
//!   came back. So a window is spent as soon as it opens, whether it is fixed or slides, and no
//!   boundary need be known better than the server tells it, because the next one comes a whole
//!   window later. Where the lane's own log has told the same (`quota_window`), nobody asks any more;
//! - if it was not, the quota is a bucket smaller than its policy, or shared: then calls go at the
//!   rate of the policy or, where no window is told, at the slope of what the server has granted.
//!   That is the calls accepted so far plus those left; it grows with time and nothing else. A
//!   slope that is too small does no harm: what it leaves shows up as calls left and is spent.
//!
//! Headers lie, count only some calls, are shared with other clients, or speak too coarsely (`reset_history`).
//! When refusals come where calls should be left, or the quota comes back faster than it is told, the
//! meter is given up and the refusals themselves are the measure.

use super::quota_window::Window;
use super::rate_estimate::secs;
use super::reset_history::Back;
use crate::hint::Quota;
use crate::time::{Mono, seconds};
use core::time::Duration;

/// Calls granted that a slope must rest on.
const GRANTS: f64 = 4.0;

/// By so many seconds a call may arrive sooner or later than it was meant to.
const JITTER: f64 = 0.01;

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

/// Where the lane stands when an answer comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stand {
    /// When the call was sent, and now.
    pub(super) sent: Mono,
    pub(super) now: Mono,
    /// Calls that the server has accepted up to and with this one, as far as that is sure: calls that
    /// are out together overtake each other.
    pub(super) accepted: f64,
    /// Calls out, and those that were when it was sent.
    pub(super) out: f64,
    pub(super) others: f64,
}

/// The mirror of one quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Meter {
    limit: f64,
    window: Window,
    /// The first answer told a whole quota.
    full: bool,
    /// When the quota began to be spent, and how much of it has been.
    began: Mono,
    spent: f64,
    /// When it began to be spent the time before.
    before: Mono,
    /// When the server said that it comes back, in the newest answer.
    reset: Option<Mono>,
    told: Mono,
    /// A call asks whether it has come back.
    asks: bool,
    /// What the server has granted since the start: calls accepted and left.
    granted: Point,
    /// Points behind, for the slope.
    old: Point,
    mid: Option<Point>,
    slope: Option<f64>,
    /// It comes back in steps: there is no slope.
    stepped: bool,
    /// Nothing goes faster than this share of the rate.
    ease: f64,
    /// The most that was ever left: a bucket may be much smaller than its policy.
    most: f64,
    /// The share of the quota that the last answer left, beyond what is kept; of a told window nothing.
    spare: f64,
    /// The last call that went without anything left.
    paced: Mono,
    calls: f64,
    misses: f64,
    /// Refusals since calls were last left.
    refusals: u32,
    /// Answers that told nothing, and that told other quotas.
    silent: u32,
    others: u32,
    back: Back,
    /// It has just come back as a whole.
    fresh: bool,
    /// Calls spread at the end of the first quota.
    tries: u32,
}

impl Meter {
    /// A meter from the first answer that told a quota.
    pub(super) fn new(quota: &Quota, stand: &Stand) -> Option<Meter> {
        let limit = quota.limit? as f64;
        // A policy without a counter is a rate.
        let silent = if quota.remaining.is_some() { 0 } else { quota.window.map(|_| u32::MAX)? };
        let left = quota.remaining.unwrap_or(0) as f64;
        // A quota of one or two tells nothing between its calls.
        if limit < 1.0 || (limit < 3.0 && quota.window.is_none()) {
            return None;
        }
        let point = Point { at: stand.sent, granted: stand.accepted + left };
        Some(Meter {
            limit,
            window: Window::new(
                quota.window.map(|w| w.as_secs_f64()),
                stand.sent,
                stand.accepted + stand.out,
                point.granted,
                secs(stand.sent, stand.now),
            ),
            full: left + 1.0 + stand.out >= limit,
            began: stand.sent,
            before: stand.sent,
            spent: if left < 1.0 && quota.reset.is_some_and(|r| r.as_secs_f64() > 1.0) {
                limit
            } else {
                1.0 + stand.out
            },
            reset: wait(quota, stand.now),
            told: stand.sent,
            asks: false,
            granted: point,
            old: point,
            mid: None,
            slope: None,
            stepped: false,
            ease: 0.999,
            most: left,
            spare: 0.0,
            paced: stand.sent,
            calls: 0.0,
            misses: 0.0,
            refusals: 0,
            silent,
            others: 0,
            back: Back::new(stand.sent),
            fresh: false,
            tries: 0,
        })
    }

    /// Whether it is a meter of this quota.
    pub(super) fn is(&self, quota: &Quota) -> bool {
        let same = quota.window.is_none() || quota.window.map(|w| w.as_secs_f64()) == self.window.told();
        same && quota.limit.is_some_and(|l| l as f64 == self.limit)
    }

    /// Whether it is no measure: it comes back too fast, or has been wrong too often. A counter that is
    /// mirrored well brings no refusal.
    pub(super) fn lies(&self) -> bool {
        self.back.is_hasty() || self.misses > 6.0 + 0.004 * self.calls
    }

    /// Calls per second, as far as they are known.
    pub(super) fn rate(&self) -> Option<f64> {
        self.window.length().map(|w| self.limit / w).or_else(|| self.slope())
    }

    /// Calls per second that it has let through at least.
    pub(super) fn least_rate(&self) -> Option<f64> {
        self.rate().or_else(|| self.back.every().map(|every| self.limit / every))
    }

    /// An answer told the quota.
    pub(super) fn told(&mut self, quota: &Quota, stand: &Stand) {
        self.others = 0;
        let Some(left) = quota.remaining.map(|r| r as f64) else { return };
        let (asked, old, way) = (self.asks, self.reset, secs(stand.sent, stand.now));
        (self.silent, self.asks) = (0, false);
        self.most = self.most.max(left);
        if stand.sent >= self.told {
            (self.told, self.reset) = (stand.sent, wait(quota, stand.now));
            if self.window.told().is_none() {
                self.spare = ((left - self.margin() - 1.0) / self.limit).max(0.0);
            }
        }
        if let Some(reset) = quota.reset {
            if self.back.times() == 0 && self.full {
                self.window.first(secs(self.began, stand.sent + reset));
            } else if self.fresh && stand.sent > self.began {
                self.fresh = false;
                self.window.infer(secs(self.began, stand.now + reset), way);
            }
        }
        let point = Point { at: stand.sent, granted: stand.accepted + left };
        let grown = point.granted - self.granted.granted;
        if left >= 1.0 || grown > 0.5 {
            self.refusals = 0;
        }
        if grown <= 0.5 {
            return;
        }
        let whole = grown >= 0.5 * self.limit && left >= 2.0;
        if whole {
            self.returned(quota, left, stand, way);
        }
        if asked && self.back.times() == 0 && self.window.length().is_none() {
            self.window.slid(old.zip(self.reset).map_or(f64::INFINITY, |(a, b)| secs(a, b)), way);
        }
        if self.window.told().is_none() || !self.is_steady() {
            self.window.check(stand, left, whole, self.size());
        }
        self.granted = point;
        if whole {
            // A new window, or a bucket that was left to fill.
            (self.began, self.spent) = (stand.sent, 1.0);
            (self.old, self.mid) = (point, None);
        } else if left + 1.0 >= self.limit {
            // A full quota earns nothing: the slope begins anew, and was too small.
            (self.old, self.mid) = (point, None);
            self.slope = self.slope.map(|s| s * 1.005);
            if self.puzzles() && grown >= 0.3 * self.limit {
                self.back.filled();
            }
        } else {
            self.measure(stand.out);
        }
    }

    /// It came back as a whole.
    fn returned(&mut self, quota: &Quota, left: f64, stand: &Stand, way: f64) {
        self.fresh = left + 1.0 >= self.limit;
        self.window.returned(secs(self.before, stand.sent), self.fresh, way);
        // Some headers tell waits in milliseconds: those are right.
        let fine = quota.reset.is_some() && quota.reset_step < Duration::from_secs(1);
        let untold = self.window.told().is_none() && !fine;
        let second = quota.reset.is_some_and(|reset| reset.as_secs_f64() <= 1.0);
        self.back.returned(stand.sent, untold && second, untold && self.slope().is_none());
    }

    /// Calls that may go at once: a bucket may be smaller than its policy.
    fn size(&self) -> f64 {
        self.limit.min(self.most + 1.0)
    }

    /// The slope, if it is one: a bucket is full again when it says so, a window lets only a few go before.
    fn slope(&self) -> Option<f64> {
        let full = self.reset.map_or(0.0, |reset| secs(self.told, reset) - 1.0);
        self.slope.filter(|slope| !self.stepped && (full < 1.0 || slope * full < 3.0 * self.limit))
    }

    fn measure(&mut self, out: f64) {
        let span = secs(self.old.at, self.granted.at);
        let grants = self.granted.granted - self.old.granted;
        if span > 0.0 && grants >= GRANTS + 0.25 * out {
            // Rather too small: what it leaves shows up as calls left and is spent.
            let sure = if grants < 200.0 { 0.97 } else { 1.0 };
            self.slope = Some((sure * grants - 1.0) / span);
        }
        match self.mid {
            None if grants >= 200.0 => self.mid = Some(self.granted),
            Some(mid) if self.granted.granted - mid.granted >= 200.0 => {
                (self.old, self.mid) = (mid, Some(self.granted));
            }
            _ => {}
        }
    }

    /// When a call may go, with so many committed and so many out.
    pub(super) fn ready(&self, now: Mono, committed: f64, out: u32) -> Left {
        let left = self.granted.granted - committed;
        if self.silent < 3 && left >= 1.0 + self.margin() {
            if !self.puzzles() || left > self.reserve() {
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
        if self.asks && out > 0 {
            return Left::Unknown;
        }
        let free = self.window.free(committed, self.size());
        if free.is_some_and(|at| now >= at) && (out == 0 || !self.window.asks(self.paced, now)) {
            return Left::Now;
        }
        if free.is_some() || self.is_spent() {
            let after = self.window.due().map(|w| self.began + seconds(w));
            let told = self.reset.and_then(|reset| {
                let wait = secs(self.told, reset);
                match () {
                    () if wait > 1.5 => Some(reset),
                    // The log knows better.
                    () if free.is_some() => None,
                    () => Some(self.told + seconds(wait * self.back.share())),
                }
            });
            let at = match (free.or(after), told) {
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
                let at = self.paced + seconds(1.0 / (rate * self.hurry()));
                if now >= at { Left::Now } else { Left::At(at) }
            }
            None if out > 0 => Left::Unknown,
            None => Left::Now,
        }
    }

    /// By how much faster than the rate calls go: what the last answer left unused is to be spent.
    fn hurry(&self) -> f64 {
        self.ease * (1.0 + 0.3 * self.spare)
    }

    /// Whether the quota was spent, and comes back as a whole.
    fn is_spent(&self) -> bool {
        self.silent < 3 && self.spent >= 0.955 * self.limit && !self.is_steady()
    }

    /// Whether the quota comes back call by call, as that of a bucket does.
    fn is_steady(&self) -> bool {
        match self.window.told() {
            None => !self.window.is_trusted() && self.slope().is_some(),
            // A bucket is never told as a quota of many seconds.
            Some(window) => window < 5.0 && self.most + 1.0 < 0.9 * self.limit,
        }
    }

    /// Whether it is not known yet how the quota comes back.
    fn puzzles(&self) -> bool {
        self.window.told().is_none() && self.slope().is_none() && self.back.times() == 0
    }

    /// Calls that a bucket keeps, because calls do not arrive as evenly as they are sent. They cost
    /// nothing: a bucket earns as much with a few left as with none.
    fn margin(&self) -> f64 {
        let kept = self.rate().map_or(0.0, |rate| (JITTER * rate).min(0.2 * self.most));
        if self.is_steady() && kept >= 1.0 { kept } else { 0.0 }
    }

    fn reserve(&self) -> f64 {
        (0.5 * self.limit).min(8.0)
    }

    /// A call goes, with so many committed before. True if it goes by the rate, one after the other.
    pub(super) fn sent(&mut self, now: Mono, committed: f64) -> bool {
        self.calls += 1.0;
        if self.window.told().is_some_and(|w| secs(self.began, now) > w) && !self.is_spent() {
            (self.began, self.spent) = (now, 0.0);
        }
        let left = self.granted.granted - committed;
        if left >= 1.0 + self.margin() {
            self.window.sent(now, committed);
            self.tries += u32::from(left <= self.reserve());
            (self.paced, self.spent) = (now, self.spent + 1.0);
            return false;
        }
        let free = self.window.free(committed, self.size());
        self.window.sent(now, committed);
        if free.is_some_and(|at| now >= at) && !self.window.asks(self.paced, now) {
            self.paced = now;
            self.window.relied();
            false
        } else if free.is_some() || self.is_spent() {
            self.before = self.began;
            (self.paced, self.began, self.spent, self.asks) = (now, now, 1.0, true);
            false
        } else {
            // A late call may be caught up, but only one.
            let gap = seconds(self.rate().map_or(0.0, |r| 1.0 / (r * self.hurry())));
            self.paced = (self.paced + gap).max(now.back(gap)).min(now);
            // A quota that is used evenly comes back evenly, and is never spent.
            self.spent += 0.93;
            true
        }
    }

    /// A call was refused although something should have been left.
    pub(super) fn missed(&mut self, now: Mono, sent: Mono, committed: f64) {
        self.misses += 1.0;
        self.refusals += 1;
        if self.window.is_trusted() {
            self.spent = self.limit;
        }
        self.window.refused(sent);
        if self.asks && self.window.is_longer(secs(self.before, self.paced)) {
            (self.began, self.spent, self.asks) = (self.before, self.limit, false);
            return;
        }
        self.granted.granted = self.granted.granted.min(committed);
        self.paced = now;
        if !self.asks || !self.back.too_soon() {
            self.ease *= 0.998;
        }
        let whole = self.window.told().is_none_or(|w| w >= 5.0) || self.most >= 0.5 * self.limit;
        if whole && (self.refusals > 2 || self.spent >= 0.9 * self.limit) {
            self.spent = self.limit;
        }
        // A bucket accepts every now and then.
        if self.refusals > 3 {
            (self.stepped, self.spent) = (true, self.limit);
        }
        self.asks = false;
        if let Some(slope) = &mut self.slope {
            *slope *= 0.99;
        }
    }

    /// Another quota may be spent without being told.
    pub(super) const fn beware(&mut self) {
        self.window.beware();
    }

    /// An answer told quotas, but not this one. True if it is not told any more.
    pub(super) fn other(&mut self) -> bool {
        self.others += 1;
        self.others > 20
    }

    /// An accepted call's answer told nothing.
    pub(super) fn silent(&mut self) {
        self.silent = self.silent.saturating_add(1);
    }
}

/// When the quota comes back. A wait of nothing tells nothing.
fn wait(quota: &Quota, now: Mono) -> Option<Mono> {
    quota.reset.filter(|r| !r.is_zero()).map(|r| now + r)
}
