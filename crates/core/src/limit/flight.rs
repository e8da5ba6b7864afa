//! How many calls may be out at once.
//!
//! A lane opens slowly: calls that are out when the first refusal comes back are wasted. When a
//! bucket of `B` tokens runs dry during a growth of `g` per round trip, about `g × B` calls are
//! refused; so growth is doubling up to [`QUICK`] and a quarter per round trip above.
//!
//! A server may also limit calls at once and not calls per time. Pacing cannot cure that, a
//! ceiling can: it falls below what was refused and rises by one after some clean calls, a few at
//! first and twice as many after each refusal, up to [`CLEAN`], so that about one call in that many
//! finds the limit again.

const START: f64 = 4.0;
const QUICK: f64 = 8.0;
const GROWTH: f64 = 0.25;
const CLEAN: u32 = 160;
const CLEAN_FIRST: u32 = 10;

/// The in-flight cap of a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Flight {
    cap: f64,
    max: f64,
    ceiling: Option<f64>,
    clean: u32,
    needed: u32,
}

impl Flight {
    pub(super) fn new(max: u32) -> Flight {
        let max = f64::from(max.max(1));
        Flight { cap: START.min(max), max, ceiling: None, clean: 0, needed: CLEAN_FIRST }
    }

    /// Calls that may be out.
    pub(super) fn cap(&self) -> u32 {
        self.ceiling.map_or(self.cap, |c| c.min(self.cap)).max(1.0) as u32
    }

    /// A call that saw `flight` calls out was accepted.
    pub(super) fn success(&mut self, flight: u32) {
        self.clean = self.clean.saturating_add(1);
        if f64::from(flight) >= 0.5 * self.cap && self.cap < self.max {
            self.cap = (self.cap + if self.cap < QUICK { 1.0 } else { GROWTH }).min(self.max);
        }
        if let Some(ceiling) = &mut self.ceiling
            && self.clean >= self.needed
            && f64::from(flight) + 0.5 >= *ceiling
        {
            *ceiling = (*ceiling + 1.0).min(self.max);
            self.clean = 0;
        }
    }

    /// Whether a refusal fits a limit of calls at once: it came at the ceiling, and not soon again.
    pub(super) fn blames(&self, flight: u32, since: u64) -> bool {
        since >= u64::from(self.cap()) + 4 && flight >= self.cap()
    }

    /// A call that saw `flight` calls out was refused for that.
    pub(super) fn lower(&mut self, flight: u32) {
        let below = (f64::from(flight) - 1.0).max(1.0);
        self.ceiling = Some(self.ceiling.map_or(below, |c| (c - 1.0).min(below)).max(1.0));
        self.clean = 0;
        self.needed = (self.needed * 2).min(CLEAN);
    }

    /// The limit is one of rate after all.
    pub(super) fn lift(&mut self) {
        self.ceiling = None;
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
