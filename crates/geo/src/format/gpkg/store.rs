//! A GeoPackage as the sink of a pipeline, which may be killed at any time.
//!
//! [`Writer`](super::Writer) creates a new file that appears when it is complete; this writes into an
//! existing file. Every batch is one transaction, in which the caller also stores its position
//! ([`Store::db`]), so data and position are committed together. SQLite syncs at each commit
//! (`synchronous = FULL`): committed batches survive a power failure.
//!
//! Why a rollback journal and not a write-ahead log: rows are appended, and appended pages need no journal,
//! so they are written once instead of twice; and there is no second file that somebody could forget to
//! copy.
//!
//! A new layer has no spatial index until [`Store::finish`] packs it from the table. An existing index is
//! maintained by its triggers, whose functions are registered (`functions`). See `index`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};
use tidegate_core::Code;

use super::ddl::{APPLICATION_ID, EXTENSIONS, HIDE_OTHERS, Names, TABLES, USER_VERSION};
use super::index::union;
use super::read::kind_of;
use super::write::{allowed, geometry_blob, kind_at, sql_value, wrong_shape};
use super::{ManagedColumns, Upsert, functions, quote};
use crate::batch::Batch;
use crate::bounds::Bounds;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::schema::Schema;
use crate::wkb::{self, Dim, Shape};

/// How rows are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writing {
    /// They are inserted.
    Append,
    /// A row replaces the row with the same key.
    Upsert(Upsert),
}

impl Writing {
    /// Rows are written by the key of these fields.
    #[must_use]
    pub fn upsert(key: Vec<String>) -> Writing {
        Writing::Upsert(Upsert { key, ..Upsert::default() })
    }
}

/// The effect of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landed {
    /// It was inserted.
    Inserted,
    /// It changed an existing row.
    Updated,
    /// It is a new version of an existing record, in a row of its own.
    Versioned,
    /// An equal row existed.
    Unchanged,
}

/// A GeoPackage being written into.
pub struct Store {
    pub(super) db: Connection,
    pub(super) path: PathBuf,
    pub(super) names: Names,
    pub(super) schema: Arc<Schema>,
    pub(super) srs_id: i32,
    pub(super) writing: Writing,
    insert: String,
    /// Statement that looks for the row before an upsert.
    find: Option<String>,
    /// Statement that ends the version that a row replaces.
    close: Option<String>,
    /// Statement that remembers the key of a row.
    track: Option<String>,
    pub(super) blob: Vec<u8>,
    /// Whether the extent is kept with every commit.
    pub(super) keeps_extent: bool,
    /// The bounds of the rows that were written in the open transaction.
    pub(super) written: Option<Bounds>,
}

