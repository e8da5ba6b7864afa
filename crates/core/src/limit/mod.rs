//! A limiter that learns the server's limit and paces at it.
//!
//! It holds back a call for one of five reasons, asked in this order:
//!
//! 1. the server said so: Retry-After is a promise, for the whole lane;
//! 2. the server has refused everything for a while: ask less and less often;
//! 3. enough calls are out (`flight`);
//! 4. the user's own ceiling ([`pace`]);
//! 5. what is known of the server: its counters where headers tell them (`meter`), else the rate
//!    learned from its refusals.
//!
//! A first refusal may mean too many calls at once or too many per time (`suspect`). How the rate is
//! learned depends on what a refusal is: a measurement (`learn`), dear because it silences the lane
//! (`pause`), the answer of a bucket of one token (`tight`), or unrelated to the rate (`noise`).
//!
//! After an outage the lane begins again slowly (`restart`).

mod back;
mod flight;
mod learn;
mod log;
mod meter;
mod noise;
pub mod pace;
mod pause;
mod restart;
mod run;
mod suspect;
mod tight;
mod window;

use crate::hint::{Hints, Quota};
use crate::time::Mono;
use core::time::Duration;
use flight::{Crowd, Flight};
use learn::{Track, secs};
use meter::{Left, Meter, Stand};
use noise::Noise;
use pace::Pace;
use pause::Pauses;
use restart::Restart;
use suspect::Suspect;
use tight::{Gaps, Tight};

/// What the user fixes; everything else is learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitConfig {
    /// Never more calls per second than this.
    pub rate_max: Option<f64>,
    /// Calls that may go at once under `rate_max`.
    pub burst: Option<f64>,
    /// Never more calls out at once than this.
    pub in_flight_max: u32,
    /// Whether to learn from refusals and headers.
    pub learn: bool,
}

impl Default for LimitConfig {
    fn default() -> LimitConfig {
        LimitConfig { rate_max: None, burst: None, in_flight_max: 64, learn: true }
    }
}

impl LimitConfig {
    /// What holds for calls that both were fixed for: the lower of each.
    #[must_use]
    pub fn and(self, other: LimitConfig) -> LimitConfig {
        let lower = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        LimitConfig {
            rate_max: lower(self.rate_max, other.rate_max),
            burst: lower(self.burst, other.burst),
            in_flight_max: self.in_flight_max.min(other.in_flight_max),
            learn: self.learn || other.learn,
        }
    }
}

/// The answer to "may a call go out now?".
#[derive(Debug, PartialEq)]
pub enum Admit {
    /// Yes; settle or release the ticket.
    Go(Ticket),
    /// Not before this.
    At(Mono),
    /// Too many calls are out; ask again when one has come back.
    Full,
}

/// The right to make one call.
#[must_use = "a ticket that is neither settled nor released holds its place for ever"]
#[derive(Debug, PartialEq)]
pub struct Ticket {
    sent: Mono,
    seq: u64,
    /// Calls accepted when it went.
    done: u64,
    /// It went by a rate that headers tell, one after the other.
    even: bool,
    epoch: u32,
    flight: u32,
}

/// What came back, as far as the limiter cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The server did the work (whatever the answer was).
    Accepted,
    /// Too many calls; not before `until`, if the server said.
    Throttled {
        /// Not before.
        until: Option<Mono>,
    },
    /// A server error or a network failure; not before `until`, if the server said.
    Failed {
        /// Not before.
        until: Option<Mono>,
    },
}

/// A server that silences the lane for longer than this makes refusals dear.
const DEAR: f64 = 0.2;
/// Calls per second beyond which a pace is no pace.
const RATE_MAX: f64 = 1e5;
/// Quotas that are mirrored at once.
const METERS: usize = 3;

/// The limiter of one lane.
#[derive(Clone, Debug)]
pub struct Limiter {
    learn: bool,
    user: Pace,
    pace: Pace,
    restart: Restart,
    flight: Flight,
    crowd: Crowd,
    track: Track,
    pauses: Pauses,
    gaps: Gaps,
    tight: Option<Tight>,
    noise: Noise,
    meters: [Option<Meter>; METERS],
    /// Headers have been wrong too often.
    lied: bool,
    suspect: Suspect,
    gate: Mono,
    hold: Mono,
    starved: bool,
    epoch: u32,
    seq: u64,
    in_flight: u32,
    refused: u64,
    done: u64,
    /// Accepted since the ceiling last fell.
    since: u64,
    rtt: f64,
    /// The same of refused calls, which are not served.
    way: f64,
    /// The pace was what held back the last call.
    paced: bool,
}

