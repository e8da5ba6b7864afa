//! A limiter that learns the server's limit and paces at it.
//!
//! It holds back a call for one of five reasons, asked in this order:
//!
//! 1. the server said so: Retry-After is a promise, for the whole lane;
//! 2. the server has refused everything for a while: ask less and less often;
//! 3. enough calls are out (`flight`);
//! 4. the user's own ceiling ([`pace`]);
//! 5. what is known of the server: its counter where headers tell it (`mirror`), else the rate
//!    learned from its refusals (`learn`).
//!
//! A first refusal may mean too many calls at once or too many per time. The cheaper belief is
//! tried first: a ceiling on calls out. If refusals go on below it, it was the rate.
//!
//! After an outage the lane begins again with one call and grows by half every half second: a
//! server that has just come back falls over again when everything that waited arrives at once.

mod flight;
mod learn;
mod mirror;
pub mod pace;

use crate::hint::Hints;
use crate::time::{Mono, seconds};
use core::time::Duration;
use flight::Flight;
use learn::Track;
use mirror::{Left, Mirror};
use pace::Pace;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspect {
    Nothing,
    /// Too many calls out at once.
    Flight,
    /// Too many calls per time.
    Rate,
}

/// Failures in a row that are an outage.
const OUTAGE: u32 = 3;
/// A server that silences the lane for longer than this makes refusals dear.
const DEAR: f64 = 0.2;

/// The limiter of one lane.
#[derive(Clone, Debug)]
pub struct Limiter {
    learn: bool,
    user: Pace,
    pace: Pace,
    restart: Pace,
    restarted: Mono,
    flight: Flight,
    track: Track,
    mirror: Option<Mirror>,
    /// The mirror has said all it can.
    mirrored: bool,
    suspect: Suspect,
    gate: Mono,
    hold: Mono,
    shut_from: Mono,
    starved: bool,
    epoch: u32,
    seq: u64,
    in_flight: u32,
    refused: u64,
    rtt: f64,
    /// The pace was what held back the last call.
    paced: bool,
    failures: u32,
    speed: Speed,
    pause: Pauses,
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
            restart: Pace::OPEN,
            restarted: Mono::ZERO,
            flight,
            track: Track::NEW,
            mirror: None,
            mirrored: false,
            suspect: Suspect::Nothing,
            gate: Mono::ZERO,
            hold: Mono::ZERO,
            shut_from: Mono::ZERO,
            starved: false,
            epoch: 0,
            seq: 0,
            in_flight: 0,
            refused: 0,
            rtt: 0.0,
            paced: false,
            failures: 0,
            speed: Speed::default(),
            pause: Pauses::default(),
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
        for own in [&mut self.user, &mut self.restart] {
            let at = own.ready(now);
            if at > now {
                self.paced = false;
                return Admit::At(at);
            }
        }
        match self.mirror.as_ref().map(|m| m.ready(self.seq, now, self.in_flight)) {
            // Never at once: a wait that rounds to nothing is still one.
            Some(Left::At(t)) => return Admit::At(t.max(now + Duration::from_nanos(1))),
            Some(Left::Unknown) if self.in_flight > 0 => return Admit::Full,
            Some(_) => {}
            None => {
                let at = self.pace.ready(now);
                if at > now {
                    self.paced = true;
                    return Admit::At(at);
                }
                self.pace.take(now);
            }
        }
        if let Some(mirror) = &mut self.mirror {
            mirror.sent(self.seq, now);
        }
        self.user.take(now);
        self.restart.take(now);
        let lag = self.pace.rate().map_or(0.0, |r| r * self.rtt);
        if self.track.sent(now, self.paced && self.mirror.is_none(), lag) {
            self.set_pace(now);
        }
        self.pause.sent(now);
        self.in_flight += 1;
        let ticket = Ticket { sent: now, seq: self.seq, epoch: self.epoch, flight: self.in_flight };
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
            self.mirror(&ticket, now, hints);
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
        match &self.mirror {
            Some(mirror) => mirror.slope(),
            None => self.track.known().then(|| self.track.estimate()),
        }
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

