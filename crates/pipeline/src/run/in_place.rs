//! Replays into a row that is already in the sink.
//!
//! A step with `on_failure: keep` passes a failed record on to the sink, with its failure in a
//! field. Its replay must change that row and not add one. If the sink has a key, an upsert does
//! this. A file without a key holds one row for each record of the source, in its order, if no step
//! or gate removes records: there the row is found by the number of the record. A later run may have
//! written other records there, so the row must have the fields that the record came with.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tidegate_geo::format::{self, geojson::ReadOptions};
use tidegate_geo::mapping::{Owned, coerce};
use tidegate_geo::{Batch, Kind, Schema, Value};

use super::build::step_label;
use super::replay::set;
use crate::letter::store::ReplayOutcome;
use crate::letter::{Letter, PUT_STAGE};
use crate::manifest::{Manifest, MissingAnswer, StepSpec, WriteMode};
use crate::sink::{SinkTarget, Spec};

/// A file whose rows are changed by number.
pub(super) struct FileRows {
    path: PathBuf,
    /// The layer, if the file has several.
    layer: Option<String>,
    /// The stages whose failed records are in it.
    stages: Vec<String>,
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
    if !pipeline.steps.iter().any(keeps_failures) {
        return Ok(None);
    }
    if !sink.key.is_empty() {
        if sink.mode == WriteMode::Append {
            return Err(format!(
                "{} already holds the failed records, but `mode: append` allows several rows of a key; set `mode: upsert`, run again, then replay",
                sink.describe()
            ));
        }
        return Ok(None);
    }
    let (path, layer) = match &sink.target {
        SinkTarget::File(path, _) => (path, None),
        SinkTarget::GeoPackage(path, layer) => (path, Some(layer.clone())),
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
        return Ok(Some(FileRows { path: path.clone(), layer, stages }));
    }
    Err(format!(
        "{} has no `key`, and its rows cannot be counted because steps or gates remove records; add `key` to `sink`, run again, then replay",
        sink.describe()
    ))
}

/// The number of a letter's row, from 0.
///
/// # Errors
/// When the letter does not name a record.
pub(super) fn row(letter: &Letter) -> Result<u64, String> {
    let record = letter.source.position.strip_prefix("record ").and_then(|n| n.parse::<u64>().ok());
    record.ok_or_else(|| format!("letter {} does not refer to a record of its source", letter.id))
}

impl FileRows {
    /// Whether letters of this stage have a row; those put by a program have none and stay open.
    ///
    /// # Errors
    /// For a stage without rows in the file.
    pub(super) fn check_stage(
        &self,
        stage: &str,
        of: &[usize],
        ended: &mut [Option<ReplayOutcome>],
    ) -> Result<bool, String> {
        if stage == PUT_STAGE {
            let note = format!("it has no row in {}", self.path.display());
            for at in of {
                set(ended, *at, ReplayOutcome::Back { not_before_ms: None, note: note.clone() });
            }
            return Ok(false);
        }
        if self.stages.iter().any(|label| label == stage) {
            return Ok(true);
        }
        Err(format!("records of the stage {stage:?} have no row in {}", self.path.display()))
    }

    /// The batch with the numbers of its rows in the file instead of those of the letters, and the
    /// letter of each. What failed once more stays as it is there, and letters whose row holds another
    /// record stay open.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn numbered(
        &self,
        batch: &Batch,
        letters: &[Letter],
        before: &Schema,
        ended: &mut [Option<ReplayOutcome>],
    ) -> Result<(Batch, BTreeMap<u64, usize>), String> {
        // A letter of an earlier run may name the same row.
        let mut rows: BTreeMap<u64, Vec<(usize, &Letter)>> = BTreeMap::new();
        for at in 0..batch.len() {
            let letter = batch.record(at) as usize;
            if let (Some(letter), Some(None)) = (letters.get(letter), ended.get(letter)) {
                rows.entry(row(letter)?).or_default().push((at, letter));
            }
        }
        let fields: Vec<(usize, &str)> = before
            .fields()
            .iter()
            .filter_map(|field| Some((batch.schema().position(&field.name)?, field.name.as_str())))
            .collect();
        let options = ReadOptions { layer: self.layer.clone(), ..ReadOptions::default() };
        let say = |e: tidegate_geo::Error| format!("{}: {e}", self.path.display());
        let mut reader = format::open(&self.path, &options).map_err(say)?;
        let mut number = 0;
        while let Some(old) = reader.next_batch(&mut Vec::new()).map_err(say)? {
            for there in 0..old.len() {
                let is_same_record = |at: usize, letter: &Letter| {
                    // An edit may have changed any field.
                    letter.idempotency_key != letter.lineage.root_key
                        || fields.iter().all(|(field, name)| {
                            let place = old.schema().position(name);
                            place
                                .is_none_or(|place| is_same(old.value(there, place), batch.value(at, *field)))
                        })
                };
                if let Some(claims) = rows.get_mut(&number) {
                    claims.retain(|(at, letter)| {
                        let keep = is_same_record(*at, letter);
                        if !keep {
                            let note = format!(
                                "row {} of {} holds another record now; run the pipeline again",
                                number + 1,
                                self.path.display()
                            );
                            let how = ReplayOutcome::Back { not_before_ms: None, note };
                            set(ended, batch.record(*at) as usize, how);
                        }
                        keep
                    });
                }
                number += 1;
            }
        }
        let (mut out, mut numbers) = (Batch::new(batch.schema().clone()), BTreeMap::new());
        for (number, claims) in rows {
            let Some((at, _)) = claims.last().copied() else { continue };
            numbers.insert(number, batch.record(at) as usize);
            out.go_to_record(number);
            let values = (0..batch.columns().len()).map(|field| batch.value(at, field));
            out.push(batch.geometry(at), values).map_err(|problem| problem.message)?;
            if let Some(id) = batch.id(at) {
                out.set_id(id);
            }
        }
        Ok((out, numbers))
    }
}

/// Whether two values are the same, however the file spells them.
fn is_same(a: Value<'_>, b: Value<'_>) -> bool {
    let text = |value| match coerce(value, Kind::Text, &[], None) {
        Ok(Owned::Text(text)) => Some(text),
        _ => None,
    };
    match (text(a), text(b)) {
        (Some(a), Some(b)) => a == b || a.parse::<f64>().is_ok_and(|a| b.parse() == Ok(a)),
        (a, b) => a.unwrap_or_default().is_empty() && b.unwrap_or_default().is_empty(),
    }
}
