//! Replays into a row that is already in the sink.
//!
//! A step with `on_failure: keep` passes a failed record on to the sink, with its failure in a
//! field. Its replay must change that row and not add one. If the sink has a key, an upsert does
//! this. A file without a key holds one row for each record of the source, in its order, if no step
//! or gate removes records: there the row is found by the number of the record.

use std::path::{Path, PathBuf};

use tidegate_geo::Batch;

use super::build::step_label;
use crate::letter::Letter;
use crate::letter::replay::{RowSelector, Update};
use crate::manifest::{Manifest, MissingAnswer, StepSpec};
use crate::sink::{SinkTarget, Spec};

/// A file whose rows are changed by number.
pub(super) struct FileRows {
    pub(super) path: PathBuf,
    /// The stages whose failed records are in it.
    pub(super) stages: Vec<String>,
}

fn keeps_failures(step: &StepSpec) -> bool {
    step.geocode.as_ref().is_some_and(|form| form.on_failure == MissingAnswer::Keep)
}

/// Whether a step returns exactly one record for each.
fn is_one_to_one(step: &StepSpec) -> bool {
    let fields = step.rename.is_some() || step.drop.is_some() || step.keep.is_some();
    let values = step.default.is_some() || step.constant.is_some();
    let geocode = step.geocode.as_ref();
    fields
        || values
        || geocode.is_some_and(|form| keeps_failures(step) && form.no_match == MissingAnswer::Keep)
}

/// The file whose rows are changed by number; `None` if the sink finds rows by a key.
///
/// # Errors
/// When neither works, with what to do.
pub(super) fn file(manifest: &Manifest, sink: &Spec) -> Result<Option<FileRows>, String> {
    let pipeline = &manifest.pipeline;
    if !sink.key.is_empty() || !pipeline.steps.iter().any(keeps_failures) {
        return Ok(None);
    }
    let path = match &sink.target {
        SinkTarget::File(path, _) | SinkTarget::GeoPackage(path, _) => path,
        SinkTarget::Object(..) | SinkTarget::Table(_) => {
            return Err(format!(
                "{} already holds the failed records, but without a key their rows cannot be identified; add `key` to `sink`, run again, then replay",
                sink.describe()
            ));
        }
    };
    if pipeline.gates.is_empty() && pipeline.steps.iter().all(is_one_to_one) {
        let steps = pipeline.steps.iter().enumerate().filter(|(_, step)| keeps_failures(step));
        let stages = steps.map(|(at, step)| step_label(at, step)).collect();
        return Ok(Some(FileRows { path: path.clone(), stages }));
    }
    Err(format!(
        "{} has no `key`, and its rows cannot be counted because steps or gates remove records; add `key` to `sink`, run again, then replay",
        sink.describe()
    ))
}

/// The number of a letter's row, from 1.
///
/// # Errors
/// When the letter does not name a record.
pub(super) fn row(letter: &Letter) -> Result<u64, String> {
    let record = letter.source.position.strip_prefix("record ").and_then(|n| n.parse::<u64>().ok());
    let record =
        record.ok_or_else(|| format!("letter {} does not refer to a record of its source", letter.id))?;
    Ok(record + 1)
}

/// The new content of a row.
pub(super) fn update(batch: &Batch, at: usize, row: u64) -> Update {
    let fields = batch.schema().fields().iter().enumerate();
    let values = fields.map(|(field, about)| (about.name.clone(), batch.value(at, field).into())).collect();
    Update { at: RowSelector::Row(row), wkb: batch.geometry(at).map(<[u8]>::to_vec), crs: None, values }
}

/// Checks that the file can be changed.
///
/// # Errors
/// The reason why not.
pub(super) fn check(path: &Path) -> Result<(), String> {
    if !path.exists() {
        return Err(format!("{} does not exist; run the pipeline first", path.display()));
    }
    crate::letter::replay::writable(path).map_err(|e| e.to_string())
}
