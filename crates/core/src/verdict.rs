//! The verdict: the meaning of a signal.
//!
//! All other modules depend on the verdict and not on the signal: the lane adapts to it, the call
//! decides by it, the dead letter stores it. Its times are on the monotonic clock, independent of
//! header formats and clock skew. They are binding: no attempt of the record (for throttles, no call
//! of the lane) is sent before them.

use core::time::Duration;

use crate::classify::Classifier;
use crate::hint::{self, HintProfile};
use crate::signal::Signal;
use crate::taxonomy::Code;
use crate::time::{Mono, Wall};

/// The kind of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictKind {
    /// The requested result.
    Done,
    /// An empty result. Never retried.
    NoMatch,
    /// Too many calls. The lane slows down; the record may be retried.
    Throttled {
        /// The earliest time of the next call, if the server said.
        until: Option<Mono>,
    },
    /// A failure that a retry may fix.
    Transient {
        /// The earliest time of the next call, if the server said.
        until: Option<Mono>,
    },
    /// A failure that the same request would get every time.
    Permanent,
    /// The quota is exhausted.
    QuotaSpent {
        /// The earliest time of the next call, if the server said.
        until: Option<Mono>,
    },
}

/// A kind with its code and its HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The kind: what to do with the call.
    pub kind: VerdictKind,
    /// The code of the taxonomy.
    pub code: Code,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
}

impl Verdict {
    /// A success.
    pub const DONE: Verdict = Verdict { kind: VerdictKind::Done, code: Code::OK, status: None };

    /// What a response means by its status and its headers: whether a retry may help, and not before
    /// when. Headers are pairs of name and value, as a `HeaderMap` yields them; a service that puts
    /// errors into a 200 needs a [`Classifier`] with a finding.
    ///
    /// ```
    /// use tidegate_core::{Mono, Verdict, VerdictKind, Wall};
    ///
    /// let (now, wall) = (Mono::from_millis(5_000), Wall::from_secs(1_794_718_800));
    /// let verdict = Verdict::from_response(503, [("retry-after", "7")], now, wall);
    /// assert_eq!(verdict.kind, VerdictKind::Transient { until: Some(Mono::from_millis(12_000)) });
    /// assert!(Verdict::from_response(404, [("", ""); 0], now, wall).is_answer());
    /// ```
    #[must_use]
    pub fn from_response<'a, N, V>(
        status: u16,
        headers: impl IntoIterator<Item = (&'a N, &'a V)>,
        now: Mono,
        wall: Wall,
    ) -> Verdict
    where
        N: AsRef<[u8]> + ?Sized + 'a,
        V: AsRef<[u8]> + ?Sized + 'a,
    {
        let hints = hint::read(headers, wall, &HintProfile::default());
        Classifier::default().classify(&Signal::Http { status, finding: None }, &hints, now)
    }

    /// The earliest time of the next call that the server asked for.
    #[must_use]
    pub const fn until(&self) -> Option<Mono> {
        match self.kind {
            VerdictKind::Throttled { until }
            | VerdictKind::Transient { until }
            | VerdictKind::QuotaSpent { until } => until,
            VerdictKind::Done | VerdictKind::NoMatch | VerdictKind::Permanent => None,
        }
    }

    /// The same with a wait that ends `max` after `now` at the latest.
    #[must_use]
    pub fn within(&self, now: Mono, max: Duration) -> Verdict {
        let cut = |until: Option<Mono>| until.map(|until| until.min(now + max));
        let kind = match self.kind {
            VerdictKind::Throttled { until } => VerdictKind::Throttled { until: cut(until) },
            VerdictKind::Transient { until } => VerdictKind::Transient { until: cut(until) },
            VerdictKind::QuotaSpent { until } => VerdictKind::QuotaSpent { until: cut(until) },
            kind => kind,
        };
        Verdict { kind, ..*self }
    }

    /// Whether the service processed the request: an empty result and a rejected request are answers
    /// too.
    #[must_use]
    pub const fn is_answer(&self) -> bool {
        matches!(self.kind, VerdictKind::Done | VerdictKind::NoMatch | VerdictKind::Permanent)
    }
}
