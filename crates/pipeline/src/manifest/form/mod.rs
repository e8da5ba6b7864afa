//! The schema of the manifest: one struct per section, one field per key.
//!
//! These types are the only description of the manifest. The JSON Schema is derived from them, the
//! checker enforces that schema, and the reference pages are generated from it. So every range and
//! default is defined once: here. To add a key, add a field with its doc comment.
//!
//! Conventions that the checker and the reference pages rely on:
//!
//! - A field without `serde(default…)` is mandatory; give it an `example` for the help text.
//! - A duration is an `f64` in seconds and its name ends in `_seconds`. The manifest then also
//!   accepts the name without that suffix, with a unit in the value (`base_delay: 1m30s`).
//! - A number has both bounds, so that every rejected value is reported with its position.
//! - The doc comment describes the key. If its last paragraph begins with "Touch it", that
//!   paragraph says when to change the key.

mod alerts;
mod audit;
mod circuit_breaker;
mod dead_letters;
mod expect;
mod gate;
mod lanes;
mod limits;
mod objects;
mod raster;
mod rate_limit;
mod retry_budget;
mod retry_policy;
mod scalar;
mod service;
mod service_retry;
mod sink;
mod source;
mod step;
mod store;
mod tasks;
mod tolerance;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use alerts::{Action, AlertName, AlertsSpec};
pub use audit::AuditSpec;
pub use circuit_breaker::CircuitBreaker;
pub use dead_letters::{AutoRemedy, DeadLetters, Remedy, RemedyRule};
pub use expect::ExpectSpec;
pub use gate::{Check, Gate, Per, Severity};
pub use lanes::{FleetFallback, LanesSpec};
pub use limits::LimitsSpec;
pub use objects::ObjectsSpec;
pub use raster::{
    MosaicStep, RasterCalc, RasterClipStep, RasterRepair, RasterStep, RasterWarp, RasterizeStep,
};
pub use rate_limit::{RateLimit, RateScope};
pub use retry_budget::{EmptyBudget, RetryBudget};
pub use retry_policy::{JitterSetting, OnLongWait, RetryPolicy};
pub use scalar::YamlScalar;
pub use service::{FallbackCase, ServiceSpec};
pub use service_retry::ServiceRetry;
pub use sink::{DeletedRows, SinkSpec, SinkTable, WriteMode};
pub use source::{
    AxisOrderSpec, CsvRows, InputFormat, PageEncoding, Paging, PagingBy, SinceSpec, SourceSpec, SourceTable,
    WfsVersion,
};
pub use step::{Arrays, Cast, Coerce, Flatten, Geocode, HttpSpec, LonLat, Lookup, MissingAnswer, StepSpec};
pub use store::Bucket;
pub use tasks::{TaskGeometry, TaskSource};
pub use tolerance::ToleranceSpec;

/// The longest duration in a manifest: one year, in seconds.
const YEAR: f64 = 31_536_000.0;

/// A Tidegate manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Tidegate manifest")]
pub struct Manifest {
    /// The version of the manifest format. Only 1 is supported.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1))]
    pub version: u32,

    /// Files with default keys, such as shared policies; the keys of this file take precedence. A
    /// relative path starts at the directory of the file that includes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    pub include: Vec<String>,

    /// The pipeline and the policies it runs under.
    pub pipeline: Pipeline,

    /// What `tidegate simulate` must find. A number must be found exactly; `"<= 5"` and `">= 5"` are
    /// bounds. Only `simulate` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ExpectSpec")]
    pub expect: Option<ExpectSpec>,
}

/// The pipeline and the policies it runs under.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// The name of the pipeline, in logs, metrics, dead letters and the audit.
    #[schemars(length(min = 1, max = 200), extend("pattern" = r"\S"), example = "municipal-parcel-sync")]
    pub id: String,

    /// What is retried, how often and after what wait.
    pub retry_policy: RetryPolicy,

    /// How much invalid data a run tolerates before it stops.
    pub tolerance: ToleranceSpec,

    /// What one record may cost: bytes, work, rows.
    #[serde(default)]
    pub limits: LimitsSpec,

    /// When to stop calling a service that fails.
    #[serde(default)]
    pub circuit_breaker: CircuitBreaker,

    /// The limit on retries for all calls together.
    #[serde(default)]
    pub retry_budget: RetryBudget,

    /// How fast the service may be called.
    #[serde(default)]
    pub rate_limit: RateLimit,

    /// The server at which machines share the rates of the services they call: `env:NAME` or `file:PATH` that
    /// contains its URL, a URL without a password (`redis://`, `postgres://` or `nats://`), or `url` with
    /// further settings. Without it, the processes of one machine share them (`rate_limit.scope`).
    ///
    /// Touch it when several machines call one service with one key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LanesSpec", example = &"redis://cache.example")]
    pub lanes: Option<LanesSpec>,

    /// Where the features come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SourceSpec")]
    pub source: Option<SourceSpec>,

    /// What happens to each record on its way, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepSpec>,

    /// Directories with datum shift grids (`.gsb`, `.tif`), which `reproject` uses where they are
    /// more accurate. A relative path starts at the manifest's directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    pub grids: Vec<String>,

    /// What must hold before a batch is committed, besides `tolerance`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,

    /// Where the features go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SinkSpec")]
    pub sink: Option<SinkSpec>,

    /// The audit, a log of all decisions.
    #[serde(default)]
    pub audit: AuditSpec,

    /// Alert thresholds and actions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AlertsSpec")]
    pub alerts: Option<AlertsSpec>,

    /// Where rejected records are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DeadLetters")]
    pub dead_letters: Option<DeadLetters>,

    /// The remote services that the source and the steps call, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, ServiceSpec>,
}

// serde takes a default by the name of a function.
fn one() -> u32 {
    1
}
