//! Places that are free before their call is back.
//!
//! Where a server limits the calls at once, a place there is empty while an answer travels back and the next
//! call travels there. Whoever waits for the answer loses that time with every call: with a way of 3 ms and a
//! service of 20 ms an eighth. A call holds its place for the round trip less the way, and the way is what a
//! refused call takes. So once a ceiling has held, the next call may go when the oldest call under the ceiling
//! has been out for that long, though its answer is still to come. How much of the way can be gained depends on
//! how even the service is, so it is tried in small steps, and given back where such a call is refused.

use super::limit_kind::LimitKind;
use super::{Limiter, Ticket};
use crate::time::{Mono, seconds};

/// Calls whose time of sending is remembered, and so the highest ceiling under which this is tried.
const CALLS: usize = 64;
/// Share of the way that is gained by one step,
const STEP: f64 = 0.125;
/// and that is given back after a refusal: two steps, so that three in four calls are sent at a share that held.
const STEP_BACK: f64 = 0.25;
/// Share of the round trip that the way must take: a shorter one is not worth a refusal.
const WAY_MIN: f64 = 0.06;
/// and below which it must stay: a refusal that takes as long as an answer says nothing about the way.
const WAY_MAX: f64 = 0.5;
/// Calls sent early and accepted before the next step: at first,
const ACCEPTED_MIN: u32 = 10;
/// and at most, so that about one call in this many is refused for it;
const ACCEPTED_MAX: u32 = 320;
/// they grow by this factor with each refusal.
const ACCEPTED_FACTOR: u32 = 2;

/// When calls were sent, and how early the next may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turnover {
    /// When the last calls were sent, by their number, as a ring.
    sent: [Mono; CALLS],
    /// Share of the way that is gained.
    share: f64,
    /// Calls sent early and accepted since the share last changed.
    accepted: u32,
    /// How many of them the next step needs.
    accepted_needed: u32,
}

impl Turnover {
    pub(super) const NEW: Turnover =
        Turnover { sent: [Mono::ZERO; CALLS], share: STEP, accepted: 0, accepted_needed: ACCEPTED_MIN };

    /// A call goes out.
    pub(super) const fn sent(&mut self, seq: u64, now: Mono) {
        self.sent[(seq % CALLS as u64) as usize] = now;
    }

    /// When the call went out that was sent `calls` calls before call `seq`.
    fn sent_before(&self, seq: u64, calls: u32) -> Option<Mono> {
        let known = calls as usize <= CALLS;
        let seq = seq.checked_sub(calls.into()).filter(|_| known)?;
        Some(self.sent[(seq % CALLS as u64) as usize])
    }

    /// A call that was sent early was accepted.
    const fn accepted(&mut self) {
        self.accepted += 1;
        if self.accepted >= self.accepted_needed {
            (self.share, self.accepted) = ((self.share + STEP).min(1.0), 0);
        }
    }

    /// A call that was sent early was refused.
    const fn refused(&mut self) {
        self.share = (self.share - STEP_BACK).max(0.0);
        self.accepted = 0;
        let more = self.accepted_needed * ACCEPTED_FACTOR;
        self.accepted_needed = if more < ACCEPTED_MAX { more } else { ACCEPTED_MAX };
    }
}

impl Limiter {
    /// Whether places may be taken before their call is back.
    fn turns_over(&self) -> bool {
        let idle = self.probing || self.late.presumed() > 0 || self.cooldowns.is_known();
        self.kind == LimitKind::Concurrency && !idle && self.in_flight_cap.is_firm()
    }

    /// Seconds for which a call is taken to hold its place at the server.
    pub(super) fn hold(&self) -> Option<f64> {
        let way = self.refused_round_trip;
        let known = way > WAY_MIN * self.round_trip && way < WAY_MAX * self.round_trip;
        (known && self.turns_over() && self.turnover.share > 0.0)
            .then_some(self.round_trip - self.turnover.share * way)
    }

    /// When the next place is taken to be free though all calls are still out.
    pub(super) fn free_early(&self) -> Option<Mono> {
        let hold = self.hold()?;
        let oldest = self.turnover.sent_before(self.seq, self.in_flight_cap.cap())?;
        (self.in_flight < self.in_flight_cap.max()).then(|| oldest + seconds(hold))
    }

    /// A call was accepted that had been sent early.
    pub(super) fn accepted_early(&mut self, ticket: &Ticket) {
        if ticket.early && !self.in_flight_cap.rose() {
            self.turnover.accepted();
        }
    }

    /// Whether a refusal is explained by how early the call was sent: unless the ceiling has just risen.
    pub(super) fn refused_early(&mut self, ticket: &Ticket) -> bool {
        let early = ticket.early && !self.in_flight_cap.rose();
        if early {
            self.turnover.refused();
        }
        early
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gained_grows_in_steps_and_is_given_back_ever_longer() {
        let mut turnover = Turnover::NEW;
        (0..8 * ACCEPTED_MIN).for_each(|_| turnover.accepted());
        assert_eq!(turnover.share, 1.0, "no more than the way");
        turnover.refused();
        (0..ACCEPTED_MIN).for_each(|_| turnover.accepted());
        assert_eq!(turnover.share, 1.0 - STEP_BACK, "the next step needs twice as many");
        (0..20).for_each(|_| turnover.refused());
        assert_eq!((turnover.share, turnover.accepted_needed), (0.0, ACCEPTED_MAX));
    }

    #[test]
    fn calls_are_remembered_up_to_the_highest_ceiling() {
        let mut turnover = Turnover::NEW;
        (0..100).for_each(|seq| turnover.sent(seq, Mono::from_millis(seq)));
        assert_eq!(turnover.sent_before(100, 8), Some(Mono::from_millis(92)));
        assert_eq!(turnover.sent_before(100, 64), Some(Mono::from_millis(36)));
        assert_eq!((turnover.sent_before(100, 65), turnover.sent_before(5, 8)), (None, None));
    }
}
