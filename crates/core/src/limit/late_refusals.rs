//! Refusals that come late: a tarpit holds a refused call for seconds before it says so.
//!
//! To learn of a refusal seconds later is too late: meanwhile everything else was refused too. But a
//! server that answers within milliseconds and then not at all has stopped to do so. If several calls
//! are out and none comes back for some round trips, they are taken for refused, and the server is probed
//! as one that is closed (`rate_estimate`). What comes back then decides:
//!
//! | next comes back | the calls were |
//! |---|---|
//! | later calls, accepted, twice over | refused, and their answers will come late |
//! | they, all refused | refused |
//! | one of them, accepted | late: the server or the lane stood still, and nothing is learned |
//! | one of them, failed | failed, as without all this |
//!
//! Where refusals come late each one costs many calls, so the pace then stays below the rate.

use super::limit_kind::LimitKind;
use super::rate_estimate::{RateEstimate, secs};
use super::token_bucket::TokenBucket;
use super::{Feedback, Limiter, Ticket, smoothed};
use crate::time::{Mono, seconds};

/// Calls out of which none comes back: one or two may simply take long.
const CALLS_MIN: u32 = 3;
/// Round trips without an answer after which calls are taken for refused.
const ROUND_TRIPS: f64 = 4.0;
/// Shortest such time, in seconds: timers and schedulers are late by less.
const SECONDS_MIN: f64 = 0.03;
/// Accepted calls from which on the round trip is known.
const ACCEPTED_MIN: u64 = 8;
/// Factor of the time after calls that were taken for refused and were merely slow.
const PATIENCE_GROWTH: f64 = 2.0;
/// Largest factor of the time.
const PATIENCE_MAX: f64 = 64.0;
/// Looks per time without an answer: where all calls are out, somebody must look.
const LOOKS: f64 = 4.0;

/// What is known of the limit, and the fresh refusals until then.
type KnownLimit = (RateEstimate, LimitKind, u32);

/// Calls that do not come back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LateRefusals {
    /// Since when as many calls are out as count, and none has come back.
    since: Mono,
    /// Since when calls are out and none has come back: from the first that went after the last answer, probes apart.
    quiet: Mono,
    /// No call has gone since the last answer.
    answered: bool,
    /// Calls that are out and were refused: later ones were accepted twice over.
    held: u32,
    /// They were sent before this call.
    held_before: u64,
    /// What was known before the first of them were taken for refused.
    held_known: Option<KnownLimit>,
    /// Calls that are out and taken for refused besides.
    presumed: u32,
    /// They were sent before this call.
    before: u64,
    /// When a call later than these was accepted in time.
    overtaken: Option<Mono>,
    /// The last of them that came back refused, and when it was sent.
    refused: Option<(u64, Mono)>,
    /// What was known before they were taken for refused.
    known: Option<KnownLimit>,
    /// The first probe that was taken for refused with them, if one was, and what was known before the last.
    probe: Option<(u64, RateEstimate)>,
    /// Factor of the time without an answer.
    patience: f64,
    /// The call that came back last was refused, and late.
    last_was_late: bool,
}

impl LateRefusals {
    pub(super) const NEW: LateRefusals = LateRefusals {
        since: Mono::ZERO,
        quiet: Mono::ZERO,
        answered: true,
        held: 0,
        held_before: 0,
        held_known: None,
        presumed: 0,
        before: 0,
        overtaken: None,
        refused: None,
        known: None,
        probe: None,
        patience: 1.0,
        last_was_late: false,
    };

    /// Calls that are out and taken for refused.
    pub(super) const fn presumed(&self) -> u32 {
        self.held + self.presumed
    }

    /// Whether the call that came back last was refused, and late.
    pub(super) const fn last_was_late(&self) -> bool {
        self.last_was_late
    }

    /// A call was abandoned.
    pub(super) const fn released(&mut self, ticket: &Ticket) {
        if self.is_held(ticket.seq) {
            self.held -= 1;
        } else if self.is_presumed(ticket.seq) {
            self.presumed -= 1;
        }
    }

