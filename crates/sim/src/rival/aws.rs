//! The adaptive retry mode of the AWS SDKs.
//!
//! There is no limit until the first throttle. Then every attempt, first or retry, takes a token
//! from a bucket whose fill rate follows the cubic rule of TCP: down to 0.7 of the rate at the
//! throttle, back to that rate along a cubic curve that is flat around it, and beyond. The rate is
//! at most twice the measured one, which is counted in buckets of half a second and smoothed by
//! 0.8, and at least one call in two seconds.
//!
//! A refused call backs off with full jitter: base 1 s, as in the SDKs for throttles, cap 20 s. The
//! SDK retries inside the call, so a waiting call keeps its worker. The retry quota and the limit
//! of three attempts are left out, because here every request has to be completed.

use super::retry_queue::{QueuePeek, Refusals, RetryQueue, exponential};
use super::{Decision, DrainClient, Feedback, Hints, Mono, Tokens, refused};

/// Base of the backoff, in seconds.
const BASE: f64 = 1.0;
/// Cap of the backoff, in seconds.
const CAP: f64 = 20.0;
/// Multiplicative decrease on a throttle.
const BETA: f64 = 0.7;
/// Scale of the cubic curve, in calls per second per cubic second.
const SCALE: f64 = 0.4;
/// Weight of a new measurement of the rate.
const SMOOTH: f64 = 0.8;
/// Slowest rate, in calls per second.
const RATE_MIN: f64 = 0.5;
/// Time buckets per second in which the rate is measured.
const BUCKETS_PER_SECOND: f64 = 2.0;

/// The client's send rate.
#[derive(Clone, Debug)]
struct CubicRate {
    /// `None` before the first throttle.
    tokens: Option<Tokens>,
    /// Rate at the last throttle, in calls per second.
    top: f64,
    /// Time of the last throttle, in seconds.
    throttled: f64,
    /// Measured rate, in calls per second, smoothed.
    measured: f64,
    /// Calls in the current time bucket.
    counted: f64,
    /// The start of the current time bucket, in seconds.
    bucket: f64,
}

impl CubicRate {
    fn new() -> CubicRate {
        CubicRate { tokens: None, top: 0.0, throttled: 0.0, measured: 0.0, counted: 0.0, bucket: 0.0 }
    }

    fn measure(&mut self, t: f64) {
        let bucket = (t * BUCKETS_PER_SECOND).floor() / BUCKETS_PER_SECOND;
        self.counted += 1.0;
        if bucket > self.bucket {
            let rate = self.counted / (bucket - self.bucket);
            self.measured = SMOOTH * rate + (1.0 - SMOOTH) * self.measured;
            (self.counted, self.bucket) = (0.0, bucket);
        }
    }

    fn cubic(&self, t: f64) -> f64 {
        let back = libm::cbrt(self.top * (1.0 - BETA) / SCALE);
        let since = t - self.throttled - back;
        SCALE * since * since * since + self.top
    }

    fn settle(&mut self, now: Mono, refused: bool) {
        let t = now.as_secs_f64();
        self.measure(t);
        let wanted = if refused {
            self.top = self.tokens.map_or(self.measured, |tokens| tokens.rate.min(self.measured));
            self.throttled = t;
            BETA * self.top
        } else {
            self.cubic(t)
        };
        if !refused && self.tokens.is_none() {
            return;
        }
        let rate = wanted.min(2.0 * self.measured).max(RATE_MIN);
        let mut tokens = self.tokens.unwrap_or(Tokens { rate: 0.0, size: 0.0, level: 0.0, at: now });
        tokens.refill(now);
        (tokens.rate, tokens.size) = (rate, rate.max(1.0));
        tokens.level = tokens.level.min(tokens.size);
        self.tokens = Some(tokens);
    }
}

/// The adaptive mode.
#[derive(Clone, Debug)]
pub struct Aws {
    queue: RetryQueue,
    rate: CubicRate,
    workers: usize,
    in_flight: usize,
}

