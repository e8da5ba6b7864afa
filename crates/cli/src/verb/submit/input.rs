//! Where tasks come from: files of features, objects, lists of tasks, tiles, H3 cells, standard input.
//!
//! Each input is read as a stream, one task after the other, so that a million need no memory. An
//! input that can be read twice is checked before anything of it is published.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Take};
use std::path::{Path, PathBuf};

use serde_json::json;
use serde_json::value::RawValue;
use tidegate_core::quote::scheme;
use tidegate_geo::format::csv::{CsvOptions, CsvRow, RowReader};
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::format::{self, Layer};
use tidegate_geo::tile::{TileCover, TileId};
use tidegate_pipeline::step::feature;
use tidegate_queue::Geotask;

use super::cells::{CellCover, cell_draft};
use super::draft::{TaskDefaults, TaskDraft};
use crate::exit::{CommandFailure, failure, usage};

/// The longest line of a list of tasks, in bytes.
const LINE_MAX: usize = 64 << 20;

/// A source of tasks.
pub(super) enum TaskInput {
    /// A file of features: each is a task.
    Features(PathBuf, Option<String>),
    /// Files that are tasks themselves.
    Objects(Vec<String>),
    /// A list of tasks in CSV.
    Rows(PathBuf),
    /// A list of tasks or features, one per line; `None` is standard input.
    Lines(Option<PathBuf>),
    /// Tiles.
    Tiles(TileCover),
    /// H3 cells.
    Cells(CellCover),
}

/// Takes the tasks of an input: the place of each, and the task or what is wrong with it.
pub(super) type TaskTaker<'a> =
    dyn FnMut(&dyn Fn() -> String, Result<Geotask, String>) -> Result<(), CommandFailure> + 'a;

impl TaskInput {
    /// Whether it can be read twice.
    pub(super) fn is_repeatable(&self) -> bool {
        match self {
            TaskInput::Lines(Some(path)) => path.is_file(),
            TaskInput::Lines(None) => false,
            _ => true,
        }
    }

    /// Reads it, one task after the other.
    pub(super) fn each(
        &self,
        defaults: &TaskDefaults,
        take: &mut TaskTaker<'_>,
    ) -> Result<(), CommandFailure> {
        match self {
            TaskInput::Features(path, layer) => features(path, layer.clone(), defaults, take),
            TaskInput::Objects(objects) => {
                for object in objects {
                    let draft = TaskDraft { object: Some(object.clone()), ..TaskDraft::default() };
                    take(&|| object.clone(), defaults.task(draft))?;
                }
                Ok(())
            }
            TaskInput::Rows(path) => rows(path, defaults, take),
            TaskInput::Lines(Some(path)) => {
                let file = File::open(path).map_err(|e| usage(format!("{}: {e}", path.display())))?;
                lines(&path.display().to_string(), BufReader::new(file), defaults, take)
            }
            TaskInput::Lines(None) => lines("standard input", std::io::stdin().lock(), defaults, take),
            TaskInput::Tiles(cover) => {
                for tile in cover.tiles() {
                    let place = || format!("tile {}/{}/{}", tile.z, tile.x, tile.y);
                    take(&place, tile_draft(tile).and_then(|draft| defaults.task(draft)))?;
                }
                Ok(())
            }
            TaskInput::Cells(cover) => {
                for cell in cover.cells().map_err(usage)? {
                    let place = || format!("cell {cell}");
                    take(&place, cell_draft(cell).and_then(|draft| defaults.task(draft)))?;
                }
                Ok(())
            }
        }
    }
}

pub(super) fn raw(json: String) -> Result<Box<RawValue>, String> {
    RawValue::from_string(json).map_err(|e| e.to_string())
}

/// The fields of a file that the manifest does not have.
pub(super) fn unknown_fields(layer: &Layer, known: &[&str]) -> Vec<String> {
    let names = layer.schema.fields().iter().map(|field| field.name.clone());
    names.filter(|name| !known.contains(&name.as_str())).collect()
}

