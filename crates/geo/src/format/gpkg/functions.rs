//! The SQL functions that the triggers of a spatial index call.
//!
//! The standard requires the application that changes rows to register them.

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

use super::read::body;
use crate::bounds::Bounds;
use crate::error::Error;

/// Adds `ST_IsEmpty`, `ST_MinX`, `ST_MaxX`, `ST_MinY` and `ST_MaxY`.
pub(super) fn add(db: &Connection) -> Result<(), Error> {
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    db.create_scalar_function("ST_IsEmpty", 1, flags, |call| {
        let blob = call.get_raw(0).as_blob_or_null().ok().flatten();
        Ok(blob.map(|blob| bounds(blob).is_none()))
    })?;
    type BoundsEdge = fn(Bounds) -> f64;
    let sides: [(&str, BoundsEdge); 4] = [
        ("ST_MinX", |b| b.min_x),
        ("ST_MaxX", |b| b.max_x),
        ("ST_MinY", |b| b.min_y),
        ("ST_MaxY", |b| b.max_y),
    ];
    for (name, side) in sides {
        db.create_scalar_function(name, 1, flags, move |call| {
            let blob = call.get_raw(0).as_blob_or_null().ok().flatten();
            Ok(blob.and_then(bounds).map(side))
        })?;
    }
    Ok(())
}

fn bounds(blob: &[u8]) -> Option<Bounds> {
    let mut wkb = Vec::new();
    crate::wkb::canonicalise(body(blob).ok()?, &mut wkb).ok()?;
    Bounds::of_wkb(&wkb)
}
