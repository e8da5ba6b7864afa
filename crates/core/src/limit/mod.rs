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
//!
//! Quotas that headers tell: the counter (`quota_meter`), its window (`quota_window`), the lane's own
//! log of that window (`call_log`), and how the quota is restored where headers are too coarse
//! (`reset_history`).

mod belief;
mod burst_estimate;
mod call_log;
mod cooldown_estimate;
mod failure_kind;
mod first_window;
mod in_flight;
mod late_refusals;
mod limit_kind;
mod probe_run;
mod quota_meter;
mod quota_window;
mod random_refusals;
mod rate_estimate;
mod reset_history;
mod single_token_bucket;
mod slow_start;
pub mod token_bucket;

pub use belief::{BelievedKind, LimitBelief};

use crate::hint::{Hints, Quota};
use crate::time::Mono;
use belief::BeliefChange;
use burst_estimate::BurstEstimate;
use cooldown_estimate::CooldownEstimate;
use core::time::Duration;
use failure_kind::{FailureStep, FailureTrial};
use in_flight::{ConcurrencyEvidence, InFlightCap};
use late_refusals::LateRefusals;
use limit_kind::LimitKind;
use quota_meter::{AnswerContext, MeterReady, QuotaMeter};
use random_refusals::{BlockVerdict, RandomRefusals};
use rate_estimate::{RateEstimate, secs};
use single_token_bucket::{CallGaps, SingleTokenBucket};
use slow_start::SlowStart;
use token_bucket::TokenBucket;

/// What the user fixes; everything else is learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitConfig {
    /// The highest rate, in calls per second.
    pub rate_max: Option<f64>,
    /// The burst under `rate_max`, in calls.
    pub burst: Option<f64>,
    /// The most calls in flight.
    pub in_flight_max: u32,
    /// Whether to learn from refusals and headers.
    pub learn: bool,
}

