//! How many calls may be in flight.
//!
//! A lane opens slowly: calls that are in flight when the first refusal comes back are wasted. When a
//! bucket of `B` tokens runs dry during a growth of `g` per round trip, about `g × B` calls are
//! refused; so the cap doubles per round trip up to [`DOUBLING_CAP`] and grows by a third per round trip
//! above, and where round trips are shorter than [`ROUND_TRIP_MIN`] it grows per time: a bucket next
//! door is empty in a millisecond.
//!
//! A server may also limit concurrency and not calls per time. Pacing cannot cure that, a
//! ceiling can: it falls below what was refused and rises by one after some accepted calls, a few at
//! first, twice as many after each refusal, up to [`ACCEPTED_MAX`], and half as many after a second rise
//! in a row, so that about one call in that many finds the limit again.
//!
//! What was taken for a rate limit may be a concurrency limit: [`ConcurrencyEvidence`] tells by how
//! many calls were at the server when one was refused.

/// Calls in flight that a new lane begins with.
const START: f64 = 4.0;
/// Calls in flight up to which the cap doubles per round trip.
const DOUBLING_CAP: f64 = 8.0;
/// Growth of the cap per accepted call below [`DOUBLING_CAP`]: doubles it per round trip.
const GROWTH_DOUBLING: f64 = 1.0;
/// Growth of the cap per accepted call above [`DOUBLING_CAP`]: a third per round trip.
const GROWTH: f64 = 0.34;
/// The cap grows when a call saw at least this share of it in flight: an unused cap says nothing.
const USED_SHARE: f64 = 0.5;
/// Round trip, in seconds, below which the cap grows per time and not per round trip.
const ROUND_TRIP_MIN: f64 = 0.002;
/// Most accepted calls after which the ceiling rises.
const ACCEPTED_MAX: u32 = 160;
/// Fewest accepted calls after which the ceiling rises.
const ACCEPTED_MIN: u32 = 10;
/// Accepted calls after which the ceiling rises, from which on it is taken to hold.
const ACCEPTED_STEADY: u32 = 80;
/// Lowest ceiling that is taken to hold: a bucket of a single token looks like a lower one.
const STEADY_MIN: f64 = 4.0;
/// Lowest ceiling that is as good as proven when it holds, where the way is short.
const STEADY_PROVEN: u32 = 6;
/// Calls by which the pace is lower at first when a ceiling below `STEADY_MIN` rises.
const TRIED_LESS: f64 = 0.75;
/// Factor by which they become more after a refusal, and fewer after a second rise in a row.
const ACCEPTED_FACTOR: u32 = 2;
/// Tolerance, in calls, when a call counts as sent at the ceiling.
const CEILING_TOLERANCE: f64 = 0.5;
/// Share of a supposed limit by which its ceiling rises.
const SUPPOSED_RISE: f64 = 0.5;
/// Accepted calls, beyond one per place in flight, between two refusals that fit a concurrency limit.
const ACCEPTED_BETWEEN: u64 = 4;
/// log2 of the growth of the silence after which a supposed limit is probed again ...
const PROBE_GROWTH_LOG2: f64 = 4.0;
/// ... which grows this often.
const PROBE_GROWTHS_MAX: u32 = 4;
/// Accepted calls, per call of a supposed limit, before its ceiling rises: enough that a refusal above it fits.
const SUPPOSED_ACCEPTED: f64 = 7.0;
/// A limit of so few calls may rather be a bucket of a single token,
const CALLS_FEW: usize = 4;
/// if as many calls at once as were refused were accepted so often, and no less often than refused.
const FEW_ACCEPTED: u32 = 3;
/// How often in a row the ceiling may prove too high in the first flight after a cooldown.
const OVERSHOTS_MAX: u32 = 1;
/// Suppositions from which on a ceiling has held: one more than the first.
const HELD_SUPPOSITIONS: u32 = 2;
/// Share of the calls at a first refusal that may have been on their way there or from there.
const TRAVELLING_SHARE: f64 = 0.125;
/// Share of the cap that is left when the limit turns out to be one of rate.
const RATE_LIMIT_SHARE: f64 = 0.5;
/// Refusals in a row that do not fit and are borne after a concurrency limit was proven.
const MISFITS_PROVEN: u32 = 4;
/// Refusals that must agree before a rate limit is taken for a concurrency limit.
const AGREEING_REFUSALS: u32 = 4;
/// Accepted calls per refusal that must have been seen with it.
const ACCEPTED_PER_REFUSAL: u32 = 10;
/// One accepted call in this many may have met as many calls at the server as a refused one.
const ACCEPTED_BEYOND_PER: u32 = 20;
/// A call refused with fewer calls at the server than the peak divided by this was not refused for
/// their number.
const IDLE_DIVISOR: u32 = 3;
/// A refusal fits a supposed limit from 4/5 of it on.
const FIT_SHARE: (u64, u64) = (4, 5);
/// Calls accepted at or above a supposed limit that refute it.
const REFUTING_ACCEPTED: u32 = 3;

