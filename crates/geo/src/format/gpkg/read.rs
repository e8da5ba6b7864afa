//! Reading a GeoPackage.
//!
//! The file is not trusted. It is opened read-only, with SQLite's defensive mode on and its trusted schema
//! off (so that a view or trigger cannot call functions with side effects); no other file can be attached,
//! and a query that takes too long for one batch is interrupted. Names from the file are always quoted.
//! Geometries are checked like any other well-known binary.
//!
//! Rows of a table are read in pages by their primary key, so no statement stays open between batches. A view has
//! no key (`view`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row};
use tidegate_core::Code;

use super::quote;
use super::view::{ViewBounds, ViewQuery, ViewReader};
use crate::batch::{Batch, Span};
use crate::column::Value;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::format::{Layer, Reader, Rejected};
use crate::limits::RecordLimits;
use crate::schema::{Kind, Schema};
use crate::wkb::Shape;

const STEPS_BETWEEN_CHECKS: i32 = 100_000;
pub(super) const ROWS_PER_BATCH: usize = 4096;
/// Size of a batch in bytes at which it ends early.
const BATCH_LEN_MAX: usize = 16 << 20;
/// Largest text, blob or row of a layer, in bytes.
const VALUE_LEN_MAX: i32 = 64 << 20;
/// Largest value of the metadata tables, and largest sum of all layer names, in bytes.
const WORDS_LEN_MAX: i32 = 1 << 20;

/// A layer of a GeoPackage being read.
pub struct GpkgReader {
    file: GuardedFile,
    layer: Layer,
    select: String,
    next_key: i64,
    record: u64,
    ended: bool,
}

/// An untrusted file.
pub(super) struct GuardedFile {
    pub(super) db: Connection,
    /// The instructions since this was set to 0; a query is interrupted when there are too many.
    pub(super) steps: Arc<AtomicU64>,
    pub(super) steps_max: u64,
}

/// Opens an untrusted file.
fn open_guarded(path: &Path, steps_max: u64) -> Result<GuardedFile, Error> {
    let mut db = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    db.set_limit(Limit::SQLITE_LIMIT_LENGTH, WORDS_LEN_MAX)?;
    db.authorizer(Some(|context: rusqlite::hooks::AuthContext<'_>| match context.action {
        AuthAction::Select
        | AuthAction::Read { .. }
        | AuthAction::Function { .. }
        | AuthAction::Recursive => Authorization::Allow,
        AuthAction::Pragma { pragma_name: "table_info", .. } => Authorization::Allow,
        _ => Authorization::Deny,
    }))?;
    let steps = Arc::new(AtomicU64::new(0));
    let counted = steps.clone();
    db.progress_handler(
        STEPS_BETWEEN_CHECKS,
        Some(move || {
            let by = STEPS_BETWEEN_CHECKS.unsigned_abs().into();
            counted.fetch_add(by, Ordering::Relaxed) > steps_max
        }),
    )?;
    Ok(GuardedFile { db, steps, steps_max })
}

/// The error of a query: one that was interrupted says why.
pub(super) fn query_error(e: rusqlite::Error, layer: &str, steps_max: u64) -> Error {
    if e.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
        let message = format!(
            "the next row of the layer {layer} takes more than {steps_max} instructions of the query; it may have no end (`limits.query_steps`)"
        );
        return Problem::new(Code::LIMIT_EXCEEDED, message).into();
    }
    e.into()
}

/// The names of the layers of features in a file.
///
/// # Errors
/// If the file is not a GeoPackage.
pub fn layers(path: &Path) -> Result<Vec<String>, Error> {
    layer_names(&open_guarded(path, RecordLimits::default().query_steps_max)?.db)
}

pub(super) fn layer_names(db: &Connection) -> Result<Vec<String>, Error> {
    let sql = "SELECT c.table_name FROM gpkg_contents c JOIN gpkg_geometry_columns g USING (table_name)
               WHERE c.data_type = 'features' ORDER BY c.rowid";
    let mut statement = db.prepare(sql).map_err(|e| not_a_geopackage(&e))?;
    let mut names: Vec<String> = Vec::new();
    let mut len = 0;
    for name in statement.query_map([], |row| row.get::<_, String>(0))? {
        let name = name?;
        len += name.len() + size_of::<String>();
        if len > WORDS_LEN_MAX as usize {
            return Err(Problem::new(Code::CORRUPTED_HEADER, "the list of layers is longer than 1 MB").into());
        }
        names.push(name);
    }
    Ok(names)
}

fn not_a_geopackage(e: &rusqlite::Error) -> Error {
    Problem::new(Code::CORRUPTED_HEADER, format!("the file is not a GeoPackage: {e}")).into()
}

