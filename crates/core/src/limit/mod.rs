//! A limiter that learns the server's limit and paces at it.
//!
//! It holds back a call for one of five reasons, asked in this order:
//!
//! 1. the server said so: Retry-After is a promise, for the whole lane;
//! 2. the server has refused everything for a while: probe it less and less often;
//! 3. enough calls are in flight (`in_flight`);
//! 4. the user's own rate limit ([`token_bucket`]), and the slow start after an outage (`slow_start`);
//! 5. what is known of the server: its counters where headers tell them (`quota_meter`), else the rate
//!    learned from its refusals.
//!
//! A failure may be the refusal of a server that does not say 429 (`failure_kind`). A first refusal may
//! mean a concurrency limit or a rate limit (`limit_kind`). How the rate is learned depends on what a
//! refusal is:
//!
//! | a refusal is | module |
//! |---|---|
//! | a measurement | `rate_estimate` |
//! | costly, because it comes with a cooldown | `cooldown_estimate`, `probe_run` |
//! | the answer of a bucket of one token | `single_token_bucket` |
//! | unrelated to the rate | `random_refusals` |
//! | counted itself (HAProxy) | `stick_table` |
//!
//! Quotas that headers tell: the counter (`quota_meter`), its window (`quota_window`), the lane's own
//! log of that window (`call_log`), and how the quota is restored where headers are too coarse
//! (`reset_history`).

mod belief;
mod burst_estimate;
mod call_log;
mod call_slots;
mod config;
mod cooldown_estimate;
mod failure_kind;
mod first_window;
mod flight_trial;
mod in_flight;
mod knowledge;
mod late_refusals;
mod late_timer;
mod learn;
mod limit_kind;
mod pacing;
mod probe_run;
mod quota_meter;
mod quota_window;
mod random_refusals;
mod rate_estimate;
mod reset_history;
mod single_token_bucket;
mod slow_start;
mod stall;
mod stick_table;
pub mod token_bucket;
mod turnover;

pub use belief::{BelievedKind, LimitBelief};
pub use config::LimitConfig;
pub use late_timer::LATE_MAX;

use crate::hint::{Hints, Quota};
use crate::time::Mono;
use belief::BeliefChange;
use burst_estimate::BurstEstimate;
use cooldown_estimate::CooldownEstimate;
use core::time::Duration;
use failure_kind::{FailureStep, FailureTrial};
use flight_trial::FlightTrial;
use in_flight::{ConcurrencyEvidence, InFlightCap};
use late_refusals::LateRefusals;
use limit_kind::LimitKind;
use quota_meter::{AnswerContext, MeterReady, QuotaMeter};
use random_refusals::{BlockVerdict, RandomRefusals};
use rate_estimate::{RateEstimate, secs};
use single_token_bucket::{CallGaps, SingleTokenBucket};
use slow_start::SlowStart;
use stall::Stall;
use stick_table::StickTables;
use token_bucket::TokenBucket;
use turnover::Turnover;

/// The answer to "may a call go out now?".
#[derive(Debug, PartialEq)]
pub enum LimiterAdmit {
    /// Yes; settle or release the ticket.
    Go(Ticket),
    /// Not before this.
    At(Mono),
    /// Too many calls are in flight; ask again when one has come back.
    Full,
}

/// The right to make one call.
#[must_use = "a ticket that is neither settled nor released holds its place for ever"]
#[derive(Debug, PartialEq)]
pub struct Ticket {
    /// When the call was sent.
    sent: Mono,
    /// Number of the call, from 0 on.
    seq: u64,
    /// Calls accepted when it was sent.
    accepted: u64,
    /// It went by a rate that headers tell, one after the other.
    evenly: bool,
    /// Fresh refusals known when it was sent.
    epoch: u32,
    /// Calls in flight when it was sent, itself included.
    in_flight: u32,
    /// It went before the call was back whose place it takes.
    early: bool,
    /// How full a table of HAProxy would be with it.
    levels: stick_table::Levels,
}

