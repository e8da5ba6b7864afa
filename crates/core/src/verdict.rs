//! What a signal means.
//!
//! A verdict is the only thing the rest of the machine looks at: the lane learns from it, the
//! call decides by it, the dead letter quotes it. Times in it are points on the monotonic clock,
//! already freed from header dialects and clock skew, and they are promises: nobody acts on the
//! record (or, for throttles, on the lane) before them.

use crate::taxonomy::Code;
use crate::time::Mono;

/// The kind of answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictKind {
    /// What was asked for.
    Done,
    /// An answer, and it is empty. Never retried.
    NoMatch,
    /// Too many calls. The lane slows down; the record may be tried again.
    Throttled {
        /// The earliest time of the next call, if the server said.
        until: Option<Mono>,
    },
    /// A failure that can heal by itself.
    Transient {
        /// The earliest time of the next call, if the server said.
        until: Option<Mono>,
    },
    /// A failure that the same request meets every time.
    Permanent,
    /// The quota is spent.
    QuotaSpent {
        /// The earliest time of the next call, if the server said.
        until: Option<Mono>,
    },
}

/// A kind with its code of the taxonomy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The kind: what to do with the call.
    pub kind: VerdictKind,
    /// The code of the taxonomy.
    pub code: Code,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
}

impl Verdict {
    /// A success.
    pub const DONE: Verdict = Verdict { kind: VerdictKind::Done, code: Code::OK, status: None };

    /// The time before which the server wants no repeat.
    #[must_use]
    pub const fn until(&self) -> Option<Mono> {
        match self.kind {
            VerdictKind::Throttled { until }
            | VerdictKind::Transient { until }
            | VerdictKind::QuotaSpent { until } => until,
            VerdictKind::Done | VerdictKind::NoMatch | VerdictKind::Permanent => None,
        }
    }

    /// Whether the service did its work: an empty answer and a refused request are answers too.
    #[must_use]
    pub const fn is_answer(&self) -> bool {
        matches!(self.kind, VerdictKind::Done | VerdictKind::NoMatch | VerdictKind::Permanent)
    }
}
