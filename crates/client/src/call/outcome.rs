//! The outcome of a call.

use super::Spans;
use std::time::Duration;
use tidegate_core::call::{self, Attempt, Call, Next};
use tidegate_core::{Mono, Verdict, VerdictKind};

/// The outcome of a call: [`Next::Accept`], [`Next::Park`] or [`Next::GiveUp`].
#[derive(Clone, Debug)]
pub struct CallOutcome<T> {
    /// The last verdict.
    pub verdict: Verdict,
    /// The decision of the core. Never [`Next::RetryAt`].
    pub next: Next,
    /// The value of the last attempt, also if it failed: a dead letter includes it.
    pub value: Option<T>,
    /// The call with its attempts.
    pub call: Call,
    /// The time from the start of the call to its end.
    pub elapsed: Duration,
    /// The parts of `elapsed`.
    pub spans: Spans,
}

impl<T> CallOutcome<T> {
    /// Whether an answer was accepted, possibly an empty one.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.next == Next::Accept
    }

    /// Whether the answer is empty.
    #[must_use]
    pub fn is_no_match(&self) -> bool {
        self.is_accepted() && self.verdict.kind == VerdictKind::NoMatch
    }

    /// The earliest time at which a parked call may be retried.
    #[must_use]
    pub fn parked_until(&self) -> Option<Mono> {
        match self.next {
            Next::Park(until, _) => Some(until),
            Next::Accept | Next::RetryAt(_) | Next::GiveUp(_) => None,
        }
    }

    /// The number of attempts sent.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.call.attempts()
    }

    /// The attempts in order.
    #[must_use]
    pub fn history(&self) -> &[Attempt] {
        self.call.history()
    }

    /// The outcome as one word, such as `done` or `transient_503_exhausted`.
    #[must_use]
    pub fn word(&self) -> String {
        call::outcome(&self.verdict, &self.next)
    }

    /// Separates the value from the outcome.
    #[must_use]
    pub fn split(self) -> (CallOutcome<()>, Option<T>) {
        let CallOutcome { verdict, next, value, call, elapsed, spans } = self;
        (CallOutcome { verdict, next, value: None, call, elapsed, spans }, value)
    }
}
