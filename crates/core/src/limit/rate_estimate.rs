//! The server's rate, estimated from its refusals.
//!
//! A refusal is a measurement. Whenever a server that limits calls per time accepts again after a
//! refusal (an opening), its limit has just been spent; between two openings it accepted exactly what it
//! earned. So `n` calls accepted in `Δ` seconds between two openings mean a rate between
//! `(n − 1) / Δ` and `(n + 1) / Δ`. That holds for a token bucket, which opens one token after it was
//! empty, and for a window, which opens at its boundary. Older openings give longer and so
//! narrower intervals; they are intersected from the newest to the oldest, and where the
//! intersection becomes empty the limit has changed and everything older is dropped.
//!
//! Why openings and not refusals: a window refuses from the moment it is spent to its boundary,
//! so the time of the first refusal says more about the client than about the server.
//!
//! The pace is then a little above the estimate ([`EXCESS`]). The server is never idle, the share
//! of refused calls is the excess whatever the kind of limit, and each refusal narrows the
//! estimate. Where no refusal comes although one is overdue, the limit has risen: the pace grows,
//! slowly at first and then ever faster, until a refusal comes. A server that has refused for long
//! stretches counts in long windows and answers late: there the growth is slower.

mod measure;
mod probe;

use super::first_window::FirstWindow;
use crate::time::{Mono, seconds};

/// Share of the pace above the estimate, and so the share of calls that is refused.
const EXCESS: f64 = 0.0035;
/// Share of the pace below the estimate where refusals come late: least and most.
const LATE_MARGIN: (f64, f64) = (0.02, 0.2);
/// Weight of one refusal in the usual number of calls between two,
const GAP_WEIGHT: f64 = 0.2;
/// and how many times that number may pass before a refusal is expected.
const GAPS_OVERDUE: f64 = 4.0;
/// Openings remembered.
const OPENINGS: usize = 8;
/// A refusal is overdue after this many times the calls after which it was expected.
const OVERDUE: f64 = 1.15;
/// Calls that a measurement must rest on to be believed against the last one.
const SUPPORT_BELIEVED: f64 = 8.0;
/// Calls that an estimate rests on which another limiter has learned.
const SUPPORT_LEARNED: f64 = 300.0;
/// Calls that an estimate rests on which is little more than a guess.
const SUPPORT_GUESS: f64 = 4.0;
/// A nanosecond, in seconds.
const NANOSECOND: f64 = 1e-9;
/// Shortest time between two events, in seconds, so that nothing is divided by zero.
const SPAN_MIN: f64 = 1e-9;

/// Fresh refusals after which the server is left alone: with an estimate that includes the first burst,
const REFUSALS_FIRST: u32 = 0;
/// without any estimate,
const REFUSALS_UNKNOWN: u32 = 1;
/// and with one. More than these mean a spent window.
const REFUSALS_KNOWN: u32 = 2;

/// The expected opening counts if it is not farther away than this many times the longest closure.
const CLOSURE_FACTOR: f64 = 1.2;

/// The first raise of an overdue pace, as a share of the excess.
const RAISE_FIRST: f64 = 0.5;
/// Growth of the raise over one step.
const RAISE_GROWTH: f64 = 0.7;
/// A step takes this many times the calls in flight, and more by the support of the estimate ...
const RAISE_IN_FLIGHT: f64 = 1.5;
/// ... within these bounds, in calls.
const RAISE_SUPPORT: (f64, f64) = (2.0, 8.0);
/// A raise beyond this share says that the estimate was none.
const RAISE_MAX: f64 = 3.0;
/// Share of the raised pace that becomes the new estimate then, and the raise that goes on from there.
const RAISE_RESET: (f64, f64) = (0.5, 1.0);
/// The limit has risen if the raise was beyond this many times the excess when a refusal came.
const RAISED_FROM: f64 = 4.0;

