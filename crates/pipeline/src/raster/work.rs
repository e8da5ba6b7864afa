//! What is done with one raster: from its address to a file that appears when it is whole.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tidegate_core::Code;
use tidegate_geo::crs::Transform;
use tidegate_geo::{Bounds, Crs, Problem};
use tidegate_raster::repair::{RepairError, RepairOptions, RepairReport, repair};
use tidegate_raster::{
    Calc, CalcBand, ClipExtent, ClipShapes, CogOptions, CogWriter, GeoTiff, Mosaic, MosaicOptions, NoData,
    Painter, RasterCause, RasterClip, RasterError, RasterLimits, RasterSpec, SampleType, Warp, WarpOptions,
    paint_tiles, system_of, to_cog,
};

use super::burn::{BurnOptions, burn};
use super::features::FeatureFile;
use super::{RasterReach, bytes_of, open};
use crate::objects::ObjectAddress;

const COPY_LEN: usize = 4 << 20;

/// What is done.
#[derive(Clone, Debug)]
pub enum RasterAction {
    /// A broken header is repaired.
    Repair(RepairOptions),
    /// It is written anew as a COG.
    Cog,
    /// It is brought to another grid.
    Warp(Box<WarpOptions>),
    /// It is clipped by a box in its own system, by outlines, or by both.
    Clip {
        /// The box.
        bounds: Option<Bounds>,
        /// The outlines.
        by: ClipBy,
        /// Whether pixels count that an outline only touches.
        all_touched: bool,
    },
    /// Its bands `b1`, `b2`, … are computed with.
    Calc {
        /// One expression per band of the result.
        expressions: Vec<String>,
        /// The type of the result.
        sample: SampleType,
        /// The value of the result that stands for none.
        nodata: Option<NoData>,
    },
    /// Features become pixels.
    Burn(Box<BurnOptions>),
    /// Rasters are joined.
    Mosaic(Box<MosaicOptions>),
}

/// The outlines that a raster is clipped by.
#[derive(Clone, Debug, PartialEq)]
pub enum ClipBy {
    /// None: only the box counts.
    Box,
    /// Those of a file.
    File(PathBuf),
    /// The geometry of the record.
    Record,
}

/// What a record says about its raster.
#[derive(Clone, Copy, Debug)]
pub struct RasterInput<'a> {
    /// Where the raster is; a mosaic has several.
    pub addresses: &'a [ObjectAddress],
    /// The geometry of the record, with its system.
    pub outline: Option<(&'a [u8], &'a Crs)>,
}

/// Why a raster could not be worked on.
#[derive(Debug)]
pub enum RasterFailure {
    /// The raster is to blame, or what it comes from.
    Record(Problem),
    /// A server did not give it; the [`RasterCalls`](super::RasterCalls) know what the server said.
    Call(Problem),
    /// The record lies outside its raster.
    Outside(Problem),
    /// The disk is, so the next raster will fail too.
    Disk(io::Error),
}

impl From<RasterError> for RasterFailure {
    fn from(error: RasterError) -> RasterFailure {
        let problem = Problem::new(error.code(), error.to_string());
        match error.cause {
            RasterCause::Transient(_) | RasterCause::Refused(_) => RasterFailure::Call(problem),
            RasterCause::Disk => RasterFailure::Disk(io::Error::other(error.to_string())),
            _ => RasterFailure::Record(problem),
        }
    }
}

impl From<RepairError> for RasterFailure {
    fn from(error: RepairError) -> RasterFailure {
        match error {
            RepairError::Refused(refusal) => {
                RasterFailure::Record(Problem::new(refusal.code, refusal.reason))
            }
            RepairError::Io(error) => error.into(),
        }
    }
}

impl From<io::Error> for RasterFailure {
    fn from(error: io::Error) -> RasterFailure {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                RasterFailure::Record(Problem::new(Code::NOT_FOUND, error.to_string()))
            }
            _ => RasterFailure::Disk(error),
        }
    }
}

