//! Appending to an existing GeoPackage.
//!
//! SQLite's backup copies the file, the copy is changed and then renamed over the file. Readers see the old
//! file until then, and a run that ends early leaves it. Rows are inserted one by one with the triggers of
//! the file, so that every index stays consistent.

use std::path::Path;

use rusqlite::backup::Backup;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use tidegate_core::Code;

use super::ddl::Names;
use super::{functions, quote, read};
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::schema::Schema;
use crate::wkb::Shape;

/// Checkpoints the write-ahead log of a file that is going to be replaced. SQLite would apply a remaining
/// log to the new file and corrupt it.
pub(super) fn settle(path: &Path) -> Result<(), Error> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if !Path::new(&log).exists() {
        return Ok(());
    }
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let settled = db.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get::<_, String>(0));
    if settled.is_ok_and(|mode| mode == "delete") {
        return Ok(());
    }
    let message = "another program has the file open and writes to it; close it first";
    Err(Problem::new(Code::CONFLICT, message).into())
}

/// Copies an existing file over an empty one and opens the copy.
pub(super) fn copy(from: &Path, to: &Path) -> Result<Connection, Error> {
    let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    read::layer_names(&source)?;
    let mut db = Connection::open(to)?;
    Backup::new(&source, &mut db)?.run_to_completion(4096, std::time::Duration::ZERO, None)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    functions::add(&db)?;
    Ok(db)
}

/// An existing layer, and the statement that inserts rows.
pub(super) struct Existing {
    pub(super) names: Names,
    pub(super) insert: String,
    pub(super) srs_id: i32,
    pub(super) shape: Option<Shape>,
}

/// Finds a layer by its name.
pub(super) fn find(
    db: &Connection,
    layer: &str,
    schema: &Schema,
    crs: &Crs,
    key: Option<&str>,
) -> Result<Option<Existing>, Error> {
    let conflict = |message: String| Err(Error::from(Problem::new(Code::CONFLICT, message)));
    let found: Option<(String, String, i64)> = db
        .query_row(
            "SELECT column_name, geometry_type_name, srs_id FROM gpkg_geometry_columns WHERE table_name = ?1",
            [layer],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    let Some((geometry, shape, srs_id)) = found else { return Ok(None) };
    let own = read::crs(db, srs_id)?;
    let same = own.as_ref().is_some_and(|own| own == crs || (own.is_wgs84() && crs.is_wgs84()));
    if !same {
        let own = own.map_or_else(|| "an unknown system".to_owned(), |own| own.to_string());
        return conflict(format!("the layer {layer:?} is in {own}, not in {crs}; use --to-crs {own}"));
    }
    let mut statement = db.prepare("SELECT name, pk FROM pragma_table_info(?1)")?;
    let columns: Vec<(String, i64)> =
        statement.query_map([layer], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let rowid = columns.iter().find(|(_, pk)| *pk == 1).map_or("rowid", |(name, _)| name.as_str()).to_owned();
    let mut fields = Vec::new();
    for field in schema.fields() {
        let column =
            columns.iter().find(|(name, _)| name.eq_ignore_ascii_case(&field.name) && *name != geometry);
        let Some((column, _)) = column else {
            let known: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
            return conflict(format!(
                "the layer {layer:?} has no field {:?}; it has {}",
                field.name,
                known.join(", ")
            ));
        };
        fields.push(column.clone());
    }
    let names = Names { table: layer.to_owned(), key: rowid, geometry, fields };
    if let Some(key) = key {
        unique(db, layer, key)?;
    }
    let insert = names.insert_row(key)?;
    let shape = Shape::ALL.into_iter().find(|known| known.upper_name().eq_ignore_ascii_case(&shape));
    let srs_id = i32::try_from(srs_id).unwrap_or(-1);
    Ok(Some(Existing { names, insert, srs_id, shape }))
}

/// Adds a unique index on the key.
pub(super) fn unique(db: &Connection, layer: &str, key: &str) -> Result<(), Error> {
    let sql = format!(
        "CREATE UNIQUE INDEX IF NOT EXISTS {} ON {} ({})",
        quote(&format!("{layer}_{key}_key"))?,
        quote(layer)?,
        quote(key)?
    );
    db.execute_batch(&sql).map_err(|e| {
        let message = format!("{key:?} cannot be the key of the layer {layer:?}: {e}");
        Problem::new(Code::CONFLICT, message).into()
    })
}
