//! `tidegate raster info`: shows what a raster says of itself.

use std::io;

use clap::ValueEnum;
use serde_json::{Value, json};
use tidegate_geo::Crs;
use tidegate_geo::crs::Transform;
use tidegate_raster::{BlockLayout, MaskKind, PlacedBy, Predictor, RasterHead, RasterLevel};

use super::{give_up, open};
use crate::exit::Exit;
use crate::given::RasterFile;
use crate::layer;
use crate::out;
use crate::progress::thousands;

/// Show the size, position, bands and layout of rasters
///
/// Only headers are read, and the files beside them: .tfw, .aux.xml and .msk.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate raster info scene.tif
  tidegate raster info *.tif --format geojson > footprints.geojson
  tidegate raster info scene.tif --format json | jq '.[0].overviews'

Exit codes: 0 success; 1 a file cannot be read; 2 usage error or no such file.")]
pub(crate) struct Info {
    /// Rasters
    #[arg(value_name = "FILE", required = true)]
    files: Vec<RasterFile>,

    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    format: RasterFormat,
}

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RasterFormat {
    /// Text
    Table,
    /// A JSON list
    Json,
    /// The footprints in WGS 84
    Geojson,
}

pub(super) fn run(args: &Info) -> io::Result<Exit> {
    let (mut all, mut exit) = (Vec::new(), Exit::Done);
    for file in &args.files {
        let name = super::named(file);
        // The head is all that is asked for, so nothing else proves it.
        let opened = open(file).and_then(|raster| raster.source().unchanged().map(|()| raster));
        match opened {
            Err(error) => exit = give_up("info", file, &error),
            Ok(raster) => match args.format {
                RasterFormat::Table => out::data(&table(&name, raster.head()))?,
                RasterFormat::Json => all.push(answer(&name, raster.head())),
                RasterFormat::Geojson => match footprint(&name, raster.head()) {
                    Ok(feature) => all.push(feature),
                    Err(why) => {
                        out::say(&format!("tidegate raster info: {name}: {why}"));
                        exit = Exit::Failure;
                    }
                },
            },
        }
    }
    match args.format {
        RasterFormat::Table => {}
        RasterFormat::Json => out::data(&format!("{:#}\n", Value::Array(all)))?,
        RasterFormat::Geojson => {
            let collection = json!({ "type": "FeatureCollection", "features": all });
            out::data(&format!("{collection}\n"))?;
        }
    }
    Ok(exit)
}

fn crs_of(head: &RasterHead) -> Option<&Crs> {
    head.crs.as_ref().and_then(|crs| crs.as_ref().ok())
}

fn blocks_words(level: &RasterLevel) -> String {
    let BlockLayout { width, height, tiled, separate, .. } = level.layout;
    let kind = if tiled { "tiles" } else { "strips" };
    let bands = if separate { ", bands separate" } else { "" };
    let predictor = match level.predictor {
        Predictor::None => "",
        Predictor::Horizontal => ", predictor 2",
        Predictor::Float => ", predictor 3",
    };
    format!("{}{predictor}, {kind} of {width} x {height}{bands}", level.compression)
}

fn placed_word(head: &RasterHead) -> Option<&'static str> {
    head.placed_by.map(|placed| match placed {
        PlacedBy::Tags => "tags",
        PlacedBy::WorldFile => "world file",
        PlacedBy::AuxXml => ".aux.xml",
    })
}

fn mask_word(head: &RasterHead) -> Option<&'static str> {
    head.mask.map(|mask| match mask {
        MaskKind::Inside => "internal",
        MaskKind::Beside => ".msk",
    })
}

fn table(name: &str, head: &RasterHead) -> String {
    let mut said = format!("{name}\n");
    let mut fact = |name: &str, value: String| said.push_str(&format!("  {name:<12} {value}\n"));
    fact(
        "size",
        format!(
            "{} x {} pixels, {} x {}",
            thousands(head.width.into()),
            thousands(head.height.into()),
            head.bands,
            head.sample
        ),
    );
    let crs = match &head.crs {
        None => "not declared".to_owned(),
        Some(Ok(crs)) => layer::crs_words(crs),
        Some(Err(problem)) => format!("unknown: {}", layer::plain(&problem.message)),
    };
    fact("crs", crs);
    if let Ok(grid) = head.grid() {
        let (x, y) = grid.pixel_size();
        fact("pixel", format!("{x} x {y}, from {}", placed_word(head).unwrap_or("nothing")));
        if let Some(bounds) = grid.bounds() {
            fact("bounds", layer::bounds_words(bounds));
        }
    } else {
        fact("pixel", "position unknown".to_owned());
    }
    if let Some(nodata) = &head.nodata {
        fact("nodata", nodata.to_string());
    }
    if let Some(mask) = mask_word(head) {
        fact("mask", mask.to_owned());
    }
    if let Some(alpha) = head.alpha {
        fact("alpha", format!("band {}", alpha + 1));
    }
    if let Some(first) = head.levels.first() {
        fact("blocks", blocks_words(first));
    }
    let overviews: Vec<String> =
        head.levels.iter().skip(1).map(|level| format!("{} x {}", level.width, level.height)).collect();
    fact("overviews", if overviews.is_empty() { "none".to_owned() } else { overviews.join(", ") });
    for (at, info) in head.band_info.iter().enumerate() {
        let mut words = Vec::new();
        words.extend(info.name.as_deref().map(layer::plain));
        if info.scale != 1.0 || info.offset != 0.0 {
            words.push(format!("value x {} + {}", info.scale, info.offset));
        }
        words.extend(info.unit.as_deref().map(layer::plain));
        if !words.is_empty() {
            fact(&format!("band {}", at + 1), words.join(", "));
        }
    }
    for (_, name, value) in &head.metadata {
        fact("metadata", format!("{} = {}", layer::plain(name), layer::plain(value)));
    }
    for warning in &head.warnings {
        fact("warning", layer::plain(warning));
    }
    said
}