/// Does it. What a repair has to say comes along. A raster that is clipped by its record stays open in
/// `held` for the next record.
///
/// # Errors
/// If the raster cannot be read whole; there is no file then.
pub fn work(
    action: &RasterAction,
    input: RasterInput<'_>,
    target: &Path,
    cog: &CogOptions,
    reach: &RasterReach,
    held: &mut HeldRaster,
) -> Result<Option<RepairReport>, RasterFailure> {
    let Some(from) = input.addresses.first() else {
        return Err(RasterFailure::Record(Problem::new(Code::SCHEMA_MISMATCH, "it names no raster")));
    };
    let raster = || open(from, reach, &RasterLimits::default());
    match action {
        RasterAction::Repair(options) => {
            if let Some(path) = from.path() {
                return Ok(Some(repair(path, target, options)?));
            }
            let local = LocalCopy::new(from, target, reach).map_err(|error| match error.cause {
                RasterCause::Io => RasterFailure::Disk(io::Error::other(error.to_string())),
                _ => error.into(),
            })?;
            return Ok(Some(repair(local.path(), target, options)?));
        }
        RasterAction::Cog => {
            to_cog(&raster()?, target, cog)?;
        }
        RasterAction::Warp(options) => {
            let raster = raster()?;
            let warp = Warp::new(&raster, options)?;
            paint(&warp, warp.spec(), target, cog, &|| raster.source().unchanged())?;
        }
        RasterAction::Clip { bounds, by: ClipBy::Record, all_touched } => {
            held.with(from, reach, |raster| {
                let shape = shape_of_record(raster, input.outline, *all_touched)?;
                clip(raster, *bounds, Some(shape), target, cog)
            })?;
        }
        RasterAction::Clip { bounds, by, all_touched } => {
            let raster = raster()?;
            let shapes = match by {
                ClipBy::File(file) => Some(shapes_of_file(&raster, file, *all_touched)?),
                ClipBy::Box | ClipBy::Record => None,
            };
            clip(&raster, *bounds, shapes, target, cog)?;
        }
        RasterAction::Calc { expressions, sample, nodata } => {
            let raster = raster()?;
            let bands = (0..raster.head().bands).map(|band| CalcBand {
                name: format!("b{}", band + 1),
                raster: &raster,
                band,
            });
            let calc = Calc::new(bands.collect(), expressions, *sample, *nodata)?;
            paint(&calc, calc.spec(), target, cog, &|| raster.source().unchanged())?;
        }
        RasterAction::Burn(options) => burn(options, from, target, cog, reach)?,
        RasterAction::Mosaic(options) => mosaic(options, input.addresses, target, cog, reach)?,
    }
    Ok(None)
}

/// A raster that is still open, with the blocks that it holds, for records that name the same one.
#[derive(Default)]
pub struct HeldRaster(Option<(ObjectAddress, GeoTiff)>);

impl HeldRaster {
    /// Does something with the raster at an address. One that was open and has changed since is opened anew,
    /// because the change is no fault of this record.
    fn with(
        &mut self,
        address: &ObjectAddress,
        reach: &RasterReach,
        work: impl Fn(&GeoTiff) -> Result<(), RasterFailure>,
    ) -> Result<(), RasterFailure> {
        if let Some((_, raster)) = self.0.take_if(|(known, _)| known == address) {
            match work(&raster) {
                Err(RasterFailure::Record(problem)) if problem.code == Code::CONFLICT => {}
                Err(failure) if !matches!(failure, RasterFailure::Outside(_)) => return Err(failure),
                done => {
                    self.0 = Some((address.clone(), raster));
                    return done;
                }
            }
        }
        let raster = open(address, reach, &RasterLimits::default())?;
        let done = work(&raster);
        if matches!(done, Ok(()) | Err(RasterFailure::Outside(_))) {
            self.0 = Some((address.clone(), raster));
        }
        done
    }

    /// Closes it, so that the next records see a file that was replaced.
    pub fn close(&mut self) {
        self.0 = None;
    }
}

/// Paints and writes a result. It gets its name only if the source is still what it was.
pub(super) fn paint(
    painter: &dyn Painter,
    spec: &RasterSpec,
    target: &Path,
    cog: &CogOptions,
    unchanged: &dyn Fn() -> Result<(), RasterError>,
) -> Result<(), RasterFailure> {
    let size = (spec.grid.width, spec.grid.height, cog.block);
    // No raster is to blame if there can be no file at all.
    let writer = CogWriter::create(target, spec.clone(), cog).map_err(|error| match error.cause {
        RasterCause::Io => RasterFailure::Disk(io::Error::other(error.to_string())),
        _ => error.into(),
    })?;
    paint_tiles(painter, &writer, size, cog.threads, &|_, _| {})?;
    unchanged()?;
    writer.finish()?;
    Ok(())
}

