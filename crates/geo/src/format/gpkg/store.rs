//! A GeoPackage that a pipeline writes into, batch by batch, and can be killed at any moment.
//!
//! [`Writer`](super::Writer) makes a whole new file that nobody sees before its end; this writes
//! into a file that stays. Every batch is one transaction, in which the caller also keeps its
//! position ([`Store::db`]), so that data and position are there together or not at all. SQLite
//! waits for the disk at each commit (`synchronous = FULL`): what was acknowledged survives a
//! power cut.
//!
//! A journal that is rolled back and not a write-ahead log: rows are appended, and appended pages
//! need no journal, so that they are written once instead of twice; and no second file stays
//! beside the GeoPackage that somebody could forget to copy.
//!
//! A new layer has no spatial index until [`Store::finish`] packs it bottom-up from what the table
//! holds. A layer that has one keeps it right row by row through its triggers, for which this
//! brings the functions (`functions`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};
use tidegate_core::Code;

use super::super::hilbert::Collector;
use super::ddl::{APPLICATION_ID, EXTENSIONS, HIDE_OTHERS, Names, TABLES, USER_VERSION};
use super::read::{body, kind_of};
use super::write::{allowed, geometry_blob, kind_at, sql_value, wrong_shape};
use super::{functions, quote, rtree};
use crate::batch::Batch;
use crate::bounds::Bounds;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::schema::Schema;
use crate::wkb::{self, Dim, Shape};

/// How rows meet what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writing {
    /// They are added.
    Append,
    /// A row whose fields of these names are known takes the place of the known one.
    Upsert(Vec<String>),
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landed {
    /// It is new.
    Inserted,
    /// It changed a known one.
    Updated,
    /// It was there already, exactly so.
    Unchanged,
}

/// A GeoPackage being written into.
pub struct Store {
    db: Connection,
    path: PathBuf,
    names: Names,
    schema: Arc<Schema>,
    srs_id: i32,
    writing: Writing,
    insert: String,
    /// Of rows that were there before an upsert.
    find: Option<String>,
    blob: Vec<u8>,
}

