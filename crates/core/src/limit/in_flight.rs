//! How many calls may be out at once.
//!
//! A lane opens slowly: calls that are out when the first refusal comes back are wasted. When a
//! bucket of `B` tokens runs dry during a growth of `g` per round trip, about `g × B` calls are
//! refused; so growth is doubling up to [`QUICK`] and a third per round trip above, and where round
//! trips are short ([`NEAR`]) it takes as long all the same: a bucket next door is dry in a millisecond.
//!
//! A server may also limit calls at once and not calls per time. Pacing cannot cure that, a
//! ceiling can: it falls below what was refused and rises by one after some clean calls, a few at
//! first, twice as many after each refusal, up to [`CLEAN`], and half as many after a second rise
//! in a row, so that about one call in that many finds the limit again.
//!
//! What was taken for a limit of rate may be one of calls at once: [`Crowd`] tells by how many calls
//! were out when one was refused.

const START: f64 = 4.0;
const QUICK: f64 = 8.0;
const GROWTH: f64 = 0.34;
/// A round trip, in seconds, below which growth keeps to time.
const NEAR: f64 = 0.002;
const CLEAN: u32 = 160;
const CLEAN_FIRST: u32 = 10;
/// Refusals that must agree before a rate is taken for a limit of calls at once.
const AGREE: u32 = 4;
/// Refusals in a row that do not fit and are borne after that.
const CONVICTED: u32 = 4;

/// The in-flight cap of a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Flight {
    cap: f64,
    max: f64,
    ceiling: Option<f64>,
    clean: u32,
    needed: u32,
    /// No refusal since the ceiling last rose.
    rose: bool,
    /// Refusals in a row that do not fit a limit of calls at once, and how many are borne.
    doubts: u32,
    patience: u32,
    /// The limit that dear refusals told.
    supposed: f64,
}

impl Flight {
    pub(super) fn new(max: u32) -> Flight {
        let max = f64::from(max.max(1));
        Flight {
            cap: START.min(max),
            max,
            ceiling: None,
            clean: 0,
            needed: CLEAN_FIRST,
            rose: false,
            doubts: 0,
            patience: 1,
            supposed: 0.0,
        }
    }

    /// Calls that may be out.
    pub(super) fn cap(&self) -> u32 {
        self.ceiling.map_or(self.cap, |c| c.min(self.cap)).max(1.0) as u32
    }

    /// A call that saw `flight` calls out was accepted; round trips take `rtt` seconds.
    pub(super) fn success(&mut self, flight: u32, rtt: f64) {
        self.clean = self.clean.saturating_add(1);
        if f64::from(flight) >= 0.5 * self.cap && self.cap < self.max {
            let growth = if self.cap < QUICK { 1.0 } else { GROWTH };
            self.cap = (self.cap + growth * (rtt / NEAR).min(1.0)).min(self.max);
        }
        if let Some(ceiling) = &mut self.ceiling
            && self.clean >= self.needed
            && f64::from(flight) + 0.5 >= *ceiling
        {
            *ceiling = (*ceiling + (0.5 * self.supposed).max(1.0)).min(self.max);
            self.clean = 0;
            if self.rose {
                self.needed = (self.needed / 2).max(CLEAN_FIRST);
            }
            self.rose = true;
        }
    }

    /// Whether a refusal still fits a limit of calls at once: it came at the ceiling, and not soon
    /// again; now and then one may not.
    pub(super) fn blames(&mut self, flight: u32, since: u64) -> bool {
        if since >= u64::from(self.cap()) + 4 && flight >= self.cap() {
            self.doubts = 0;
            return true;
        }
        self.doubts += 1;
        self.doubts < self.patience
    }

    /// A call that saw `flight` calls out was refused for that.
    pub(super) fn lower(&mut self, flight: u32) {
        let below = (f64::from(flight) - 1.0).max(1.0);
        let fall = |c: f64| (c - 1.0).min(if self.doubts > 0 { c } else { below });
        self.ceiling = Some(self.ceiling.map_or(below, fall).max(1.0));
        (self.clean, self.rose) = (0, false);
        self.needed = (self.needed * 2).min(CLEAN);
    }

    /// It may be a limit of so many calls at once; to find out that it is not would take a silence in
    /// which so many calls could go.
    pub(super) fn suppose(&mut self, calls: u32, silence: f64) {
        self.suppose_less(calls);
        (self.clean, self.rose) = (0, false);
        self.needed = (silence * libm::exp2(4.0 * f64::from(self.doubts.min(4)))) as u32;
        self.doubts += 1;
    }

    /// Whether the ceiling rose since the last refusal.
    pub(super) const fn rose(&self) -> bool {
        self.rose
    }

