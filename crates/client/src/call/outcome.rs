//! How a record ended.

use super::Spans;
use std::time::Duration;
use tidegate_core::call::{self, Attempt, Call, Next};
use tidegate_core::{Mono, Verdict, VerdictKind};

/// How a record ended: [`Next::Accept`], [`Next::Park`] or [`Next::GiveUp`].
#[derive(Clone, Debug)]
pub struct Outcome<T> {
    /// The last verdict.
    pub verdict: Verdict,
    /// What the core decided. Never [`Next::RetryAt`].
    pub next: Next,
    /// What the last attempt brought, also when it was refused: a dead letter quotes it.
    pub value: Option<T>,
    /// Attempts and history.
    pub call: Call,
    /// From the first question to the end.
    pub elapsed: Duration,
    /// Where that time went.
    pub spans: Spans,
}

impl<T> Outcome<T> {
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
    pub fn split(self) -> (Outcome<()>, Option<T>) {
        let Outcome { verdict, next, value, call, elapsed, spans } = self;
        (Outcome { verdict, next, value: None, call, elapsed, spans }, value)
    }
}
