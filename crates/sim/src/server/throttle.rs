//! The throttles that servers really use, as exact state machines in nanoseconds.
//!
//! A [`Limit`] says what the limit is; a [`Throttle`] is its running state. One question is
//! asked of it: a call arrives now and will take this long to serve, do you take it? The answer
//! carries the truth about the quota, from which a header dialect can be written, and for a
//! refusal the shortest wait after which the same call would be taken. That wait makes the
//! physically earliest finish of a workload computable by the same code (see [`crate::drain`]),
//! so that utilisation is measured against the server itself and not against a formula.
//!
//! Refused calls cost nothing at the server, as with nginx, Envoy and the common gateways.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const SECOND: f64 = 1e9;

/// What a server allows. Times in seconds, rates in calls per second.
#[derive(Clone, Debug, PartialEq)]
pub enum Limit {
    /// `rate` tokens a second, at most `burst` kept; full at the start.
    Bucket {
        /// Tokens per second.
        rate: f64,
        /// Size of the bucket, at least one.
        burst: f64,
    },
    /// `limit` calls in each window of `window` seconds; windows start at `phase` plus multiples.
    Fixed {
        /// Calls per window.
        limit: u64,
        /// Length of a window.
        window: f64,
        /// When windows begin on the simulated clock.
        phase: f64,
    },
    /// At most `limit` calls in any `window` seconds, by a log of the accepted calls.
    Sliding {
        /// Calls per window.
        limit: u64,
        /// Length of the window.
        window: f64,
    },
    /// The two-counter approximation: last window weighted by what is left of it, plus this one.
    Counter {
        /// Calls per window.
        limit: u64,
        /// Length of a window.
        window: f64,
        /// When windows begin on the simulated clock.
        phase: f64,
    },
    /// At most `limit` calls being served at once.
    Concurrent {
        /// Calls at once.
        limit: usize,
    },
    /// No limit.
    Open,
    /// Every one of these must agree.
    All(Vec<Limit>),
    /// The limit in force from each time (seconds) on; a change starts the new limit afresh.
    Steps(Vec<(f64, Limit)>),
}

/// The state of one quota, unrounded, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Truth {
    /// Calls per window; for a bucket its size.
    pub limit: f64,
    /// Length of the window; for a bucket the time it takes to fill.
    pub window: f64,
    /// Calls left after this one.
    pub remaining: f64,
    /// Until the window ends, the oldest call leaves the log, or the bucket is full.
    pub reset: f64,
    /// Whether the quota refills steadily rather than at `reset`.
    pub steady: bool,
}

/// The answer to one call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Whether the call was taken.
    pub accepted: bool,
    /// Nanoseconds until a call like this would be taken; 0 when this one was.
    pub wait: u64,
    /// The tightest quota after this call; none for concurrency limits.
    pub truth: Option<Truth>,
}

/// A [`Limit`] at work.
#[derive(Clone, Debug)]
pub struct Throttle {
    limit: Limit,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Bucket { level: f64, at: u64 },
    Fixed { index: i64, used: u64 },
    Sliding { log: VecDeque<u64> },
    Counter { index: i64, last: u64, used: u64 },
    Concurrent { ends: BinaryHeap<Reverse<u64>> },
    Open,
    All(Vec<Throttle>),
    Steps { at: usize, inner: Box<Throttle> },
}

impl Throttle {
    /// A server at rest under `limit`.
    #[must_use]
    pub fn new(limit: &Limit) -> Throttle {
        let state = match limit {
            Limit::Bucket { burst, .. } => State::Bucket { level: burst.max(1.0), at: 0 },
            Limit::Fixed { .. } => State::Fixed { index: i64::MIN, used: 0 },
            Limit::Sliding { .. } => State::Sliding { log: VecDeque::new() },
            Limit::Counter { .. } => State::Counter { index: i64::MIN, last: 0, used: 0 },
            Limit::Concurrent { .. } => State::Concurrent { ends: BinaryHeap::new() },
            Limit::Open => State::Open,
            Limit::All(limits) => State::All(limits.iter().map(Throttle::new).collect()),
            Limit::Steps(steps) => {
                let first = steps.first().map_or(&Limit::Open, |s| &s.1);
                State::Steps { at: 0, inner: Box::new(Throttle::new(first)) }
            }
        };
        Throttle { limit: limit.clone(), state }
    }

    /// A call arrives at `now` and would be served for `service` nanoseconds.
    pub fn offer(&mut self, now: u64, service: u64) -> Answer {
        let (wait, truth) = self.look(now);
        if wait > 0 {
            return Answer { accepted: false, wait, truth };
        }
        self.take(now, service);
        let truth = truth.map(|t| Truth { remaining: (t.remaining - 1.0).max(0.0), ..t });
        Answer { accepted: true, wait: 0, truth }
    }

