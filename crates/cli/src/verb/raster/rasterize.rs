//! `tidegate raster rasterize`: features become pixels.

use std::io;
use std::path::PathBuf;

use tidegate_geo::{Bounds, Crs};
use tidegate_pipeline::raster::burn_number;
use tidegate_raster::{
    CogSummary, NoData, RasterError, RasterGrid, RasterSpec, Rasterize, RasterizeOptions, SampleType,
    paint_file,
};

use super::cog::CogArgs;
use super::open;
use super::shared::{EndArgs, FeatureArgs, FeatureCount, GridArgs, TransformTrouble, judged, nodata};
use crate::exit::Exit;
use crate::given::RasterFile;
use crate::{layer, out};

/// Burn features into a raster
///
/// Pixels are chosen by the rules of gdal_rasterize: those whose centre lies in an area, those of
/// Bresenham's algorithm for lines, or all that are touched. Of features that cover the same pixel the last
/// one wins.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate raster rasterize parcels.gpkg parcels.tif --attribute zone --type uint8 --like scene.tif
  tidegate raster rasterize roads.gpkg roads.tif --burn 1 --extent 0,0,5000,5000 --resolution 10 --all-touched
  tidegate raster rasterize points.csv density.tif --count --extent 10,45,11,46 --resolution 0.01

Exit codes: 0 success; 1 a file cannot be read or written; 2 usage error or no such file; 4 finished, some
features could not be used.")]
pub(crate) struct RasterizeFeatures {
    /// File of features, in any vector format
    #[arg(value_name = "FEATURES")]
    input: PathBuf,

    /// File to write
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,

    /// Value of all features
    #[arg(long, value_name = "VALUE", group = "what", allow_hyphen_values = true)]
    burn: Option<f64>,

    /// Field whose value each feature has
    #[arg(long, value_name = "FIELD", group = "what")]
    attribute: Option<String>,

    /// Count the features of each pixel
    #[arg(long, group = "what")]
    count: bool,

    /// Take the grid of this raster
    #[arg(long, value_name = "RASTER", conflicts_with_all = ["resolution", "extent", "size", "aligned", "to_crs"])]
    like: Option<RasterFile>,

    #[command(flatten)]
    grid: GridArgs,

    /// Coordinate reference system of the result [default: that of FEATURES]
    #[arg(long, value_name = "CRS", value_parser = layer::crs)]
    to_crs: Option<Crs>,

    #[command(flatten)]
    which: FeatureArgs,

    /// Cover every pixel that is touched
    #[arg(long)]
    all_touched: bool,

    /// Type of values, such as uint8 or float32 [default: uint32 with --count, else float64]
    #[arg(long = "type", value_name = "TYPE", value_parser = sample)]
    sample: Option<SampleType>,

    /// Value of pixels that no feature covers [default: that of --nodata, else 0]
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    init: Option<f64>,

    /// Nodata value of the result
    #[arg(long, value_name = "VALUE", value_parser = nodata, allow_hyphen_values = true)]
    nodata: Option<NoData>,

    #[command(flatten)]
    how: CogArgs,

    #[command(flatten)]
    end: EndArgs,
}

pub(super) fn sample(text: &str) -> Result<SampleType, String> {
    text.parse().map_err(|error: RasterError| error.message)
}

