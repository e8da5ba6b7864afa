//! `tidegate inspect`: shows what a file of features contains.

use std::io;
use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Value, json};
use tidegate_geo::check::{self, Checks, Report, Watch};
use tidegate_geo::column::Value as Cell;
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::format::{self, Format};
use tidegate_geo::raster::Raster;
use tidegate_geo::validity::{Flaw, Warning};
use tidegate_geo::wkb::Shape;
use tidegate_geo::{Batch, Crs};

use crate::complete;
use crate::exit::Exit;
use crate::layer::{self, FormatArg, LayerSample, PageLayer};
use crate::out;
use crate::progress::thousands;
use clap_complete::ArgValueCandidates;

/// Show the layers, fields and extent of a file
///
/// Print each layer with its fields, coordinate reference system, counts, bounds, validity summary
/// and a small map. The whole file is read. Of a GeoTIFF only the header is read: size, position
/// and coordinate reference system.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate inspect parcels.gpkg
  tidegate inspect parcels.gpkg --layer roads --no-map
  tidegate inspect parcels.geojson --html parcels.html
  tidegate inspect parcels.fgb --format json | jq '.layers[0].crs'
  tidegate inspect scene.tif

Exit codes: 0 the file was read, valid or not; 1 the file cannot be read completely; 2 no such file,
layer or format.")]
pub(crate) struct Args {
    /// File to inspect
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Format of FILE [default: decided by its extension, else by its first bytes]
    #[arg(long, value_name = "FORMAT", value_enum)]
    input_format: Option<FormatArg>,

    /// Layer to inspect [default: all]
    #[arg(long, value_name = "NAME")]
    #[arg(add = ArgValueCandidates::new(complete::layers))]
    layer: Option<String>,

    /// Write an HTML page with the same information and a zoomable map
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print no map
    #[arg(long)]
    no_map: bool,

