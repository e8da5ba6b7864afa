//! What happens to a batch between reading and writing.
//!
//! The order: choose, map, repair, densify, reproject, promote. A repair wants the coordinates
//! that were drawn, and densifying wants the edges that were drawn.

use std::sync::Arc;

use tidegate_core::Code;

use super::{Converted, Outside, Repairs, Steps};
use crate::batch::Batch;
use crate::crs::{Crs, Operation, Plausibility, Transform};
use crate::densify::densify;
use crate::error::{Error, Problem};
use crate::filter::Filter;
use crate::format::{Layer, Rejected};
use crate::mapping::{Mapping, Others};
use crate::repair::{self, Method, Outcome};
use crate::schema::Schema;
use crate::validity::Checker;
use crate::wkb::{self, Shape};

/// The steps of a conversion, ready for one layer.
pub(super) struct Work {
    filter: Option<Filter>,
    mapping: Option<Mapping>,
    make_valid: Option<Method>,
    densify: Option<f64>,
    transform: Option<Transform>,
    plausibility: Option<Plausibility>,
    outside: Outside,
    promote: bool,
    schema: Arc<Schema>,
    checker: Checker,
    read: u64,
    left_out: u64,
    beyond: u64,
    repaired: Repairs,
}

impl Work {
    pub(super) fn new(layer: &Layer, crs: &Crs, target: &Crs, steps: &Steps) -> Result<Work, Error> {
        let transform = if super::is_same(target, crs) {
            None
        } else {
            Some(Transform::with_grids(crs, target, &steps.grids)?)
        };
        if let (Some(transform), Some(max)) = (&transform, steps.accuracy_max) {
            accurate_enough(transform.operation(), max)?;
        }
        let filter = steps.filter.as_deref().map(|text| Filter::new(text, &layer.schema)).transpose()?;
        let mapping = steps.fields.as_deref().map(|rules| Mapping::new(&layer.schema, rules, Others::Drop));
        let mapping = mapping.transpose()?;
        let chosen = mapping.as_ref().map_or(&layer.schema, Mapping::schema);
        let mut schema = Schema::clone(chosen);
        // A repaired polygon may be several.
        let may_split = steps.make_valid.is_some() && schema.shape == Some(Shape::Polygon);
        let promote = steps.promote || may_split;
        if promote {
            schema.shape = schema.shape.map(Shape::multi);
        }
        Ok(Work {
            filter,
            mapping,
            make_valid: steps.make_valid,
            densify: steps.densify,
            transform,
            plausibility: (!steps.trust_crs).then(|| Plausibility::new(crs)),
            outside: steps.outside,
            promote,
            schema: Arc::new(schema),
            checker: Checker::within(&steps.read.limits),
            read: 0,
            left_out: 0,
            beyond: 0,
            repaired: Repairs::default(),
        })
    }

    /// The schema of the result.
    pub(super) fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    pub(super) fn operation(&self) -> Option<&Operation> {
        self.transform.as_ref().map(Transform::operation)
    }

    pub(super) fn sum_up(self, done: &mut Converted) {
        done.read = self.read;
        done.left_out = self.left_out;
        done.outside = self.beyond;
        done.repaired = self.repaired;
    }

    /// One batch through all steps.
    pub(super) fn batch(&mut self, batch: Batch, rejected: &mut Vec<Rejected>) -> Result<Batch, Error> {
        self.read += batch.len() as u64;
        let batch = self.choose(batch)?;
        if let Some(plausibility) = &mut self.plausibility {
            plausibility.see_batch(&batch)?;
        }
        let batch = match &self.mapping {
            Some(mapping) => mapping.apply(&batch, rejected),
            None => batch,
        };
        let untouched = self.make_valid.is_none() && self.densify.is_none() && self.transform.is_none();
        if untouched && !self.promote {
            return Ok(batch);
        }
        let mut out = Batch::new(self.schema.clone());
        for row in 0..batch.len() {
            match self.geometry(batch.geometry(row)) {
                Ok(wkb) => copy_row(&batch, row, wkb.as_deref(), &mut out)?,
                Err(problem) => {
                    let record = batch.record(row);
                    let (span, raw) = batch.origin(row);
                    let problems = vec![problem.of_record(record)];
                    rejected.push(Rejected { record, span, raw: raw.to_vec(), problems });
                }
            }
        }
        Ok(out)
    }

