//! The layers that a check writes: valid features, invalid ones, a point per defect.

use std::path::PathBuf;
use std::sync::Arc;

use super::Outputs;
use crate::batch::Batch;
use crate::column::Value;
use crate::crs::Crs;
use crate::error::Error;
use crate::format::{self, Layer, Options, Rejected, Writer};
use crate::schema::{Kind, Schema};
use crate::validity::{Checker, Flaw, Warning};
use crate::wkb::Shape;

/// One output and what waits for it.
struct CheckOutput {
    writer: Box<dyn Writer>,
    batch: Batch,
}

impl CheckOutput {
    fn new(to: Option<&PathBuf>, schema: &Arc<Schema>, crs: &Crs) -> Result<Option<CheckOutput>, Error> {
        let open = |to: &PathBuf| -> Result<CheckOutput, Error> {
            let writer = format::create(to, schema, crs, &Options::default())?;
            Ok(CheckOutput { writer, batch: Batch::new(schema.clone()) })
        };
        to.map(open).transpose()
    }

    fn copy(&mut self, from: &Batch, row: usize) -> Result<(), Error> {
        self.batch.push(from.geometry(row), from.columns().iter().map(|column| column.get(row)))?;
        if let Some(id) = from.id(row) {
            self.batch.set_id(id);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.writer.write(&self.batch)?;
        self.batch.clear(0);
        Ok(())
    }
}

/// The three outputs, those that are wanted.
pub(super) struct Outs {
    valid: Option<CheckOutput>,
    invalid: Option<CheckOutput>,
    defects: Option<CheckOutput>,
}

impl Outs {
    pub(super) fn new(outputs: &Outputs, layer: &Layer) -> Result<Outs, Error> {
        let crs = layer.crs.clone().unwrap_or_else(Crs::wgs84);
        let of_defects = [("record", Kind::Int), ("severity", Kind::Text), ("reason", Kind::Text)];
        let of_defects = Arc::new(Schema::new(of_defects).of_shape(Shape::Point));
        Ok(Outs {
            valid: CheckOutput::new(outputs.valid.as_ref(), &layer.schema, &crs)?,
            invalid: CheckOutput::new(outputs.invalid.as_ref(), &layer.schema, &crs)?,
            defects: CheckOutput::new(outputs.defects.as_ref(), &of_defects, &crs)?,
        })
    }

    pub(super) fn wants_invalid(&self) -> bool {
        self.invalid.is_some() || self.defects.is_some()
    }

    pub(super) fn feature(
        &mut self,
        batch: &Batch,
        row: usize,
        flaw: Option<&Flaw>,
        warnings: &[Warning],
    ) -> Result<(), Error> {
        let part = if flaw.is_some() { &mut self.invalid } else { &mut self.valid };
        if let Some(out) = part {
            out.copy(batch, row)?;
        }
        let record = batch.record(row);
        if let Some(flaw) = flaw {
            self.defect(record, "error", &flaw.reason.to_string(), flaw.x, flaw.y)?;
        }
        for warning in warnings {
            self.defect(record, "warning", &warning.concern.to_string(), warning.x, warning.y)?;
        }
        Ok(())
    }

    /// A record that a rule of its format refused, read again without the rule.
    pub(super) fn rejected(
        &mut self,
        rejected: &Rejected,
        batch: &Batch,
        checker: &mut Checker,
    ) -> Result<(), Error> {
        for row in 0..batch.len() {
            if let Some(out) = &mut self.invalid {
                out.copy(batch, row)?;
            }
            let flaw = batch.geometry(row).and_then(|bytes| checker.first_flaw(bytes));
            let place = flaw.map(|flaw| (flaw.x, flaw.y));
            let place = place.or_else(|| batch.bounds(row).map(|b| (b.min_x, b.min_y)));
            let problem = rejected.problems.first().map_or("cannot be read", |p| p.message.as_str());
            let reason = flaw.map_or_else(|| problem.to_owned(), |flaw| flaw.reason.to_string());
            if let Some((x, y)) = place {
                self.defect(rejected.record, "error", &reason, x, y)?;
            }
        }
        Ok(())
    }

    fn defect(&mut self, record: u64, severity: &str, reason: &str, x: f64, y: f64) -> Result<(), Error> {
        let Some(out) = &mut self.defects else { return Ok(()) };
        let values = [
            Value::Int(i64::try_from(record).unwrap_or(i64::MAX)),
            Value::Text(severity),
            Value::Text(reason),
        ];
        if x.is_finite() && y.is_finite() {
            out.batch.push_point(x, y, values)?;
        } else {
            out.batch.push(None, values)?;
        }
        Ok(())
    }

    fn all(&mut self) -> impl Iterator<Item = &mut CheckOutput> {
        [&mut self.valid, &mut self.invalid, &mut self.defects].into_iter().flatten()
    }

    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.all().try_for_each(CheckOutput::flush)
    }

    pub(super) fn finish(self) -> Result<(), Error> {
        for out in [self.valid, self.invalid, self.defects].into_iter().flatten() {
            out.writer.finish()?;
        }
        Ok(())
    }
}