    fn accepted(&mut self, ticket: &Ticket, now: Mono) {
        let rtt = secs(now.since(ticket.sent));
        self.rtt = if self.rtt == 0.0 { rtt } else { self.rtt + (rtt - self.rtt) / 8.0 };
        self.failures = 0;
        self.speed.count(now);
        self.flight.success(ticket.flight);
        self.pause.accepted();
        if self.restart.rate().is_some() {
            self.regrow(now);
        }
        let before = ticket.seq.saturating_sub(self.refused);
        if self.track.accepted(ticket.seq, ticket.sent, before) {
            self.starved = false;
            if self.suspect == Suspect::Rate {
                self.set_pace(now);
            }
        }
    }

    fn throttled(&mut self, ticket: &Ticket, now: Mono, until: Option<Mono>, hints: &Hints) {
        if let Some(until) = until {
            self.gate = self.gate.max(until);
        }
        self.failures = 0;
        let accepted = ticket.seq.saturating_sub(self.refused);
        self.refused += 1;
        if !self.learn {
            return;
        }
        if let Some(mirror) = &mut self.mirror
            && ticket.epoch == self.epoch
        {
            mirror.missed(hints, accepted);
        }
        let was_shut = self.track.is_shut();
        let raised = self.track.raised().then(|| self.track.rate());
        self.track.refused(ticket.seq);
        if !was_shut {
            self.shut_from = ticket.sent;
        }
        if ticket.epoch != self.epoch {
            return;
        }
        self.epoch += 1;
        let pause = until.map_or(0.0, |t| secs(t.since(now)));
        if pause > DEAR {
            self.suspect = Suspect::Rate;
            self.flight.lift();
            self.track.costs(pause);
            if let Some((rate, calls, cycle)) = self.pause.refused(ticket.sent, self.gate, raised) {
                self.track.set(rate, calls, cycle);
            }
            self.set_pace(now);
            return;
        }
        match self.suspect {
            Suspect::Nothing if ticket.flight > 1 => {
                self.suspect = Suspect::Flight;
                self.flight.lower(ticket.flight);
                self.pause.since_refusal();
                self.spread(now);
                return;
            }
            Suspect::Flight if self.pause.since_refusal() >= 3 * u64::from(self.flight.cap()) + 8 => {
                self.flight.lower(ticket.flight);
                self.spread(now);
                return;
            }
            Suspect::Rate => {}
            _ => {
                self.suspect = Suspect::Rate;
                self.flight.lift();
                self.pace = Pace::OPEN;
            }
        }
        self.set_pace(now);
        // To leave out one call gives the server a whole token, and us a long clean run. A tight
        // bucket cannot keep it: there the call came a hair too early, and goes a little later.
        self.pace.rest(now, if self.track.is_tight() { 0.1 } else { 1.0 });
        let lag = self.pace.rate().map_or(0.0, |r| r * self.rtt);
        if self.track.starves(lag, accepted) {
            self.starved = true;
            let asked = 0.5 * secs(now.since(self.shut_from));
            let least = if self.track.known() { 1.0 / self.track.rate() } else { 0.5 * self.rtt.max(0.001) };
            self.hold = now + seconds(asked.max(least).min(60.0));
        }
    }

    fn failed(&mut self, now: Mono, until: Option<Mono>) {
        if let Some(until) = until {
            self.gate = self.gate.max(until);
        }
        self.failures = self.failures.saturating_add(1);
        if self.learn && self.failures >= OUTAGE {
            let slow = (self.speed.most() / 20.0).max(10.0);
            self.restart.set(now, Some(slow), 1.0);
            self.restarted = now;
            self.flight.restart();
        }
    }

    /// Half as fast again every half second, from a hundred a second on by steps, until the lane is
    /// where it was.
    fn regrow(&mut self, now: Mono) {
        let Some(rate) = self.restart.rate() else { return };
        if now.since(self.restarted) < Duration::from_millis(500) {
            return;
        }
        self.restarted = now;
        let rate = (rate * 1.5).min(rate.max(75.0) + 25.0);
        let open = rate > 1.5 * self.speed.most().max(500.0);
        self.restart.set(now, (!open).then_some(rate), 1.0 + rate * 0.005);
    }

    /// Under a ceiling calls go out one by one, not together: else a bucket of one token looks like
    /// a limit of one call at once.
    fn spread(&mut self, now: Mono) {
        if self.rtt > 0.0 {
            let rate = 2.0 * f64::from(self.flight.cap() + 1) / self.rtt;
            self.pace.set(now, Some(rate), 1.0);
        }
    }

    fn set_pace(&mut self, now: Mono) {
        if self.track.known() {
            let rate = self.track.rate();
            self.pace.set(now, Some(rate), 1.0);
            self.flight.at_least(2.0 * rate * self.rtt + 4.0);
        }
    }

