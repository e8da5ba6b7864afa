//! `tidegate raster cog`: converts a raster to a COG.

use std::io;
use std::path::PathBuf;

use clap::ValueEnum;
use tidegate_raster::{CogOptions, Compression, OverviewMethod, Predictor, RasterSpec, to_cog};

use super::shared::EndArgs;
use super::{give_up, open};
use crate::exit::Exit;
use crate::given::RasterFile;
use crate::{out, stop};

/// Convert a TIFF to a COG
///
/// Pixels, position, nodata, mask, band names and metadata stay the same; overviews are made anew.
/// OUTPUT appears when it is complete.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate raster cog scene.tif scene-cog.tif
  tidegate raster cog scene.tif scene-cog.tif --compress zstd --effort 3 --threads 4
  tidegate raster cog classes.tif classes-cog.tif --resampling mode --block 256

Exit codes: 0 success; 1 the file cannot be read or written; 2 usage error or no such file.")]
pub(crate) struct ToCog {
    /// Raster to convert
    #[arg(value_name = "INPUT")]
    input: RasterFile,

    /// File to write
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,

    #[command(flatten)]
    how: CogArgs,

    #[command(flatten)]
    end: EndArgs,
}

/// How a COG is written.
#[derive(clap::Args)]
pub(in crate::verb) struct CogArgs {
    /// Compression: deflate, zstd, lzw or none
    #[arg(long, value_name = "CODEC", default_value = "deflate", value_parser = compression)]
    compress: Compression,

    /// Effort of the codec: deflate 1 to 12, zstd 1 to 22 [default: 6, and 9 for zstd]
    #[arg(long, value_name = "N")]
    effort: Option<i32>,

    /// Predictor [default: float for floating-point numbers, none for palettes, else horizontal]
    #[arg(long, value_enum)]
    predictor: Option<PredictorArg>,

    /// Number of overviews [default: until one fits a tile]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=31))]
    overviews: Option<u32>,

    /// How overviews are made [default: nearest for palettes, else average]
    #[arg(long, value_enum)]
    resampling: Option<OverviewArg>,

    /// Columns and rows of a tile, a multiple of 16
    #[arg(long, value_name = "PIXELS", default_value_t = 512)]
    block: u32,

    /// Threads [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PredictorArg {
    None,
    Horizontal,
    Float,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OverviewArg {
    Nearest,
    Average,
    Mode,
}

fn compression(name: &str) -> Result<Compression, String> {
    name.parse().map_err(|error: tidegate_raster::RasterError| error.message)
}

impl CogArgs {
    /// As options of the writer.
    pub(in crate::verb) fn options(&self) -> CogOptions {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        CogOptions {
            block: self.block,
            compression: self.compress,
            effort: self.effort,
            predictor: self.predictor.map(|predictor| match predictor {
                PredictorArg::None => Predictor::None,
                PredictorArg::Horizontal => Predictor::Horizontal,
                PredictorArg::Float => Predictor::Float,
            }),
            overviews: self.overviews,
            overview_method: self.resampling.map(|method| match method {
                OverviewArg::Nearest => OverviewMethod::Nearest,
                OverviewArg::Average => OverviewMethod::Average,
                OverviewArg::Mode => OverviewMethod::Mode,
            }),
            threads: self.threads.map_or_else(cores, usize::from),
            stop: stop::of_host(),
            ..CogOptions::default()
        }
    }
}

pub(super) fn run(args: &ToCog) -> io::Result<Exit> {
    if args.end.refuses("cog", [&args.input], &args.output) {
        return Ok(Exit::Usage);
    }
    let raster = match open(&args.input) {
        Ok(raster) => raster,
        Err(error) => return Ok(give_up("cog", &args.input, &error)),
    };
    let summary = match to_cog(&raster, &args.output, &args.how.options()) {
        Ok(summary) => summary,
        Err(error) => return Ok(give_up("cog", &args.input, &error)),
    };
    if !args.end.quiet {
        for warning in &raster.head().warnings {
            out::say(&format!("{}: {}", super::named(&args.input), crate::layer::plain(warning)));
        }
    }
    args.end.wrote(&args.output, &RasterSpec::same_as(raster.head()), &summary, None)?;
    Ok(Exit::Done)
}
