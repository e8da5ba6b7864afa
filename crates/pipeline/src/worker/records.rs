//! From the payload of a task to records.
//!
//! Every payload is brought to the text of GeoJSON features, one per record, and read with the fields
//! that the manifest declares. So a task is checked where it enters, and a record of it that fails
//! later is a dead letter like any other.

use std::path::Path;
use std::sync::Arc;

use serde_json::value::RawValue;
use tidegate_core::Code;
use tidegate_geo::crs::Plausibility;
use tidegate_geo::format::geojson::{GeoJsonReader, ReadOptions};
use tidegate_geo::format::{self, Rejected};
use tidegate_geo::{Batch, Crs, Problem, Schema};
use tidegate_queue::Geotask;

use crate::objects::shown;
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
    /// The system in which the coordinates must be possible, unless the manifest trusts them.
    pub(super) plausible: Option<Crs>,
}

impl PayloadRules {
    /// Rejects records whose coordinates cannot be in the system.
    pub(super) fn plausible(&self, batch: Batch, rejected: &mut Vec<Rejected>) -> Batch {
        let Some(crs) = &self.plausible else { return batch };
        if Plausibility::new(crs).see_batch(&batch).is_ok() {
            return batch;
        }
        let mut keep = vec![true; batch.len()];
        for (row, keep) in keep.iter_mut().enumerate() {
            let Some(bounds) = batch.bounds(row) else { continue };
            let Err(problem) = Plausibility::new(crs).accepted_by(ACCEPT).see(bounds) else { continue };
            *keep = false;
            let (record, (span, raw)) = (batch.record(row), batch.origin(row));
            let problems = vec![Problem { record: Some(record), ..problem }];
            rejected.push(Rejected { record, span, raw: raw.to_vec(), problems });
        }
        batch.filter(&keep)
    }
}

/// The advice if the coordinates are right nevertheless.
const ACCEPT: &str = "to accept them, set `source.trust_crs: true`";

/// The members of a payload that say what it is.
#[derive(serde::Deserialize)]
struct PayloadShape<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    features: Option<&'a RawValue>,
}

impl<'a> PayloadShape<'a> {
    fn of(text: &'a str) -> Option<PayloadShape<'a>> {
        serde_json::from_str(text).ok()
    }

    fn is(&self, kind: &str) -> bool {
        self.kind
            .is_some_and(|found| serde_json::from_str::<String>(found.get()).is_ok_and(|found| found == kind))
    }

    /// Whether it is exactly one feature for the reader.
    fn is_feature(&self) -> bool {
        self.is("Feature") && self.features.is_none()
    }
}

/// Appends the features of a task to a text, each on its own line; returns how many. `local` is its object,
/// which may be opened.
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
    if let (Some(object), Some(path)) = (&task.object, local) {
        return append_file(path, &shown(object), rules, text);
    }
    let Some(payload) = task.payload.as_deref() else {
        return Err(problem(Code::SCHEMA_MISMATCH, "the task has neither `payload` nor `object`"));
    };
    let payload = payload.get();
    if payload.len() as u64 > rules.bytes_max {
        return Err(too_large(payload.len() as u64, rules));
    }
    let not_an_object =
        || problem(Code::SCHEMA_MISMATCH, "the payload is not an object with names and values");
    let known = PayloadShape::of(payload).ok_or_else(not_an_object)?;
    let features = known.features.map(|all| serde_json::from_str::<Vec<&RawValue>>(all.get()));
    match features {
        Some(Ok(features)) if known.is("FeatureCollection") => {
            for (at, one) in features.iter().enumerate() {
                if !PayloadShape::of(one.get()).is_some_and(|one| one.is_feature()) {
                    return Err(problem(
                        Code::SCHEMA_MISMATCH,
                        format!("`features[{at}]` of the payload is not a GeoJSON feature"),
                    ));
                }
                line(text, one.get());
            }
            Ok(features.len() as u64)
        }
        _ if known.is_feature() => {
            line(text, payload);
            Ok(1)
        }
        _ if known.is("FeatureCollection") || known.is("Feature") => Err(problem(
            Code::SCHEMA_MISMATCH,
            "the payload is neither a GeoJSON feature nor a collection of them",
        )),
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
    let about = std::fs::metadata(path).map_err(|e| {
        let code =
            if e.kind() == std::io::ErrorKind::NotFound { Code::NOT_FOUND } else { Code::UNEXPECTED_BODY };
        problem(code, format!("{name}: {e}"))
    })?;
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
