//! One lane drains one queue: the smallest world in which a limiter can be judged.
//!
//! N equal requests wait, `workers` at most are out at once, each travels half a round trip, is
//! taken or refused by the server's throttle, and travels back. A refused request goes back to
//! the queue. Utilisation is the physically earliest finish divided by ours; the earliest finish
//! is found by [`earliest`], a clairvoyant client that drives the same throttle, is never
//! refused and is bound by the same workers and mean latencies.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tidegate_core::hint::{Hints, Quota};
use tidegate_core::limit::Feedback;
use tidegate_core::{Chance, Mono, Rng};

use crate::server::{QuotaState, ServerLimit, Throttle, ThrottleAnswer};

/// A world for one drain.
#[derive(Clone, Debug, PartialEq)]
pub struct DrainWorld {
    /// The server's limit.
    pub limit: ServerLimit,
    /// Requests to drain.
    pub requests: u64,
    /// Most requests in flight.
    pub workers: u32,
    /// Mean round trip without service, in seconds.
    pub rtt: f64,
    /// Mean service time of an accepted call, in seconds.
    pub service: f64,
    /// Relative spread of both: each draw is uniform in mean × (1 ± jitter).
    pub jitter: f64,
    /// The hints that the server sends.
    pub tells: ServerHints,
}

/// The hints that a server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerHints {
    /// Nothing.
    Nothing,
    /// Retry-After in whole seconds, rounded up, at least one, on refusals.
    RetryAfter,
    /// A quota on responses.
    Quota(QuotaHeaders),
}

/// How a server writes its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaHeaders {
    /// The policy's window is told (RateLimit-Policy), with a limit that fits whole seconds.
    pub window: bool,
    /// Only refusals carry headers.
    pub only_refusals: bool,
    /// `remaining` counts before this call rather than after it.
    pub before: bool,
    /// `reset` is an absolute second (floor of the server's clock plus one) rather than a delta.
    pub epoch: bool,
    /// Refusals carry Retry-After too.
    pub retry_after: bool,
}

impl QuotaHeaders {
    /// RateLimit and RateLimit-Policy as in the IETF draft.
    pub const RATE_LIMIT: QuotaHeaders =
        QuotaHeaders { window: true, only_refusals: false, before: false, epoch: false, retry_after: false };
    /// X-RateLimit-Limit, -Remaining and -Reset, the last an epoch second.
    pub const X_RATE_LIMIT: QuotaHeaders =
        QuotaHeaders { window: false, only_refusals: false, before: false, epoch: true, retry_after: false };
}

/// Something that decides when to send.
pub trait DrainClient {
    /// What it hands out for one call.
    type Ticket;
    /// May a call go out now?
    fn admit(&mut self, now: Mono) -> Decision<Self::Ticket>;
    /// A call came back.
    fn settle(&mut self, ticket: Self::Ticket, now: Mono, seen: Feedback, hints: &Hints);
}

/// The answer of a [`DrainClient`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision<T> {
    /// Send.
    Go(T),
    /// Ask again then.
    At(Mono),
    /// Ask again after something came back.
    Full,
}

/// What happened in one drain.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DrainOutcome {
    /// The time of the last response, in seconds from the start.
    pub finish: f64,
    /// The physically earliest finish, in seconds from the start.
    pub earliest: f64,
    /// Calls made.
    pub calls: u64,
    /// Calls refused.
    pub refused: u64,
    /// Requests left when the run was stopped as hopeless; 0 in a whole drain.
    pub left: u64,
    /// Calls sent before the time that the server had asked for.
    pub early: u64,
}

