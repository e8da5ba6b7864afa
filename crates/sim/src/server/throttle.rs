//! The throttles that servers really use, as exact state machines in nanoseconds.
//!
//! A [`ServerLimit`] says what the limit is; a [`Throttle`] is its running state. One question is
//! asked of it: a call arrives now and will take this long to serve, do you take it? The answer
//! carries the state of the quota, from which a header dialect can be written, and for a
//! refusal the shortest wait after which the same call would be taken. That wait makes the
//! physically earliest finish of a workload computable by the same code (see [`crate::drain`]),
//! so that utilisation is measured against the server itself and not against a formula.
//!
//! Refused calls cost nothing at the server, as with nginx, Envoy and the common gateways; only the
//! stick table of HAProxy counts them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tidegate_core::{Chance, Rng};

use super::leaky_bucket::{LeakyBucket, LeakyBucketSpec};
use super::stick_table::{StickTable, StickTableSpec};

/// Nanoseconds of a second.
const SECOND: f64 = 1e9;
/// Nanoseconds after which a closed server may be asked again: an hour.
const CLOSED_WAIT: u64 = 3_600_000_000_000;
/// Tolerance, in calls, so that a caller who waits exactly the wait is taken.
const TOLERANCE: f64 = 1e-9;

/// What a server allows. Times in seconds, rates in calls per second.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerLimit {
    /// `rate` tokens a second, at most `burst` kept; full at the start.
    TokenBucket {
        /// Tokens per second.
        rate: f64,
        /// Size of the bucket, in tokens; at least one.
        burst: f64,
    },
    /// `limit` calls in each window of `window` seconds; windows start at `phase` plus multiples.
    FixedWindow {
        /// Calls per window.
        limit: u64,
        /// Length of the window, in seconds.
        window: f64,
        /// The time at which the first window begins, in seconds of the simulated clock.
        phase: f64,
    },
    /// At most `limit` calls in any `window` seconds, by a log of the accepted calls.
    SlidingWindow {
        /// Calls per window.
        limit: u64,
        /// Length of the window, in seconds.
        window: f64,
    },
    /// The two-counter approximation: last window weighted by what is left of it, plus this one.
    SlidingCounter {
        /// Calls per window.
        limit: u64,
        /// Length of the window, in seconds.
        window: f64,
        /// The time at which the first window begins, in seconds of the simulated clock.
        phase: f64,
    },
    /// At most `limit` calls being served at once.
    Concurrency {
        /// Calls in flight.
        limit: usize,
    },
    /// A leaky bucket in milliseconds, as nginx's `limit_req`.
    LeakyBucket(LeakyBucketSpec),
    /// A request rate over two periods that counts refused calls too, as HAProxy's stick table.
    StickTable(StickTableSpec),
    /// No limit, but this share of calls (0 to 1) is refused, whatever their number.
    Random {
        /// The share of refused calls.
        share: f64,
        /// Seed of the draw.
        seed: u64,
    },
    /// No limit.
    Open,
    /// No call is taken.
    Closed,
    /// Every one of these must agree.
    All(Vec<ServerLimit>),
    /// The limit in force from each time (seconds) on; a change starts the new limit afresh.
    Steps(Vec<(f64, ServerLimit)>),
}

/// The state of one quota, unrounded, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QuotaState {
    /// Calls per window; for a bucket its size, in tokens.
    pub limit: f64,
    /// Length of the window, in seconds; for a bucket the time it takes to fill.
    pub window: f64,
    /// Calls left after this one.
    pub remaining: f64,
    /// Seconds until the window ends, the oldest call leaves the log, or the bucket is full.
    pub reset: f64,
    /// Whether the quota refills steadily rather than at `reset`.
    pub steady: bool,
}

/// The answer to one call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleAnswer {
    /// Whether the call was accepted.
    pub accepted: bool,
    /// Nanoseconds until a call like this would be accepted; 0 when this one was.
    pub wait: u64,
    /// Nanoseconds for which the server holds an accepted call before it serves it.
    pub delay: u64,
    /// The tightest quota after this call; none for concurrency limits.
    pub quota: Option<QuotaState>,
}

/// A [`ServerLimit`] at work.
#[derive(Clone, Debug)]
pub struct Throttle {
    limit: ServerLimit,
    state: ThrottleState,
}

