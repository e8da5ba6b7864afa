//! What a response says about when to come again and how much is left.
//!
//! Services tell their limits in a dozen dialects, and half of the servers bend the one they
//! speak: Retry-After as `1.5`, as `1m0s`, as two headers at once, in milliseconds; a reset that
//! is an epoch here and a delta there; dates from a clock that is an hour off. [`read`] turns
//! whatever came into one [`Hints`]. Four rules decide every doubtful case:
//!
//! 1. *Never earlier than any well-formed header asks.* Fractions are rounded up, of several
//!    waits the latest holds, numbers too large saturate, of two counters the lower holds.
//! 2. *Malformed is ignored and counted*, never an error. A broken hint must not kill a request,
//!    nor hide the good hint beside it.
//! 3. *The order of the headers means nothing*, because proxies reorder them.
//! 4. *Dates are read on the server's clock*: a target minus the Date header of the same response
//!    is right however wrong either clock is. Only without a Date does the local clock count.
//!
//! Hints are reported truthfully: `Retry-After: 0` is zero here. That a client should still back
//! off a little is policy, and the call applies it.
//!
//! | file | holds |
//! |---|---|
//! | `name` | which header it is |
//! | `span` | numbers and durations |
//! | [`date`] | the three HTTP dates and ISO 8601 |
//! | [`sf`] | structured fields, RFC 9651 |
//! | `field` | the value of each header |
//! | `ietf` | the RateLimit fields, current and older |
//! | `quota` | many partial statements to at most four quotas |

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

pub mod date;
mod field;
mod ietf;
mod name;
mod quota;
pub mod sf;
mod span;

pub use field::read;

/// One quota of the server as its headers told it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quota {
    /// Calls allowed per window.
    pub limit: Option<u64>,
    /// Length of the window.
    pub window: Option<Duration>,
    /// Calls left now.
    pub remaining: Option<u64>,
    /// Time from the receipt of the response until the quota is restored (for a bucket: until it
    /// is whole or until the next token, servers differ; never assume a full refill).
    pub reset: Option<Duration>,
    /// The resolution of `reset`: the true value lies in `(reset - reset_step, reset]`. It is one second
    /// for a header in whole seconds, and two for an epoch less a Date.
    pub reset_step: Duration,
}

/// Everything that one response's headers said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hints {
    /// The wait after the receipt that the server asks for (Retry-After and its kin; the longest of
    /// several).
    pub retry_after: Option<Duration>,
    /// Up to four quotas, the most restrictive ones, the tightest first.
    pub quotas: [Option<Quota>; 4],
    /// Server clock minus ours in milliseconds, from the Date header.
    pub clock_offset_ms: Option<i64>,
    /// Headers that were recognised by name and could not be understood, wholly or in part.
    pub malformed: u32,
}

impl Hints {
    /// How long a throttled call is asked to wait: Retry-After before anything else; without it
    /// the longest reset of the quotas that are spent; and if no quota says what is left, the
    /// longest reset. Only for an answer that *was* a throttle: on a success the same headers
    /// describe the pace, and pace is not retry.
    #[must_use]
    pub fn throttle_wait(&self) -> Option<Duration> {
        let longest = |spent: Option<u64>| {
            self.quotas.iter().flatten().filter(|q| q.remaining == spent).filter_map(|q| q.reset).max()
        };
        self.retry_after.or_else(|| longest(Some(0))).or_else(|| longest(None))
    }
}

/// The unit of a number that names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeUnit {
    /// As RFC 9110 has it.
    #[default]
    Seconds,
    /// As Sentinel Hub sends it.
    Milliseconds,
}

/// What a header that only this provider sends means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A wait; a bare number counts in this unit.
    RetryAfter(TimeUnit),
    /// Calls allowed per window.
    Limit,
    /// Calls left.
    Remaining,
    /// Calls made in this window.
    Used,
    /// When the quota is restored: epoch, delta, duration or date.
    Reset,
    /// Length of the window.
    Window,
    /// Nothing. For a header that this provider sends and that lies.
    Nothing,
}

/// How one provider bends the dialects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HintProfile {
    /// The unit of a bare number in Retry-After.
    pub retry_after_unit: TimeUnit,
    /// The shortest wait: a shorter one that a header asks for is lengthened to this.
    pub floor: Duration,
    /// Further headers by name, in any case, and their meaning. They take precedence over the names known
    /// to everybody.
    pub extra: Vec<(String, Meaning)>,
}
