//! What the transformations share: options of grids, features of a file, and the end of a command.

use std::io;
use std::path::Path;

use serde_json::json;
use tidegate_geo::batch::Batch;
use tidegate_geo::crs::{Grids, Transform};
use tidegate_geo::filter::Filter;
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::format::{self, Layer};
use tidegate_geo::{Crs, Error};
use tidegate_raster::{CogSummary, GeoTiff, GridRequest, NoData, RasterError, RasterGrid, RasterSpec};

use crate::complete;
use crate::exit::Exit;
use crate::layer;
use crate::out::{self, OutputFormat};
use crate::progress::thousands;
use clap_complete::ArgValueCandidates;

/// The grid of a result.
#[derive(clap::Args)]
pub(super) struct GridArgs {
    /// Size of a pixel, in units of the result: one number, or X,Y
    #[arg(long, value_name = "SIZE", value_parser = pair)]
    pub(super) resolution: Option<(f64, f64)>,

    /// Extent of the result: MINX,MINY,MAXX,MAXY in its coordinate reference system
    #[arg(long, value_name = "BOX", value_parser = extent, allow_hyphen_values = true)]
    pub(super) extent: Option<[f64; 4]>,

    /// Columns and rows of the result: W,H; 0 for one of them follows from the other
    #[arg(long, value_name = "W,H", value_parser = size, conflicts_with = "resolution")]
    pub(super) size: Option<(u32, u32)>,

    /// Put the edges of the result on multiples of the resolution
    #[arg(long, requires = "resolution")]
    pub(super) aligned: bool,
}

impl GridArgs {
    pub(super) fn request(&self) -> GridRequest {
        GridRequest {
            resolution: self.resolution,
            extent: self.extent,
            size: self.size,
            aligned: self.aligned,
        }
    }
}

/// The features of a file.
#[derive(clap::Args)]
pub(super) struct FeatureArgs {
    /// Layer to read, if the file has several
    #[arg(long, value_name = "NAME")]
    #[arg(add = ArgValueCandidates::new(complete::layers))]
    pub(super) layer: Option<String>,

    /// Use only features that match this condition
    #[arg(long = "where", value_name = "CONDITION")]
    pub(super) condition: Option<String>,

    /// Coordinate reference system of features that declare none
    #[arg(long, value_name = "CRS", value_parser = layer::crs)]
    pub(super) features_crs: Option<Crs>,
}

/// What became of the features of a file.
#[derive(Default)]
pub(super) struct FeatureCount {
    pub(super) used: u64,
    pub(super) left_out: u64,
    /// Those that could not be read, or have no place in the system of the raster.
    pub(super) rejected: u64,
}

/// The failure of a raster or of a file of features.
pub(super) enum TransformTrouble {
    Raster(RasterError),
    Features(Error),
}

impl From<RasterError> for TransformTrouble {
    fn from(error: RasterError) -> TransformTrouble {
        TransformTrouble::Raster(error)
    }
}

impl From<Error> for TransformTrouble {
    fn from(error: Error) -> TransformTrouble {
        TransformTrouble::Features(error)
    }
}

impl TransformTrouble {
    pub(super) fn end(&self, verb: &str, raster: &Path, features: &Path) -> Exit {
        match self {
            TransformTrouble::Raster(error) => super::give_up(verb, raster, error),
            TransformTrouble::Features(error) => layer::give_up(&format!("raster {verb}"), features, error),
        }
    }
}

/// Takes one feature of a batch, with the way to the system of the raster; whether it could use it.
pub(super) type FeatureTaker<'a> =
    dyn FnMut(&Batch, usize, Option<&Transform>) -> Result<bool, TransformTrouble> + 'a;

impl FeatureArgs {
    /// Reads the features of a file and hands each that has a geometry to a function, with the way to the
    /// system of the raster; it says whether it could use it.
    pub(super) fn read(
        &self,
        file: &Path,
        to: Option<&Crs>,
        grids: &Grids,
        begin: &mut dyn FnMut(&Layer) -> Result<(), TransformTrouble>,
        add: &mut FeatureTaker<'_>,
    ) -> Result<FeatureCount, TransformTrouble> {
        let read = ReadOptions { layer: self.layer.clone(), ..ReadOptions::default() };
        let mut reader = format::open(file, &read)?;
        begin(reader.layer())?;
        let filter = self.condition.as_deref().map(|text| Filter::new(text, &reader.layer().schema));
        let filter = filter.transpose().map_err(Error::from)?;
        let from = self.features_crs.clone().or_else(|| reader.layer().crs.clone());
        let way = match (&from, to) {
            (Some(from), Some(to)) if from != to && !(from.is_wgs84() && to.is_wgs84()) => {
                Some(Transform::with_grids(from, to, grids).map_err(Error::from)?)
            }
            _ => None,
        };
        let mut count = FeatureCount::default();
        let mut rejected = Vec::new();
        while let Some(batch) = reader.next_batch(&mut rejected)? {
            count.rejected += rejected.len() as u64;
            rejected.clear();
            for row in 0..batch.len() {
                if filter.as_ref().is_some_and(|filter| !filter.keeps(&batch, row))
                    || batch.geometry(row).is_none()
                {
                    count.left_out += 1;
                } else if add(&batch, row, way.as_ref())? {
                    count.used += 1;
                } else {
                    count.rejected += 1;
                }
            }
        }
        count.rejected += rejected.len() as u64;
        Ok(count)
    }
}