fn level_json(level: &RasterLevel) -> Value {
    json!({
        "width": level.width,
        "height": level.height,
        "block": [level.layout.width, level.layout.height],
        "tiled": level.layout.tiled,
        "bands_separate": level.layout.separate,
        "compression": level.compression.to_string(),
        "predictor": level.predictor.tag(),
        "bits": level.bits,
    })
}

fn answer(name: &str, head: &RasterHead) -> Value {
    let crs = crs_of(head);
    let problem = head.crs.as_ref().and_then(|crs| crs.as_ref().err());
    let bounds = head.grid().ok().and_then(|grid| grid.bounds());
    let bands: Vec<Value> = head
        .band_info
        .iter()
        .map(|info| {
            let metadata: serde_json::Map<String, Value> =
                info.metadata.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
            json!({ "name": info.name, "scale": info.scale, "offset": info.offset, "unit": info.unit, "metadata": metadata })
        })
        .collect();
    let metadata: Vec<Value> = head
        .metadata
        .iter()
        .map(|(domain, name, value)| json!({ "domain": domain, "name": name, "value": value }))
        .collect();
    json!({
        "file": name,
        "width": head.width,
        "height": head.height,
        "sample": head.sample.name(),
        "crs": crs.map(ToString::to_string),
        "crs_name": crs.and_then(Crs::entry).map(|entry| entry.name),
        "crs_problem": problem.map(|problem| problem.message.as_str()),
        "transform": head.transform.map(|transform| transform.0),
        "placed_by": placed_word(head),
        "bbox": bounds.map(|b| [b.min_x, b.min_y, b.max_x, b.max_y]),
        "is_point": head.is_point,
        "nodata": head.nodata.map(|nodata| nodata.to_string()),
        "mask": mask_word(head),
        "alpha": head.alpha.map(|band| band + 1),
        "bands": bands,
        "metadata": metadata,
        "picture": head.levels.first().map(level_json),
        "overviews": head.levels.iter().skip(1).map(level_json).collect::<Vec<Value>>(),
        "bigtiff": head.is_big,
        "big_endian": head.is_big_endian,
        "cog_layout": head.ghost.is_some(),
        "warnings": head.warnings,
    })
}

/// The outline of the pixels in WGS 84, with points along its edges.
fn footprint(name: &str, head: &RasterHead) -> Result<Value, String> {
    const STEPS: u32 = 8;
    let grid = head.grid().map_err(|error| error.message)?;
    let crs = match &head.crs {
        Some(Ok(crs)) => crs,
        Some(Err(problem)) => return Err(problem.message.clone()),
        None => return Err("it declares no coordinate reference system".to_owned()),
    };
    let to_wgs84 = if crs.is_wgs84() {
        None
    } else {
        Some(Transform::new(crs, &Crs::wgs84()).map_err(|problem| problem.message)?)
    };
    let (width, height) = (f64::from(grid.width), f64::from(grid.height));
    let corners = [(0.0, 0.0), (0.0, height), (width, height), (width, 0.0), (0.0, 0.0)];
    let mut ring = Vec::new();
    for pair in corners.windows(2) {
        for step in 0..STEPS {
            let part = f64::from(step) / f64::from(STEPS);
            let (x, y) = grid.transform.apply(
                pair[0].0 + part * (pair[1].0 - pair[0].0),
                pair[0].1 + part * (pair[1].1 - pair[0].1),
            );
            let (x, y) = match &to_wgs84 {
                None => (x, y),
                Some(transform) => {
                    let (x, y, _) = transform.position(x, y, 0.0).map_err(|problem| problem.message)?;
                    (x, y)
                }
            };
            ring.push([x, y]);
        }
    }
    ring.extend(ring.first().copied());
    let mut properties = answer(name, head);
    if let Some(map) = properties.as_object_mut() {
        map.remove("bands");
        map.remove("metadata");
    }
    Ok(json!({
        "type": "Feature",
        "geometry": { "type": "Polygon", "coordinates": [ring] },
        "properties": properties,
    }))
}