impl Limiter {
    /// A limiter that knows nothing yet.
    #[must_use]
    pub fn new(config: &LimitConfig) -> Limiter {
        let mut user = Pace::OPEN;
        if let Some(rate) = config.rate_max {
            user.set(Mono::ZERO, Some(rate), config.burst.unwrap_or(1.0));
        }
        let mut flight = Flight::new(config.in_flight_max);
        if !config.learn {
            flight.at_least(f64::from(config.in_flight_max));
        }
        Limiter {
            learn: config.learn,
            user,
            pace: Pace::OPEN,
            restart: Restart::NEW,
            flight,
            crowd: Crowd::NEW,
            track: Track::NEW,
            pauses: Pauses::NEW,
            gaps: Gaps::NEW,
            tight: None,
            noise: Noise::NEW,
            meters: [None; METERS],
            lied: false,
            suspect: Suspect::Nothing,
            gate: Mono::ZERO,
            hold: Mono::ZERO,
            starved: false,
            epoch: 0,
            seq: 0,
            in_flight: 0,
            refused: 0,
            done: 0,
            since: 0,
            rtt: 0.0,
            way: 0.0,
            paced: false,
        }
    }

    /// May a call go out now?
    pub fn admit(&mut self, now: Mono) -> Admit {
        let closed = self.gate.max(self.hold);
        if now < closed {
            return Admit::At(closed);
        }
        let cap = if self.starved { 1 } else { self.flight.cap() };
        if self.in_flight >= cap {
            self.paced = false;
            return Admit::Full;
        }
        for own in [&mut self.user, &mut self.restart.pace] {
            let at = own.ready(now);
            if at > now {
                self.paced = false;
                return Admit::At(at);
            }
        }
        let metered = self.meters.iter().any(Option::is_some);
        let mut even = false;
        if metered {
            let committed = self.committed();
            for meter in self.meters.iter().flatten() {
                match meter.ready(now, committed, self.in_flight) {
                    Left::Now => {}
                    // Never at once: a wait that rounds to nothing is still one.
                    Left::At(t) => return Admit::At(t.max(now + Duration::from_nanos(1))),
                    Left::Unknown => return Admit::Full,
                }
            }
            even = true;
            for meter in self.meters.iter_mut().flatten() {
                even &= meter.sent(now, committed);
            }
        } else {
            let at = self.pace.ready(now);
            if at > now {
                self.paced = true;
                return Admit::At(at);
            }
            self.pace.take(now);
        }
        self.user.take(now);
        self.restart.pace.take(now);
        let lag = self.pace.rate().map_or(0.0, |r| r * self.rtt);
        let grew = self.track.sent(now, self.paced && !metered && !self.noise.is_known(), lag)
            | self.pauses.sent(now, self.seq.saturating_sub(self.refused), self.paced);
        if grew && !metered {
            self.set_pace(now);
        }
        self.in_flight += 1;
        let (epoch, flight) = (self.epoch, self.in_flight);
        let ticket = Ticket { sent: now, seq: self.seq, done: self.done, even, epoch, flight };
        self.seq += 1;
        Admit::Go(ticket)
    }

