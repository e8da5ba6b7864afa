//! flatten: a field of nested JSON as fields of its own.
//!
//! A sink has its columns before the first record comes, so the names must be known before. They
//! are in the manifest, or a first pass over the source finds them: every name, with the narrowest
//! type that all its values have.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;
use tidegate_core::Code;
use tidegate_geo::column::Column;
use tidegate_geo::mapping::{Owned, coerce};
use tidegate_geo::{Batch, Kind, Problem, Schema, Value};

use super::{Aside, Flow, Step, StepError, Tools, kind};
use crate::manifest::{Arrays, Flatten};

/// More names than this are a mistake: keys that are data.
const NAMES_MAX: usize = 1000;

struct FlattenStep {
    form: Flatten,
    schema: Arc<Schema>,
    at: usize,
    /// Names of the new fields and their place in the schema.
    names: BTreeMap<String, usize>,
    kinds: Vec<Kind>,
}

pub(super) fn build(form: &Flatten, flow: &mut Flow, tools: &Tools<'_>) -> Result<Box<dyn Step>, String> {
    let at = flow.field(&form.field)?;
    let mut found: BTreeMap<String, Kind> =
        form.fields.iter().map(|(name, cast)| (name.clone(), kind(*cast))).collect();
    if found.is_empty() {
        let mut looked = BTreeMap::new();
        let mut look = |batch: &Batch| {
            for row in 0..batch.len() {
                for json in records(batch.value(row, at), form) {
                    walk(&form.field, &json, form, 0, &mut |name, value| note(&mut looked, name, value));
                }
            }
        };
        match (tools.pass)(&mut look) {
            Some(done) => done?,
            None => return Err("the source cannot be read twice; list the new fields in `fields`".into()),
        }
        found = looked.into_iter().map(|(name, kind)| (name, kind.unwrap_or(Kind::Text))).collect();
    }
    if found.len() > NAMES_MAX {
        return Err(format!(
            "`{}` would become {} fields, more than {NAMES_MAX}; lower `depth` or list them in `fields`",
            form.field,
            found.len()
        ));
    }
    let mut fields: Vec<(String, Kind)> = flow.fields();
    fields.remove(at.min(fields.len().saturating_sub(1)));
    let mut names = BTreeMap::new();
    for (name, kind) in found {
        if fields.iter().any(|(other, _)| *other == name) {
            return Err(format!("the records already have a field `{name}`; rename it first"));
        }
        names.insert(name.clone(), fields.len());
        fields.push((name, kind));
    }
    flow.with(fields);
    let kinds = flow.schema.fields().iter().map(|field| field.kind).collect();
    Ok(Box::new(FlattenStep { form: form.clone(), schema: flow.schema.clone(), at, names, kinds }))
}

/// What a field holds: one value, or one per entry of its list if lists are exploded.
fn records(value: Value<'_>, form: &Flatten) -> Vec<Json> {
    let json = match value {
        Value::Null => return vec![Json::Null],
        Value::Json(text) | Value::Text(text) => {
            serde_json::from_str(text).unwrap_or(Json::String(text.to_owned()))
        }
        Value::Bool(b) => b.into(),
        Value::Int(i) => i.into(),
        Value::Real(x) => x.into(),
        Value::Bytes(_) => Json::Null,
    };
    match json {
        Json::Array(items) if form.arrays == Arrays::Explode && !items.is_empty() => items,
        other => vec![other],
    }
}

/// Calls `leaf` with every value and its full name.
fn walk(name: &str, json: &Json, form: &Flatten, depth: u32, leaf: &mut impl FnMut(String, &Json)) {
    let join = |part: &str| format!("{name}{}{part}", form.separator);
    match json {
        Json::Object(map) if depth < form.depth => {
            for (key, value) in map {
                walk(&join(key), value, form, depth + 1, leaf);
            }
        }
        Json::Array(items) if form.arrays == Arrays::Index && depth < form.depth => {
            for (at, value) in items.iter().enumerate() {
                walk(&join(&at.to_string()), value, form, depth + 1, leaf);
            }
        }
        other => leaf(name.to_owned(), other),
    }
}