/// The cap on calls in flight of a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct InFlightCap {
    /// Calls in flight allowed by slow growth.
    cap: f64,
    /// Calls in flight allowed by the user.
    max: f64,
    /// Calls in flight allowed by a concurrency limit of the server, if one is suspected.
    ceiling: Option<f64>,
    /// Calls accepted since the ceiling last changed.
    accepted: u32,
    /// Accepted calls after which the ceiling rises.
    accepted_needed: u32,
    /// No refusal since the ceiling last rose.
    rose: bool,
    /// Refusals in a row that do not fit a concurrency limit; for a supposed limit, how often it was
    /// supposed.
    misfits: u32,
    /// Misfits at which the concurrency limit is given up.
    misfits_max: u32,
    /// The concurrency limit, in calls, that costly refusals suggest; 0 if none.
    supposed: f64,
    /// How often in a row the supposed limit was too high.
    overshots: u32,
    /// Calls in flight that were borne before the first wait.
    borne: f64,
    /// Calls that saw one, two, three ... in flight: the accepted and the refused ones.
    few: [(u32, u32); CALLS_FEW],
}

impl InFlightCap {
    pub(super) fn new(max: u32) -> InFlightCap {
        let max = f64::from(max.max(1));
        InFlightCap {
            cap: START.min(max),
            max,
            ceiling: None,
            accepted: 0,
            accepted_needed: ACCEPTED_MIN,
            rose: false,
            misfits: 0,
            misfits_max: 1,
            supposed: 0.0,
            overshots: 0,
            borne: 0.0,
            few: [(0, 0); CALLS_FEW],
        }
    }

    /// Calls that may be in flight.
    pub(super) fn cap(&self) -> u32 {
        self.ceiling.map_or(self.cap, |c| c.min(self.cap)).max(1.0) as u32
    }

    /// Calls that may be in flight whatever is learned.
    pub(super) const fn max(&self) -> u32 {
        self.max as u32
    }

    /// A call that saw `in_flight` calls in flight was accepted; the round trip is in seconds.
    pub(super) fn accepted(&mut self, in_flight: u32, round_trip: f64) {
        self.accepted = self.accepted.saturating_add(1);
        if let Some(few) = self.few_with(in_flight) {
            few.0 = few.0.saturating_add(1);
        }
        if f64::from(in_flight) >= USED_SHARE * self.cap && self.cap < self.max {
            let growth = if self.cap < DOUBLING_CAP { GROWTH_DOUBLING } else { GROWTH };
            self.cap = (self.cap + growth * (round_trip / ROUND_TRIP_MIN).min(1.0)).min(self.max);
        }
        // What was borne before needs no more proof than a round trip.
        if let Some(ceiling) = self.ceiling.as_mut().filter(|ceiling| **ceiling < self.borne)
            && f64::from(self.accepted) >= SUPPOSED_ACCEPTED * *ceiling
        {
            *ceiling = (*ceiling * (1.0 + SUPPOSED_RISE)).min(self.borne);
            (self.supposed, self.accepted) = (*ceiling, 0);
            return;
        }
        if let Some(ceiling) = &mut self.ceiling
            && self.accepted >= self.accepted_needed
            && f64::from(in_flight) + CEILING_TOLERANCE >= *ceiling
        {
            *ceiling = (*ceiling + (SUPPOSED_RISE * self.supposed).max(1.0)).min(self.max);
            self.accepted = 0;
            if self.rose {
                self.accepted_needed = (self.accepted_needed / ACCEPTED_FACTOR).max(ACCEPTED_MIN);
            }
            self.rose = true;
        }
    }

