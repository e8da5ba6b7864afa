//! `steps`: the processing of each record.
//!
//! An entry is one key, the name of the step, with its settings. So the form is a struct of options
//! of which exactly one is given, which the checker enforces; `max_reject_rate` may stand beside it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::raster::RasterStep;
use super::scalar::YamlScalar;

/// One step: exactly one of these keys, and `max_reject_rate` beside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 2))]
pub struct StepSpec {
    /// The share of the records read so far that this step may reject: 0.01 is one in a hundred.
    /// Above it the run halts before the batch is committed (exit code 3). By default 1: any number.
    ///
    /// Touch it when a step that rejects much means that the source has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.0, max = 1.0))]
    pub max_reject_rate: Option<f64>,

    /// Rename fields: `{ OLD: new }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub rename: Option<BTreeMap<String, String>>,

    /// Remove these fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", inner(length(min = 1, max = 200)))]
    pub drop: Option<Vec<String>>,

    /// Keep only these fields, in this order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", inner(length(min = 1, max = 200)))]
    pub keep: Option<Vec<String>>,

    /// Convert fields to other types. A record with a value that would lose information is
    /// rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Coerce")]
    pub coerce: Option<Coerce>,

    /// Expand a field of nested JSON into fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Flatten")]
    pub flatten: Option<Flatten>,

    /// Replace missing values: `{ state: unknown }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, YamlScalar>")]
    pub default: Option<BTreeMap<String, YamlScalar>>,

    /// Add the same value to every record: `{ origin: cadastre }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, YamlScalar>")]
    pub constant: Option<BTreeMap<String, YamlScalar>>,

    /// Keep only records for which this expression is true. See the page on steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub filter: Option<String>,

    /// Add fields from another file, found by a foreign key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Lookup")]
    pub lookup: Option<Lookup>,

    /// Geocode an address, or reverse geocode a place, with a service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Geocode")]
    pub geocode: Option<Geocode>,

    /// Add fields from the JSON response of a service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HttpSpec")]
    pub http: Option<HttpSpec>,

    /// Set the coordinate reference system, whatever the source declares. Coordinates are not
    /// changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub set_crs: Option<String>,

    /// Reproject coordinates to this coordinate reference system.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub reproject: Option<String>,

    /// Clip geometries to a bounding box: west, south, east, north, in the current coordinate
    /// reference system. What lies outside is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<f64>", inner(range(min = -1e15, max = 1e15)), extend("minItems" = 4, "maxItems" = 4))]
    pub clip: Option<Vec<f64>>,

    /// Repair invalid geometries; records that cannot be repaired are rejected.
    #[serde(skip_serializing_if = "is_false")]
    pub make_valid: bool,

    /// Convert every geometry to its multi type, so that the layer has one type.
    #[serde(skip_serializing_if = "is_false")]
    pub promote_to_multi: bool,

    /// Remove Z and M values.
    #[serde(skip_serializing_if = "is_false")]
    pub force_2d: bool,

    /// Round coordinates to this many decimal places.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 0, max = 15))]
    pub round: Option<u32>,

    /// Repair, transform or survey the raster that each record names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RasterStep")]
    pub raster: Option<RasterStep>,

    /// Keep the first of the records with the same values in these fields. `[]` means all fields
    /// and the geometry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", inner(length(min = 1, max = 200)))]
    pub dedupe: Option<Vec<String>>,
}

/// Types of fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Coerce {
    /// The type of each field: `{ population: int }`.
    pub fields: BTreeMap<String, Cast>,

    /// Strings that mean null, such as `""`, `N/A`, `-9999`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub null_values: Vec<String>,

    /// The format of dates, in `strftime` syntax: `%d.%m.%Y`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 64))]
    pub format: Option<String>,

    /// The decimal separator of numbers, if it is not a point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 1))]
    pub decimal: Option<String>,

    /// The thousands separator of numbers, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 1))]
    pub thousands: Option<String>,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cast {
    /// Text.
    String,
    /// An integer.
    Int,
    /// A number.
    Float,
    /// True or false.
    Bool,
    /// A date.
    Date,
    /// A date and time.
    Datetime,
    /// Any JSON value, as its text.
    Json,
}

/// Expand a field of nested JSON into fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flatten {
    /// The field that holds JSON.
    #[schemars(length(min = 1, max = 200), example = &"tags")]
    pub field: String,

    /// The separator between the parts of a name.
    #[serde(default = "dot")]
    #[schemars(length(min = 1, max = 8))]
    pub separator: String,

    /// How deep objects are expanded; deeper values stay JSON.
    #[serde(default = "eight")]
    #[schemars(range(min = 1, max = 64))]
    pub depth: u32,

    /// What happens to lists.
    #[serde(default)]
    pub arrays: Arrays,

    /// The fields to create, by their full names (`tags.a.b`), with their types. Without it a first
    /// pass over the source finds them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, Cast>,
}

/// What happens to lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrays {
    /// They stay JSON.
    #[default]
    Json,
    /// Each entry becomes a field with its number: `tags.0`.
    Index,
    /// A field that is a list becomes one record per entry; lists deeper inside stay JSON.
    Explode,
}