    fn choose(&mut self, batch: Batch) -> Result<Batch, Error> {
        let Some(filter) = &self.filter else { return Ok(batch) };
        let mut kept = Batch::new(batch.schema().clone());
        for row in (0..batch.len()).filter(|row| filter.keeps(&batch, *row)) {
            copy_row(&batch, row, batch.geometry(row), &mut kept)?;
        }
        self.left_out += (batch.len() - kept.len()) as u64;
        Ok(kept)
    }

    fn geometry(&mut self, wkb: Option<&[u8]>) -> Result<Option<Vec<u8>>, Problem> {
        let Some(wkb) = wkb else { return Ok(None) };
        let mut now = match self.make_valid {
            Some(method) => self.repair(wkb, method)?,
            None => wkb.to_vec(),
        };
        if let Some(longest) = self.densify {
            let mut dense = Vec::with_capacity(now.len() * 2);
            densify(&now, longest, &mut dense)?;
            now = dense;
        }
        if let Some(transform) = &self.transform
            && !transform.geometry(&mut now)?
        {
            if self.outside == Outside::Refuse {
                let Operation { from, to, .. } = transform.operation();
                let message = format!("outside the area of use of {from} and {to}");
                return Err(Problem::new(Code::INVALID_GEOMETRY, message));
            }
            self.beyond += 1;
        }
        Ok(Some(if self.promote { repair::promote(&now) } else { now }))
    }

    fn repair(&mut self, wkb: &[u8], method: Method) -> Result<Vec<u8>, Problem> {
        let mut out = Vec::with_capacity(wkb.len());
        match repair::make_valid_by(wkb, method, &mut self.checker, &mut out) {
            Outcome::Valid => {}
            Outcome::Hopeless(flaw) => return Err(Problem::new(flaw.reason.code(), flaw.to_string())),
            Outcome::Repaired(_) if wkb::is_empty(&out) => {
                let message = "nothing is left of the geometry after the repair";
                return Err(Problem::new(Code::INVALID_GEOMETRY, message));
            }
            Outcome::Repaired(repaired) => {
                let sum = &mut self.repaired;
                sum.geometries += 1;
                sum.closed += u64::from(repaired.closed);
                sum.flattened += u64::from(repaired.flattened);
                let shape = |wkb: &[u8]| wkb::head(wkb).map(|(shape, _)| shape);
                sum.reshaped += u64::from(shape(wkb) != shape(&out));
                sum.area.0 += repaired.area.0;
                sum.area.1 += repaired.area.1;
                sum.length.0 += repaired.length.0;
                sum.length.1 += repaired.length.1;
            }
        }
        Ok(out)
    }
}

fn accurate_enough(operation: &Operation, max: f32) -> Result<(), Problem> {
    let Operation { from, to, accuracy, .. } = operation;
    let message = match accuracy {
        Some(accuracy) if *accuracy <= max => return Ok(()),
        Some(accuracy) => {
            format!(
                "the transformation from {from} to {to} is accurate to {accuracy} m, but {max} m is required"
            )
        }
        None => format!(
            "the transformation from {from} to {to} is a ballpark transformation without a datum shift"
        ),
    };
    Err(Problem::new(Code::CRS_NOT_FOUND, message))
}

fn copy_row(batch: &Batch, row: usize, geometry: Option<&[u8]>, out: &mut Batch) -> Result<(), Problem> {
    out.go_to_record(batch.record(row));
    let copy = |to: &mut Vec<u8>| {
        to.extend_from_slice(geometry.unwrap_or_default());
        Ok(())
    };
    out.push_with(copy, batch.columns().iter().map(|column| column.get(row)))?;
    if let Some(id) = batch.id(row) {
        out.set_id(id);
    }
    if !batch.foreign(row).is_empty() {
        out.set_foreign(batch.foreign(row));
    }
    let (span, raw) = batch.origin(row);
    out.set_origin(span, raw);
    Ok(())
}
