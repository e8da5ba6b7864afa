//! Writing a GeoPackage: a new file, or layers and rows into an existing one.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::types::{ToSqlOutput, ValueRef};
use tidegate_core::Code;

use super::super::atomic::Pending;
use super::super::hilbert::Collector;
use super::super::time::{millisecond_text, moment_of};
use super::super::{Mode, Options, Written};
use super::ddl::{APPLICATION_ID, EXTENSIONS, Names, TABLES, USER_VERSION};
use super::existing::{self, Existing};
use super::{functions, rtree};
use crate::batch::Batch;
use crate::bounds::Bounds;
use crate::column::Value;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::schema::{Kind, Schema};
use crate::wkb::{self, Dim, Shape};

/// A GeoPackage being written.
pub struct GpkgWriter {
    db: Connection,
    file: Pending,
    layer: LayerTable,
    last_change: Option<String>,
    blob: Vec<u8>,
    written: Written,
}

/// The layer that rows go to.
struct LayerTable {
    names: Names,
    insert: String,
    /// Type of all geometries, if it is one.
    shape: Option<Shape>,
    srs_id: i32,
    rows: Rows,
    /// Dimensions that some rows have, and those that all rows have.
    dims: Option<(Dim, Dim)>,
    index: Collector,
    /// Index of the key field, which must not be null.
    key: Option<usize>,
}

/// How rows are inserted.
enum Rows {
    /// In bulk, with the index packed at the end. The id of the last row.
    Bulk(i64),
    /// One by one, with triggers. Their bounding box.
    Single(Option<Bounds>),
}

impl GpkgWriter {
    /// Opens a new file with one layer, or a copy of an existing one (see [`Mode`]).
    ///
    /// # Errors
    /// If the coordinate reference system has no numeric code, the file cannot be created, or the existing
    /// layer has another schema.
    pub fn create(
        path: &Path,
        schema: &Arc<Schema>,
        crs: &Crs,
        options: &Options,
    ) -> Result<GpkgWriter, Error> {
        existing::settle(path)?;
        let file = Pending::new(path)?;
        let exists = options.mode != Mode::New && path.exists();
        let db = if exists { existing::copy(path, file.path())? } else { Connection::open(file.path())? };
        db.execute_batch(
            "PRAGMA page_size = 4096; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
             PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY;",
        )?;
        if !exists {
            db.pragma_update(None, "application_id", APPLICATION_ID)?;
            db.pragma_update(None, "user_version", USER_VERSION)?;
            functions::add(&db)?;
        }
        db.execute_batch("BEGIN")?;
        if !exists {
            db.execute_batch(TABLES)?;
        }
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer");
        let layer =
            LayerTable::begin(&db, options.layer.as_deref().unwrap_or(stem), schema, crs, &options.mode)?;
        let last_change = options.last_change.clone();
        Ok(GpkgWriter { db, file, layer, last_change, blob: Vec::new(), written: Written::default() })
    }
}

impl LayerTable {
    /// Finds or creates a layer.
    fn begin(
        db: &Connection,
        name: &str,
        schema: &Schema,
        crs: &Crs,
        mode: &Mode,
    ) -> Result<LayerTable, Error> {
        let key = match mode {
            Mode::Upsert(key) => Some(key.as_str()),
            Mode::New | Mode::Append => None,
        };
        let place = |key: &str| schema.fields().iter().position(|f| f.name.eq_ignore_ascii_case(key));
        let key_at = key.and_then(place);
        if let (Some(key), None) = (key, key_at) {
            let message = format!("the key field {key:?} does not exist");
            return Err(Problem::new(Code::SCHEMA_MISMATCH, message).under(key).into());
        }
        if let Some(found) = existing::find(db, name, schema, crs, key)? {
            if *mode == Mode::New {
                let message = format!("the layer {name:?} exists already");
                return Err(Problem::new(Code::CONFLICT, message).into());
            }
            let Existing { names, insert, srs_id, shape } = found;
            let rows = Rows::Single(None);
            return Ok(LayerTable {
                names,
                insert,
                shape,
                srs_id,
                rows,
                dims: None,
                index: Collector::new(),
                key: key_at,
            });
        }
        let srs_id = super::srs_id(crs)?;
        let names = Names::new(name, schema);
        db.execute_batch(&names.create_table(schema)?)?;
        super::add_system(db, crs)?;
        let mut layer = LayerTable {
            insert: names.insert()?,
            names,
            shape: schema.shape,
            srs_id,
            rows: Rows::Bulk(0),
            dims: None,
            index: Collector::new(),
            key: key_at,
        };
        if let Some(column) = key_at.and_then(|at| layer.names.fields.get(at)).cloned() {
            // Keys may repeat within one run, so rows are inserted one by one.
            existing::unique(db, &layer.names.table, &column)?;
            layer.describe(db, None, schema.dim)?;
            layer.make_index(db)?;
            db.execute_batch(&layer.names.triggers()?)?;
            layer.insert = layer.names.insert_row(Some(&column))?;
            layer.rows = Rows::Single(None);
        }
        Ok(layer)
    }

