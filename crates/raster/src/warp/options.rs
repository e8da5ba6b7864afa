//! What is asked of a warp, and what follows from it before a pixel is read.

use tidegate_core::Code;
use tidegate_geo::Crs;
use tidegate_geo::crs::{Grids, Transform};

use super::resampling::Resampling;
use super::scale::KernelScale;
use super::suggest::GridRequest;
use crate::error::{RasterCause, RasterError};
use crate::grid::RasterGrid;
use crate::head::{NoData, RasterHead};
use crate::with_pixel;
use crate::write::RasterSpec;

/// The default error of an approximated position, in pixels of the source.
pub const TOLERANCE: f64 = 0.125;

/// What is asked of a warp.
#[derive(Clone, Debug)]
pub struct WarpOptions {
    /// The system of the result; that of the source if not given.
    pub to: Option<Crs>,
    /// The system of a source that names none.
    pub from: Option<Crs>,
    /// The grid of the result.
    pub grid: GridRequest,
    /// How values are computed.
    pub resampling: Resampling,
    /// The largest error of an approximated position, in pixels of the source; 0 computes every position.
    pub tolerance: f64,
    /// The nodata value of the source, in place of what it says.
    pub source_nodata: Option<NoData>,
    /// The nodata value of the result; that of the source if not given.
    pub nodata: Option<NoData>,
    /// Add a band of opacity to a result that has none.
    pub alpha: bool,
    /// The width of kernels, in place of what the grids say.
    pub kernel_scale: Option<KernelScale>,
    /// Where grids of datum shifts lie.
    pub grids: Grids,
}

impl Default for WarpOptions {
    fn default() -> WarpOptions {
        WarpOptions {
            to: None,
            from: None,
            grid: GridRequest::default(),
            resampling: Resampling::Nearest,
            tolerance: TOLERANCE,
            source_nodata: None,
            nodata: None,
            alpha: false,
            kernel_scale: None,
            grids: Grids::default(),
        }
    }
}

/// The system of a raster, or the one that it is said to have.
///
/// # Errors
/// `CRS_NOT_FOUND` if there is neither.
pub fn system_of(head: &RasterHead, said: Option<&Crs>) -> Result<Crs, RasterError> {
    match (&head.crs, said) {
        (_, Some(crs)) => Ok(crs.clone()),
        (Some(Ok(crs)), None) => Ok(crs.clone()),
        (Some(Err(problem)), None) => Err(not_found(&problem.message)),
        (None, None) => {
            Err(not_found("the raster names no coordinate reference system; give it with --from-crs"))
        }
    }
}

fn not_found(message: &str) -> RasterError {
    RasterError::new(RasterCause::Refused(Code::CRS_NOT_FOUND), message)
}

/// From one system to another, if they differ.
pub(crate) fn between(from: &Crs, to: &Crs, grids: &Grids) -> Result<Option<Transform>, RasterError> {
    if from == to || (from.is_wgs84() && to.is_wgs84()) {
        return Ok(None);
    }
    let made = Transform::with_grids(from, to, grids);
    made.map(Some).map_err(|problem| RasterError::new(RasterCause::Refused(problem.code), problem.message))
}

/// What the result of a warp is: like the source, on another grid.
pub(super) fn spec_of(
    head: &RasterHead,
    grid: RasterGrid,
    options: &WarpOptions,
    source_nodata: Option<NoData>,
) -> Result<RasterSpec, RasterError> {
    let mut spec = RasterSpec::like(head, grid);
    spec.nodata = options.nodata.or(source_nodata);
    if let Some(nodata) = options.nodata {
        let fits = with_pixel!(spec.sample, T => nodata.of::<T>().is_some());
        if !fits {
            return Err(RasterError::invalid(format!("{nodata} is no value of {}", spec.sample)));
        }
    }
    if options.alpha && spec.alpha.is_none() {
        spec.alpha = Some(spec.bands);
        spec.bands += 1;
        spec.has_mask = false;
    }
    Ok(spec)
}
