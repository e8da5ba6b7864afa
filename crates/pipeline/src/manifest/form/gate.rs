//! `gates`: conditions that must hold before a batch is committed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scalar::YamlScalar;
use super::step::Cast;

/// What must hold before a batch is committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// The check.
    #[schemars(example = &"is_valid")]
    pub check: Check,

    /// What happens on a failure. `reject` is the default for checks of single records, `halt` for
    /// `null_rate` and `count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Severity")]
    pub severity: Option<Severity>,

    /// The share that may fail: 0.01 is one in a hundred. Above it `warn` warns, and `reject` and
    /// `halt` halt the run. By default 0, and 1 for `reject`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.0, max = 1.0))]
    pub max_rate: Option<f64>,

    /// The base of the share: each batch alone, or the run so far.
    #[serde(default)]
    pub per: Per,

    /// The fields to check. For `null_rate`, all fields by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 200)), extend("uniqueItems" = true))]
    pub fields: Vec<String>,

    /// The smallest value (`range`) or count (`count`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = -1e15, max = 1e15))]
    pub min: Option<f64>,

    /// The largest value (`range`) or count (`count`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = -1e15, max = 1e15))]
    pub max: Option<f64>,

    /// The type that values must have or be able to take (`type`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cast")]
    pub is: Option<Cast>,

    /// The values that are allowed (`one_of`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<YamlScalar>,

    /// The fewest decimal places (`precision`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 0, max = 15))]
    pub decimals: Option<u32>,

    /// The area in which geometries must be (`bbox`): west, south, east, north, in the coordinate
    /// reference system of the sink.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(range(min = -1e15, max = 1e15)), extend("minItems" = 4, "maxItems" = 4))]
    pub bbox: Vec<f64>,

    /// How far numbers may be from those of the last run (`drift`): a percentage of them such as `10%`, or
    /// a number such as `0.05`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar", example = &"10%")]
    pub tolerate: Option<YamlScalar>,
}

/// The check of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The structure required by RFC 7946: positions within longitude and latitude, closed rings of
    /// four or more positions, outer rings counterclockwise, holes clockwise, no measures.
    Rfc7946,
    /// The geometry is valid by the rules of the OGC.
    IsValid,
    /// The geometry does not cross itself.
    IsSimple,
    /// There is a geometry with at least one position.
    NotEmpty,
    /// The share of values that are null.
    NullRate,
    /// The fields have a value, and text is not blank: mandatory and foreign keys.
    NotNull,
    /// At least one coordinate has that many decimal places.
    Precision,
    /// The geometry lies within a bounding box.
    Bbox,
    /// Longitude and latitude are not swapped: latitudes within 90 degrees.
    AxisOrder,
    /// The values are of a type, or can become it without loss.
    Type,
    /// The numbers lie within bounds.
    Range,
    /// The values are among those listed.
    OneOf,
    /// No two records share these fields, over the whole run.
    Unique,
    /// How many records the run commits. Checked at the end, before the last batch is committed.
    Count,
    /// The numbers are those of the last run that ended well, within a tolerance. The first run records
    /// them.
    Drift,
}

/// What happens on a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A warning is printed at the end.
    Warn,
    /// The record becomes a dead letter.
    Reject,
    /// The run ends; the batch is not committed.
    Halt,
}

/// The base of a share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Each batch alone.
    Batch,
    /// The run so far, evaluated before each commit.
    #[default]
    Run,
}

impl Check {
    /// Whether it judges geometries.
    #[must_use]
    pub const fn is_spatial(self) -> bool {
        matches!(
            self,
            Check::Rfc7946
                | Check::IsValid
                | Check::IsSimple
                | Check::NotEmpty
                | Check::Precision
                | Check::Bbox
                | Check::AxisOrder
        )
    }

    /// The name in the manifest.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Check::Rfc7946 => "rfc7946",
            Check::IsValid => "is_valid",
            Check::IsSimple => "is_simple",
            Check::NotEmpty => "not_empty",
            Check::NullRate => "null_rate",
            Check::NotNull => "not_null",
            Check::Precision => "precision",
            Check::Bbox => "bbox",
            Check::AxisOrder => "axis_order",
            Check::Type => "type",
            Check::Range => "range",
            Check::OneOf => "one_of",
            Check::Unique => "unique",
            Check::Count => "count",
            Check::Drift => "drift",
        }
    }
}