#[derive(Clone, Debug)]
enum ThrottleState {
    /// Tokens, at a time in nanoseconds.
    TokenBucket {
        level: f64,
        at: u64,
    },
    /// Number of the window, and calls accepted in it.
    FixedWindow {
        index: i64,
        used: u64,
    },
    /// Times of the accepted calls, in nanoseconds.
    SlidingWindow {
        log: VecDeque<u64>,
    },
    /// Number of the window, and calls accepted in the last one and in it.
    SlidingCounter {
        index: i64,
        last: u64,
        used: u64,
    },
    /// When the calls being served end, in nanoseconds.
    Concurrency {
        ends: BinaryHeap<Reverse<u64>>,
    },
    LeakyBucket(LeakyBucket),
    StickTable(StickTable),
    Random(Rng),
    /// Open or closed: there is nothing to count.
    Stateless,
    All(Vec<Throttle>),
    Steps {
        at: usize,
        inner: Box<Throttle>,
    },
}

impl Throttle {
    /// A server at rest under `limit`.
    #[must_use]
    pub fn new(limit: &ServerLimit) -> Throttle {
        let state = match limit {
            ServerLimit::TokenBucket { burst, .. } => {
                ThrottleState::TokenBucket { level: burst.max(1.0), at: 0 }
            }
            ServerLimit::FixedWindow { .. } => ThrottleState::FixedWindow { index: i64::MIN, used: 0 },
            ServerLimit::SlidingWindow { .. } => ThrottleState::SlidingWindow { log: VecDeque::new() },
            ServerLimit::SlidingCounter { .. } => {
                ThrottleState::SlidingCounter { index: i64::MIN, last: 0, used: 0 }
            }
            ServerLimit::Concurrency { .. } => ThrottleState::Concurrency { ends: BinaryHeap::new() },
            ServerLimit::LeakyBucket(_) => ThrottleState::LeakyBucket(LeakyBucket::default()),
            ServerLimit::StickTable(_) => ThrottleState::StickTable(StickTable::default()),
            ServerLimit::Random { seed, .. } => ThrottleState::Random(Rng::new(*seed)),
            ServerLimit::Open | ServerLimit::Closed => ThrottleState::Stateless,
            ServerLimit::All(limits) => ThrottleState::All(limits.iter().map(Throttle::new).collect()),
            ServerLimit::Steps(steps) => {
                let first = steps.first().map_or(&ServerLimit::Open, |s| &s.1);
                ThrottleState::Steps { at: 0, inner: Box::new(Throttle::new(first)) }
            }
        };
        Throttle { limit: limit.clone(), state }
    }

    /// A call arrives at `now` and would be served for `service` nanoseconds.
    pub fn offer(&mut self, now: u64, service: u64) -> ThrottleAnswer {
        let (wait, quota) = self.look(now);
        if wait > 0 {
            self.refuse(now);
            let (wait, _) = self.look(now);
            return ThrottleAnswer { accepted: false, wait, delay: 0, quota };
        }
        if self.refuses_at_random() {
            return ThrottleAnswer { accepted: false, wait: 0, delay: 0, quota };
        }
        let delay = self.take(now, service);
        let quota = quota.map(|t| QuotaState { remaining: (t.remaining - 1.0).max(0.0), ..t });
        ThrottleAnswer { accepted: true, wait: 0, delay, quota }
    }

    /// Nanoseconds until a call at `now` would be taken; 0 means now. Asking costs nothing.
    pub fn wait(&mut self, now: u64) -> u64 {
        self.look(now).0
    }