impl DrainOutcome {
    /// Earliest finish over ours, in per cent.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        if self.left > 0 { 0.0 } else { 100.0 * self.earliest / self.finish }
    }

    /// Refused calls of all calls, in per cent.
    #[must_use]
    pub fn refused_percent(&self) -> f64 {
        100.0 * self.refused as f64 / self.calls.max(1) as f64
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DrainEvent {
    Arrive(u32),
    Return(u32),
    Wake,
}

struct CallInFlight<T> {
    ticket: T,
    accepted: bool,
    hints: Hints,
}

/// Drains `world` with `client`. The run is stopped as hopeless at twenty times the earliest
/// finish.
pub fn drain<C: DrainClient>(world: &DrainWorld, client: &mut C, seed: u64) -> DrainOutcome {
    let earliest = earliest(world);
    let stop = ((earliest + 10.0) * 20e9) as u64;
    let mut rng = Rng::new(seed);
    let mut server = Throttle::new(&world.limit);
    let mut heap: BinaryHeap<Reverse<(u64, u64, DrainEvent)>> = BinaryHeap::new();
    let mut flights: Vec<Option<CallInFlight<C::Ticket>>> = Vec::new();
    let mut free: Vec<u32> = Vec::new();
    let mut out = DrainOutcome { earliest, left: world.requests, ..DrainOutcome::default() };
    let (mut queue, mut in_flight, mut order) = (world.requests, 0u32, 0u64);
    let (mut now, mut wake, mut not_before) = (0u64, u64::MAX, 0u64);
    let mut push = |heap: &mut BinaryHeap<_>, at: u64, event| {
        order += 1;
        heap.push(Reverse((at, order, event)));
    };
    loop {
        while queue > 0 && in_flight < world.workers {
            match client.admit(Mono::from_nanos(now)) {
                Decision::Go(ticket) => {
                    let flight = CallInFlight { ticket, accepted: false, hints: Hints::default() };
                    let slot = free.pop().unwrap_or(flights.len() as u32);
                    match flights.get_mut(slot as usize) {
                        Some(place) => *place = Some(flight),
                        None => flights.push(Some(flight)),
                    }
                    out.early += u64::from(now < not_before);
                    (queue, in_flight, out.calls) = (queue - 1, in_flight + 1, out.calls + 1);
                    push(
                        &mut heap,
                        now + draw(&mut rng, world.rtt / 2.0, world.jitter),
                        DrainEvent::Arrive(slot),
                    );
                }
                Decision::At(t) => {
                    let t = t.nanos().max(now + 1);
                    if t < wake {
                        wake = t;
                        push(&mut heap, t, DrainEvent::Wake);
                    }
                    break;
                }
                Decision::Full => break,
            }
        }
        let Some(Reverse((at, _, event))) = heap.pop() else { break };
        now = at;
        if now > stop {
            break;
        }
        match event {
            DrainEvent::Wake => wake = if at >= wake { u64::MAX } else { wake },
            DrainEvent::Arrive(slot) => {
                let service = draw(&mut rng, world.service, world.jitter);
                let answer = server.offer(now, service);
                let back = draw(&mut rng, world.rtt / 2.0, world.jitter);
                let delay = if answer.accepted { service + back } else { back };
                if let Some(Some(flight)) = flights.get_mut(slot as usize) {
                    flight.accepted = answer.accepted;
                    flight.hints = told(world.tells, &answer, now);
                }
                push(&mut heap, now + delay, DrainEvent::Return(slot));
            }
            DrainEvent::Return(slot) => {
                let Some(flight) = flights.get_mut(slot as usize).and_then(Option::take) else { continue };
                free.push(slot);
                in_flight -= 1;
                let mono = Mono::from_nanos(now);
                let seen = if flight.accepted {
                    (out.left, out.finish) = (out.left - 1, now as f64 / 1e9);
                    Feedback::Accepted
                } else {
                    (queue, out.refused) = (queue + 1, out.refused + 1);
                    let until = flight.hints.retry_after.map(|d| mono + d);
                    not_before = not_before.max(until.map_or(0, Mono::nanos));
                    Feedback::Throttled { until }
                };
                client.settle(flight.ticket, mono, seen, &flight.hints);
                if out.left == 0 {
                    break;
                }
            }
        }
    }
    out
}

/// When a client that knows everything would be done, in seconds.
#[must_use]
pub fn earliest(world: &DrainWorld) -> f64 {
    let mut server = Throttle::new(&world.limit);
    let service = (world.service * 1e9) as u64;
    let half = (world.rtt * 0.5e9) as u64;
    let mut workers: BinaryHeap<Reverse<u64>> = (0..world.workers).map(|_| Reverse(0)).collect();
    let (mut last, mut clock) = (0, 0);
    for _ in 0..world.requests {
        let Some(Reverse(ready)) = workers.pop() else { break };
        let mut at = (ready + half).max(clock);
        loop {
            let answer = server.offer(at, service);
            if answer.accepted {
                break;
            }
            at += answer.wait.max(1);
        }
        clock = at;
        last = at + service + half;
        workers.push(Reverse(last));
    }
    last as f64 / 1e9
}

fn draw(rng: &mut Rng, mean: f64, jitter: f64) -> u64 {
    (mean * 1e9 * (1.0 + jitter * (2.0 * rng.unit() - 1.0))).max(0.0) as u64
}

/// The hints a client would read from the response.
fn told(tells: ServerHints, answer: &ThrottleAnswer, now: u64) -> Hints {
    let mut hints = Hints::default();
    let wait = Duration::from_nanos(answer.wait).as_secs_f64().ceil().max(1.0);
    match tells {
        ServerHints::Nothing => {}
        ServerHints::RetryAfter => {
            if !answer.accepted {
                hints.retry_after = Some(Duration::from_secs_f64(wait));
            }
        }
        ServerHints::Quota(dialect) => {
            if !answer.accepted && dialect.retry_after {
                hints.retry_after = Some(Duration::from_secs_f64(wait));
            }
            if !answer.accepted || !dialect.only_refusals {
                hints.quotas[0] = answer.quota.map(|t| quota(&t, dialect, answer.accepted, now));
            }
        }
    }
    hints
}

fn quota(state: &QuotaState, dialect: QuotaHeaders, accepted: bool, now: u64) -> Quota {
    let second = Duration::from_secs(1);
    // A policy is written in whole seconds: 3/s with a burst of 1 is q=3;w=1.
    let whole = state.window.ceil().max(1.0);
    let (limit, window) = if dialect.window && state.steady {
        ((state.limit / state.window * whole).round(), Some(whole))
    } else {
        (state.limit, dialect.window.then_some(whole))
    };
    let window = window.filter(|w| state.steady || *w == state.window);
    let before = f64::from(u8::from(dialect.before && accepted));
    let reset = if dialect.epoch {
        let server_now = now as f64 / 1e9;
        (server_now + state.reset).ceil() - server_now
    } else {
        state.reset.ceil()
    };
    Quota {
        limit: Some(limit as u64),
        window: window.map(Duration::from_secs_f64),
        remaining: Some((state.remaining + before) as u64),
        reset: Some(Duration::from_secs_f64(reset.max(0.0))),
        reset_step: second,
    }
}
