//! What a limiter knows: asked by its lane, for metrics, and handed to another limiter of the same server.

use super::*;

impl Limiter {
    /// The learned pace in calls per second.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let told = self.meters.iter().flatten().filter_map(QuotaMeter::rate).min_by(f64::total_cmp);
        told.or_else(|| match () {
            () if self.cooldowns.is_known() => Some(self.cooldowns.estimate()),
            () if self.tables.rate().is_some() => self.tables.rate(),
            () if self.random.is_known() => Some(self.random.pace()),
            () if self.single_token.is_some() => self.single_token.as_ref().map(SingleTokenBucket::rate),
            () => self.estimate.is_known().then(|| self.estimate.estimate()),
        })
    }

    /// Calls in flight now.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Calls that may be in flight.
    #[must_use]
    pub fn cap(&self) -> u32 {
        self.in_flight_cap.cap()
    }

    /// Nothing goes out before this, because the server said so.
    #[must_use]
    pub const fn not_before(&self) -> Mono {
        self.not_before
    }

    /// Nothing goes out before this, because a quota that headers tell is spent; in the past if none is.
    #[must_use]
    pub fn metered_until(&self, now: Mono) -> Mono {
        if !self.is_metered() {
            return Mono::ZERO;
        }
        let committed = self.committed();
        let spent = |meter: &QuotaMeter| match meter.ready(now, committed, self.in_flight) {
            MeterReady::At(until) if meter.is_spent() => Some(until),
            _ => None,
        };
        self.meters.iter().flatten().filter_map(spent).max().unwrap_or(Mono::ZERO)
    }

    /// Whether a failure now is taken for the refusal of a limit.
    #[must_use]
    pub const fn failures_are_limit(&self) -> bool {
        self.late.last_was_late() || self.failures.is_limit()
    }

    /// Whether the server fails whatever is sent, and is probed ever less often. Until it is known whether
    /// that is an outage, the lane decides when to ask, as an open breaker does.
    #[must_use]
    pub const fn probes_failures(&self) -> bool {
        self.probing && self.failures.is_tried()
    }

    /// Whether a failure now says something about the server's health: it may be a refusal otherwise.
    #[must_use]
    pub const fn failures_are_health(&self) -> bool {
        !self.late.last_was_late() && (!self.failures.is_tried() || self.failures.is_alone())
    }

    /// Whether what was learned explains a refusal that has just come: the lane knows when to send again.
    #[must_use]
    pub fn explains_refusal(&self, now: Mono) -> bool {
        if !self.learn || self.is_metered() {
            return true;
        }
        let learned = self.kind != LimitKind::Unknown || self.cooldowns.is_known();
        (self.accepted > 0 || self.inherited) && learned && self.estimate.explains(now)
    }

    /// Begins with what another limiter believed of the same server; see [`crate::lane::Lane::succeed`].
    pub(crate) fn succeed(&mut self, belief: &LimitBelief, now: Mono) {
        self.spend_burst(now);
        // A rate that is told by another process is no way to shut a lane for longer than a server may.
        let told = belief.rate.filter(|rate| rate.is_finite()).map(|rate| rate.max(RATE_TOLD_MIN));
        if let Some(rate) = told.filter(|_| self.learn) {
            self.inherited = true;
            self.kind = LimitKind::Rate;
            self.estimate = RateEstimate::learned(now, SUCCESSOR_SHARE * rate);
            self.ceiling.set(now, Some(rate), 1.0);
            self.ceiling.empty_to(now, 1.0);
            self.ceiling_until = now + SUCCESSOR_CEILING;
            self.set_pace(now);
        } else if let Some(calls) = belief.in_flight.filter(|_| self.learn) {
            self.inherited = true;
            self.kind = LimitKind::Concurrency;
            self.in_flight_cap.prove(calls);
        }
        if self.inherited && belief.by_failures {
            self.failures.inherit();
        }
        self.note_belief(now);
    }

    /// The user's own rate begins without a burst: another limiter has just used it.
    pub(crate) fn spend_burst(&mut self, now: Mono) {
        self.user_pace.empty_to(now, 1.0);
    }

    /// Nothing goes out before `until`: what the server said before this limiter was made.
    pub fn hold_until(&mut self, until: Mono) {
        self.not_before = self.not_before.max(until);
    }
}