    /// Whether the call is one that was refused, as later ones have shown.
    const fn is_held(&self, seq: u64) -> bool {
        self.held > 0 && seq < self.held_before
    }

    /// Whether the call is one that was taken for refused besides.
    const fn is_presumed(&self, seq: u64) -> bool {
        self.presumed > 0 && seq < self.before && !self.is_held(seq)
    }

    /// A call goes out, the `waiting`th that is not taken for refused.
    pub(super) fn sent(&mut self, waiting: u32, probing: bool, now: Mono) {
        if waiting <= needed(probing) {
            self.since = now;
        }
        if self.presumed == 0 && core::mem::take(&mut self.answered) {
            self.quiet = now;
        }
    }
}

/// Calls out that count.
const fn needed(probing: bool) -> u32 {
    if probing { 1 } else { CALLS_MIN }
}

impl Limiter {
    /// Calls in flight, without those that are taken for refused.
    pub(super) const fn waiting(&self) -> u32 {
        self.in_flight.saturating_sub(self.late.presumed())
    }

    /// Seconds without an answer after which calls are taken for refused; none if nothing can be said.
    fn silence_max(&self) -> Option<f64> {
        let awaited = self.probing && self.late.presumed == 0;
        (self.hears_silence() && !awaited && self.waiting() >= needed(self.probing))
            .then(|| self.round_trips_silent() * self.late.patience)
    }

    /// Whether a time without an answer says something: the round trip is known, and no header tells more.
    fn hears_silence(&self) -> bool {
        self.learn && self.accepted >= ACCEPTED_MIN && !self.is_metered()
    }

    /// Seconds without an answer that are more than usual.
    fn round_trips_silent(&self) -> f64 {
        (ROUND_TRIPS * self.round_trip).max(SECONDS_MIN)
    }

    /// When to ask again though all calls are out, if nothing comes back before.
    #[must_use]
    pub fn full_until(&self, now: Mono) -> Option<Mono> {
        let look = self.silence_max().map(|max| {
            let left = max - secs(self.late.since, now);
            now + seconds(left.clamp(max / LOOKS, max))
        });
        let place = self.free_early().filter(|at| *at > now);
        look.into_iter().chain(place).min()
    }

    /// Takes calls for refused if none has come back for long.
    pub(super) fn presume(&mut self, now: Mono) {
        let Some(max) = self.silence_max() else { return };
        if secs(self.late.since, now) < max {
            return;
        }
        // Which calls such a server counted, and when, is known too late.
        self.tables.refute();
        let calls = self.waiting();
        if self.late.presumed == 0 {
            self.late.known = Some((self.estimate, self.kind, self.epoch));
            (self.late.overtaken, self.late.refused, self.late.probe) = (None, None, None);
        } else {
            let first = self.late.probe.map_or(self.late.before, |probe| probe.0);
            self.late.probe = Some((first, self.estimate));
        }
        let accepted = self.seq.saturating_sub(self.refused).saturating_sub(u64::from(calls));
        for _ in 0..calls {
            self.estimate.refused(self.seq.saturating_sub(1), self.late.since, accepted, false);
        }
        self.estimate.closed_late(max);
        self.refused += u64::from(calls);
        (self.late.presumed, self.late.before) = (self.late.presumed + calls, self.seq);
        self.epoch += 1;
        if self.kind == LimitKind::Unknown {
            self.kind = LimitKind::Rate;
        }
        self.probe_closed(now);
    }

