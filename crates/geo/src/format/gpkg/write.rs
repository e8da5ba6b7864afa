//! Writing a new GeoPackage.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::types::{ToSqlOutput, ValueRef};
use tidegate_core::Code;

use super::super::atomic::Pending;
use super::super::hilbert::Collector;
use super::super::{Options, Written};
use super::ddl::{APPLICATION_ID, Names, TABLES, USER_VERSION};
use super::rtree;
use crate::batch::Batch;
use crate::bounds::Bounds;
use crate::column::Value;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::schema::Schema;
use crate::wkb::{self, Dim, Shape};

/// A GeoPackage being written.
pub struct Writer {
    db: Connection,
    file: Pending,
    names: Names,
    insert: String,
    schema: Arc<Schema>,
    srs_id: i32,
    /// The dimensions that some rows have, and those that all have.
    dims: Option<(Dim, Dim)>,
    index: Collector,
    last_change: Option<String>,
    blob: Vec<u8>,
    written: Written,
}

impl Writer {
    /// Opens a new file with one layer.
    ///
    /// # Errors
    /// If the reference system has no number, or the file cannot be made.
    pub fn create(path: &Path, schema: &Arc<Schema>, crs: &Crs, options: &Options) -> Result<Writer, Error> {
        let Some(code) = crs.epsg_code().and_then(|code| i32::try_from(code).ok()) else {
            let message = format!("{crs} has no number to stand in a GeoPackage");
            return Err(Problem::new(Code::CRS_NOT_FOUND, message).into());
        };
        let file = Pending::new(path)?;
        let db = Connection::open(file.path())?;
        db.execute_batch(
            "PRAGMA page_size = 4096; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
             PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY;",
        )?;
        db.pragma_update(None, "application_id", APPLICATION_ID)?;
        db.pragma_update(None, "user_version", USER_VERSION)?;
        db.execute_batch("BEGIN")?;
        db.execute_batch(TABLES)?;
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer");
        let names = Names::new(options.layer.as_deref().unwrap_or(stem), schema);
        db.execute_batch(&names.create_table(schema)?)?;
        if code != 4326 {
            db.execute(
                "INSERT INTO gpkg_spatial_ref_sys VALUES (?1, ?2, 'EPSG', ?2, 'undefined', NULL)",
                (crs.entry().map_or_else(|| crs.to_string(), |entry| entry.name), code),
            )?;
        }
        let insert = names.insert()?;
        Ok(Writer {
            db,
            file,
            names,
            insert,
            schema: schema.clone(),
            srs_id: code,
            dims: None,
            index: Collector::new(),
            last_change: options.last_change.clone(),
            blob: Vec::new(),
            written: Written::default(),
        })
    }

    fn describe(&self) -> Result<(), Error> {
        let bounds = self.index.total();
        let (db, table, column) = (&self.db, &self.names.table, &self.names.geometry);
        db.execute(
            "INSERT INTO gpkg_contents VALUES (?1, 'features', ?1, '',
             coalesce(?2, strftime('%Y-%m-%dT%H:%M:%fZ','now')), ?3, ?4, ?5, ?6, ?7)",
            (
                table,
                &self.last_change,
                bounds.map(|b| b.min_x),
                bounds.map(|b| b.min_y),
                bounds.map(|b| b.max_x),
                bounds.map(|b| b.max_y),
                self.srs_id,
            ),
        )?;
        let shape = self.schema.shape.map_or("GEOMETRY", Shape::upper_name);
        let (some, all) = self.dims.unwrap_or_default();
        let (z, m) = (allowed(some.has_z(), all.has_z()), allowed(some.has_m(), all.has_m()));
        db.execute(
            "INSERT INTO gpkg_geometry_columns VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (table, column, shape, self.srs_id, z, m),
        )?;
        db.execute(
            "INSERT INTO gpkg_extensions VALUES (?1, ?2, 'gpkg_rtree_index',
             'http://www.geopackage.org/spec120/#extension_rtree', 'write-only')",
            (table, column),
        )?;
        Ok(())
    }
}

impl super::super::Writer for Writer {
    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut insert = self.db.prepare_cached(&self.insert)?;
        for row in 0..batch.len() {
            self.written.features += 1;
            let key = i64::try_from(self.written.features).unwrap_or(i64::MAX);
            insert.raw_bind_parameter(1, key)?;
            match batch.geometry(row) {
                Some(wkb) => {
                    let (shape, dim) = wkb::head(wkb).unwrap_or((Shape::GeometryCollection, Dim::Xy));
                    if self.schema.shape.is_some_and(|only| only != shape) {
                        return Err(wrong_shape(shape, &self.schema).of_record(batch.record(row)).into());
                    }
                    self.dims = Some(self.dims.map_or((dim, dim), |(some, all)| {
                        (some.union(dim), Dim::new(all.has_z() && dim.has_z(), all.has_m() && dim.has_m()))
                    }));
                    let bounds = batch.bounds(row);
                    geometry_blob(wkb, shape, bounds, self.srs_id, &mut self.blob);
                    insert.raw_bind_parameter(2, self.blob.as_slice())?;
                    if let Some(bounds) = bounds {
                        self.index.push(key, bounds, self.file.path())?;
                    }
                }
                None => insert.raw_bind_parameter(2, rusqlite::types::Null)?,
            }
            for (at, column) in batch.columns().iter().enumerate() {
                insert.raw_bind_parameter(at + 3, ToSqlOutput::Borrowed(sql_value(column.get(row))))?;
            }
            insert.raw_execute()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written, Error> {
        self.describe()?;
        let name = super::quote(&self.names.rtree())?;
        self.db
            .execute_batch(&format!("CREATE VIRTUAL TABLE {name} USING rtree(id, minx, maxx, miny, maxy)"))?;
        let index = std::mem::replace(&mut self.index, Collector::new());
        rtree::pack(index, &self.db, &self.names.rtree(), self.file.path())?;
        self.db.execute_batch(&self.names.triggers()?)?;
        self.db.execute_batch("COMMIT")?;
        self.db.close().map_err(|(_, e)| e)?;
        self.file.commit()?;
        Ok(self.written)
    }
}

/// GeoPackage's word for a dimension: 0 forbidden, 1 always there, 2 there or not.
pub(super) fn allowed(some: bool, all: bool) -> i32 {
    match (some, all) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => 2,
    }
}

pub(super) fn wrong_shape(shape: Shape, schema: &Schema) -> Problem {
    let only = schema.shape.map_or("geometry", Shape::name);
    Problem::new(Code::SCHEMA_MISMATCH, format!("a layer of {only} cannot hold a {}", shape.name()))
}

pub(super) fn sql_value(value: Value<'_>) -> ValueRef<'_> {
    match value {
        Value::Null => ValueRef::Null,
        Value::Bool(b) => ValueRef::Integer(i64::from(b)),
        Value::Int(i) => ValueRef::Integer(i),
        Value::Real(x) => ValueRef::Real(x),
        Value::Text(text) | Value::Json(text) => ValueRef::Text(text.as_bytes()),
        Value::Bytes(bytes) => ValueRef::Blob(bytes),
    }
}

/// The header of GeoPackage binary and the geometry. Points carry no envelope: it would repeat
/// them.
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
