//! Adapters for other HTTP clients: convert their responses and errors into the outcome of an
//! attempt.
//!
//! In [`call::run`](crate::call::run) the caller sends one attempt with its own HTTP client and
//! passes the result to [`answered`] or [`failed`]. The status is classified, `Retry-After` and
//! rate-limit headers are parsed, and the lane does the rest. `examples/reqwest.rs` shows this with
//! reqwest; `tower`, with the feature of that name, is the same as a layer.

#[cfg(feature = "tower")]
pub mod tower;

use crate::call::{AttemptOutcome, Sent};
use crate::lane::LaneHandle;
use http::{HeaderMap, StatusCode};
use tidegate_core::classify::Classifier;
use tidegate_core::hint::{self, HintProfile, Hints};
use tidegate_core::signal::{Network, Signal};

/// An attempt that got a response, classified by its status alone. A service that returns errors
/// with status 200 needs a [profile](crate::profile).
#[must_use]
pub fn answered<T>(lane: &LaneHandle, status: StatusCode, headers: &HeaderMap, value: T) -> Sent<T> {
    let clock = lane.clock();
    let hints = hint::read(headers, clock.wall(), &HintProfile::default());
    let signal = Signal::Http { status: status.as_u16(), finding: None };
    let verdict = Classifier::default().classify(&signal, &hints, clock.mono());
    Sent::Reply(AttemptOutcome { verdict, hints, value: Some(value) })
}

/// An attempt that got no response.
#[must_use]
pub fn failed<T>(lane: &LaneHandle, how: Network, value: T) -> Sent<T> {
    let hints = Hints::default();
    let verdict = Classifier::default().classify(&Signal::Network(how), &hints, lane.clock().mono());
    Sent::Reply(AttemptOutcome { verdict, hints, value: Some(value) })
}