    /// A call came back.
    pub fn settle(&mut self, ticket: Ticket, now: Mono, seen: Seen, hints: &Hints) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match seen {
            Seen::Accepted => self.accepted(&ticket, now),
            Seen::Throttled { until } => self.throttled(&ticket, now, until, hints),
            Seen::Failed { until } => self.failed(now, until),
        }
        if self.learn {
            self.mirror(&ticket, now, seen, hints);
        }
    }

    /// A call was abandoned; nothing is learned.
    pub fn release(&mut self, ticket: Ticket, now: Mono) {
        let _ = (ticket, now);
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The learned pace in calls per second.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let told = self.meters.iter().flatten().filter_map(Meter::rate).min_by(f64::total_cmp);
        told.or_else(|| match () {
            () if self.pauses.known() => Some(self.pauses.estimate()),
            () if self.tight.is_some() => self.tight.as_ref().map(Tight::rate),
            () => self.track.known().then(|| self.track.estimate()),
        })
    }

    /// Calls out now.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Calls that may be out at once.
    #[must_use]
    pub fn cap(&self) -> u32 {
        self.flight.cap()
    }

    /// Nothing goes out before this, because the server said so.
    #[must_use]
    pub const fn gate(&self) -> Mono {
        self.gate
    }

    /// Nothing goes out before `until`: what the server said before this limiter was made.
    pub fn hold_until(&mut self, until: Mono) {
        self.gate = self.gate.max(until);
    }

    fn accepted(&mut self, ticket: &Ticket, now: Mono) {
        let rtt = secs(ticket.sent, now);
        // Never nothing: numbers next to nothing are slow.
        let rtt = rtt.max(1e-9);
        self.rtt = if self.rtt == 0.0 { rtt } else { self.rtt + (rtt - self.rtt) / 8.0 };
        self.restart.accepted(now);
        self.flight.success(ticket.flight, self.rtt);
        self.crowd.accepted(self.held(ticket));
        self.since += 1;
        self.done += 1;
        self.noise.count(false);
        if !self.learn {
            return;
        }
        if self.suspect == Suspect::Flight && !self.pauses.known() {
            self.pace_by_flight(now);
        }
        self.gaps.note(ticket.seq, ticket.sent, true);
        let before = ticket.seq.saturating_sub(self.refused);
        // What overtook a refused call says nothing about a server that is shut.
        let overtook = self.starved && self.suspect == Suspect::Flight && ticket.epoch != self.epoch;
        if !overtook && self.track.accepted(ticket.seq, ticket.sent, before) {
            self.starved = false;
            if let Some(peak) = self.noise.recognise(self.track.estimate()) {
                self.track.set(peak);
                self.set_pace(now);
            }
            if self.suspect == Suspect::Rate && !self.noise.is_known() {
                self.set_pace(now);
            }
        }
        let next = self.seq;
        let narrowed = self.tight.as_mut().is_some_and(|tight| tight.accepted(ticket.seq, next));
        if narrowed || self.judge() {
            self.set_pace(now);
        }
    }

    fn throttled(&mut self, ticket: &Ticket, now: Mono, until: Option<Mono>, hints: &Hints) {
        if let Some(until) = until {
            self.gate = self.gate.max(until);
        }
        self.restart.answered();
        let accepted = ticket.seq.saturating_sub(self.refused);
        let held = self.held(ticket);
        let way = secs(ticket.sent, now).max(1e-9);
        self.way = if self.way == 0.0 { way } else { self.way + (way - self.way) / 8.0 };
        self.refused += 1;
        if !self.learn {
            return;
        }
        let fresh = ticket.epoch == self.epoch;
        // A server that is shut refuses whatever asks.
        if !self.starved {
            self.noise.count(true);
        }
        self.gaps.note(ticket.seq, ticket.sent, false);
        self.track.refused(ticket.seq, ticket.sent, accepted, fresh);
        if !fresh {
            self.pauses.stale(ticket.seq);
            self.stale(now, held);
            return;
        }
        self.epoch += 1;
        if self.meters.iter().any(Option::is_some) {
            let spent = |m: &Meter| {
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
        let silence = until.map_or(0.0, |t| secs(now, t));
        if silence > DEAR {
            self.dear(ticket, now, accepted, held);
            return;
        }
        if self.noise.is_known() {
            if self.judge() {
                self.set_pace(now);
            }
            return;
        }
        if self.suspects_flight(ticket, now, accepted, held) {
            return;
        }
        if let Some(tight) = &mut self.tight {
            tight.refused(self.seq);
            if tight.fails() {
                let rate = tight.rate();
                (self.tight, self.gaps) = (None, Gaps::NEW);
                self.track.set(rate);
            }
        } else {
            self.tight = self.gaps.tight().map(Tight::new);
        }
        self.set_pace(now);
        if self.tight.is_some() {
            self.pace.rest(now, 1.0);
            return;
        }
        if self.track.run() > 1 {
            self.pace.rest(now, 1.0);
        }
        if self.track.starves() {
            self.starve(now);
        }
    }

    fn failed(&mut self, now: Mono, until: Option<Mono>) {
        if let Some(until) = until {
            self.gate = self.gate.max(until);
        }
        if self.learn && self.restart.failed(now) {
            self.flight.restart();
        }
    }

    /// Judges a block of calls to a server that refuses at random. True if the pace has changed.
    fn judge(&mut self) -> bool {
        match self.noise.judge() {
            noise::Verdict::Open => false,
            noise::Verdict::Clean(growth) => {
                if growth > 1.0 && self.paced {
                    self.track.set((self.track.estimate() * growth).min(RATE_MAX));
                }
                true
            }
            noise::Verdict::Limit(through) | noise::Verdict::Wrong(through) => {
                self.track.set(self.track.estimate() * through);
                true
            }
            noise::Verdict::Gone => true,
        }
    }

    fn set_pace(&mut self, now: Mono) {
        let (rate, burst) = match () {
            () if self.pauses.known() => (self.pauses.pace(), self.pauses.credit()),
            () if self.tight.is_some() => (self.tight.as_ref().map_or(1.0, Tight::rate), 1.0),
            () if self.track.known() => (self.track.rate(), 1.0),
            () => return,
        };
        self.pace.set(now, Some(rate), burst);
        // What rests on a few calls may be far too high.
        let guessed = !self.pauses.known() && self.tight.is_none() && self.track.is_guess();
        self.flight.at_least(if guessed { 4.0 } else { 2.0 * rate * self.rtt + 4.0 });
    }

    /// Calls sent and not refused.
    fn committed(&self) -> f64 {
        self.seq.saturating_sub(self.refused) as f64
    }

    /// Follows the counters that the headers tell.
    fn mirror(&mut self, ticket: &Ticket, now: Mono, seen: Seen, hints: &Hints) {
        if self.lied {
            return;
        }
        let told = |q: &&Quota| q.limit.is_some() && (q.remaining.is_some() || q.window.is_some());
        if !hints.quotas.iter().flatten().any(|q| told(&q)) {
            if seen == Seen::Accepted {
                self.meters.iter_mut().flatten().for_each(Meter::silent);
            }
            return;
        }
        let out = f64::from(self.in_flight);
        let this = u64::from(seen == Seen::Accepted);
        // Sure are those that had come back when it was sent. Calls that go one after the other do not
        // overtake each other on their way.
        let before = (ticket.seq + this).saturating_sub(self.refused).min(self.done);
        let accepted = if ticket.even { before } else { ticket.done + this } as f64;
        let others = f64::from(ticket.flight.saturating_sub(1));
        let stand = Stand { sent: ticket.sent, now, accepted, out, others };
        for slot in &mut self.meters {
            let told = |m: &Meter| hints.quotas.iter().flatten().any(|q| m.is(q));
            if slot.as_mut().is_some_and(|m| !told(m) && m.other()) {
                *slot = None;
            }
        }
        for quota in hints.quotas.iter().flatten().filter(told) {
            if let Some(meter) = self.meters.iter_mut().flatten().find(|m| m.is(quota)) {
                meter.told(quota, &stand);
            } else if let Some(free) = self.meters.iter_mut().find(|m| m.is_none()) {
                *free = Meter::new(quota, &stand);
                if free.is_some() {
                    self.flight.lift();
                    // What is left may go.
                    self.flight.at_least(quota.remaining.unwrap_or(0) as f64);
                }
                if self.meters.iter().flatten().count() > 1 {
                    self.meters.iter_mut().flatten().for_each(Meter::beware);
                }
            }
        }
        if self.meters.iter().flatten().any(Meter::lies) {
            let rate = self.meters.iter().flatten().filter_map(Meter::least_rate).min_by(f64::total_cmp);
            (self.meters, self.lied, self.suspect) = ([None; METERS], true, Suspect::Rate);
            // What got through so far is less than the limit, but something.
            let rate = rate.or_else(|| self.track.so_far(now, self.done));
            self.track = Track::from(now, ticket.seq, self.committed() as u64, rate);
            self.set_pace(now);
        }
    }
}

#[cfg(test)]
mod tests;
