//! For HTTP clients that are not ours: from what they got to what a call wants to know.
//!
//! A caller who has an HTTP client keeps it. In [`call::run`](crate::call::run) it sends one attempt,
//! and says with [`answered`] or [`failed`] what came back: the status is classified, the headers are
//! read for `Retry-After` and rate limits, and the lane does the rest. `examples/reqwest.rs` shows it
//! around reqwest, and `tower`, with the feature of that name, is the same as a layer.

#[cfg(feature = "tower")]
pub mod tower;

use crate::call::{AttemptOutcome, Sent};
use crate::lane::LaneHandle;
use http::{HeaderMap, StatusCode};
use tidegate_core::classify::Classifier;
use tidegate_core::hint::{self, HintProfile, Hints};
use tidegate_core::signal::{Network, Signal};

/// An attempt that was answered, by the rules of plain HTTP. A service that hides errors in a 200
/// needs a [profile](crate::profile).
#[must_use]
pub fn answered<T>(lane: &LaneHandle, status: StatusCode, headers: &HeaderMap, value: T) -> Sent<T> {
    let clock = lane.clock();
    let hints = hint::read(headers, clock.wall(), &HintProfile::default());
    let signal = Signal::Http { status: status.as_u16(), finding: None };
    let verdict = Classifier::default().classify(&signal, &hints, clock.mono());
    Sent::Reply(AttemptOutcome { verdict, hints, value: Some(value) })
}

/// An attempt that was not answered.
#[must_use]
pub fn failed<T>(lane: &LaneHandle, how: Network, value: T) -> Sent<T> {
    let hints = Hints::default();
    let verdict = Classifier::default().classify(&Signal::Network(how), &hints, lane.clock().mono());
    Sent::Reply(AttemptOutcome { verdict, hints, value: Some(value) })
}