/// What came back, as far as the limiter cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// The server did the work (whatever the answer was).
    Accepted,
    /// Too many calls; not before `until`, if the server said.
    Throttled {
        /// The earliest time of the next call, if the server said.
        until: Option<Mono>,
    },
    /// A server error or a network failure; not before `until`, if the server said.
    Failed {
        /// The earliest time of the next call, if the server said.
        until: Option<Mono>,
    },
}

/// A refusal with a longer cooldown than this, in seconds, is costly.
const COSTLY_COOLDOWN: f64 = 0.2;
/// Fastest pace, in calls per second, that is grown to.
const RATE_MAX: f64 = 1e5;
/// Quotas that are mirrored at once.
const METERS: usize = 3;
/// Shortest round trip, in seconds: below lie denormal numbers, which are slow.
const ROUND_TRIP_MIN: f64 = 1e-9;
/// A new round trip counts for one part in this many.
const ROUND_TRIP_SMOOTHING: f64 = 8.0;
/// An answer that took this many times the round trip is late: a machine stalled, ...
const ROUND_TRIP_LATE: f64 = 4.0;
/// ... and it counts for one part in this many.
const ROUND_TRIP_LATE_SMOOTHING: f64 = 64.0;
/// Calls in flight per call that a known rate keeps in flight: room for slow answers.
const IN_FLIGHT_PER_RATE: f64 = 2.0;
/// Calls in flight beyond that, and all that a guessed rate is worth.
const IN_FLIGHT_MIN: f64 = 4.0;

/// Share of a rate that another limiter learned with which this one begins.
const SUCCESSOR_SHARE: f64 = 0.9;

/// The lowest rate that is taken over from another limiter, in calls per second: one call in
/// [`WAIT_MAX`](crate::hint::WAIT_MAX).
const RATE_TOLD_MIN: f64 = 1.0 / 86_400.0;

/// How long a successor stays below the rate that it was told. What the limiter before had let out last is not
/// known, nor how it would go on, and a window that is guessed anew may be opened with all calls at once.
const SUCCESSOR_CEILING: Duration = Duration::from_secs(600);

/// The limiter of one lane.
#[derive(Clone, Debug)]
pub struct Limiter {
    /// Whether to learn from refusals and headers.
    learn: bool,
    /// The user's rate limit.
    user_pace: TokenBucket,
    /// The learned pace.
    pace: TokenBucket,
    slow_start: SlowStart,
    in_flight_cap: InFlightCap,
    turnover: Turnover,
    evidence: ConcurrencyEvidence,
    estimate: RateEstimate,
    burst: BurstEstimate,
    cooldowns: CooldownEstimate,
    gaps: CallGaps,
    /// The search for the interval, if the server is a bucket of one token.
    single_token: Option<SingleTokenBucket>,
    random: RandomRefusals,
    flights: FlightTrial,
    meters: [Option<QuotaMeter>; METERS],
    /// Headers have been wrong too often and are ignored.
    headers_wrong: bool,
    /// What refusals are taken for.
    kind: LimitKind,
    failures: FailureTrial,
    late: LateRefusals,
    stall: Stall,
    tables: StickTables,
    /// Most calls in flight, itself included, when a call was sent that was accepted.
    accepted_most: u32,
    /// The kind of limit that was believed in last.
    believed: BeliefChange,
    /// Nothing goes before this, because the server said so.
    not_before: Mono,
    /// Nothing goes before this to a server that refuses everything.
    probe_at: Mono,
    /// The server refuses everything: one call at a time.
    probing: bool,
    /// Fresh refusals so far.
    epoch: u32,
    /// Calls sent so far.
    seq: u64,
    /// Calls in flight.
    in_flight: u32,
    /// Calls refused so far.
    refused: u64,
    /// Calls accepted so far.
    accepted: u64,
    /// Calls accepted since the ceiling on calls in flight last fell.
    accepted_since: u64,
    /// Round trip of accepted calls in seconds, smoothed; 0 before the first.
    round_trip: f64,
    /// Round trip of refused calls in seconds, smoothed: the way without service.
    refused_round_trip: f64,
    /// The learned pace was what held back the last call.
    paced: bool,
    /// When a call may ask again, if one was told so.
    due: Option<Mono>,
    /// It began with what another limiter had learned.
    inherited: bool,
    /// The rate of that limiter, until `ceiling_until`.
    ceiling: TokenBucket,
    ceiling_until: Mono,
}

