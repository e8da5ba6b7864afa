//! When a call may go by a mirrored counter: what is left at once, then at the rate of the quota, and what a
//! refusal says about the counter.

use super::*;

impl QuotaMeter {
    /// When a call may go, with `committed` calls sent and not refused.
    pub(in crate::limit) fn ready(&self, now: Mono, committed: f64, in_flight: u32) -> MeterReady {
        let left = self.granted.granted - committed;
        if self.silent_answers < SILENT_ANSWERS && left >= 1.0 + self.margin() {
            if !self.is_unexplained() || left > self.reserve() {
                return MeterReady::Now;
            }
            // The last calls are spread, to see whether the quota grows meanwhile.
            let doublings = self.spread_calls.min(SPREAD_DOUBLINGS);
            let at = self.last_sent + seconds(SPREAD_SECONDS * f64::from(1u32 << doublings));
            return match () {
                () if in_flight > 0 => MeterReady::Unknown,
                () if now < at => MeterReady::At(at),
                () => MeterReady::Now,
            };
        }
        if self.probing && in_flight > 0 {
            return MeterReady::Unknown;
        }
        let free = self.window.slot_free(committed, self.size());
        if free.is_some_and(|at| now >= at) && (in_flight == 0 || !self.window.is_probe(self.last_sent, now))
        {
            return MeterReady::Now;
        }
        if free.is_some() || self.is_spent() {
            let after = self.window.probe_after().map(|w| self.window_start + seconds(w));
            let told = self.reset.and_then(|reset| {
                let wait = secs(self.reset_sent, reset);
                match () {
                    () if wait > RESET_BELIEVED => Some(reset),
                    // The log knows better.
                    () if free.is_some() => None,
                    () => Some(self.reset_sent + seconds(wait * self.resets.wait_share())),
                }
            });
            let at = match (free.or(after), told) {
                (Some(a), Some(b)) => a.min(b),
                (a, b) => a.or(b).unwrap_or(now),
            };
            return match () {
                () if now < at => MeterReady::At(at),
                () if in_flight > 0 => MeterReady::Unknown,
                () => MeterReady::Now,
            };
        }
        match self.rate() {
            Some(rate) => {
                let at = self.last_sent + seconds(1.0 / (rate * self.hurry()));
                if now >= at { MeterReady::Now } else { MeterReady::At(at) }
            }
            None if in_flight > 0 => MeterReady::Unknown,
            None => MeterReady::Now,
        }
    }

    /// Factor of the rate at which calls go: what the last answer left unused is to be spent.
    pub(super) fn hurry(&self) -> f64 {
        self.ease * (1.0 + HURRY * self.spare)
    }

    /// Whether the quota was spent, and is restored as a whole.
    pub(in crate::limit) fn is_spent(&self) -> bool {
        self.silent_answers < SILENT_ANSWERS && self.spent >= SPENT_SHARE * self.limit && !self.is_steady()
    }

    /// Whether the quota is restored call by call, as that of a token bucket is.
    pub(super) fn is_steady(&self) -> bool {
        match self.window.named() {
            None => !self.window.is_trusted() && self.slope().is_some(),
            Some(window) => window < BUCKET_WINDOW && self.left_max + 1.0 < BUCKET_SHARE * self.limit,
        }
    }

    /// Whether it is not known yet how the quota is restored.
    pub(super) fn is_unexplained(&self) -> bool {
        self.window.named().is_none() && self.slope().is_none() && self.resets.count() == 0
    }

    /// Calls that are left in a bucket, because calls do not arrive as evenly as they are sent. They cost
    /// nothing: a bucket earns as much with a few left as with none.
    pub(super) fn margin(&self) -> f64 {
        let margin = self.rate().map_or(0.0, |rate| (JITTER * rate).min(MARGIN_MAX * self.left_max));
        if self.is_steady() && margin >= 1.0 { margin } else { 0.0 }
    }

    pub(super) fn reserve(&self) -> f64 {
        (RESERVE.0 * self.limit).min(RESERVE.1)
    }

    /// A call goes, after `committed` that were sent and not refused. True if it goes by the rate, one after
    /// the other.
    pub(in crate::limit) fn sent(&mut self, now: Mono, committed: f64) -> bool {
        self.calls += 1.0;
        if self.window.named().is_some_and(|w| secs(self.window_start, now) > w) && !self.is_spent() {
            (self.window_start, self.spent) = (now, 0.0);
        }
        let left = self.granted.granted - committed;
        if left >= 1.0 + self.margin() {
            self.window.sent(now, committed);
            self.spread_calls += u32::from(left <= self.reserve());
            (self.last_sent, self.spent) = (now, self.spent + 1.0);
            return false;
        }
        let free = self.window.slot_free(committed, self.size());
        self.window.sent(now, committed);
        if free.is_some_and(|at| now >= at) && !self.window.is_probe(self.last_sent, now) {
            self.last_sent = now;
            self.window.relied();
            false
        } else if free.is_some() || self.is_spent() {
            self.window_start_before = self.window_start;
            (self.last_sent, self.window_start, self.spent, self.probing) = (now, now, 1.0, true);
            false
        } else {
            // A late call may be caught up, but only one.
            let gap = seconds(self.rate().map_or(0.0, |r| 1.0 / (r * self.hurry())));
            self.last_sent = (self.last_sent + gap).max(now.saturating_sub(gap)).min(now);
            self.spent += SPENT_PACED;
            true
        }
    }

    /// A call was refused although something should have been left.
    pub(in crate::limit) fn missed(&mut self, now: Mono, sent: Mono, committed: f64) {
        self.misses += 1.0;
        self.refusals += 1;
        if self.window.is_trusted() {
            self.spent = self.limit;
        }
        self.window.refused(sent);
        if self.probing && self.window.is_longer(secs(self.window_start_before, self.last_sent)) {
            (self.window_start, self.spent, self.probing) = (self.window_start_before, self.limit, false);
            return;
        }
        self.granted.granted = self.granted.granted.min(committed);
        self.last_sent = now;
        if !self.probing || !self.resets.too_soon() {
            self.ease *= EASE_FALL;
        }
        let whole = self.window.named().is_none_or(|w| w >= BUCKET_WINDOW)
            || self.left_max >= WINDOW_LEFT * self.limit;
        if whole && (self.refusals > SPENT_REFUSALS || self.spent >= SPENT_REFUSED * self.limit) {
            self.spent = self.limit;
        }
        if self.refusals > STEPPED_REFUSALS {
            (self.stepped, self.spent) = (true, self.limit);
        }
        self.probing = false;
        if let Some(slope) = &mut self.slope {
            *slope *= SLOPE_FALL;
        }
    }
}
