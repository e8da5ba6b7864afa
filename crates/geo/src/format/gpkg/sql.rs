//! The functions that the triggers of a GeoPackage's spatial index call.
//!
//! SQLite does not have them; every program that changes rows of a GeoPackage brings its own.

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::{Connection, Error, Result};

use super::read::body;
use crate::bounds::Bounds;
use crate::wkb;

/// One side of a box.
type Corner = fn(&Bounds) -> f64;

/// Registers `ST_IsEmpty`, `ST_MinX`, `ST_MaxX`, `ST_MinY` and `ST_MaxY`.
pub(super) fn register(db: &Connection) -> Result<()> {
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    db.create_scalar_function("ST_IsEmpty", 1, flags, |context| {
        with_geometry(context, |wkb| i64::from(wkb::is_empty(wkb)))
    })?;
    let corners: [(&str, Corner); 4] = [
        ("ST_MinX", |b| b.min_x),
        ("ST_MaxX", |b| b.max_x),
        ("ST_MinY", |b| b.min_y),
        ("ST_MaxY", |b| b.max_y),
    ];
    for (name, corner) in corners {
        db.create_scalar_function(name, 1, flags, move |context| {
            Ok(with_geometry(context, |wkb| Bounds::of_wkb(wkb).map(|bounds| corner(&bounds)))?.flatten())
        })?;
    }
    Ok(())
}

/// The value of a function of the geometry in the first argument; null for null.
fn with_geometry<T>(context: &Context<'_>, ask: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
    let Ok(blob) = context.get_raw(0).as_blob() else { return Ok(None) };
    let wkb = body(blob).map_err(|problem| Error::UserFunctionError(Box::new(problem)))?;
    let mut canonical = Vec::new();
    wkb::canonicalise(wkb, &mut canonical).map_err(|problem| Error::UserFunctionError(Box::new(problem)))?;
    Ok(Some(ask(&canonical)))
}