/// The end of a command that used features: 4 if some were rejected.
pub(super) fn judged(count: &FeatureCount) -> Exit {
    if count.rejected == 0 {
        return Exit::Done;
    }
    out::say(&format!(
        "{} features were not used: they cannot be read, or have no place in the coordinate reference system of the raster",
        thousands(count.rejected)
    ));
    Exit::DeadLetters
}

/// Whether all sources are still what was opened.
pub(super) fn unchanged(sources: &[GeoTiff]) -> Result<(), RasterError> {
    sources.iter().try_for_each(|source| source.source().unchanged())
}

fn numbers(text: &str) -> Result<Vec<f64>, String> {
    let number = |part: &str| part.trim().parse::<f64>().ok().filter(|n| n.is_finite());
    let all = text.split(',').map(number).collect::<Option<Vec<f64>>>();
    all.ok_or_else(|| "expected numbers with commas between them".into())
}

pub(super) fn pair(text: &str) -> Result<(f64, f64), String> {
    match numbers(text)?.as_slice() {
        [one] if *one > 0.0 => Ok((*one, *one)),
        [x, y] if *x > 0.0 && *y > 0.0 => Ok((*x, *y)),
        _ => Err("expected one or two numbers greater than 0".into()),
    }
}

pub(super) fn extent(text: &str) -> Result<[f64; 4], String> {
    match numbers(text)?.as_slice() {
        [a, b, c, d] if a < c && b < d => Ok([*a, *b, *c, *d]),
        _ => Err("expected MINX,MINY,MAXX,MAXY".into()),
    }
}

fn size(text: &str) -> Result<(u32, u32), String> {
    let parts: Option<Vec<u32>> = text.split(',').map(|part| part.trim().parse().ok()).collect();
    match parts.as_deref() {
        Some([w, h]) if *w > 0 || *h > 0 => Ok((*w, *h)),
        _ => Err("expected W,H in pixels, not both 0".into()),
    }
}

pub(super) fn nodata(text: &str) -> Result<NoData, String> {
    text.parse().map_err(|error: RasterError| error.message)
}

fn written(
    output: &Path,
    spec: &RasterSpec,
    summary: &CogSummary,
    features: Option<&FeatureCount>,
) -> serde_json::Value {
    let grid = Some(&spec.grid).filter(|_| spec.is_placed);
    let bounds = grid.and_then(RasterGrid::bounds);
    json!({
        "output": output.display().to_string(),
        "width": spec.grid.width,
        "height": spec.grid.height,
        "bands": spec.bands,
        "sample": spec.sample.name(),
        "crs": grid.and_then(|grid| grid.crs.as_ref()).map(ToString::to_string),
        "transform": grid.map(|grid| grid.transform.0),
        "bbox": bounds.map(|b| [b.min_x, b.min_y, b.max_x, b.max_y]),
        "nodata": spec.nodata.map(|nodata| nodata.to_string()),
        "mask": spec.has_mask,
        "bytes": summary.len,
        "tiles": summary.tiles,
        "overviews": summary.overviews,
        "features": features.map(|count| json!({
            "used": count.used, "left_out": count.left_out, "rejected": count.rejected,
        })),
    })
}

/// The end of a transformation.
#[derive(clap::Args)]
pub(super) struct EndArgs {
    /// Replace OUTPUT if it exists
    #[arg(long)]
    pub(super) overwrite: bool,

    /// Print no summary
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// Output format of the summary: words on standard error, or an object on standard output
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

impl EndArgs {
    /// Says what was written, and of how many features. Says nothing with `--quiet`.
    pub(super) fn wrote(
        &self,
        output: &Path,
        spec: &RasterSpec,
        summary: &CogSummary,
        features: Option<&FeatureCount>,
    ) -> io::Result<()> {
        if self.quiet {
            return Ok(());
        }
        if self.format == OutputFormat::Json {
            return out::data(&format!("{:#}\n", written(output, spec, summary, features)));
        }
        out::say(&format!(
            "{}: {} x {} pixels, {} x {}, {} bytes, {} tiles, {} overviews",
            output.display(),
            spec.grid.width,
            spec.grid.height,
            spec.bands,
            spec.sample,
            thousands(summary.len),
            thousands(summary.tiles),
            summary.overviews
        ));
        Ok(())
    }

    /// Ends a command without features: says what was written, or why nothing was. An error names `about`.
    pub(super) fn done(
        &self,
        verb: &str,
        about: &Path,
        output: &Path,
        done: Result<(RasterSpec, CogSummary), RasterError>,
    ) -> io::Result<Exit> {
        match done {
            Ok((spec, summary)) => {
                self.wrote(output, &spec, &summary, None)?;
                Ok(Exit::Done)
            }
            Err(error) => Ok(super::give_up(verb, about, &error)),
        }
    }

    /// Whether the output must not be written, because it is an input or exists; says so.
    pub(super) fn refuses(
        &self,
        verb: &str,
        inputs: impl IntoIterator<Item: AsRef<Path>>,
        output: &Path,
    ) -> bool {
        if inputs.into_iter().any(|input| crate::verb::same_file(input.as_ref(), output)) {
            out::say(&format!("tidegate raster {verb}: an input and OUTPUT are the same file"));
            return true;
        }
        if output.exists() && !self.overwrite {
            let output = output.display();
            out::say(&format!("tidegate raster {verb}: {output} exists; pass --overwrite to replace it"));
            return true;
        }
        false
    }
}