    /// The accepted and the refused calls that saw so many in flight, if those are few.
    fn few_with(&mut self, in_flight: u32) -> Option<&mut (u32, u32)> {
        self.few.get_mut(in_flight.saturating_sub(1) as usize)
    }

    /// Whether a refusal still fits a concurrency limit: it came at the ceiling, and not soon after the
    /// last one (`accepted_since` calls ago); now and then one may not. Where the way is short, a limit of a few
    /// does not accept as many as it refuses.
    pub(super) fn fits_concurrency(&mut self, in_flight: u32, accepted_since: u64, way_short: bool) -> bool {
        let as_many = self.few_with(in_flight).is_some_and(|few| {
            few.1 = few.1.saturating_add(1);
            few.0 >= FEW_ACCEPTED.max(few.1)
        });
        if as_many && way_short && self.cap() as usize <= CALLS_FEW {
            return false;
        }
        if way_short && self.is_steady() && self.cap() >= STEADY_PROVEN {
            self.misfits_max = MISFITS_PROVEN;
        }
        if accepted_since >= u64::from(self.cap()) + ACCEPTED_BETWEEN && in_flight >= self.cap() {
            self.misfits = 0;
            return true;
        }
        self.misfits += 1;
        self.misfits < self.misfits_max
    }

    /// A call that saw `in_flight` calls in flight was refused for their number.
    pub(super) fn lower(&mut self, in_flight: u32) {
        let below = (f64::from(in_flight) - 1.0).max(1.0);
        let fall = |c: f64| (c - 1.0).min(if self.misfits > 0 { c } else { below });
        self.ceiling = Some(self.ceiling.map_or(below, fall).max(1.0));
        (self.accepted, self.rose, self.borne) = (0, false, 0.0);
        self.accepted_needed = (self.accepted_needed * ACCEPTED_FACTOR).min(ACCEPTED_MAX);
    }

    /// Whether the ceiling has held for long: refusals came at it, and ever more seldom.
    pub(super) fn is_steady(&self) -> bool {
        let ceiling = self.ceiling.is_some_and(|ceiling| ceiling >= STEADY_MIN);
        ceiling && self.misfits == 0 && self.accepted_needed >= ACCEPTED_STEADY
    }

    /// Whether the ceiling has held for as long as can be told: nothing but calls at once behaves so.
    pub(super) fn is_firm(&self) -> bool {
        self.is_steady() && self.accepted_needed >= ACCEPTED_MAX
    }

    /// It may be a limit of `calls` in flight; to find out that it is not would cost a cooldown in which
    /// `cooldown_calls` could go.
    pub(super) fn suppose(&mut self, calls: u32, cooldown_calls: f64) {
        self.suppose_less(calls);
        (self.accepted, self.rose) = (0, false);
        let growths = f64::from(self.misfits.min(PROBE_GROWTHS_MAX));
        let needed = cooldown_calls * libm::exp2(PROBE_GROWTH_LOG2 * growths);
        self.accepted_needed = needed.max(SUPPOSED_ACCEPTED * self.supposed) as u32;
        (self.misfits, self.overshots) = (self.misfits + 1, 0);
    }

    /// Whether about as many calls were at the server as may be in flight.
    pub(super) fn is_near(&self, at_server: u32) -> bool {
        let (part, whole) = FIT_SHARE;
        u64::from(at_server) * whole >= u64::from(self.cap()) * part
    }

    /// The supposed limit was too high at once. False if it was so before, and is rather none, or if no
    /// ceiling has held yet.
    pub(super) const fn overshot(&mut self) -> bool {
        self.overshots += 1;
        self.accepted = 0;
        self.overshots <= OVERSHOTS_MAX && self.misfits >= HELD_SUPPOSITIONS
    }

    /// Whether the ceiling rose since the last refusal.
    pub(super) const fn rose(&self) -> bool {
        self.rose
    }

    /// The supposed limit is lower: `calls` in flight.
    pub(super) fn suppose_less(&mut self, calls: u32) {
        let calls = f64::from(calls.max(1));
        (self.ceiling, self.supposed, self.borne) = (Some(calls), calls, 0.0);
    }

    /// The supposed limit is at most `calls` in flight.
    pub(super) fn suppose_at_most(&mut self, calls: u32) {
        let lower = self.ceiling.map_or(calls, |ceiling| calls.min(ceiling as u32));
        self.suppose_less(lower);
    }