/// Opens a file of features.
pub(super) fn open(path: &Path, layer: Option<String>) -> Result<Box<dyn format::Reader>, CommandFailure> {
    let options = ReadOptions { layer, ..ReadOptions::default() };
    format::open(path, &options).map_err(|e| usage(format!("{}: {e}", path.display())))
}

fn features(
    path: &Path,
    layer: Option<String>,
    defaults: &TaskDefaults,
    take: &mut TaskTaker<'_>,
) -> Result<(), CommandFailure> {
    let name = path.display();
    let mut reader = open(path, layer)?;
    let crs = reader.layer().crs.clone();
    let is_degrees = crs.as_ref().is_none_or(tidegate_geo::Crs::is_wgs84);
    let crs = crs.filter(|crs| !crs.is_wgs84()).map(|crs| crs.to_string());
    let mut rejected = Vec::new();
    while let Some(batch) = reader.next_batch(&mut rejected).map_err(|e| failure(format!("{name}: {e}")))? {
        refuse(&name, &mut rejected, take)?;
        for row in 0..batch.len() {
            let place = || format!("{name}, record {}", batch.record(row) + 1);
            let draft = || -> Result<TaskDraft, String> {
                let json = feature(&batch, row);
                if json.contains("\"geometry\":{\"wkt\"") {
                    return Err("GeoJSON cannot hold this geometry, because it has measures".into());
                }
                let bounds = batch.bounds(row).filter(|_| is_degrees);
                let bbox = bounds.map(|b| [b.min_x, b.min_y, b.max_x, b.max_y]);
                let is_plausible = |b: &[f64; 4]| {
                    let [w, s, e, n] = b.map(f64::abs);
                    w <= 180.0 && e <= 180.0 && s <= 90.0 && n <= 90.0
                };
                let bbox = bbox.filter(is_plausible);
                Ok(TaskDraft { payload: Some(raw(json)?), crs: crs.clone(), bbox, ..TaskDraft::default() })
            };
            take(&place, draft().and_then(|draft| defaults.task(draft)))?;
        }
    }
    refuse(&name, &mut rejected, take)
}

/// Passes on the records that cannot be read.
fn refuse(
    name: &dyn std::fmt::Display,
    rejected: &mut Vec<format::Rejected>,
    take: &mut TaskTaker<'_>,
) -> Result<(), CommandFailure> {
    for bad in rejected.drain(..) {
        let why: Vec<String> = bad.problems.iter().map(|problem| problem.message.clone()).collect();
        take(&|| format!("{name}, record {}", bad.record + 1), Err(why.join("; ")))?;
    }
    Ok(())
}

/// The columns of a list of tasks.
const COLUMNS: [&str; 14] = [
    "kind",
    "key",
    "payload",
    "object",
    "crs",
    "bbox",
    "not_before",
    "expires",
    "ttl",
    "after",
    "priority",
    "ordering_key",
    "traceparent",
    "submitted_by",
];

fn rows(path: &Path, defaults: &TaskDefaults, take: &mut TaskTaker<'_>) -> Result<(), CommandFailure> {
    let name = path.display();
    let file = File::open(path).map_err(|e| usage(format!("{name}: {e}")))?;
    let options = CsvOptions { cell_max: LINE_MAX, ..CsvOptions::default() };
    let mut reader = RowReader::open(file, &options).map_err(|e| usage(format!("{name}: {e}")))?;
    let header: Vec<String> = reader.header().to_vec();
    if let Some(column) = header.iter().find(|column| !COLUMNS.contains(&column.as_str())) {
        return Err(usage(format!(
            "{name}: unknown column {column:?}; a list of tasks has {}. For a file of features leave out --tasks",
            COLUMNS.join(", ")
        )));
    }
    let mut row = CsvRow::default();
    while reader.read(&mut row).map_err(|e| failure(format!("{name}: {e}")))? {
        let task = match &row.problem {
            Some(problem) => Err(problem.to_string()),
            None => row_draft(&header, &row).and_then(|draft| defaults.task(draft)),
        };
        take(&|| format!("{name}:{}", row.line), task)?;
    }
    Ok(())
}

