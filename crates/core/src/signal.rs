//! What came back from the world, before anybody says what it means.

use crate::taxonomy::Code;

/// A failure below HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// No answer within the time of one attempt.
    Timeout,
    /// Nothing listens there.
    Refused,
    /// The connection broke.
    Reset,
    /// The name did not resolve.
    Dns,
    /// No trusted connection: a certificate or protocol refused.
    Tls,
    /// The body ended before its declared end.
    Truncated,
}

/// What a profile found in a body, overriding what the status alone would mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its meaning.
    pub means: Means,
    /// Its code of the taxonomy.
    pub code: Code,
}

/// What a body can mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Means {
    /// What was asked for.
    Done,
    /// An answer without content.
    NoMatch,
    /// Too many calls.
    Throttled,
    /// The quota is spent.
    QuotaSpent,
    /// It can heal.
    Transient,
    /// It cannot.
    Permanent,
}

/// What came back.
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
    /// A task's own error.
    Task(Finding),
}