    /// A limit of `calls` in flight is proven.
    pub(super) fn prove(&mut self, calls: u32) {
        self.ceiling = Some(f64::from(calls.max(1)));
        (self.accepted, self.borne) = (0, 0.0);
        (self.misfits, self.misfits_max) = (0, MISFITS_PROVEN);
        self.few = [(0, 0); CALLS_FEW];
    }

    /// There is no concurrency limit.
    pub(super) fn lift(&mut self) {
        self.ceiling = None;
        (self.misfits, self.misfits_max, self.supposed, self.borne) = (0, 1, 0.0, 0.0);
        self.few = [(0, 0); CALLS_FEW];
    }

    /// Half as many, until the rate is known.
    pub(super) fn halve(&mut self) {
        self.cap = (RATE_LIMIT_SHARE * self.cap).max(START.min(self.cap));
    }

    /// At least this many calls in flight, as a known rate needs.
    pub(super) fn at_least(&mut self, calls: f64) {
        self.cap = self.cap.max(calls.min(self.max));
    }

    /// As few as a new lane begins with, and at most half as many as before: what is in flight when a call is
    /// refused is lost.
    pub(super) fn start_small(&mut self) {
        let calls = (RATE_LIMIT_SHARE * self.cap).max(DOUBLING_CAP);
        let supposed = self.supposed - libm::floor(TRAVELLING_SHARE * self.supposed);
        self.suppose_less(if self.supposed > 0.0 { calls.min(supposed) } else { calls } as u32);
        self.cap = self.cap.min(START);
        self.borne = supposed;
    }

    /// The calls at once that the pace is made for. One more than a low ceiling goes shortly before another call
    /// comes back; else a bucket of a single token would refuse it too.
    pub(super) fn calls_paced(&self) -> f64 {
        let calls = f64::from(self.cap());
        let tried = self.rose && self.accepted < self.accepted_needed;
        if tried && calls < STEADY_MIN && self.supposed == 0.0 {
            (calls - TRIED_LESS).max(1.0)
        } else {
            calls
        }
    }

    /// There was no limit: as many as were accepted at once, and from there as a new lane.
    pub(super) fn reopen(&mut self, accepted: u32) {
        self.lift();
        self.cap = f64::from(accepted).max(START).min(self.max);
    }

    /// After an outage: one call, then more.
    pub(super) fn restart(&mut self) {
        self.cap = 1.0;
    }
}

/// Whether refusals depend on the calls at the server rather than on time.
///
/// A server that limits calls per time refuses whatever comes then: about as many calls are at the
/// server as when it accepts. One that limits concurrency refuses where hardly any call was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConcurrencyEvidence {
    /// Fewest calls at the server when one was refused: the supposed limit.
    refused_min: u32,
    /// Refusals that agree with it.
    refused: u32,
    /// Calls accepted since.
    accepted: u32,
    /// Of these, calls accepted with `refused_min` or more at the server.
    accepted_beyond: u32,
    /// Most calls at the server when one was accepted.
    accepted_max: u32,
}

impl ConcurrencyEvidence {
    pub(super) const NEW: ConcurrencyEvidence = ConcurrencyEvidence {
        refused_min: u32::MAX,
        refused: 0,
        accepted: 0,
        accepted_beyond: 0,
        accepted_max: 0,
    };

    /// Whether a call refused with `at_server` calls at the server was not refused for their number.
    pub(super) const fn is_idle(&self, at_server: u32) -> bool {
        at_server.saturating_mul(IDLE_DIVISOR) < self.accepted_max
    }

    /// `at_server` calls at the server are taken for too many.
    pub(super) const fn suppose(&mut self, at_server: u32) {
        *self = ConcurrencyEvidence {
            refused_min: at_server,
            refused: 1,
            accepted: 0,
            accepted_beyond: 0,
            accepted_max: self.accepted_max,
        };
    }

    /// Fewer are too many. False if that was known.
    pub(super) const fn lower(&mut self, at_server: u32) -> bool {
        let fewer = at_server < self.refused_min;
        if fewer {
            self.refused_min = at_server;
        }
        fewer
    }

