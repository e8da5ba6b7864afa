//! rename, drop, keep: other columns of the same rows. default, constant: fixed values.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_geo::batch::Pick;
use tidegate_geo::column::Column;
use tidegate_geo::mapping::{Owned, coerce};
use tidegate_geo::{Batch, Kind, Schema, Value};

use super::{Aside, Flow, Step, StepError};
use crate::manifest::YamlScalar;

/// Takes columns over, in another order or under other names.
struct Project {
    schema: Arc<Schema>,
    from: Vec<usize>,
}

impl Step for Project {
    fn apply(&mut self, batch: Batch, _: &mut Aside) -> Result<Batch, StepError> {
        Ok(batch.with_columns(self.schema.clone(), self.from.iter().copied().map(Pick::Old).collect()))
    }
}

pub(super) fn rename(names: &BTreeMap<String, String>, flow: &mut Flow) -> Result<Box<dyn Step>, String> {
    let mut fields = flow.fields();
    for (from, to) in names {
        let at = flow.field(from)?;
        if let Some(field) = fields.get_mut(at) {
            field.0.clone_from(to);
        }
    }
    for (at, (name, _)) in fields.iter().enumerate() {
        if fields.iter().take(at).any(|(other, _)| other == name) {
            return Err(format!("two fields would have the name `{name}`"));
        }
    }
    flow.with(fields);
    let from = (0..flow.schema.fields().len()).collect();
    Ok(Box::new(Project { schema: flow.schema.clone(), from }))
}

pub(super) fn drop_fields(names: &[String], flow: &mut Flow) -> Result<Box<dyn Step>, String> {
    let gone = names.iter().map(|name| flow.field(name)).collect::<Result<Vec<_>, _>>()?;
    let from = (0..flow.schema.fields().len()).filter(|at| !gone.contains(at)).collect();
    Ok(project(from, flow))
}

pub(super) fn keep(names: &[String], flow: &mut Flow) -> Result<Box<dyn Step>, String> {
    let from = names.iter().map(|name| flow.field(name)).collect::<Result<Vec<_>, _>>()?;
    Ok(project(from, flow))
}

fn project(from: Vec<usize>, flow: &mut Flow) -> Box<dyn Step> {
    let fields = flow.fields();
    flow.with(from.iter().filter_map(|at| fields.get(*at).cloned()));
    Box::new(Project { schema: flow.schema.clone(), from })
}

fn owned(scalar: &YamlScalar) -> Owned {
    match scalar {
        YamlScalar::Null => Owned::Null,
        YamlScalar::Bool(b) => Owned::Bool(*b),
        YamlScalar::Int(i) => Owned::Int(*i),
        YamlScalar::Float(x) => Owned::Real(*x),
        YamlScalar::Text(text) => Owned::Text(text.clone()),
    }
}

/// A value in the kind of its column.
fn fitted(name: &str, scalar: &YamlScalar, kind: Kind) -> Result<Owned, String> {
    coerce(owned(scalar).value(), kind, &[], None).map_err(|problem| format!("`{name}`: {}", problem.message))
}

/// Puts values where there is none, or everywhere.
struct Fill {
    schema: Arc<Schema>,
    /// By column; `None` leaves it as it is.
    values: Vec<Option<Owned>>,
    always: bool,
}

impl Step for Fill {
    fn apply(&mut self, batch: Batch, _: &mut Aside) -> Result<Batch, StepError> {
        let mut picks = Vec::with_capacity(self.values.len());
        for (at, value) in self.values.iter().enumerate() {
            let (Some(value), Some(field)) = (value, self.schema.fields().get(at)) else {
                picks.push(Pick::Old(at));
                continue;
            };
            let mut column = Column::new(field.kind);
            for row in 0..batch.len() {
                let old = if self.always { Value::Null } else { batch.value(row, at) };
                let new = if old == Value::Null { value.value() } else { old };
                column.push(new).map_err(|problem| StepError::Broken(problem.to_string()))?;
            }
            picks.push(Pick::New(column));
        }
        Ok(batch.with_columns(self.schema.clone(), picks))
    }
}

pub(super) fn default(
    values: &BTreeMap<String, YamlScalar>,
    flow: &mut Flow,
) -> Result<Box<dyn Step>, String> {
    let mut by_column = vec![None; flow.schema.fields().len()];
    for (name, scalar) in values {
        let at = flow.field(name)?;
        let kind = flow.schema.fields().get(at).map_or(Kind::Text, |field| field.kind);
        if let Some(slot) = by_column.get_mut(at) {
            *slot = Some(fitted(name, scalar, kind)?);
        }
    }
    Ok(Box::new(Fill { schema: flow.schema.clone(), values: by_column, always: false }))
}

/// A constant may replace a field, then it keeps its place and takes the kind of the value.
pub(super) fn constant(
    values: &BTreeMap<String, YamlScalar>,
    flow: &mut Flow,
) -> Result<Box<dyn Step>, String> {
    let mut fields = flow.fields();
    let mut by_column = vec![None; fields.len()];
    for (name, scalar) in values {
        let value = owned(scalar);
        let at = match flow.schema.position(name) {
            Some(at) => at,
            None => {
                fields.push((name.clone(), value.kind()));
                by_column.push(None);
                fields.len() - 1
            }
        };
        if let (Some(field), Some(slot)) = (fields.get_mut(at), by_column.get_mut(at)) {
            field.1 = value.kind();
            *slot = Some(value);
        }
    }
    flow.with(fields);
    Ok(Box::new(Fill { schema: flow.schema.clone(), values: by_column, always: true }))
}