fn clip(
    raster: &GeoTiff,
    bounds: Option<Bounds>,
    shapes: Option<ClipShapes>,
    target: &Path,
    cog: &CogOptions,
) -> Result<(), RasterFailure> {
    let clip = RasterClip::new(raster, bounds, shapes, ClipExtent::Crop, None);
    let mut clip = clip.map_err(|error| match error.cause {
        // Nothing was read that proves where the raster lies.
        RasterCause::Invalid => match raster.source().unchanged() {
            Ok(()) => RasterFailure::Outside(Problem::new(Code::OUT_OF_BOUNDS, error.to_string())),
            Err(doubt) => doubt.into(),
        },
        _ => error.into(),
    })?;
    let cog = clip.options(cog);
    clip.prepare(&cog);
    paint(&clip, clip.spec(), target, &cog, &|| raster.source().unchanged())
}

fn mosaic(
    options: &MosaicOptions,
    addresses: &[ObjectAddress],
    target: &Path,
    cog: &CogOptions,
    reach: &RasterReach,
) -> Result<(), RasterFailure> {
    // All together keep no more than two alone.
    let mut limits = RasterLimits::default();
    limits.cache_len_max = (2 * limits.cache_len_max / addresses.len().max(1)).min(limits.cache_len_max);
    let sources: Result<Vec<GeoTiff>, RasterError> =
        addresses.iter().map(|address| open(address, reach, &limits)).collect();
    let sources = sources?;
    let mosaic = Mosaic::new(&sources, options)?;
    let unchanged = || sources.iter().try_for_each(|raster| raster.source().unchanged());
    paint(&mosaic, mosaic.spec(), target, cog, &unchanged)
}

/// The outlines of a file, in the system of the raster.
fn shapes_of_file(raster: &GeoTiff, file: &Path, all_touched: bool) -> Result<ClipShapes, RasterFailure> {
    let mut shapes = ClipShapes::new(raster, all_touched)?;
    let to = system_of(raster.head(), None)?;
    FeatureFile::open(file)?.each(&to, |_, _, wkb, way| Ok(shapes.add(wkb, Some(way))?))?;
    Ok(shapes)
}

/// The geometry of a record, in the system of the raster.
fn shape_of_record(
    raster: &GeoTiff,
    outline: Option<(&[u8], &Crs)>,
    all_touched: bool,
) -> Result<ClipShapes, RasterFailure> {
    let wrong = |what: &str| RasterFailure::Record(Problem::new(Code::INVALID_GEOMETRY, what));
    let Some((wkb, crs)) = outline else { return Err(wrong("the record has no geometry to clip by")) };
    let mut shapes = ClipShapes::new(raster, all_touched)?;
    let way = Transform::new(crs, &system_of(raster.head(), None)?).map_err(RasterFailure::Record)?;
    match shapes.add(wkb, Some(&way))? {
        true => Ok(shapes),
        false => Err(wrong("the geometry of the record has no place in the system of the raster")),
    }
}

/// A copy of a remote raster beside the result; removed when it is dropped.
pub struct LocalCopy(PathBuf);

impl LocalCopy {
    /// Copies the raster at an address to a file beside `target`.
    ///
    /// # Errors
    /// If it cannot be read whole, or the disk fails; there is no copy then.
    pub fn new(from: &ObjectAddress, target: &Path, reach: &RasterReach) -> Result<LocalCopy, RasterError> {
        let bytes = bytes_of(from, reach)?;
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(".fetched");
        let copy = LocalCopy(target.with_file_name(name));
        let mut file = fs::File::create(&copy.0)?;
        let (size, mut at) = (bytes.size()?, 0);
        while at < size {
            let piece = bytes.read_at(at, COPY_LEN.min((size - at) as usize))?;
            file.write_all(&piece)?;
            at += piece.len() as u64;
        }
        bytes.unchanged()?;
        Ok(copy)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LocalCopy {
    fn drop(&mut self) {
        // The next run overwrites what is left.
        let _ = fs::remove_file(&self.0);
    }
}
