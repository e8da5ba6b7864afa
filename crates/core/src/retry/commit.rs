//! Retries of a commit to a sink.
//!
//! A sink has no lane: it has one writer and sequential commits. So it needs no limiter, breaker or
//! retry budget, only a number of attempts and a backoff. There is no deadline either: the commit of
//! a large batch may take minutes and still be worth a second attempt.

use super::backoff::Backoff;
use crate::call::CallPolicy;
use crate::chance::Chance;
use core::time::Duration;

/// What to do after a transient failure of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitNext {
    /// Wait this long, check whether the commit took effect, and try again if it did not.
    RetryAfter(Duration),
    /// Give up. A later run may succeed.
    GiveUp {
        /// The number of attempts made.
        attempts: u32,
    },
}

/// The attempts to commit one batch.
#[derive(Clone, Copy, Debug)]
pub struct CommitRetry {
    /// The maximum number of attempts.
    attempts_max: u32,
    backoff: Backoff,
    /// The number of failed attempts.
    failed: u32,
    /// The last delay.
    previous: Duration,
}

impl CommitRetry {
    /// Uses the attempts and the backoff of `policy`. A batch that is not `repeatable` (of an atomic
    /// run, whose transaction is lost with its connection) gets one attempt.
    #[must_use]
    pub fn new(policy: &CallPolicy, repeatable: bool) -> CommitRetry {
        let attempts_max = if repeatable { policy.attempts_max.max(1) } else { 1 };
        CommitRetry { attempts_max, backoff: policy.backoff, failed: 0, previous: Duration::ZERO }
    }

    /// The number of failed attempts so far.
    #[must_use]
    pub const fn failed_attempts(&self) -> u32 {
        self.failed
    }

    /// Decides what to do after a transient failure.
    pub fn failed<C: Chance>(&mut self, chance: &mut C) -> CommitNext {
        self.failed = self.failed.saturating_add(1);
        if self.failed >= self.attempts_max {
            return CommitNext::GiveUp { attempts: self.failed };
        }
        self.previous = self.backoff.delay(self.failed - 1, self.previous, chance);
        CommitNext::RetryAfter(self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Rng;
    use crate::retry::backoff::Jitter;

    fn policy(attempts_max: u32) -> CallPolicy {
        let backoff = Backoff::new(Duration::from_secs(1), 2.0, Duration::from_secs(5), Jitter::None);
        CallPolicy { attempts_max, backoff, ..CallPolicy::default() }
    }

    fn story(mut retry: CommitRetry) -> alloc::vec::Vec<CommitNext> {
        let mut rng = Rng::new(1);
        let mut all = alloc::vec::Vec::new();
        loop {
            let next = retry.failed(&mut rng);
            all.push(next);
            if matches!(next, CommitNext::GiveUp { .. }) {
                return all;
            }
        }
    }

    #[test]
    fn waits_grow_to_the_cap_and_end_with_the_attempts() {
        let wait = |s| CommitNext::RetryAfter(Duration::from_secs(s));
        let end = |attempts| CommitNext::GiveUp { attempts };
        assert_eq!(story(CommitRetry::new(&policy(5), true)), [wait(1), wait(2), wait(4), wait(5), end(5)]);
        assert_eq!(story(CommitRetry::new(&policy(1), true)), [end(1)]);
        assert_eq!(story(CommitRetry::new(&policy(0), true)), [end(1)]);
    }

    #[test]
    fn what_cannot_be_repeated_is_tried_once() {
        assert_eq!(story(CommitRetry::new(&policy(5), false)), [CommitNext::GiveUp { attempts: 1 }]);
    }
}
