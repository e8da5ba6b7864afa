//! What is learned from each answer: an accepted call, a refusal, a failure.

use super::*;

impl Limiter {
    pub(super) fn accepted(&mut self, ticket: &Ticket, now: Mono) {
        let late = secs(ticket.sent, now) > ROUND_TRIP_LATE * self.round_trip;
        // A stall is counted once, when it ends, however many calls waited.
        if !self.was_stalled(ticket) {
            self.round_trip = smoothed(self.round_trip, secs(ticket.sent, now));
        }
        self.slow_start.accepted(now);
        if self.was_stalled(ticket) && !self.probing {
            (self.accepted_since, self.accepted) = (self.accepted_since + 1, self.accepted + 1);
            self.accepted_after_stall(ticket);
            if self.learn && self.failures.accepted(ticket.seq) {
                self.forget_refusals(now);
            }
            return;
        }
        self.in_flight_cap.accepted(ticket.in_flight, self.round_trip);
        self.accepted_most = self.accepted_most.max(ticket.in_flight);
        self.evidence.accepted(self.at_server(ticket));
        self.accepted_early(ticket);
        self.accepted_since += 1;
        self.accepted += 1;
        self.random.count(ticket.seq, ticket.sent, false);
        self.burst.accepted(ticket.seq);
        if !self.learn {
            return;
        }
        if self.failures.accepted(ticket.seq) {
            self.forget_refusals(now);
        }
        self.estimate.answered(now);
        if self.kind == LimitKind::Concurrency && !self.cooldowns.is_known() {
            self.pace_by_concurrency(now);
        }
        self.gaps.note(ticket.seq, ticket.sent, true);
        let before = ticket.seq.saturating_sub(self.refused);
        // What overtook a refused call says nothing about a server that refuses everything.
        let overtook = self.probing && self.kind == LimitKind::Concurrency && ticket.epoch != self.epoch;
        if !overtook && self.estimate.accepted(ticket.seq, ticket.sent, before, self.burst.lost()) {
            self.nothing_saved(now, late && !self.probing);
            self.probing = false;
            if self.accepted == 1 && self.refused > 0 && !self.inherited && ticket.epoch == self.epoch {
                // It had refused everything so far: that says nothing about its limit.
                self.forget_refusals(now);
                return;
            }
            let pace = self.pace.rate().filter(|_| self.kind == LimitKind::Rate);
            if pace.is_some_and(|pace| self.random.recognise(pace, self.seq)) {
                self.set_pace(now);
            }
            if self.kind == LimitKind::Rate && !self.random.is_known() {
                self.set_pace(now);
            }
        } else if !overtook && self.kind == LimitKind::Concurrency && !self.estimate.is_shut() {
            // The limit was proven during a probe, so there is no opening to wait for.
            self.probing = false;
        }
        let next = self.seq;
        let shortened = self.single_token.as_mut().is_some_and(|bucket| bucket.accepted(ticket.seq, next));
        if shortened || self.judge(now) {
            self.set_pace(now);
        }
    }

    /// Notes the answer in the mirrors of the server's table. If one is found by it, there is no other limit, and
    /// as many calls may be out as it needs. A server that says when to come back needs no mirror.
    pub(super) fn note_table(&mut self, ticket: &Ticket, feedback: Feedback) {
        match feedback {
            Feedback::Accepted => {}
            Feedback::Throttled { until: Some(_) } | Feedback::Failed { until: Some(_) } => {
                return self.tables.refute();
            }
            Feedback::Failed { .. } if !self.failures_are_limit() => return,
            Feedback::Throttled { .. } | Feedback::Failed { .. } => {
                let fresh = ticket.epoch == self.epoch && !self.was_stalled(ticket);
                return self.tables.refused(ticket.levels, ticket.sent, fresh);
            }
        }
        let cost = 1.0 + self.tables.rate().map_or(0.0, |rate| rate * self.refused_round_trip);
        if !self.tables.accepted(ticket.levels, ticket.sent, cost) {
            return;
        }
        let rate = self.tables.rate().unwrap_or(0.0);
        self.kind = LimitKind::Rate;
        (self.probing, self.probe_at, self.single_token) = (false, Mono::ZERO, None);
        self.in_flight_cap.lift();
        self.in_flight_cap.at_least(self.in_flight_for(rate));
    }

