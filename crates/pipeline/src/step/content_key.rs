//! The key of a record from its content, for sinks with `key: [$key]`.
//!
//! It is the SHA-256 of the canonical record as it leaves the last step: the same for the same
//! record, however it is spelled, on every machine. Equal records have one key, and so one row.

use serde_json::{Value as Json, json};
use tidegate_core::Code;
use tidegate_core::hex::hex;
use tidegate_geo::batch::Pick;
use tidegate_geo::column::Column;
use tidegate_geo::{Batch, Kind, Problem, Schema, Value};

use super::{Aside, Flow, Step, StepError, feature};
use crate::error::SetupError;
use crate::letter::RecordKeys;
use crate::letter::feature::FeaturePayload;
use std::sync::Arc;

/// The name of the key in a manifest.
pub(crate) const CONTENT_KEY: &str = "$key";
/// The field that holds it.
pub(crate) const CONTENT_KEY_FIELD: &str = "record_key";

/// Adds the key as a field.
struct ContentKey {
    schema: Arc<Schema>,
}

/// The step that adds the key; `flow` is then what leaves it.
///
/// # Errors
/// When the records have a field of its name.
pub(crate) fn build(flow: &mut Flow) -> Result<Box<dyn Step>, SetupError> {
    if flow.schema.position(CONTENT_KEY_FIELD).is_some() {
        let what = format!(
            "sink.key: `{CONTENT_KEY}` is written to the field `{CONTENT_KEY_FIELD}`, which the records have already; rename it with a step"
        );
        return Err(what.into());
    }
    let mut fields = flow.fields();
    fields.push((CONTENT_KEY_FIELD.to_owned(), Kind::Text));
    flow.with(fields);
    Ok(Box::new(ContentKey { schema: flow.schema.clone() }))
}

impl Step for ContentKey {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let (mut keys, mut refused) = (Vec::with_capacity(batch.len()), Vec::new());
        for row in 0..batch.len() {
            match content_key(&batch, row) {
                Ok(key) => keys.push(key),
                Err(what) => {
                    keys.push(String::new());
                    refused.push((row, Problem::new(Code::SCHEMA_MISMATCH, what)));
                }
            }
        }
        let bad: Vec<usize> = refused.iter().map(|(row, _)| *row).collect();
        if !refused.is_empty() {
            drop(aside.set_aside(batch.clone(), refused));
        }
        let mut column = Column::new(Kind::Text);
        for key in &keys {
            column.push(Value::Text(key)).map_err(|problem| StepError::Broken(problem.message))?;
        }
        let old = (0..batch.schema().fields().len()).map(Pick::Old);
        let picks = old.chain([Pick::New(column)]).collect();
        let mut out = batch.with_columns(self.schema.clone(), picks);
        if !bad.is_empty() {
            let keep: Vec<bool> = (0..out.len()).map(|row| !bad.contains(&row)).collect();
            out = out.filter(&keep);
        }
        Ok(out)
    }
}

/// The SHA-256 of the canonical form of a record, in hexadecimal.
fn content_key(batch: &Batch, row: usize) -> Result<String, String> {
    let mut json: Json = serde_json::from_str(&feature(batch, row)).map_err(|e| e.to_string())?;
    // What a feature for people leaves out counts, too.
    for (at, field) in batch.schema().fields().iter().enumerate() {
        if let Value::Bytes(bytes) = batch.value(row, at) {
            json["properties"][&field.name] = hex(bytes).into();
        }
    }
    if let Some(wkb) = batch.geometry(row).filter(|_| json["geometry"].get("wkt").is_some()) {
        json["geometry"] = Json::Null;
        json["properties"]["$wkb"] = hex(wkb).into();
    }
    let payload = FeaturePayload::parse(json!(json).to_string().as_bytes()).map_err(|e| e.to_string())?;
    let key = RecordKeys::default().of_feature("", &payload, 0);
    Ok(key.rsplit_once(':').map_or_else(|| key.clone(), |(_, hash)| hash.to_owned()))
}
