//! One lane for many processes: what its owner and its members decide.
//!
//! The owner runs a [`Lane`](super::Lane) as if it were alone. A member asks it for a permit before each call
//! and reports what came of it; to the lane that is a longer round trip and nothing else. What is left to
//! decide is here, without sockets and clocks, so that the simulator and the client run the same code:
//!
//! | question | answer |
//! |---|---|
//! | how many permits may a member ask for? | [`MemberDemand::wants`] |
//! | how many may it hold? | [`hold_max`]: twice its share of the calls at once |
//! | whose turn is it? | [`Turns`]: one permit each, round and round, so that nobody gets more by asking for more |
//! | how long may a permit be used? | [`PERMIT_VALID`] ([`PermitStock`]) |
//! | when does the owner take permits back? | [`PERMIT_SILENT_MAX`] ([`MemberAccount`]) |
//! | what does a successor begin with? | [`Lane::succeed`](super::Lane::succeed): a little below the last rate, no burst |
//! | what may a member do that goes on without an owner? | [`alone_share`] |
//! | in which order do their calls arrive? | [`PermitWays`]: in that of the permits, however far each is |
//!
//! A permit ends earlier at the member than at the owner. So a permit that the owner has taken back and given
//! to somebody else is not used a second time, unless a message is on its way for longer than the difference.

mod account;
mod demand;
mod stock;
mod turns;
mod ways;

pub use account::MemberAccount;
pub use demand::MemberDemand;
pub use stock::PermitStock;
pub use turns::{TurnState, Turns};
pub use ways::PermitWays;

use crate::limit::{LimitBelief, LimitConfig};
use core::time::Duration;

/// How long a member may use a permit after it came.
pub const PERMIT_VALID: Duration = Duration::from_millis(500);
/// A member that says nothing for so long loses its permits. A member whose own time stood still for so long
/// has lost them, and joins once more.
pub const PERMIT_SILENT_MAX: Duration = Duration::from_millis(1500);
/// The interval at which both sides say that they are alive.
pub const ALIVE_EVERY: Duration = Duration::from_millis(500);
/// A side that says nothing for so long is gone.
pub const SILENT_MAX: Duration = Duration::from_secs(5);
/// Permits that one member may want at once.
pub const WANTED_MAX: u32 = 4096;

/// Shares of the calls at once that one member may hold. More than one, because what a member holds is on its
/// way for a part of the time; few, because a member that hangs holds them up to [`PERMIT_SILENT_MAX`].
const HOLD_SHARES: u32 = 2;
/// Part of its share of the rate that a member uses which is alone: those that reach the owner do not know of it.
const ALONE_SHARE: f64 = 0.9;

/// The permits that one of `sharers` members may hold of a lane with so many calls at once. Sharers are those
/// that wait for a permit now.
#[must_use]
pub fn hold_max(cap: u32, sharers: u32) -> u32 {
    match sharers {
        0 | 1 => cap.max(1),
        _ => cap.div_ceil(sharers).saturating_mul(HOLD_SHARES).clamp(1, cap.max(1)),
    }
}

/// The limit of one of `members` processes that goes on alone: its share of the rate that all of them keep to, be
/// it learned or their user's, and of the calls at once. It still learns, so that it becomes slower than that if
/// the server refuses.
#[must_use]
pub fn alone_share(own: LimitConfig, last: &LimitBelief, members: u32) -> LimitConfig {
    let members = members.max(1);
    let learned = last.rate.map(|rate| ALONE_SHARE * rate);
    let all = own.and(LimitConfig {
        rate_max: learned,
        burst: learned.or(own.rate_max).map(|_| 1.0),
        in_flight_max: last.in_flight.unwrap_or(own.in_flight_max),
        learn: own.learn,
    });
    LimitConfig {
        rate_max: all.rate_max.map(|rate| rate / f64::from(members)),
        in_flight_max: (all.in_flight_max / members).max(1),
        ..all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_waits_alone_may_hold_all_and_of_many_each_a_few() {
        assert_eq!([hold_max(64, 0), hold_max(64, 1), hold_max(0, 1)], [64, 64, 1]);
        assert_eq!([hold_max(64, 2), hold_max(64, 8), hold_max(64, 1000)], [64, 16, 2]);
        assert_eq!([hold_max(1, 8), hold_max(10, 8)], [1, 4]);
        assert_eq!(hold_max(u32::MAX, 2), u32::MAX);
    }

    #[test]
    fn all_that_are_alone_together_keep_below_the_known_rate() {
        let own = LimitConfig::default();
        let known = LimitBelief { rate: Some(80.0), ..LimitBelief::default() };
        let alone = alone_share(own, &known, 8);
        assert_eq!((alone.rate_max, alone.burst, alone.in_flight_max), (Some(9.0), Some(1.0), 8));
        assert!(alone.learn);
        let slower = LimitConfig { rate_max: Some(16.0), burst: Some(20.0), ..own };
        let alone = alone_share(slower, &known, 8);
        assert_eq!((alone.rate_max, alone.burst), (Some(2.0), Some(1.0)), "the user's rate is for all too");
        let concurrent = LimitBelief { in_flight: Some(4), ..LimitBelief::default() };
        let alone = alone_share(own, &concurrent, 1000);
        assert_eq!((alone.rate_max, alone.in_flight_max), (None, 1));
        assert_eq!(alone_share(own, &LimitBelief::default(), 0), own);
    }
}
