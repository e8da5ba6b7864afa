//! A batch: some features of one schema, in the one form that every step shares.
//!
//! Why columns and opaque well-known binary, and not a feature object with a geometry object:
//! we measured both ways of loading a million polygons. Typed JSON objects cost 2.7 s, a scanner
//! that writes coordinates straight into a byte arena 0.84 s; the rest of the way to an indexed
//! GeoPackage then takes 2.4 s because the bytes are already what the file stores. GeoPackage,
//! GeoParquet, PostGIS and Shapefile tools all speak well-known binary, so most conversions never
//! look inside a geometry. What must look inside can: [`crate::wkb`] walks the bytes in place,
//! bounds and reprojection touch only the coordinates, and validity builds its own short-lived
//! view.
//!
//! Why a fixed schema per batch: a writer can then prepare its statement once. A source whose
//! fields are unknown is read twice, first for the schema (see the GeoJSON reader).
//!
//! The bytes of each record as the source held them stay reachable ([`Batch::origin`]), because a
//! dead letter must show what came in and not what we made of it.

mod reshape;

pub use reshape::Pick;

use std::sync::Arc;

use tidegate_core::Code;

use crate::bounds::Bounds;
use crate::column::{Arena, Column, Value};
use crate::error::Problem;
use crate::schema::Schema;
use crate::wkb;

/// Where a record stood in its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte, counted from the start of the source.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
}

/// Some features of one schema.
#[derive(Clone, Debug)]
pub struct Batch {
    schema: Arc<Schema>,
    geometry: Arena,
    columns: Vec<Column>,
    ids: Vec<Option<Box<str>>>,
    spans: Vec<Span>,
    raw: Arena,
    /// What a GeoJSON feature holds besides what the standard names, as text between commas.
    foreign: Arena,
    /// The number of each row's record in the source.
    records: Vec<u64>,
    next_record: u64,
    /// How many bytes of text and bytes were pushed.
    text_len: usize,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new(schema: Arc<Schema>) -> Batch {
        let columns = schema.fields().iter().map(|field| Column::new(field.kind)).collect();
        Batch {
            schema,
            geometry: Arena::default(),
            columns,
            ids: Vec::new(),
            spans: Vec::new(),
            raw: Arena::default(),
            foreign: Arena::default(),
            records: Vec::new(),
            next_record: 0,
            text_len: 0,
        }
    }

    /// The same batch, whose next row is this record of its source.
    #[must_use]
    pub fn from_record(mut self, record: u64) -> Batch {
        self.next_record = record;
        self
    }

    /// The next row is this record of the source; others in between were rejected.
    pub fn go_to_record(&mut self, record: u64) {
        self.next_record = record;
    }

    /// Counts the records from here on: what was record 0 is then this one.
    pub fn count_from(&mut self, record: u64) {
        self.records.iter_mut().for_each(|n| *n += record);
        self.next_record += record;
    }

    /// The schema.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// How many features.
    #[must_use]
    pub fn len(&self) -> usize {
        self.geometry.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.geometry.is_empty()
    }