    /// Completes the layer.
    fn end(&mut self, db: &Connection, last_change: Option<&str>, near: &Path) -> Result<(), Error> {
        match self.rows {
            Rows::Bulk(_) => {
                self.describe(db, last_change, Dim::Xy)?;
                self.make_index(db)?;
                let index = std::mem::replace(&mut self.index, Collector::new());
                rtree::pack(index, db, &self.names.rtree(), near)?;
                db.execute_batch(&self.names.triggers()?)?;
            }
            Rows::Single(added) => {
                db.execute(
                    "UPDATE gpkg_contents SET last_change = coalesce(?2, strftime('%Y-%m-%dT%H:%M:%fZ','now')),
                     min_x = min(coalesce(min_x, ?3), coalesce(?3, min_x)), min_y = min(coalesce(min_y, ?4), coalesce(?4, min_y)),
                     max_x = max(coalesce(max_x, ?5), coalesce(?5, max_x)), max_y = max(coalesce(max_y, ?6), coalesce(?6, max_y))
                     WHERE table_name = ?1",
                    (
                        &self.names.table,
                        last_change,
                        added.map(|b| b.min_x),
                        added.map(|b| b.min_y),
                        added.map(|b| b.max_x),
                        added.map(|b| b.max_y),
                    ),
                )?;
            }
        }
        Ok(())
    }

    fn make_index(&self, db: &Connection) -> Result<(), Error> {
        let name = super::quote(&self.names.rtree())?;
        db.execute_batch(&format!("CREATE VIRTUAL TABLE {name} USING rtree(id, minx, maxx, miny, maxy)"))?;
        Ok(())
    }

    /// Writes the metadata of the layer.
    fn describe(&self, db: &Connection, last_change: Option<&str>, dim: Dim) -> Result<(), Error> {
        let bounds = self.index.total();
        let (table, column) = (&self.names.table, &self.names.geometry);
        db.execute(
            "INSERT INTO gpkg_contents VALUES (?1, 'features', ?1, '',
             coalesce(?2, strftime('%Y-%m-%dT%H:%M:%fZ','now')), ?3, ?4, ?5, ?6, ?7)",
            (
                table,
                last_change,
                bounds.map(|b| b.min_x),
                bounds.map(|b| b.min_y),
                bounds.map(|b| b.max_x),
                bounds.map(|b| b.max_y),
                self.srs_id,
            ),
        )?;
        let shape = self.shape.map_or("GEOMETRY", Shape::upper_name);
        let (some, all) = self.dims.unwrap_or((dim, Dim::Xy));
        let (z, m) = (allowed(some.has_z(), all.has_z()), allowed(some.has_m(), all.has_m()));
        db.execute(
            "INSERT INTO gpkg_geometry_columns VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (table, column, shape, self.srs_id, z, m),
        )?;
        // An existing GeoPackage without extensions lacks the table.
        db.execute_batch(EXTENSIONS)?;
        db.execute(
            "INSERT INTO gpkg_extensions VALUES (?1, ?2, 'gpkg_rtree_index',
             'http://www.geopackage.org/spec120/#extension_rtree', 'write-only')",
            (table, column),
        )?;
        Ok(())
    }

    /// Adds the bounds of a row to the index or to the extent.
    fn saw(&mut self, row: i64, bounds: Bounds, near: &Path) -> Result<(), Error> {
        match &mut self.rows {
            Rows::Bulk(_) => self.index.push(row, bounds, near)?,
            Rows::Single(all) => *all = Some(all.map_or(bounds, |all| all.union(bounds))),
        }
        Ok(())
    }
}