/// Add fields from another file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lookup {
    /// The file, of any format that can be read. It is held in memory.
    #[schemars(length(min = 1, max = 4096), example = "owners.csv")]
    pub file: String,

    /// The field of the record that holds the foreign key.
    #[schemars(length(min = 1, max = 200), example = &"owner_id")]
    pub on: String,

    /// The key field of the file. By default the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub key: Option<String>,

    /// The fields to take.
    #[schemars(inner(length(min = 1, max = 200)), extend("uniqueItems" = true), example = ["name"])]
    pub take: Vec<String>,

    /// What happens to a record whose key is not in the file.
    #[serde(default)]
    pub missing: MissingAnswer,
}

/// What happens to a record without a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingAnswer {
    /// It becomes a dead letter.
    #[default]
    Reject,
    /// It continues with nulls.
    Keep,
}

/// Geocode an address, or reverse geocode a place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Geocode {
    /// The service, by its name in `services`.
    #[schemars(length(min = 1, max = 64), example = &"opencage")]
    pub service: String,

    /// The fields that hold the address; they are joined by commas. Without it, the point of the
    /// record is reverse geocoded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 200)))]
    pub address: Vec<String>,

    /// The fields that hold longitude and latitude, for reverse geocoding. The place becomes the
    /// geometry of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LonLat")]
    pub place: Option<LonLat>,

    /// The field that says what was wrong with the record when it was read
    /// (`source.csv.row_error`). Such a record is not sent and fails with `SCHEMA_MISMATCH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub row_error: Option<String>,

    /// The field for the outcome: `matched`, `no_match` or `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub outcome: Option<String>,

    /// The field for the label of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub label: Option<String>,

    /// The field for the score of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub score: Option<String>,

    /// The field for the kind of match, as the service calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub match_type: Option<String>,

    /// The field for the number of attempts that the record cost in this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub attempts: Option<String>,

    /// The field for the time from the first attempt to the end, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub elapsed_ms: Option<String>,

    /// The field that shows whether the result needed no call in this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub cache_hit: Option<String>,

    /// The field for the service that answered, by its name in `services`: the service or one of its
    /// fallbacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub provider: Option<String>,

    /// The field for the code of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub error_code: Option<String>,

    /// The field for the message of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub error: Option<String>,

    /// What happens to a record for which the service has no result.
    #[serde(default = "keep")]
    pub no_match: MissingAnswer,

    /// What happens to a record that fails: it is rejected, or continues to the sink without a
    /// result. With `keep`, `outcome` or `error_code` must mark the failure in a field, and the run
    /// still ends with exit code 4.
    #[serde(default = "reject", skip_serializing_if = "is_reject")]
    pub on_failure: MissingAnswer,
}

/// The fields of a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LonLat {
    /// The field of the longitude, in degrees.
    #[schemars(length(min = 1, max = 200))]
    pub lon: String,

    /// The field of the latitude, in degrees.
    #[schemars(length(min = 1, max = 200))]
    pub lat: String,
}

/// Add fields from the JSON response of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpSpec {
    /// The service, by its name in `services`.
    #[schemars(length(min = 1, max = 64), example = &"owners")]
    pub service: String,

    /// The path of the request, below the `url` of the service; `{field}` is replaced by the value
    /// of a field. What follows a `?` is added to the query.
    #[schemars(length(min = 1, max = 4096), example = "/owners/{owner_id}")]
    pub path: String,

    /// The new fields, as JSON pointers into the response: `{ owner: /owner/name }`. They become
    /// text; use `coerce` to convert them.
    pub take: BTreeMap<String, String>,

    /// The field for the service that answered, by its name in `services`: the service or one of its
    /// fallbacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub provider: Option<String>,

    /// What happens to a record for which the service has no result (404, or no such value).
    #[serde(default = "keep")]
    pub no_match: MissingAnswer,
}

fn is_false(value: &bool) -> bool {
    !value
}

// serde takes a default by the name of a function.
fn dot() -> String {
    ".".to_owned()
}
fn eight() -> u32 {
    8
}
fn reject() -> MissingAnswer {
    MissingAnswer::Reject
}
fn is_reject(what: &MissingAnswer) -> bool {
    *what == MissingAnswer::Reject
}
fn keep() -> MissingAnswer {
    MissingAnswer::Keep
}

impl StepSpec {
    /// The name of the step, the one key that is given.
    #[must_use]
    pub fn name(&self) -> &'static str {
        [
            (self.rename.is_some(), "rename"),
            (self.drop.is_some(), "drop"),
            (self.keep.is_some(), "keep"),
            (self.coerce.is_some(), "coerce"),
            (self.flatten.is_some(), "flatten"),
            (self.default.is_some(), "default"),
            (self.constant.is_some(), "constant"),
            (self.filter.is_some(), "filter"),
            (self.lookup.is_some(), "lookup"),
            (self.geocode.is_some(), "geocode"),
            (self.http.is_some(), "http"),
            (self.set_crs.is_some(), "set_crs"),
            (self.reproject.is_some(), "reproject"),
            (self.clip.is_some(), "clip"),
            (self.make_valid, "make_valid"),
            (self.promote_to_multi, "promote_to_multi"),
            (self.force_2d, "force_2d"),
            (self.round.is_some(), "round"),
            (self.raster.is_some(), "raster"),
            (self.dedupe.is_some(), "dedupe"),
        ]
        .into_iter()
        .find(|(given, _)| *given)
        .map_or("nothing", |(_, name)| name)
    }
}
