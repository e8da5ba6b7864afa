//! The raw result of an attempt, before it is classified.

use crate::taxonomy::Code;

/// A failure below HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// No response within the timeout of one attempt.
    Timeout,
    /// The connection was refused.
    Refused,
    /// The connection was lost.
    Reset,
    /// The host name could not be resolved.
    Dns,
    /// The TLS handshake failed: an untrusted certificate or an unsupported protocol.
    Tls,
    /// The body ended before its declared end.
    Truncated,
}

/// The meaning that a profile found in a body. It overrides the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The meaning.
    pub means: Means,
    /// The code of the taxonomy.
    pub code: Code,
}

/// The meaning of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Means {
    /// The requested result.
    Done,
    /// An empty result.
    NoMatch,
    /// Too many calls.
    Throttled,
    /// The quota is exhausted.
    QuotaSpent,
    /// A failure that a retry may fix.
    Transient,
    /// A failure that a retry does not fix.
    Permanent,
}

/// The raw result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal<'a> {
    /// An HTTP response.
    Http {
        /// The HTTP status.
        status: u16,
        /// The finding of the profile in the body.
        finding: Option<Finding>,
    },
    /// No HTTP response.
    Network(Network),
    /// A database error: the five characters of its SQLSTATE.
    Sql(&'a str),
    /// An error of a task itself.
    Task(Finding),
}