    /// Width of the map, in characters
    #[arg(long, value_name = "N", default_value_t = 72, value_parser = clap::value_parser!(u16).range(8..=400))]
    width: u16,

    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    format: InspectFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum InspectFormat {
    Table,
    Json,
}

/// Statistics of each field, and the sample to draw.
#[derive(Default)]
struct Notes {
    sample: LayerSample,
    present: Vec<u64>,
    examples: Vec<Option<String>>,
    defects: Vec<(f64, f64)>,
}

const DEFECTS_MAX: usize = 5000;
const EXAMPLE_LEN_MAX: usize = 40;

impl Watch for Notes {
    fn feature(&mut self, batch: &Batch, row: usize, flaw: Option<&Flaw>, _: &[Warning]) -> io::Result<()> {
        if let Some(wkb) = batch.geometry(row) {
            self.sample.add(wkb);
        }
        if let Some(flaw) = flaw.filter(|_| self.defects.len() < DEFECTS_MAX) {
            self.defects.push((flaw.x, flaw.y));
        }
        let columns = batch.columns();
        self.present.resize(columns.len(), 0);
        self.examples.resize(columns.len(), None);
        for ((column, present), example) in columns.iter().zip(&mut self.present).zip(&mut self.examples) {
            let value = column.get(row);
            *present += u64::from(value != Cell::Null);
            if example.is_none() {
                *example = shown(value);
            }
        }
        Ok(())
    }
}

fn shown(value: Cell<'_>) -> Option<String> {
    let text = match value {
        Cell::Null => return None,
        Cell::Bool(b) => b.to_string(),
        Cell::Int(i) => i.to_string(),
        Cell::Real(x) => x.to_string(),
        Cell::Text(text) | Cell::Json(text) => text.to_owned(),
        Cell::Bytes(bytes) => format!("{} bytes", bytes.len()),
    };
    let mut short: String = text.chars().take(EXAMPLE_LEN_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    Some(layer::plain(&short))
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let give_up = |error: &tidegate_geo::Error| Ok(layer::give_up("inspect", &args.file, error));
    if Raster::is_likely(&args.file).unwrap_or(false) {
        return match Raster::open(&args.file) {
            Ok(raster) => raster_told(args, &raster),
            Err(error) => give_up(&error),
        };
    }
    let named = args.input_format.map(FormatArg::format);
    let read = ReadOptions { format: named, ..ReadOptions::default() };
    let names = match format::layers(&args.file, &read) {
        Ok(names) => names,
        Err(error) => return give_up(&error),
    };
    let names: Vec<Option<String>> = match &args.layer {
        Some(name) => vec![Some(name.clone())],
        None if names.len() > 1 => names.into_iter().map(Some).collect(),
        None => vec![None],
    };
    let (mut said, mut pages) = (Vec::new(), Vec::new());
    let found = named.or_else(|| Format::detect(&args.file).ok().flatten());
    let format = found.map_or("unknown", Format::name);
    if args.format == InspectFormat::Table {
        let size = std::fs::metadata(&args.file).map_or(0, |file| file.len());
        out::data(&format!("{}: {format}, {} bytes\n", args.file.display(), thousands(size)))?;
    }
    for name in names {
        let checks = Checks { read: ReadOptions { layer: name, ..read.clone() }, ..Checks::default() };
        let mut notes = Notes::default();
        let report = match check::check(&args.file, &checks, &mut notes) {
            Ok(report) => report,
            Err(error) => return give_up(&error),
        };
        match args.format {
            InspectFormat::Table => out::data(&table(args, &report, &notes))?,
            InspectFormat::Json => said.push(answer(&report, &notes)),
        }
        if args.html.is_some() {
            pages.push(to_page(&report, notes));
        }
    }
    if args.format == InspectFormat::Json {
        let all = json!({ "file": args.file.display().to_string(), "format": format, "layers": said });
        out::data(&format!("{all:#}\n"))?;
    }
    if let Some(to) = &args.html {
        let name = args.file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        if let Err(error) = std::fs::write(to, layer::page(&name, &pages)) {
            out::say(&format!("tidegate inspect: {}: {error}", to.display()));
            return Ok(Exit::Failure);
        }
    }
    Ok(Exit::Done)
}

/// Shows the header of a GeoTIFF.
fn raster_told(args: &Args, raster: &Raster) -> io::Result<Exit> {
    let Raster { width, height, bands, sample, compression, .. } = raster;
    let crs = raster.crs.as_ref().and_then(|crs| crs.as_ref().ok());
    let problem = raster.crs.as_ref().and_then(|crs| crs.as_ref().err());
    if args.format == InspectFormat::Json {
        let said = json!({
            "file": args.file.display().to_string(),
            "format": "GeoTIFF",
            "raster": {
                "width": width,
                "height": height,
                "bands": bands,
                "sample": sample,
                "compression": compression,
                "tiled": raster.tiled,
                "nodata": raster.nodata,
                "transform": raster.transform,
                "bbox": raster.bounds().map(|b| [b.min_x, b.min_y, b.max_x, b.max_y]),
                "crs": crs.map(ToString::to_string),
                "crs_name": crs.and_then(Crs::entry).map(|entry| entry.name),
                "crs_problem": problem.map(|problem| problem.message.as_str()),
            },
        });
        out::data(&format!("{said:#}\n"))?;
        return Ok(Exit::Done);
    }
    let mut facts = vec![
        ("crs", crs.map_or_else(|| "not declared".to_owned(), layer::crs_words)),
        ("size", format!("{} x {} pixels, {bands} x {sample}", thousands(*width), thousands(*height))),
        ("compression", format!("{compression}, {}", if raster.tiled { "tiled" } else { "striped" })),
    ];
    if let Some([_, xc, _, _, _, yr]) = raster.transform {
        facts.push(("pixel", format!("{xc} x {}", yr.abs())));
    }
    if let Some(bounds) = raster.bounds() {
        facts.push(("bounds", layer::bounds_words(bounds)));
    }
    if let Some(nodata) = &raster.nodata {
        facts.push(("nodata", layer::plain(nodata)));
    }
    if let Some(problem) = problem {
        facts[0].1 = format!("unknown: {}", layer::plain(&problem.message));
    }
    let size = std::fs::metadata(&args.file).map_or(0, |file| file.len());
    let mut said = format!("{}: GeoTIFF, {} bytes\n\n", args.file.display(), thousands(size));
    for (name, value) in facts {
        said.push_str(&format!("  {name:<12} {value}\n"));
    }
    out::data(&said)?;
    Ok(Exit::Done)
}

fn answer(report: &Report, notes: &Notes) -> Value {
    let mut said = layer::report(report);
    if let Some(fields) = said["fields"].as_array_mut() {
        for (at, field) in fields.iter_mut().enumerate() {
            field["present"] = notes.present.get(at).copied().unwrap_or(0).into();
            field["example"] = notes.examples.get(at).cloned().flatten().into();
        }
    }
    said
}

/// The properties of a layer: names and values.
fn facts(report: &Report) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: String| facts.push((name.to_owned(), value));
    fact("crs", report.layer.crs.as_ref().map_or_else(|| "not declared".into(), layer::crs_words));
    if let Some(problem) = &report.mismatch {
        fact("doubtful", problem.message.clone());
    }
    fact("features", thousands(report.features));
    let shapes: Vec<String> =
        report.shapes.iter().map(|(shape, n)| format!("{} {}", thousands(*n), shape.name())).collect();
    let dim = report.layer.schema.dim;
    let dim = if dim.has_z() || dim.has_m() {
        format!(" ({}{})", if dim.has_z() { "Z" } else { "" }, if dim.has_m() { "M" } else { "" })
    } else {
        String::new()
    };
    fact("geometry", if shapes.is_empty() { "none".into() } else { format!("{}{dim}", shapes.join(", ")) });
    if report.without_geometry > 0 {
        fact("no geometry", thousands(report.without_geometry));
    }
    if report.empty > 0 {
        fact("empty", thousands(report.empty));
    }
    if let Some(bounds) = report.bounds {
        fact("bounds", layer::bounds_words(bounds));
    }
    let validity = if report.rejected == 0 && report.reasons.is_empty() {
        "all records valid".to_owned()
    } else {
        format!("{} invalid, {} unreadable", thousands(report.invalid()), thousands(report.rejected))
    };
    fact("validity", validity);
    facts
}

fn fields(report: &Report, notes: &Notes) -> Vec<Vec<String>> {
    let mut rows = vec![["field", "kind", "present", "example"].map(String::from).to_vec()];
    for (at, field) in report.layer.schema.fields().iter().enumerate() {
        let present = notes.present.get(at).copied().unwrap_or(0);
        let example = notes.examples.get(at).cloned().flatten().unwrap_or_default();
        rows.push(vec![layer::plain(&field.name), field.kind.to_string(), thousands(present), example]);
    }
    rows
}

fn table(args: &Args, report: &Report, notes: &Notes) -> String {
    let mut said = format!("\nlayer {}\n", layer::plain(&report.layer.name));
    for (name, value) in facts(report) {
        said.push_str(&format!("  {name:<12} {value}\n"));
    }
    for (reason, count) in &report.reasons {
        said.push_str(&format!("  {:<12} {} {reason}\n", "", thousands(*count)));
    }
    let rows = fields(report, notes);
    if rows.len() > 1 {
        let widths: Vec<usize> = (0..3)
            .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|c| c.chars().count()).max().unwrap_or(0))
            .collect();
        for row in &rows {
            let mut line = String::from(" ");
            for (at, cell) in row.iter().enumerate() {
                let width = widths.get(at).copied().unwrap_or(0);
                let pad = width.saturating_sub(cell.chars().count());
                line.push(' ');
                if at == 2 {
                    line.push_str(&" ".repeat(pad));
                }
                line.push_str(cell);
                if at != 2 {
                    line.push_str(&" ".repeat(pad));
                }
            }
            said.push_str(line.trim_end());
            said.push('\n');
        }
    }
    if !args.no_map {
        for line in
            layer::map(&notes.sample.lines(), notes.sample.bounds(), in_degrees(report), args.width.into())
        {
            said.push_str("  ");
            said.push_str(&line);
            said.push('\n');
        }
    }
    said
}

