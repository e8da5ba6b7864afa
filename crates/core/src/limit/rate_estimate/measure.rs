//! How the rate is measured between openings: the intervals that they allow, what a window allows as a whole,
//! and a limit that has risen.

use super::*;

/// Share of the rate of the first window below which nothing is believed at once,
const FIRST_RATE_SHARE: f64 = 0.95;
/// but after it was found more often than this.
const BELOW_FIRST_MAX: u32 = 3;
/// Most calls that an estimate from a raised limit is taken to rest on.
const SUPPORT_RAISED_MAX: f64 = 50.0;
/// Calls above the estimate that say nothing about a raised limit: a share, and a number of calls.
const RAISED_SLACK: (f64, f64) = (1.01, 2.0);
/// A raise below this share is measured by what was accepted; above, older measurements are void.
const RAISE_SMALL: f64 = 0.5;
/// Share of a large raise that the pace is taken to have had when the limit was reached.
const RAISE_REACHED: f64 = 0.9;
/// Where the estimate lies between what was accepted (0) and the pace (1) after a large raise.
const RAISE_POSITION: f64 = 0.25;
/// Two openings must be this many times their uncertainty apart to be a measurement.
const SLACK_FACTOR: f64 = 1.5;
/// Tolerance, as factors, within which two intervals of rates agree.
const AGREE: (f64, f64) = (0.998, 1.002);
/// Share of a measurement in which the lane was idle that is worth to look at, and most that is believed.
const IDLE_SHARE_MIN: f64 = 0.01;
const IDLE_SHARE_MAX: f64 = 0.7;
/// A measurement of few calls lowers a well-founded estimate to this share at most.
const UNPROVEN_FALL: f64 = 0.9;

impl RateEstimate {
    /// The pace had been raised when this call was refused. If more was accepted since the last opening
    /// than the estimate explains, the limit is higher.
    pub(super) fn limit_rose(&mut self, refused: Opening) {
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

    /// Call `seq` was refused: calls sent after it come after one accepted call fewer.
    pub(in crate::limit) fn discount(&mut self, seq: u64) {
        for opening in self.openings.iter_mut().take(self.len).filter(|o| o.seq > seq) {
            opening.accepted = opening.accepted.saturating_sub(1);
        }
    }

    /// The server stood still for so many seconds before call `before` was sent, accepted `accepted` of the calls
    /// sent meanwhile and has nothing saved: what is measured from earlier openings goes on as if it had not been.
    pub(in crate::limit) fn cut_out(&mut self, before: u64, stall: f64, accepted: u64) {
        let earlier = self.openings.iter_mut().take(self.len).filter(|opening| opening.seq < before);
        for opening in earlier {
            opening.at += seconds(stall);
            opening.accepted += accepted;
        }
    }

    /// A window, perhaps of a second and longer limit, was spent and has opened again: what was accepted
    /// since it opened last, or since the start, is what it allows. The length of a first window, in seconds,
    /// may have been found by a probe.
    pub(super) fn window_opened(&mut self, opening: Opening, first: Option<f64>) {
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
    pub(super) fn not_below_first(&mut self, found: f64) -> f64 {
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

    /// Intersects the intervals between the newest opening and the older ones.
    pub(super) fn measure(&mut self) {
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