impl Limiter {
    /// A limiter that knows nothing yet.
    #[must_use]
    pub fn new(config: &LimitConfig) -> Limiter {
        let mut user_pace = TokenBucket::OPEN;
        if let Some(rate) = config.rate_max {
            user_pace.set(Mono::ZERO, Some(rate), config.burst.unwrap_or(1.0));
        }
        let mut in_flight_cap = InFlightCap::new(config.in_flight_max);
        if !config.learn {
            in_flight_cap.at_least(f64::from(config.in_flight_max));
        }
        Limiter {
            learn: config.learn,
            user_pace,
            pace: TokenBucket::OPEN,
            slow_start: SlowStart::NEW,
            in_flight_cap,
            turnover: Turnover::NEW,
            evidence: ConcurrencyEvidence::NEW,
            estimate: RateEstimate::NEW,
            burst: BurstEstimate::NEW,
            cooldowns: CooldownEstimate::NEW,
            gaps: CallGaps::NEW,
            single_token: None,
            random: RandomRefusals::NEW,
            flights: FlightTrial::NEW,
            meters: [None; METERS],
            headers_wrong: false,
            kind: LimitKind::Unknown,
            failures: FailureTrial::NEW,
            late: LateRefusals::NEW,
            stall: Stall::NONE,
            tables: StickTables::NEW,
            accepted_most: 0,
            believed: BeliefChange::default(),
            not_before: Mono::ZERO,
            probe_at: Mono::ZERO,
            probing: false,
            epoch: 0,
            seq: 0,
            in_flight: 0,
            refused: 0,
            accepted: 0,
            accepted_since: 0,
            round_trip: 0.0,
            refused_round_trip: 0.0,
            paced: false,
            due: None,
            inherited: false,
            ceiling: TokenBucket::OPEN,
            ceiling_until: Mono::ZERO,
        }
    }