fn in_degrees(report: &Report) -> bool {
    report.layer.crs.as_ref().and_then(Crs::entry).is_some_and(|entry| entry.geographic)
}

fn to_page(report: &Report, mut notes: Notes) -> PageLayer {
    let crs = report.layer.crs.as_ref();
    let fields = fields(report, &notes);
    let on_land = notes.sample.bring_to_wgs84(crs);
    let mut defects = LayerSample::default();
    for (x, y) in &notes.defects {
        let mut wkb = Vec::new();
        tidegate_geo::wkb::write::begin(&mut wkb, Shape::Point, tidegate_geo::wkb::Dim::Xy);
        tidegate_geo::wkb::write::position(&mut wkb, &[*x, *y]);
        defects.add(&wkb);
    }
    if on_land {
        defects.bring_to_wgs84(crs);
    }
    let mut troubles = vec![["problem", "count"].map(String::from).to_vec()];
    troubles.extend(report.reasons.iter().map(|(reason, n)| vec![reason.clone(), thousands(*n)]));
    if report.rejected > 0 {
        troubles.push(vec!["unreadable".into(), thousands(report.rejected)]);
    }
    PageLayer {
        name: layer::plain(&report.layer.name),
        facts: facts(report),
        fields,
        troubles,
        lines: notes.sample.lines(),
        on_land,
        defects: defects.lines().into_iter().flatten().collect(),
        good: report.is_good(),
    }
}
