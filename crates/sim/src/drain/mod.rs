//! One lane drains one queue: the smallest world in which a limiter can be judged.
//!
//! N equal requests wait, `workers` at most are out at once, each travels half a round trip, is
//! taken or refused by the server's throttle, and travels back. A refused request goes back to
//! the queue. Utilisation is the physically earliest finish divided by ours; the earliest finish
//! is found by [`earliest()`], a client that knows everything.
//!
//! Several lanes that do not know of each other can drain one server ([`drain_together`]), as the
//! processes of several people do.

mod earliest;
mod event_loop;
mod hints;
pub mod pause;

pub use earliest::earliest;
pub use event_loop::{drain, drain_together};

use serde::Deserialize;
use tidegate_core::Mono;
use tidegate_core::hint::Hints;
use tidegate_core::limit::Feedback;

use crate::server::ServerLimit;
use pause::Pauses;

/// A world for one drain.
#[derive(Clone, Debug, PartialEq)]
pub struct DrainWorld {
    /// The server's limit.
    pub limit: ServerLimit,
    /// Requests to drain.
    pub requests: u64,
    /// Most requests in flight.
    pub workers: u32,
    /// Mean round trip without service, in seconds.
    pub rtt: f64,
    /// Mean service time of an accepted call, in seconds.
    pub service: f64,
    /// Relative spread of both: each draw is uniform in mean × (1 ± jitter).
    pub jitter: f64,
    /// The hints that the server sends.
    pub tells: ServerHints,
    /// How it refuses.
    pub refusal: RefusalForm,
    /// The pauses of the client or the server; none by default.
    pub pauses: Option<Pauses>,
    /// How late the timers of the client are on average, in seconds: most of them little, a few of them much.
    pub timer_late: f64,
}

/// How a server refuses a call.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "snake_case", deny_unknown_fields)]
pub struct RefusalForm {
    /// HTTP status: 429 says that there were too many calls; 503 and 500 say only that it failed.
    pub status: u16,
    /// The time before the refusal is sent (a tarpit), in seconds.
    pub after_seconds: f64,
}

impl Default for RefusalForm {
    fn default() -> RefusalForm {
        RefusalForm { status: 429, after_seconds: 0.0 }
    }
}

impl RefusalForm {
    /// A refusal that is sent at once.
    #[must_use]
    pub const fn at_once(status: u16) -> RefusalForm {
        RefusalForm { status, after_seconds: 0.0 }
    }

    /// What is wrong with it, if anything.
    #[must_use]
    pub fn flaw(&self) -> Option<&'static str> {
        let ok = matches!(self.status, 429 | 500..=599) && (0.0..=3600.0).contains(&self.after_seconds);
        (!ok).then_some("a refusal has a `status` of 429 or 500 to 599 and comes after at most an hour")
    }

    /// What a client makes of it.
    fn feedback(&self, until: Option<Mono>) -> Feedback {
        if self.status == 429 { Feedback::Throttled { until } } else { Feedback::Failed { until } }
    }
}

/// The hints that a server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerHints {
    /// Nothing.
    Nothing,
    /// Retry-After in whole seconds, rounded up, at least one, on refusals.
    RetryAfter,
    /// Retry-After with this number of seconds on every refusal, whatever the limit.
    FixedRetryAfter(u32),
    /// A quota on responses.
    Quota(QuotaHeaders),
}

/// How a server writes its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaHeaders {
    /// The policy's window is told (RateLimit-Policy), with a limit that fits whole seconds.
    pub window: bool,
    /// Only refusals carry headers.
    pub only_refusals: bool,
    /// `remaining` counts before this call rather than after it.
    pub before: bool,
    /// `reset` is an absolute second (floor of the server's clock plus one) rather than a delta.
    pub epoch: bool,
    /// Refusals carry Retry-After too.
    pub retry_after: bool,
}

impl QuotaHeaders {
    /// RateLimit and RateLimit-Policy as in the IETF draft.
    pub const RATE_LIMIT: QuotaHeaders =
        QuotaHeaders { window: true, only_refusals: false, before: false, epoch: false, retry_after: false };
    /// X-RateLimit-Limit, -Remaining and -Reset, the last an epoch second.
    pub const X_RATE_LIMIT: QuotaHeaders =
        QuotaHeaders { window: false, only_refusals: false, before: false, epoch: true, retry_after: false };
}

/// Something that decides when to send.
pub trait DrainClient {
    /// What it hands out for one call.
    type Ticket;
    /// May a call go out now?
    fn admit(&mut self, now: Mono) -> Decision<Self::Ticket>;
    /// A call came back.
    fn settle(&mut self, ticket: Self::Ticket, now: Mono, seen: Feedback, hints: &Hints);
}

/// The answer of a [`DrainClient`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision<T> {
    /// Send.
    Go(T),
    /// Ask again then.
    At(Mono),
    /// Ask again after something came back.
    Full,
}

/// What happened in one drain.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DrainOutcome {
    /// The time of the last response, in seconds from the start.
    pub finish: f64,
    /// The physically earliest finish, in seconds from the start.
    pub earliest: f64,
    /// Calls made.
    pub calls: u64,
    /// Calls refused.
    pub refused: u64,
    /// Requests left when the run was stopped as hopeless; 0 in a whole drain.
    pub left: u64,
    /// Calls sent before the time that the server had asked for.
    pub early: u64,
    /// Of the requests done by all clients when the first of them was done, the share of this one
    /// (0 to 1); 1 for a client alone.
    pub share: f64,
}

impl DrainOutcome {
    /// Earliest finish over ours, in per cent.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        if self.left > 0 { 0.0 } else { 100.0 * self.earliest / self.finish }
    }

    /// Refused calls of all calls, in per cent.
    #[must_use]
    pub fn refused_percent(&self) -> f64 {
        100.0 * self.refused as f64 / self.calls.max(1) as f64
    }
}