    /// Nanoseconds that a call must wait at `now`, and the quota before it.
    fn look(&mut self, now: u64) -> (u64, Option<QuotaState>) {
        match (&self.limit, &mut self.state) {
            (&ServerLimit::TokenBucket { rate, burst }, ThrottleState::TokenBucket { level, at }) => {
                let elapsed = now - core::mem::replace(at, now);
                token_bucket(rate, burst.max(1.0), elapsed, level)
            }
            (
                &ServerLimit::FixedWindow { limit, window, phase },
                ThrottleState::FixedWindow { index, used },
            ) => fixed_window(limit, window, place(now, window, phase), index, used),
            (&ServerLimit::SlidingWindow { limit, window }, ThrottleState::SlidingWindow { log }) => {
                sliding_window(limit, window, now, log)
            }
            (
                &ServerLimit::SlidingCounter { limit, window, phase },
                ThrottleState::SlidingCounter { index, last, used },
            ) => sliding_counter(limit, window, place(now, window, phase), index, last, used),
            (ServerLimit::Concurrency { limit }, ThrottleState::Concurrency { ends }) => {
                concurrency(*limit, now, ends)
            }
            (ServerLimit::LeakyBucket(spec), ThrottleState::LeakyBucket(bucket)) => {
                (bucket.wait(spec, now), None)
            }
            (ServerLimit::StickTable(spec), ThrottleState::StickTable(table)) => {
                (table.wait(spec, now), None)
            }
            (ServerLimit::Closed, _) => (CLOSED_WAIT, None),
            (ServerLimit::All(_), ThrottleState::All(parts)) => {
                let mut worst: (u64, Option<QuotaState>) = (0, None);
                for part in parts {
                    let (wait, quota) = part.look(now);
                    let tighter = match (&quota, &worst.1) {
                        (Some(a), Some(b)) => a.remaining < b.remaining || wait > worst.0,
                        (Some(_), None) => true,
                        (None, _) => false,
                    };
                    worst = (worst.0.max(wait), if tighter { quota } else { worst.1 });
                }
                worst
            }
            (ServerLimit::Steps(steps), ThrottleState::Steps { at, inner }) => {
                while steps.get(*at + 1).is_some_and(|s| up(s.0) <= now) {
                    *at += 1;
                    let next = Throttle::new(&steps[*at].1);
                    **inner = inner.handed_over(next, now);
                }
                let (wait, quota) = inner.look(now);
                let change = steps.get(*at + 1).map_or(u64::MAX, |s| up(s.0) - now);
                (wait.min(change), quota)
            }
            _ => (0, None),
        }
    }

    /// `next` with what carries over when a limit changes: a bucket keeps its level, so that a
    /// step is a new rate and not a gift of a whole burst.
    fn handed_over(&self, mut next: Throttle, now: u64) -> Throttle {
        match (&self.state, &mut next.state, &next.limit) {
            (
                ThrottleState::TokenBucket { level, .. },
                ThrottleState::TokenBucket { level: new, at },
                ServerLimit::TokenBucket { burst, .. },
            ) => {
                (*new, *at) = (level.min(burst.max(1.0)), now);
            }
            (ThrottleState::Concurrency { ends }, ThrottleState::Concurrency { ends: new }, _) => {
                new.clone_from(ends);
            }
            (ThrottleState::SlidingWindow { log }, ThrottleState::SlidingWindow { log: new }, _) => {
                new.clone_from(log);
            }
            _ => {}
        }
        next
    }

    /// Takes a call and says for how many nanoseconds it is held.
    fn take(&mut self, now: u64, service: u64) -> u64 {
        match (&self.limit, &mut self.state) {
            (_, ThrottleState::TokenBucket { level, .. }) => *level -= 1.0,
            (_, ThrottleState::FixedWindow { used, .. } | ThrottleState::SlidingCounter { used, .. }) => {
                *used += 1;
            }
            (_, ThrottleState::SlidingWindow { log }) => log.push_back(now),
            (_, ThrottleState::Concurrency { ends }) => ends.push(Reverse(now + service)),
            (ServerLimit::LeakyBucket(spec), ThrottleState::LeakyBucket(bucket)) => {
                return bucket.take(spec, now);
            }
            (ServerLimit::StickTable(spec), ThrottleState::StickTable(table)) => table.count(spec, now),
            (_, ThrottleState::All(parts)) => {
                return parts.iter_mut().map(|p| p.take(now, service)).max().unwrap_or(0);
            }
            (_, ThrottleState::Steps { inner, .. }) => return inner.take(now, service),
            _ => {}
        }
        0
    }

    /// Draws whether a call is refused whatever the limit.
    fn refuses_at_random(&mut self) -> bool {
        match (&self.limit, &mut self.state) {
            (ServerLimit::Random { share, .. }, ThrottleState::Random(rng)) => rng.unit() < *share,
            (_, ThrottleState::All(parts)) => parts.iter_mut().any(Throttle::refuses_at_random),
            (_, ThrottleState::Steps { inner, .. }) => inner.refuses_at_random(),
            _ => false,
        }
    }

