//! `sink`: where the features go.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scalar::YamlScalar;
use super::store::Bucket;

/// Where the features go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SinkSpec {
    /// The file to write. The extension selects the format: `.gpkg`, `.geojson`, `.geojsonl`,
    /// `.geojsons`, `.csv`, `.fgb`, `.parquet`, `.gml`, `.esrijson`. A relative path starts at the
    /// manifest's directory. An object (`s3://bucket/key`, `az://…`, `gs://…`) is written into the state directory and uploaded
    /// when it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = "parcels.gpkg")]
    pub file: Option<String>,

    /// The table to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SinkTable")]
    pub postgis: Option<SinkTable>,

    /// How to reach the bucket of an `s3://`, `az://` or `gs://` file.
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

    /// The fields that identify a record, for `upsert` and `sync`. They must not be null. `$key` is the
    /// SHA-256 of the canonical record as it leaves the last step, written to the field `record_key`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 200)), extend("uniqueItems" = true))]
    pub key: Vec<String>,

    /// What happens with `mode: sync` to a row whose record the source no longer has.
    #[serde(default, skip_serializing_if = "DeletedRows::is_default")]
    pub deleted: DeletedRows,

    /// The most rows that `mode: sync` may delete or mark in one run: a number such as `5`, or a
    /// percentage of the rows before the run such as `10%`, which is the default. Beyond it the run
    /// halts with exit code 3 and deletes nothing.
    ///
    /// Touch it when a large part of the source is expected to disappear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar", example = &"10%")]
    pub max_deleted: Option<YamlScalar>,

    /// Whether the table keeps every version of a record. `valid_from` is the start of the run that
    /// wrote the version. `valid_to` is the start of the run that replaced or deleted it, and null for
    /// the current version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub history: bool,
}

/// A table to write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SinkTable {
    /// The database: `env:NAME` or `file:PATH` that contains the URL, or a URL without a password.
    /// `?reply_timeout=SECONDS` bounds the wait for each reply (600 s).
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
    /// The sink is made to match the source: like `upsert`, and rows whose records the source no
    /// longer has are deleted or marked when the whole source has been read.
    Sync,
}

impl WriteMode {
    /// Whether rows are written by key.
    #[must_use]
    pub const fn is_keyed(self) -> bool {
        matches!(self, WriteMode::Upsert | WriteMode::Sync)
    }
}

/// What happens to a row whose record the source no longer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeletedRows {
    /// It is deleted.
    #[default]
    Delete,
    /// Its column `deleted_at` is set to the start of the run. It is set to null when the source has
    /// the record again.
    Mark,
}

impl DeletedRows {
    // serde takes a condition by the name of a function.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == DeletedRows::default()
    }
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