    pub(super) fn refusal(&mut self, ticket: &Ticket, now: Mono, until: Option<Mono>, hints: &Hints) {
        if let Some(until) = until {
            self.not_before = self.not_before.max(until);
        }
        let late = secs(ticket.sent, now) > ROUND_TRIP_LATE * self.round_trip;
        self.refused_round_trip = smoothed(self.refused_round_trip, secs(ticket.sent, now));
        if until.is_none() && self.was_stalled(ticket) {
            self.refused += 1;
            self.estimate.discount(ticket.seq);
            self.refused_after_stall(now);
            return;
        }
        let accepted = ticket.seq.saturating_sub(self.refused);
        let at_server = self.at_server(ticket);
        self.refused += 1;
        if !self.learn {
            return;
        }
        let fresh = ticket.epoch == self.epoch;
        // Refusals of a server that refuses everything are not random.
        if !self.probing {
            self.random.count(ticket.seq, ticket.sent, true);
        }
        self.gaps.note(ticket.seq, ticket.sent, false);
        if fresh && self.kind == LimitKind::Unknown {
            if let Some(time) = self.estimate.run_time(ticket.sent) {
                self.burst.first_run(time, accepted as f64);
            }
        } else if fresh {
            self.burst.refused(ticket.seq, self.pace.tokens(now));
        }
        self.estimate.refused(ticket.seq, ticket.sent, accepted, fresh);
        self.nothing_saved(now, late && !self.probing);
        let cooldown = until.map_or(0.0, |t| secs(now, t));
        if cooldown > COSTLY_COOLDOWN && !self.is_metered() {
            self.flights.refused(ticket.seq, ticket.sent);
        }
        if !fresh {
            if !self.flights.is_on() {
                self.cooldowns.refused_late(ticket.seq);
                self.refused_late(now, at_server);
            }
            return;
        }
        self.epoch += 1;
        if self.is_metered() {
            let spent = |m: &QuotaMeter| {
                let told = |q: &&Quota| m.is(q) && q.remaining == Some(0);
                hints.quotas.iter().flatten().any(|q| told(&q)) || hints.quotas[0].is_none()
            };
            let committed = self.committed();
            self.meters
                .iter_mut()
                .flatten()
                .filter(|m| spent(m))
                .for_each(|m| m.missed(now, ticket.sent, committed));
            return;
        }
        if cooldown > COSTLY_COOLDOWN && accepted == 0 && self.accepted == 0 && self.refused == 1 {
            // That the very first call is refused says nothing about the limit. If another is refused with it,
            // that is taken for the first.
            (self.probing, self.epoch) = (true, ticket.epoch);
            return;
        }
        if cooldown > COSTLY_COOLDOWN && self.flights.is_on() {
            self.accepted_since = 0;
            return;
        }
        if cooldown > COSTLY_COOLDOWN {
            self.refused_with_cooldown(ticket, now, accepted, at_server);
            return;
        }
        if self.random.is_known() {
            if self.judge(now) {
                self.set_pace(now);
            }
            return;
        }
        if self.tables.rate().is_some() || self.suspects_concurrency(ticket, now, accepted, at_server) {
            return;
        }
        if let Some(bucket) = &mut self.single_token {
            bucket.refused(self.seq);
            if bucket.is_refuted() {
                let rate = bucket.rate();
                (self.single_token, self.gaps) = (None, CallGaps::NEW);
                self.estimate.set(rate);
            }
        } else {
            self.single_token = self.gaps.single_token().map(SingleTokenBucket::new);
        }
        self.set_pace(now);
        if self.single_token.is_some() {
            self.pace.delay(now, 1.0);
            return;
        }
        if self.estimate.refusals() > 1 {
            self.pace.delay(now, self.estimate.counted_refusals());
        }
        if self.estimate.is_closed() {
            self.probe_closed(now);
        }
    }

    pub(super) fn failed(&mut self, ticket: &Ticket, now: Mono, until: Option<Mono>, hints: &Hints) {
        if let Some(until) = until {
            self.not_before = self.not_before.max(until);
        }
        if !self.learn {
            return;
        }
        if until.is_none() && !self.is_metered() {
            let alone = ticket.in_flight == 1 && ticket.epoch == self.epoch;
            match self.failures.failed(ticket.seq, alone, self.seq, now) {
                FailureStep::Refusal => return self.refusal(ticket, now, None, hints),
                FailureStep::Void => self.forget_refusals(now),
                FailureStep::Failure => {}
            }
        }
        // Where failures may still turn out to be refusals, what is out must fail too.
        let (out, time) = if self.failures.was_vain() { (0, 0.0) } else { (self.waiting(), self.round_trip) };
        if self.slow_start.failed(now, out, time, self.failures.random_share()) {
            self.in_flight_cap.restart();
        }
    }

    /// The refusals were none: what was learned from them is void.
    pub(super) fn forget_refusals(&mut self, now: Mono) {
        self.kind = LimitKind::Unknown;
        self.in_flight_cap.reopen(self.accepted_most);
        (self.pace, self.evidence) = (TokenBucket::OPEN, ConcurrencyEvidence::NEW);
        self.estimate = RateEstimate::from(now, self.seq, self.committed() as u64, None);
        (self.single_token, self.gaps, self.random) = (None, CallGaps::NEW, RandomRefusals::NEW);
        self.cooldowns = CooldownEstimate::NEW;
        self.tables.forget();
        (self.probing, self.probe_at) = (false, Mono::ZERO);
    }

    /// Judges a group of calls to a server that refuses at random. True if the pace may have changed.
    pub(super) fn judge(&mut self, now: Mono) -> bool {
        match self.random.judge(self.seq, self.in_flight, self.paced) {
            BlockVerdict::Nothing => return false,
            BlockVerdict::Usual if self.failures.is_tried() => {
                self.failures.random(self.seq);
                self.forget_refusals(now);
            }
            BlockVerdict::Over => {
                self.estimate.set(self.random.pace());
                self.failures.restart(self.seq);
            }
            BlockVerdict::Usual | BlockVerdict::Unusual => {}
        }
        true
    }
}
