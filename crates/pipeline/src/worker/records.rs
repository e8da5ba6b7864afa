//! From the payload of a task to records.
//!
//! Every payload is brought to the text of GeoJSON features, one per record, and read with the fields
//! that the manifest declares. So a task is checked where it enters, and a record of it that fails
//! later is a dead letter like any other.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::value::RawValue;
use tidegate_core::Code;
use tidegate_geo::format::geojson::{GeoJsonReader, ReadOptions};
use tidegate_geo::format::{self, Rejected};
use tidegate_geo::{Batch, Crs, Problem, Schema};
use tidegate_queue::Geotask;

use crate::step::feature;

/// Why the payload of a task cannot be used.
pub(super) struct PayloadProblem {
    pub(super) code: Code,
    pub(super) message: String,
}

fn problem(code: Code, message: impl Into<String>) -> PayloadProblem {
    PayloadProblem { code, message: message.into() }
}

/// The largest payload, and the system of the pipeline's records.
pub(super) struct PayloadRules {
    pub(super) bytes_max: u64,
    pub(super) crs: Option<Crs>,
    /// The directory that paths of objects are relative to.
    pub(super) folder: PathBuf,
}

#[derive(serde::Deserialize)]
struct PayloadShape<'a> {
    #[serde(rename = "type")]
    kind: Option<&'a str>,
    #[serde(borrow)]
    features: Option<Vec<&'a RawValue>>,
}

/// Appends the features of a task to a text, each on its own line; returns how many.
pub(super) fn append(
    task: &Geotask,
    rules: &PayloadRules,
    local: Option<&Path>,
    text: &mut Vec<u8>,
) -> Result<u64, PayloadProblem> {
    if let (Some(said), Some(crs)) = (&task.crs, &rules.crs) {
        let said: Crs = said.parse().map_err(|p: Problem| problem(p.code, p.message))?;
        if said != *crs && !(said.is_wgs84() && crs.is_wgs84()) {
            let what = format!("the task says that it is in {said}, and the pipeline takes {crs}");
            return Err(problem(Code::CRS_MISMATCH, what));
        }
    }
    if let Some(object) = &task.object {
        let path = local.map_or_else(|| rules.folder.join(object), Path::to_owned);
        return append_file(&path, object, rules, text);
    }
    let Some(payload) = task.payload.as_deref() else {
        return Err(problem(Code::SCHEMA_MISMATCH, "the task has neither `payload` nor `object`"));
    };
    let payload = payload.get();
    if payload.len() as u64 > rules.bytes_max {
        return Err(too_large(payload.len() as u64, rules));
    }
    let known: PayloadShape<'_> = serde_json::from_str(payload)
        .map_err(|_| problem(Code::SCHEMA_MISMATCH, "the payload is not an object with names and values"))?;
    match (known.kind, known.features) {
        (Some("FeatureCollection"), Some(features)) => {
            for one in &features {
                line(text, one.get());
            }
            Ok(features.len() as u64)
        }
        (Some("Feature"), _) => {
            line(text, payload);
            Ok(1)
        }
        _ => {
            text.extend_from_slice(b"{\"type\":\"Feature\",\"geometry\":null,\"properties\":");
            text.extend_from_slice(payload.as_bytes());
            line(text, "}");
            Ok(1)
        }
    }
}

fn too_large(bytes: u64, rules: &PayloadRules) -> PayloadProblem {
    let max = rules.bytes_max;
    problem(
        Code::PAYLOAD_TOO_LARGE,
        format!("the payload has {bytes} bytes, more than `source.tasks.bytes_max` ({max})"),
    )
}

fn line(text: &mut Vec<u8>, feature: &str) {
    text.extend_from_slice(feature.as_bytes());
    text.push(b'\n');
}

fn append_file(
    path: &Path,
    name: &str,
    rules: &PayloadRules,
    text: &mut Vec<u8>,
) -> Result<u64, PayloadProblem> {
    let about = std::fs::metadata(path).map_err(|e| problem(Code::NOT_FOUND, format!("{name}: {e}")))?;
    if about.len() > rules.bytes_max {
        return Err(too_large(about.len(), rules));
    }
    let options = ReadOptions { crs: rules.crs.clone(), ..ReadOptions::default() };
    let failed = |e: tidegate_geo::Error| problem(e.code(), format!("{name}: {e}"));
    let mut reader = format::open(path, &options).map_err(failed)?;
    if let (Some(said), Some(crs)) = (&reader.layer().crs, &rules.crs)
        && said != crs
        && !(said.is_wgs84() && crs.is_wgs84())
    {
        let what = format!("{name} is in {said}, and the pipeline takes {crs}");
        return Err(problem(Code::CRS_MISMATCH, what));
    }
    let (mut count, mut rejected) = (0, Vec::new());
    while let Some(batch) = reader.next_batch(&mut rejected).map_err(failed)? {
        for row in 0..batch.len() {
            line(text, &feature(&batch, row));
            count += 1;
        }
        if text.len() as u64 > rules.bytes_max.saturating_mul(4) {
            return Err(too_large(text.len() as u64, rules));
        }
    }
    match rejected.first() {
        None => Ok(count),
        Some(first) => {
            let what = first.problems.first().map_or_else(String::new, |p| p.message.clone());
            let what = format!(
                "{name}: {} records cannot be read, the first is {}: {what}",
                rejected.len(),
                first.record
            );
            Err(problem(first.problems.first().map_or(Code::UNEXPECTED_BODY, |p| p.code), what))
        }
    }
}

/// Reads features with the declared fields.
pub(super) fn read(
    text: &[u8],
    schema: &Arc<Schema>,
    first_record: u64,
) -> Result<(Batch, Vec<Rejected>), String> {
    let options = ReadOptions {
        keep_raw: true,
        batch_rows_max: usize::MAX,
        batch_bytes_max: usize::MAX,
        ..ReadOptions::default()
    };
    let mut reader = GeoJsonReader::new(text, schema.clone(), options);
    let mut rejected = Vec::new();
    let batch = reader.next_batch(&mut rejected).map_err(|e| e.to_string())?;
    let mut batch = batch.unwrap_or_else(|| Batch::new(schema.clone()));
    batch.count_from(first_record);
    for rejected in &mut rejected {
        rejected.record += first_record;
        for problem in &mut rejected.problems {
            problem.record = problem.record.map(|record| record + first_record);
        }
    }
    Ok((batch, rejected))
}
