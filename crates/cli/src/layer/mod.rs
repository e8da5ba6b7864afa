//! What `convert`, `inspect` and `check` share: formatting layers and problems.

mod braille;
mod format_arg;
mod page;
mod sample;

pub(crate) use braille::map;
pub(crate) use format_arg::FormatArg;
pub(crate) use page::{PageLayer, page};
pub(crate) use sample::LayerSample;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_core::Code;
use tidegate_core::hex::hex;
use tidegate_geo::check::Report;
use tidegate_geo::crs::{Grids, Operation};
use tidegate_geo::error::{Error, Problem};
use tidegate_geo::format::Rejected;
use tidegate_geo::{Bounds, Crs};

use crate::exit::Exit;
use crate::out;

/// Reports an error and returns the exit code: 2 for a usage error, 1 for a fault of the file or
/// the disk.
pub(crate) fn give_up(verb: &str, file: &Path, error: &Error) -> Exit {
    out::say(&format!("tidegate {verb}: {}: {error}", file.display()));
    if let Error::Problem(problem) = error {
        out::failed(problem.code.as_str());
    }
    let usage = match error {
        Error::Io(e) => e.kind() == std::io::ErrorKind::NotFound,
        Error::Sqlite(_) => false,
        Error::Problem(problem) => {
            [Code::CRS_NOT_FOUND, Code::NOT_FOUND, Code::UNPROCESSABLE, Code::CONFLICT]
                .contains(&problem.code)
                || problem.message.starts_with("the condition:")
                || (problem.code == Code::SCHEMA_MISMATCH && problem.record.is_none())
                // An option that contradicts the file. What contradicts itself within a file is its own.
                || (problem.code == Code::CRS_MISMATCH && problem.path.starts_with("--"))
        }
    };
    if usage { Exit::Usage } else { Exit::Failure }
}

/// A coordinate reference system from the command line.
pub(crate) fn crs(text: &str) -> Result<Crs, String> {
    text.parse().map_err(|problem: Problem| problem.message)
}

/// A coordinate reference system with its name.
pub(crate) fn crs_words(crs: &Crs) -> String {
    match crs.entry() {
        Some(entry) => format!("{crs}, {}", entry.name),
        None => crs.to_string(),
    }
}

/// A problem as JSON.
pub(crate) fn problem(problem: &Problem) -> Value {
    json!({
        "code": problem.code.as_str(),
        "message": problem.message,
        "record": problem.record,
        "path": Some(problem.path.as_str()).filter(|path| !path.is_empty()),
        "offset": problem.offset,
    })
}

/// A rejected record as JSON. Bytes that are not UTF-8 are in hexadecimal.
pub(crate) fn rejected(rejected: &Rejected) -> Value {
    let mut said = json!({
        "record": rejected.record,
        "offset": rejected.span.offset,
        "length": rejected.span.len,
        "problems": rejected.problems.iter().map(problem).collect::<Vec<_>>(),
    });
    match std::str::from_utf8(&rejected.raw) {
        Ok(text) => said["raw"] = text.into(),
        Err(_) => {
            said["raw_hex"] = hex(&rejected.raw).into();
        }
    }
    said
}

/// A description of a coordinate operation.
pub(crate) fn operation_words(operation: &Operation) -> String {
    let Operation { from, to, .. } = operation;
    match operation.accuracy {
        Some(0.0) => format!("reprojected from {from} to {to}, exact"),
        Some(accuracy) => format!("reprojected from {from} to {to}, accurate to {accuracy} m"),
        None => format!(
            "warning: reprojected from {from} to {to} by a ballpark transformation without a datum shift; \
             coordinates may be off by hundreds of metres"
        ),
    }
}

/// Describes the grids of a coordinate operation, one per line, and how to provide missing ones.
pub(crate) fn grid_words(operation: &Operation, how: &str) -> Vec<String> {
    let used = operation.grids.iter().map(|path| format!("with the grid {}", path.display()));
    let missing = operation.missing.iter().map(|missing| {
        let grid = &missing.grid;
        let file = grid.files.first().copied().unwrap_or_default();
        format!(
            "grid {file} for {} not found, accurate to {} m; to use it, set {how}",
            missing.crs, grid.accuracy
        )
    });
    used.chain(missing).collect()
}

/// The directories of datum shift grids: those given, else those from the environment.
pub(crate) fn grids(given: &[PathBuf]) -> Grids {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if !given.is_empty() {
        return Grids::in_folders(given.to_vec());
    }
    let folders = from("TIDEGATE_GRIDS").or_else(|| from("PROJ_DATA"));
    Grids::in_folders(folders.map_or_else(Vec::new, |all| std::env::split_paths(&all).collect()))
}

/// A report as JSON.
pub(crate) fn report(report: &Report) -> Value {
    let layer = &report.layer;
    let fields: Vec<Value> = layer
        .schema
        .fields()
        .iter()
        .map(|field| json!({ "name": field.name, "kind": field.kind.to_string() }))
        .collect();
    let shapes: serde_json::Map<String, Value> =
        report.shapes.iter().map(|(shape, n)| (shape.name().to_owned(), (*n).into())).collect();
    let warnings: serde_json::Map<String, Value> =
        report.concerns.iter().map(|(concern, n)| (concern.to_string(), (*n).into())).collect();
    json!({
        "layer": layer.name,
        "crs": layer.crs.as_ref().map(ToString::to_string),
        "crs_name": layer.crs.as_ref().and_then(Crs::entry).map(|entry| entry.name),
        "features": report.features,
        "geometry": layer.schema.shape.map(tidegate_geo::wkb::Shape::name),
        "shapes": shapes,
        "without_geometry": report.without_geometry,
        "empty": report.empty,
        "bbox": report.bounds.map(|b| [b.min_x, b.min_y, b.max_x, b.max_y]),
        "fields": fields,
        "valid": report.features - report.invalid(),
        "invalid": report.invalid(),
        "reasons": report.reasons,
        "warnings": warnings,
        "unreadable": report.rejected,
    })
}

/// A bounding box with as many decimals as its size requires.
pub(crate) fn bounds_words(b: Bounds) -> String {
    let size = (b.max_x - b.min_x).max(b.max_y - b.min_y);
    let decimals = if size >= 1000.0 { 0 } else { 5 };
    let [w, s, e, n] = [b.min_x, b.min_y, b.max_x, b.max_y].map(|x| format!("{x:.decimals$}"));
    format!("{w} {s} to {e} {n}")
}

/// Text from a file, safe for a terminal: control characters are escaped.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if tidegate_core::quote::is_unsafe(c) { '\u{fffd}' } else { c }).collect()
}
