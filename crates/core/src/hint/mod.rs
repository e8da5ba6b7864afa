//! Parses retry and rate-limit headers.
//!
//! Services announce their limits in a dozen header formats, and many servers deviate from them:
//! Retry-After as `1.5`, as `1m0s`, as two headers, in milliseconds; a reset as an epoch or as a
//! delta; dates from a clock that is an hour off. [`read`] turns any headers into one [`Hints`].
//! Four rules decide the ambiguous cases:
//!
//! 1. *Never earlier than any well-formed header asks.* Fractions are rounded up, the longest of
//!    several waits applies, numbers that are too large saturate, the lower of two counters applies.
//! 2. *Malformed headers are ignored and counted*, never an error. A malformed hint must not fail a
//!    request or hide a valid hint next to it.
//! 3. *The order of the headers is irrelevant*, because proxies reorder them.
//! 4. *Dates are relative to the server's clock*: a date minus the Date header of the same response
//!    is correct even if either clock is wrong. The local clock is used only without a Date.
//!
//! Hints are reported as sent: `Retry-After: 0` is zero here. The minimum delay of a client is
//! policy, and the call applies it.
//!
//! | file | holds |
//! |---|---|
//! | `name` | header names |
//! | `span` | numbers and durations |
//! | [`date`] | the three HTTP date formats and ISO 8601 |
//! | [`sf`] | structured fields, RFC 9651 |
//! | `field` | header values |
//! | `ietf` | the RateLimit fields, current and older |
//! | `quota` | merges partial statements into at most four quotas |

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

/// The longest wait that a server is obeyed for, by default. One header must not shut a host for 31 years:
/// after this time one call asks again, and is told again what holds.
pub const WAIT_MAX: Duration = Duration::from_secs(86_400);

/// The longest wait that hints of an answer may cause in a lane which other processes share. An answer is
/// no refusal: what it says of its quota paces, and must not shut the lane of others for long.
pub const SHARED_ANSWER_WAIT_MAX: Duration = Duration::from_secs(600);

/// One quota of the server, from its headers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quota {
    /// The number of calls allowed per window.
    pub limit: Option<u64>,
    /// The length of the window.
    pub window: Option<Duration>,
    /// The number of calls left now.
    pub remaining: Option<u64>,
    /// The time from the receipt of the response until the quota is restored. For a token bucket,
    /// some servers send the time until it is full and some the time until the next token, so a full
    /// refill must not be assumed.
    pub reset: Option<Duration>,
    /// The resolution of `reset`: the true value is in `(reset - reset_step, reset]`. One second for
    /// a header in whole seconds, two for an epoch minus a Date.
    pub reset_step: Duration,
}

/// The hints in the headers of one response.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hints {
    /// The wait that the server asks for, from the receipt of the response: Retry-After and its
    /// variants, the longest of several.
    pub retry_after: Option<Duration>,
    /// Up to four quotas, the most restrictive first.
    pub quotas: [Option<Quota>; 4],
    /// The wait as the server sent it, if it was longer than is obeyed ([`Hints::within`]).
    pub asked: Option<Duration>,
    /// The server clock minus the local clock in milliseconds, from the Date header.
    pub clock_offset_ms: Option<i64>,
    /// The number of headers with a known name whose value could not be parsed, wholly or in part.
    pub malformed: u32,
}

impl Hints {
    /// Whether one of their waits is longer than `max`.
    #[must_use]
    pub fn exceed(&self, max: Duration) -> bool {
        let is_long = |span: Option<Duration>| span.is_some_and(|span| span > max);
        let has_long = |quota: &Quota| is_long(quota.reset) || is_long(quota.window);
        is_long(self.retry_after) || self.quotas.iter().flatten().any(has_long)
    }

    /// The hints with no wait longer than `max`: of Retry-After, of a reset and of a window. What was asked
    /// for is in `asked`.
    #[must_use]
    pub fn within(&self, max: Duration) -> Hints {
        if !self.exceed(max) {
            return *self;
        }
        let cut = |span: Option<Duration>| span.map(|span| span.min(max));
        let asked = self.asked.or(self.throttle_wait().filter(|wait| *wait > max));
        let mut hints = Hints { retry_after: cut(self.retry_after), asked, ..*self };
        for quota in hints.quotas.iter_mut().flatten() {
            (quota.reset, quota.window) = (cut(quota.reset), cut(quota.window));
        }
        hints
    }

    /// The wait that a throttled call is asked for: Retry-After; without it the longest reset of the
    /// exhausted quotas; without those the longest reset of the quotas that do not state what is
    /// left. Only for a response that *was* a throttle: on a success the same headers describe the
    /// rate and ask for no wait.
    #[must_use]
    pub fn throttle_wait(&self) -> Option<Duration> {
        let longest = |spent: Option<u64>| {
            self.quotas.iter().flatten().filter(|q| q.remaining == spent).filter_map(|q| q.reset).max()
        };
        self.retry_after.or_else(|| longest(Some(0))).or_else(|| longest(None))
    }
}

/// The unit of a number without a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds, as in RFC 9110.
    #[default]
    Seconds,
    /// Milliseconds, as Sentinel Hub sends them.
    Milliseconds,
}

/// The meaning of a provider-specific header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A wait; a number without a unit is in this unit.
    RetryAfter(TimeUnit),
    /// The number of calls allowed per window.
    Limit,
    /// The number of calls left.
    Remaining,
    /// The number of calls made in this window.
    Used,
    /// The time when the quota is restored: epoch, delta, duration or date.
    Reset,
    /// The length of the window.
    Window,
    /// None: the header is ignored, because this provider sends wrong values in it.
    Nothing,
}

/// The deviations of one provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HintProfile {
    /// The unit of a number without a unit in Retry-After.
    pub retry_after_unit: TimeUnit,
    /// The minimum wait: a header that asks for less is raised to it.
    pub floor: Duration,
    /// Additional headers and their meaning, by case-insensitive name. They take precedence over the
    /// standard names.
    pub extra: Vec<(String, Meaning)>,
}
