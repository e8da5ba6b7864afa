//! Finds the records that a format cannot hold before they reach the file.
//!
//! A writer that meets such a record gives up the whole file. For GML and ESRI JSON the rules are
//! many (characters, measures, geometry types, times without an offset) and belong to the writer,
//! so the writer itself is used: each batch is first written to nowhere and, if that fails, record
//! by record to find the offending ones.

use std::sync::Arc;

use tidegate_geo::format::{self, Format, Options, Writer};
use tidegate_geo::{Batch, Crs, Error, Problem, Schema};

/// A writer to nowhere in the same state as that of the file.
pub(super) struct Probe {
    format: Format,
    schema: Arc<Schema>,
    crs: Crs,
    options: Options,
    writer: Box<dyn Writer>,
    /// A valid geometry, which tells a new writer the geometry types of the file so far.
    good: Option<Batch>,
}

impl Probe {
    pub(super) fn new(
        format: Format,
        schema: &Arc<Schema>,
        crs: &Crs,
        options: &Options,
    ) -> Result<Probe, Error> {
        let writer = nowhere(format, schema, crs, options)?;
        let (schema, crs, options) = (schema.clone(), crs.clone(), options.clone());
        Ok(Probe { format, schema, crs, options, writer, good: None })
    }

    /// The rows of a batch that the format cannot hold.
    pub(super) fn refused(&mut self, batch: &Batch) -> Result<Vec<(usize, Problem)>, Error> {
        if self.writer.write(batch).is_ok() {
            if self.good.is_none() {
                let shown = (0..batch.len()).find(|row| batch.geometry(*row).is_some());
                self.good = shown.and_then(|row| one(batch, row));
            }
            return Ok(Vec::new());
        }
        self.renew()?;
        let mut refused = Vec::new();
        for row in 0..batch.len() {
            let Some(alone) = one(batch, row) else { continue };
            match self.writer.write(&alone) {
                Ok(()) if alone.geometry(0).is_some() => self.good = self.good.take().or(Some(alone)),
                Ok(()) => {}
                Err(Error::Problem(problem)) => {
                    refused.push((row, *problem));
                    self.renew()?;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(refused)
    }

    /// Creates a new writer, because a failed one must not be used again.
    fn renew(&mut self) -> Result<(), Error> {
        self.writer = nowhere(self.format, &self.schema, &self.crs, &self.options)?;
        self.good.as_ref().map_or(Ok(()), |good| self.writer.write(good))
    }
}

fn nowhere(
    format: Format,
    schema: &Arc<Schema>,
    crs: &Crs,
    options: &Options,
) -> Result<Box<dyn Writer>, Error> {
    format::create_stream(Box::new(std::io::sink()), format, schema, crs, options)
}

/// One row as a batch; `None` if it does not match its own schema.
fn one(batch: &Batch, row: usize) -> Option<Batch> {
    let mut alone = Batch::new(batch.schema().clone()).from_record(batch.record(row));
    let values = (0..batch.columns().len()).map(|field| batch.value(row, field));
    alone.push(batch.geometry(row), values).ok()?;
    Some(alone)
}