/// More fresh refusals than this are a closure, and not a single call too many.
const CLOSURE_REFUSALS: u32 = 2;
/// A closure of more calls than this, at the estimated rate, is that of a longer window.
const LONG_CLOSURE_CALLS: f64 = 8.0;
/// Decay of the longest closure with each opening after a single refusal.
const CLOSURE_DECAY: f64 = 0.95;
/// Intervals between the last refusal and an opening that are usual.
const OPENING_INTERVALS: f64 = 1.5;
/// Share of a longer gap by which the time of the opening is uncertain.
const OPENING_SLACK: f64 = 0.5;
/// Windows of which the first began anywhere: their length is taken as measured.
const WINDOWS_ROUGH: u32 = 2;

/// An opening: the first accepted call after a refusal.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Opening {
    /// When the server opened, as well as it is known.
    at: Mono,
    /// The call that was accepted.
    seq: u64,
    /// Calls accepted before it.
    accepted: u64,
    /// Uncertainty of `at`, in seconds to either side.
    slack: f64,
    /// Seconds until then in which the lane had nothing to send or could not: what the server saved
    /// meanwhile may be lost.
    idle: f64,
}

/// A time during which the server refuses everything.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Closure {
    /// The newest refused call.
    seq: u64,
    /// When the first and the last refused call were sent.
    first: Mono,
    last: Mono,
}

/// The estimate of the server's rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RateEstimate {
    /// The last openings, oldest first.
    openings: [Opening; OPENINGS],
    /// How many of them there are.
    len: usize,
    /// Calls per second; infinite while nothing is known.
    rate: f64,
    /// Calls that the estimate rests on.
    support: f64,
    /// Raise of the pace above the estimate while a refusal is overdue, as a share of the estimate.
    raise: f64,
    /// Calls that the pace held back since the last refusal.
    paced_calls: f64,
    /// The closure that the server is in.
    closure: Option<Closure>,
    /// When the first call was sent, and how many calls had been accepted before.
    started: Option<Mono>,
    accepted_before: u64,
    /// Length of the longest closure, in seconds; decays.
    closure_max: f64,
    /// Refusals since the server was last open, each sent after the one before was known.
    refusals: u32,
    first_window: FirstWindow,
    /// Calls between two refusals, of late.
    usual_gap: f64,
    /// The rate that the first window told, in calls per second; 0 if none. How often less was found since.
    first_rate: f64,
    below_first: u32,
    /// Seconds after which a refusal is known, if refusals come late; else 0.
    late: f64,
    /// The last opening of a longer window.
    window_opening: Option<Opening>,
    /// That window was refusing then, and has not been seen to open since.
    window_closed: bool,
    /// Seconds between the last two openings of the longer window.
    window: f64,
    /// Openings of the longer window so far.
    windows: u32,
}

impl RateEstimate {
    pub(super) const NEW: RateEstimate = RateEstimate {
        openings: [Opening { at: Mono::ZERO, seq: 0, accepted: 0, slack: 0.0, idle: 0.0 }; OPENINGS],
        len: 0,
        rate: f64::INFINITY,
        support: 0.0,
        raise: 0.0,
        paced_calls: 0.0,
        closure: None,
        started: None,
        accepted_before: 0,
        closure_max: 0.0,
        refusals: 0,
        first_window: FirstWindow::NEW,
        usual_gap: 0.0,
        first_rate: 0.0,
        below_first: 0,
        late: 0.0,
        window_opening: None,
        window_closed: false,
        window: 0.0,
        windows: 0,
    };

    /// Begins to learn now, after `seq` calls of which `accepted` were, from a rate (calls per second)
    /// that was found otherwise.
    pub(super) fn from(now: Mono, seq: u64, accepted: u64, rate: Option<f64>) -> RateEstimate {
        let start = Opening { at: now, seq, accepted, slack: 0.0, idle: 0.0 };
        RateEstimate {
            started: Some(now),
            accepted_before: accepted,
            window_opening: Some(start),
            rate: rate.unwrap_or(f64::INFINITY),
            support: if rate.is_some() { SUPPORT_BELIEVED } else { 0.0 },
            ..RateEstimate::NEW
        }
    }

    /// Begins now with a rate (calls per second) that another estimate has learned from many calls.
    pub(super) fn learned(now: Mono, rate: f64) -> RateEstimate {
        RateEstimate { support: SUPPORT_LEARNED, ..RateEstimate::from(now, 0, 0, Some(rate)) }
    }

    /// Seconds from the first call to this one.
    pub(super) fn run_time(&self, sent: Mono) -> Option<f64> {
        self.started.map(|started| secs(started, sent))
    }

