//! The server's own counter, mirrored from its headers.
//!
//! Each answer says how many calls were left after it. What is left, less what was sent since, may
//! go at once. When nothing is left:
//!
//! - if the whole quota was spent, it is restored when the server said, or one window after it
//!   began to be spent, whichever is earlier: one call then probes, and its answer tells how much
//!   was restored. So a window is spent as soon as it opens, whether it is fixed or sliding, and no
//!   boundary need be known better than the server tells it, because the next one comes a whole
//!   window later. Where the lane's own log has told the same (`quota_window`), no probe is needed;
//! - if it was not, the quota is a bucket smaller than its policy, or shared: then calls go at the
//!   rate of the policy or, where no window is named, at the slope of what the server has granted.
//!   That is the calls accepted so far plus those left; it grows with time and nothing else. A
//!   slope that is too small does no harm: what it leaves shows up as calls left and is spent.
//!
//! Headers lie, count only some calls, are shared with other clients, or are too coarse
//! (`reset_history`). When refusals come where calls should be left, or the quota is restored faster
//! than it is told, the meter is given up and the refusals themselves are the measure.

mod ready;

use super::quota_window::QuotaWindow;
use super::rate_estimate::secs;
use super::reset_history::ResetHistory;
use crate::hint::Quota;
use crate::time::{Mono, seconds};
use core::time::Duration;

/// Smallest quota, in calls, of which a meter can be made,
const LIMIT_MIN: f64 = 1.0;
/// and without a named window: a quota of one or two tells nothing between its calls.
const LIMIT_MIN_UNNAMED: f64 = 3.0;
/// A reset of up to this many seconds may be any shorter one, rounded up.
const RESET_ROUNDED: f64 = 1.0;
/// A reset of more than this many seconds is believed as it is.
const RESET_BELIEVED: f64 = 1.5;

/// Refusals beyond which the headers are no measure: a number, and a share of the calls.
const MISSES: (f64, f64) = (6.0, 0.004);
/// Answers without the quota's headers from which on what is left is unknown.
const SILENT_ANSWERS: u32 = 3;
/// Answers with other quotas beyond which this one is not told any more.
const OTHER_ANSWERS_MAX: u32 = 20;

/// Growth of what is granted, in calls, below which nothing was restored.
const GROWN_MIN: f64 = 0.5;
/// Share of the quota that is restored at least when it is restored as a whole,
const WHOLE_SHARE: f64 = 0.5;
/// and calls that are left then at least.
const WHOLE_LEFT: f64 = 2.0;
/// Share of the quota that is restored at least when it counts as full again.
const FILLED_SHARE: f64 = 0.3;
/// A quota is spent from this share on.
const SPENT_SHARE: f64 = 0.955;
/// What a call at the rate counts as spent: a quota that is used evenly is restored evenly, and is never
/// spent.
const SPENT_PACED: f64 = 0.93;
/// After a refusal the quota counts as spent if this share was,
const SPENT_REFUSED: f64 = 0.9;
/// or after more refusals in a row than this.
const SPENT_REFUSALS: u32 = 2;
/// After more refusals in a row than this the quota is restored in steps: a bucket accepts now and then.
const STEPPED_REFUSALS: u32 = 3;
/// Shortest window, in seconds, that is never told for a bucket.
const BUCKET_WINDOW: f64 = 5.0;
/// A bucket holds less than this share of the quota that it tells.
const BUCKET_SHARE: f64 = 0.9;
/// A quota of which this share was left once is no bucket.
const WINDOW_LEFT: f64 = 0.5;

/// Granted calls that a slope must rest on, and more by this share of the calls in flight.
const SLOPE_GRANTS: (f64, f64) = (4.0, 0.25);
/// Granted calls of a well-founded slope.
const SLOPE_GRANTS_SURE: f64 = 200.0;
/// Share of an ill-founded slope that is used.
const SLOPE_SHARE: f64 = 0.97;
/// Factor of the slope when the quota was full.
const SLOPE_RISE: f64 = 1.005;
/// Factor of the slope when a call was refused.
const SLOPE_FALL: f64 = 0.99;
/// A slope fills less than this many quotas until the reset, or it is none.
const SLOPE_QUOTAS: f64 = 3.0;

