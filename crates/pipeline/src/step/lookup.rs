//! lookup: fields out of another file, found by a foreign key.
//!
//! The file is read once and held in memory: a table of codes or owners, not another layer of
//! parcels. Keys are compared as they are spelt, so that 7 in one file finds "7" in another.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use tidegate_core::Code;
use tidegate_geo::batch::Pick;
use tidegate_geo::column::Column;
use tidegate_geo::format::{self, geojson::ReadOptions};
use tidegate_geo::mapping::{Owned, coerce};
use tidegate_geo::{Batch, Kind, Problem, Schema, Value};

use super::{Aside, Flow, Step, StepError};
use crate::manifest::{Lookup, MissingAnswer};

struct LookupTable {
    schema: Arc<Schema>,
    on: usize,
    on_name: String,
    file: String,
    rows: HashMap<String, Vec<Owned>>,
    missing: MissingAnswer,
    width: usize,
}

/// How a value is spelt as a key.
fn spelt(value: Value<'_>) -> Option<String> {
    match coerce(value, Kind::Text, &[], None) {
        Ok(Owned::Text(text)) => Some(text.trim().to_owned()),
        _ => None,
    }
}

pub(super) fn build(form: &Lookup, flow: &mut Flow, folder: &Path) -> Result<Box<dyn Step>, String> {
    let on = flow.field(&form.on)?;
    let path = super::path(folder, &form.file);
    let fail = |what: String| format!("{}: {what}", path.display());
    let mut reader = format::open(&path, &ReadOptions::default()).map_err(|e| fail(e.to_string()))?;
    let other = Flow::new(reader.layer().schema.clone(), None);
    let key = other.field(form.key.as_deref().unwrap_or(&form.on)).map_err(&fail)?;
    let take =
        form.take.iter().map(|name| other.field(name)).collect::<Result<Vec<_>, _>>().map_err(&fail)?;
    let mut rows = HashMap::new();
    let mut rejected = Vec::new();
    while let Some(batch) = reader.next_batch(&mut rejected).map_err(|e| fail(e.to_string()))? {
        for row in 0..batch.len() {
            let Some(spelt) = spelt(batch.value(row, key)) else { continue };
            let values = take.iter().map(|at| Owned::from(batch.value(row, *at))).collect();
            if rows.insert(spelt.clone(), values).is_some() {
                return Err(fail(format!("duplicate key {spelt:?} in record {}", batch.record(row))));
            }
        }
    }
    if let Some(problem) = rejected.first().and_then(|rejected| rejected.problems.first()) {
        return Err(fail(problem.to_string()));
    }
    let mut fields = flow.fields();
    for at in &take {
        let Some(field) = other.schema.fields().get(*at) else { continue };
        if fields.iter().any(|(name, _)| *name == field.name) {
            return Err(format!("the records already have a field `{}`; rename it first", field.name));
        }
        fields.push((field.name.clone(), field.kind));
    }
    flow.with(fields);
    Ok(Box::new(LookupTable {
        schema: flow.schema.clone(),
        on,
        on_name: form.on.clone(),
        file: form.file.clone(),
        rows,
        missing: form.missing,
        width: take.len(),
    }))
}

impl Step for LookupTable {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let old = batch.columns().len();
        let mut columns: Vec<Column> =
            self.schema.fields().iter().skip(old).map(|field| Column::new(field.kind)).collect();
        let mut refused = Vec::new();
        let nothing = vec![Owned::Null; self.width];
        for row in 0..batch.len() {
            let key = spelt(batch.value(row, self.on));
            let found = key.as_ref().and_then(|key| self.rows.get(key));
            if found.is_none() {
                if self.missing == MissingAnswer::Reject {
                    let message = match &key {
                        Some(key) => format!("{key:?} is not in {}", self.file),
                        None => format!("no value to look up in {}", self.file),
                    };
                    refused.push((row, Problem::new(Code::NOT_FOUND, message).under(&self.on_name)));
                } else {
                    aside.missed.push(batch.record(row));
                }
            }
            for (column, value) in columns.iter_mut().zip(found.unwrap_or(&nothing)) {
                column.push(value.value()).map_err(|problem| StepError::Broken(problem.to_string()))?;
            }
        }
        let picks = (0..old).map(Pick::Old).chain(columns.into_iter().map(Pick::New)).collect();
        let keep = aside.refuse(&batch, refused);
        Ok(batch.with_columns(self.schema.clone(), picks).filter(&keep))
    }
}
