//! Vector's adaptive request concurrency.
//!
//! A concurrency limit from 1 to 200, adjusted once per mean round trip: increased by one if the
//! limit was reached, there was no back pressure and the round trip did not grow; multiplied by 0.9
//! if there was back pressure or the round trip is 2.5 deviations above the mean. Mean and variance
//! are exponentially weighted with 0.4; only successful calls are measured.
//!
//! A refused call backs off by Fibonacci seconds (1, 1, 2, 3 … at most 30) with full jitter.
//!
//! As documented, a refusal is back pressure, and a refused call gives up its slot while it waits.
//! In the shipped program retries happen inside the limit: a refused call keeps its slot, and the
//! limit sees only one long round trip. Both variants are here.

use tidegate_core::time::seconds;

use super::retry_queue::{QueuePeek, Refusals, RetryQueue};
use super::{Decision, DrainClient, Feedback, Hints, Mono, refused};

/// Initial limit, in calls in flight.
const START: u32 = 1;
/// Highest limit, in calls in flight.
const MOST: u32 = 200;
/// Multiplicative decrease.
const FALL: f64 = 0.9;
/// Weight of a new round trip in mean and variance.
const ALPHA: f64 = 0.4;
/// The number of standard deviations above the mean at which a round trip is too long.
const DEVIATIONS: f64 = 2.5;
/// Cap of the backoff, in seconds.
const WAIT_MAX: f64 = 30.0;
/// Means are compared in whole microseconds, so that equal round trips compare equal.
const UNIT: f64 = 1e6;

/// The concurrency limit.
#[derive(Clone, Debug)]
struct AdaptiveConcurrency {
    /// The limit, in calls in flight.
    now: u32,
    in_flight: u32,
    /// Whether the limit was reached since the last adjustment.
    reached: bool,
    /// Whether a call was refused since the last adjustment.
    pushed_back: bool,
    /// Sum of the round trips since the last adjustment, in seconds, and their number.
    rtt: (f64, f64),
    /// Mean (in seconds) and variance of the round trips before that.
    past: Option<(f64, f64)>,
    /// The time of the next adjustment.
    look: Mono,
}

impl AdaptiveConcurrency {
    fn new() -> AdaptiveConcurrency {
        AdaptiveConcurrency {
            now: START,
            in_flight: 0,
            reached: false,
            pushed_back: false,
            rtt: (0.0, 0.0),
            past: None,
            look: Mono::ZERO,
        }
    }

    fn start(&mut self) -> bool {
        if self.in_flight >= self.now {
            return false;
        }
        self.in_flight += 1;
        self.reached |= self.in_flight >= self.now;
        true
    }

    fn end(&mut self, sent: Mono, now: Mono, refused: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.pushed_back |= refused;
        if !refused {
            self.rtt = (self.rtt.0 + now.since(sent).as_secs_f64(), self.rtt.1 + 1.0);
        }
        let current = (self.rtt.1 > 0.0).then(|| (self.rtt.0 / self.rtt.1 * UNIT).round() / UNIT);
        match (self.past, current) {
            (None, None) => {}
            (None, Some(rtt)) => {
                self.past = Some((rtt, 0.0));
                self.look = now + seconds(rtt);
            }
            (Some(past), current) if now >= self.look => {
                self.adjust(past, current);
                let (mean, _) = *self.past.insert(current.map_or(past, |rtt| weigh(past, rtt)));
                self.look = now + seconds(mean);
                (self.rtt, self.pushed_back, self.reached) = ((0.0, 0.0), false, false);
            }
            _ => {}
        }
    }

    fn adjust(&mut self, (mean, variance): (f64, f64), current: Option<f64>) {
        let no_longer = current.is_some_and(|rtt| rtt <= (mean * UNIT).round() / UNIT);
        let far_longer = current.is_some_and(|rtt| rtt >= mean + DEVIATIONS * variance.sqrt());
        if self.now < MOST && self.reached && !self.pushed_back && no_longer {
            self.now += 1;
        } else if self.now > 1 && (self.pushed_back || far_longer) {
            self.now = (f64::from(self.now) * FALL) as u32;
        }
    }
}

fn weigh((mean, variance): (f64, f64), rtt: f64) -> (f64, f64) {
    let delta = rtt - mean;
    (mean + ALPHA * delta, (1.0 - ALPHA) * (variance + ALPHA * delta * delta))
}

/// The backoff: Fibonacci seconds.
fn ceiling(refusals: Refusals) -> f64 {
    let (mut a, mut b) = (1.0, 1.0);
    for _ in 1..refusals.min(20) {
        (a, b) = (b, a + b);
    }
    f64::min(a, WAIT_MAX)
}

