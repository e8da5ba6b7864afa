//! A file that appears whole: GeoJSON, GeoJSON by line or sequence, CSV, FlatGeobuf.
//!
//! It is written under a hidden name and renamed at the end, so that it needs no checkpoint.

use std::path::Path;

use tidegate_core::Code;
use tidegate_geo::format::{self, Format, Options, Writer};
use tidegate_geo::wkb::{self, Shape};
use tidegate_geo::{Batch, Problem};

use super::{Put, Saved, Sink, SinkError, Spec};
use crate::step::Seen;

struct File {
    writer: Option<Box<dyn Writer>>,
    only: Option<Shape>,
    text: bool,
}

pub(super) fn open(spec: &Spec, path: &Path, format: Format) -> Result<Box<dyn Sink>, String> {
    let options = Options { format: Some(format), ..Options::default() };
    let writer = format::create(path, &spec.schema, &spec.crs, &options)
        .map_err(|e| format!("{}: {e}", path.display()))?;
    let text = matches!(format, Format::GeoJson | Format::GeoJsonLines | Format::GeoJsonSeq);
    // A CSV file has no shape to keep to.
    let only = spec.schema.shape.filter(|_| format == Format::FlatGeobuf);
    Ok(Box::new(File { writer: Some(writer), only, text }))
}

impl File {
    /// What the format cannot hold, before the writer meets it and gives up the file.
    fn refuse(&self, batch: &Batch, row: usize) -> Option<Problem> {
        let wkb = batch.geometry(row)?;
        let (shape, dim) = wkb::head(wkb)?;
        if let Some(only) = self.only.filter(|only| *only != shape) {
            let message = format!("a layer of {} cannot hold a {}", only.name(), shape.name());
            return Some(Problem::new(Code::SCHEMA_MISMATCH, message));
        }
        if self.text && dim.has_m() {
            return Some(Problem::new(
                Code::SCHEMA_MISMATCH,
                "GeoJSON cannot hold measures; add a step force_2d",
            ));
        }
        if self.text {
            let mut scratch = Vec::new();
            return format::geojson::geometry(wkb, &mut scratch).err();
        }
        None
    }
}

impl Sink for File {
    fn saved(&mut self) -> Result<Option<Saved>, SinkError> {
        Ok(None)
    }

    fn put(&mut self, batch: &Batch) -> Result<Put, SinkError> {
        let refused: Vec<_> =
            (0..batch.len()).filter_map(|row| Some((row, self.refuse(batch, row)?))).collect();
        let inserted = (batch.len() - refused.len()) as u64;
        let Some(writer) = &mut self.writer else {
            return Err(SinkError::Fatal("the file is finished".into()));
        };
        let fatal = |e: tidegate_geo::Error| SinkError::Fatal(e.to_string());
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
        Ok(Put { inserted, refused, ..Put::default() })
    }

    fn commit(&mut self, _: &str, _: &[Seen]) -> Result<(), SinkError> {
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
