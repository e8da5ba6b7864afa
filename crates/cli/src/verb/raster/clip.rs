//! `tidegate raster clip`: a part of a raster.

use std::io;
use std::path::PathBuf;

use tidegate_geo::Bounds;
use tidegate_raster::{
    ClipExtent, ClipShapes, CogSummary, GeoTiff, NoData, RasterClip, RasterSpec, paint_file,
};

use super::cog::CogArgs;
use super::shared::{
    EndArgs, FeatureArgs, FeatureCount, TransformTrouble, extent, judged, nodata, unchanged,
};
use super::{give_up, open};
use crate::exit::Exit;
use crate::given::RasterFile;
use crate::layer;

/// Cut a part out of a raster, by a box or by features
///
/// Pixels are not resampled. Those outside the features become nodata, transparent or masked. Tiles that
/// lie wholly inside are copied without unpacking them, if their place, codec and size allow it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate raster clip scene.tif part.tif --box 500000,5290000,510000,5300000
  tidegate raster clip scene.tif parcels.tif --features parcels.gpkg --where \"owner = 'city'\"
  tidegate raster clip scene.tif parcel.tif --features parcels.gpkg --where '$record = 7' --all-touched

Exit codes: 0 success; 1 a file cannot be read or written; 2 usage error, no such file, or nothing of the
raster lies within; 4 finished, some features could not be used.")]
pub(crate) struct ClipRaster {
    /// Raster to clip
    #[arg(value_name = "INPUT")]
    input: RasterFile,

    /// File to write
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,

    /// Box in the coordinate reference system of INPUT: MINX,MINY,MAXX,MAXY
    #[arg(long = "box", value_name = "BOX", value_parser = extent, allow_hyphen_values = true,
          required_unless_present = "features")]
    bounds: Option<[f64; 4]>,

    /// File of the features to clip by, in any vector format
    #[arg(long, value_name = "FILE")]
    features: Option<PathBuf>,

    #[command(flatten)]
    which: FeatureArgs,

    /// Keep every pixel that a feature touches, not only those whose centre lies in it
    #[arg(long)]
    all_touched: bool,

    /// Extent of the result: crop to what is clipped by, widen that to whole tiles of INPUT, or keep all
    #[arg(long, value_name = "EXTENT", default_value = "crop", value_parser = clip_extent)]
    extent: ClipExtent,

    /// Nodata value of the result [default: that of INPUT; without one, a mask is written]
    #[arg(long, value_name = "VALUE", value_parser = nodata, allow_hyphen_values = true)]
    nodata: Option<NoData>,

    /// Pack tiles anew by the options below, in place of those of INPUT
    #[arg(long)]
    repack: bool,

    #[command(flatten)]
    how: CogArgs,

    #[command(flatten)]
    end: EndArgs,
}

fn clip_extent(text: &str) -> Result<ClipExtent, String> {
    text.parse()
}

fn work(
    args: &ClipRaster,
    sources: &[GeoTiff],
) -> Result<Option<(RasterSpec, CogSummary, FeatureCount)>, TransformTrouble> {
    let Some(source) = sources.first() else { return Ok(None) };
    let bounds = args.bounds.map(|[min_x, min_y, max_x, max_y]| Bounds { min_x, min_y, max_x, max_y });
    let mut count = FeatureCount::default();
    let mut shapes = None;
    if let Some(file) = &args.features {
        let mut by = ClipShapes::new(source, args.all_touched)?;
        let to = source.head().crs.as_ref().and_then(|crs| crs.as_ref().ok());
        count = args.which.read(file, to, &layer::grids(&[]), &mut |_| Ok(()), &mut |batch, row, way| {
            Ok(by.add(batch.geometry(row).unwrap_or_default(), way)?)
        })?;
        shapes = Some(by);
    }
    let clip = RasterClip::new(source, bounds, shapes, args.extent, args.nodata);
    // Nothing was read that proves where the raster lies.
    let mut clip = clip.map_err(|error| source.source().unchanged().err().unwrap_or(error))?;
    let asked = args.how.options();
    let options = if args.repack { asked } else { clip.options(&asked) };
    clip.prepare(&options);
    let summary = paint_file(&clip, clip.spec(), &args.output, &options, &|| unchanged(sources))?;
    Ok(Some((clip.spec().clone(), summary, count)))
}

pub(super) fn run(args: &ClipRaster) -> io::Result<Exit> {
    if args.end.refuses("clip", [&*args.input].into_iter().chain(&args.features), &args.output) {
        return Ok(Exit::Usage);
    }
    let raster = match open(&args.input) {
        Ok(raster) => [raster],
        Err(error) => return Ok(give_up("clip", &args.input, &error)),
    };
    match work(args, &raster) {
        Ok(Some((spec, summary, count))) => {
            args.end.wrote(&args.output, &spec, &summary, Some(&count))?;
            Ok(judged(&count))
        }
        Ok(None) => Ok(Exit::Failure),
        Err(trouble) => Ok(trouble.end("clip", &args.input, args.features.as_deref().unwrap_or(&args.input))),
    }
}