/// The grid that is asked for, without its system.
fn grid_of(args: &RasterizeFeatures) -> Result<RasterGrid, TransformTrouble> {
    if let Some(like) = &args.like {
        let raster = open(like).map_err(|error| error.of(&super::named(like)))?;
        return Ok(raster.head().grid()?);
    }
    let Some([min_x, min_y, max_x, max_y]) = args.grid.extent else {
        return Err(
            RasterError::invalid("give the grid: --like, or --extent with --resolution or --size").into()
        );
    };
    let bounds = Bounds { min_x, min_y, max_x, max_y };
    let pixel = match (args.grid.resolution, args.grid.size) {
        (Some(pixel), _) => pixel,
        (None, Some((0, h))) => ((max_y - min_y) / f64::from(h), (max_y - min_y) / f64::from(h)),
        (None, Some((w, 0))) => ((max_x - min_x) / f64::from(w), (max_x - min_x) / f64::from(w)),
        (None, Some((w, h))) => ((max_x - min_x) / f64::from(w), (max_y - min_y) / f64::from(h)),
        (None, None) => return Err(RasterError::invalid("give --resolution or --size").into()),
    };
    let made = if args.grid.aligned {
        RasterGrid::of_box_aligned(bounds, pixel, None)
    } else {
        RasterGrid::of_box(bounds, pixel, None)
    };
    Ok(made?)
}

fn work(args: &RasterizeFeatures) -> Result<(RasterSpec, CogSummary, FeatureCount), TransformTrouble> {
    let mut grid = grid_of(args)?;
    // The system of the features is that of the result, unless one is given.
    let (mut field, mut of_features) = (None, args.which.features_crs.clone());
    let reader = tidegate_geo::format::open(
        &args.input,
        &tidegate_geo::format::geojson::ReadOptions { layer: args.which.layer.clone(), ..Default::default() },
    )?;
    of_features = of_features.or_else(|| reader.layer().crs.clone());
    if let Some(name) = &args.attribute {
        field = Some(reader.layer().schema.position(name).ok_or_else(|| {
            let known: Vec<&str> =
                reader.layer().schema.fields().iter().take(30).map(|field| field.name.as_str()).collect();
            RasterError::invalid(format!("no field {name:?}; expected one of {}", known.join(", ")))
        })?);
    }
    drop(reader);
    grid.crs = args.to_crs.clone().or(grid.crs).or(of_features);
    let to = grid.crs.clone();
    let default = if args.count { SampleType::U32 } else { SampleType::F64 };
    let mut made = Rasterize::new(RasterizeOptions {
        grid,
        sample: args.sample.unwrap_or(default),
        init: args.init.or(args.nodata.map(|nodata| nodata.value)).unwrap_or(0.0),
        nodata: args.nodata,
        all_touched: args.all_touched,
        count: args.count,
    })?;
    let grids = layer::grids(&[]);
    let count =
        args.which.read(&args.input, to.as_ref(), &grids, &mut |_| Ok(()), &mut |batch, row, way| {
            let value = match field {
                Some(field) => burn_number(batch.value(row, field)),
                None => Some(args.burn.unwrap_or(1.0)),
            };
            let Some(value) = value else { return Ok(false) };
            let added = made.add(batch.geometry(row).unwrap_or_default(), value, way);
            Ok(added.map_err(|error| error.under(format!("record {}", batch.record(row))))?)
        })?;
    if count.used > 0 && !made.touches_grid() {
        let why = "no feature lies on the grid; check its box and the coordinate reference systems";
        return Err(RasterError::invalid(why).into());
    }
    let spec = made.spec();
    let summary = paint_file(&made, &spec, &args.output, &args.how.options(), &|| Ok(()))?;
    Ok((spec, summary, count))
}

pub(super) fn run(args: &RasterizeFeatures) -> io::Result<Exit> {
    if args.end.refuses("rasterize", [&args.input].into_iter().chain(args.like.as_deref()), &args.output) {
        return Ok(Exit::Usage);
    }
    if args.burn.is_none() && args.attribute.is_none() && !args.count {
        out::say("tidegate raster rasterize: give --burn, --attribute or --count");
        return Ok(Exit::Usage);
    }
    match work(args) {
        Ok((spec, summary, count)) => {
            args.end.wrote(&args.output, &spec, &summary, Some(&count))?;
            Ok(judged(&count))
        }
        Err(trouble) => Ok(trouble.end("rasterize", &args.input, &args.input)),
    }
}