/// Opens a layer; the first one if none is named.
///
/// # Errors
/// If the file is not a GeoPackage or has no such layer.
pub fn open(path: &Path, layer: Option<&str>, limits: &RecordLimits) -> Result<Box<dyn Reader>, Error> {
    let file = open_guarded(path, limits.query_steps_max)?;
    let db = &file.db;
    let names = layer_names(db)?;
    let name = match layer {
        Some(name) => names.iter().find(|known| known.as_str() == name),
        None => names.first(),
    };
    let Some(name) = name.cloned() else {
        let message = format!("no such layer; the file has {names:?}");
        return Err(Problem::new(Code::NOT_FOUND, message).into());
    };
    let (geometry, shape, srs_id): (String, String, i64) = db.query_row(
        "SELECT column_name, geometry_type_name, srs_id FROM gpkg_geometry_columns WHERE table_name = ?1",
        [&name],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    // The limit holds for a whole row of a table, but for each value of a view, and all of those are
    // in memory at once.
    let kind = "SELECT count(*) FROM sqlite_schema WHERE name = ?1 AND type = 'view'";
    let is_view = db.query_row(kind, [&name], |row| row.get::<_, i64>(0))? > 0;
    let columns = LayerColumns::of(db, &name, &geometry, is_view)?;
    let schema = columns.schema(&shape);
    let crs = crs(db, srs_id)?;
    let values = if is_view { i32::try_from(schema.fields().len() + 2).unwrap_or(i32::MAX) } else { 1 };
    db.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_LEN_MAX / values)?;
    let schema = Arc::new(schema);
    let layer = Layer { name: name.clone(), schema: schema.clone(), crs, records: None };
    if is_view {
        let (select, bounds) = (columns.select_all()?, ViewBounds::of(path, limits)?);
        return Ok(Box::new(ViewReader::new(layer, ViewQuery { file, layer: name, schema, select, bounds })));
    }
    let select = columns.select_page()?;
    Ok(Box::new(GpkgReader { file, layer, select, next_key: i64::MIN, record: 0, ended: false }))
}

/// Names of columns of a view that hold the key of a row, as programs write them.
const VIEW_KEYS: [&str; 3] = ["rowid", "fid", "ogc_fid"];

/// The columns of a layer.
struct LayerColumns {
    table: String,
    geometry: String,
    /// The key of a row; a view may have none.
    key: Option<String>,
    /// The other columns, with their declared types.
    fields: Vec<(String, String)>,
}