    /// Roughly the memory that the values take, to bound a batch by.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.geometry.byte_len()
            + self.raw.byte_len()
            + self.foreign.byte_len()
            + self.len() * 16 * (self.columns.len() + 1)
    }

    /// As [`Batch::byte_len`], with texts and bytes: what a reader may gather is bounded by this, because one
    /// row may hold a text of megabytes.
    #[must_use]
    pub fn full_len(&self) -> usize {
        self.byte_len() + self.text_len
    }

    /// A copy of geometries and values, without what only dead letters and GeoJSON want:
    /// identifiers, foreign members and the source's own bytes.
    #[must_use]
    pub fn bare(&self) -> Batch {
        Batch {
            schema: self.schema.clone(),
            geometry: self.geometry.clone(),
            columns: self.columns.clone(),
            ids: Vec::new(),
            spans: Vec::new(),
            raw: Arena::default(),
            foreign: Arena::default(),
            records: self.records.clone(),
            next_record: self.next_record,
            text_len: self.text_len,
        }
    }

    /// The number of this row's record in the source.
    #[must_use]
    pub fn record(&self, row: usize) -> u64 {
        self.records.get(row).copied().unwrap_or(self.next_record)
    }

    /// The geometry of a row as canonical well-known binary (see [`wkb`]), or `None` if it has none.
    #[must_use]
    pub fn geometry(&self, row: usize) -> Option<&[u8]> {
        let bytes = self.geometry.get(row);
        (!bytes.is_empty()).then_some(bytes)
    }

    /// The geometry of a row, to change its coordinates in place.
    #[must_use]
    pub fn geometry_mut(&mut self, row: usize) -> Option<&mut [u8]> {
        let bytes = self.geometry.get_mut(row);
        (!bytes.is_empty()).then_some(bytes)
    }

    /// The bounds of a row's geometry; `None` without a geometry or with an empty one.
    #[must_use]
    pub fn bounds(&self, row: usize) -> Option<Bounds> {
        self.geometry(row).and_then(Bounds::of_wkb)
    }

    /// One property.
    #[must_use]
    pub fn value(&self, row: usize, field: usize) -> Value<'_> {
        self.columns.get(field).map_or(Value::Null, |column| column.get(row))
    }

    /// The columns, in the order of the schema.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The feature's identifier as its JSON text (`7` or `"a7"`), if the source gave one.
    #[must_use]
    pub fn id(&self, row: usize) -> Option<&str> {
        self.ids.get(row).and_then(|id| id.as_deref())
    }

    /// The foreign members of the feature as the text of JSON members with commas between them; empty
    /// if there are none or they were not asked for.
    #[must_use]
    pub fn foreign(&self, row: usize) -> &str {
        std::str::from_utf8(self.foreign.get(row)).unwrap_or_default()
    }

    /// The bytes of the record as the source held them and their place; empty if the source
    /// keeps none.
    #[must_use]
    pub fn origin(&self, row: usize) -> (Span, &[u8]) {
        (self.spans.get(row).copied().unwrap_or_default(), self.raw.get(row))
    }

    /// Adds a feature. The geometry may be any well-known binary, with or without SRID; it is
    /// checked and stored in canonical form.
    ///
    /// # Errors
    /// A problem with the geometry, a value of the wrong kind, or the wrong number of values. The
    /// batch is then as before.
    pub fn push<'v>(
        &mut self,
        geometry: Option<&[u8]>,
        values: impl IntoIterator<Item = Value<'v>>,
    ) -> Result<(), Problem> {
        self.push_with(
            |out| match geometry {
                Some(bytes) => wkb::canonicalise(bytes, out).map(|_| ()),
                None => Ok(()),
            },
            values,
        )
    }

    /// Adds a feature at a point, the common case of a geocoder.
    ///
    /// # Errors
    /// As [`Batch::push`].
    pub fn push_point<'v>(
        &mut self,
        x: f64,
        y: f64,
        values: impl IntoIterator<Item = Value<'v>>,
    ) -> Result<(), Problem> {
        self.push_with(
            |out| {
                wkb::write::point(out, &[x, y]);
                Ok(())
            },
            values,
        )
    }

    /// Adds a feature whose geometry a function appends as canonical well-known binary; a function
    /// that appends nothing makes a feature without geometry.
    ///
    /// # Errors
    /// As [`Batch::push`].
    pub fn push_with<'v>(
        &mut self,
        geometry: impl FnOnce(&mut Vec<u8>) -> Result<(), Problem>,
        values: impl IntoIterator<Item = Value<'v>>,
    ) -> Result<(), Problem> {
        let row = self.len();
        let record = self.record(row);
        let done = self.geometry.push_with(geometry).and_then(|()| self.push_values(values));
        if done.is_err() {
            self.truncate(row);
        } else {
            self.records.push(record);
            self.next_record = record.saturating_add(1);
        }
        done.map_err(|problem| problem.of_record(record))
    }

    fn push_values<'v>(&mut self, values: impl IntoIterator<Item = Value<'v>>) -> Result<(), Problem> {
        let mut values = values.into_iter();
        for (column, field) in self.columns.iter_mut().zip(self.schema.fields()) {
            let Some(value) = values.next() else {
                return Err(Problem::new(Code::SCHEMA_MISMATCH, "too few values").under(&field.name));
            };
            if let Value::Text(text) | Value::Json(text) = value {
                self.text_len += text.len();
            } else if let Value::Bytes(bytes) = value {
                self.text_len += bytes.len();
            }
            column.push(value).map_err(|problem| problem.under(&field.name))?;
        }
        if values.next().is_some() {
            return Err(Problem::new(Code::SCHEMA_MISMATCH, "more values than fields"));
        }
        Ok(())
    }

    /// Gives the last feature an identifier, as JSON text.
    pub fn set_id(&mut self, id: &str) {
        let rows = self.len();
        self.ids.resize(rows, None);
        if let Some(last) = self.ids.last_mut() {
            *last = Some(id.into());
        }
    }

    /// Gives the last feature foreign members, as the text of JSON members with commas between them.
    pub fn set_foreign(&mut self, members: &str) {
        let before = self.len().saturating_sub(1);
        self.foreign.truncate(before);
        while self.foreign.len() < before {
            self.foreign.push(&[]);
        }
        self.foreign.push(members.as_bytes());
    }

    /// Keeps the source's bytes of the last feature.
    pub fn set_origin(&mut self, span: Span, raw: &[u8]) {
        let before = self.len().saturating_sub(1);
        self.spans.resize(before, Span::default());
        self.spans.push(span);
        self.raw.truncate(before);
        while self.raw.len() < before {
            self.raw.push(&[]);
        }
        self.raw.push(raw);
    }

    /// Removes all but the first `rows` features.
    pub fn truncate(&mut self, rows: usize) {
        self.geometry.truncate(rows);
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
        self.records.truncate(rows);
        self.ids.truncate(rows);
        self.spans.truncate(rows);
        self.raw.truncate(rows);
        self.foreign.truncate(rows);
    }

    /// Removes all features and keeps the room; the next one is this record of the source.
    pub fn clear(&mut self, next_record: u64) {
        self.truncate(0);
        (self.next_record, self.text_len) = (next_record, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Kind;

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::new([("name", Kind::Text), ("n", Kind::Int)]))
    }

    #[test]
    fn a_feature_that_does_not_fit_leaves_the_batch_as_it_was() {
        let mut batch = Batch::new(schema()).from_record(10);
        batch.push_point(1.0, 2.0, [Value::Text("a"), Value::Int(1)]).unwrap();
        let wrong = batch.push_point(1.0, 2.0, [Value::Text("b"), Value::Text("c")]).unwrap_err();
        assert_eq!((wrong.code, wrong.record, wrong.path.as_str()), (Code::SCHEMA_MISMATCH, Some(11), "n"));
        assert!(batch.push_point(1.0, 2.0, [Value::Text("b")]).is_err());
        assert!(batch.push_point(1.0, 2.0, [Value::Null, Value::Null, Value::Null]).is_err());
        assert!(batch.push(Some(&[1, 2, 3]), [Value::Null, Value::Null]).is_err());
        batch.push(None, [Value::Null, Value::Int(2)]).unwrap();
        assert_eq!(batch.len(), 2);
        assert_eq!(batch.columns().iter().map(Column::len).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(batch.value(1, 1), Value::Int(2));
        assert_eq!(batch.geometry(1), None);
        assert_eq!(batch.bounds(0).map(|b| (b.min_x, b.max_y)), Some((1.0, 2.0)));
    }

    #[test]
    fn identifiers_and_origins_are_optional_and_stay_with_their_row() {
        let mut batch = Batch::new(schema());
        batch.push_point(0.0, 0.0, [Value::Null, Value::Null]).unwrap();
        batch.push_point(0.0, 0.0, [Value::Null, Value::Null]).unwrap();
        batch.set_id("\"x\"");
        batch.set_origin(Span { offset: 7, len: 3 }, b"raw");
        assert_eq!((batch.id(0), batch.id(1)), (None, Some("\"x\"")));
        assert_eq!(batch.origin(0), (Span::default(), &b""[..]));
        assert_eq!(batch.origin(1), (Span { offset: 7, len: 3 }, &b"raw"[..]));
        let bare = batch.bare();
        assert_eq!((bare.len(), bare.id(1), bare.origin(1)), (2, None, (Span::default(), &b""[..])));
        assert_eq!((bare.geometry(1), bare.record(1)), (batch.geometry(1), 1));
        batch.count_from(5);
        assert_eq!((batch.record(0), batch.record(1), batch.record(2)), (5, 6, 7));
        batch.clear(2);
        assert_eq!((batch.len(), batch.id(1), batch.record(0)), (0, None, 2));
    }
}
