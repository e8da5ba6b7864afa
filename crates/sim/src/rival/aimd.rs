//! The AIMD rate of Lance's object store wrapper.
//!
//! A token bucket whose rate is set once per window of one second: halved if any call of the window
//! was throttled, otherwise increased by 300/s; it starts at 2000/s and stays between 1/s and
//! 5000/s. The documentation mentions a burst and a backoff without their sizes; here the bucket
//! holds 100, and a throttled call is retried after 100 to 300 ms and keeps its worker.
//!
//! The defaults are tuned for object stores, which accept thousands of calls per second. For
//! services that accept ten, the rule also runs with every rate and the bucket scaled down; the
//! factor is our assumption, the proportions are the original's. A scaled rule has no upper bound,
//! since its user would not know where to set it. Attempts are not limited.

use tidegate_core::time::seconds;

use super::retry_queue::{QueuePeek, Refusals, RetryQueue};
use super::{Decision, DrainClient, Feedback, Hints, Mono, Tokens, refused};

/// Initial rate, in calls per second.
const START: f64 = 2000.0;
/// Additive increase per window without a throttle, in calls per second.
const STEP: f64 = 300.0;
/// Multiplicative decrease per window with a throttle.
const FALL: f64 = 0.5;
/// Bounds of the rate, in calls per second.
const RATE_MIN: f64 = 1.0;
const RATE_MAX: f64 = 5000.0;
/// Size of the bucket, in tokens.
const BURST: f64 = 100.0;
/// Length of a window, in seconds.
const WINDOW: f64 = 1.0;
/// Bounds of the delay before a retry, in seconds.
const WAIT_MIN: f64 = 0.1;
const WAIT_MAX: f64 = 0.3;

/// The AIMD rate.
#[derive(Clone, Debug)]
pub struct Aimd {
    queue: RetryQueue,
    tokens: Tokens,
    /// Additive increase, in calls per second.
    step: f64,
    /// Most calls per second.
    rate_max: f64,
    /// The start of the window, in seconds.
    window_from: f64,
    /// Whether a call of the window was throttled.
    throttled: bool,
    /// The number of callers, each with one call in flight or waiting.
    workers: usize,
    in_flight: usize,
}

impl Aimd {
    /// A client for this many requests and callers; `scale` 1 is the original.
    #[must_use]
    pub fn new(requests: u64, workers: u32, scale: f64, seed: u64) -> Aimd {
        let size = (BURST * scale).max(1.0);
        Aimd {
            queue: RetryQueue::new(requests, seed),
            tokens: Tokens { rate: START * scale, size, level: size, at: Mono::ZERO },
            step: STEP * scale,
            rate_max: if scale < 1.0 { f64::INFINITY } else { RATE_MAX },
            window_from: 0.0,
            throttled: false,
            workers: workers as usize,
            in_flight: 0,
        }
    }

    fn count(&mut self, now: Mono, refused: bool) {
        self.throttled |= refused;
        let t = now.as_secs_f64();
        if t - self.window_from < WINDOW {
            return;
        }
        self.tokens.refill(now);
        self.tokens.rate = if self.throttled {
            (self.tokens.rate * FALL).max(RATE_MIN)
        } else {
            (self.tokens.rate + self.step).min(self.rate_max)
        };
        (self.window_from, self.throttled) = (t, false);
    }
}

impl DrainClient for Aimd {
    type Ticket = Refusals;

    fn admit(&mut self, now: Mono) -> Decision<Refusals> {
        let fresh = self.in_flight + self.queue.waiting() < self.workers;
        match self.queue.peek(now, fresh) {
            QueuePeek::Ready(refusals) => match self.tokens.take(now) {
                Ok(()) => {
                    self.queue.take(refusals, now);
                    self.in_flight += 1;
                    Decision::Go(refusals)
                }
                Err(t) => Decision::At(t),
            },
            QueuePeek::At(t) => Decision::At(t),
            QueuePeek::Nothing => Decision::Full,
        }
    }

    fn settle(&mut self, ticket: Refusals, now: Mono, seen: Feedback, _: &Hints) {
        self.in_flight -= 1;
        let refused = refused(seen);
        self.count(now, refused);
        if refused {
            self.queue.retry(ticket.saturating_add(1), now + seconds(WAIT_MIN), WAIT_MAX - WAIT_MIN, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(scale: f64, windows: &[bool]) -> Vec<f64> {
        let mut client = Aimd::new(1, 1, scale, 1);
        let mut second = 0;
        let mut after = |refused: &bool| {
            second += 1000;
            client.count(Mono::from_millis(second), *refused);
            client.tokens.rate
        };
        windows.iter().map(&mut after).collect()
    }

    #[test]
    fn a_window_adds_or_halves() {
        assert_eq!(rates(1.0, &[false, true, true, false]), [2300.0, 1150.0, 575.0, 875.0]);
        assert_eq!(rates(0.01, &[false, true, true, false]), [23.0, 11.5, 5.75, 8.75]);
    }

    #[test]
    fn the_rate_stays_in_its_bounds() {
        assert_eq!(rates(1.0, &[true; 12]).last(), Some(&1.0));
        assert_eq!(rates(1.0, &[false; 12]).last(), Some(&5000.0));
        assert_eq!(rates(0.01, &[false; 12]).last(), Some(&56.0));
    }

    #[test]
    fn one_refusal_marks_the_whole_window() {
        let mut client = Aimd::new(1, 1, 1.0, 1);
        client.count(Mono::from_millis(10), true);
        client.count(Mono::from_millis(999), false);
        assert_eq!(client.tokens.rate, 2000.0);
        client.count(Mono::from_millis(1000), false);
        assert_eq!(client.tokens.rate, 1000.0);
        client.count(Mono::from_millis(2000), false);
        assert_eq!(client.tokens.rate, 1300.0);
    }

    #[test]
    fn a_retry_waits_between_100_and_300_ms() {
        let mut client = Aimd::new(1, 1, 1.0, 1);
        assert_eq!(client.admit(Mono::ZERO), Decision::Go(0));
        client.settle(0, Mono::ZERO, Feedback::Throttled { until: None }, &Hints::default());
        let Decision::At(t) = client.admit(Mono::ZERO) else { panic!("a retry went out at once") };
        assert!((0.1..0.3).contains(&t.as_secs_f64()), "{t:?}");
        assert_eq!(client.admit(t), Decision::Go(1));
    }
}
