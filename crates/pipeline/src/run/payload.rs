//! Reads the payload of a letter as the record that it was at its stage.
//!
//! A letter holds a record as a GeoJSON feature ([`crate::step::feature`]). What GeoJSON has no form
//! for is written as text there and is turned back here: bytes as hexadecimal digits, measures as
//! WKT. So a replay starts with the record that the stage was given.

use std::io::Cursor;
use std::sync::Arc;

use serde_json::Value as Json;
use tidegate_core::Code;
use tidegate_core::hex::unhex_all;
use tidegate_geo::format::Rejected;
use tidegate_geo::format::geojson::{GeoJsonReader, ReadOptions};
use tidegate_geo::{Batch, Kind, Problem, Schema, Value, wkt};

use super::build::PipelineParts;
use crate::letter::{Letter, PUT_STAGE};
use crate::step::{Aside, Flow, Reject, StepError};

impl PipelineParts {
    /// The number of steps before a stage, the records that come to it, and the fields of those that
    /// leave it.
    pub(super) fn stage(&self, stage: &str) -> Result<(usize, &Flow, &Schema), String> {
        let from = match stage {
            "read" | PUT_STAGE => 0,
            "gate" | "sink" => self.steps.len(),
            label => self
                .steps
                .iter()
                .position(|step| step.label == label)
                .ok_or_else(|| format!("the pipeline no longer has a stage {label:?}"))?,
        };
        let flow = match stage {
            "read" | PUT_STAGE => &self.start,
            _ => self.steps.get(from).map_or(&self.flow, |step| &step.before),
        };
        let after = self.steps.get(from + 1).map_or(&self.flow, |step| &step.before);
        Ok((from, flow, &after.schema))
    }
}

/// Adds the payload of a letter to a batch as a row, or to the rejects. `after` are the fields that
/// leave the stage: earlier versions stored those that a step adds with the record that it rejected.
pub(super) fn read(
    letter: &Letter,
    record: u64,
    (Flow { schema, crs, .. }, after): (&Flow, &Schema),
    batch: &mut Batch,
    aside: &mut Aside,
) -> Result<(), StepError> {
    let text = letter.payload.current();
    let mut refuse = |problems: Vec<Problem>| {
        aside.rejected.push(Reject {
            record,
            stage: letter.stage.clone(),
            problems,
            raw: text.to_vec(),
            feature: String::from_utf8_lossy(text).into_owned(),
            call: None,
        });
    };
    // The first record with the key is in the sink; only an edit can decide which is right.
    let repeats = letter.stage == "gate" && letter.failure.code == Code::CONSTRAINT_VIOLATION;
    if repeats && letter.remedies.is_empty() {
        refuse(vec![Problem::new(letter.failure.code, letter.failure.message.clone())]);
        return Ok(());
    }
    let plain = match Plain::of(text, schema, after) {
        Ok(plain) => plain,
        Err(problem) => {
            refuse(vec![problem]);
            return Ok(());
        }
    };
    let given = plain.text.as_deref().unwrap_or(text);
    let options = ReadOptions { keep_raw: true, ..ReadOptions::default() };
    let mut reader = GeoJsonReader::new(Cursor::new(given), as_text(schema), options);
    let mut rejected: Vec<Rejected> = Vec::new();
    let found = reader.next_batch(&mut rejected);
    let named = match reader.named_crs() {
        Ok(named) => named,
        Err(problem) => {
            refuse(vec![problem]);
            return Ok(());
        }
    };
    if let (Some(named), Some(crs)) = (&named, crs)
        && named != crs
        && !(named.is_wgs84() && crs.is_wgs84())
    {
        let what = format!("the payload says that it is in {named}, and this stage takes {crs}; edit it");
        refuse(vec![Problem::new(Code::CRS_MISMATCH, what)]);
        return Ok(());
    }
    match found {
        Ok(Some(found)) if found.len() == 1 => {
            let bytes = match bytes_of(&found, schema) {
                Ok(bytes) => bytes,
                Err(problem) => {
                    refuse(vec![problem]);
                    return Ok(());
                }
            };
            batch.go_to_record(record);
            let values = (0..schema.fields().len()).map(|field| match bytes.get(field) {
                Some(Some(bytes)) => Value::Bytes(bytes),
                _ => found.value(0, field),
            });
            let geometry = plain.wkb.as_deref().or(found.geometry(0));
            batch.push(geometry, values).map_err(|problem| problem.message)?;
            batch.set_origin(found.origin(0).0, text);
            if let Some(id) = found.id(0) {
                batch.set_id(id);
            }
        }
        Ok(_) if !rejected.is_empty() => {
            refuse(rejected.into_iter().flat_map(|rejected| rejected.problems).collect());
        }
        Ok(_) => {
            let what = "the payload is not a GeoJSON feature; a person must edit it into one (dlq edit)";
            refuse(vec![Problem::new(Code::UNEXPECTED_BODY, what)]);
        }
        Err(e) => refuse(vec![Problem::new(e.code(), e.to_string())]),
    }
    Ok(())
}