    /// A call came back. True if that says nothing more: it had been taken for refused, and was.
    pub(super) fn settled_late(&mut self, ticket: &Ticket, now: Mono, feedback: Feedback) -> bool {
        self.late.last_was_late = false;
        let silence = secs(self.late.quiet, now);
        (self.late.since, self.late.quiet, self.late.answered) = (now, now, true);
        let accepted = feedback == Feedback::Accepted;
        let most = self.round_trips_silent();
        let told = accepted || self.refused_round_trip > 0.0 && self.refused_round_trip < most;
        // A probe may come back in time although others do not.
        let waited = self.late.presumed == 0 || secs(ticket.sent, now) > most;
        if self.hears_silence() && told && silence > most && waited {
            if accepted {
                self.round_trip = smoothed(self.round_trip, secs(ticket.sent, now));
            }
            self.stall_ended(now, silence);
        }
        if self.late.is_held(ticket.seq) {
            self.late.held -= 1;
            if accepted {
                self.refused = self.refused.saturating_sub(1);
                self.late.patience = (PATIENCE_GROWTH * self.late.patience).min(PATIENCE_MAX);
            }
            self.late.last_was_late = !accepted;
            return !accepted;
        }
        if !self.late.is_presumed(ticket.seq) {
            if accepted && self.late.presumed > 0 {
                self.overtaken(ticket, now);
            }
            return false;
        }
        self.late.presumed -= 1;
        if matches!(feedback, Feedback::Throttled { .. }) {
            self.late.refused = Some((ticket.seq, ticket.sent));
            self.late.last_was_late = true;
            return true;
        }
        match self.late.probe.filter(|probe| accepted && ticket.seq >= probe.0) {
            Some((_, estimate)) => self.probe_stood_still(ticket, now, estimate),
            None => self.stood_still(now),
        }
        false
    }

    /// A probe that was taken for refused was merely late: that says nothing about the calls before it.
    fn probe_stood_still(&mut self, ticket: &Ticket, now: Mono, before: RateEstimate) {
        self.refused = self.refused.saturating_sub(1);
        if ticket.seq + 1 == self.late.before {
            self.estimate = before;
        }
        self.overtaken(ticket, now);
    }

    /// A call was not made, or nobody will say what came of it, because its maker is gone. That it did not come
    /// back says nothing about the server.
    pub(crate) fn withdraw(&mut self, ticket: &Ticket, now: Mono) {
        self.returned(ticket);
        if self.late.is_held(ticket.seq) {
            self.late.held -= 1;
            self.late.presumed += core::mem::take(&mut self.late.held);
            self.late.known = self.late.held_known.take();
            self.stood_still(now);
        } else if self.late.is_presumed(ticket.seq) {
            self.late.presumed -= 1;
            self.late.since = now;
            self.stood_still(now);
        }
    }

    /// A call was accepted while others that were sent before it are still out.
    fn overtaken(&mut self, ticket: &Ticket, now: Mono) {
        match self.late.overtaken {
            Some(first) if ticket.sent >= first => {
                if self.late.held == 0 {
                    self.late.held_known = self.late.known;
                }
                self.late.held += core::mem::take(&mut self.late.presumed);
                self.late.held_before = self.late.before;
            }
            Some(_) => {}
            None if secs(ticket.sent, now) < ROUND_TRIPS * self.round_trip => self.late.overtaken = Some(now),
            None => {}
        }
    }