    /// Whether a refusal with `at_server` calls at the server fits the supposed limit.
    pub(super) const fn fits(&self, at_server: u32) -> bool {
        let (part, whole) = FIT_SHARE;
        at_server as u64 * whole >= self.refused_min as u64 * part && self.accepted_beyond < REFUTING_ACCEPTED
    }

    /// A call was accepted with `at_server` calls at the server.
    pub(super) const fn accepted(&mut self, at_server: u32) {
        self.accepted = self.accepted.saturating_add(1);
        if at_server > self.accepted_max {
            self.accepted_max = at_server;
        }
        if at_server >= self.refused_min {
            self.accepted_beyond = self.accepted_beyond.saturating_add(1);
        }
    }

    /// A call was refused with `at_server` calls at the server. The concurrency limit, if that proves one.
    pub(super) fn refused(&mut self, at_server: u32) -> Option<u32> {
        if at_server < self.refused_min || self.accepted_beyond > self.accepted / ACCEPTED_BEYOND_PER {
            self.suppose(at_server);
            return None;
        }
        self.refused += 1;
        let proven = self.refused >= AGREEING_REFUSALS
            && self.accepted >= ACCEPTED_PER_REFUSAL * AGREEING_REFUSALS
            && self.refused_min > 1;
        proven.then(|| core::mem::replace(self, ConcurrencyEvidence::NEW).refused_min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds (calls at the server, accepted) and gives the first proven limit.
    fn proven(calls: impl IntoIterator<Item = (u32, bool)>) -> Option<u32> {
        let mut evidence = ConcurrencyEvidence::NEW;
        calls.into_iter().find_map(|(at_server, ok)| {
            if ok {
                evidence.accepted(at_server);
                return None;
            }
            evidence.refused(at_server)
        })
    }

    #[test]
    fn refusals_where_nothing_was_accepted_are_about_calls_at_once() {
        let calls = (0..200u32).map(|i| if i % 20 == 19 { (8 + i % 2, false) } else { (i % 8, true) });
        assert_eq!(proven(calls), Some(9));
    }

    #[test]
    fn refusals_among_accepted_calls_are_about_time() {
        let calls = (0..2000u32).map(|i| (3 + i % 4, i % 19 != 0));
        assert_eq!(proven(calls), None);
    }

    #[test]
    fn a_limit_of_a_few_that_accepts_as_many_as_it_refuses_is_none() {
        let mut cap = InFlightCap::new(64);
        cap.lower(2);
        assert_eq!(cap.cap(), 1);
        for (way_short, fits) in [(false, true), (true, false)] {
            let mut cap = cap;
            (0..FEW_ACCEPTED).for_each(|_| cap.accepted(2, 0.02));
            assert_eq!(cap.fits_concurrency(2, 20, way_short), fits);
        }
        for _ in 0..2 * FEW_ACCEPTED {
            (0..20).for_each(|_| cap.accepted(1, 0.02));
            assert!(cap.fits_concurrency(2, 20, true), "nothing was accepted with two at once");
        }
    }

    #[test]
    fn a_low_ceiling_that_rose_is_tried_gently() {
        let mut cap = InFlightCap::new(64);
        cap.lower(2);
        (0..ACCEPTED_MIN * ACCEPTED_FACTOR).for_each(|_| cap.accepted(1, 0.02));
        assert_eq!((cap.cap(), cap.calls_paced()), (2, 1.25));
        (0..ACCEPTED_MIN * ACCEPTED_FACTOR).for_each(|_| cap.accepted(1, 0.02));
        assert_eq!((cap.cap(), cap.calls_paced()), (2, 2.0));
        cap.lower(2);
        assert_eq!((cap.cap(), cap.calls_paced()), (1, 1.0));
    }

    #[test]
    fn a_ceiling_that_was_proven_bears_a_refusal_that_does_not_fit() {
        let mut cap = InFlightCap::new(64);
        cap.at_least(64.0);
        cap.prove(8);
        (0..FEW_ACCEPTED).for_each(|_| cap.accepted(3, 0.02));
        assert!(cap.fits_concurrency(3, 2, true));
        cap.lower(5);
        assert_eq!(cap.cap(), 7);
        assert!(cap.fits_concurrency(5, 2, true) && cap.fits_concurrency(5, 2, true));
        assert!(!cap.fits_concurrency(5, 2, true));
    }
}
