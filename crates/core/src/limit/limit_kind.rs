//! Which kind of limit a refusal is taken for: concurrency (calls in flight) or rate (calls per time).
//!
//! The cheaper belief is tried first: a ceiling on calls in flight. If refusals go on below it, it was
//! the rate. What tells the two apart is how many calls were at the server when one was refused: those
//! accepted and not back. A concurrency limit never refuses while few are there, and hardly ever
//! accepts while as many are there as when it refused. Calls that were in flight together when the first
//! refusal came are a measurement for nothing: if one of them was refused when most others had come
//! back, it was the rate.
//!
//! Where an answer comes within a few milliseconds, to wait for the calls in flight and then to probe
//! with nothing else at the server costs nothing and tells the two apart with one call; else a bucket
//! that runs dry would refuse a whole flight once more.
//!
//! Where a refusal comes with a cooldown, the ceiling stays just below what was refused, the pace ramps
//! up from far below (`cooldown_estimate`), and whether more calls are allowed is probed once soon and
//! then ever more seldom.

use super::in_flight::ConcurrencyEvidence;
use super::rate_estimate::{RateEstimate, secs};
use super::token_bucket::TokenBucket;
use super::{Limiter, Ticket};
use crate::time::{Mono, seconds};

/// A server with a shorter round trip than this, in seconds, is probed alone after its first refusal.
const ROUND_TRIP_SHORT: f64 = 0.01;
/// Accepted calls from which on the server's concurrency says something.
const ACCEPTED_MIN: u64 = 4;
/// Calls in flight up to which a first refusal is more likely one of rate.
const IN_FLIGHT_FEW: u32 = 2;
/// Fewer calls than this at the server are not too many.
const AT_SERVER_MIN: u32 = 2;
/// Accepted calls, per call at the server, between two refusals that fit a supposed concurrency limit.
const ACCEPTED_PER_CALL: u64 = 4;
/// Accepted calls, per place in flight, up to which a refusal belongs to the first flight after a cooldown.
const FIRST_FLIGHTS: u64 = 2;
/// Shortest round trip, in seconds, by which the calls lost in a cooldown are counted.
const ROUND_TRIP_MIN: f64 = 1e-4;
/// Shortest round trip, in seconds, by which the first probe of a closed server is delayed,
const PROBE_ROUND_TRIP_MIN: f64 = 0.004;
/// and the share of the round trip after which it goes.
const PROBE_ROUND_TRIPS: f64 = 0.5;
/// Pace under a ceiling, as a factor of the pace at which calls come back, where the way is short.
const CEILING_PACE: f64 = 1.25;
/// The same once the ceiling has held: then it is not the gaps that let calls through.
const CEILING_PACE_STEADY: f64 = 3.0;
/// How much that factor falls where the way is long.
const CEILING_PACE_FALL: f64 = 0.23;
/// The way is short, by the same measure, below this.
const WAY_SHORT: f64 = 0.5;
/// Below this, calls under a ceiling that has held go out as they come back: to even them out costs more than
/// the empty places.
const WAY_EVEN: f64 = 0.8;
/// The way is long where a refused call takes the round trip of an accepted one divided by this, or more.
const WAY_DIVISOR: f64 = 5.0;

/// What a refusal is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitKind {
    /// Nothing was refused yet.
    Unknown,
    /// Too many calls in flight.
    Concurrency,
    /// Too many calls per time.
    Rate,
}

impl Limiter {
    /// Whether the refusal is taken for a concurrency limit.
    pub(super) fn suspects_concurrency(
        &mut self,
        ticket: &Ticket,
        now: Mono,
        accepted: u64,
        at_server: u32,
    ) -> bool {
        let idle = self.evidence.is_idle(at_server);
        let way_short = self.way() < WAY_SHORT;
        if self.kind == LimitKind::Concurrency && !idle && self.refused_early(ticket) {
            return true;
        }
        match self.kind {
            LimitKind::Unknown if ticket.in_flight > IN_FLIGHT_FEW && !idle => {
                self.kind = LimitKind::Concurrency;
                if self.round_trip < ROUND_TRIP_SHORT && accepted >= ACCEPTED_MIN {
                    (self.probe_at, self.probing) = (now + seconds(self.round_trip), true);
                }
            }
            LimitKind::Concurrency
                if !idle
                    && self.in_flight_cap.fits_concurrency(
                        ticket.in_flight,
                        self.accepted_since,
                        way_short,
                    ) => {}
            // Whether an interval explains the refusals is for `single_token` to decide.
            LimitKind::Rate if self.single_token.is_some() => return false,
            LimitKind::Rate => {
                let Some(calls) = self.evidence.refused(at_server) else { return false };
                self.kind = LimitKind::Concurrency;
                self.in_flight_cap.prove(calls);
                self.estimate = RateEstimate::from(now, ticket.seq, accepted, None);
                self.accepted_since = 0;
                self.pace_by_concurrency(now);
                return true;
            }
            _ => {
                self.blame_rate();
                return false;
            }
        }
        self.accepted_since = 0;
        self.in_flight_cap.lower(ticket.in_flight);
        self.pace_by_concurrency(now);
        true
    }

    /// A refusal of a call that was sent before the last one was known says how many calls were too many.
    pub(super) fn refused_late(&mut self, now: Mono, at_server: u32) {
        if self.kind != LimitKind::Concurrency {
            return;
        }
        let costly = self.cooldowns.is_known();
        // A flight that goes at once arrives in any order: its first calls may be refused for its last.
        let here = at_server.max(self.in_flight);
        let idle = if costly {
            here < AT_SERVER_MIN || self.evidence.is_idle(here)
        } else {
            self.evidence.is_idle(at_server)
        };
        if idle {
            self.blame_rate();
            if costly { self.set_pace(now) } else { self.probe_closed(now) }
        } else if costly && self.evidence.lower(here) {
            self.in_flight_cap.suppose_at_most(here);
        }
    }

