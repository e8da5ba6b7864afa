//! GeoPackage 1.3: a SQLite file with spatial tables.
//!
//! A new file is written without a journal and without syncs, because it has a hidden name: `atomic`
//! flushes and renames it at the end. The spatial index is not filled row by row (14 times slower when
//! measured) but packed bottom-up when all bounds are known (`rtree`), directly into the shadow tables of
//! SQLite's R*Tree module. The triggers that maintain it are created last, so they do not run for our
//! rows.

mod ddl;
mod existing;
mod functions;
mod index;
mod read;
mod rows;
mod rtree;
mod store;
mod versions;
mod view;
mod write;

pub use read::{GpkgReader, body, layers, open};
pub use rows::hold_any_shape;
pub use store::{Landed, Store, Writing};
pub use versions::{AbsentRows, ManagedColumns, Upsert};
pub use write::GpkgWriter;

use rusqlite::Connection;
use tidegate_core::Code;

use crate::crs::Crs;
use crate::error::{Error, Problem};

/// A quoted identifier. Every name from outside goes through this.
fn quote(name: &str) -> Result<String, Problem> {
    if name.contains('\0') {
        return Err(Problem::new(Code::SCHEMA_MISMATCH, "a name contains a zero byte").under(name));
    }
    Ok(format!("\"{}\"", name.replace('"', "\"\"")))
}

/// Number of rows of a layer.
///
/// # Errors
/// If there is no such layer, or the file cannot be read.
pub fn count(db: &Connection, layer: &str) -> Result<u64, Error> {
    let sql = format!("SELECT count(*) FROM {}", quote(layer)?);
    let rows: i64 = db.query_row(&sql, [], |row| row.get(0))?;
    Ok(rows.unsigned_abs())
}

/// The `srs_id` of a system.
fn srs_id(crs: &Crs) -> Result<i32, Problem> {
    crs.number().and_then(|number| i32::try_from(number).ok()).ok_or_else(|| {
        Problem::new(Code::CRS_NOT_FOUND, format!("{crs} has no numeric code, which a GeoPackage needs"))
    })
}

/// Adds a system to `gpkg_spatial_ref_sys`, if it is missing.
fn add_system(db: &Connection, crs: &Crs) -> Result<(), Error> {
    db.execute(
        "INSERT OR IGNORE INTO gpkg_spatial_ref_sys VALUES (?1, ?2, ?3, ?2, ?4, NULL)",
        (
            crs.entry().map_or_else(|| crs.to_string(), |entry| entry.name),
            srs_id(crs)?,
            crs.organization(),
            crs.esri_wkt().unwrap_or_else(|| "undefined".into()),
        ),
    )?;
    Ok(())
}
