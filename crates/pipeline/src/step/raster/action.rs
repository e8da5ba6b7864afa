//! What a step `raster` does, from its keys in the manifest.

use std::path::Path;

use tidegate_geo::crs::Grids;
use tidegate_geo::{Bounds, Crs};
use tidegate_raster::repair::RepairOptions;
use tidegate_raster::{GridRequest, MosaicOptions, NoData, RasterError, SampleType, WarpOptions};

use crate::manifest::{MosaicStep, RasterCalc, RasterClipStep, RasterStep, RasterWarp, RasterizeStep};
use crate::objects::ObjectAddress;
use crate::raster::{BurnOptions, BurnPlace, BurnValue, ClipBy, RasterAction};
use crate::step::crs;

/// What the step does; nothing if it only surveys.
pub(super) fn of(form: &RasterStep, folder: &Path, grids: &Grids) -> Result<Option<RasterAction>, String> {
    let mut all = Vec::new();
    if let Some(how) = &form.repair {
        let crs = system(how.crs.as_deref())?;
        let options = RepairOptions { partial: how.partial, crs, unplaced: how.unplaced, max_pixels: None };
        all.push(RasterAction::Repair(options));
    }
    if form.cog {
        all.push(RasterAction::Cog);
    }
    if let Some(how) = &form.warp {
        all.push(warp(how)?);
    }
    if let Some(how) = &form.clip {
        all.push(clip(how, folder)?);
    }
    if let Some(how) = &form.calc {
        all.push(calc(how)?);
    }
    if let Some(how) = &form.rasterize {
        all.push(rasterize(how, folder, form.allow_private)?);
    }
    if let Some(how) = &form.mosaic {
        all.push(mosaic(how, grids)?);
    }
    if all.len() > 1 {
        return Err(
            "`raster` does one thing: `repair`, `cog`, `warp`, `clip`, `calc`, `rasterize` or `mosaic`"
                .into(),
        );
    }
    Ok(all.pop())
}

fn system(name: Option<&str>) -> Result<Option<Crs>, String> {
    name.map(crs).transpose().map_err(String::from)
}

fn sample(name: Option<&str>, default: SampleType) -> Result<SampleType, String> {
    name.map_or(Ok(default), |name| name.parse().map_err(|e: RasterError| e.message))
}

fn bounds(bbox: &[f64]) -> Result<Option<Bounds>, String> {
    match bbox {
        [] => Ok(None),
        [min_x, min_y, max_x, max_y] => {
            Ok(Some(Bounds { min_x: *min_x, min_y: *min_y, max_x: *max_x, max_y: *max_y }))
        }
        _ => Err("`bbox` has four numbers: west, south, east, north".into()),
    }
}

fn warp(how: &RasterWarp) -> Result<RasterAction, String> {
    let mut options = WarpOptions { to: system(how.to.as_deref())?, ..WarpOptions::default() };
    if let Some(name) = &how.resampling {
        options.resampling = name.parse()?;
    }
    options.grid.resolution = how.resolution.map(|size| (size, size));
    options.grid.aligned = how.aligned;
    Ok(RasterAction::Warp(Box::new(options)))
}

fn clip(how: &RasterClipStep, folder: &Path) -> Result<RasterAction, String> {
    let bounds = bounds(&how.bbox)?;
    let by = match (&how.file, how.record) {
        (Some(_), true) => return Err("`clip` takes `file` or `record`, not both".into()),
        (Some(name), false) => ClipBy::File(folder.join(name)),
        (None, true) => ClipBy::Record,
        (None, false) if bounds.is_none() => return Err("`clip` needs `bbox`, `file` or `record`".into()),
        (None, false) => ClipBy::Box,
    };
    Ok(RasterAction::Clip { bounds, by, all_touched: how.all_touched })
}

fn calc(how: &RasterCalc) -> Result<RasterAction, String> {
    Ok(RasterAction::Calc {
        expressions: how.expressions.clone(),
        sample: sample(how.sample.as_deref(), SampleType::F32)?,
        nodata: how.nodata.map(NoData::new),
    })
}

fn rasterize(how: &RasterizeStep, folder: &Path, private: bool) -> Result<RasterAction, String> {
    let value = match (how.burn, &how.attribute, how.count) {
        (Some(value), None, false) => BurnValue::Same(value),
        (None, Some(name), false) => BurnValue::Field(name.clone()),
        (None, None, true) => BurnValue::Count,
        _ => return Err("`rasterize` needs one of `burn`, `attribute` and `count`".into()),
    };
    let place = match (&how.file, &how.like, bounds(&how.bbox)?, how.resolution) {
        (Some(file), None, None, None) => BurnPlace::Features(folder.join(file)),
        (Some(_), ..) => {
            return Err("with `file`, the grid of `rasterize` is that of the raster; leave out `like`, `bbox` and `resolution`".into());
        }
        (None, Some(like), None, None) => {
            BurnPlace::Like(ObjectAddress::written(like, folder, private).map_err(|e| e.to_string())?)
        }
        (None, None, Some(bounds), Some(pixel)) => BurnPlace::Box(bounds, pixel, system(how.crs.as_deref())?),
        _ => {
            return Err("`rasterize` needs `file` (features for the grid of the raster), or `like` or `bbox` with `resolution` (a grid for the features)".into());
        }
    };
    if how.crs.is_some() && !matches!(place, BurnPlace::Box(..)) {
        return Err("`crs` of `rasterize` is that of a grid in `bbox`".into());
    }
    let default = if how.count { SampleType::U32 } else { SampleType::F64 };
    Ok(RasterAction::Burn(Box::new(BurnOptions {
        place,
        value,
        all_touched: how.all_touched,
        sample: sample(how.sample.as_deref(), default)?,
        init: how.init.or(how.nodata).unwrap_or(0.0),
        nodata: how.nodata.map(NoData::new),
    })))
}

fn mosaic(how: &MosaicStep, grids: &Grids) -> Result<RasterAction, String> {
    let mut options = MosaicOptions {
        grid: GridRequest { resolution: how.resolution.map(|size| (size, size)), ..GridRequest::default() },
        grids: grids.clone(),
        ..MosaicOptions::default()
    };
    if let Some(name) = &how.priority {
        options.priority = name.parse()?;
    }
    if let Some(name) = &how.resampling {
        options.resampling = name.parse()?;
    }
    Ok(RasterAction::Mosaic(Box::new(options)))
}
