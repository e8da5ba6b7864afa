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

use super::first_window::FirstWindow;
use crate::time::{Mono, seconds};

/// Share of the pace above the estimate, and so the share of calls that is refused.
const EXCESS: f64 = 0.0035;
/// Share of the pace below the estimate where refusals come late: least and most.
const LATE_MARGIN: (f64, f64) = (0.02, 0.2);
/// Seconds for which the end of a first window is waited for where refusals come late.
const LATE_PROBE_WAIT: f64 = 1.5;
/// Share of the rate of the first window below which nothing is believed at once,
const FIRST_RATE_SHARE: f64 = 0.95;
/// but after it was found more often than this.
const BELOW_FIRST_MAX: u32 = 3;
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
/// Most calls that an estimate from a raised limit is taken to rest on.
const SUPPORT_RAISED_MAX: f64 = 50.0;
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

/// A window is expected to open this share of its length after it opened last.
const WINDOW_EARLY: f64 = 0.97;
/// The expected opening counts if it is not farther away than this many times the longest closure.
const CLOSURE_FACTOR: f64 = 1.2;
/// After an expected opening that did not come: the next probe after this share of the delay ...
const LATE_PROBE_SHARE: f64 = 0.5;
/// ... but not before this share of the window.
const LATE_PROBE_WINDOW: f64 = 0.025;
/// A closure up to this many seconds, of a server of which nothing is known, is probed ...
const BLIND_CLOSURE: f64 = 0.05;
/// ... after this many times its length.
const BLIND_PROBE: f64 = 2.0;
/// A closure up to this many seconds is probed after its own length again,
const SHORT_CLOSURE: f64 = 0.25;
/// a longer one after this share of it.
const LONG_PROBE_SHARE: f64 = 0.5;
/// Longest pause between two probes of a closed server, in seconds.
const PROBE_PAUSE_MAX: f64 = 60.0;

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
/// Calls above the estimate that say nothing about a raised limit: a share, and a number of calls.
const RAISED_SLACK: (f64, f64) = (1.01, 2.0);
/// A raise below this share is measured by what was accepted; above, older measurements are void.
const RAISE_SMALL: f64 = 0.5;
/// Share of a large raise that the pace is taken to have had when the limit was reached.
const RAISE_REACHED: f64 = 0.9;
/// Where the estimate lies between what was accepted (0) and the pace (1) after a large raise.
const RAISE_POSITION: f64 = 0.25;

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
/// Two openings must be this many times their uncertainty apart to be a measurement.
const SLACK_FACTOR: f64 = 1.5;
/// Tolerance, as factors, within which two intervals of rates agree.
const AGREE: (f64, f64) = (0.998, 1.002);
/// Share of a measurement in which the lane was idle that is worth to look at, and most that is believed.
const IDLE_SHARE_MIN: f64 = 0.01;
const IDLE_SHARE_MAX: f64 = 0.7;
/// A measurement of few calls lowers a well-founded estimate to this share at most.
const UNPROVEN_FALL: f64 = 0.9;

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

    /// Whether what is known of the server explains that it refuses now: not more often, or not longer, than
    /// it has been seen to.
    pub(super) fn explains(&self, now: Mono) -> bool {
        let closed = self.closure.map_or(0.0, |closure| secs(closure.first, now));
        self.refusals <= REFUSALS_KNOWN || closed <= CLOSURE_FACTOR * self.closure_max
    }

    /// When to probe a closed server next, not before `pause_min` seconds: half as long again as it has
    /// been closed, longer at first, and more so when nothing is known (`blind`). A window that was seen
    /// to open will open one window later.
    pub(super) fn next_probe(&mut self, now: Mono, pause_min: f64, blind: bool) -> Mono {
        let from = self.closure.map_or(now, |closure| closure.first);
        let expected = self
            .window_opening
            .map_or(Mono::ZERO, |opening| opening.at + seconds(WINDOW_EARLY * self.window - opening.slack));
        let due = expected > from && secs(from, expected) <= CLOSURE_FACTOR * self.closure_max;
        if due && now < expected {
            return expected;
        }
        let closed = secs(from, now);
        let pause = match () {
            () if due => (LATE_PROBE_SHARE * secs(expected, now)).max(LATE_PROBE_WINDOW * self.window),
            () if blind && closed < BLIND_CLOSURE => BLIND_PROBE * closed,
            () if closed < SHORT_CLOSURE => closed,
            () => LONG_PROBE_SHARE * closed,
        };
        let next = now + seconds(pause.max(pause_min).min(PROBE_PAUSE_MAX));
        if self.window_opening.is_some() {
            return next;
        }
        // A probe that is refused late costs as much as the wait for a short window.
        let late = self.late > 0.0;
        let latest = if late { next.max(now + seconds(LATE_PROBE_WAIT)) } else { next };
        self.first_window.probe(now + seconds(pause_min), latest, late).unwrap_or(next)
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
        for opening in self.openings.iter_mut().take(self.len).filter(|o| o.seq > seq) {
            opening.accepted = opening.accepted.saturating_sub(1);
        }
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

    /// The pace had been raised when this call was refused. If more was accepted since the last opening
    /// than the estimate explains, the limit is higher.
    fn limit_rose(&mut self, refused: Opening) {
        let last = self.len.checked_sub(1).map(|i| self.openings[i]);
        let seen = last.map(|o| {
            (refused.accepted.saturating_sub(o.accepted) as f64, secs(o.at, refused.at).max(SPAN_MIN))
        });
        match seen {
            Some((n, span)) if n <= self.rate * span * RAISED_SLACK.0 + RAISED_SLACK.1 => return,
            // By a little: what was accepted says how much.
            Some((n, span)) if self.raise < RAISE_SMALL && n >= SUPPORT_BELIEVED => {
                (self.rate, self.support) = (n / span, n.min(SUPPORT_RAISED_MAX));
            }
            // By much: what was measured before says nothing about the limit as it is now. That lies between
            // what was accepted and the pace, which grows past it before a burst is spent.
            _ => {
                let pace = self.rate * (1.0 + RAISE_REACHED * self.raise);
                let sure =
                    seen.filter(|s| s.0 >= SUPPORT_BELIEVED).map_or(pace, |(n, span)| (n / span).min(pace));
                (self.rate, self.support) = (sure + RAISE_POSITION * (pace - sure), SUPPORT_GUESS);
                (self.window_opening, self.windows, self.window_closed) = (Some(refused), 0, true);
            }
        }
        self.len = 0;
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

    /// A window, perhaps of a second and longer limit, was spent and has opened again: what was accepted
    /// since it opened last, or since the start, is what it allows. The length of a first window, in seconds,
    /// may have been found by a probe.
    fn window_opened(&mut self, opening: Opening, first: Option<f64>) {
        let start =
            Opening { at: self.started.unwrap_or(opening.at), seq: 0, accepted: 0, slack: 0.0, idle: 0.0 };
        let from = self.window_opening.unwrap_or(start);
        let n = opening.accepted.saturating_sub(from.accepted) as f64;
        let first = first.filter(|_| self.window_opening.is_none());
        let span = first.unwrap_or_else(|| secs(from.at, opening.at));
        if span > 0.0 {
            self.rate = n / span;
            match first {
                Some(_) => self.first_rate = self.rate,
                None => self.rate = self.not_below_first(self.rate),
            }
            let sure = span / (opening.slack + from.slack).max(SPAN_MIN);
            let found = first.is_some() || self.window_opening.is_some();
            self.support = if found { n.min(sure) } else { SUPPORT_GUESS };
        }
        // The first measured window began somewhere in a window, later ones may be several.
        self.window = if self.windows < WINDOWS_ROUGH { span } else { self.window.min(span) };
        self.windows += 1;
        self.window_opening = Some(opening);
        (self.openings[0], self.len) = (opening, 1);
    }

    /// A rate that was found, in calls per second, or not much less than that of the first window: a stall
    /// looks like a lower limit. If it is found again and again, the limit has fallen.
    fn not_below_first(&mut self, found: f64) -> f64 {
        if found >= FIRST_RATE_SHARE * self.first_rate {
            self.below_first = 0;
            return found;
        }
        self.below_first += 1;
        if self.below_first > BELOW_FIRST_MAX {
            self.first_rate = 0.0;
        }
        found.max(FIRST_RATE_SHARE * self.first_rate)
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

    /// Intersects the intervals between the newest opening and the older ones.
    fn measure(&mut self) {
        let last = self.openings[self.len - 1];
        let (mut low, mut high, mut calls, mut keep) = (0.0f64, f64::INFINITY, 0.0f64, 0);
        let mut stalled = false;
        for (i, opening) in self.openings.iter().enumerate().take(self.len - 1).rev() {
            let span = secs(opening.at, last.at);
            let n = last.accepted.saturating_sub(opening.accepted) as f64;
            if span <= 0.0 {
                continue;
            }
            let slack = opening.slack + last.slack;
            if span <= SLACK_FACTOR * slack {
                continue;
            }
            // What was lost while the lane was idle makes the limit higher than what was accepted.
            let idle = (last.idle - opening.idle).clamp(0.0, IDLE_SHARE_MAX * span);
            stalled |= idle > IDLE_SHARE_MIN * span;
            let (l, h) = ((n - 1.0) / (span + slack), (n + 1.0) / (span - idle - slack).max(SPAN_MIN));
            if l > high * AGREE.1 || h < low * AGREE.0 {
                keep = i + 1;
                break;
            }
            (low, high, calls) = (low.max(l), high.min(h), calls.max(n.min(span / slack.max(SPAN_MIN))));
        }
        if keep > 0 {
            self.openings.rotate_left(keep);
            self.len -= keep;
        }
        if high.is_finite() {
            let middle = f64::midpoint(low.max(0.0), high);
            let found = if stalled { (high * (1.0 - 1.0 / (calls + 1.0))).max(middle) } else { middle };
            let old = self.rate;
            // A few calls are no proof of a much lower limit against many.
            let proof = calls >= SUPPORT_BELIEVED || self.support < SUPPORT_BELIEVED;
            let found = self.not_below_first(found);
            self.rate = if self.is_known() && !proof { found.max(UNPROVEN_FALL * old) } else { found };
            self.support = if proof { calls.max(1.0) } else { SUPPORT_BELIEVED };
        } else if !self.is_known() {
            // One opening only: all that was accepted since the start, bursts included.
            let span = self.started.map_or(0.0, |from| secs(from, last.at));
            if span > 0.0 {
                let accepted = last.accepted.saturating_sub(self.accepted_before) as f64;
                self.rate = accepted.max(1.0) / span;
                self.support = SUPPORT_GUESS;
            }
        }
    }
}

/// Seconds from one time to another; zero if `to` is earlier.
pub(super) fn secs(from: Mono, to: Mono) -> f64 {
    to.since(from).as_nanos() as f64 * NANOSECOND
}