    fn mirror(&mut self, ticket: &Ticket, now: Mono, hints: &Hints) {
        if hints.quotas.iter().all(Option::is_none) {
            return;
        }
        if let Some(rate) = policy(hints) {
            // The policy tells the rate: it is kept, evenly, and there is nothing to learn.
            if !self.track.is_told(rate) {
                (self.mirror, self.suspect) = (None, Suspect::Rate);
                self.flight.lift();
                self.track.told(rate);
                self.set_pace(now);
            }
            return;
        }
        let accepted = (ticket.seq + 1).saturating_sub(self.refused);
        match &mut self.mirror {
            Some(mirror) if mirror.lies() => {
                (self.mirror, self.mirrored) = (None, true);
                self.suspect = Suspect::Rate;
            }
            Some(mirror) => {
                mirror.told(hints, ticket.seq, ticket.sent, now, accepted, self.in_flight);
                if mirror.stepped() {
                    (self.mirror, self.mirrored, self.suspect) = (None, true, Suspect::Rate);
                    self.set_pace(now);
                }
            }
            None if self.refused < 20 && !self.mirrored => {
                self.mirror = Mirror::new(hints, ticket.seq, ticket.sent, now, accepted);
            }
            None => {}
        }
    }
}

/// The tightest rate that the policies tell, in calls per second.
fn policy(hints: &Hints) -> Option<f64> {
    let rate = |q: &crate::hint::Quota| Some(q.limit? as f64 / secs(q.window?).max(1e-6));
    hints.quotas.iter().flatten().filter_map(rate).filter(|r| *r > 0.0).min_by(f64::total_cmp)
}

fn secs(span: Duration) -> f64 {
    span.as_nanos() as f64 * 1e-9
}

/// How fast the lane went at its best, by half seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Speed {
    from: Mono,
    count: u32,
    most: f64,
}

impl Speed {
    fn count(&mut self, now: Mono) {
        self.count += 1;
        let span = secs(now.since(self.from));
        if span >= 0.5 {
            let speed = f64::from(self.count) / span;
            self.most = if speed > self.most { speed } else { self.most + (speed - self.most) * 0.1 };
            (self.from, self.count) = (now, 0);
        }
    }

    const fn most(&self) -> f64 {
        self.most
    }
}

/// Runs between the pauses that a server asks for.
///
/// After a pause a bucket holds what it can hold, so a run of `Δ` seconds accepts `B + r·Δ` calls:
/// two runs of different lengths give the rate. A window accepts the same in every run: then the
/// rate is that number over the time from one beginning to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Pauses {
    began: Option<Mono>,
    accepted: u64,
    last: Option<(f64, f64)>,
    /// Accepted since the last refusal was asked about.
    since: u64,
}

impl Pauses {
    fn sent(&mut self, now: Mono) {
        self.began.get_or_insert(now);
    }

    fn accepted(&mut self) {
        self.accepted += 1;
        self.since += 1;
    }

    fn since_refusal(&mut self) -> u64 {
        core::mem::take(&mut self.since)
    }

    /// A run ended in a refusal that silences the lane until `gate`: the rate, the calls that it rests
    /// on, and the calls of a run.
    fn refused(&mut self, sent: Mono, gate: Mono, raised: Option<f64>) -> Option<(f64, f64, f64)> {
        let began = self.began.take()?;
        let run = secs(sent.since(began)).max(1e-6);
        let whole = secs(gate.since(began)).max(1e-6);
        let n = core::mem::take(&mut self.accepted) as f64;
        if let Some(rate) = raised {
            // The run was not at the limit all along; only its end was.
            return Some((0.8 * rate, 8.0, n));
        }
        let last = self.last.replace((run, n));
        let (rate, calls) = match last {
            Some((before, m)) if (n - m).abs() > 1.0 + 0.03 * n && (run - before).abs() > 0.05 * run => {
                let slope = (n - m) / (run - before);
                if slope > 0.0 && slope <= n / run { (slope, (n - m).abs() / 2.0) } else { (n / whole, 4.0) }
            }
            Some(_) => (n / whole, n.max(4.0)),
            // One run says little: another at half the speed says more.
            None => (0.5 * n / run, 4.0),
        };
        (rate > 0.0).then_some((rate, calls, n))
    }
}

#[cfg(test)]
mod tests;