    /// A refusal that comes with a cooldown. A first one may mean too many calls in flight: as long as none
    /// comes with fewer, they are the ceiling, while the pace ramps up.
    pub(super) fn refused_with_cooldown(
        &mut self,
        ticket: &Ticket,
        now: Mono,
        accepted: u64,
        at_server: u32,
    ) {
        let at_server = at_server.max(self.in_flight);
        let idle = at_server < AT_SERVER_MIN || self.evidence.is_idle(at_server);
        let cap = self.in_flight_cap.cap();
        // To probe for more costs a cooldown: ever more seldom.
        let round_trip = if self.round_trip > 0.0 { self.round_trip } else { secs(ticket.sent, now) };
        let cooldown_calls =
            secs(now, self.not_before) * f64::from(at_server) / round_trip.max(ROUND_TRIP_MIN);
        match self.kind {
            LimitKind::Unknown if !idle => {
                self.kind = LimitKind::Concurrency;
                self.in_flight_cap.suppose(at_server, cooldown_calls);
                self.evidence.suppose(at_server);
            }
            LimitKind::Concurrency
                if !idle
                    && if self.cooldowns.repeats_first() {
                        self.in_flight_cap.rose() && self.cooldowns.is_no_window(self.accepted_since)
                    } else {
                        self.in_flight_cap.rose() || !self.paced
                    }
                    && self.evidence.fits(at_server)
                    && self.accepted_since > ACCEPTED_PER_CALL * u64::from(at_server) =>
            {
                let calls = at_server.min(cap - 1);
                self.in_flight_cap.suppose(calls, cooldown_calls);
                self.refused_for_concurrency(calls);
                return;
            }
            // The first flight after a cooldown was refused: the ceiling was a call or two too high. Where the
            // way is long, an even pace gets more out of the server than a ceiling.
            LimitKind::Concurrency
                if !idle
                    && (self.cooldowns.repeats_first() || !self.paced && self.way() < WAY_SHORT)
                    && self.in_flight_cap.is_near(at_server)
                    && self.accepted_since <= FIRST_FLIGHTS * u64::from(cap)
                    && self.in_flight_cap.overshot() =>
            {
                let calls = at_server.min(cap - 1);
                self.in_flight_cap.suppose_less(calls);
                self.refused_for_concurrency(calls);
                return;
            }
            _ => {
                self.kind = LimitKind::Rate;
                self.in_flight_cap.lift();
            }
        }
        self.accepted_since = 0;
        self.cooldowns.refused(ticket.seq, ticket.sent, accepted, now, self.not_before, self.round_trip);
        if self.cooldowns.repeats_first() {
            self.in_flight_cap.start_small();
        }
        self.set_pace(now);
    }

    /// More than `calls` at the server were refused: the run says nothing about the rate.
    fn refused_for_concurrency(&mut self, calls: u32) {
        self.evidence.suppose(calls);
        self.accepted_since = 0;
        self.cooldowns.discard_run();
    }

    fn blame_rate(&mut self) {
        self.kind = LimitKind::Rate;
        self.in_flight_cap.lift();
        self.in_flight_cap.halve();
        (self.pace, self.evidence) = (TokenBucket::OPEN, ConcurrencyEvidence::NEW);
    }

    /// Probes a closed server with one call at a time, less and less often.
    pub(super) fn probe_closed(&mut self, now: Mono) {
        self.probing = true;
        let known = self.estimate.is_known();
        let pause_min = if known {
            1.0 / self.estimate.pace()
        } else {
            PROBE_ROUND_TRIPS * self.round_trip.max(PROBE_ROUND_TRIP_MIN)
        };
        let blind = !known && self.accepted >= ACCEPTED_MIN;
        self.probe_at = self.estimate.next_probe(now, pause_min, blind);
    }

    /// Calls that were accepted and not back when this one went.
    pub(super) fn at_server(&self, ticket: &Ticket) -> u32 {
        let at_server = ticket.seq.saturating_sub(self.refused).saturating_sub(ticket.accepted);
        at_server.min(u64::from(u32::MAX)) as u32
    }

    /// How long the way to the server is: 0 if calls take no time to travel, 1 if it is long.
    fn way(&self) -> f64 {
        (WAY_DIVISOR * self.refused_round_trip / self.round_trip).clamp(0.0, 1.0)
    }

    /// Under a ceiling calls go out one by one, not together: else a single-token bucket looks like
    /// a limit of one call in flight. A little faster than they come back, so that the ceiling holds
    /// them: where a longer gap lets a call more through, it was the gap.
    pub(super) fn pace_by_concurrency(&mut self, now: Mono) {
        if self.round_trip > 0.0 {
            // Places stand empty while calls travel: the farther, the more evenly they go.
            let way = self.way();
            let even = if self.in_flight_cap.is_firm() { WAY_EVEN } else { WAY_SHORT };
            let faster = if self.in_flight_cap.is_steady() && way < even {
                CEILING_PACE_STEADY
            } else {
                CEILING_PACE - CEILING_PACE_FALL * way
            };
            let calls = self.in_flight_cap.calls_paced();
            let rate = match self.hold() {
                Some(hold) => CEILING_PACE * calls / hold,
                None => faster * calls / self.round_trip,
            };
            self.pace.set(now, Some(rate), 1.0);
        }
    }
}
