//! A file that appears when it is complete: GeoJSON, GeoJSON lines or sequence, CSV, FlatGeobuf,
//! GeoParquet, GML, ESRI JSON.
//!
//! It is written under a hidden name and renamed at the end, so it needs no checkpoint.

use std::path::Path;

use tidegate_core::Code;
use tidegate_geo::format::{self, Format, Options, Writer};
use tidegate_geo::wkb::{self, Shape};
use tidegate_geo::{Batch, Error, Problem, Schema};

use super::probe::Probe;
use super::{RowCounts, Saved, Sink, SinkError, Spec, Standing};
use crate::step::SeenKey;

struct FileSink {
    writer: Option<Box<dyn Writer>>,
    rules: FormatLimits,
    probe: Option<Probe>,
}

pub(super) fn open(spec: &Spec, path: &Path, format: Format) -> Result<Box<dyn Sink>, SinkError> {
    let options = Options { format: Some(format), ..Options::default() };
    let at = |e: Error| format!("{}: {e}", path.display());
    let writer = format::create(path, &spec.schema, &spec.crs, &options).map_err(at)?;
    let probe = match format {
        Format::Gml | Format::EsriJson => {
            Some(Probe::new(format, &spec.schema, &spec.crs, &options).map_err(at)?)
        }
        _ => None,
    };
    Ok(Box::new(FileSink { writer: Some(writer), rules: FormatLimits::new(&spec.schema, format), probe }))
}

/// What a format cannot hold, detected before the writer fails.
pub(super) struct FormatLimits {
    only: Option<Shape>,
    text: bool,
}

impl FormatLimits {
    pub(super) fn new(schema: &Schema, format: Format) -> FormatLimits {
        let text = matches!(format, Format::GeoJson | Format::GeoJsonLines | Format::GeoJsonSeq);
        let only = match format {
            Format::FlatGeobuf => schema.shape,
            // The columns of a CSV file of points hold nothing else.
            Format::Csv => schema.shape.filter(|shape| *shape == Shape::Point),
            _ => None,
        };
        FormatLimits { only, text }
    }

    pub(super) fn refuse(&self, batch: &Batch, row: usize) -> Option<Problem> {
        let wkb = batch.geometry(row)?;
        let (shape, dim) = wkb::head(wkb)?;
        if let Some(only) = self.only.filter(|only| *only != shape) {
            let message = format!("a layer of type {} cannot hold a {}", only.name(), shape.name());
            return Some(Problem::new(Code::SCHEMA_MISMATCH, message));
        }
        if self.text && dim.has_m() {
            return Some(Problem::new(
                Code::SCHEMA_MISMATCH,
                "GeoJSON cannot hold M values; add a step `force_2d`",
            ));
        }
        if self.text { format::geojson::check_geometry(wkb).err() } else { None }
    }
}

impl Sink for FileSink {
    fn saved(&mut self) -> Result<Option<Saved>, SinkError> {
        Ok(None)
    }

    fn standing(&mut self) -> Result<Standing, SinkError> {
        Ok(Standing::default())
    }

    fn put(&mut self, batch: &Batch) -> Result<RowCounts, SinkError> {
        let fatal = |e: Error| SinkError::Fatal(e.to_string());
        let refused: Vec<_> = match &mut self.probe {
            Some(probe) => probe.refused(batch).map_err(fatal)?,
            None => (0..batch.len()).filter_map(|row| Some((row, self.rules.refuse(batch, row)?))).collect(),
        };
        let inserted = (batch.len() - refused.len()) as u64;
        let Some(writer) = &mut self.writer else {
            return Err(SinkError::Fatal("the file is finished".into()));
        };
        if refused.is_empty() {
            writer.write(batch).map_err(fatal)?;
        } else {
            let mut keep = vec![true; batch.len()];
            for (row, _) in &refused {
                if let Some(flag) = keep.get_mut(*row) {
                    *flag = false;
                }
            }
            writer.write(&batch.clone().filter(&keep)).map_err(fatal)?;
        }
        Ok(RowCounts { inserted, refused, ..RowCounts::default() })
    }

    fn commit(&mut self, _: &str, _: &[SeenKey]) -> Result<(), SinkError> {
        Ok(())
    }

    fn rollback(&mut self) {}

    fn finish(&mut self) -> Result<(), SinkError> {
        match self.writer.take() {
            Some(writer) => writer.finish().map(drop).map_err(|e| SinkError::Fatal(e.to_string())),
            None => Ok(()),
        }
    }
}
