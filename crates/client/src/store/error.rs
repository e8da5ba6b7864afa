//! Why a store operation failed.

use crate::call::Later;
use std::fmt;
use tidegate_core::call::{GiveUpReason, Next};
use tidegate_core::{Code, Mono, Verdict, VerdictKind};

/// Why a store operation failed.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreError {
    /// The key of the object, or the prefix of a list.
    pub key: Box<str>,
    /// The last verdict.
    pub verdict: Verdict,
    /// The decision of the core: parked or given up.
    pub next: Next,
    /// The number of attempts sent.
    pub attempts: u32,
    /// The status and the error code of the service, or the operating system's message.
    pub words: Box<str>,
}

impl StoreError {
    /// An error of our own, before a request was sent.
    pub(super) fn local(key: &str, code: Code, words: impl Into<Box<str>>) -> StoreError {
        StoreError {
            key: key.into(),
            verdict: Verdict { kind: VerdictKind::Permanent, code, status: None },
            next: Next::GiveUp(GiveUpReason::Permanent),
            attempts: 0,
            words: words.into(),
        }
    }

    /// The store asks for a longer wait than allowed, until `until`.
    pub(super) fn later(key: &str, later: Later, until: Mono) -> StoreError {
        let kind = VerdictKind::Transient { until: Some(until) };
        let verdict = Verdict { kind, code: later.code, status: None };
        let next = Next::Park(until, GiveUpReason::HintTooFar);
        StoreError { verdict, next, ..StoreError::local(key, later.code, later.said) }
    }

    /// Whether the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.verdict.code == Code::NOT_FOUND
    }

    /// Whether the cause is remote and may pass with time.
    #[must_use]
    pub fn is_later(&self) -> bool {
        !matches!(self.verdict.kind, VerdictKind::Permanent)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.verdict.code)?;
        if !self.words.is_empty() {
            write!(f, " ({})", self.words)?;
        }
        match self.attempts {
            0 | 1 => Ok(()),
            n => write!(f, " after {n} attempts"),
        }
    }
}

impl std::error::Error for StoreError {}