/// The task of a row; an empty cell says nothing.
fn row_draft(header: &[String], row: &CsvRow) -> Result<TaskDraft, String> {
    if row.len() != header.len() {
        return Err(format!("the row has {} cells, the header {}", row.len(), header.len()));
    }
    let mut draft = TaskDraft::default();
    for (column, cell) in header.iter().zip(row.cells()) {
        let cell = cell.trim();
        if cell.is_empty() {
            continue;
        }
        let text = Some(cell.to_owned());
        match column.as_str() {
            "kind" => draft.kind = text,
            "key" => draft.key = text,
            "payload" => draft.payload = Some(raw(cell.to_owned()).map_err(|e| format!("`payload`: {e}"))?),
            "object" => draft.object = text,
            "crs" => draft.crs = text,
            "bbox" => draft.bbox = Some(crate::verb::fetch::bbox(cell).map_err(|e| format!("`bbox`: {e}"))?),
            "not_before" => draft.not_before = text,
            "expires" => draft.expires = text,
            "ttl" => draft.ttl = text,
            "after" => draft.after = cell.split(';').map(|key| key.trim().to_owned()).collect(),
            "priority" => {
                let number = cell.parse().map_err(|_| format!("`priority` is {cell:?}; expected 0 to 9"))?;
                draft.priority = Some(number);
            }
            "ordering_key" => draft.ordering_key = text,
            "traceparent" => draft.traceparent = text,
            "submitted_by" => draft.submitted_by = text,
            _ => {}
        }
    }
    Ok(draft)
}

fn lines(
    name: &str,
    mut input: impl BufRead,
    defaults: &TaskDefaults,
    take: &mut TaskTaker<'_>,
) -> Result<(), CommandFailure> {
    let (mut line, mut number) = (Vec::new(), 0_u64);
    loop {
        line.clear();
        let mut bounded: Take<_> = input.by_ref().take(LINE_MAX as u64 + 1);
        let read = bounded.read_until(b'\n', &mut line).map_err(|e| failure(format!("{name}: {e}")))?;
        if read == 0 {
            return Ok(());
        }
        number += 1;
        if line.len() > LINE_MAX {
            return Err(failure(format!("{name}:{number}: the line is longer than {LINE_MAX} bytes")));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        take(&|| format!("{name}:{number}"), defaults.line(&line))?;
    }
}

/// The task of a tile: its polygon with the fields z, x and y.
fn tile_draft(tile: TileId) -> Result<TaskDraft, String> {
    let TileId { z, x, y } = tile;
    let side = f64::from(1_u32 << z.min(31));
    let lon = |column: f64| column / side * 360.0 - 180.0;
    let lat = |row: f64| (std::f64::consts::PI * (1.0 - 2.0 * row / side)).sinh().atan().to_degrees();
    let (west, east) = (lon(f64::from(x)), lon(f64::from(x) + 1.0));
    let (north, south) = (lat(f64::from(y)), lat(f64::from(y) + 1.0));
    let feature = json!({
        "type": "Feature",
        "properties": { "z": z, "x": x, "y": y },
        "geometry": { "type": "Polygon", "coordinates": [[
            [west, south], [east, south], [east, north], [west, north], [west, south],
        ]] },
    });
    Ok(TaskDraft {
        key: Some(format!("{z}/{x}/{y}")),
        payload: Some(raw(feature.to_string())?),
        bbox: Some([west, south, east, north]),
        ..TaskDraft::default()
    })
}

/// The objects that these arguments name: URLs as they are, files by their absolute paths.
pub(super) fn objects(paths: &[PathBuf]) -> Result<Vec<String>, CommandFailure> {
    let absolute = |path: &PathBuf| {
        let text =
            path.to_str().ok_or_else(|| usage(format!("{}: the path is not UTF-8", path.display())))?;
        if scheme(text).is_some() {
            return Ok(text.to_owned());
        }
        let whole = path.canonicalize().map_err(|e| usage(format!("{}: {e}", path.display())))?;
        Ok(whole.to_string_lossy().into_owned())
    };
    paths.iter().map(absolute).collect()
}
