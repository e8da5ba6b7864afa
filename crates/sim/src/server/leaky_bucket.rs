//! The leaky bucket of nginx (`limit_req`), counted as nginx counts it.
//!
//! Why a kind of its own and not a token bucket: nginx reads its clock in whole milliseconds and
//! counts in thousandths of a request. Without a burst a call is taken only if so many whole
//! milliseconds have passed since the last one that was taken, and what passes beyond them is lost.
//! The first request is free, so a burst of 20 takes 21 calls at once. A call above `delay` is not
//! refused but held until its turn.

/// Thousandths of a request, the unit in which nginx counts.
const REQUEST: u64 = 1000;
/// Nanoseconds of a millisecond.
const MILLI: u64 = 1_000_000;

/// The settings of a [`LeakyBucket`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeakyBucketSpec {
    /// Calls per second.
    pub rate: f64,
    /// Calls above the rate that are taken.
    pub burst: u64,
    /// Calls above the rate that are served at once; later ones are held until their turn.
    /// `None` holds none (`nodelay`).
    pub delay: Option<u64>,
}

impl LeakyBucketSpec {
    /// Thousandths of a request per second.
    fn rate_milli(&self) -> u64 {
        ((self.rate * REQUEST as f64).round() as u64).max(1)
    }
}

/// A leaky bucket at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeakyBucket {
    /// What is in it, in thousandths of a request.
    excess: u64,
    /// The millisecond of the last call that was taken; `None` before the first.
    last: Option<u64>,
}

impl LeakyBucket {
    /// Nanoseconds until a call would be taken; 0 means now.
    pub fn wait(&self, spec: &LeakyBucketSpec, now: u64) -> u64 {
        let Some(last) = self.last else { return 0 };
        let lack = (self.excess + REQUEST).saturating_sub(spec.burst.saturating_mul(REQUEST));
        let ready = last + (lack * 1000).div_ceil(spec.rate_milli());
        (ready * MILLI).saturating_sub(now)
    }

    /// Takes a call and says for how many nanoseconds it is held.
    pub fn take(&mut self, spec: &LeakyBucketSpec, now: u64) -> u64 {
        let now = now / MILLI;
        if let Some(last) = self.last {
            let leaked = spec.rate_milli().saturating_mul(now.saturating_sub(last)) / 1000;
            self.excess = (self.excess + REQUEST).saturating_sub(leaked);
        }
        self.last = Some(now);
        let delay = spec.delay.map_or(u64::MAX, |delay| delay.saturating_mul(REQUEST));
        self.excess.saturating_sub(delay) * 1000 / spec.rate_milli() * MILLI
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(spec: &LeakyBucketSpec, at: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut bucket = LeakyBucket::default();
        let mut taken = Vec::new();
        for now in at {
            if bucket.wait(spec, now) == 0 {
                bucket.take(spec, now);
                taken.push(now);
            }
        }
        taken
    }

    #[test]
    fn without_a_burst_calls_are_ten_whole_milliseconds_apart() {
        let spec = LeakyBucketSpec { rate: 100.0, burst: 0, delay: None };
        let mut bucket = LeakyBucket::default();
        assert_eq!(bucket.take(&spec, 900_000), 0);
        assert_eq!(bucket.wait(&spec, 9_999_999), 1);
        // The first was in millisecond 0, so one in millisecond 10 is taken 9.1 ms after it.
        assert_eq!(bucket.wait(&spec, 10_000_000), 0);
        // What passes beyond ten milliseconds is lost: one call every 15 ms is never two.
        assert_eq!(taken(&spec, [0, 15, 24, 25, 34, 35].map(|ms| ms * MILLI).into_iter()).len(), 4);
    }

    #[test]
    fn a_burst_of_twenty_takes_twenty_one_and_refuses_for_nothing() {
        let spec = LeakyBucketSpec { rate: 100.0, burst: 20, delay: None };
        assert_eq!(taken(&spec, std::iter::repeat_n(0, 50)).len(), 21);
        let mut bucket = LeakyBucket::default();
        for _ in 0..21 {
            assert_eq!(bucket.take(&spec, 0), 0);
        }
        assert_eq!(bucket.wait(&spec, 3 * MILLI), 7 * MILLI);
        assert_eq!(bucket.wait(&spec, 3 * MILLI), 7 * MILLI, "a refusal costs nothing");
        assert_eq!(bucket.wait(&spec, 10 * MILLI), 0);
    }

    #[test]
    fn with_delay_the_burst_waits_in_a_queue_of_ten_milliseconds_each() {
        let spec = LeakyBucketSpec { rate: 100.0, burst: 20, delay: Some(0) };
        let mut bucket = LeakyBucket::default();
        let held: Vec<u64> = (0..21).map(|_| bucket.take(&spec, 0) / MILLI).collect();
        assert_eq!(held, (0..21).map(|n| n * 10).collect::<Vec<_>>());
        let partly = LeakyBucketSpec { delay: Some(5), ..spec };
        let mut bucket = LeakyBucket::default();
        let held: Vec<u64> = (0..8).map(|_| bucket.take(&partly, 0) / MILLI).collect();
        assert_eq!(held, [0, 0, 0, 0, 0, 0, 10, 20]);
    }
}