    /// It is fewer than was supposed.
    pub(super) fn suppose_less(&mut self, calls: u32) {
        let calls = f64::from(calls.max(1));
        (self.ceiling, self.supposed) = (Some(calls), calls);
    }

    /// It is a limit of so many calls at once.
    pub(super) fn convict(&mut self, calls: u32) {
        self.ceiling = Some(f64::from(calls.max(1)));
        (self.clean, self.doubts, self.patience) = (0, 0, CONVICTED);
    }

    /// The limit is one of rate after all.
    pub(super) fn lift(&mut self) {
        self.ceiling = None;
        (self.doubts, self.patience, self.supposed) = (0, 1, 0.0);
    }

    /// Half as many, until more is known.
    pub(super) fn halve(&mut self) {
        self.cap = (0.5 * self.cap).max(START.min(self.cap));
    }

    /// At least this many are needed to keep up a known pace.
    pub(super) fn at_least(&mut self, calls: f64) {
        self.cap = self.cap.max(calls.min(self.max));
    }

    /// After an outage: one call, then more.
    pub(super) fn restart(&mut self) {
        self.cap = 1.0;
    }
}
/// Whether refusals come with the calls that are out rather than with time.
///
/// A server that limits calls per time refuses whatever comes then: about as many calls are out as
/// when it accepts. One that limits calls at once refuses where hardly any call was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crowd {
    /// The fewest calls that were out at a refusal.
    fewest: u32,
    refused: u32,
    /// Accepted, and of these with as many calls out.
    accepted: u32,
    beyond: u32,
    /// The most calls that were there when one was accepted.
    peak: u32,
}

impl Crowd {
    pub(super) const NEW: Crowd = Crowd { fewest: u32::MAX, refused: 0, accepted: 0, beyond: 0, peak: 0 };

    /// Whether a call that was refused with so many calls at the server says that these were not the
    /// reason.
    pub(super) const fn is_idle(&self, held: u32) -> bool {
        held.saturating_mul(3) < self.peak
    }

    /// So many calls at the server are taken for too many.
    pub(super) const fn suppose(&mut self, held: u32) {
        *self = Crowd { fewest: held, refused: 1, accepted: 0, beyond: 0, peak: self.peak };
    }

    /// Fewer are too many. False if that was known.
    pub(super) const fn lower(&mut self, held: u32) -> bool {
        let fewer = held < self.fewest;
        if fewer {
            self.fewest = held;
        }
        fewer
    }

    /// Whether a refusal with so many calls at the server fits that.
    pub(super) const fn fits(&self, held: u32) -> bool {
        held as u64 * 5 >= self.fewest as u64 * 4 && self.beyond < 3
    }

    /// A call was accepted with so many calls at the server.
    pub(super) const fn accepted(&mut self, held: u32) {
        self.accepted = self.accepted.saturating_add(1);
        if held > self.peak {
            self.peak = held;
        }
        if held >= self.fewest {
            self.beyond = self.beyond.saturating_add(1);
        }
    }

    /// A call was refused with so many calls at the server. Some if that tells how many may be there.
    pub(super) fn refused(&mut self, held: u32) -> Option<u32> {
        if held < self.fewest || self.beyond > self.accepted / 20 {
            self.suppose(held);
            return None;
        }
        self.refused += 1;
        let told = self.refused >= AGREE && self.accepted >= 10 * AGREE && self.fewest > 1;
        told.then(|| core::mem::replace(self, Crowd::NEW).fewest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds (calls at the server, accepted) and gives the first conviction.
    fn verdict(calls: impl IntoIterator<Item = (u32, bool)>) -> Option<u32> {
        let mut crowd = Crowd::NEW;
        calls.into_iter().find_map(|(flight, ok)| {
            if ok {
                crowd.accepted(flight);
                return None;
            }
            crowd.refused(flight)
        })
    }

    #[test]
    fn refusals_where_nothing_was_accepted_are_about_calls_at_once() {
        let calls = (0..200u32).map(|i| if i % 20 == 19 { (8 + i % 2, false) } else { (i % 8, true) });
        assert_eq!(verdict(calls), Some(9));
    }

    #[test]
    fn refusals_among_accepted_calls_are_about_time() {
        let calls = (0..2000u32).map(|i| (3 + i % 4, i % 19 != 0));
        assert_eq!(verdict(calls), None);
    }

    #[test]
    fn a_ceiling_that_was_proven_bears_a_refusal_that_does_not_fit() {
        let mut flight = Flight::new(64);
        flight.at_least(64.0);
        flight.convict(8);
        assert!(flight.blames(5, 2));
        flight.lower(5);
        assert_eq!(flight.cap(), 7);
        assert!(flight.blames(5, 2) && flight.blames(5, 2));
        assert!(!flight.blames(5, 2));
    }
}
