//! The limiters of existing clients, for comparison.
//!
//! Each is reimplemented from its documented rules and constants as a [`DrainClient`]. Where the
//! drain requires more than the original does, the most favourable behaviour is assumed, and the
//! file of the client describes it: none gives up after three attempts, because every request has
//! to be completed, and a retry waits in a separate queue ([`retry_queue`]).
//!
//! Only [`fixed`] obeys `Retry-After`, as common HTTP libraries do. The rules of the AWS SDKs
//! mention their own `x-amz-retry-after`, which other services do not send; those of Lance and
//! Vector mention neither.

pub mod aimd;
pub mod aws;
pub mod fixed;
pub mod retry_queue;
pub mod vector;

use tidegate_core::Mono;
use tidegate_core::hint::Hints;
use tidegate_core::limit::Feedback;

use crate::UnknownNameError;
use crate::drain::{Decision, DrainClient, DrainOutcome, DrainWorld, ServerHints, drain};
use aimd::Aimd;
use aws::Aws;
use fixed::Fixed;
use vector::Vector;

/// An existing client by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// The adaptive mode of the AWS SDKs.
    Aws,
    /// The AIMD rate of Lance, with its defaults.
    Aimd,
    /// The same with every rate divided by a hundred, for services slower than object stores.
    AimdSlow,
    /// Vector's adaptive request concurrency as documented: a refusal counts as back pressure.
    Vector,
    /// The same as shipped: retries happen inside the concurrency limit.
    VectorShipped,
    /// Sixteen concurrent calls with backoff, without hints.
    Fixed,
    /// Sixteen concurrent calls with backoff and `Retry-After`.
    FixedHinted,
}

impl Rival {
    /// All rivals.
    pub const ALL: [Rival; 7] = [
        Rival::Aws,
        Rival::Aimd,
        Rival::AimdSlow,
        Rival::Vector,
        Rival::VectorShipped,
        Rival::Fixed,
        Rival::FixedHinted,
    ];

    /// The name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Rival::Aws => "aws",
            Rival::Aimd => "aimd",
            Rival::AimdSlow => "aimd-slow",
            Rival::Vector => "vector",
            Rival::VectorShipped => "vector-shipped",
            Rival::Fixed => "fixed",
            Rival::FixedHinted => "fixed-hinted",
        }
    }

    /// The rival with this name.
    ///
    /// # Errors
    /// With the known names, when there is none.
    pub fn named(name: &str) -> Result<Rival, UnknownNameError> {
        Rival::ALL.into_iter().find(|r| r.name() == name).ok_or_else(|| UnknownNameError {
            kind: "limiter",
            name: name.to_owned(),
            known: Rival::ALL.map(Rival::name).to_vec(),
        })
    }

    /// Drains the world with this client; the hints of the server are replaced by those that it
    /// understands.
    #[must_use]
    pub fn drain(self, world: &DrainWorld, seed: u64) -> DrainOutcome {
        let tells = if self == Rival::FixedHinted { ServerHints::RetryAfter } else { ServerHints::Nothing };
        let world = DrainWorld { tells, ..world.clone() };
        let (n, workers) = (world.requests, world.workers);
        match self {
            Rival::Aws => drain(&world, &mut Aws::new(n, workers, seed), seed),
            Rival::Aimd => drain(&world, &mut Aimd::new(n, workers, 1.0, seed), seed),
            Rival::AimdSlow => drain(&world, &mut Aimd::new(n, workers, 0.01, seed), seed),
            Rival::Vector => drain(&world, &mut Vector::new(n, false, seed), seed),
            Rival::VectorShipped => drain(&world, &mut Vector::new(n, true, seed), seed),
            Rival::Fixed | Rival::FixedHinted => drain(&world, &mut Fixed::new(n, seed), seed),
        }
    }
}

/// A token bucket with a variable rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tokens {
    /// Tokens per second.
    rate: f64,
    /// Capacity, in tokens.
    size: f64,
    /// The number of tokens at the time `at`.
    level: f64,
    /// The time at which `level` was computed.
    at: Mono,
}

impl Tokens {
    fn refill(&mut self, now: Mono) {
        self.level = (self.level + self.rate * now.since(self.at).as_secs_f64()).min(self.size);
        self.at = now;
    }

    /// Takes a token, or returns when there will be one.
    fn take(&mut self, now: Mono) -> Result<(), Mono> {
        self.refill(now);
        if self.level >= 1.0 {
            self.level -= 1.0;
            return Ok(());
        }
        let wait = (1.0 - self.level) / self.rate;
        Err(Mono::from_nanos(now.nanos().saturating_add((wait * 1e9) as u64 + 1)))
    }
}

fn refused(seen: Feedback) -> bool {
    seen != Feedback::Accepted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::RefusalForm;
    use crate::server::ServerLimit;

    fn world(limit: ServerLimit) -> DrainWorld {
        DrainWorld {
            limit,
            requests: 2_000,
            workers: 64,
            rtt: 0.04,
            service: 0.065,
            jitter: 0.05,
            tells: ServerHints::Nothing,
            refusal: RefusalForm::default(),
            pauses: None,
            timer_late: 0.0,
        }
    }

    #[test]
    fn every_rival_drains_everything_and_the_seed_decides_how() {
        for rival in Rival::ALL {
            assert_eq!(Rival::named(rival.name()), Ok(rival));
            let world = world(ServerLimit::TokenBucket { rate: 50.0, burst: 20.0 });
            let out = rival.drain(&world, 7);
            assert_eq!((out.left, out.calls - out.refused), (0, 2_000), "{rival:?}");
            assert!(out.utilisation() > 20.0, "{rival:?} {out:?}");
            assert_eq!(out, rival.drain(&world, 7), "{rival:?}");
        }
        assert!(Rival::named("x").unwrap_err().to_string().contains("known are aws, aimd"));
    }

    #[test]
    fn without_a_limit_nobody_is_refused() {
        for rival in Rival::ALL {
            assert_eq!(rival.drain(&world(ServerLimit::Open), 1).refused, 0, "{rival:?}");
        }
    }

    #[test]
    fn tokens_come_at_their_rate() {
        let mut tokens = Tokens { rate: 4.0, size: 2.0, level: 2.0, at: Mono::ZERO };
        assert_eq!(tokens.take(Mono::ZERO), Ok(()));
        assert_eq!(tokens.take(Mono::ZERO), Ok(()));
        assert_eq!(tokens.take(Mono::ZERO), Err(Mono::from_nanos(250_000_001)));
        assert_eq!(tokens.take(Mono::from_millis(250)), Ok(()));
    }
}
