//! Adds records to a binary file that is written as a whole, FlatGeobuf or GeoParquet, for a replay.
//!
//! The file is read and rewritten beside itself, with the new records in the rows of their keys,
//! and renamed over the old one. So a reader sees the old file or the new one, and the same records
//! twice give the same file: a killed replay can be repeated. Both formats store their types, so
//! that every other record is written as it was read. Text files are changed in their place
//! (`splice`). GML and ESRI JSON do not return everything that was written and are not changed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_core::Code;
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::format::{self, Format, Options};
use tidegate_geo::{Batch, Crs, Error, Kind, Problem, Schema, Value};

use super::{RowCounts, Saved, Sink, SinkError, Spec, Standing};
use crate::step::SeenKey;

/// What tells the rows of a file apart, in bytes.
pub(super) type RowKey = Vec<u8>;

/// How the row of a record is found.
#[derive(Clone, Debug)]
pub(super) enum RowsBy {
    /// By the fields at these places.
    Key(Vec<usize>),
    /// By the number of the record: the file holds one row for each, in their order.
    Number,
}

impl RowsBy {
    pub(super) fn of(spec: &Spec) -> RowsBy {
        if spec.by_number {
            return RowsBy::Number;
        }
        RowsBy::Key(spec.key.iter().filter_map(|name| spec.schema.position(name)).collect())
    }

    /// The key of a row; `None` if a field of it is null.
    pub(super) fn key(&self, batch: &Batch, row: usize) -> Option<RowKey> {
        match self {
            RowsBy::Number => Some(batch.record(row).to_le_bytes().to_vec()),
            RowsBy::Key(key) => same_key(key.iter().map(|at| match batch.value(row, *at) {
                Value::Null => None,
                value => Some(format!("{value:?}").into_bytes()),
            })),
        }
    }
}

/// The values of a key as one; `None` if one of them is null.
pub(super) fn same_key(values: impl Iterator<Item = Option<Vec<u8>>>) -> Option<RowKey> {
    let mut key = Vec::new();
    for value in values {
        let value = value?;
        key.extend_from_slice(&(value.len() as u64).to_le_bytes());
        key.extend_from_slice(&value);
    }
    Some(key)
}

struct Rewrite {
    path: PathBuf,
    format: Format,
    schema: Arc<Schema>,
    crs: Crs,
    by: RowsBy,
    /// The new records, as the format returns them, and the row of each key.
    came: Option<(Batch, HashMap<RowKey, usize>)>,
}

/// A file that takes records by key or number, unless [`cannot`] has a reason.
pub(super) fn open(spec: &Spec, path: &Path, format: Format) -> Box<dyn Sink> {
    let (schema, crs, by) = (spec.schema.clone(), spec.crs.clone(), RowsBy::of(spec));
    Box::new(Rewrite { path: path.to_owned(), format, schema, crs, by, came: None })
}

/// Why records cannot be added to this file, and what to do instead.
pub(super) fn cannot(spec: &Spec, path: &Path, format: Format) -> Option<String> {
    let file = path.display();
    if matches!(format, Format::Gml | Format::EsriJson | Format::Shapefile) {
        return Some(format!(
            "{file} is written as a whole, and its format cannot be read back without loss; fix the source and run again, or write to a .gpkg file"
        ));
    }
    if spec.by_number && format == Format::FlatGeobuf {
        return Some(format!(
            "{file} is in the order of places, not of the source, so the row of a replayed record cannot be found; write to a .gpkg or .csv file, or set a key (`sink: {{ file: …, mode: replace, key: [id] }}`), and run again"
        ));
    }
    if spec.key.is_empty() && !spec.by_number {
        return Some(format!(
            "{file} is written as a whole, and without a key the row of a replayed record cannot be found; set one in the manifest (`sink: {{ file: …, mode: replace, key: [id] }}`) and run again, or fix the source and run again"
        ));
    }
    if !path.exists() {
        return Some(format!("{file} does not exist; run the pipeline first"));
    }
    None
}

