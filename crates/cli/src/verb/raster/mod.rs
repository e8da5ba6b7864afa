//! `tidegate raster`: reads, checks and converts rasters. Each subcommand is a file.

mod calc;
mod clip;
mod cog;
mod info;
mod mosaic;
mod rasterize;
mod reach;
mod repair;
mod shared;
mod validate;
mod warp;

use std::io;
use std::path::Path;

use tidegate_client::secret::looks_like_reference;
use tidegate_pipeline::raster::is_remote;
use tidegate_raster::{GeoTiff, RasterCause, RasterError, RasterLimits};

use crate::exit::Exit;
use crate::out;

/// Show, check and convert rasters (GeoTIFF, COG)
///
/// A block of a raster is read completely, is known to be absent, or the command fails: what cannot
/// be read never becomes nodata. Output files appear when they are complete.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate raster info scene.tif
  tidegate raster validate scene.tif --full
  tidegate raster cog scene.tif scene-cog.tif --compress zstd
  tidegate raster cog https://example.org/scene.tif scene-cog.tif
  tidegate raster repair broken.tif repaired.tif

Exit codes: 0 success; 1 the file cannot be read or is not valid; 2 usage error or no such file;
75 a service is down or asked to wait, try again later.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Command,
    #[command(flatten)]
    reach: reach::ReachArgs,
}

/// A subcommand.
#[derive(clap::Subcommand)]
enum Command {
    Info(info::Info),
    Validate(validate::ValidateRaster),
    Cog(cog::ToCog),
    Warp(Box<warp::WarpRaster>),
    Clip(Box<clip::ClipRaster>),
    Rasterize(Box<rasterize::RasterizeFeatures>),
    Mosaic(Box<mosaic::MosaicRasters>),
    Calc(Box<calc::CalcRaster>),
    Repair(repair::RepairRaster),
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    reach::set(&args.reach);
    match &args.what {
        Command::Info(args) => info::run(args),
        Command::Validate(args) => validate::run(args),
        Command::Cog(args) => cog::run(args),
        Command::Warp(args) => warp::run(args),
        Command::Clip(args) => clip::run(args),
        Command::Rasterize(args) => rasterize::run(args),
        Command::Mosaic(args) => mosaic::run(args),
        Command::Calc(args) => calc::run(args),
        Command::Repair(args) => repair::run(args),
    }
}

/// Opens a raster: a file, or an address on a web server or in an object store.
fn open(file: &Path) -> Result<GeoTiff, RasterError> {
    open_within(file, &RasterLimits::default())
}

/// The same within other limits.
fn open_within(file: &Path, limits: &RasterLimits) -> Result<GeoTiff, RasterError> {
    tidegate_pipeline::raster::open(&reach::written(file)?, &reach::get(), limits)
}

/// Whether it is no path: an address, or a reference to one.
fn is_elsewhere(file: &Path) -> bool {
    let file = file.to_string_lossy();
    is_remote(&file) || looks_like_reference(&file)
}

/// A file or an address as it may be printed.
fn named(file: &Path) -> String {
    tidegate_pipeline::raster::shown(&file.to_string_lossy())
}

/// Reports an error and returns the exit code.
fn give_up(verb: &str, file: &Path, error: &RasterError) -> Exit {
    let place = if error.source.is_some() { String::new() } else { format!("{}: ", named(file)) };
    let code = match error.cause {
        RasterCause::Invalid | RasterCause::Stopped => String::new(),
        _ => format!("{}: ", error.code()),
    };
    out::say(&format!("tidegate raster {verb}: {place}{code}{error}"));
    if !matches!(error.cause, RasterCause::Io | RasterCause::Invalid | RasterCause::Stopped) {
        out::failed(error.code().as_str());
    }
    match error.cause {
        RasterCause::Transient(_) | RasterCause::Changed => Exit::TryLater,
        RasterCause::Invalid => Exit::Usage,
        RasterCause::Io if !is_elsewhere(file) && !file.exists() => Exit::Usage,
        _ => Exit::Failure,
    }
}