impl Default for LimitConfig {
    fn default() -> LimitConfig {
        LimitConfig { rate_max: None, burst: None, in_flight_max: IN_FLIGHT_MAX, learn: true }
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

/// Calls in flight that are allowed by default.
const IN_FLIGHT_MAX: u32 = 64;
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
    evidence: ConcurrencyEvidence,
    estimate: RateEstimate,
    burst: BurstEstimate,
    cooldowns: CooldownEstimate,
    gaps: CallGaps,
    /// The search for the interval, if the server is a bucket of one token.
    single_token: Option<SingleTokenBucket>,
    random: RandomRefusals,
    meters: [Option<QuotaMeter>; METERS],
    /// Headers have been wrong too often and are ignored.
    headers_wrong: bool,
    /// What refusals are taken for.
    kind: LimitKind,
    failures: FailureTrial,
    late: LateRefusals,
    /// Calls that were allowed in flight when failures were first taken for refusals.
    cap_before: u32,
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
            evidence: ConcurrencyEvidence::NEW,
            estimate: RateEstimate::NEW,
            burst: BurstEstimate::NEW,
            cooldowns: CooldownEstimate::NEW,
            gaps: CallGaps::NEW,
            single_token: None,
            random: RandomRefusals::NEW,
            meters: [None; METERS],
            headers_wrong: false,
            kind: LimitKind::Unknown,
            failures: FailureTrial::NEW,
            late: LateRefusals::NEW,
            cap_before: 0,
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
            inherited: false,
            ceiling: TokenBucket::OPEN,
            ceiling_until: Mono::ZERO,
        }
    }

    /// May a call go out now?
    pub fn admit(&mut self, now: Mono) -> LimiterAdmit {
        self.presume(now);
        let closed = self.not_before.max(self.probe_at);
        if now < closed {
            return LimiterAdmit::At(closed);
        }
        let cap = if self.probing { 1 } else { self.in_flight_cap.cap() };
        if self.waiting() >= cap || self.in_flight >= self.in_flight_cap.max() {
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
        let metered = self.meters.iter().any(Option::is_some);
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
                evenly &= meter.sent(now, committed);
            }
        } else {
            let at = self.pace.ready(now);
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
        let grew = self.estimate.sent(now, self.paced && !metered && !self.random.is_known(), by_pace)
            | self.cooldowns.sent(now, self.seq.saturating_sub(self.refused), self.paced);
        if grew && !metered {
            self.set_pace(now);
        }
        self.in_flight += 1;
        self.late.sent(self.waiting(), self.probing, now);
        let ticket = Ticket {
            sent: now,
            seq: self.seq,
            accepted: self.accepted,
            evenly,
            epoch: self.epoch,
            in_flight: self.waiting(),
        };
        self.seq += 1;
        LimiterAdmit::Go(ticket)
    }

    /// A call came back.
    pub fn settle(&mut self, ticket: Ticket, now: Mono, feedback: Feedback, hints: &Hints) {
        self.in_flight = self.in_flight.saturating_sub(1);
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

    /// A call was abandoned; nothing is learned.
    pub fn release(&mut self, ticket: Ticket, now: Mono) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.late.released(&ticket);
        let _ = now;
    }

    /// The learned pace in calls per second.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let told = self.meters.iter().flatten().filter_map(QuotaMeter::rate).min_by(f64::total_cmp);
        told.or_else(|| match () {
            () if self.cooldowns.is_known() => Some(self.cooldowns.estimate()),
            () if self.single_token.is_some() => self.single_token.as_ref().map(SingleTokenBucket::rate),
            () => self.estimate.is_known().then(|| self.estimate.estimate()),
        })
    }

    /// Calls in flight now.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Calls that may be in flight.
    #[must_use]
    pub fn cap(&self) -> u32 {
        self.in_flight_cap.cap()
    }

    /// Nothing goes out before this, because the server said so.
    #[must_use]
    pub const fn not_before(&self) -> Mono {
        self.not_before
    }

    /// Whether a failure now is taken for the refusal of a limit.
    #[must_use]
    pub const fn failures_are_limit(&self) -> bool {
        self.late.last_was_late() || self.failures.is_limit()
    }

    /// Whether the server fails whatever is sent, and is probed ever less often. Until it is known whether
    /// that is an outage, the lane decides when to ask, as an open breaker does.
    #[must_use]
    pub const fn probes_failures(&self) -> bool {
        self.probing && self.failures.is_tried()
    }

    /// Whether a failure now says something about the server's health: it may be a refusal otherwise.
    #[must_use]
    pub const fn failures_are_health(&self) -> bool {
        !self.late.last_was_late() && (!self.failures.is_tried() || self.failures.is_alone())
    }

    /// Whether what was learned explains a refusal that has just come: the lane knows when to send again.
    #[must_use]
    pub fn explains_refusal(&self, now: Mono) -> bool {
        if !self.learn || self.meters.iter().any(Option::is_some) {
            return true;
        }
        let learned = self.kind != LimitKind::Unknown || self.cooldowns.is_known();
        self.accepted > 0 && learned && self.estimate.explains(now)
    }

    /// Begins with what another limiter believed of the same server; see [`crate::lane::Lane::succeed`].
    pub(crate) fn succeed(&mut self, belief: &LimitBelief, now: Mono) {
        self.spend_burst(now);
        if let Some(rate) = belief.rate.filter(|_| self.learn) {
            self.inherited = true;
            self.kind = LimitKind::Rate;
            self.estimate = RateEstimate::learned(now, SUCCESSOR_SHARE * rate);
            self.ceiling.set(now, Some(rate), 1.0);
            self.ceiling.empty_to(now, 1.0);
            self.ceiling_until = now + SUCCESSOR_CEILING;
            self.set_pace(now);
        } else if let Some(calls) = belief.in_flight.filter(|_| self.learn) {
            self.inherited = true;
            self.kind = LimitKind::Concurrency;
            self.in_flight_cap.prove(calls);
        }
    }

    /// The user's own rate begins without a burst: another limiter has just used it.
    pub(crate) fn spend_burst(&mut self, now: Mono) {
        self.user_pace.empty_to(now, 1.0);
    }

    /// Nothing goes out before `until`: what the server said before this limiter was made.
    pub fn hold_until(&mut self, until: Mono) {
        self.not_before = self.not_before.max(until);
    }

    fn accepted(&mut self, ticket: &Ticket, now: Mono) {
        let late = secs(ticket.sent, now) > ROUND_TRIP_LATE * self.round_trip;
        self.round_trip = smoothed(self.round_trip, secs(ticket.sent, now));
        self.slow_start.accepted(now);
        self.in_flight_cap.accepted(ticket.in_flight, self.round_trip);
        self.evidence.accepted(self.at_server(ticket));
        self.accepted_since += 1;
        self.accepted += 1;
        self.random.count(false);
        if !self.learn {
            return;
        }
        if self.failures.accepted(ticket.seq) {
            self.forget_refusals(now);
        }
        self.estimate.answered(now);
        if self.kind == LimitKind::Concurrency && !self.cooldowns.is_known() {
            self.pace_by_concurrency(now);
        }
        self.gaps.note(ticket.seq, ticket.sent, true);
        let before = ticket.seq.saturating_sub(self.refused);
        // What overtook a refused call says nothing about a server that refuses everything.
        let overtook = self.probing && self.kind == LimitKind::Concurrency && ticket.epoch != self.epoch;
        if !overtook && self.estimate.accepted(ticket.seq, ticket.sent, before, self.burst.lost()) {
            self.nothing_saved(now, late && !self.probing);
            self.probing = false;
            if self.accepted == 1 && self.refused > 0 && !self.inherited && ticket.epoch == self.epoch {
                // It had refused everything so far: that says nothing about its limit.
                self.cap_before = self.in_flight_cap.cap();
                self.forget_refusals(now);
                return;
            }
            if let Some(peak) = self.random.recognise(self.estimate.estimate()) {
                if self.failures.is_tried() {
                    self.failures.random(self.seq);
                    self.forget_refusals(now);
                    return;
                }
                self.estimate.set(peak);
                self.set_pace(now);
            }
            if self.kind == LimitKind::Rate && !self.random.is_known() {
                self.set_pace(now);
            }
        }
        let next = self.seq;
        let shortened = self.single_token.as_mut().is_some_and(|bucket| bucket.accepted(ticket.seq, next));
        if shortened || self.judge() {
            self.set_pace(now);
        }
    }

    fn refusal(&mut self, ticket: &Ticket, now: Mono, until: Option<Mono>, hints: &Hints) {
        if let Some(until) = until {
            self.not_before = self.not_before.max(until);
        }
        let accepted = ticket.seq.saturating_sub(self.refused);
        let at_server = self.at_server(ticket);
        let late = secs(ticket.sent, now) > ROUND_TRIP_LATE * self.round_trip;
        self.refused_round_trip = smoothed(self.refused_round_trip, secs(ticket.sent, now));
        self.refused += 1;
        if !self.learn {
            return;
        }
        let fresh = ticket.epoch == self.epoch;
        // Refusals of a server that refuses everything are not random.
        if !self.probing {
            self.random.count(true);
        }
        self.gaps.note(ticket.seq, ticket.sent, false);
        if fresh && self.kind == LimitKind::Unknown {
            if let Some(time) = self.estimate.run_time(ticket.sent) {
                self.burst.first_run(time, accepted as f64);
            }
        } else if fresh {
            self.burst.refused(self.pace.tokens(now));
        }
        self.estimate.refused(ticket.seq, ticket.sent, accepted, fresh);
        self.nothing_saved(now, late && !self.probing);
        if !fresh {
            self.cooldowns.refused_late(ticket.seq);
            self.refused_late(now, at_server);
            return;
        }
        self.epoch += 1;
        if self.meters.iter().any(Option::is_some) {
            let spent = |m: &QuotaMeter| {
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
        let cooldown = until.map_or(0.0, |t| secs(now, t));
        if cooldown > COSTLY_COOLDOWN && accepted == 0 && self.accepted == 0 && self.refused == 1 {
            // That the very first call is refused says nothing about the limit. If another is refused with it,
            // that is taken for the first.
            (self.probing, self.epoch) = (true, ticket.epoch);
            return;
        }
        if cooldown > COSTLY_COOLDOWN {
            self.refused_with_cooldown(ticket, now, accepted, at_server);
            return;
        }
        if self.random.is_known() {
            if self.judge() {
                self.set_pace(now);
            }
            return;
        }
        if self.suspects_concurrency(ticket, now, accepted, at_server) {
            return;
        }
        if let Some(bucket) = &mut self.single_token {
            bucket.refused(self.seq);
            if bucket.is_refuted() {
                let rate = bucket.rate();
                (self.single_token, self.gaps) = (None, CallGaps::NEW);
                self.estimate.set(rate);
            }
        } else {
            self.single_token = self.gaps.single_token().map(SingleTokenBucket::new);
        }
        self.set_pace(now);
        if self.single_token.is_some() {
            self.pace.delay(now, 1.0);
            return;
        }
        if self.estimate.refusals() > 1 {
            self.pace.delay(now, self.estimate.counted_refusals());
        }
        if self.estimate.is_closed() {
            self.probe_closed(now);
        }
    }

    fn failed(&mut self, ticket: &Ticket, now: Mono, until: Option<Mono>, hints: &Hints) {
        if let Some(until) = until {
            self.not_before = self.not_before.max(until);
        }
        if !self.learn {
            return;
        }
        if until.is_none() && self.meters.iter().all(Option::is_none) {
            let cap = self.in_flight_cap.cap();
            let was = self.failures.kind();
            let alone = ticket.in_flight == 1 && ticket.epoch == self.epoch;
            let step = self.failures.failed(ticket.seq, alone, self.seq, now);
            if was != self.failures.kind() && step == FailureStep::Refusal {
                self.cap_before = cap;
            }
            match step {
                FailureStep::Refusal => return self.refusal(ticket, now, None, hints),
                FailureStep::Void => self.forget_refusals(now),
                FailureStep::Failure => {}
            }
        }
        // Where failures may still turn out to be refusals, what is out must fail too.
        let (out, time) = if self.failures.was_vain() { (0, 0.0) } else { (self.waiting(), self.round_trip) };
        if self.slow_start.failed(now, out, time) {
            self.in_flight_cap.restart();
        }
    }

    /// The refusals were none: what was learned from them is void.
    fn forget_refusals(&mut self, now: Mono) {
        self.kind = LimitKind::Unknown;
        self.in_flight_cap.lift();
        self.in_flight_cap.at_least(f64::from(self.cap_before));
        (self.pace, self.evidence) = (TokenBucket::OPEN, ConcurrencyEvidence::NEW);
        self.estimate = RateEstimate::from(now, self.seq, self.committed() as u64, None);
        (self.single_token, self.gaps, self.random) = (None, CallGaps::NEW, RandomRefusals::NEW);
        self.cooldowns = CooldownEstimate::NEW;
        (self.probing, self.probe_at) = (false, Mono::ZERO);
    }

    /// Judges a block of calls to a server that refuses at random. True if the pace has changed.
    fn judge(&mut self) -> bool {
        match self.random.judge() {
            BlockVerdict::Open => false,
            BlockVerdict::Clean(growth) => {
                if growth > 1.0 && self.paced {
                    self.estimate.set((self.estimate.estimate() * growth).min(RATE_MAX));
                }
                true
            }
            BlockVerdict::Limit(share) | BlockVerdict::Mistaken(share) => {
                self.estimate.set(self.estimate.estimate() * share);
                true
            }
            BlockVerdict::Gone => true,
        }
    }

    /// A call goes by the pace. If the lane could not send for a while, what the server has saved meanwhile
    /// may go at once.
    fn catch_up(&mut self, now: Mono) {
        let Some(rate) = self.pace.rate() else { return };
        let measured =
            self.kind == LimitKind::Rate && self.single_token.is_none() && !self.estimate.is_guess();
        if self.probing || self.cooldowns.is_known() || !measured {
            return;
        }
        let tokens = self.pace.tokens(now);
        if let Some(saved) = self.burst.stalled(self.pace.idle(), rate) {
            self.pace.grant(now, saved);
        } else if self.burst.sent(tokens, rate) {
            self.pace.set(now, Some(rate), 1.0);
        }
    }

    /// The server has just refused, or has just opened: it has nothing saved. It may have stood still before.
    fn nothing_saved(&mut self, now: Mono, stood_still: bool) {
        if !self.cooldowns.is_known() {
            self.pace.empty_to(now, 1.0);
        }
        self.burst.spent(self.pace.idle(), stood_still);
    }

    fn set_pace(&mut self, now: Mono) {
        let (rate, burst) = match () {
            () if self.cooldowns.is_known() => (self.cooldowns.pace(), self.cooldowns.burst()),
            () if self.single_token.is_some() => {
                (self.single_token.as_ref().map_or(1.0, SingleTokenBucket::rate), 1.0)
            }
            () if self.estimate.is_known() => {
                (self.estimate.pace(), if self.burst.is_catching_up() { self.pace.tokens(now) } else { 1.0 })
            }
            () => return,
        };
        self.pace.set(now, Some(rate), burst);
        // What rests on a few calls may be far too high.
        let guessed = !self.cooldowns.is_known() && self.single_token.is_none() && self.estimate.is_guess();
        let needed =
            if guessed { IN_FLIGHT_MIN } else { IN_FLIGHT_PER_RATE * rate * self.round_trip + IN_FLIGHT_MIN };
        self.in_flight_cap.at_least(needed);
    }

    /// Calls sent and not refused.
    fn committed(&self) -> f64 {
        self.seq.saturating_sub(self.refused) as f64
    }

    /// Follows the counters that the headers tell.
    fn mirror(&mut self, ticket: &Ticket, now: Mono, feedback: Feedback, hints: &Hints) {
        if self.headers_wrong {
            return;
        }
        let told = |q: &&Quota| q.limit.is_some() && (q.remaining.is_some() || q.window.is_some());
        if !hints.quotas.iter().flatten().any(|q| told(&q)) {
            if feedback == Feedback::Accepted {
                self.meters.iter_mut().flatten().for_each(QuotaMeter::told_nothing);
            }
            return;
        }
        let this = u64::from(feedback == Feedback::Accepted);
        // Sure are those that had come back when it was sent. Calls that go one after the other do not
        // overtake each other on their way.
        let before = (ticket.seq + this).saturating_sub(self.refused).min(self.accepted);
        let accepted = if ticket.evenly { before } else { ticket.accepted + this } as f64;
        let answer = AnswerContext {
            sent: ticket.sent,
            now,
            accepted,
            in_flight: f64::from(self.in_flight),
            in_flight_sent: f64::from(ticket.in_flight.saturating_sub(1)),
        };
        for slot in &mut self.meters {
            let told = |m: &QuotaMeter| hints.quotas.iter().flatten().any(|q| m.is(q));
            if slot.as_mut().is_some_and(|m| !told(m) && m.told_others()) {
                *slot = None;
            }
        }
        for quota in hints.quotas.iter().flatten().filter(told) {
            if let Some(meter) = self.meters.iter_mut().flatten().find(|m| m.is(quota)) {
                meter.told(quota, &answer);
            } else if let Some(free) = self.meters.iter_mut().find(|m| m.is_none()) {
                *free = QuotaMeter::new(quota, &answer);
                if free.is_some() {
                    self.in_flight_cap.lift();
                    // What is left may go.
                    self.in_flight_cap.at_least(quota.remaining.unwrap_or(0) as f64);
                }
                if self.meters.iter().flatten().count() > 1 {
                    self.meters.iter_mut().flatten().for_each(QuotaMeter::set_has_others);
                }
            }
        }
        if self.meters.iter().flatten().any(QuotaMeter::is_wrong) {
            let rate = self.meters.iter().flatten().filter_map(QuotaMeter::rate_min).min_by(f64::total_cmp);
            (self.meters, self.headers_wrong, self.kind) = ([None; METERS], true, LimitKind::Rate);
            // What was accepted so far is less than the limit, but something.
            let rate = rate.or_else(|| self.estimate.accepted_rate(now, self.accepted));
            self.estimate = RateEstimate::from(now, ticket.seq, self.committed() as u64, rate);
            self.set_pace(now);
        }
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
