//! Changes the rows of replayed records in a text file: CSV, GeoJSON, GeoJSON lines and sequences.
//!
//! Only the bytes of those rows change; the rest of the file is copied as it is
//! ([`tidegate_geo::format::splice`]). So the rows that a run wrote are as it wrote them, and what
//! somebody else changed stays. The file takes the place of the old one at once, and the same
//! records twice give the same bytes: a killed replay can be repeated.

use std::collections::HashMap;
use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_core::Code;
use tidegate_geo::batch::Span;
use tidegate_geo::format::csv::{CsvOptions, Lexer, Rewind};
use tidegate_geo::format::geojson::{GeoJsonReader, ReadOptions};
use tidegate_geo::format::{self, Format, Options, Splice};
use tidegate_geo::{Batch, Crs, Error, Problem, Schema};

use super::rewrite::{RowKey, RowsBy, same_key};
use super::{RowCounts, Saved, Sink, SinkError, Spec, Standing};
use crate::step::SeenKey;

struct SplicedFile {
    path: PathBuf,
    format: Format,
    schema: Arc<Schema>,
    crs: Crs,
    by: RowsBy,
    /// What the next commit changes.
    changes: Option<Splice>,
}

/// A record of the file: its key, where it stands, its bytes, and its id if it has one.
struct FileRecord<'a> {
    key: Option<RowKey>,
    span: Span,
    raw: &'a [u8],
    id: Option<&'a str>,
}

pub(super) fn open(spec: &Spec, path: &Path, format: Format) -> Box<dyn Sink> {
    let (schema, crs, by) = (spec.schema.clone(), spec.crs.clone(), RowsBy::of(spec));
    Box::new(SplicedFile { path: path.to_owned(), format, schema, crs, by, changes: None })
}

impl SplicedFile {
    fn at(&self, what: &dyn std::fmt::Display) -> String {
        format!("{}: {what}", self.path.display())
    }

    fn options(&self) -> Options {
        Options { format: Some(self.format), ..Options::default() }
    }