    /// Counts a refused call, where the server does.
    fn refuse(&mut self, now: u64) {
        match (&self.limit, &mut self.state) {
            (ServerLimit::StickTable(spec), ThrottleState::StickTable(table)) => table.count(spec, now),
            (_, ThrottleState::All(parts)) => parts.iter_mut().for_each(|p| p.refuse(now)),
            (_, ThrottleState::Steps { inner, .. }) => inner.refuse(now),
            _ => {}
        }
    }
}

/// A token bucket: how long until there is a token. `elapsed` nanoseconds have passed.
fn token_bucket(rate: f64, burst: f64, elapsed: u64, level: &mut f64) -> (u64, Option<QuotaState>) {
    *level = (*level + elapsed as f64 / SECOND * rate).min(burst);
    let lack = if *level >= 1.0 - TOLERANCE { 0.0 } else { (1.0 - *level) / rate };
    let reset = (burst - *level) / rate;
    let (limit, window, remaining) = (burst, burst / rate, level.max(0.0));
    (up(lack), Some(QuotaState { limit, window, remaining, reset, steady: true }))
}

/// A fixed window: how long until the next one begins, if this one is spent.
fn fixed_window(
    limit: u64,
    window: f64,
    (current, reset): (i64, f64),
    index: &mut i64,
    used: &mut u64,
) -> (u64, Option<QuotaState>) {
    if current != *index {
        (*index, *used) = (current, 0);
    }
    let remaining = limit.saturating_sub(*used) as f64;
    let quota = QuotaState { limit: limit as f64, window, remaining, reset, steady: false };
    (if *used < limit { 0 } else { up(reset).max(1) }, Some(quota))
}

/// A sliding window by a log of the accepted calls: how long until the oldest leaves it.
fn sliding_window(limit: u64, window: f64, now: u64, log: &mut VecDeque<u64>) -> (u64, Option<QuotaState>) {
    let span = up(window);
    while log.front().is_some_and(|&t| t + span <= now) {
        log.pop_front();
    }
    let remaining = limit.saturating_sub(log.len() as u64) as f64;
    let free = log.front().map_or(0, |&t| t + span - now);
    let reset = free as f64 / SECOND;
    let quota = QuotaState { limit: limit as f64, window, remaining, reset, steady: false };
    (if (log.len() as u64) < limit { 0 } else { free.max(1) }, Some(quota))
}

/// A sliding window by two counters: how long until the weighted sum has room for a call.
fn sliding_counter(
    limit: u64,
    window: f64,
    (current, reset): (i64, f64),
    index: &mut i64,
    last: &mut u64,
    used: &mut u64,
) -> (u64, Option<QuotaState>) {
    if current != *index {
        *last = if current == index.saturating_add(1) { *used } else { 0 };
        (*index, *used) = (current, 0);
    }
    let weighted = *last as f64 * reset / window + *used as f64;
    let over = weighted + 1.0 - limit as f64;
    let wait = if over <= TOLERANCE {
        0.0
    } else if *used < limit && *last > 0 {
        over / *last as f64 * window
    } else {
        reset
    };
    let remaining = (limit as f64 - weighted).max(0.0);
    let quota = QuotaState { limit: limit as f64, window, remaining, reset, steady: false };
    (up(wait.min(reset)), Some(quota))
}

/// A concurrency limit: how long until a call that is being served ends.
fn concurrency(limit: usize, now: u64, ends: &mut BinaryHeap<Reverse<u64>>) -> (u64, Option<QuotaState>) {
    while ends.peek().is_some_and(|e| e.0 <= now) {
        ends.pop();
    }
    let free = ends.peek().map_or(1, |e| e.0 - now);
    (if ends.len() < limit { 0 } else { free }, None)
}

/// Nanoseconds, rounded up.
fn up(seconds: f64) -> u64 {
    (seconds * SECOND).ceil() as u64
}

/// Which window `now` is in and the seconds until it ends.
fn place(now: u64, window: f64, phase: f64) -> (i64, f64) {
    let w = (window * SECOND).round().max(1.0) as i64;
    let t = now as i64 - (phase * SECOND).round() as i64;
    let index = t.div_euclid(w);
    (index, (w - t.rem_euclid(w)) as f64 / SECOND)
}