impl Aws {
    /// A client for this many requests and callers.
    #[must_use]
    pub fn new(requests: u64, workers: u32, seed: u64) -> Aws {
        Aws {
            queue: RetryQueue::new(requests, seed),
            rate: CubicRate::new(),
            workers: workers as usize,
            in_flight: 0,
        }
    }
}

impl DrainClient for Aws {
    type Ticket = Refusals;

    fn admit(&mut self, now: Mono) -> Decision<Refusals> {
        let fresh = self.in_flight + self.queue.waiting() < self.workers;
        match self.queue.peek(now, fresh) {
            QueuePeek::Ready(refusals) => {
                if let Some(Err(t)) = self.rate.tokens.as_mut().map(|tokens| tokens.take(now)) {
                    return Decision::At(t);
                }
                self.queue.take(refusals, now);
                self.in_flight += 1;
                Decision::Go(refusals)
            }
            QueuePeek::At(t) => Decision::At(t),
            QueuePeek::Nothing => Decision::Full,
        }
    }

    fn settle(&mut self, ticket: Refusals, now: Mono, seen: Feedback, _: &Hints) {
        self.in_flight -= 1;
        let refused = refused(seen);
        self.rate.settle(now, refused);
        if refused {
            let refusals = ticket.saturating_add(1);
            self.queue.retry(refusals, now, exponential(BASE, CAP, refusals), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten calls a second, all accepted, until `until` tenths of a second.
    fn steady(until: u64) -> CubicRate {
        let mut rate = CubicRate::new();
        (1..=until).for_each(|n| rate.settle(Mono::from_millis(100 * n), false));
        rate
    }

    fn fill(rate: &CubicRate) -> f64 {
        rate.tokens.unwrap().rate
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn the_measured_rate_is_smoothed_over_half_seconds() {
        assert_eq!(steady(4).measured, 0.0);
        // Five in the first half second: 0.8 × 10; then 0.8 × 10 + 0.2 × 8.
        assert!(near(steady(5).measured, 8.0));
        assert!(near(steady(10).measured, 9.6));
        assert!(near(steady(15).measured, 9.92));
        assert!(steady(15).tokens.is_none(), "nothing is limited before the first throttle");
    }

    #[test]
    fn a_throttle_cuts_to_seven_tenths_and_the_cube_comes_back() {
        let mut rate = steady(15);
        rate.settle(Mono::from_millis(1550), true);
        assert!(near(rate.top, 9.92) && near(fill(&rate), 6.944), "{rate:?}");
        // K = ∛(0.3 × 9.92 / 0.4) = 1.9522: after it the old rate is reached again.
        let back = libm::cbrt(7.44);
        assert!(near(rate.cubic(1.55), 6.944));
        assert!(near(rate.cubic(1.55 + back), 9.92));
        assert!(near(rate.cubic(1.55 + back + 1.0), 10.32));
        // A second throttle starts from the lower of the fill rate and the measured one.
        rate.settle(Mono::from_millis(1560), true);
        assert!(near(rate.top, 6.944) && near(fill(&rate), 4.8608));
    }

    #[test]
    fn the_rate_has_a_floor_and_a_ceiling() {
        let mut rate = CubicRate::new();
        rate.settle(Mono::from_millis(10), true);
        assert_eq!(fill(&rate), 0.5, "nothing was measured yet");
        rate.settle(Mono::from_millis(100_000), false);
        // Two calls in a hundred seconds: 0.8 × 0.02, and twice that is below the floor.
        assert!(near(rate.measured, 0.016) && near(fill(&rate), 0.5));
    }

    #[test]
    fn a_waiting_call_holds_its_worker() {
        let mut client = Aws::new(10, 1, 1);
        assert_eq!(client.admit(Mono::ZERO), Decision::Go(0));
        client.settle(0, Mono::from_millis(1), Feedback::Throttled { until: None }, &Hints::default());
        let Decision::At(t) = client.admit(Mono::from_millis(1)) else { panic!("a new request went out") };
        assert!(t < Mono::from_millis(1001), "{t:?}");
        // The backoff is over, the bucket fills at half a token a second.
        assert_eq!(client.admit(t), Decision::At(Mono::from_nanos(2_001_000_001)));
    }
}
