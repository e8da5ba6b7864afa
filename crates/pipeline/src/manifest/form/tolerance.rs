//! `tolerance`: how much invalid data a run tolerates before it stops.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much invalid data a run tolerates before it stops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToleranceSpec {
    /// The share of null values above which the run halts: 0.005 is one in two hundred.
    ///
    /// Touch it when the source is known to leave a field empty.
    #[schemars(range(min = 0.0, max = 1.0), example = 0.005)]
    pub max_null_rate: f64,

    /// Whether an invalid geometry halts the run. If `false`, the record becomes a dead letter and
    /// the run continues; a gate `is_valid` with another severity overrides this.
    ///
    /// Touch it when a few invalid geometries must not stop the run.
    #[schemars(example = true)]
    pub halt_on_geometry_invalid: bool,

    /// The minimum number of decimal places of a coordinate; fewer mean that precision was lost. In
    /// degrees, 6 places are about 0.1 m.
    ///
    /// If it is set, a record with fewer halts the run. If it is not set, there is only a warning,
    /// and only for longitudes and latitudes.
    ///
    /// Touch it for projected coordinates in metres, where 2 or 3 are plenty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 0, max = 15), extend("default" = 6))]
    pub precision_decimal_threshold: Option<u32>,
}

impl ToleranceSpec {
    /// The default minimum number of decimal places.
    pub const PRECISION: u32 = 6;
}
