//! The pace that follows from what is known, and the counters that headers tell.

use super::*;

impl Limiter {
    /// A call goes by the pace. If the lane could not send for a while, what the server has saved meanwhile
    /// may go at once.
    pub(super) fn catch_up(&mut self, now: Mono) {
        let Some(rate) = self.pace.rate() else { return };
        let measured =
            self.kind == LimitKind::Rate && self.single_token.is_none() && !self.estimate.is_guess();
        if self.probing || self.cooldowns.is_known() || !measured {
            return;
        }
        let tokens = self.pace.tokens(now);
        if let Some(saved) = self.burst.stalled(self.pace.idle(), rate) {
            self.pace.grant(now, saved);
        } else if self.burst.sent(self.seq, tokens, rate) {
            self.pace.set(now, Some(rate), 1.0);
        }
    }

    /// The server has just refused, or has just opened: it has nothing saved. It may have stood still before.
    pub(super) fn nothing_saved(&mut self, now: Mono, stood_still: bool) {
        if !self.cooldowns.is_known() {
            self.pace.empty_to(now, 1.0);
        }
        self.burst.spent(self.pace.idle(), stood_still);
    }

    pub(super) fn set_pace(&mut self, now: Mono) {
        if self.flights.is_on() {
            self.pace = TokenBucket::OPEN;
            return;
        }
        let (rate, burst) = match () {
            () if self.cooldowns.is_known() => (self.cooldowns.pace(), self.cooldowns.burst()),
            () if self.random.is_known() => (self.random.pace(), 1.0),
            () if self.single_token.is_some() => {
                (self.single_token.as_ref().map_or(1.0, SingleTokenBucket::rate), 1.0)
            }
            () if self.estimate.is_known() => {
                (self.estimate.pace(), if self.burst.is_catching_up() { self.pace.tokens(now) } else { 1.0 })
            }
            () => return,
        };
        self.pace.set(now, Some(rate), burst);
        // What rests on a few calls may be far too high.
        let measured = self.cooldowns.is_known() || self.random.is_known() || self.single_token.is_some();
        let guessed = !measured && self.estimate.is_guess();
        let needed = if guessed { IN_FLIGHT_MIN } else { self.in_flight_for(rate) };
        self.in_flight_cap.at_least(needed);
    }

    /// Calls in flight that a rate needs, in calls per second.
    pub(super) fn in_flight_for(&self, rate: f64) -> f64 {
        IN_FLIGHT_PER_RATE * rate * self.round_trip + IN_FLIGHT_MIN
    }

    /// Calls sent and not refused.
    pub(super) fn committed(&self) -> f64 {
        self.seq.saturating_sub(self.refused) as f64
    }

    /// Whether headers tell a quota that is followed.
    pub(super) fn is_metered(&self) -> bool {
        self.meters.iter().any(Option::is_some)
    }

    /// Follows the counters that the headers tell.
    pub(super) fn mirror(&mut self, ticket: &Ticket, now: Mono, feedback: Feedback, hints: &Hints) {
        if self.headers_wrong {
            return;
        }
        let told = |q: &&Quota| q.limit.is_some() && (q.remaining.is_some() || q.window.is_some());
        if !hints.quotas.iter().flatten().any(|q| told(&q)) {
            if feedback == Feedback::Accepted {
                self.meters.iter_mut().flatten().for_each(QuotaMeter::told_nothing);
            }
            return;
        }
        let this = u64::from(feedback == Feedback::Accepted);
        // Sure are those that had come back when it was sent. Calls that go one after the other do not
        // overtake each other on their way.
        let before = (ticket.seq + this).saturating_sub(self.refused).min(self.accepted);
        let accepted = if ticket.evenly { before } else { ticket.accepted + this } as f64;
        let answer = AnswerContext {
            sent: ticket.sent,
            now,
            accepted,
            in_flight: f64::from(self.in_flight),
            in_flight_sent: f64::from(ticket.in_flight.saturating_sub(1)),
        };
        for slot in &mut self.meters {
            let told = |m: &QuotaMeter| hints.quotas.iter().flatten().any(|q| m.is(q));
            if slot.as_mut().is_some_and(|m| !told(m) && m.told_others()) {
                *slot = None;
            }
        }
        for quota in hints.quotas.iter().flatten().filter(told) {
            if let Some(meter) = self.meters.iter_mut().flatten().find(|m| m.is(quota)) {
                meter.told(quota, &answer);
            } else if let Some(free) = self.meters.iter_mut().find(|m| m.is_none()) {
                *free = QuotaMeter::new(quota, &answer);
                if free.is_some() {
                    self.in_flight_cap.lift();
                    // What is left may go.
                    self.in_flight_cap.at_least(quota.remaining.unwrap_or(0) as f64);
                }
                if self.meters.iter().flatten().count() > 1 {
                    self.meters.iter_mut().flatten().for_each(QuotaMeter::set_has_others);
                }
            }
        }
        if self.meters.iter().flatten().any(QuotaMeter::is_wrong) {
            let rate = self.meters.iter().flatten().filter_map(QuotaMeter::rate_min).min_by(f64::total_cmp);
            (self.meters, self.headers_wrong, self.kind) = ([None; METERS], true, LimitKind::Rate);
            // What was accepted so far is less than the limit, but something.
            let rate = rate.or_else(|| self.estimate.accepted_rate(now, self.accepted));
            self.estimate = RateEstimate::from(now, ticket.seq, self.committed() as u64, rate);
            self.set_pace(now);
        }
    }
}