    /// How long a call must wait at `now`, and the quota before it.
    fn look(&mut self, now: u64) -> (u64, Option<Truth>) {
        match (&self.limit, &mut self.state) {
            (Limit::Bucket { rate, burst }, State::Bucket { level, at }) => {
                let burst = burst.max(1.0);
                *level = (*level + (now - *at) as f64 / SECOND * rate).min(burst);
                *at = now;
                // A hair of tolerance, so that a caller who waits exactly the wait is taken.
                let lack = if *level >= 1.0 - 1e-9 { 0.0 } else { (1.0 - *level) / rate };
                let reset = (burst - *level) / rate;
                let (limit, window, remaining) = (burst, burst / rate, level.max(0.0));
                (up(lack), Some(Truth { limit, window, remaining, reset, steady: true }))
            }
            (Limit::Fixed { limit, window, phase }, State::Fixed { index, used }) => {
                let (i, reset) = place(now, *window, *phase);
                if i != *index {
                    (*index, *used) = (i, 0);
                }
                let remaining = limit.saturating_sub(*used) as f64;
                let truth = Truth { limit: *limit as f64, window: *window, remaining, reset, steady: false };
                (if *used < *limit { 0 } else { up(reset).max(1) }, Some(truth))
            }
            (Limit::Sliding { limit, window }, State::Sliding { log }) => {
                let span = up(*window);
                while log.front().is_some_and(|&t| t + span <= now) {
                    log.pop_front();
                }
                let remaining = limit.saturating_sub(log.len() as u64) as f64;
                let free = log.front().map_or(0, |&t| t + span - now);
                let reset = free as f64 / SECOND;
                let truth = Truth { limit: *limit as f64, window: *window, remaining, reset, steady: false };
                (if (log.len() as u64) < *limit { 0 } else { free.max(1) }, Some(truth))
            }
            (Limit::Counter { limit, window, phase }, State::Counter { index, last, used }) => {
                let (i, reset) = place(now, *window, *phase);
                if i != *index {
                    *last = if i == index.saturating_add(1) { *used } else { 0 };
                    (*index, *used) = (i, 0);
                }
                let weighted = *last as f64 * reset / window + *used as f64;
                let over = weighted + 1.0 - *limit as f64;
                let wait = if over <= 1e-9 {
                    0.0
                } else if *used < *limit && *last > 0 {
                    over / *last as f64 * window
                } else {
                    reset
                };
                let remaining = (*limit as f64 - weighted).max(0.0);
                let truth = Truth { limit: *limit as f64, window: *window, remaining, reset, steady: false };
                (up(wait.min(reset)), Some(truth))
            }
            (Limit::Concurrent { limit }, State::Concurrent { ends }) => {
                while ends.peek().is_some_and(|e| e.0 <= now) {
                    ends.pop();
                }
                let free = ends.peek().map_or(1, |e| e.0 - now);
                (if ends.len() < *limit { 0 } else { free }, None)
            }
            (Limit::All(_), State::All(parts)) => {
                let mut worst: (u64, Option<Truth>) = (0, None);
                for part in parts {
                    let (wait, truth) = part.look(now);
                    let tighter = match (&truth, &worst.1) {
                        (Some(a), Some(b)) => a.remaining < b.remaining || wait > worst.0,
                        (Some(_), None) => true,
                        (None, _) => false,
                    };
                    worst = (worst.0.max(wait), if tighter { truth } else { worst.1 });
                }
                worst
            }
            (Limit::Steps(steps), State::Steps { at, inner }) => {
                while steps.get(*at + 1).is_some_and(|s| up(s.0) <= now) {
                    *at += 1;
                    let next = Throttle::new(&steps[*at].1);
                    **inner = inner.handed_over(next, now);
                }
                let (wait, truth) = inner.look(now);
                let change = steps.get(*at + 1).map_or(u64::MAX, |s| up(s.0) - now);
                (wait.min(change), truth)
            }
            _ => (0, None),
        }
    }

    /// `next` with what carries over when a limit changes: a bucket keeps its level, so that a
    /// step is a new rate and not a gift of a whole burst.
    fn handed_over(&self, mut next: Throttle, now: u64) -> Throttle {
        match (&self.state, &mut next.state, &next.limit) {
            (State::Bucket { level, .. }, State::Bucket { level: new, at }, Limit::Bucket { burst, .. }) => {
                (*new, *at) = (level.min(burst.max(1.0)), now);
            }
            (State::Concurrent { ends }, State::Concurrent { ends: new }, _) => new.clone_from(ends),
            (State::Sliding { log }, State::Sliding { log: new }, _) => new.clone_from(log),
            _ => {}
        }
        next
    }

    fn take(&mut self, now: u64, service: u64) {
        match &mut self.state {
            State::Bucket { level, .. } => *level -= 1.0,
            State::Fixed { used, .. } | State::Counter { used, .. } => *used += 1,
            State::Sliding { log } => log.push_back(now),
            State::Concurrent { ends } => ends.push(Reverse(now + service)),
            State::All(parts) => parts.iter_mut().for_each(|p| p.take(now, service)),
            State::Steps { inner, .. } => inner.take(now, service),
            State::Open => {}
        }
    }
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
