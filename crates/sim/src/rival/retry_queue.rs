//! The queue of refused requests.
//!
//! The drain world returns a refused request to its queue at once and does not distinguish
//! requests. Backoff belongs to a request, so the rivals keep their own state: the number of
//! requests never sent, and for each refused one the time of its retry and the number of refusals.
//! A due retry goes before a new request.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tidegate_core::{Chance, Mono, Rng};

/// The number of refusals of a request.
pub type Refusals = u32;

/// The next request of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePeek {
    /// This request may be sent.
    Ready(Refusals),
    /// None before this time.
    At(Mono),
    /// None until a call in flight returns.
    Nothing,
}

/// New requests, and refused ones with their retry times.
#[derive(Clone, Debug)]
pub struct RetryQueue {
    /// The number of requests never sent.
    fresh: u64,
    /// Refused requests: earliest retry, number of refusals, time of the first attempt.
    waiting: BinaryHeap<Reverse<(Mono, Refusals, Mono)>>,
    rng: Rng,
}

impl RetryQueue {
    /// A queue with `fresh` requests; `seed` determines the jitter.
    #[must_use]
    pub fn new(fresh: u64, seed: u64) -> RetryQueue {
        RetryQueue { fresh, waiting: BinaryHeap::new(), rng: Rng::fork(seed, 0x0072_6976_616c) }
    }

    /// The number of requests that wait for their retry.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The next request; `fresh` says whether it may be a new one.
    #[must_use]
    pub fn peek(&self, now: Mono, fresh: bool) -> QueuePeek {
        match self.waiting.peek() {
            Some(Reverse((at, refusals, _))) if *at <= now => QueuePeek::Ready(*refusals),
            _ if fresh && self.fresh > 0 => QueuePeek::Ready(0),
            Some(Reverse((at, ..))) => QueuePeek::At(*at),
            None => QueuePeek::Nothing,
        }
    }

    /// Takes the request that [`RetryQueue::peek`] returned; returns the time of its first attempt.
    pub fn take(&mut self, refusals: Refusals, now: Mono) -> Mono {
        if refusals == 0 {
            self.fresh = self.fresh.saturating_sub(1);
            return now;
        }
        self.waiting.pop().map_or(now, |Reverse((_, _, first))| first)
    }

    /// Schedules the retry after the `refusals`-th refusal: after a uniformly random time of up to
    /// `ceiling` seconds (full jitter), and not before `hint`.
    pub fn retry(&mut self, refusals: Refusals, now: Mono, ceiling: f64, hint: Option<Mono>) {
        self.retry_since(now, refusals, now, ceiling, hint);
    }

    /// The same, with the time of the first attempt.
    pub fn retry_since(
        &mut self,
        first: Mono,
        refusals: Refusals,
        now: Mono,
        ceiling: f64,
        hint: Option<Mono>,
    ) {
        let wait = Duration::from_secs_f64(self.rng.between(0.0, ceiling));
        let at = (now + wait).max(hint.unwrap_or(now));
        self.waiting.push(Reverse((at, refusals, first)));
    }
}

/// `base` seconds, doubled with every refusal after the first, at most `cap`.
#[must_use]
pub fn exponential(base: f64, cap: f64, refusals: Refusals) -> f64 {
    (base * 2f64.powi(refusals.saturating_sub(1).min(60) as i32)).min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_retries_go_before_new_requests_and_no_earlier() {
        let mut queue = RetryQueue::new(2, 1);
        let at = |ms| Mono::from_millis(ms);
        assert_eq!(queue.peek(at(0), true), QueuePeek::Ready(0));
        assert_eq!(queue.take(0, at(0)), at(0));
        queue.retry_since(at(7), 1, at(0), 0.0, Some(at(50)));
        assert_eq!(queue.peek(at(10), false), QueuePeek::At(at(50)));
        assert_eq!(queue.peek(at(10), true), QueuePeek::Ready(0));
        assert_eq!(queue.peek(at(50), true), QueuePeek::Ready(1));
        assert_eq!(queue.take(1, at(50)), at(7));
        queue.take(0, at(50));
        assert_eq!((queue.peek(at(50), true), queue.waiting()), (QueuePeek::Nothing, 0));
    }

    #[test]
    fn the_wait_is_drawn_below_the_ceiling() {
        let mut queue = RetryQueue::new(0, 1);
        (0..1000).for_each(|_| queue.retry(1, Mono::ZERO, 2.0, None));
        let waits: Vec<f64> = queue.waiting.iter().map(|w| w.0.0.as_secs_f64()).collect();
        assert!(waits.iter().all(|w| (0.0..2.0).contains(w)));
        let mean = waits.iter().sum::<f64>() / 1000.0;
        assert!((0.95..1.05).contains(&mean), "{mean}");
    }

    #[test]
    fn doubling_stops_at_the_cap() {
        let ceilings = [1, 2, 3, 8, 9, u32::MAX].map(|n| exponential(0.1, 20.0, n));
        assert_eq!(ceilings, [0.1, 0.2, 0.4, 12.8, 20.0, 20.0]);
    }
}
