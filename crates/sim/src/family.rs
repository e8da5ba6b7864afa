//! Families of throttled servers, drawn at random with a seed.
//!
//! A limiter tuned on a handful of servers is good on that handful. So it is judged on worlds
//! drawn from families: rates, bursts, windows, phases, latencies, jitters, workers and lengths
//! are all drawn, and each family reports its whole distribution.

use tidegate_core::{Chance, Rng};

use crate::drain::pause::{PauseOf, Pauses};
use crate::drain::{DrainWorld, RefusalForm, ServerHints};
use crate::server::{LeakyBucketSpec, ServerLimit, StickTableSpec};

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
    /// Leaky buckets of nginx, with and without burst and delay; refuse with 429 or 503.
    Leaky,
    /// Request rates of HAProxy's stick tables, which count refused calls too.
    StickTable,
    /// The same with a tarpit: a refusal comes after some seconds, as 429 or 500.
    Tarpit,
    /// Token buckets and limits on calls at once that refuse with 503.
    Unavailable,
    /// Token buckets while the client, the server or both stand still now and then.
    Paused,
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

    /// Families of what real proxies and machines do. They tell nothing.
    pub const REAL: [ServerFamily; 5] = [
        ServerFamily::Leaky,
        ServerFamily::StickTable,
        ServerFamily::Tarpit,
        ServerFamily::Unavailable,
        ServerFamily::Paused,
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
        let tells = if ServerFamily::REAL.contains(&self) { ServerHints::Nothing } else { tells };
        let (refusal, pauses) = self.behaviour(rng);
        DrainWorld { limit, requests, workers, rtt, service, jitter, tells, refusal, pauses, timer_late: 0.0 }
    }

    /// How it refuses, and who is paused.
    fn behaviour(self, rng: &mut Rng) -> (RefusalForm, Option<Pauses>) {
        let at_once = RefusalForm::at_once;
        match self {
            ServerFamily::Leaky => (at_once(pick(rng, &[429, 503])), None),
            ServerFamily::Tarpit => {
                let status = pick(rng, &[429, 500]);
                (RefusalForm { status, after_seconds: pick(rng, &[1.0, 3.0, 10.0]) }, None)
            }
            ServerFamily::Unavailable => (at_once(503), None),
            ServerFamily::Paused => {
                let of = pick(rng, &[PauseOf::Client, PauseOf::Server, PauseOf::Both]);
                (RefusalForm::default(), Some(Pauses::usual(of)))
            }
            _ => (RefusalForm::default(), None),
        }
    }

    /// A limit, its rate and its burst.
    fn limit(self, rng: &mut Rng, most: f64, service: f64) -> (ServerLimit, f64, f64) {
        let rate = round(log(rng, 3.0, 2000.0).min(most * 0.8).max(1.0));
        let burst = pick::<f64>(rng, &[1.0, 5.0, 20.0, 50.0, 500.0]).min((rate * 10.0).max(1.0));
        let window = pick(rng, &[0.1, 0.5, 1.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 60.0, 900.0]);
        let calls = (rate * window).clamp(5.0, 1500.0).round();
        let phase = -window * rng.unit();
        match self {
            ServerFamily::Bucket | ServerFamily::Paused => {
                (ServerLimit::TokenBucket { rate, burst }, rate, burst)
            }
            ServerFamily::Leaky => {
                let (rate, burst) = (rate.round(), pick(rng, &[0, 0, 5, 20, 100]));
                let delay = pick(rng, &[None, None, Some(0), Some(burst / 2)]);
                (ServerLimit::LeakyBucket(LeakyBucketSpec { rate, burst, delay }), rate, burst as f64 + 1.0)
            }
            ServerFamily::StickTable | ServerFamily::Tarpit => {
                let window = pick(rng, &[1.0, 1.0, 10.0, 60.0]);
                let limit = (rate * window).clamp(5.0, 3000.0).round();
                let spec = StickTableSpec { limit: limit as u64, window };
                (ServerLimit::StickTable(spec), limit / window, limit)
            }
            ServerFamily::Unavailable if rng.unit() < 0.5 => {
                (ServerLimit::TokenBucket { rate, burst }, rate, burst)
            }
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
            ServerFamily::Concurrent | ServerFamily::Unavailable => {
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