impl super::super::Writer for GpkgWriter {
    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let layer = &mut self.layer;
        let mut insert = self.db.prepare_cached(&layer.insert)?;
        for row in 0..batch.len() {
            self.written.features += 1;
            let number = match &mut layer.rows {
                Rows::Bulk(last) => {
                    *last += 1;
                    Some(*last)
                }
                Rows::Single(_) => None,
            };
            insert.raw_bind_parameter(1, number)?;
            match batch.geometry(row) {
                Some(wkb) => {
                    let (shape, dim) = wkb::head(wkb).unwrap_or((Shape::GeometryCollection, Dim::Xy));
                    if let Some(only) = layer.shape.filter(|only| *only != shape) {
                        return Err(wrong_shape(shape, only).of_record(batch.record(row)).into());
                    }
                    layer.dims = Some(layer.dims.map_or((dim, dim), |(some, all)| {
                        (some.union(dim), Dim::new(all.has_z() && dim.has_z(), all.has_m() && dim.has_m()))
                    }));
                    let bounds = batch.bounds(row);
                    geometry_blob(wkb, shape, bounds, layer.srs_id, &mut self.blob);
                    insert.raw_bind_parameter(2, self.blob.as_slice())?;
                    if let Some(bounds) = bounds {
                        layer.saw(number.unwrap_or_default(), bounds, self.file.path())?;
                    }
                }
                None => insert.raw_bind_parameter(2, rusqlite::types::Null)?,
            }
            for (at, column) in batch.columns().iter().enumerate() {
                let value = column.get(row);
                if layer.key == Some(at) && value == Value::Null {
                    let problem =
                        Problem::new(Code::SCHEMA_MISMATCH, "a feature has no value in the key field");
                    return Err(problem.of_record(batch.record(row)).into());
                }
                insert.raw_bind_parameter(at + 3, sql_value(value, kind_at(batch, at)))?;
            }
            insert.raw_execute()?;
        }
        Ok(())
    }

    fn next_layer(&mut self, schema: &Arc<Schema>, crs: &Crs, options: &Options) -> Result<(), Error> {
        self.layer.end(&self.db, self.last_change.as_deref(), self.file.path())?;
        let name = options.layer.as_deref().unwrap_or("layer");
        self.layer = LayerTable::begin(&self.db, name, schema, crs, &options.mode)?;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written, Error> {
        self.layer.end(&self.db, self.last_change.as_deref(), self.file.path())?;
        self.db.execute_batch("COMMIT")?;
        self.db.close().map_err(|(_, e)| e)?;
        self.file.commit()?;
        Ok(self.written)
    }
}

/// The value of `z` and `m` in `gpkg_geometry_columns`: 0 prohibited, 1 mandatory, 2 optional.
pub(super) fn allowed(some: bool, all: bool) -> i32 {
    match (some, all) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => 2,
    }
}

pub(super) fn wrong_shape(shape: Shape, only: Shape) -> Problem {
    let hint = if shape.multi() == only { "; promote shapes to their multi" } else { "" };
    let message = format!("a layer of {} cannot hold a {}{hint}", only.name(), shape.name());
    Problem::new(Code::SCHEMA_MISMATCH, message)
}

/// The type of a field of a batch.
pub(super) fn kind_at(batch: &Batch, at: usize) -> Kind {
    batch.schema().fields().get(at).map_or(Kind::Text, |field| field.kind)
}

/// A value for SQLite. A datetime with a UTC offset is written as the standard requires, in UTC with
/// milliseconds. Without an offset it is written with milliseconds and without `Z`, which GDAL reads as
/// local time. One that is finer than a millisecond stays as it is: rounding would lose digits.
pub(super) fn sql_value(value: Value<'_>, kind: Kind) -> ToSqlOutput<'_> {
    if let (Value::Text(text), Kind::DateTime) = (value, kind)
        && let Some((micros, utc)) = moment_of(text)
        && micros % 1000 == 0
    {
        return ToSqlOutput::Owned(rusqlite::types::Value::Text(millisecond_text(micros / 1000, utc)));
    }
    ToSqlOutput::Borrowed(match value {
        Value::Null => ValueRef::Null,
        Value::Bool(b) => ValueRef::Integer(i64::from(b)),
        Value::Int(i) => ValueRef::Integer(i),
        Value::Real(x) => ValueRef::Real(x),
        Value::Text(text) | Value::Json(text) => ValueRef::Text(text.as_bytes()),
        Value::Bytes(bytes) => ValueRef::Blob(bytes),
    })
}

/// The GeoPackage header and the geometry. Points have no envelope: it would repeat their position.
pub(super) fn geometry_blob(
    wkb: &[u8],
    shape: Shape,
    bounds: Option<Bounds>,
    srs_id: i32,
    out: &mut Vec<u8>,
) {
    const LITTLE_ENDIAN: u8 = 1;
    const ENVELOPE_XY: u8 = 1 << 1;
    const EMPTY: u8 = 1 << 4;
    let envelope = bounds.filter(|_| shape != Shape::Point);
    let flags = LITTLE_ENDIAN
        | if envelope.is_some() { ENVELOPE_XY } else { 0 }
        | if bounds.is_none() { EMPTY } else { 0 };
    out.clear();
    out.extend_from_slice(&[b'G', b'P', 0, flags]);
    out.extend_from_slice(&srs_id.to_le_bytes());
    if let Some(b) = envelope {
        wkb::write::position(out, &[b.min_x, b.max_x, b.min_y, b.max_y]);
    }
    out.extend_from_slice(wkb);
}