    /// Calls per second since the start, of which `accepted` were.
    pub(super) fn accepted_rate(&self, now: Mono, accepted: u64) -> Option<f64> {
        let span = self.started.map_or(0.0, |started| secs(started, now));
        (span > 0.0 && accepted > 0).then(|| accepted as f64 / span)
    }

    /// Whether a rate is known.
    pub(super) fn is_known(&self) -> bool {
        self.rate.is_finite()
    }

    /// Whether it rests on a few calls only.
    pub(super) fn is_guess(&self) -> bool {
        self.support < SUPPORT_BELIEVED
    }

    /// Whether it rests on the first opening, bursts included: the rate is far lower.
    fn includes_burst(&self) -> bool {
        self.is_known() && self.len == 1 && self.window_opening.is_none()
    }

    /// The length of the server's window in seconds, if it counts in windows.
    pub(super) fn window(&self) -> Option<f64> {
        (self.windows >= WINDOWS_ROUGH && self.closure_max > 0.0).then_some(self.window)
    }

    /// Fresh refusals since the server was last open.
    pub(super) const fn refusals(&self) -> u32 {
        self.refusals
    }

    /// Whether calls were refused, and none that was sent after them has been accepted.
    pub(super) const fn is_shut(&self) -> bool {
        self.closure.is_some()
    }

    /// Whether the server refuses more than the pace explains.
    pub(super) fn is_closed(&self) -> bool {
        self.refusals
            > if self.includes_burst() {
                REFUSALS_FIRST
            } else if self.is_known() {
                REFUSALS_KNOWN
            } else {
                REFUSALS_UNKNOWN
            }
    }

    /// A call was accepted and came back.
    pub(super) fn answered(&mut self, now: Mono) {
        self.first_window.answered(now);
    }

    /// Calls that the server has counted for refusals in a row: one, or all of them.
    pub(super) fn counted_refusals(&self) -> f64 {
        if self.first_window.counts_refused() { f64::from(self.refusals) } else { 1.0 }
    }

    /// The estimate, in calls per second.
    pub(super) const fn estimate(&self) -> f64 {
        self.rate
    }

    /// The pace to send at, in calls per second. Where refusals come late it stays below the estimate.
    pub(super) fn pace(&self) -> f64 {
        let excess = self.excess();
        let excess = if self.late > 0.0 { -excess.clamp(LATE_MARGIN.0, LATE_MARGIN.1) } else { excess };
        self.rate * (1.0 + excess + self.raise)
    }

    /// The server is taken for closed, because nothing has come back for so many seconds.
    pub(super) fn closed_late(&mut self, seconds: f64) {
        self.late = self.late.max(seconds);
        self.refusals = CLOSURE_REFUSALS + 1;
    }

    fn excess(&self) -> f64 {
        (1.0 / self.support.max(SUPPORT_GUESS)).max(EXCESS)
    }

    /// A call goes out; `paced` says that the pace held it back; `in_flight` calls are out when an answer
    /// comes. True if the pace has changed.
    pub(super) fn sent(&mut self, now: Mono, paced: bool, in_flight: f64) -> bool {
        self.started.get_or_insert(now);
        if !paced || !self.is_known() {
            return false;
        }
        self.paced_calls += 1.0;
        let window = self.closure_max * self.rate;
        // A late refusal costs what goes until it is known.
        let late = if self.late > 0.0 { self.late * self.rate / EXCESS } else { 0.0 };
        // Where others call too, refusals come more often than the own pace explains, until they are gone.
        let usual = if self.usual_gap > 0.0 { GAPS_OVERDUE * self.usual_gap } else { f64::INFINITY };
        let expected = (1.0 / self.excess()).min(usual.max(SUPPORT_BELIEVED));
        if self.paced_calls <= OVERDUE * expected.max(window) + late + in_flight {
            return false;
        }
        // An estimate of few calls may be far off: its raise grows faster.
        let support = self.support.clamp(RAISE_SUPPORT.0, RAISE_SUPPORT.1);
        let step = (RAISE_IN_FLIGHT * in_flight + support).max(window);
        self.raise = if self.raise == 0.0 {
            RAISE_FIRST * self.excess()
        } else {
            self.raise * (1.0 + RAISE_GROWTH / step)
        };
        if self.raise > RAISE_MAX {
            // The estimate was so far off that it is void, and so is what it rests on.
            (self.rate, self.raise) = (RAISE_RESET.0 * self.rate * (1.0 + self.raise), RAISE_RESET.1);
            (self.support, self.len, self.window_opening, self.windows) = (SUPPORT_GUESS, 0, None, 0);
        }
        true
    }

