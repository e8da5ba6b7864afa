//! The form of the manifest: one struct per section, one field per key.
//!
//! These types are the only description of the manifest. The JSON Schema is derived from them,
//! the checker enforces that schema, and the reference page is written from it. So a range or a
//! default stands in one place: here. To add a key, add a field with its doc comment.
//!
//! Conventions, which the checker and the reference page rely on:
//!
//! - A field without `serde(default…)` is mandatory; give it an `example` for the help text.
//! - A span of time is an `f64` in seconds and its name ends in `_seconds`. The manifest then
//!   also takes the name without that ending, with a human duration (`base_delay: 1m30s`).
//! - A number has both bounds, so that none is refused without a place.
//! - The doc comment says what the key means. If its last paragraph begins with "Touch it", that
//!   paragraph says when to change the key.

mod circuit_breaker;
mod rate_limit;
mod retry_budget;
mod retry_policy;
mod tolerance;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use circuit_breaker::CircuitBreaker;
pub use rate_limit::RateLimit;
pub use retry_budget::{OnEmpty, RetryBudget};
pub use retry_policy::{Jitter, OnLongWait, RetryPolicy};
pub use tolerance::Tolerance;

/// The longest span the manifest takes: one year, in seconds.
const YEAR: f64 = 31_536_000.0;

/// A Tidegate manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Tidegate manifest")]
pub struct Manifest {
    /// The version of the manifest form. There is one so far.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1))]
    pub version: u32,

    /// The pipeline and the policies it runs under.
    pub pipeline: Pipeline,
}

/// The pipeline and the policies it runs under.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// The name of the pipeline, in logs, metrics, dead letters and the audit.
    #[schemars(length(min = 1, max = 200), extend("pattern" = r"\S"), example = "municipal-parcel-sync")]
    pub id: String,

    /// What is tried again, how often and after what wait.
    pub retry_policy: RetryPolicy,

    /// How much flawed data a run may hold before it stops.
    pub tolerance: Tolerance,

    /// When to stop calling a service that fails.
    #[serde(default)]
    pub circuit_breaker: CircuitBreaker,

    /// How many retries there may be for all calls together.
    #[serde(default)]
    pub retry_budget: RetryBudget,

    /// How fast the service may be called.
    #[serde(default)]
    pub rate_limit: RateLimit,
}

// serde takes a default by the name of a function.
fn one() -> u32 {
    1
}