impl Rewrite {
    /// Calls `see` with every row of a file, in the schema of the pipeline.
    fn each(&self, path: &Path, mut see: impl FnMut(Batch) -> Result<(), Error>) -> Result<(), String> {
        let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let options = ReadOptions::default();
        let mut rejected = Vec::new();
        let whole = |rejected: &[format::Rejected]| match rejected.first() {
            Some(first) => Err(at(&format!(
                "cannot read back record {}, so the file was not changed; run the pipeline again",
                first.record
            ))),
            None => Ok(()),
        };
        let mut reader = format::open(path, &options).map_err(|e| at(&e))?;
        let names = |schema: &Schema| schema.fields().iter().map(|f| f.name.clone()).collect::<Vec<_>>();
        if names(&reader.layer().schema) != names(&self.schema) {
            return Err(at(&"its fields differ from those that the pipeline writes; run the pipeline again"));
        }
        while let Some(batch) = reader.next_batch(&mut rejected).map_err(|e| at(&e))? {
            see(self.typed(&batch).map_err(|e| at(&e))?).map_err(|e| at(&e))?;
        }
        whole(&rejected)
    }

    /// Converts rows to the types of the pipeline.
    fn typed(&self, batch: &Batch) -> Result<Batch, Problem> {
        let mut out = Batch::new(self.schema.clone());
        for row in 0..batch.len() {
            out.go_to_record(batch.record(row));
            let fields = self.schema.fields().iter().enumerate();
            let values = fields
                .map(|(at, field)| {
                    let value = batch.value(row, at);
                    typed(value, field.kind).ok_or_else(|| {
                        let message =
                            format!("{value:?} is not a valid {}; run the pipeline again", field.kind);
                        Problem::new(Code::SCHEMA_MISMATCH, message).under(&field.name)
                    })
                })
                .collect::<Result<Vec<_>, _>>()?;
            out.push(batch.geometry(row), values)?;
            if let Some(id) = batch.id(row) {
                out.set_id(id);
            }
        }
        Ok(out)
    }

    fn key(&self, batch: &Batch, row: usize) -> Option<RowKey> {
        self.by.key(batch, row)
    }

    /// Writes batches as a file of the sink's format.
    fn write(
        &self,
        path: &Path,
        fill: impl FnOnce(&mut dyn format::Writer) -> Result<(), String>,
    ) -> Result<(), String> {
        let at = |e: Error| format!("{}: {e}", path.display());
        let options = Options { format: Some(self.format), ..Options::default() };
        let mut writer = format::create(path, &self.schema, &self.crs, &options).map_err(at)?;
        fill(writer.as_mut())?;
        writer.finish().map(drop).map_err(at)
    }

    /// Writes records and reads them back, so that they can be compared with those of the file.
    fn round_trip(&self, batch: &Batch) -> Result<Batch, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let path = dir.path().join("came").with_extension(self.path.extension().unwrap_or_default());
        self.write(&path, |writer| writer.write(batch).map_err(|e| e.to_string()))?;
        let mut all = Batch::new(self.schema.clone());
        self.each(&path, |rows| {
            (0..rows.len()).try_for_each(|row| {
                all.go_to_record(batch.record(all.len()));
                copy(&rows, row, &mut all)
            })
        })?;
        Ok(all)
    }

    /// Rewrites the file with the new records.
    fn rewrite(&self, came: &Batch, rows: &HashMap<RowKey, usize>) -> Result<(), String> {
        self.write(&self.path, |writer| {
            let mut there = vec![false; came.len()];
            self.each(&self.path, |old| {
                let mut out = Batch::new(self.schema.clone());
                for row in 0..old.len() {
                    match self.key(&old, row).and_then(|key| rows.get(&key).copied()) {
                        Some(new) => {
                            copy(came, new, &mut out)?;
                            there.get_mut(new).into_iter().for_each(|there| *there = true);
                        }
                        None => copy(&old, row, &mut out)?,
                    }
                    // The id of a row is that of the file.
                    if let Some(id) = old.id(row) {
                        out.set_id(id);
                    }
                }
                writer.write(&out)
            })?;
            let mut out = Batch::new(self.schema.clone());
            let mut new: Vec<usize> = rows.values().copied().collect();
            new.sort_unstable();
            new.retain(|row| there.get(*row) == Some(&false));
            if let (RowsBy::Number, Some(row)) = (&self.by, new.first()) {
                return Err(format!(
                    "{}: it has no row {}; run the pipeline again",
                    self.path.display(),
                    came.record(*row) + 1
                ));
            }
            for row in new {
                copy(came, row, &mut out).map_err(|e| e.to_string())?;
            }
            writer.write(&out).map_err(|e| e.to_string())
        })
    }
}