/// Remembers a name and the kind that holds all its values so far; null has none.
fn note(looked: &mut BTreeMap<String, Option<Kind>>, name: String, value: &Json) {
    let kind = match value {
        Json::Null => None,
        Json::Bool(_) => Some(Kind::Bool),
        Json::Number(n) if n.is_i64() => Some(Kind::Int),
        Json::Number(_) => Some(Kind::Real),
        Json::String(_) => Some(Kind::Text),
        Json::Array(_) | Json::Object(_) => Some(Kind::Json),
    };
    let known = looked.entry(name).or_insert(None);
    *known = match (*known, kind) {
        (Some(a), Some(b)) => Some(a.widen(b)),
        (a, b) => a.or(b),
    };
}

impl FlattenStep {
    /// The new values of one record, by their place among the fields.
    fn values(&self, json: &Json) -> Result<Vec<(usize, Owned)>, Vec<Problem>> {
        let (mut values, mut problems) = (Vec::new(), Vec::new());
        walk(&self.form.field, json, &self.form, 0, &mut |name, value| {
            let Some(at) = self.names.get(&name) else {
                // A name that the manifest does not ask for.
                return;
            };
            let text = value.to_string();
            let value = match value {
                Json::Null => Value::Null,
                _ => Value::Json(&text),
            };
            let kind = self.kinds.get(*at).copied().unwrap_or(Kind::Text);
            match coerce(value, kind, &[], None) {
                Ok(value) => values.push((*at, value)),
                Err(problem) => problems.push(problem.under(&name)),
            }
        });
        if problems.is_empty() { Ok(values) } else { Err(problems) }
    }
}

impl Step for FlattenStep {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let mut out = Batch::new(self.schema.clone());
        let mut refused = Vec::new();
        for row in 0..batch.len() {
            if let Value::Text(text) = batch.value(row, self.at)
                && serde_json::from_str::<Json>(text).is_err()
            {
                let shown: String = text.chars().take(60).collect();
                let problem = Problem::new(Code::SCHEMA_MISMATCH, format!("{shown:?} is not JSON"));
                refused.push((row, problem.under(&self.form.field)));
                continue;
            }
            let records = records(batch.value(row, self.at), &self.form);
            let made: Result<Vec<_>, Vec<Problem>> = records.iter().map(|json| self.values(json)).collect();
            let made = match made {
                Ok(made) => made,
                Err(problems) => {
                    refused.extend(problems.into_iter().map(|problem| (row, problem)));
                    continue;
                }
            };
            aside.added += made.len().saturating_sub(1) as u64;
            for values in made {
                let mut line: Vec<Owned> = vec![Owned::Null; self.kinds.len()];
                for (at, value) in values {
                    if let Some(slot) = line.get_mut(at) {
                        *slot = value;
                    }
                }
                let others = batch.columns().iter().enumerate().filter(|(at, _)| *at != self.at);
                let others: Vec<Value<'_>> =
                    others.map(|(_, column): (usize, &Column)| column.get(row)).collect();
                let kept = others.len();
                let all = others.into_iter().chain(line.iter().skip(kept).map(Owned::value));
                out.go_to_record(batch.record(row));
                let geometry = |wkb: &mut Vec<u8>| {
                    wkb.extend_from_slice(batch.geometry(row).unwrap_or_default());
                    Ok(())
                };
                out.push_with(geometry, all).map_err(|problem| StepError::Broken(problem.to_string()))?;
                if let Some(id) = batch.id(row) {
                    out.set_id(id);
                }
                let (span, raw) = batch.origin(row);
                out.set_origin(span, raw);
            }
        }
        drop(aside.set_aside(batch, refused));
        Ok(out)
    }
}
