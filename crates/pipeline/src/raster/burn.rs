//! Features of a file become the pixels of a grid.

use std::path::{Path, PathBuf};

use tidegate_core::Code;
use tidegate_geo::{Bounds, Crs, Problem, Value};
use tidegate_raster::{
    CogOptions, GeoTiff, NoData, RasterError, RasterGrid, RasterLimits, Rasterize, RasterizeOptions,
    SampleType, system_of,
};

use super::features::FeatureFile;
use super::work::paint;
use super::{RasterFailure, RasterReach, open};
use crate::objects::ObjectAddress;

/// Which features become pixels, of which grid.
#[derive(Clone, Debug)]
pub struct BurnOptions {
    /// Where the features and the grid come from.
    pub place: BurnPlace,
    /// The value of a feature.
    pub value: BurnValue,
    /// Cover every pixel that is touched.
    pub all_touched: bool,
    /// The type of the result.
    pub sample: SampleType,
    /// The value of pixels that no feature covers.
    pub init: f64,
    /// The value of the result that stands for none.
    pub nodata: Option<NoData>,
}

/// Where the features and the grid come from.
#[derive(Clone, Debug)]
pub enum BurnPlace {
    /// The features of this file, on the grid of the record's raster.
    Features(PathBuf),
    /// The features of the record's file, on the grid of this raster.
    Like(ObjectAddress),
    /// The features of the record's file, on a grid in this box, with pixels of this size.
    Box(Bounds, f64, Option<Crs>),
}

/// The value of a feature.
#[derive(Clone, Debug)]
pub enum BurnValue {
    /// The same for all.
    Same(f64),
    /// That of a field.
    Field(String),
    /// The features of each pixel are counted.
    Count,
}

/// Burns the features into a new file.
pub(super) fn burn(
    options: &BurnOptions,
    from: &ObjectAddress,
    target: &Path,
    cog: &CogOptions,
    reach: &RasterReach,
) -> Result<(), RasterFailure> {
    let like = |address: &ObjectAddress| -> Result<(RasterGrid, Option<GeoTiff>), RasterFailure> {
        let raster = open(address, reach, &RasterLimits::default())?;
        let grid = RasterGrid { crs: Some(system_of(raster.head(), None)?), ..raster.head().grid()? };
        Ok((grid, Some(raster)))
    };
    let file = match (&options.place, from.path()) {
        (BurnPlace::Features(file), _) => file.clone(),
        (_, Some(path)) => path.to_owned(),
        (_, None) => {
            let what = "features are read from a local file; fetch it first";
            return Err(RasterFailure::Record(Problem::new(Code::UNSUPPORTED_RASTER, what)));
        }
    };
    let features = FeatureFile::open(&file)?;
    let (grid, raster) = match &options.place {
        BurnPlace::Features(_) => like(from)?,
        BurnPlace::Like(address) => like(address)?,
        BurnPlace::Box(bounds, pixel, crs) => {
            let crs = crs.clone().unwrap_or_else(|| features.crs());
            (RasterGrid::of_box(*bounds, (*pixel, *pixel), Some(crs))?, None)
        }
    };
    let to = grid.crs.clone().unwrap_or_else(Crs::wgs84);
    let field = match &options.value {
        BurnValue::Field(name) => Some((features.field(name)?, name)),
        _ => None,
    };
    let mut made = Rasterize::new(RasterizeOptions {
        grid,
        sample: options.sample,
        init: options.init,
        nodata: options.nodata,
        all_touched: options.all_touched,
        count: matches!(options.value, BurnValue::Count),
    })?;
    features.each(&to, |batch, row, wkb, way| {
        let value = match (&options.value, field) {
            (BurnValue::Same(value), _) => *value,
            (_, Some((at, name))) => burn_number(batch.value(row, at)).ok_or_else(|| {
                let what = format!(
                    "{}: record {}: field {name:?} holds no number",
                    file.display(),
                    batch.record(row)
                );
                RasterFailure::Record(Problem::new(Code::SCHEMA_MISMATCH, what))
            })?,
            (_, None) => 1.0,
        };
        let added = made.add(wkb, value, Some(way));
        Ok(added.map_err(|error| error.under(format!("{}: record {}", file.display(), batch.record(row))))?)
    })?;
    if !made.touches_grid() {
        let what = format!("{}: no feature lies on the grid", file.display());
        return Err(RasterFailure::Record(Problem::new(Code::OUT_OF_BOUNDS, what)));
    }
    let unchanged = || -> Result<(), RasterError> {
        raster.as_ref().map_or(Ok(()), |raster| raster.source().unchanged())
    };
    paint(&made, &made.spec(), target, cog, &unchanged)
}

/// The number that a field of a feature gives to its pixels, if it holds one.
#[must_use]
pub fn burn_number(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Int(number) => Some(number as f64),
        Value::Real(number) => Some(number),
        Value::Bool(truth) => Some(f64::from(u8::from(truth))),
        Value::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}
