//! The common approach: fixed concurrency and backoff with full jitter.
//!
//! Sixteen calls in flight; base 100 ms, doubled with every refusal, at most 20 s. `Retry-After` is
//! obeyed only by the request that received it, as in common HTTP libraries. A refused request
//! gives up its slot while it waits.

use super::retry_queue::{QueuePeek, Refusals, RetryQueue, exponential};
use super::{Decision, DrainClient, Feedback, Hints, Mono, refused};

/// Most calls in flight.
const IN_FLIGHT_MAX: u32 = 16;
/// Base of the backoff, in seconds.
const BASE: f64 = 0.1;
/// Cap of the backoff, in seconds.
const CAP: f64 = 20.0;

/// A fixed number of concurrent calls.
#[derive(Clone, Debug)]
pub struct Fixed {
    queue: RetryQueue,
    in_flight: u32,
}

impl Fixed {
    /// A client for this many requests.
    #[must_use]
    pub fn new(requests: u64, seed: u64) -> Fixed {
        Fixed { queue: RetryQueue::new(requests, seed), in_flight: 0 }
    }
}

impl DrainClient for Fixed {
    type Ticket = Refusals;

    fn admit(&mut self, now: Mono) -> Decision<Refusals> {
        if self.in_flight >= IN_FLIGHT_MAX {
            return Decision::Full;
        }
        match self.queue.peek(now, true) {
            QueuePeek::Ready(refusals) => {
                self.queue.take(refusals, now);
                self.in_flight += 1;
                Decision::Go(refusals)
            }
            QueuePeek::At(t) => Decision::At(t),
            QueuePeek::Nothing => Decision::Full,
        }
    }

    fn settle(&mut self, ticket: Refusals, now: Mono, seen: Feedback, hints: &Hints) {
        self.in_flight -= 1;
        if refused(seen) {
            let refusals = ticket.saturating_add(1);
            let hint = hints.retry_after.map(|wait| now + wait);
            self.queue.retry(refusals, now, exponential(BASE, CAP, refusals), hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sixteen_at_once_and_a_refused_one_makes_room() {
        let mut client = Fixed::new(100, 1);
        for _ in 0..16 {
            assert_eq!(client.admit(Mono::ZERO), Decision::Go(0));
        }
        assert_eq!(client.admit(Mono::ZERO), Decision::Full);
        client.settle(0, Mono::ZERO, Feedback::Throttled { until: None }, &Hints::default());
        assert_eq!(client.admit(Mono::ZERO), Decision::Go(0));
        client.settle(0, Mono::from_millis(100), Feedback::Accepted, &Hints::default());
        assert_eq!(client.admit(Mono::from_millis(100)), Decision::Go(1), "its backoff is over");
    }

    #[test]
    fn a_hint_holds_the_request_that_got_it() {
        let mut client = Fixed::new(1, 1);
        assert_eq!(client.admit(Mono::ZERO), Decision::Go(0));
        let hints = Hints { retry_after: Some(Duration::from_secs(3)), ..Hints::default() };
        client.settle(0, Mono::ZERO, Feedback::Throttled { until: None }, &hints);
        assert_eq!(client.admit(Mono::ZERO), Decision::At(Mono::from_millis(3000)));
        assert_eq!(client.admit(Mono::from_millis(3000)), Decision::Go(1));
    }
}
