//! What a refusal is taken for: too many calls at once, or too many per time.
//!
//! The cheaper belief is tried first: a ceiling on calls out. If refusals go on below it, it was the
//! rate. What tells the two apart is how many calls were at the server when one was refused: those
//! accepted and not back. A limit of calls at once never refuses while few are there, and hardly ever
//! accepts while as many are there as when it refused. Calls that were out together when the first
//! refusal came are a measurement for nothing: if one of them was refused when most others had come
//! back, it was the rate.
//!
//! Where an answer comes within a few milliseconds, to wait for the calls that are out and then to ask
//! with nothing else at the server costs nothing and tells the two apart with one call; else a bucket
//! that runs dry would refuse a whole flight once more.
//!
//! Where a refusal silences the lane the ceiling stays just below what was refused, the pace grows
//! from far below (`cooldown_estimate`), and whether more calls are allowed is tried once soon and then ever
//! more seldom.

use super::in_flight::Crowd;
use super::rate_estimate::{Track, secs};
use super::token_bucket::Pace;
use super::{Limiter, Ticket};
use crate::time::{Mono, seconds};

/// A server that answers sooner, in seconds, is asked alone after its first refusal.
const SOON: f64 = 0.01;
/// Calls that it must have accepted: fewer say nothing about how many it bears.
const SOME: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspect {
    Nothing,
    /// Too many calls out at once.
    Flight,
    /// Too many calls per time.
    Rate,
}

impl Limiter {
    /// Whether the refusal is taken for too many calls at once.
    pub(super) fn suspects_flight(&mut self, ticket: &Ticket, now: Mono, accepted: u64, held: u32) -> bool {
        let idle = self.crowd.is_idle(held);
        match self.suspect {
            // Two calls at once are more likely too many per time.
            Suspect::Nothing if ticket.flight > 2 && !idle => {
                self.suspect = Suspect::Flight;
                if self.rtt < SOON && accepted >= SOME {
                    (self.hold, self.starved) = (now + seconds(self.rtt), true);
                }
            }
            Suspect::Flight if !idle && self.flight.blames(ticket.flight, self.since) => {}
            Suspect::Rate => {
                let Some(calls) = self.crowd.refused(held) else { return false };
                self.suspect = Suspect::Flight;
                self.flight.convict(calls);
                (self.track, self.tight) = (Track::from(now, ticket.seq, accepted, None), None);
                self.since = 0;
                self.pace_by_flight(now);
                return true;
            }
            _ => {
                self.blame_rate();
                return false;
            }
        }
        self.since = 0;
        self.flight.lower(ticket.flight);
        self.pace_by_flight(now);
        true
    }

    /// A refusal of a call that was sent before the last one was known says how many calls were too many.
    pub(super) fn stale(&mut self, now: Mono, held: u32) {
        if self.suspect != Suspect::Flight {
            return;
        }
        let dear = self.pauses.known();
        let here = held.max(self.in_flight);
        if self.crowd.is_idle(held) || dear && here < 2 {
            self.blame_rate();
            if dear { self.set_pace(now) } else { self.starve(now) }
        } else if dear && self.crowd.lower(here) {
            self.flight.suppose_less(here);
        }
    }

    /// A refusal that silences the lane. A first one may mean too many calls at once: as long as none
    /// comes with fewer, they are the ceiling, while the pace grows.
    pub(super) fn dear(&mut self, ticket: &Ticket, now: Mono, accepted: u64, held: u32) {
        let held = held.max(self.in_flight);
        let idle = held < 2 || self.crowd.is_idle(held);
        let cap = self.flight.cap();
        // To ask for more costs a silence: ever more seldom.
        let rtt = if self.rtt > 0.0 { self.rtt } else { secs(ticket.sent, now) };
        let silence = secs(now, self.gate) * f64::from(held) / rtt.max(1e-4);
        match self.suspect {
            Suspect::Nothing if !idle => {
                self.suspect = Suspect::Flight;
                self.flight.suppose(held, silence);
                self.crowd.suppose(held);
            }
            Suspect::Flight
                if !idle
                    && (self.flight.rose() || !self.paced)
                    && self.crowd.fits(held)
                    && self.since > 4 * u64::from(held) =>
            {
                let calls = held.min(cap - 1);
                self.flight.suppose(calls, silence);
                self.crowd.suppose(calls);
                self.since = 0;
                self.pauses.again();
                return;
            }
            _ => {
                self.suspect = Suspect::Rate;
                self.flight.lift();
            }
        }
        self.since = 0;
        self.pauses.refused(ticket.seq, ticket.sent, accepted, now, self.gate, self.rtt);
        self.set_pace(now);
    }

    fn blame_rate(&mut self) {
        self.suspect = Suspect::Rate;
        self.flight.lift();
        self.flight.halve();
        (self.pace, self.crowd) = (Pace::OPEN, Crowd::NEW);
    }

    /// Asks less and less often.
    pub(super) fn starve(&mut self, now: Mono) {
        self.starved = true;
        let least = if self.track.known() { 1.0 / self.track.rate() } else { 0.5 * self.rtt.max(0.004) };
        let blind = !self.track.known() && self.done >= SOME;
        self.hold = self.track.hold(now, least, blind);
    }

    /// Calls that were accepted and not back when this one went.
    pub(super) fn held(&self, ticket: &Ticket) -> u32 {
        ticket.seq.saturating_sub(self.refused).saturating_sub(ticket.done).min(u64::from(u32::MAX)) as u32
    }

    /// Under a ceiling calls go out one by one, not together: else a bucket of one token looks like
    /// a limit of one call at once. A little faster than they come back, so that the ceiling holds
    /// them: where a wider gap lets a call more through, it was the gap.
    pub(super) fn pace_by_flight(&mut self, now: Mono) {
        if self.rtt > 0.0 {
            // Places stand empty while calls travel: the farther, the more evenly they go.
            let faster = 1.25 - 0.23 * (5.0 * self.way / self.rtt).clamp(0.0, 1.0);
            let rate = faster * f64::from(self.flight.cap()) / self.rtt;
            self.pace.set(now, Some(rate), 1.0);
        }
    }
}