/// Share of the rate that is used at first,
const EASE: f64 = 0.999;
/// and its factor with each refusal.
const EASE_FALL: f64 = 0.998;
/// How much faster than the rate calls go when all of the quota was left.
const HURRY: f64 = 0.3;
/// Seconds by which a call may arrive sooner or later than it was meant to.
const JITTER: f64 = 0.01;
/// Most of the quota that is kept for that, as a share of what was ever left.
const MARGIN_MAX: f64 = 0.2;
/// Last calls of an unknown quota that are spread: a share of it, and a number.
const RESERVE: (f64, f64) = (0.5, 8.0);
/// Seconds between the first two of them; doubles, this often.
const SPREAD_SECONDS: f64 = 0.01;
const SPREAD_DOUBLINGS: u32 = 8;

/// When the next call may go by the meter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MeterReady {
    /// Now.
    Now,
    /// Not before.
    At(Mono),
    /// When an answer has come.
    Unknown,
}

/// What the server had granted at some time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct GrantPoint {
    at: Mono,
    /// Calls accepted and left, since the start.
    granted: f64,
}

/// What the lane knows when an answer comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AnswerContext {
    /// When the call was sent.
    pub(super) sent: Mono,
    pub(super) now: Mono,
    /// Calls that the server has accepted up to and with this one, as far as that is sure: calls that
    /// are in flight together overtake each other.
    pub(super) accepted: f64,
    /// Calls in flight now.
    pub(super) in_flight: f64,
    /// Other calls in flight when it was sent.
    pub(super) in_flight_sent: f64,
}

/// The mirror of one quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct QuotaMeter {
    /// Calls per window.
    limit: f64,
    window: QuotaWindow,
    /// The first answer told a whole quota.
    started_whole: bool,
    /// When the quota began to be spent.
    window_start: Mono,
    /// Calls spent of it.
    spent: f64,
    /// When the quota before it began to be spent.
    window_start_before: Mono,
    /// When the quota is restored, by the newest answer.
    reset: Option<Mono>,
    /// When the call was sent whose answer said so.
    reset_sent: Mono,
    /// A call in flight probes whether the quota is restored.
    probing: bool,
    /// What the server has granted by the newest answer.
    granted: GrantPoint,
    /// Older points, for the slope.
    slope_from: GrantPoint,
    slope_mid: Option<GrantPoint>,
    /// Calls per second that are restored.
    slope: Option<f64>,
    /// The quota is restored in steps: there is no slope.
    stepped: bool,
    /// Share of the rate that is used.
    ease: f64,
    /// Most calls that were ever left: a bucket may be much smaller than its policy.
    left_max: f64,
    /// Share of the quota that the last answer left, beyond the margin; 0 where the window is named.
    spare: f64,
    /// When the last call went.
    last_sent: Mono,
    /// Calls so far.
    calls: f64,
    /// Calls refused although some should have been left.
    misses: f64,
    /// Refusals since calls were last left.
    refusals: u32,
    /// Answers in a row without headers.
    silent_answers: u32,
    /// Answers in a row with the headers of other quotas.
    other_answers: u32,
    resets: ResetHistory,
    /// The quota has just been restored as a whole.
    just_restored: bool,
    /// Calls spread at the end of the first quota.
    spread_calls: u32,
}