/// The adaptive concurrency with its retries.
#[derive(Clone, Debug)]
pub struct Vector {
    queue: RetryQueue,
    shipped: bool,
    limit: AdaptiveConcurrency,
}

impl Vector {
    /// A client for this many requests; as shipped, or as documented.
    #[must_use]
    pub fn new(requests: u64, shipped: bool, seed: u64) -> Vector {
        Vector { queue: RetryQueue::new(requests, seed), shipped, limit: AdaptiveConcurrency::new() }
    }
}

impl DrainClient for Vector {
    type Ticket = (Mono, Refusals);

    fn admit(&mut self, now: Mono) -> Decision<(Mono, Refusals)> {
        let room = self.limit.in_flight < self.limit.now;
        match self.queue.peek(now, room || !self.shipped) {
            // As shipped, a retry has kept its slot.
            QueuePeek::Ready(refusals) if (self.shipped && refusals > 0) || self.limit.start() => {
                let first = self.queue.take(refusals, now);
                Decision::Go((if self.shipped { first } else { now }, refusals))
            }
            QueuePeek::Ready(_) | QueuePeek::Nothing => Decision::Full,
            QueuePeek::At(t) => Decision::At(t),
        }
    }

    fn settle(&mut self, (sent, refusals): (Mono, Refusals), now: Mono, seen: Feedback, _: &Hints) {
        let refused = refused(seen);
        if !(refused && self.shipped) {
            self.limit.end(sent, now, refused);
        }
        if refused {
            let refusals = refusals.saturating_add(1);
            self.queue.retry_since(sent, refusals, now, ceiling(refusals), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends as many calls at `at` as the limit allows, each with a round trip of `ms`.
    fn round(limit: &mut AdaptiveConcurrency, at: u64, ms: u64, refused: bool) -> u32 {
        let mut out = 0;
        while limit.start() {
            out += 1;
        }
        (0..out).for_each(|_| limit.end(Mono::from_millis(at), Mono::from_millis(at + ms), refused));
        limit.now
    }

    #[test]
    fn one_more_per_round_trip_while_it_stays_short() {
        let mut limit = AdaptiveConcurrency::new();
        let steps: Vec<u32> = (0..6).map(|n| round(&mut limit, 100 * n, 100, false)).collect();
        // The first round trip only sets the mean.
        assert_eq!(steps, [1, 2, 3, 4, 5, 6]);
        let most = (6..300).map(|n| round(&mut limit, 100 * n, 100, false)).max();
        assert_eq!(most, Some(200));
    }

    #[test]
    fn push_back_takes_a_tenth_once_per_round_trip() {
        let mut limit = AdaptiveConcurrency::new();
        (0..20).for_each(|n| {
            round(&mut limit, 100 * n, 100, false);
        });
        assert_eq!(limit.now, 20);
        let steps: Vec<u32> = (20..25).map(|n| round(&mut limit, 100 * n, 100, true)).collect();
        assert_eq!(steps, [18, 16, 14, 12, 10]);
    }

    #[test]
    fn a_much_longer_round_trip_is_push_back_too() {
        let mut limit = AdaptiveConcurrency::new();
        (0..10).for_each(|n| {
            round(&mut limit, 100 * n, 100, false);
        });
        assert_eq!((limit.now, limit.past), (10, Some((0.1, 0.0))));
        assert_eq!(round(&mut limit, 1000, 150, false), 9);
        // Since the last adjustment, eight round trips of 100 ms and one of 150 ms: 105.556 ms.
        let (mean, variance) = limit.past.unwrap();
        assert!((mean - 0.102_222_4).abs() < 1e-12, "{mean}");
        assert!((variance - 0.24 * 0.005_556 * 0.005_556).abs() < 1e-12, "{variance}");
    }

    #[test]
    fn a_refused_call_gives_its_place_away_only_as_documented() {
        let refuse = |shipped| {
            let mut client = Vector::new(2, shipped, 1);
            assert_eq!(client.admit(Mono::ZERO), Decision::Go((Mono::ZERO, 0)));
            client.settle(
                (Mono::ZERO, 0),
                Mono::ZERO,
                Feedback::Throttled { until: None },
                &Hints::default(),
            );
            client
        };
        assert_eq!(refuse(false).admit(Mono::ZERO), Decision::Go((Mono::ZERO, 0)));
        let mut shipped = refuse(true);
        let Decision::At(t) = shipped.admit(Mono::ZERO) else { panic!("a new request went out") };
        assert_eq!(shipped.admit(t), Decision::Go((Mono::ZERO, 1)), "timed from its first attempt");
    }

    #[test]
    fn waits_grow_like_rabbits() {
        assert_eq!([1, 2, 3, 4, 5, 9, 99].map(ceiling), [1.0, 1.0, 2.0, 3.0, 5.0, 30.0, 30.0]);
    }
}