impl LayerColumns {
    fn of(db: &Connection, table: &str, geometry: &str, is_view: bool) -> Result<LayerColumns, Error> {
        let mut statement = db.prepare("SELECT name, type, pk FROM pragma_table_info(?1)")?;
        let all: Vec<(String, String, i64)> = statement
            .query_map([table], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        let key = if is_view {
            let is_key = |name: &str| VIEW_KEYS.iter().any(|known| name.eq_ignore_ascii_case(known));
            all.iter().find(|(name, ..)| is_key(name)).map(|(name, ..)| name.clone())
        } else {
            let declared = all.iter().find(|(_, _, pk)| *pk == 1).map(|(name, ..)| name.clone());
            Some(declared.unwrap_or_else(|| "rowid".to_owned()))
        };
        let is_field = |(name, _, pk): &(String, String, i64)| {
            *pk == 0 && name != geometry && !(is_view && Some(name) == key.as_ref())
        };
        let fields = all
            .iter()
            .filter(|column| is_field(column))
            .map(|(name, declared, _)| (name.clone(), declared.clone()));
        let fields = fields.collect();
        Ok(LayerColumns { table: table.to_owned(), geometry: geometry.to_owned(), key, fields })
    }

    fn schema(&self, shape: &str) -> Schema {
        let mut schema = Schema::default();
        for (name, declared) in &self.fields {
            schema.add(name.clone(), kind_of(declared));
        }
        schema.shape = Shape::ALL.into_iter().find(|known| known.upper_name().eq_ignore_ascii_case(shape));
        schema
    }

    /// Key, geometry and fields of all rows.
    fn select_all(&self) -> Result<String, Error> {
        let key = self.key.as_deref().map(quote).transpose()?.unwrap_or_else(|| "NULL".to_owned());
        let mut select = format!("SELECT {key}, {}", quote(&self.geometry)?);
        for (name, _) in &self.fields {
            select.push_str(", ");
            select.push_str(&quote(name)?);
        }
        select.push_str(&format!(" FROM {}", quote(&self.table)?));
        Ok(select)
    }

    /// The same for a page of rows by their key.
    fn select_page(&self) -> Result<String, Error> {
        let key = quote(self.key.as_deref().unwrap_or("rowid"))?;
        Ok(format!("{} WHERE {key} >= ?1 ORDER BY {key} LIMIT {ROWS_PER_BATCH}", self.select_all()?))
    }
}

pub(super) fn kind_of(declared: &str) -> Kind {
    let upper = declared.to_ascii_uppercase();
    match upper.split('(').next().unwrap_or_default().trim() {
        "BOOLEAN" => Kind::Bool,
        "TINYINT" | "SMALLINT" | "MEDIUMINT" | "INT" | "INTEGER" | "BIGINT" => Kind::Int,
        "FLOAT" | "DOUBLE" | "REAL" | "NUMERIC" => Kind::Real,
        "DATE" => Kind::Date,
        "DATETIME" => Kind::DateTime,
        "BLOB" => Kind::Bytes,
        _ => Kind::Text,
    }
}

/// The system of a layer: by organisation and code, else by its definition. `srs_id` 0 and -1 are
/// undefined systems.
pub(super) fn crs(db: &Connection, srs_id: i64) -> Result<Option<Crs>, Error> {
    if srs_id <= 0 {
        return Ok(None);
    }
    let (organisation, number, definition): (String, i64, String) = db.query_row(
        "SELECT organization, organization_coordsys_id, definition FROM gpkg_spatial_ref_sys WHERE srs_id = ?1",
        [srs_id],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let by_number = format!("{organisation}:{number}").parse::<Crs>();
    Ok(Some(by_number.or_else(|_| definition.parse::<Crs>())?))
}

impl Reader for GpkgReader {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error> {
        if self.ended {
            return Ok(None);
        }
        self.file.steps.store(0, Ordering::Relaxed);
        let fail = |e: rusqlite::Error| query_error(e, &self.layer.name, self.file.steps_max);
        let mut statement = self.file.db.prepare_cached(&self.select).map_err(fail)?;
        let mut rows = statement.query([self.next_key]).map_err(fail)?;
        let mut batch = Batch::new(self.layer.schema.clone()).from_record(self.record);
        let (mut count, mut full) = (0, false);
        while !full && let Some(row) = rows.next().map_err(fail)? {
            count += 1;
            let key: i64 = row.get(0)?;
            self.next_key = key.saturating_add(1);
            self.record += 1;
            match push(row, key, &mut batch) {
                Ok(()) => {}
                Err(problem) => {
                    let record = self.record - 1;
                    let raw = format!("{{\"fid\":{key}}}").into_bytes();
                    let problems = vec![problem.of_record(record)];
                    rejected.push(Rejected { record, span: Span::default(), raw, problems });
                    batch.go_to_record(self.record);
                }
            }
            full = batch.full_len() >= BATCH_LEN_MAX;
        }
        self.ended = (count < ROWS_PER_BATCH && !full) || self.next_key == i64::MAX;
        Ok((!batch.is_empty() || !self.ended).then_some(batch))
    }
}

pub(super) fn push(row: &Row<'_>, key: i64, batch: &mut Batch) -> Result<(), Problem> {
    let schema = batch.schema().clone();
    let mut values = Vec::with_capacity(schema.fields().len());
    for (at, field) in schema.fields().iter().enumerate() {
        let value = row.get_ref(at + 2).map_err(|e| Problem::new(Code::DATA_EXCEPTION, e.to_string()))?;
        values.push(value_of(value, field.kind).map_err(|problem| problem.under(&field.name))?);
    }
    let geometry = match row.get_ref(1) {
        Ok(ValueRef::Null) => None,
        Ok(ValueRef::Blob(blob)) => Some(body(blob)?),
        _ => return Err(Problem::new(Code::INVALID_GEOMETRY, "the geometry is not a blob")),
    };
    batch.push(geometry, values)?;
    batch.set_id(&key.to_string());
    Ok(())
}

fn value_of(value: ValueRef<'_>, kind: Kind) -> Result<Value<'_>, Problem> {
    Ok(match (value, kind) {
        (ValueRef::Null, _) => Value::Null,
        (ValueRef::Integer(i), Kind::Bool) => Value::Bool(i != 0),
        (ValueRef::Integer(i), _) => Value::Int(i),
        (ValueRef::Real(x), _) => Value::Real(x),
        (ValueRef::Text(text), _) => {
            let text = std::str::from_utf8(text);
            Value::Text(text.map_err(|_| Problem::new(Code::DATA_EXCEPTION, "the text is not UTF-8"))?)
        }
        (ValueRef::Blob(blob), _) => Value::Bytes(blob),
    })
}

/// The well-known binary after the header of a GeoPackage geometry.
///
/// # Errors
/// `INVALID_GEOMETRY` if the header is not one.
pub fn body(blob: &[u8]) -> Result<&[u8], Problem> {
    let broken = |message: &str| Problem::new(Code::INVALID_GEOMETRY, message);
    let [b'G', b'P', _, flags, _, _, _, _, rest @ ..] = blob else {
        return Err(broken("the blob is not GeoPackage binary"));
    };
    let envelope = match flags >> 1 & 7 {
        0 => 0,
        1 => 32,
        2 | 3 => 48,
        4 => 64,
        _ => return Err(broken("the blob has an envelope of an unknown type")),
    };
    rest.get(envelope..).ok_or_else(|| broken("the blob ends within its header"))
}
