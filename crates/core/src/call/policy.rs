//! The settings shared by all calls of a lane.

use super::{GiveUpReason, Next};
use crate::retry::backoff::Backoff;
use crate::time::Mono;
use core::time::Duration;

/// Refusals of one record that a limit explains and that do not count as attempts. Where half of all calls are
/// refused, one record in a million meets as many in a row; whoever does is refused for itself.
pub const LIMITED_FREE: u32 = 20;

/// What a throttled record waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThrottleWait {
    /// Its own backoff, like any other failure.
    #[default]
    Backoff,
    /// Its lane, which has learned from the throttle when to send again.
    Lane,
}

/// The settings shared by all calls of a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallPolicy {
    /// Attempts in all, the first included; at least 1.
    pub attempts_max: u32,
    /// Throttled answers that do not count as attempts, whatever explains them: the server did no work for
    /// them. In a lane that learns, [`LIMITED_FREE`] do not count at least if a limit explains them.
    pub throttles_free: u32,
    /// Failures met while the breaker was opening or probing that do not count as attempts: they
    /// say something about the service and nothing about the record.
    pub outages_free: u32,
    /// The longest time from the first attempt to the end of the last.
    pub deadline: Duration,
    /// Timeout of one attempt.
    pub attempt_timeout: Duration,
    /// The delays between attempts.
    pub backoff: Backoff,
    /// What a throttled record waits for.
    pub throttle_wait: ThrottleWait,
    /// The time for which a record is parked when the quota is spent and the server did not say until when.
    pub quota_wait: Duration,
    /// What becomes of a record whose server asks for a longer wait than the deadline or the cap of
    /// the backoff allows. It is never retried early.
    pub long_wait: LongWait,
    /// What a record does while the breaker is open.
    pub while_open: WhileOpen,
    /// Whether the history of attempts is kept.
    pub history: bool,
}

/// What a record does while the breaker of its service is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhileOpen {
    /// It waits for a probe to succeed, within its deadline.
    #[default]
    Wait,
    /// It leaves at once: another service is asked.
    Park,
}

/// What becomes of a record that would have to wait too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LongWait {
    /// It is put aside until then, while other records go on. How long that may be is up to the
    /// patience of the run ([`crate::patience`]).
    #[default]
    Park,
    /// It is a dead letter at once, with the time that the server named.
    GiveUp,
}

impl LongWait {
    pub(super) const fn next(self, until: Mono, why: GiveUpReason) -> Next {
        match self {
            LongWait::Park => Next::Park(until, why),
            LongWait::GiveUp => Next::GiveUp(why),
        }
    }
}

impl CallPolicy {
    /// The most calls for one record, those included that do not count as attempts. Only in a lane that learns a
    /// limit explains refusals.
    #[must_use]
    pub fn attempts_bound(&self, learns: bool) -> u32 {
        let refusals = if learns { self.refusals_free() } else { self.throttles_free };
        self.attempts_max.max(1).saturating_add(refusals).saturating_add(self.outages_free)
    }

    /// The most refusals of one record that do not count as attempts.
    pub(super) fn refusals_free(&self) -> u32 {
        self.throttles_free.max(LIMITED_FREE)
    }
}

impl Default for CallPolicy {
    /// 5 attempts, 30 s in all, 10 s each; an unknown quota parks for an hour.
    fn default() -> CallPolicy {
        CallPolicy {
            attempts_max: 5,
            throttles_free: 0,
            outages_free: 0,
            deadline: Duration::from_secs(30),
            attempt_timeout: Duration::from_secs(10),
            backoff: Backoff::default(),
            throttle_wait: ThrottleWait::Backoff,
            quota_wait: Duration::from_secs(3600),
            long_wait: LongWait::Park,
            while_open: WhileOpen::Wait,
            history: true,
        }
    }
}
