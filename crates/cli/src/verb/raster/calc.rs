//! `tidegate raster calc`: band maths.

use std::io;
use std::path::PathBuf;

use tidegate_raster::{Calc, CalcBand, GeoTiff, NoData, RasterError, SampleType, paint_file};

use super::cog::CogArgs;
use super::rasterize::sample;
use super::shared::{EndArgs, nodata, unchanged};
use super::{give_up, open};
use crate::exit::Exit;
use crate::given::RasterFile;

/// Compute bands from bands
///
/// An expression is in the language of --where: + - * /, comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL,
/// abs and coalesce. Bands are b1, b2 and so on. Nodata is null: what is computed with it is nodata, and so is
/// a division by 0.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate raster calc sentinel.tif ndvi.tif --expression '(b8 - b4) / (b8 + b4)'
  tidegate raster calc red.tif ndvi.tif --band nir=nir.tif --expression '(nir - b1) / (nir + b1)'
  tidegate raster calc dem.tif high.tif --expression 'b1 > 2000' --type uint8 --nodata 255

Exit codes: 0 success; 1 a file cannot be read or written; 2 usage error or no such file.")]
pub(crate) struct CalcRaster {
    /// Raster whose bands are b1, b2 and so on
    #[arg(value_name = "INPUT")]
    input: RasterFile,

    /// File to write
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,

    /// Expression of a band of the result; one band each
    #[arg(short, long, value_name = "EXPRESSION", required = true, allow_hyphen_values = true)]
    expression: Vec<String>,

    /// A band of another raster on the same grid: NAME=FILE or NAME=FILE:BAND
    #[arg(long, value_name = "NAME=FILE", value_parser = named)]
    band: Vec<(String, PathBuf, u32)>,

    /// Type of values
    #[arg(long = "type", value_name = "TYPE", default_value = "float32", value_parser = sample)]
    sample: SampleType,

    /// Nodata value of the result [default: nan, and 0 for integers]
    #[arg(long, value_name = "VALUE", value_parser = nodata, allow_hyphen_values = true)]
    nodata: Option<NoData>,

    #[command(flatten)]
    how: CogArgs,

    #[command(flatten)]
    end: EndArgs,
}

fn named(text: &str) -> Result<(String, PathBuf, u32), String> {
    let (name, file) = text.split_once('=').ok_or("expected NAME=FILE")?;
    if name.is_empty() || file.is_empty() {
        return Err("expected NAME=FILE".into());
    }
    let band = file.rsplit_once(':').and_then(|(file, band)| Some((file, band.parse::<u32>().ok()?)));
    match band {
        Some((_, 0)) => Err("bands count from 1".into()),
        Some((file, band)) => Ok((name.into(), file.into(), band)),
        None => Ok((name.into(), file.into(), 1)),
    }
}

pub(super) fn run(args: &CalcRaster) -> io::Result<Exit> {
    let inputs: Vec<&PathBuf> =
        [&*args.input].into_iter().chain(args.band.iter().map(|(_, file, _)| file)).collect();
    if args.end.refuses("calc", &inputs, &args.output) {
        return Ok(Exit::Usage);
    }
    let mut sources: Vec<GeoTiff> = Vec::new();
    for input in &inputs {
        match open(input) {
            Ok(raster) => sources.push(raster),
            Err(error) => return Ok(give_up("calc", input, &error)),
        }
    }
    let done = bands(args, &sources).and_then(|bands| {
        let calc = Calc::new(bands, &args.expression, args.sample, args.nodata)?;
        let check = || unchanged(&sources);
        let summary = paint_file(&calc, calc.spec(), &args.output, &args.how.options(), &check)?;
        Ok((calc.spec().clone(), summary))
    });
    args.end.done("calc", &args.input, &args.output, done)
}

fn bands<'a>(args: &CalcRaster, sources: &'a [GeoTiff]) -> Result<Vec<CalcBand<'a>>, RasterError> {
    let mut all = Vec::new();
    if let Some(first) = sources.first() {
        all.extend((0..first.head().bands).map(|band| CalcBand {
            name: format!("b{}", band + 1),
            raster: first,
            band,
        }));
    }
    for ((name, _, band), raster) in args.band.iter().zip(sources.iter().skip(1)) {
        if *band > raster.head().bands {
            let message = format!("there is no band {band}; it has {}", raster.head().bands);
            return Err(RasterError::invalid(message).of(raster.source().name()));
        }
        all.push(CalcBand { name: name.clone(), raster, band: band - 1 });
    }
    Ok(all)
}
