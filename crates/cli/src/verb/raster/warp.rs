//! `tidegate raster warp`: a raster in another coordinate reference system or on another grid.

use std::io;
use std::path::PathBuf;

use tidegate_geo::Crs;
use tidegate_raster::{KernelScale, NoData, Resampling, TOLERANCE, Warp, WarpOptions, paint_file};

use super::cog::CogArgs;
use super::shared::{EndArgs, GridArgs, nodata, pair, unchanged};
use super::{give_up, open};
use crate::exit::Exit;
use crate::given::RasterFile;
use crate::{layer, out};

/// Reproject and resample a raster
///
/// Grid and values are those of gdalwarp: see docs/raster.md for the exact rules. Neither threads nor
/// tiles change a pixel. OUTPUT is a COG and appears when it is complete.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate raster warp scene.tif mercator.tif --to-crs EPSG:3857 --method bilinear
  tidegate raster warp scene.tif grid.tif --to-crs EPSG:32633 --resolution 10 --aligned --method cubic
  tidegate raster warp classes.tif small.tif --resolution 100 --method mode

Exit codes: 0 success; 1 the file cannot be read or written; 2 usage error or no such file.")]
pub(crate) struct WarpRaster {
    /// Raster to warp
    #[arg(value_name = "INPUT")]
    input: RasterFile,

    /// File to write
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,

    /// Coordinate reference system of the result [default: that of INPUT]
    #[arg(long, value_name = "CRS", value_parser = layer::crs)]
    to_crs: Option<Crs>,

    /// Coordinate reference system of an INPUT that declares none or a wrong one
    #[arg(long, value_name = "CRS", value_parser = layer::crs)]
    from_crs: Option<Crs>,

    /// How values are computed: nearest, bilinear, cubic, average or mode
    #[arg(short = 'r', long, value_name = "METHOD", default_value = "nearest", value_parser = method)]
    method: Resampling,

    #[command(flatten)]
    grid: GridArgs,

    /// Largest error of a position, in pixels of INPUT; 0 computes every position exactly
    #[arg(long, value_name = "PIXELS", default_value_t = TOLERANCE)]
    tolerance: f64,

    /// Nodata value of INPUT, in place of what it declares
    #[arg(long, value_name = "VALUE", value_parser = nodata, allow_hyphen_values = true)]
    source_nodata: Option<NoData>,

    /// Nodata value of the result [default: that of INPUT]
    #[arg(long, value_name = "VALUE", value_parser = nodata, allow_hyphen_values = true)]
    nodata: Option<NoData>,

    /// Add a band of opacity, if the result has none
    #[arg(long)]
    alpha: bool,

    /// Width of kernels, in place of the ratio of the resolutions: X,Y; 1 is that of INPUT
    #[arg(long, value_name = "X,Y", value_parser = pair)]
    kernel_scale: Option<(f64, f64)>,

    /// Directories with datum shift grids (NTv2 .gsb, GeoTIFF .tif) [default: TIDEGATE_GRIDS or PROJ_DATA]
    #[arg(long, value_name = "DIR")]
    grids: Vec<PathBuf>,

    #[command(flatten)]
    how: CogArgs,

    #[command(flatten)]
    end: EndArgs,
}

pub(super) fn method(text: &str) -> Result<Resampling, String> {
    text.parse()
}

pub(super) fn run(args: &WarpRaster) -> io::Result<Exit> {
    if args.end.refuses("warp", [&args.input], &args.output) {
        return Ok(Exit::Usage);
    }
    let raster = match open(&args.input) {
        Ok(raster) => [raster],
        Err(error) => return Ok(give_up("warp", &args.input, &error)),
    };
    let options = WarpOptions {
        to: args.to_crs.clone(),
        from: args.from_crs.clone(),
        grid: args.grid.request(),
        resampling: args.method,
        tolerance: args.tolerance,
        source_nodata: args.source_nodata,
        nodata: args.nodata,
        alpha: args.alpha,
        kernel_scale: args.kernel_scale.map(|(x, y)| KernelScale { x, y }),
        grids: layer::grids(&args.grids),
    };
    let [source] = &raster;
    let done = Warp::new(source, &options).and_then(|warp| {
        let summary =
            paint_file(&warp, warp.spec(), &args.output, &args.how.options(), &|| unchanged(&raster))?;
        if !args.end.quiet {
            report_operation(&warp);
        }
        Ok((warp.spec().clone(), summary))
    });
    args.end.done("warp", &args.input, &args.output, done)
}

/// Says by which operation positions were computed, and what to mind.
fn report_operation(warp: &Warp<'_>) {
    if let Some(operation) = warp.operation() {
        out::say(&layer::operation_words(operation));
        layer::grid_words(operation, "--grids").iter().for_each(|line| out::say(line));
    }
    if !warp.shows_holes() {
        out::say("warning: pixels without a value are 0; --nodata or --alpha tells them from values");
    }
}