/// A payload that the GeoJSON reader takes.
#[derive(Default)]
struct Plain {
    /// The text without what is read otherwise; `None` if it can be read as it is.
    text: Option<Vec<u8>>,
    /// The geometry that was given as WKT.
    wkb: Option<Vec<u8>>,
}

impl Plain {
    fn of(text: &[u8], schema: &Schema, after: &Schema) -> Result<Plain, Problem> {
        // What is not JSON is refused by the reader, with its place.
        let Ok(Json::Object(mut feature)) = serde_json::from_slice(text) else { return Ok(Plain::default()) };
        let mut plain = Plain::default();
        if let Some(Json::String(given)) = feature.get("geometry").and_then(|geometry| geometry.get("wkt")) {
            let mut wkb = Vec::new();
            wkt::read(given, &mut wkb)?;
            feature.insert("geometry".into(), Json::Null);
            plain.wkb = Some(wkb);
        }
        let mut dropped = false;
        if let Some(Json::Object(properties)) = feature.get_mut("properties") {
            let before = properties.len();
            properties.retain(|name, _| schema.position(name).is_some() || after.position(name).is_none());
            dropped = properties.len() < before;
        }
        if dropped || plain.wkb.is_some() {
            plain.text = Some(Json::Object(feature).to_string().into_bytes());
        }
        Ok(plain)
    }
}

/// The schema with text in place of bytes.
fn as_text(schema: &Arc<Schema>) -> Arc<Schema> {
    if schema.fields().iter().all(|field| field.kind != Kind::Bytes) {
        return schema.clone();
    }
    let kind = |kind| if kind == Kind::Bytes { Kind::Text } else { kind };
    let mut text = Schema::new(schema.fields().iter().map(|field| (field.name.clone(), kind(field.kind))));
    (text.shape, text.dim) = (schema.shape, schema.dim);
    Arc::new(text)
}

/// The values of the first row that are bytes, by field.
fn bytes_of(found: &Batch, schema: &Schema) -> Result<Vec<Option<Vec<u8>>>, Problem> {
    let fields = schema.fields().iter().enumerate();
    fields
        .map(|(at, field)| match (field.kind, found.value(0, at)) {
            (Kind::Bytes, Value::Text(text)) => unhex_all(text).map(Some).ok_or_else(|| {
                Problem::new(Code::SCHEMA_MISMATCH, "bytes are written as hexadecimal digits")
                    .under(&field.name)
            }),
            _ => Ok(None),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::letter::Payload;
    use crate::step::feature;
    use tidegate_geo::Crs;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let schema =
            Schema::new([("b", Kind::Bytes), ("none", Kind::Bytes), ("j", Kind::Json), ("x", Kind::Real)]);
        let flow = Flow::new(Arc::new(schema), Some(Crs::wgs84()));
        let mut was = Batch::new(flow.schema.clone());
        let mut wkb = Vec::new();
        wkt::read("LINESTRING M (0.1 0.2 3, 1 2 4)", &mut wkb).unwrap();
        let values = [Value::Bytes(&[0, 255, 7]), Value::Null, Value::Json("{\"a\":[1]}"), Value::Real(0.1)];
        was.push(Some(&wkb), values).unwrap();
        was.set_id("\"a 7\"");
        let current = feature(&was, 0).into_bytes();
        let payload = Payload { received: current, current: None };
        let letter = Letter { stage: "steps[0] http".into(), payload, ..Letter::default() };
        let (mut now, mut aside) = (Batch::new(flow.schema.clone()), Aside::default());
        read(&letter, 3, (&flow, &flow.schema), &mut now, &mut aside).unwrap();
        assert_eq!(aside.rejected, []);
        assert_eq!((now.record(0), now.id(0), now.geometry(0)), (3, was.id(0), was.geometry(0)));
        assert!((0..4).all(|at| now.value(0, at) == was.value(0, at)), "{}", feature(&now, 0));
    }

    #[test]
    fn fields_that_the_step_adds_are_left_out_and_others_refused() {
        let flow = Flow::new(Arc::new(Schema::new([("a", Kind::Int)])), Some(Crs::wgs84()));
        let after = Schema::new([("a", Kind::Int), ("owner", Kind::Text)]);
        let counts = |text: &str| {
            let payload = Payload { received: text.into(), current: None };
            let letter = Letter { payload, ..Letter::default() };
            let (mut batch, mut aside) = (Batch::new(flow.schema.clone()), Aside::default());
            read(&letter, 0, (&flow, &after), &mut batch, &mut aside).unwrap();
            (batch.len(), aside.rejected.len())
        };
        let text =
            |fields: &str| format!(r#"{{"type":"Feature","properties":{{{fields}}},"geometry":null}}"#);
        assert_eq!(counts(&text(r#""a":1,"owner":null"#)), (1, 0));
        assert_eq!(counts(&text(r#""a":1,"other":2"#)), (0, 1));
        assert_eq!(counts("{"), (0, 1));
    }
}
