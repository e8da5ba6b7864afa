//! `source`: where the features come from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_geo::format::Format;

use super::YEAR;
use super::scalar::YamlScalar;
use super::store::Bucket;
use super::tasks::TaskSource;
use crate::source::ChangeMark;

/// Where the features come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// The file to read. The extension selects the format: `.geojson`, `.geojsonl`, `.geojsons`,
    /// `.csv`, `.gpkg`, `.fgb`, `.parquet`, `.gml`, `.shp`. A relative path starts at the
    /// manifest's directory. `https://…`, `s3://bucket/key`, `az://container/key` and `gs://bucket/key` are downloaded into the state
    /// directory first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = "parcels.geojsonl")]
    pub file: Option<String>,

    /// The rasters to work on, one record each, with the fields `path` and `name`: files, patterns such
    /// as `scenes/*.tif`, directories, addresses on web servers, objects, and prefixes of buckets such
    /// as `s3://scenes/2026/`. A step `raster` reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    pub rasters: Vec<String>,

    /// The assets of the items of a STAC API, by their names: one record for each asset of each item, with
    /// the fields `path`, `name`, `item`, `collection`, `asset` and `datetime`, and the outline of the item.
    /// A step `raster` reads them. With a `service` whose profile is `stac`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 200)), extend("uniqueItems" = true), example = &["B04", "B08"])]
    pub assets: Vec<String>,

    /// The format of the file. By default the extension decides, then for a web server the
    /// Content-Type, else the first bytes.
    ///
    /// Touch it for a file whose name does not show the format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "InputFormat")]
    pub format: Option<InputFormat>,

    /// Read a CSV file as rows of text: every column becomes a text field, and none is taken for a
    /// geometry. Use a step `coerce` to convert them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CsvRows")]
    pub csv: Option<CsvRows>,

    /// The table to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SourceTable")]
    pub postgis: Option<SourceTable>,

    /// The service to read a layer of, by its name in `services`: WFS, OGC API Features, ArcGIS or
    /// STAC, as its profile or its URL shows. Together with a `file` on a web server: the service
    /// whose key and limits apply to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200), example = &"cadastre")]
    pub service: Option<String>,

    /// The queue to take geotasks from: a SQLite file, or the URL of a queue (`postgres`, `redis`,
    /// `amqp`, `nats`, `sqs`, `pubsub`, `kafka`), or `env:NAME` or `file:PATH` that contains it.
    /// `tidegate worker` and `tidegate run` take the tasks, `tidegate submit` adds some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = &"redis://localhost/geotasks")]
    pub queue: Option<String>,

    /// The group of workers that share the tasks of the queue. By default the id of the pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 100), example = &"parcels")]
    pub group: Option<String>,

    /// What the tasks of the queue are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TaskSource")]
    pub tasks: Option<TaskSource>,

    /// The layer of a file or a service that holds several, or the collection. The first one of a
    /// file if it is not given; a service must then have only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub layer: Option<String>,

    /// The coordinate reference system of a source that declares none, such as `EPSG:25832`. A step
    /// `set_crs` overrides the declared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub crs: Option<String>,

    /// Whether coordinates are accepted that cannot be in the declared coordinate reference system.
    /// Without it the run fails with `CRS_MISMATCH` before it commits them.
    ///
    /// Touch it when a run fails with `CRS_MISMATCH` and the coordinates are right.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trust_crs: bool,

    /// How the pages of a service are requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Paging")]
    pub paging: Option<Paging>,

    /// Whether all pages of a service are stored in the state directory before the first record is
    /// read. Then every field is known before anything is written, including fields that the
    /// service does not describe and that only the last page has. Without it, the fields are those
    /// of the description and the first page, and a record with another field is rejected. An
    /// interrupted run continues at the page.
    ///
    /// Touch it for a service that does not describe all its fields.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spool: bool,

    /// Read only what has changed since the last run. For a service or a table, with a sink that is
    /// written by key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SinceSpec")]
    pub since: Option<SinceSpec>,

    /// The tolerated difference between the number of records received and declared: a number such
    /// as `5`, or a percentage such as `0.1%`. Beyond it the run fails with `COUNT_MISMATCH`.
    ///
    /// Touch it for a service whose count is an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "YamlScalar", example = &"0.1%")]
    pub tolerate: Option<YamlScalar>,

    /// The longest wait that a service or a store may ask for, in the source, in a step or in the sink.
    /// Beyond it the run ends with exit code 75 and can be resumed later.
    #[serde(default = "quarter")]
    #[schemars(range(min = 0.0, max = YEAR))]
    pub patience_seconds: f64,

    /// How to reach the bucket of an `s3://`, `az://` or `gs://` file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Bucket")]
    pub store: Option<Bucket>,

    /// How many records are read, checked and committed together.
    ///
    /// The pages of a service are batches of their own, as large as they come.
    ///
    /// Touch it downwards for smaller commits, upwards for speed.
    #[serde(default = "batch")]
    #[schemars(range(min = 1, max = 100_000))]
    pub batch_size: u32,
}