impl Store {
    /// Opens a file and its layer; creates what is missing.
    ///
    /// # Errors
    /// If the file is not a GeoPackage, its layer does not fit the schema, or the disk fails.
    pub fn open(
        path: &Path,
        layer: &str,
        schema: &Arc<Schema>,
        crs: &Crs,
        writing: Writing,
    ) -> Result<Store, Error> {
        let srs_id = super::srs_id(crs)?;
        let fresh = !path.exists();
        let db = Connection::open(path)?;
        db.busy_timeout(std::time::Duration::from_secs(30))?;
        if fresh {
            db.execute_batch("PRAGMA page_size = 4096")?;
        }
        db.execute_batch("PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = FULL; PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY;")?;
        functions::add(&db)?;
        if db.pragma_query_value(None, "application_id", |row| row.get::<_, i32>(0))? != APPLICATION_ID {
            let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
            if tables > 0 {
                return Err(Problem::new(
                    Code::CORRUPTED_HEADER,
                    "the file is a SQLite database, but not a GeoPackage",
                )
                .into());
            }
            // In one transaction: a killed process leaves an empty database or a complete one.
            db.execute_batch(&format!(
                "BEGIN IMMEDIATE; {TABLES} {EXTENSIONS} {HIDE_OTHERS} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {USER_VERSION}; COMMIT"
            ))?;
        }
        let names = Names::new(layer, schema);
        let mut store = Store {
            db,
            path: path.into(),
            names,
            schema: schema.clone(),
            srs_id,
            writing,
            insert: String::new(),
            find: None,
            close: None,
            track: None,
            blob: Vec::new(),
            keeps_extent: false,
            written: None,
        };
        store.db.execute_batch("BEGIN IMMEDIATE")?;
        let made = store.hide_state().and_then(|()| store.layer(crs));
        store.db.execute_batch(if made.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
        made?;
        store.statements()?;
        Ok(store)
    }

    /// Hides the tables of a pipeline from GDAL's list of layers, unless that would hide others too.
    fn hide_state(&self) -> Result<(), Error> {
        if !has_other_tables(&self.db)? {
            self.db.execute_batch(&format!("{EXTENSIONS} {HIDE_OTHERS}"))?;
        }
        Ok(())
    }

    /// Removes a layer and its index from a file.
    ///
    /// # Errors
    /// If the file is not a GeoPackage, or the disk fails.
    pub fn drop_layer(path: &Path, layer: &str) -> Result<(), Error> {
        let db = Connection::open(path)?;
        functions::add(&db)?;
        db.execute_batch("BEGIN IMMEDIATE")?;
        let column: Option<String> = db
            .query_row(
                "SELECT column_name FROM gpkg_geometry_columns WHERE table_name = ?1",
                [layer],
                |row| row.get(0),
            )
            .optional()?;
        if let Some(column) = column {
            db.execute_batch(&format!(
                "DROP TABLE IF EXISTS {}",
                quote(&format!("rtree_{layer}_{column}"))?
            ))?;
        }
        let has_extensions: bool = db.query_row(
            "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'gpkg_extensions')",
            [],
            |row| row.get(0),
        )?;
        for table in ["gpkg_extensions", "gpkg_geometry_columns", "gpkg_contents"] {
            if table != "gpkg_extensions" || has_extensions {
                db.execute(&format!("DELETE FROM {table} WHERE table_name = ?1"), [layer])?;
            }
        }
        db.execute_batch(&format!("DROP TABLE IF EXISTS {}", quote(layer)?))?;
        db.execute_batch("COMMIT")?;
        db.close().map_err(|(_, e)| e.into())
    }

    /// The database, for state that is committed with the rows.
    #[must_use]
    pub fn db(&self) -> &Connection {
        &self.db
    }

    /// Number of rows in the layer, with those of the open transaction.
    ///
    /// # Errors
    /// If the layer was removed, or on an I/O error.
    pub fn rows(&self) -> Result<u64, Error> {
        super::count(&self.db, &self.names.table)
    }

    /// Creates the layer, or checks the existing one.
    fn layer(&mut self, crs: &Crs) -> Result<(), Error> {
        let table = self.names.table.clone();
        let known: Option<(String, String, i32)> = self
            .db
            .query_row(
                "SELECT column_name, geometry_type_name, srs_id FROM gpkg_geometry_columns WHERE table_name = ?1",
                [&table],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .optional()?;
        match known {
            Some(known) => self.check(&known)?,
            None => self.make(crs)?,
        }
        if let Writing::Upsert(upsert) = &self.writing {
            let columns = self.quoted(&upsert.key)?;
            self.make_versions(upsert, &columns).map_err(|e| match e {
                Error::Sqlite(e)
                    if e.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) =>
                {
                    let message =
                        format!("the layer {table} has rows with equal {columns}, which cannot be the key");
                    Problem::new(Code::CONSTRAINT_VIOLATION, message).into()
                }
                e => e,
            })?;
        }
        Ok(())
    }

    fn make(&mut self, crs: &Crs) -> Result<(), Error> {
        let db = &self.db;
        let (table, column) = (&self.names.table, &self.names.geometry);
        db.execute_batch(&self.names.create_table(&self.schema)?)?;
        super::add_system(db, crs)?;
        db.execute(
            "INSERT INTO gpkg_contents (table_name, data_type, identifier, srs_id) VALUES (?1, 'features', ?1, ?2)",
            (table, self.srs_id),
        )?;
        let shape = self.schema.shape.map_or("GEOMETRY", Shape::upper_name);
        let dim = self.schema.dim;
        db.execute(
            "INSERT INTO gpkg_geometry_columns VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (table, column, shape, self.srs_id, allowed(dim.has_z(), false), allowed(dim.has_m(), false)),
        )?;
        Ok(())
    }

    /// Checks that the existing layer can hold rows of the schema.
    fn check(&mut self, (column, shape, srs_id): &(String, String, i32)) -> Result<(), Error> {
        let table = &self.names.table;
        let refuse = |message: String, help: &str| -> Error {
            Problem::new(Code::SCHEMA_MISMATCH, format!("the layer {table} {message}; {help}")).into()
        };
        if *srs_id != self.srs_id {
            return Err(refuse(
                format!("is in EPSG:{srs_id}, the records are in EPSG:{}", self.srs_id),
                "reproject with a step",
            ));
        }
        let only = Shape::ALL.into_iter().find(|known| known.upper_name().eq_ignore_ascii_case(shape));
        if only.is_some() && only != self.schema.shape {
            let comes = self.schema.shape.map_or("of any shape", Shape::name);
            return Err(refuse(
                format!("holds {shape}, the records are {comes}"),
                "add a step promote_to_multi",
            ));
        }
        let mut statement = self.db.prepare("SELECT name, type, pk FROM pragma_table_info(?1)")?;
        let columns: Vec<(String, String, i64)> = statement
            .query_map([table], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        let mut fields = Vec::new();
        for field in self.schema.fields() {
            let Some((name, declared, _)) =
                columns.iter().find(|(name, _, _)| name.eq_ignore_ascii_case(&field.name))
            else {
                return Err(refuse(
                    format!("has no column {}", field.name),
                    "drop the field or add the column",
                ));
            };
            let kind = kind_of(declared);
            let fits = kind == field.kind
                || matches!(
                    (kind, field.kind),
                    (crate::Kind::Text, crate::Kind::Json) | (crate::Kind::Real, crate::Kind::Int)
                );
            if !fits {
                let message = format!("has a column {name} of type {declared}, the field is {}", field.kind);
                return Err(refuse(message, "coerce the field with a step"));
            }
            fields.push(name.clone());
        }
        let key = columns
            .iter()
            .find(|(_, _, pk)| *pk == 1)
            .map_or("rowid".to_owned(), |(name, _, _)| name.clone());
        drop(statement);
        self.names = Names { table: table.clone(), key, geometry: column.clone(), fields };
        Ok(())
    }

    /// The columns of fields, quoted.
    pub(super) fn quoted(&self, fields: &[String]) -> Result<String, Error> {
        let mut out = Vec::new();
        for field in fields {
            let at = self.schema.position(field);
            let Some(name) = at.and_then(|at| self.names.fields.get(at)) else {
                return Err(Problem::new(
                    Code::SCHEMA_MISMATCH,
                    format!("the key field {field} does not exist"),
                )
                .into());
            };
            out.push(quote(name)?);
        }
        Ok(out.join(", "))
    }

    fn statements(&mut self) -> Result<(), Error> {
        let table = quote(&self.names.table)?;
        let mut all = vec![quote(&self.names.geometry)?];
        for name in &self.names.fields {
            all.push(quote(name)?);
        }
        let columns = all.join(", ");
        let marks = (1..=all.len()).map(|at| format!("?{at}")).collect::<Vec<_>>().join(", ");
        let Writing::Upsert(upsert) = &self.writing else {
            self.insert = format!("INSERT INTO {table} ({columns}) VALUES ({marks})");
            return Ok(());
        };
        let (keys, at) = (self.quoted(&upsert.key)?, &upsert.at);
        let set = all.iter().map(|name| format!("{name} = excluded.{name}")).collect::<Vec<_>>().join(", ");
        let differs =
            all.iter().map(|name| format!("{table}.{name} IS NOT excluded.{name}")).collect::<Vec<_>>();
        let differs = differs.join(" OR ");
        let (own, value, reset, stale, target) = match upsert.managed {
            ManagedColumns::None => ("", String::new(), "", String::new(), ""),
            ManagedColumns::DeletedAt => {
                let stale = format!(" OR {table}.deleted_at IS NOT NULL");
                ("", String::new(), ", deleted_at = NULL", stale, "")
            }
            ManagedColumns::Validity => {
                (", valid_from", format!(", '{at}'"), "", String::new(), " WHERE valid_to IS NULL")
            }
        };
        self.insert = format!(
            "INSERT INTO {table} ({columns}{own}) VALUES ({marks}{value}) ON CONFLICT ({keys}){target} DO UPDATE SET {set}{reset} WHERE {differs}{stale}"
        );
        // Parameter 1 is the geometry, then the fields follow.
        let positions = upsert.key.iter().filter_map(|field| self.schema.position(field));
        let places: Vec<usize> = positions.map(|at| at + 2).collect();
        let same = keys.split(", ").zip(&places).map(|(name, at)| format!("{name} = ?{at}"));
        let same = same.collect::<Vec<_>>().join(" AND ");
        let current = match upsert.managed {
            ManagedColumns::Validity => " AND valid_to IS NULL",
            ManagedColumns::None | ManagedColumns::DeletedAt => "",
        };
        self.find = Some(format!("SELECT 1 FROM {table} WHERE {same}{current}"));
        if upsert.managed == ManagedColumns::Validity {
            let differs = all.iter().zip(1..).map(|(name, at)| format!("{name} IS NOT ?{at}"));
            // A version that this run wrote is corrected, not ended.
            self.close = Some(format!(
                "UPDATE {table} SET valid_to = '{at}' WHERE {same}{current} AND coalesce(valid_from, '') < '{at}' AND ({})",
                differs.collect::<Vec<_>>().join(" OR ")
            ));
        }
        if let Some(name) = &upsert.keys_table {
            let values = places.iter().map(|at| format!("?{at}")).collect::<Vec<_>>().join(", ");
            self.track = Some(format!("INSERT OR IGNORE INTO {} ({keys}) VALUES ({values})", quote(name)?));
        }
        Ok(())
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// If another process is writing, or on an I/O error.
    pub fn begin(&self) -> Result<(), Error> {
        Ok(self.db.execute_batch("BEGIN IMMEDIATE")?)
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// On an I/O error; nothing was then written.
    pub fn commit(&mut self) -> Result<(), Error> {
        if let (Some(bounds), true) = (self.written.take(), self.keeps_extent) {
            self.grow_extent(bounds)?;
        }
        Ok(self.db.execute_batch("COMMIT")?)
    }

    /// Rolls the transaction back.
    pub fn rollback(&mut self) {
        self.written = None;
        // It fails only without a transaction.
        let _ = self.db.execute_batch("ROLLBACK");
    }

    /// Writes one row within the transaction.
    ///
    /// # Errors
    /// `Error::Problem` for a row that the layer cannot hold; other rows are not affected.
    pub fn write(&mut self, batch: &Batch, row: usize) -> Result<Landed, Error> {
        let bounds = batch.bounds(row);
        let landed = self.land(batch, row, bounds)?;
        if landed != Landed::Unchanged {
            self.written = union(self.written, bounds);
        }
        Ok(landed)
    }

    /// Writes one row, whose bounds are known.
    fn land(&mut self, batch: &Batch, row: usize, bounds: Option<Bounds>) -> Result<Landed, Error> {
        let record = batch.record(row);
        let key: Vec<usize> = match &self.writing {
            Writing::Upsert(upsert) => {
                upsert.key.iter().map(|field| self.schema.position(field).unwrap_or(usize::MAX)).collect()
            }
            Writing::Append => Vec::new(),
        };
        if let Some(at) = key.iter().find(|at| batch.value(row, **at) == crate::Value::Null) {
            let problem = Problem::new(Code::CONSTRAINT_VIOLATION, "the key of the sink is null");
            let field = self.schema.fields().get(*at).map_or("", |field| &field.name);
            return Err(problem.under(field).of_record(record).into());
        }
        let values = |at: usize| sql_value(batch.value(row, at), kind_at(batch, at));
        if let Some(track) = &self.track {
            let mut track = self.db.prepare_cached(track)?;
            for at in &key {
                track.raw_bind_parameter(at + 2, values(*at))?;
            }
            track.raw_execute()?;
        }
        let geometry = match batch.geometry(row) {
            Some(wkb) => {
                let (shape, _) = wkb::head(wkb).unwrap_or((Shape::GeometryCollection, Dim::Xy));
                if let Some(only) = self.schema.shape.filter(|only| *only != shape) {
                    return Err(wrong_shape(shape, only).of_record(record).into());
                }
                geometry_blob(wkb, shape, bounds, self.srs_id, &mut self.blob);
                true
            }
            None => false,
        };
        let known = match &self.find {
            Some(find) => {
                let mut find = self.db.prepare_cached(find)?;
                for at in &key {
                    find.raw_bind_parameter(at + 2, values(*at))?;
                }
                find.raw_query().next()?.is_some()
            }
            None => false,
        };
        let write = |sql: &str| -> Result<usize, Error> {
            let mut statement = self.db.prepare_cached(sql)?;
            if geometry {
                statement.raw_bind_parameter(1, self.blob.as_slice())?;
            } else {
                statement.raw_bind_parameter(1, rusqlite::types::Null)?;
            }
            for at in 0..self.schema.fields().len() {
                statement.raw_bind_parameter(at + 2, values(at))?;
            }
            statement.raw_execute().map_err(|e| match e.sqlite_error_code() {
                Some(rusqlite::ErrorCode::ConstraintViolation) => {
                    Error::from(Problem::new(Code::CONSTRAINT_VIOLATION, e.to_string()).of_record(record))
                }
                Some(rusqlite::ErrorCode::TooBig | rusqlite::ErrorCode::TypeMismatch) => {
                    Error::from(Problem::new(Code::DATA_EXCEPTION, e.to_string()).of_record(record))
                }
                _ => e.into(),
            })
        };
        let Some(close) = self.close.as_ref().filter(|_| known) else {
            return Ok(match (known, write(&self.insert)?) {
                (false, _) => Landed::Inserted,
                (true, 0) => Landed::Unchanged,
                (true, _) => Landed::Updated,
            });
        };
        // A version ends only if the next one is written.
        self.db.execute_batch("SAVEPOINT version")?;
        let written = write(close).and_then(|closed| Ok((closed, write(&self.insert)?)));
        if written.is_err() {
            self.db.execute_batch("ROLLBACK TO version")?;
        }
        self.db.execute_batch("RELEASE version")?;
        Ok(match written? {
            (0, 0) => Landed::Unchanged,
            (0, _) => Landed::Updated,
            _ => Landed::Versioned,
        })
    }

    /// Closes the file.
    ///
    /// # Errors
    /// If SQLite cannot close it.
    pub fn close(self) -> Result<(), Error> {
        // Removes the empty journal that the persistent mode leaves.
        self.db.execute_batch("PRAGMA journal_mode = DELETE")?;
        self.db.close().map_err(|(_, e)| e.into())
    }
}

/// Whether the file has tables that are not registered in `gpkg_contents`, besides those of a pipeline. GDAL
/// lists them as layers.
fn has_other_tables(db: &Connection) -> Result<bool, Error> {
    let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view')
               AND name NOT GLOB 'gpkg_*' AND name NOT GLOB 'rtree_*' AND name NOT GLOB 'sqlite_*'
               AND name NOT GLOB 'tidegate_*'
               AND lower(name) NOT IN (SELECT lower(table_name) FROM gpkg_contents))";
    Ok(db.query_row(sql, [], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Kind;
    use crate::{Value, format};

    fn batch(schema: &Arc<Schema>, rows: &[(i64, f64)]) -> Batch {
        let mut batch = Batch::new(schema.clone());
        for (id, x) in rows {
            batch.push_point(*x, 1.0, [Value::Int(*id), Value::Text("a")]).unwrap();
        }
        batch
    }

    fn put(store: &mut Store, batch: &Batch) -> Vec<Landed> {
        store.begin().unwrap();
        let landed = (0..batch.len()).map(|row| store.write(batch, row).unwrap()).collect();
        store.commit().unwrap();
        landed
    }

    /// The tables of a pipeline are no layers, but those of somebody else stay listed.
    #[test]
    fn other_tables_stay_visible() {
        let dir = tempfile::tempdir().unwrap();
        let schema = Arc::new(Schema::new([("id", Kind::Int), ("name", Kind::Text)]).of_shape(Shape::Point));
        for (other, hides) in [("", true), ("CREATE TABLE notes (text TEXT)", false)] {
            let path = dir.path().join(format!("{hides}.gpkg"));
            let mut writer =
                format::create(&path, &schema, &Crs::wgs84(), &format::Options::default()).unwrap();
            writer.write(&batch(&schema, &[(1, 1.0)])).unwrap();
            writer.finish().unwrap();
            Connection::open(&path).unwrap().execute_batch(other).unwrap();
            let layer = hides.to_string();
            let open = || Store::open(&path, &layer, &schema, &Crs::wgs84(), Writing::Append).unwrap();
            open().close().unwrap();
            let sql = "SELECT count(*) FROM gpkg_extensions WHERE extension_name = 'gdal_aspatial'";
            let found: i64 = open().db().query_row(sql, [], |row| row.get(0)).unwrap();
            assert_eq!(found, i64::from(hides), "{other}");
        }
    }

    #[test]
    fn rows_are_upserted_and_the_index_follows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gpkg");
        let schema = Arc::new(Schema::new([("id", Kind::Int), ("name", Kind::Text)]).of_shape(Shape::Point));
        let open =
            || Store::open(&path, "a", &schema, &Crs::wgs84(), Writing::upsert(vec!["id".into()])).unwrap();
        let mut store = open();
        use Landed::{Inserted, Unchanged, Updated};
        assert_eq!(
            put(&mut store, &batch(&schema, &[(1, 1.0), (2, 2.0), (1, 1.0), (2, 3.0)])),
            [Inserted, Inserted, Unchanged, Updated]
        );
        store.finish().unwrap();
        store.close().unwrap();
        // With an index now: the triggers run.
        let mut store = open();
        assert_eq!(put(&mut store, &batch(&schema, &[(2, 50.0), (3, 7.0)])), [Updated, Inserted]);
        let found = |x: f64| -> i64 {
            store
                .db()
                .query_row("SELECT count(*) FROM rtree_a_geom WHERE minx <= ?1 AND maxx >= ?1", [x], |row| {
                    row.get(0)
                })
                .unwrap()
        };
        assert_eq!((found(50.0), found(3.0), found(7.0), found(1.0)), (1, 0, 1, 1));
        let null = {
            let mut batch = Batch::new(schema.clone());
            batch.push_point(0.0, 0.0, [Value::Null, Value::Null]).unwrap();
            batch
        };
        store.begin().unwrap();
        assert!(matches!(store.write(&null, 0), Err(Error::Problem(p)) if p.path == "id"));
        store.rollback();
        store.finish().unwrap();
        store.close().unwrap();
        let mut reader = format::open(&path, &format::geojson::ReadOptions::default()).unwrap();
        assert_eq!(reader.next_batch(&mut Vec::new()).unwrap().unwrap().len(), 3);
        let other = Arc::new(Schema::new([("id", Kind::Text), ("name", Kind::Text)]).of_shape(Shape::Point));
        let refused = Store::open(&path, "a", &other, &Crs::wgs84(), Writing::Append);
        assert!(refused.is_err_and(|e| e.to_string().contains("coerce the field")));
    }

    /// A writer that does not end: whoever reads the file finds every committed row, and no other.
    #[test]
    fn a_kept_index_and_extent_follow_every_commit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gpkg");
        let schema = Arc::new(Schema::new([("id", Kind::Int), ("name", Kind::Text)]).of_shape(Shape::Point));
        let open =
            || Store::open(&path, "a", &schema, &Crs::wgs84(), Writing::upsert(vec!["id".into()])).unwrap();
        let mut store = open();
        // Rows from before are indexed.
        put(&mut store, &batch(&schema, &[(1, 5.0)]));
        store.keep_index().unwrap();
        let reader = Connection::open(&path).unwrap();
        let found = || -> (i64, Option<f64>, Option<f64>) {
            let sql = "SELECT (SELECT count(*) FROM rtree_a_geom), min_x, max_x FROM gpkg_contents WHERE table_name = 'a'";
            reader.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
        };
        assert_eq!(found(), (1, Some(5.0), Some(5.0)));
        put(&mut store, &batch(&schema, &[(2, 7.0), (3, 2.0)]));
        assert_eq!(found(), (3, Some(2.0), Some(7.0)));
        // What is refused or rolled back is not in it.
        let mut refused = Batch::new(schema.clone());
        refused.push_point(90.0, 0.0, [Value::Null, Value::Null]).unwrap();
        store.begin().unwrap();
        assert!(matches!(store.write(&refused, 0), Err(Error::Problem(_))));
        store.commit().unwrap();
        store.begin().unwrap();
        store.write(&batch(&schema, &[(4, 80.0)]), 0).unwrap();
        store.rollback();
        put(&mut store, &batch(&schema, &[(1, 5.0)]));
        assert_eq!(found(), (3, Some(2.0), Some(7.0)));
        // A second writer finds the index, and takes the extent of the first one further.
        let mut second = open();
        second.keep_index().unwrap();
        put(&mut second, &batch(&schema, &[(5, -3.0)]));
        put(&mut store, &batch(&schema, &[(6, 9.0)]));
        assert_eq!(found(), (5, Some(-3.0), Some(9.0)));
        // The end knows that a row has moved.
        put(&mut store, &batch(&schema, &[(6, 1.0)]));
        assert_eq!(found(), (5, Some(-3.0), Some(9.0)));
        store.finish().unwrap();
        assert_eq!(found(), (5, Some(-3.0), Some(7.0)));
    }
}