    /// Calls that were taken for refused were merely late: goes back to what was known before.
    fn stood_still(&mut self, now: Mono) {
        self.refused = self.refused.saturating_sub(u64::from(self.late.presumed) + 1);
        self.late.presumed = 0;
        let Some((estimate, kind, epoch)) = self.late.known.take() else { return };
        (self.estimate, self.kind, self.epoch) = (estimate, kind, epoch);
        (self.probing, self.probe_at) = (false, Mono::ZERO);
        if let Some((seq, sent)) = self.late.refused.take() {
            // Some had queued, and the server did not take all of them.
            let accepted = seq.saturating_sub(self.refused);
            self.estimate.refused(seq, sent, accepted, true);
            self.nothing_saved(now, false);
        }
        if self.estimate.is_known() {
            self.set_pace(now);
        } else if self.kind == LimitKind::Unknown {
            self.pace = TokenBucket::OPEN;
        }
        self.catch_up(now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LimitConfig, LimiterAdmit};
    use super::*;
    use crate::hint::Hints;
    use alloc::vec::Vec;

    const FAILED: Feedback = Feedback::Failed { until: None };

    fn ms(ms: u64) -> Mono {
        Mono::from_millis(ms)
    }

    fn settle(limiter: &mut Limiter, ticket: Ticket, now: Mono, feedback: Feedback) {
        limiter.settle(ticket, now, feedback, &Hints::default());
    }

    /// All calls that go now.
    fn sent(limiter: &mut Limiter, now: Mono) -> Vec<Ticket> {
        core::iter::from_fn(|| match limiter.admit(now) {
            LimiterAdmit::Go(ticket) => Some(ticket),
            LimiterAdmit::At(_) | LimiterAdmit::Full => None,
        })
        .collect()
    }

    /// A lane whose calls came back after 20 ms each, and its calls that are out since 60 ms.
    fn waiting() -> (Limiter, Vec<Ticket>) {
        let mut limiter = Limiter::new(&LimitConfig::default());
        for round in 0..3 {
            for ticket in sent(&mut limiter, ms(20 * round)) {
                settle(&mut limiter, ticket, ms(20 * round + 20), Feedback::Accepted);
            }
        }
        let out = sent(&mut limiter, ms(60));
        assert!(out.len() >= 8);
        (limiter, out)
    }

    #[test]
    fn calls_that_later_ones_overtake_were_refused_and_cost_nothing() {
        let (mut limiter, out) = waiting();
        assert_eq!(sent(&mut limiter, ms(120)), [], "it waits for the answers");
        assert!(limiter.full_until(ms(120)).is_some_and(|at| at <= ms(200)));
        let mut now = ms(145);
        for _ in 0..2 {
            let probe = loop {
                match limiter.admit(now) {
                    LimiterAdmit::Go(ticket) => break ticket,
                    LimiterAdmit::At(at) => now = at,
                    LimiterAdmit::Full => panic!("a probe must go"),
                }
            };
            now += core::time::Duration::from_millis(20);
            settle(&mut limiter, probe, now, Feedback::Accepted);
        }
        assert!(limiter.rate().is_some(), "what was accepted so far is a measurement");
        for ticket in out {
            settle(&mut limiter, ticket, ms(3060), FAILED);
            assert!(limiter.failures_are_limit() && !limiter.failures_are_health());
        }
        assert_eq!(limiter.in_flight(), 0);
    }

    #[test]
    fn calls_that_are_late_and_accepted_teach_nothing() {
        let (mut limiter, out) = waiting();
        let before = (limiter.kind, limiter.refused, limiter.estimate.is_known());
        assert_eq!(sent(&mut limiter, ms(160)), []);
        assert_eq!(limiter.waiting(), 0);
        for ticket in out {
            settle(&mut limiter, ticket, ms(400), Feedback::Accepted);
        }
        assert_eq!((limiter.kind, limiter.refused, limiter.estimate.is_known()), before);
        assert!(sent(&mut limiter, ms(400)).len() >= 8, "it goes on as before");
    }

    #[test]
    fn calls_whose_maker_is_gone_teach_nothing() {
        let (mut limiter, out) = waiting();
        let before = (limiter.kind, limiter.refused, limiter.estimate.is_known());
        assert_eq!(sent(&mut limiter, ms(160)), []);
        assert_eq!(limiter.waiting(), 0);
        for ticket in &out {
            limiter.withdraw(ticket, ms(1600));
        }
        assert_eq!((limiter.kind, limiter.refused, limiter.estimate.is_known()), before);
        assert!(sent(&mut limiter, ms(1600)).len() >= 8, "it goes on as before");
    }

    #[test]
    fn calls_that_fail_before_any_other_is_accepted_are_failures() {
        let (mut limiter, out) = waiting();
        assert_eq!(sent(&mut limiter, ms(160)), []);
        for ticket in out {
            settle(&mut limiter, ticket, ms(30_000), FAILED);
            assert!(!limiter.late.last_was_late());
        }
    }
}