/// How a run reads only what has changed since the last one.
///
/// The highest value of the field that a run has read, the watermark, is stored in the sink in the
/// transaction of the last batch. The next run asks the service or the table only for records from
/// the watermark on, minus `overlap`. The first run reads everything, and so does a run whose sink has
/// lost rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SinceSpec {
    /// The field that holds the time of the last change, or a number that only increases.
    #[schemars(length(min = 1, max = 200), example = &"EDITED")]
    pub field: String,

    /// How long before the watermark a run starts to read, for changes that became visible late.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 0.0, max = YEAR))]
    pub overlap_seconds: f64,

    /// Read everything in every Nth run, because deletions do not show up among the changes. With 1,
    /// every run reads everything.
    #[serde(default = "seven")]
    #[schemars(range(min = 1, max = 100_000))]
    pub full_every: u32,

    /// The value from which this run reads. Set by the run, not by the manifest.
    #[serde(skip)]
    pub from: Option<ChangeMark>,
}

/// How a CSV file is read as rows of text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CsvRows {
    /// The field delimiter, or `tab`. By default it is detected from the header.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 3), example = &";")]
    pub delimiter: Option<String>,

    /// The encoding of the file, such as `windows-1252`. By default UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 40), example = &"windows-1252")]
    pub encoding: Option<String>,

    /// The field that says what is wrong with a row: too few cells, a cell that is not text. The
    /// row is then processed with what could be read. By default such a row is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub row_error: Option<String>,

    /// The columns that must be readable; an error in a single cell of another column is ignored.
    /// By default all must be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 200)), extend("uniqueItems" = true))]
    pub required: Vec<String>,
}

/// The format of a file, by its usual extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputFormat {
    /// GeoPackage.
    Gpkg,
    /// GeoJSON: one collection, feature or geometry.
    Geojson,
    /// One GeoJSON feature per line.
    Geojsonl,
    /// GeoJSON text sequence.
    Geojsons,
    /// Comma-separated values.
    Csv,
    /// FlatGeobuf.
    Fgb,
    /// GeoParquet.
    Parquet,
    /// GML of WFS 1.1 and 2.0.
    Gml,
    /// ESRI JSON.
    Esrijson,
    /// Shapefile.
    Shp,
}

impl InputFormat {
    /// The format that it means.
    #[must_use]
    pub fn format(self) -> Format {
        match self {
            InputFormat::Gpkg => Format::GeoPackage,
            InputFormat::Geojson => Format::GeoJson,
            InputFormat::Geojsonl => Format::GeoJsonLines,
            InputFormat::Geojsons => Format::GeoJsonSeq,
            InputFormat::Csv => Format::Csv,
            InputFormat::Fgb => Format::FlatGeobuf,
            InputFormat::Parquet => Format::GeoParquet,
            InputFormat::Gml => Format::Gml,
            InputFormat::Esrijson => Format::EsriJson,
            InputFormat::Shp => Format::Shapefile,
        }
    }
}

impl SourceSpec {
    /// The default for the longest wait that a service may ask for, in seconds.
    pub const PATIENCE_SECONDS: f64 = 900.0;
}

/// How the pages of a service are requested.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Paging {
    /// Features per page. By default chosen by the service.
    ///
    /// Touch it downwards when pages time out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = 1_000_000))]
    pub size: Option<u64>,

    /// Requests in parallel, if the positions of the pages are known in advance. By default from
    /// the profile.
    ///
    /// Touch it downwards for a weak server, upwards for one that is yours.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 64))]
    pub at_once: Option<u32>,

    /// The paging method of an ArcGIS layer.
    pub by: PagingBy,

    /// The response format of the pages.
    pub body: PageEncoding,

    /// The field to sort a WFS by; it should be unique. By default the key, if one is found.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub sort_by: Option<String>,

    /// The WFS version. By default chosen by the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WfsVersion")]
    pub version: Option<WfsVersion>,

    /// The coordinate reference system to request, such as `EPSG:25832`. By default that of the
    /// layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub crs: Option<String>,

    /// Which coordinate comes first in the GML of a WFS, for systems that put north first. By default
    /// the name of the system or the extent of the layer tells.
    ///
    /// Touch it when a run asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AxisOrderSpec")]
    pub axis_order: Option<AxisOrderSpec>,
}

/// The order of two coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AxisOrderSpec {
    /// East first.
    Xy,
    /// North first.
    Yx,
}

/// The paging method of an ArcGIS layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PagingBy {
    /// By ranges of object ids, which no change of the layer disturbs.
    #[default]
    Ids,
    /// By `resultOffset`.
    Offset,
}

/// The response format of the pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PageEncoding {
    /// GeoJSON from a WFS that supports it, Esri JSON from an ArcGIS server.
    #[default]
    Auto,
    /// GeoJSON.
    Geojson,
    /// GML, from a WFS.
    Gml,
}

/// The version of a WFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WfsVersion {
    /// 2.0.0
    #[serde(rename = "2.0.0")]
    Two,
    /// 1.1.0
    #[serde(rename = "1.1.0")]
    One,
}

impl WfsVersion {
    /// The version as the protocol spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            WfsVersion::Two => "2.0.0",
            WfsVersion::One => "1.1.0",
        }
    }
}

/// A table to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceTable {
    /// The database: `env:NAME` or `file:PATH` that contains the URL, or a URL without a password.
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
fn quarter() -> f64 {
    SourceSpec::PATIENCE_SECONDS
}
fn ten_minutes() -> f64 {
    600.0
}
fn seven() -> u32 {
    7
}
pub(super) fn public() -> String {
    "public".to_owned()
}