impl Store {
    /// Opens a file and its layer; makes both if they are not there.
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
                    "the file is a database, but no GeoPackage",
                )
                .into());
            }
            // In one transaction: a process that is killed leaves an empty database or a whole one.
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
            blob: Vec::new(),
        };
        store.db.execute_batch("BEGIN IMMEDIATE")?;
        let made = store.layer(crs);
        store.db.execute_batch(if made.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
        made?;
        store.statements()?;
        Ok(store)
    }

    /// Takes a layer out of a file, with its index.
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

    /// The database, for what is to be kept with the rows.
    #[must_use]
    pub fn db(&self) -> &Connection {
        &self.db
    }

    /// Rows in the layer, those of the open transaction included.
    ///
    /// # Errors
    /// If the layer is gone, or the disk fails.
    pub fn rows(&self) -> Result<u64, Error> {
        super::count(&self.db, &self.names.table)
    }

    /// Makes the layer, or checks the one that is there.
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
        if let Writing::Upsert(key) = &self.writing {
            let index = quote(&format!("tidegate_key_{table}"))?;
            let columns = self.quoted(key)?;
            let sql = format!("CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {} ({columns})", quote(&table)?);
            self.db.execute_batch(&sql).map_err(|e| match e.sqlite_error_code() {
                Some(rusqlite::ErrorCode::ConstraintViolation) => {
                    Error::from(Problem::new(Code::CONSTRAINT_VIOLATION, format!("the layer {table} holds rows that agree in {columns}; they cannot be told apart by this key")))
                }
                _ => e.into(),
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

    /// The layer that is there must hold what comes.
    fn check(&mut self, (column, shape, srs_id): &(String, String, i32)) -> Result<(), Error> {
        let table = &self.names.table;
        let refuse = |message: String, help: &str| -> Error {
            Problem::new(Code::SCHEMA_MISMATCH, format!("the layer {table} {message}; {help}")).into()
        };
        if *srs_id != self.srs_id {
            return Err(refuse(
                format!("is in EPSG:{srs_id}, what comes is in EPSG:{}", self.srs_id),
                "reproject with a step",
            ));
        }
        let only = Shape::ALL.into_iter().find(|known| known.upper_name().eq_ignore_ascii_case(shape));
        if only.is_some() && only != self.schema.shape {
            let comes = self.schema.shape.map_or("of any shape", Shape::name);
            return Err(refuse(
                format!("holds {shape}, what comes is {comes}"),
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
                let message = format!("has a column {name} of {declared}, what comes is {}", field.kind);
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
    fn quoted(&self, fields: &[String]) -> Result<String, Error> {
        let mut out = Vec::new();
        for field in fields {
            let at = self.schema.position(field);
            let Some(name) = at.and_then(|at| self.names.fields.get(at)) else {
                return Err(Problem::new(
                    Code::SCHEMA_MISMATCH,
                    format!("the key names {field}, and there is no such field"),
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
        self.insert = format!("INSERT INTO {table} ({columns}) VALUES ({marks})");
        if let Writing::Upsert(key) = &self.writing {
            let keys = self.quoted(key)?;
            let set =
                all.iter().map(|name| format!("{name} = excluded.{name}")).collect::<Vec<_>>().join(", ");
            let differs = all
                .iter()
                .map(|name| format!("{table}.{name} IS NOT excluded.{name}"))
                .collect::<Vec<_>>()
                .join(" OR ");
            self.insert.push_str(&format!(" ON CONFLICT ({keys}) DO UPDATE SET {set} WHERE {differs}"));
            let same = key
                .iter()
                .map(|field| {
                    let at = self.schema.position(field).unwrap_or_default();
                    format!(
                        "{} = ?{}",
                        self.names
                            .fields
                            .get(at)
                            .map_or(Ok(String::new()), |name| quote(name))
                            .unwrap_or_default(),
                        at + 2
                    )
                })
                .collect::<Vec<_>>()
                .join(" AND ");
            self.find = Some(format!("SELECT 1 FROM {table} WHERE {same}"));
        }
        Ok(())
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// If somebody else is writing, or the disk fails.
    pub fn begin(&self) -> Result<(), Error> {
        Ok(self.db.execute_batch("BEGIN IMMEDIATE")?)
    }

    /// Makes what was written since [`Store::begin`] durable.
    ///
    /// # Errors
    /// If the disk fails; nothing was then written.
    pub fn commit(&self) -> Result<(), Error> {
        Ok(self.db.execute_batch("COMMIT")?)
    }

    /// Takes back what was written since [`Store::begin`].
    pub fn rollback(&self) {
        // Without a transaction there is nothing to take back.
        let _ = self.db.execute_batch("ROLLBACK");
    }

    /// Writes one row within the transaction.
    ///
    /// # Errors
    /// `Error::Problem` for a row that the layer cannot hold: the others are not touched by it.
    pub fn write(&mut self, batch: &Batch, row: usize) -> Result<Landed, Error> {
        let record = batch.record(row);
        if let Writing::Upsert(key) = &self.writing {
            for field in key {
                let at = self.schema.position(field).unwrap_or(usize::MAX);
                if batch.value(row, at) == crate::Value::Null {
                    let problem = Problem::new(Code::CONSTRAINT_VIOLATION, "the key of the sink is null");
                    return Err(problem.under(field).of_record(record).into());
                }
            }
        }
        let geometry = match batch.geometry(row) {
            Some(wkb) => {
                let (shape, _) = wkb::head(wkb).unwrap_or((Shape::GeometryCollection, Dim::Xy));
                if let Some(only) = self.schema.shape.filter(|only| *only != shape) {
                    return Err(wrong_shape(shape, only).of_record(record).into());
                }
                geometry_blob(wkb, shape, batch.bounds(row), self.srs_id, &mut self.blob);
                true
            }
            None => false,
        };
        let values = |at: usize| sql_value(batch.value(row, at), kind_at(batch, at));
        let known = match &self.find {
            Some(find) => {
                let mut find = self.db.prepare_cached(find)?;
                if let Writing::Upsert(key) = &self.writing {
                    for field in key {
                        let at = self.schema.position(field).unwrap_or_default();
                        find.raw_bind_parameter(at + 2, values(at))?;
                    }
                }
                find.raw_query().next()?.is_some()
            }
            None => false,
        };
        let mut insert = self.db.prepare_cached(&self.insert)?;
        if geometry {
            insert.raw_bind_parameter(1, self.blob.as_slice())?;
        } else {
            insert.raw_bind_parameter(1, rusqlite::types::Null)?;
        }
        for at in 0..self.schema.fields().len() {
            insert.raw_bind_parameter(at + 2, values(at))?;
        }
        let changed = insert.raw_execute().map_err(|e| match e.sqlite_error_code() {
            Some(rusqlite::ErrorCode::ConstraintViolation) => {
                Error::from(Problem::new(Code::CONSTRAINT_VIOLATION, e.to_string()).of_record(record))
            }
            Some(rusqlite::ErrorCode::TooBig | rusqlite::ErrorCode::TypeMismatch) => {
                Error::from(Problem::new(Code::DATA_EXCEPTION, e.to_string()).of_record(record))
            }
            _ => e.into(),
        })?;
        Ok(match (known, changed) {
            (false, _) => Landed::Inserted,
            (true, 0) => Landed::Unchanged,
            (true, _) => Landed::Updated,
        })
    }

    /// Completes the layer: its bounds, and its spatial index if it has none yet. Can be done again.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.begin()?;
        let done = self.complete();
        match done {
            Ok(()) => self.commit(),
            Err(e) => {
                self.rollback();
                Err(e)
            }
        }
    }

    fn complete(&self) -> Result<(), Error> {
        self.db.execute_batch(EXTENSIONS)?;
        let indexed: bool = self.db.query_row(
            "SELECT EXISTS (SELECT 1 FROM gpkg_extensions WHERE table_name = ?1 AND extension_name = 'gpkg_rtree_index')",
            [&self.names.table],
            |row| row.get(0),
        )?;
        let bounds = if indexed { self.total_of_index()? } else { self.index()? };
        self.db.execute(
            "UPDATE gpkg_contents SET min_x = ?2, min_y = ?3, max_x = ?4, max_y = ?5,
             last_change = strftime('%Y-%m-%dT%H:%M:%fZ','now') WHERE table_name = ?1",
            (
                &self.names.table,
                bounds.map(|b| b.min_x),
                bounds.map(|b| b.min_y),
                bounds.map(|b| b.max_x),
                bounds.map(|b| b.max_y),
            ),
        )?;
        Ok(())
    }

    fn total_of_index(&self) -> Result<Option<Bounds>, Error> {
        let sql =
            format!("SELECT min(minx), min(miny), max(maxx), max(maxy) FROM {}", quote(&self.names.rtree())?);
        Ok(self.db.query_row(&sql, [], |row| {
            let corner = |at| row.get::<_, Option<f64>>(at);
            Ok(match (corner(0)?, corner(1)?, corner(2)?, corner(3)?) {
                (Some(min_x), Some(min_y), Some(max_x), Some(max_y)) => {
                    Some(Bounds { min_x, min_y, max_x, max_y })
                }
                _ => None,
            })
        })?)
    }

    /// Packs the index out of what the table holds.
    fn index(&self) -> Result<Option<Bounds>, Error> {
        let name = self.names.rtree();
        self.db.execute_batch(&format!(
            "CREATE VIRTUAL TABLE {} USING rtree(id, minx, maxx, miny, maxy)",
            quote(&name)?
        ))?;
        let mut boxes = Collector::new();
        {
            let (key, geometry) = (quote(&self.names.key)?, quote(&self.names.geometry)?);
            let sql = format!(
                "SELECT {key}, {geometry} FROM {} WHERE {geometry} NOT NULL ORDER BY {key}",
                quote(&self.names.table)?
            );
            let mut statement = self.db.prepare(&sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let blob = row.get_ref(1)?.as_blob().unwrap_or_default();
                if let Some(bounds) = bounds_of(blob) {
                    boxes.push(row.get(0)?, bounds, &self.path)?;
                }
            }
        }
        let total = boxes.total();
        rtree::pack(boxes, &self.db, &name, &self.path)?;
        self.db.execute_batch(&self.names.triggers()?)?;
        self.db.execute(
            "INSERT INTO gpkg_extensions VALUES (?1, ?2, 'gpkg_rtree_index',
             'http://www.geopackage.org/spec120/#extension_rtree', 'write-only')",
            (&self.names.table, &self.names.geometry),
        )?;
        Ok(total)
    }

    /// Closes the file, so that it can be moved.
    ///
    /// # Errors
    /// If SQLite cannot let go of it.
    pub fn close(self) -> Result<(), Error> {
        // The empty journal that this mode keeps is of no use to anybody any more.
        self.db.execute_batch("PRAGMA journal_mode = DELETE")?;
        self.db.close().map_err(|(_, e)| e.into())
    }
}

/// The bounds of GeoPackage binary: from its envelope, or from the geometry if it has none.
fn bounds_of(blob: &[u8]) -> Option<Bounds> {
    if let [b'G', b'P', _, flags, _, _, _, _, rest @ ..] = blob
        && flags & 0b1111 == 0b0011
    {
        let mut corners = rest.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap_or_default()));
        let (min_x, max_x) = (corners.next()?, corners.next()?);
        let (min_y, max_y) = (corners.next()?, corners.next()?);
        return Some(Bounds { min_x, min_y, max_x, max_y });
    }
    Bounds::of_wkb(body(blob).ok()?)
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

    #[test]
    fn rows_are_upserted_and_the_index_follows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gpkg");
        let schema = Arc::new(Schema::new([("id", Kind::Int), ("name", Kind::Text)]).of_shape(Shape::Point));
        let open =
            || Store::open(&path, "a", &schema, &Crs::wgs84(), Writing::Upsert(vec!["id".into()])).unwrap();
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
}