fn copy(from: &Batch, row: usize, to: &mut Batch) -> Result<(), Error> {
    let values = (0..from.columns().len()).map(|at| from.value(row, at));
    Ok(to.push(from.geometry(row), values)?)
}

/// Converts a value that was written from this type.
fn typed(value: Value<'_>, kind: Kind) -> Option<Value<'_>> {
    Some(match (value, kind) {
        (Value::Text(text), Kind::Json) => Value::Json(text),
        (Value::Int(n), Kind::Real) => Value::Real(n as f64),
        (Value::Null, _)
        | (Value::Bool(_), Kind::Bool)
        | (Value::Int(_), Kind::Int)
        | (Value::Real(_), Kind::Real)
        | (Value::Text(_), Kind::Text | Kind::Date | Kind::DateTime)
        | (Value::Json(_), Kind::Json)
        | (Value::Bytes(_), Kind::Bytes) => value,
        _ => return None,
    })
}

impl Sink for Rewrite {
    fn saved(&mut self) -> Result<Option<Saved>, SinkError> {
        Ok(None)
    }

    fn standing(&mut self) -> Result<Standing, SinkError> {
        Ok(Standing::default())
    }

    fn put(&mut self, batch: &Batch) -> Result<RowCounts, SinkError> {
        let mut put = RowCounts::default();
        let rules = super::file::FormatLimits::new(&self.schema, self.format);
        // Of records with the same key the last one wins.
        let last: HashMap<RowKey, usize> =
            (0..batch.len()).filter_map(|row| Some((self.key(batch, row)?, row))).collect();
        let mut keep = vec![true; batch.len()];
        for (row, keep) in keep.iter_mut().enumerate() {
            let nameless = self
                .key(batch, row)
                .is_none()
                .then(|| Problem::new(Code::CONSTRAINT_VIOLATION, "a field of the key is null"));
            if let Some(problem) = nameless.or_else(|| rules.refuse(batch, row)) {
                put.refused.push((row, problem));
                *keep = false;
            } else if self.key(batch, row).is_some_and(|key| last.get(&key) != Some(&row)) {
                put.unchanged += 1;
                *keep = false;
            }
        }
        let came = self.round_trip(&batch.clone().filter(&keep)).map_err(SinkError::Fatal)?;
        let rows: HashMap<RowKey, usize> =
            (0..came.len()).filter_map(|row| Some((self.key(&came, row)?, row))).collect();
        let mut found: HashMap<RowKey, (u64, bool)> = HashMap::new();
        self.each(&self.path, |old| {
            for row in 0..old.len() {
                let Some(key) = self.key(&old, row) else { continue };
                let Some(new) = rows.get(&key).copied() else { continue };
                let same = old.geometry(row) == came.geometry(new)
                    && (0..came.columns().len()).all(|at| old.value(row, at) == came.value(new, at));
                let seen = found.entry(key).or_insert((0, same));
                seen.0 += 1;
            }
            Ok(())
        })
        .map_err(SinkError::Fatal)?;
        if found.values().any(|(times, _)| *times > 1) {
            return Err(SinkError::Fatal(format!(
                "{}: several records have the same key as a replayed one; choose a unique `sink.key` and run again",
                self.path.display()
            )));
        }
        let same = found.values().filter(|(_, same)| *same).count() as u64;
        put.unchanged += same;
        put.updated = found.len() as u64 - same;
        put.inserted = rows.len() as u64 - found.len() as u64;
        self.came = Some((came, rows));
        Ok(put)
    }

    fn commit(&mut self, _: &str, _: &[SeenKey]) -> Result<(), SinkError> {
        match self.came.take() {
            Some((came, rows)) if !rows.is_empty() => self.rewrite(&came, &rows).map_err(SinkError::Fatal),
            _ => Ok(()),
        }
    }

    fn rollback(&mut self) {
        self.came = None;
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}