    /// A call sent at `sent` after `accepted` accepted ones was refused; `fresh` if it was sent after the
    /// last refusal was known.
    pub(super) fn refused(&mut self, seq: u64, sent: Mono, accepted: u64, fresh: bool) {
        self.discount(seq);
        if self.raise > RAISED_FROM * EXCESS {
            self.limit_rose(Opening { at: sent, seq, accepted, slack: 0.0, idle: 0.0 });
        }
        if fresh && self.refusals == 0 && self.paced_calls > 0.0 {
            let weight = if self.usual_gap == 0.0 { 1.0 } else { GAP_WEIGHT };
            self.usual_gap += weight * (self.paced_calls - self.usual_gap);
        }
        self.refusals += u32::from(fresh);
        self.first_window.refused(accepted.saturating_sub(self.accepted_before));
        self.raise = 0.0;
        self.paced_calls = 0.0;
        let new = Closure { seq, first: sent, last: sent };
        self.closure = Some(self.closure.map_or(new, |c| Closure {
            seq: c.seq.max(seq),
            first: c.first.min(sent),
            last: c.last.max(sent),
        }));
    }

    /// A call was accepted; `before` calls sent before it were, and the lane was idle for `idle` seconds so
    /// far. True if the server has opened by it.
    pub(super) fn accepted(&mut self, seq: u64, sent: Mono, before: u64, idle: f64) -> bool {
        let Some(closure) = self.closure.filter(|closure| seq > closure.seq) else { return false };
        let in_window = before.saturating_sub(self.window_opening.map_or(0, |o| o.accepted)) as f64;
        let spent = in_window >= SUPPORT_BELIEVED;
        let closed = self.refusals > CLOSURE_REFUSALS;
        let long = spent
            && closed
            && (self.support < SUPPORT_BELIEVED
                || secs(closure.first, sent) * self.rate > LONG_CLOSURE_CALLS);
        if closed {
            self.closure_max = self.closure_max.max(secs(closure.first, sent));
        } else {
            self.closure_max *= CLOSURE_DECAY;
        }
        (self.closure, self.refusals) = (None, 0);
        // It opened somewhere between the last refusal and this; of that, one interval is usual.
        let first_window = self.first_window.opened();
        let gap = if long && first_window.is_some() { 0.0 } else { secs(closure.last, sent) };
        let usual = if self.is_known() { OPENING_INTERVALS / self.rate } else { 0.0 };
        let slack = if gap > usual { OPENING_SLACK * gap } else { 0.0 };
        let opening = Opening { at: sent.saturating_sub(seconds(slack)), seq, accepted: before, slack, idle };
        // A window is measured from where it opened, not from where it was spent.
        if core::mem::take(&mut self.window_closed) && closed && !long {
            self.window_opening = Some(opening);
        }
        if long {
            self.window_opened(opening, first_window);
            return true;
        }
        if self.len == OPENINGS {
            self.openings.rotate_left(1);
            self.len -= 1;
        }
        self.openings[self.len] = opening;
        self.len += 1;
        self.measure();
        true
    }

    /// Starts anew from a rate, in calls per second, that was found otherwise.
    pub(super) fn set(&mut self, rate: f64) {
        *self = RateEstimate {
            rate,
            support: SUPPORT_BELIEVED,
            started: self.started,
            accepted_before: self.accepted_before,
            closure_max: self.closure_max,
            first_window: self.first_window,
            late: self.late,
            ..RateEstimate::NEW
        };
    }
}

/// Seconds from one time to another; zero if `to` is earlier.
pub(super) fn secs(from: Mono, to: Mono) -> f64 {
    to.nanos().saturating_sub(from.nanos()) as f64 * NANOSECOND
}
