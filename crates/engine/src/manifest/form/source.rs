//! `source`: where the features come from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the features come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The file to read. Its name tells the format: `.geojson`, `.geojsonl`, `.geojsons`, `.csv`,
    /// `.gpkg`, `.fgb`, `.shp`. A relative path starts at the manifest's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = "parcels.geojsonl")]
    pub file: Option<String>,

    /// The table to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SourceTable")]
    pub postgis: Option<SourceTable>,

    /// The layer of a file that holds several; the first one if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub layer: Option<String>,

    /// The coordinate reference system of a source that does not say its own, such as
    /// `EPSG:25832`. A step `set_crs` overrules what the source says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub crs: Option<String>,

    /// How many records are read, judged and committed together.
    ///
    /// Touch it downwards when a commit should hold less, upwards for speed.
    #[serde(default = "batch")]
    #[schemars(range(min = 1, max = 100_000))]
    pub batch_size: u32,
}

/// A table to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceTable {
    /// Where the database is: `env:NAME` or `file:PATH` that holds the URL, or a URL without a
    /// password.
    #[schemars(length(min = 1, max = 4096), example = "env:DATABASE_URL")]
    pub url: String,

    /// The schema of the table.
    #[serde(default = "public")]
    #[schemars(length(min = 1, max = 63))]
    pub schema: String,

    /// The table or view.
    #[schemars(length(min = 1, max = 63), example = &"parcels")]
    pub table: String,

    /// The column by which rows are read in order and a run resumes: unique and never null.
    #[schemars(length(min = 1, max = 63), example = &"id")]
    pub key: String,
}

// serde takes a default by the name of a function.
fn batch() -> u32 {
    4096
}
pub(super) fn public() -> String {
    "public".to_owned()
}
