//! `sink`: where the features go.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::store::Bucket;

/// Where the features go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SinkSpec {
    /// The file to write. The extension selects the format: `.gpkg`, `.geojson`, `.geojsonl`,
    /// `.geojsons`, `.csv`, `.fgb`, `.parquet`, `.gml`, `.esrijson`. A relative path starts at the
    /// manifest's directory. `s3://bucket/key` is written into the state directory and uploaded
    /// when it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = "parcels.gpkg")]
    pub file: Option<String>,

    /// The table to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SinkTable")]
    pub postgis: Option<SinkTable>,

    /// How to reach the bucket of an `s3://` file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Bucket")]
    pub store: Option<Bucket>,

    /// The layer in a GeoPackage. By default the name of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 63))]
    pub layer: Option<String>,

    /// What happens to existing data. `upsert` is the default where `key` is given, `replace` where
    /// it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WriteMode")]
    pub mode: Option<WriteMode>,

    /// The fields that identify a record, for `upsert`. They must not be null.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 200)), extend("uniqueItems" = true))]
    pub key: Vec<String>,
}

/// A table to write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SinkTable {
    /// The database: `env:NAME` or `file:PATH` that contains the URL, or a URL without a password.
    #[schemars(length(min = 1, max = 4096), example = "env:DATABASE_URL")]
    pub url: String,

    /// The schema of the table. It must exist.
    #[serde(default = "super::source::public")]
    #[schemars(length(min = 1, max = 63))]
    pub schema: String,

    /// The table. It is created if it does not exist, and checked if it does.
    #[schemars(length(min = 1, max = 63), example = &"parcels")]
    pub table: String,

    /// The geometry column.
    #[serde(default = "geom")]
    #[schemars(length(min = 1, max = 63))]
    pub geometry_column: String,
}

/// What happens to existing data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// A record with a known key replaces the existing one, any other is added. Repeating a run
    /// changes nothing.
    Upsert,
    /// Every record is added.
    Append,
    /// Existing data is removed.
    Replace,
}

impl SinkSpec {
    /// What happens to existing data.
    #[must_use]
    pub fn mode(&self) -> WriteMode {
        self.mode.unwrap_or(if self.key.is_empty() { WriteMode::Replace } else { WriteMode::Upsert })
    }
}

// serde takes a default by the name of a function.
fn geom() -> String {
    "geom".to_owned()
}