    /// Calls `see` with every record of a text.
    fn each(
        &self,
        input: impl Rewind,
        see: &mut dyn FnMut(FileRecord<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        if self.format == Format::Csv { self.each_row(input, see) } else { self.each_feature(input, see) }
    }

    fn each_row(
        &self,
        input: impl Rewind,
        see: &mut dyn FnMut(FileRecord<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let at = |e: &dyn std::fmt::Display| self.at(e);
        let options = CsvOptions { strict_quotes: true, keep_source: true, ..CsvOptions::default() };
        let mut lexer = Lexer::open(input, &options).map_err(|e| at(&e))?;
        let own = format::header_text(&Batch::new(self.schema.clone()), &self.crs, &self.options());
        if !lexer.advance().map_err(|e| at(&e))? || lexer.record().source != own.map_err(|e| at(&e))? {
            return Err(at(&"its header is not the one that the pipeline writes; run the pipeline again"));
        }
        let columns = lexer.record().count;
        let mut number = 0;
        while lexer.advance().map_err(|e| at(&e))? {
            let row = lexer.record();
            if row.problem.is_some() || row.count != columns {
                return Err(self.unreadable(number));
            }
            let key = match &self.by {
                RowsBy::Number => Some(number.to_le_bytes().to_vec()),
                // Null is an empty cell, empty text a quoted one.
                RowsBy::Key(key) => same_key(key.iter().map(|at| {
                    let is_null = row.cell(*at).is_empty() && row.quoted.get(*at) != Some(&true);
                    (!is_null).then(|| row.cell(*at).to_vec())
                })),
            };
            let span = Span { offset: row.offset, len: row.len };
            see(FileRecord { key, span, raw: &row.source, id: None })?;
            number += 1;
        }
        Ok(())
    }

    fn each_feature(
        &self,
        input: impl Rewind,
        see: &mut dyn FnMut(FileRecord<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        // Members that we do not write may have been added by others.
        let options = ReadOptions { keep_raw: true, drop_unknown: true, ..ReadOptions::default() };
        let mut reader = GeoJsonReader::new(input, self.schema.clone(), options);
        let mut rejected = Vec::new();
        while let Some(batch) = reader.next_batch(&mut rejected).map_err(|e| self.at(&e))? {
            if let Some(first) = rejected.first() {
                return Err(self.unreadable(first.record));
            }
            for row in 0..batch.len() {
                let (span, raw) = batch.origin(row);
                see(FileRecord { key: self.by.key(&batch, row), span, raw, id: batch.id(row) })?;
            }
        }
        rejected.first().map_or(Ok(()), |first| Err(self.unreadable(first.record)))
    }

    fn unreadable(&self, record: u64) -> String {
        self.at(&format!(
            "cannot read back record {record}, so the file was not changed; run the pipeline again"
        ))
    }

    /// The text of a record, with the id of the record whose place it takes.
    fn text(&self, batch: &Batch, row: usize, id: Option<&str>) -> Result<Vec<u8>, Error> {
        let mut alone = Batch::new(self.schema.clone());
        let values = (0..batch.columns().len()).map(|at| batch.value(row, at));
        alone.push(batch.geometry(row), values)?;
        if let Some(id) = id.or(batch.id(row)) {
            alone.set_id(id);
        }
        format::record_text(self.format, &alone, 0, &self.crs, &self.options())
    }

    /// The key of a new record, as it is read back.
    fn key(&self, batch: &Batch, row: usize) -> Result<Option<RowKey>, String> {
        if matches!(self.by, RowsBy::Number) {
            return Ok(self.by.key(batch, row));
        }
        let mut text = Vec::new();
        if self.format == Format::Csv {
            text = format::header_text(batch, &self.crs, &self.options()).map_err(|e| self.at(&e))?;
            text.push(b'\n');
        }
        text.extend(self.text(batch, row, None).map_err(|e| self.at(&e))?);
        let mut key = None;
        self.each(Cursor::new(text), &mut |found| {
            key = found.key;
            Ok(())
        })?;
        Ok(key)
    }

    /// What has to be changed for these rows, each under its key.
    fn changes(
        &self,
        batch: &Batch,
        rows: &HashMap<RowKey, usize>,
        put: &mut RowCounts,
    ) -> Result<Splice, String> {
        let mut changes = Splice::default();
        let mut times: HashMap<usize, u32> = HashMap::new();
        let file = File::open(&self.path).map_err(|e| self.at(&e))?;
        self.each(file, &mut |found| {
            changes.last = Some(found.span);
            let Some(row) = found.key.and_then(|key| rows.get(&key).copied()) else { return Ok(()) };
            *times.entry(row).or_default() += 1;
            let text = self.text(batch, row, found.id).map_err(|e| self.at(&e))?;
            if text == found.raw {
                put.unchanged += 1;
            } else {
                put.updated += 1;
                changes.replaced.push((found.span, text));
            }
            Ok(())
        })?;
        if times.values().any(|times| *times > 1) {
            return Err(self.at(
                &"several records have the same key as a replayed one; choose a unique `sink.key` and run again",
            ));
        }
        let mut new: Vec<usize> = rows.values().copied().filter(|row| !times.contains_key(row)).collect();
        new.sort_unstable();
        if let (RowsBy::Number, Some(row)) = (&self.by, new.first()) {
            return Err(self.at(&format!("it has no row {}; run the pipeline again", batch.record(*row) + 1)));
        }
        put.inserted += new.len() as u64;
        for row in new {
            changes.added.push(self.text(batch, row, None).map_err(|e| self.at(&e))?);
        }
        Ok(changes)
    }
}

impl Sink for SplicedFile {
    fn saved(&mut self) -> Result<Option<Saved>, SinkError> {
        Ok(None)
    }

    fn standing(&mut self) -> Result<Standing, SinkError> {
        Ok(Standing::default())
    }

    fn put(&mut self, batch: &Batch) -> Result<RowCounts, SinkError> {
        let mut put = RowCounts::default();
        let rules = super::file::FormatLimits::new(&self.schema, self.format);
        let mut rows: HashMap<RowKey, usize> = HashMap::new();
        for row in 0..batch.len() {
            let refused = rules.refuse(batch, row);
            let refused = refused.or_else(|| match self.text(batch, row, None) {
                Err(Error::Problem(problem)) => Some(*problem),
                _ => None,
            });
            if let Some(problem) = refused {
                put.refused.push((row, problem));
                continue;
            }
            match self.key(batch, row)? {
                // Of records with the same key the last one wins.
                Some(key) => put.unchanged += u64::from(rows.insert(key, row).is_some()),
                None => {
                    let problem = Problem::new(Code::CONSTRAINT_VIOLATION, "a field of the key is null");
                    put.refused.push((row, problem));
                }
            }
        }
        self.changes = Some(self.changes(batch, &rows, &mut put)?);
        Ok(put)
    }

    fn commit(&mut self, _: &str, _: &[SeenKey]) -> Result<(), SinkError> {
        let Some(changes) = self.changes.take() else { return Ok(()) };
        if changes.replaced.is_empty() && changes.added.is_empty() {
            return Ok(());
        }
        format::splice(&self.path, self.format, &changes).map_err(|e| SinkError::Fatal(self.at(&e)))
    }

    fn rollback(&mut self) {
        self.changes = None;
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}