    /// May a call go that could have gone at `now`, and goes at `went`?
    fn admit_as_of(&mut self, now: Mono, went: Mono) -> LimiterAdmit {
        self.presume(now);
        let closed = self.not_before.max(self.probe_at);
        if now < closed {
            return LimiterAdmit::At(closed);
        }
        let cap = match self.flights.size() {
            _ if self.probing => 1,
            Some(size) => size,
            None => self.in_flight_cap.cap(),
        };
        let full = self.waiting() >= cap || self.in_flight >= self.in_flight_cap.max();
        if full && self.free_early().is_none_or(|at| at > now) {
            self.paced = false;
            return LimiterAdmit::Full;
        }
        if now >= self.ceiling_until {
            self.ceiling = TokenBucket::OPEN;
        }
        for own in [&mut self.user_pace, &mut self.slow_start.pace, &mut self.ceiling] {
            let at = own.ready(now);
            if at > now {
                self.paced = false;
                return LimiterAdmit::At(at);
            }
        }
        let metered = self.is_metered();
        let mut evenly = false;
        if metered {
            let committed = self.committed();
            for meter in self.meters.iter().flatten() {
                match meter.ready(now, committed, self.in_flight) {
                    MeterReady::Now => {}
                    // Never at once: a wait that rounds to nothing is still one.
                    MeterReady::At(t) => return LimiterAdmit::At(t.max(now + Duration::from_nanos(1))),
                    MeterReady::Unknown => return LimiterAdmit::Full,
                }
            }
            evenly = true;
            for meter in self.meters.iter_mut().flatten() {
                evenly &= meter.sent(went, committed);
            }
        } else {
            let at = self.tables.ready(now).unwrap_or_else(|| self.pace.ready(now));
            if at > now {
                self.paced = true;
                return LimiterAdmit::At(at);
            }
            self.catch_up(now);
            self.pace.take(now);
        }
        self.user_pace.take(now);
        self.slow_start.pace.take(now);
        self.ceiling.take(now);
        let by_pace = self.pace.rate().map_or(0.0, |r| r * self.round_trip);
        let grew = self.estimate.sent(went, self.paced && !metered && !self.random.is_known(), by_pace)
            | self.cooldowns.sent(went, self.seq.saturating_sub(self.refused), self.paced);
        if grew && !metered {
            self.set_pace(now);
        }
        if self.learn && !metered && self.flights.sent(self.seq, went, self.in_flight_cap.max()) {
            self.cooldowns.discard_run();
            self.set_pace(now);
        }
        self.in_flight += 1;
        self.late.sent(self.waiting(), self.probing, went);
        if metered || !self.learn {
            self.tables.refute();
        }
        let ticket = Ticket {
            sent: went,
            levels: self.tables.sent(went),
            seq: self.seq,
            accepted: self.accepted,
            evenly,
            epoch: self.epoch,
            in_flight: self.waiting(),
            early: full,
        };
        self.turnover.sent(self.seq, went);
        self.seq += 1;
        LimiterAdmit::Go(ticket)
    }

    /// A call came back.
    pub fn settle(&mut self, ticket: Ticket, now: Mono, feedback: Feedback, hints: &Hints) {
        self.returned(&ticket);
        self.note_table(&ticket, feedback);
        self.hold_while_spent(now, hints);
        if self.settled_late(&ticket, now, feedback) {
            if let Feedback::Throttled { until: Some(until) } | Feedback::Failed { until: Some(until) } =
                feedback
            {
                self.not_before = self.not_before.max(until);
            }
            return;
        }
        match feedback {
            Feedback::Accepted => self.accepted(&ticket, now),
            Feedback::Throttled { until } => {
                self.slow_start.answered();
                self.failures.throttled();
                self.refusal(&ticket, now, until, hints);
            }
            Feedback::Failed { until } => self.failed(&ticket, now, until, hints),
        }
        if self.learn {
            self.mirror(&ticket, now, feedback, hints);
            self.note_belief(now);
        }
    }

    /// Nothing left and a time when there is something again: a promise not to call before it, whatever else the
    /// headers leave out. A quota that states its limit is followed by a meter, which knows what is left then.
    fn hold_while_spent(&mut self, now: Mono, hints: &Hints) {
        let spent = |quota: &&Quota| quota.limit.is_none() && quota.remaining == Some(0);
        let reset = hints.quotas.iter().flatten().filter(spent).filter_map(|quota| quota.reset).max();
        if let Some(reset) = reset {
            self.hold_until(now + reset);
        }
    }

    /// A call is out no more, whatever came of it.
    fn returned(&mut self, ticket: &Ticket) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.random.returned(ticket.seq);
    }

    /// A call was abandoned; nothing is learned.
    pub fn release(&mut self, ticket: Ticket, now: Mono) {
        self.returned(&ticket);
        self.late.released(&ticket);
        let _ = now;
    }
}

/// A smoothed round trip, in seconds, with one more measurement.
fn smoothed(old: f64, round_trip: f64) -> f64 {
    let new = round_trip.max(ROUND_TRIP_MIN);
    let parts = if new > ROUND_TRIP_LATE * old { ROUND_TRIP_LATE_SMOOTHING } else { ROUND_TRIP_SMOOTHING };
    if old == 0.0 { new } else { old + (new - old) / parts }
}

#[cfg(test)]
mod tests;
