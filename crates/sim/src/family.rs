//! Families of throttled servers, drawn at random with a seed.
//!
//! A limiter tuned on a handful of servers is good on that handful. So it is judged on worlds
//! drawn from families: rates, bursts, windows, phases, latencies, jitters, workers and lengths
//! are all drawn, and each family reports its whole distribution.

use tidegate_core::{Chance, Rng};

use crate::drain::{DrainWorld, ServerHints};
use crate::server::ServerLimit;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFamily {
    /// Token buckets, any burst.
    Bucket,
    /// Token buckets that keep one token only.
    Tiny,
    /// Fixed windows from 100 ms to 15 min, any phase.
    Fixed,
    /// Sliding windows by log.
    Sliding,
    /// Sliding windows by two counters.
    Counter,
    /// Limits on calls at once.
    Concurrent,
    /// Buckets whose rate steps up and down.
    Steps,
    /// A rate per second and a quota per minute.
    Combined,
}

impl ServerFamily {
    /// All families.
    pub const ALL: [ServerFamily; 8] = [
        ServerFamily::Bucket,
        ServerFamily::Tiny,
        ServerFamily::Fixed,
        ServerFamily::Sliding,
        ServerFamily::Counter,
        ServerFamily::Concurrent,
        ServerFamily::Steps,
        ServerFamily::Combined,
    ];

    /// World number `n` of this family under `seed`.
    #[must_use]
    pub fn world(self, seed: u64, n: u64, tells: ServerHints) -> DrainWorld {
        let rng = &mut Rng::fork(seed.wrapping_mul(31) + self as u64, n);
        let rtt = log(rng, 0.0003, 0.2);
        let service = log(rng, 0.001, 0.15);
        let jitter = pick::<f64>(rng, &[0.0, 0.02, 0.05, 0.1, 0.2]);
        let workers = pick(rng, &[8, 16, 32, 64, 64, 128, 256]);
        // What the workers could do alone; limits above it would never be felt.
        let most = f64::from(workers) / (rtt + service);
        let (limit, rate, burst) = self.limit(rng, most, service);
        // A bucket of one token refuses whatever the network brings a little early, and a limit on
        // calls at once leaves places empty while calls travel: nobody can do better there, so
        // these two families have calm and short ways.
        let (rtt, jitter) = match self {
            ServerFamily::Tiny => (rtt, jitter.min(0.02 / rate / rtt)),
            ServerFamily::Concurrent => (rtt.min(0.02 * service), jitter),
            _ => (rtt, if burst <= 5.0 { jitter.min(0.05 * burst / rate / rtt) } else { jitter }),
        };
        // Long enough to learn: at least ten bursts, twenty seconds and a thousand requests.
        let least = (10.0 * burst).max(20.0 * rate).max(1000.0);
        let requests = log(rng, least, (least * 5.0).max(20_000.0)).min(50_000.0).max(least) as u64;
        DrainWorld { limit, requests, workers, rtt, service, jitter, tells }
    }

    /// A limit, its rate and its burst.
    fn limit(self, rng: &mut Rng, most: f64, service: f64) -> (ServerLimit, f64, f64) {
        let rate = round(log(rng, 3.0, 2000.0).min(most * 0.8).max(1.0));
        let burst = pick::<f64>(rng, &[1.0, 5.0, 20.0, 50.0, 500.0]).min((rate * 10.0).max(1.0));
        let window = pick(rng, &[0.1, 0.5, 1.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 60.0, 900.0]);
        let calls = (rate * window).clamp(5.0, 1500.0).round();
        let phase = -window * rng.unit();
        match self {
            ServerFamily::Bucket => (ServerLimit::TokenBucket { rate, burst }, rate, burst),
            ServerFamily::Tiny => (ServerLimit::TokenBucket { rate, burst: 1.0 }, rate, 1.0),
            ServerFamily::Fixed => {
                (ServerLimit::FixedWindow { limit: calls as u64, window, phase }, calls / window, calls)
            }
            ServerFamily::Sliding => {
                (ServerLimit::SlidingWindow { limit: calls as u64, window }, calls / window, calls)
            }
            ServerFamily::Counter => {
                (ServerLimit::SlidingCounter { limit: calls as u64, window, phase }, calls / window, calls)
            }
            ServerFamily::Concurrent => {
                let limit =
                    pick::<usize>(rng, &[2, 4, 8, 16, 32]).min((most * service * 0.8) as usize).max(1);
                (ServerLimit::Concurrency { limit }, limit as f64 / service, 1.0)
            }
            ServerFamily::Steps => {
                let step = (30.0 + 60.0 * rng.unit()).max(1000.0 / rate);
                let factors =
                    pick(rng, &[[1.0, 2.0, 1.0], [1.0, 0.5, 1.0], [1.0, 1.5, 3.0], [1.0, 0.3, 0.6]]);
                let steps = factors
                    .iter()
                    .enumerate()
                    .map(|(i, f)| (step * i as f64, ServerLimit::TokenBucket { rate: rate * f, burst }))
                    .collect();
                (ServerLimit::Steps(steps), rate * step / 10.0, burst)
            }
            ServerFamily::Combined => {
                let rate = rate.min(50.0);
                let quota = (rate * 60.0 * pick::<f64>(rng, &[0.3, 0.5, 0.8])).round().max(10.0);
                let parts = vec![
                    ServerLimit::TokenBucket { rate, burst: rate.max(1.0) },
                    ServerLimit::FixedWindow { limit: quota as u64, window: 60.0, phase: -60.0 * rng.unit() },
                ];
                (ServerLimit::All(parts), quota / 60.0, quota)
            }
        }
    }
}

fn log(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.unit())
}

fn round(rate: f64) -> f64 {
    if rate < 10.0 { (rate * 10.0).round() / 10.0 } else { rate.round() }
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}