impl QuotaMeter {
    /// A meter from the first answer that told a quota.
    pub(super) fn new(quota: &Quota, answer: &AnswerContext) -> Option<QuotaMeter> {
        let limit = quota.limit? as f64;
        // A policy without a counter is a rate.
        let silent_answers = if quota.remaining.is_some() { 0 } else { quota.window.map(|_| u32::MAX)? };
        let left = quota.remaining.unwrap_or(0) as f64;
        if limit < LIMIT_MIN || (limit < LIMIT_MIN_UNNAMED && quota.window.is_none()) {
            return None;
        }
        let point = GrantPoint { at: answer.sent, granted: answer.accepted + left };
        Some(QuotaMeter {
            limit,
            window: QuotaWindow::new(
                quota.window.map(|w| w.as_secs_f64()),
                answer.sent,
                answer.accepted + answer.in_flight,
                point.granted,
                secs(answer.sent, answer.now),
            ),
            started_whole: left + 1.0 + answer.in_flight >= limit,
            window_start: answer.sent,
            window_start_before: answer.sent,
            spent: if left < 1.0 && quota.reset.is_some_and(|r| r.as_secs_f64() > RESET_ROUNDED) {
                limit
            } else {
                1.0 + answer.in_flight
            },
            reset: reset_at(quota, answer.now),
            reset_sent: answer.sent,
            probing: false,
            granted: point,
            slope_from: point,
            slope_mid: None,
            slope: None,
            stepped: false,
            ease: EASE,
            left_max: left,
            spare: 0.0,
            last_sent: answer.sent,
            calls: 0.0,
            misses: 0.0,
            refusals: 0,
            silent_answers,
            other_answers: 0,
            resets: ResetHistory::new(answer.sent),
            just_restored: false,
            spread_calls: 0,
        })
    }

    /// Whether it is a meter of this quota.
    pub(super) fn is(&self, quota: &Quota) -> bool {
        let same = quota.window.is_none() || quota.window.map(|w| w.as_secs_f64()) == self.window.named();
        same && quota.limit.is_some_and(|l| l as f64 == self.limit)
    }

    /// Whether it is no measure: the quota is restored too fast, or it has been wrong too often. A counter
    /// that is mirrored well brings no refusal.
    pub(super) fn is_wrong(&self) -> bool {
        self.resets.is_too_fast() || self.misses > MISSES.0 + MISSES.1 * self.calls
    }

    /// The length of the window in seconds, as far as it is known.
    pub(super) fn window(&self) -> Option<f64> {
        self.window.length()
    }

    /// Calls per second, as far as they are known.
    pub(super) fn rate(&self) -> Option<f64> {
        self.window.length().map(|w| self.limit / w).or_else(|| self.slope())
    }

    /// Calls per second that it has let through at least.
    pub(super) fn rate_min(&self) -> Option<f64> {
        self.rate().or_else(|| self.resets.interval().map(|interval| self.limit / interval))
    }

    /// An answer told the quota.
    pub(super) fn told(&mut self, quota: &Quota, answer: &AnswerContext) {
        self.other_answers = 0;
        let Some(left) = quota.remaining.map(|r| r as f64) else { return };
        let (probed, old_reset) = (self.probing, self.reset);
        let round_trip = secs(answer.sent, answer.now);
        (self.silent_answers, self.probing) = (0, false);
        self.left_max = self.left_max.max(left);
        if answer.sent >= self.reset_sent {
            (self.reset_sent, self.reset) = (answer.sent, reset_at(quota, answer.now));
            if self.window.named().is_none() {
                self.spare = ((left - self.margin() - 1.0) / self.limit).max(0.0);
            }
        }
        if let Some(reset) = quota.reset {
            if self.resets.count() == 0 && self.started_whole {
                self.window.first_reset(secs(self.window_start, answer.sent + reset));
            } else if self.just_restored && answer.sent > self.window_start {
                self.just_restored = false;
                self.window.infer(secs(self.window_start, answer.now + reset), round_trip);
            }
        }
        let point = GrantPoint { at: answer.sent, granted: answer.accepted + left };
        let grown = point.granted - self.granted.granted;
        if left >= 1.0 || grown > GROWN_MIN {
            self.refusals = 0;
        }
        if grown <= GROWN_MIN {
            return;
        }
        let whole = grown >= WHOLE_SHARE * self.limit && left >= WHOLE_LEFT;
        if whole {
            self.restored(quota, left, answer, round_trip);
        }
        if probed && self.resets.count() == 0 && self.window.length().is_none() {
            let later = old_reset.zip(self.reset).map_or(f64::INFINITY, |(a, b)| secs(a, b));
            self.window.slid(later, round_trip);
        }
        if self.window.named().is_none() || !self.is_steady() {
            self.window.check(answer, left, whole, self.size());
        }
        self.granted = point;
        if whole {
            // A new window, or a bucket that was left to fill.
            (self.window_start, self.spent) = (answer.sent, 1.0);
            (self.slope_from, self.slope_mid) = (point, None);
        } else if left + 1.0 >= self.limit {
            // A full quota earns nothing: the slope begins anew, and was too small.
            (self.slope_from, self.slope_mid) = (point, None);
            self.slope = self.slope.map(|s| s * SLOPE_RISE);
            if self.is_unexplained() && grown >= FILLED_SHARE * self.limit {
                self.resets.filled();
            }
        } else {
            self.measure(answer.in_flight);
        }
    }

