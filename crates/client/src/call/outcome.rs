//! How a record ended.

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
    /// The value of the last attempt, also when it was refused: a dead letter quotes it.
    pub value: Option<T>,
    /// The call with its attempts.
    pub call: Call,
    /// The time from the start of the call to its end.
    pub elapsed: Duration,
    /// The parts of `elapsed`.
    pub spans: Spans,
}

impl<T> CallOutcome<T> {
    /// An answer was accepted; it may be an empty one.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.next == Next::Accept
    }

    /// The answer is empty.
    #[must_use]
    pub fn is_no_match(&self) -> bool {
        self.is_accepted() && self.verdict.kind == VerdictKind::NoMatch
    }

    /// When a parked record may be tried again.
    #[must_use]
    pub fn parked_until(&self) -> Option<Mono> {
        match self.next {
            Next::Park(until, _) => Some(until),
            Next::Accept | Next::RetryAt(_) | Next::GiveUp(_) => None,
        }
    }

    /// Attempts sent.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.call.attempts()
    }

    /// The attempts as they went.
    #[must_use]
    pub fn history(&self) -> &[Attempt] {
        self.call.history()
    }

    /// The outcome in one word, such as `done` or `transient_503_exhausted`.
    #[must_use]
    pub fn word(&self) -> String {
        call::outcome(&self.verdict, &self.next)
    }

    /// The outcome without what it brought, and what it brought.
    #[must_use]
    pub fn split(self) -> (CallOutcome<()>, Option<T>) {
        let CallOutcome { verdict, next, value, call, elapsed, spans } = self;
        (CallOutcome { verdict, next, value: None, call, elapsed, spans }, value)
    }
}
