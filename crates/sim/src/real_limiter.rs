//! The limiters that people put before their services, as nginx and HAProxy compute them.
//!
//! The same table is measured on the real programs by `bench-real`. Here it runs in virtual time,
//! so that a limiter can be tried against it in milliseconds. Each row has 2,000 requests and a
//! service of 20 ms, and most rows exist twice: with the status that says "too many calls" and
//! with the one that the program sends by default.

use tidegate_core::lane::{Lane, LaneConfig};
use tidegate_core::limit::LimitConfig;

use crate::drain::{DrainOutcome, DrainWorld, RefusalForm, ServerHints, drain_together};
use crate::server::{LeakyBucketSpec, ServerLimit, StickTableSpec};

/// Requests of each row.
pub const REQUESTS: u64 = 2_000;
/// Service time of the backend, in seconds.
pub const SERVICE_SECONDS: f64 = 0.02;

/// How late a timer of the client is on average on a machine with two cores and little to do, in seconds.
pub const TIMER_LATE: f64 = 0.000_15;

/// A limiter of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RealLimiter {
    /// nginx `limit_req` 100/s, burst 20, nodelay.
    RequestsBurst,
    /// The same with delay.
    RequestsDelay,
    /// The same without burst.
    RequestsStrict,
    /// nginx `limit_conn` 8.
    Connections,
    /// HAProxy, 100 per second.
    StickTable,
    /// HAProxy, 1,000 per 10 s.
    StickTableLong,
    /// HAProxy, 100 per second, refused after 3 s.
    Tarpit,
}

impl RealLimiter {
    /// All of them, in the order of the table.
    pub const ALL: [RealLimiter; 7] = [
        RealLimiter::RequestsBurst,
        RealLimiter::RequestsDelay,
        RealLimiter::RequestsStrict,
        RealLimiter::Connections,
        RealLimiter::StickTable,
        RealLimiter::StickTableLong,
        RealLimiter::Tarpit,
    ];

    /// The name of its row.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            RealLimiter::RequestsBurst => "nginx limit_req 100/s burst 20 nodelay",
            RealLimiter::RequestsDelay => "nginx limit_req 100/s burst 20 delay",
            RealLimiter::RequestsStrict => "nginx limit_req 100/s no burst",
            RealLimiter::Connections => "nginx limit_conn 8",
            RealLimiter::StickTable => "HAProxy 100 per 1 s",
            RealLimiter::StickTableLong => "HAProxy 1000 per 10 s",
            RealLimiter::Tarpit => "HAProxy tarpit 3 s",
        }
    }

    /// The statuses with which it is measured.
    #[must_use]
    pub const fn statuses(self) -> &'static [u16] {
        match self {
            RealLimiter::StickTable | RealLimiter::StickTableLong => &[429],
            RealLimiter::Tarpit => &[429, 500],
            _ => &[429, 503],
        }
    }

    /// What it allows.
    #[must_use]
    pub const fn limit(self) -> ServerLimit {
        match self {
            RealLimiter::RequestsBurst => {
                ServerLimit::LeakyBucket(LeakyBucketSpec { rate: 100.0, burst: 20, delay: None })
            }
            RealLimiter::RequestsDelay => {
                ServerLimit::LeakyBucket(LeakyBucketSpec { rate: 100.0, burst: 20, delay: Some(0) })
            }
            RealLimiter::RequestsStrict => {
                ServerLimit::LeakyBucket(LeakyBucketSpec { rate: 100.0, burst: 0, delay: None })
            }
            RealLimiter::Connections => ServerLimit::Concurrency { limit: 8 },
            RealLimiter::StickTable | RealLimiter::Tarpit => {
                ServerLimit::StickTable(StickTableSpec { limit: 100, window: 1.0 })
            }
            RealLimiter::StickTableLong => {
                ServerLimit::StickTable(StickTableSpec { limit: 1000, window: 10.0 })
            }
        }
    }

    /// The world of its row, over loopback and without pauses.
    #[must_use]
    pub fn world(self, status: u16) -> DrainWorld {
        let after_seconds = if self == RealLimiter::Tarpit { 3.0 } else { 0.0 };
        DrainWorld {
            limit: self.limit(),
            requests: REQUESTS,
            workers: 64,
            rtt: 0.001,
            service: SERVICE_SECONDS,
            jitter: 0.2,
            tells: ServerHints::Nothing,
            refusal: RefusalForm { status, after_seconds },
            pauses: None,
            timer_late: 0.0,
        }
    }
}

/// Drains a world with so many of the shipped lanes that do not know of each other.
#[must_use]
pub fn drain_lanes(world: &DrainWorld, clients: usize, seed: u64) -> Vec<DrainOutcome> {
    let limit = LimitConfig { in_flight_max: world.workers, ..LimitConfig::default() };
    let config = LaneConfig { limit, ..LaneConfig::default() };
    let mut lanes: Vec<Lane> = (0..clients).map(|_| Lane::new(&config)).collect();
    drain_together(world, &mut lanes, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::earliest;
    use crate::drain::pause::{PauseOf, Pauses};

    #[test]
    fn who_knows_the_limit_needs_this_long() {
        let least = RealLimiter::ALL.map(|limiter| {
            let world = limiter.world(429);
            (earliest(&world, 1) * 10.0).round() / 10.0
        });
        assert_eq!(least, [19.8, 20.0, 20.0, 5.0, 20.0, 20.0, 20.0]);
    }

    #[test]
    fn pauses_cost_one_who_knows_the_limit_little_where_tokens_are_saved() {
        let world = |of| {
            let pauses = Some(Pauses::usual(of));
            DrainWorld { pauses, ..RealLimiter::RequestsBurst.world(429) }
        };
        let calm = earliest(&RealLimiter::RequestsBurst.world(429), 1);
        for of in [PauseOf::Client, PauseOf::Server, PauseOf::Both] {
            let paused = earliest(&world(of), 1);
            assert!(calm < paused && paused < 1.2 * calm, "{of:?}: {paused}");
        }
    }

    #[test]
    fn clients_on_one_server_share_what_it_gives() {
        let world = RealLimiter::RequestsBurst.world(429);
        let outcomes = drain_lanes(&world, 2, 1);
        assert_eq!(outcomes.iter().map(|o| o.calls - o.refused).collect::<Vec<_>>(), [1000, 1000]);
        assert!((outcomes.iter().map(|o| o.share).sum::<f64>() - 1.0).abs() < 1e-9);
        let alone = drain_lanes(&world, 1, 1);
        assert_eq!((alone.len(), alone[0].share, alone[0].left), (1, 1.0, 0));
    }
}
