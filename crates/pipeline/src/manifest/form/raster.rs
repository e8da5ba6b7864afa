//! The step `raster`: what is done with the raster that a record names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::objects::ObjectsSpec;
use super::step::MissingAnswer;
use super::store::Bucket;

/// What is done with the raster of each record.
///
/// The raster is named by a field. What is made of it appears in a directory under the same name when
/// it is whole, and the field names it from then on. A record whose raster cannot be read or
/// repaired becomes a dead letter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RasterStep {
    /// The field that holds the path or the address of the raster.
    #[serde(default = "path")]
    #[schemars(length(min = 1, max = 200))]
    pub field: String,

    /// What the field may name, beside what the manifest names itself: the rasters of `source.rasters`, the
    /// assets of `source.assets`, the results of earlier steps, and values of `constant` and `default`.
    /// Whoever writes the records chooses the value, so by default nothing else is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ObjectsSpec")]
    pub objects: Option<ObjectsSpec>,

    /// The directory of the results. A relative path starts at the manifest's directory. Not needed
    /// for a step that only surveys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = &"repaired")]
    pub output: Option<String>,

    /// The file name of the result; `{field}` is replaced by the value of a field. By default the name of
    /// the raster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 400), example = &"{parcel_id}.tif")]
    pub name: Option<String>,

    /// Repair broken headers. A raster that is sound is copied as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RasterRepair")]
    pub repair: Option<RasterRepair>,

    /// Write it anew as a COG.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cog: bool,

    /// Bring it to another grid, as a COG.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RasterWarp")]
    pub warp: Option<RasterWarp>,

    /// Clip it, as a COG.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RasterClipStep")]
    pub clip: Option<RasterClipStep>,

    /// Compute with its bands, as a COG.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RasterCalc")]
    pub calc: Option<RasterCalc>,

    /// Burn features into pixels, as a COG.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RasterizeStep")]
    pub rasterize: Option<RasterizeStep>,

    /// Join the rasters of a list into one COG. The field holds a JSON list of paths or addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MosaicStep")]
    pub mosaic: Option<MosaicStep>,

    /// The compression of results: `deflate`, `zstd`, `lzw` or `none`. By default deflate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 20), example = &"zstd")]
    pub compression: Option<String>,

    /// The effort of the compression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32", range(min = 1, max = 22))]
    pub level: Option<i32>,

    /// Attempts per range of a remote raster; throttled calls and outages do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 100))]
    pub attempts: Option<u32>,

    /// The wait before the first retry of a range, before jitter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.0, max = 3600.0))]
    pub base_delay_seconds: Option<f64>,

    /// The deadline of a range, from its first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.0, max = 86400.0))]
    pub deadline_seconds: Option<f64>,

    /// The longest wait that a server may ask for; beyond it the record becomes a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.0, max = 86400.0))]
    pub patience_seconds: Option<f64>,

    /// Whether host names may resolve to private addresses.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_private: bool,

    /// Look for `.aux.xml` and `.msk` beside remote COGs too, which have their position and mask inside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sidecars: bool,

    /// How to reach the bucket of `s3://`, `az://` and `gs://` rasters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Bucket")]
    pub store: Option<Bucket>,

    /// Read all pixels and add fields with what they are, for gates: `nodata_share`, `min`, `max`,
    /// `mean`, and the same for each band: `band_nodata_share`, `band_min`, `band_max`, `band_mean`.
    /// Size, bands, type, system, pixel size and checksum are added in any case.
    #[serde(default)]
    pub survey: bool,
}

/// How a raster is repaired.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RasterRepair {
    /// Write what is left of a raster with lost blocks, with a mask.
    pub partial: bool,

    /// The coordinate reference system of rasters that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub crs: Option<String>,

    /// Accept rasters without a place and a coordinate reference system.
    pub unplaced: bool,
}

/// The grid that a raster is brought to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RasterWarp {
    /// The coordinate reference system, such as `EPSG:3857`. By default that of the raster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub to: Option<String>,

    /// How values are computed: `nearest`, `bilinear`, `cubic`, `average` or `mode`. By default nearest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 20))]
    pub resampling: Option<String>,

    /// The size of a pixel. By default as large as those of the raster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 1e-12, max = 1e9))]
    pub resolution: Option<f64>,

    /// Whether the edges lie on multiples of the pixel size.
    pub aligned: bool,
}

/// What a raster is clipped by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RasterClipStep {
    /// A box in the system of the raster: west, south, east, north.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(range(min = -1e15, max = 1e15)), extend("minItems" = 4, "maxItems" = 4))]
    pub bbox: Vec<f64>,

    /// A file of outlines, in any system.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = &"parcels.gpkg")]
    pub file: Option<String>,

    /// Clip by the geometry of the record itself.
    pub record: bool,

    /// Whether pixels count that an outline only touches. By default their centre must lie within.
    pub all_touched: bool,

    /// What happens to a record whose geometry lies outside the raster (with `record`): it becomes a dead
    /// letter, or continues without a raster.
    pub outside: MissingAnswer,
}

/// What is computed from bands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RasterCalc {
    /// One expression per band of the result. Bands are `b1`, `b2`, …: `(b4 - b3) / (b4 + b3)`.
    #[schemars(length(min = 1, max = 64))]
    pub expressions: Vec<String>,

    /// The type of the result. By default `float32`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 20))]
    pub sample: Option<String>,

    /// The value of the result that stands for none. By default NaN, and 0 for whole numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = -1e308, max = 1e308))]
    pub nodata: Option<f64>,
}

/// Which features become pixels, and on which grid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RasterizeStep {
    /// The file of features, in any system. The grid is that of the raster that the record names. Without
    /// it the record names the file of features, and `like` or `bbox` gives the grid.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = &"parcels.gpkg")]
    pub file: Option<String>,

    /// The value of all features.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = -1e308, max = 1e308))]
    pub burn: Option<f64>,

    /// The field of the features that holds their value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200), example = &"zone")]
    pub attribute: Option<String>,

    /// Count the features of each pixel.
    pub count: bool,

    /// A raster whose grid the result has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096), example = &"scene.tif")]
    pub like: Option<String>,

    /// The box of the grid: west, south, east, north.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(range(min = -1e15, max = 1e15)), extend("minItems" = 4, "maxItems" = 4))]
    pub bbox: Vec<f64>,

    /// The size of a pixel of the grid in `bbox`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 1e-12, max = 1e9))]
    pub resolution: Option<f64>,

    /// The coordinate reference system of the grid in `bbox`. By default that of the features.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pub crs: Option<String>,

    /// Cover every pixel that is touched. By default an area covers the pixels whose centre lies within.
    pub all_touched: bool,

    /// The type of the result. By default `float64`, and `uint32` with `count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 20), example = &"uint8")]
    pub sample: Option<String>,

    /// The value of pixels that no feature covers. By default that of `nodata`, else 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = -1e308, max = 1e308))]
    pub init: Option<f64>,

    /// The value of the result that stands for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = -1e308, max = 1e308))]
    pub nodata: Option<f64>,
}

/// How rasters are joined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MosaicStep {
    /// Which value wins where several rasters have one: `first`, `last`, `min`, `max` or `mean`. By default
    /// first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 20))]
    pub priority: Option<String>,

    /// How rasters are resampled that do not lie on the grid of the first one. By default nearest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 20))]
    pub resampling: Option<String>,

    /// The size of a pixel. By default that of the first raster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 1e-12, max = 1e9))]
    pub resolution: Option<f64>,
}

fn path() -> String {
    "path".into()
}