    /// The quota was restored as a whole.
    fn restored(&mut self, quota: &Quota, left: f64, answer: &AnswerContext, round_trip: f64) {
        self.just_restored = left + 1.0 >= self.limit;
        let after = secs(self.window_start_before, answer.sent);
        self.window.restored(after, self.just_restored, round_trip);
        // Some headers tell resets in milliseconds: those are right.
        let exact = quota.reset.is_some() && quota.reset_step < Duration::from_secs(1);
        let untold = self.window.named().is_none() && !exact;
        let second = quota.reset.is_some_and(|reset| reset.as_secs_f64() <= RESET_ROUNDED);
        self.resets.reset(answer.sent, untold && second, untold && self.slope().is_none());
    }

    /// Calls that may go at once: a bucket may be smaller than its policy.
    fn size(&self) -> f64 {
        self.limit.min(self.left_max + 1.0)
    }

    /// The slope, if it is one: a bucket is full again at its reset, a window lets only a few go before.
    fn slope(&self) -> Option<f64> {
        let full = self.reset.map_or(0.0, |reset| secs(self.reset_sent, reset) - 1.0);
        self.slope.filter(|slope| !self.stepped && (full < 1.0 || slope * full < SLOPE_QUOTAS * self.limit))
    }

    fn measure(&mut self, in_flight: f64) {
        let span = secs(self.slope_from.at, self.granted.at);
        let grants = self.granted.granted - self.slope_from.granted;
        if span > 0.0 && grants >= SLOPE_GRANTS.0 + SLOPE_GRANTS.1 * in_flight {
            // Rather too small: what it leaves shows up as calls left and is spent.
            let sure = if grants < SLOPE_GRANTS_SURE { SLOPE_SHARE } else { 1.0 };
            self.slope = Some((sure * grants - 1.0) / span);
        }
        match self.slope_mid {
            None if grants >= SLOPE_GRANTS_SURE => self.slope_mid = Some(self.granted),
            Some(mid) if self.granted.granted - mid.granted >= SLOPE_GRANTS_SURE => {
                (self.slope_from, self.slope_mid) = (mid, Some(self.granted));
            }
            _ => {}
        }
    }

    /// Another quota may be spent without its headers being seen.
    pub(super) const fn set_has_others(&mut self) {
        self.window.set_has_others();
    }

    /// An answer told quotas, but not this one. True if it is not told any more.
    pub(super) fn told_others(&mut self) -> bool {
        self.other_answers += 1;
        self.other_answers > OTHER_ANSWERS_MAX
    }

    /// An accepted call's answer told nothing.
    pub(super) fn told_nothing(&mut self) {
        self.silent_answers = self.silent_answers.saturating_add(1);
    }
}

/// When the quota is restored. A reset of zero tells nothing.
fn reset_at(quota: &Quota, now: Mono) -> Option<Mono> {
    quota.reset.filter(|r| !r.is_zero()).map(|r| now + r)
}
