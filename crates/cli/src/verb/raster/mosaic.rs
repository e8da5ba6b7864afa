//! `tidegate raster mosaic`: many rasters become one.

use std::io;
use std::path::PathBuf;

use tidegate_raster::{Mosaic, MosaicOptions, NoData, Priority, RasterLimits, Resampling, paint_file};

use super::cog::CogArgs;
use super::shared::{EndArgs, GridArgs, nodata, unchanged};
use super::warp::method;
use super::{give_up, open_within};
use crate::exit::Exit;
use crate::given::RasterFile;
use crate::layer;

/// Join rasters into one
///
/// The result has the coordinate reference system and the pixel size of the first raster, unless they are
/// given, and covers all. Rasters that do not lie on its grid are resampled.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate raster mosaic all.tif west.tif east.tif
  tidegate raster mosaic newest.tif 2023.tif 2024.tif --priority last

Exit codes: 0 success; 1 a file cannot be read or written; 2 usage error or no such file.")]
pub(crate) struct MosaicRasters {
    /// File to write
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,

    /// Rasters, in the order of their priority
    #[arg(value_name = "INPUT", required = true)]
    inputs: Vec<RasterFile>,

    /// Which value wins where several have one: first, last, min, max or mean
    #[arg(long, value_name = "RULE", default_value = "first", value_parser = priority)]
    priority: Priority,

    /// How rasters that do not lie on the grid are resampled
    #[arg(short = 'r', long, value_name = "METHOD", default_value = "nearest", value_parser = method)]
    method: Resampling,

    #[command(flatten)]
    grid: GridArgs,

    /// Nodata value of the result [default: that of the first raster; without one, a mask is written]
    #[arg(long, value_name = "VALUE", value_parser = nodata, allow_hyphen_values = true)]
    nodata: Option<NoData>,

    #[command(flatten)]
    how: CogArgs,

    #[command(flatten)]
    end: EndArgs,
}

fn priority(text: &str) -> Result<Priority, String> {
    text.parse()
}

pub(super) fn run(args: &MosaicRasters) -> io::Result<Exit> {
    if args.end.refuses("mosaic", &args.inputs, &args.output) {
        return Ok(Exit::Usage);
    }
    // All together keep no more than one alone.
    let mut limits = RasterLimits::default();
    limits.cache_len_max = (2 * limits.cache_len_max / args.inputs.len().max(1)).min(limits.cache_len_max);
    let mut sources = Vec::with_capacity(args.inputs.len());
    for input in &args.inputs {
        match open_within(input, &limits) {
            Ok(raster) => sources.push(raster),
            Err(error) => return Ok(give_up("mosaic", input, &error)),
        }
    }
    let options = MosaicOptions {
        grid: args.grid.request(),
        priority: args.priority,
        resampling: args.method,
        nodata: args.nodata,
        grids: layer::grids(&[]),
    };
    let done = Mosaic::new(&sources, &options).and_then(|mosaic| {
        let check = || unchanged(&sources);
        let summary = paint_file(&mosaic, mosaic.spec(), &args.output, &args.how.options(), &check)?;
        Ok((mosaic.spec().clone(), summary))
    });
    args.end.done("mosaic", &args.output, &args.output, done)
}
