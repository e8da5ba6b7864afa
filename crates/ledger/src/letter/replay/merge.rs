//! Updates rows in an existing file.
//!
//! The file is read, rows are replaced or appended, and the new file replaces the old one
//! atomically. A reader sees one or the other, and the same update applied twice gives the same
//! file.

use super::ReplayError;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use tidegate_geo::crs::Transform;
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::format::{self, Options};
use tidegate_geo::mapping::Owned;
use tidegate_geo::{Batch, Crs, Kind, Schema, Value};

/// Selects a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RowSelector {
    /// By its number, from 1.
    Row(u64),
    /// By a field and its text.
    Key(String, String),
}

/// The new content of a row.
#[derive(Clone, Debug)]
pub struct Update {
    /// The row to replace or add.
    pub at: RowSelector,
    /// Its geometry, as well-known binary.
    pub wkb: Option<Vec<u8>>,
    /// The coordinate reference system of the geometry, if it differs from the file's.
    pub crs: Option<String>,
    /// Its fields by name; fields that the file does not have are ignored.
    pub values: Vec<(String, Owned)>,
}

/// Checks that the file can be written.
///
/// # Errors
/// The reason why not.
pub fn writable(path: &Path) -> Result<(), ReplayError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let probe = dir.join(format!(".tidegate-preflight-{}", std::process::id()));
    std::fs::write(&probe, b"").map_err(|source| ReplayError::Directory { path: dir.to_owned(), source })?;
    // A probe file left behind does no harm.
    let _ = std::fs::remove_file(&probe);
    match format::Format::of_path(path) {
        Some(_) => Ok(()),
        None => Err(ReplayError::UnknownFormat(path.to_owned())),
    }
}

/// Which of these rows the file contains.
///
/// # Errors
/// When it cannot be read.
pub fn holds(path: &Path, rows: &[RowSelector]) -> Result<Vec<bool>, ReplayError> {
    let at = |e: tidegate_geo::Error| ReplayError::output(path, e);
    let mut reader = format::open(path, &ReadOptions::default()).map_err(at)?;
    let mut missing: std::collections::HashSet<&RowSelector> = rows.iter().collect();
    let mut number = 0;
    while let Some(batch) = reader.next_batch(&mut Vec::new()).map_err(at)? {
        for row in 0..batch.len() {
            number += 1;
            missing.remove(&RowSelector::Row(number));
            for (i, field) in batch.schema().fields().iter().enumerate() {
                if let Value::Text(text) = batch.value(row, i) {
                    missing.remove(&RowSelector::Key(field.name.to_string(), text.to_owned()));
                }
            }
        }
    }
    Ok(rows.iter().map(|row| !missing.contains(row)).collect())
}

/// Writes rows into a file; returns the number of rows it has now.
///
/// # Errors
/// When the file cannot be read or written. It is then unchanged.
pub fn merge(path: &Path, updates: &[Update]) -> Result<u64, ReplayError> {
    let at = |e: tidegate_geo::Error| ReplayError::output(path, e);
    if updates.is_empty() {
        return Ok(0);
    }
    let mut by: HashMap<&RowSelector, &Update> = updates.iter().map(|u| (&u.at, u)).collect();
    let mut schema = Schema::default();
    let mut crs = Crs::wgs84();
    let mut layer = None;
    let mut batches = Vec::new();
    if path.exists() {
        let mut reader = format::open(path, &ReadOptions::default()).map_err(at)?;
        schema = Schema::clone(&reader.layer().schema);
        crs = reader.layer().crs.clone().unwrap_or(crs);
        layer = Some(reader.layer().name.clone());
        let mut rejected = Vec::new();
        while let Some(batch) = reader.next_batch(&mut rejected).map_err(at)? {
            batches.push(batch);
        }
        if let Some(first) = rejected.first() {
            return Err(ReplayError::Record { path: path.to_owned(), record: first.record });
        }
    } else {
        for (name, value) in updates.iter().flat_map(|u| &u.values) {
            if schema.position(name).is_none() {
                schema.add(name.clone(), value.kind());
            }
        }
    }
    // A replaced row may have another geometry type than the file had.
    schema.shape = None;
    let schema = Arc::new(schema);
    let options = Options { layer, ..Options::default() };
    let mut writer = format::create(path, &schema, &crs, &options).map_err(at)?;
    let mut number = 0;
    for batch in &batches {
        let mut out = Batch::new(schema.clone());
        for row in 0..batch.len() {
            number += 1;
            let mut found = by.remove(&RowSelector::Row(number));
            for (i, field) in schema.fields().iter().enumerate() {
                if let (None, Value::Text(text)) = (found, batch.value(row, i)) {
                    found = by.remove(&RowSelector::Key(field.name.to_string(), text.to_owned()));
                }
            }
            match found {
                Some(update) => push(&mut out, update, &crs, Some((batch, row)))?,
                None => {
                    let values = (0..schema.fields().len()).map(|i| batch.value(row, i));
                    out.push(batch.geometry(row), values).map_err(|e| at(e.into()))?;
                }
            }
            if let Some(id) = batch.id(row) {
                out.set_id(id);
            }
        }
        writer.write(&out).map_err(at)?;
    }
    let mut out = Batch::new(schema.clone());
    for update in updates.iter().filter(|u| by.contains_key(&u.at)) {
        if let RowSelector::Row(n) = update.at {
            return Err(ReplayError::NoRow { path: path.to_owned(), row: n });
        }
        push(&mut out, update, &crs, None)?;
        number += 1;
    }
    writer.write(&out).map_err(at)?;
    writer.finish().map_err(at)?;
    Ok(number)
}

fn push(
    out: &mut Batch,
    update: &Update,
    crs: &Crs,
    was: Option<(&Batch, usize)>,
) -> Result<(), ReplayError> {
    let mut wkb = update.wkb.clone();
    if let (Some(wkb), Some(from)) = (&mut wkb, update.crs.as_deref().filter(|c| !c.is_empty())) {
        let from = from.parse::<Crs>().map_err(ReplayError::geometry)?;
        if from != *crs && !(from.is_wgs84() && crs.is_wgs84()) {
            let transform = Transform::new(&from, crs).map_err(ReplayError::geometry)?;
            transform.geometry(wkb).map_err(ReplayError::geometry)?;
        }
    }
    let schema = out.schema().clone();
    let fields = schema.fields().iter().enumerate();
    let values: Vec<Owned> = fields
        .map(|(i, field)| match update.values.iter().find(|(name, _)| *name == *field.name) {
            Some((_, value)) => fit(value, field.kind),
            None => was.map_or(Owned::Null, |(batch, row)| batch.value(row, i).into()),
        })
        .collect();
    out.push(wkb.as_deref(), values.iter().map(Owned::value)).map_err(ReplayError::geometry)
}

/// Converts a value to the type of its field; null if it does not fit.
fn fit(value: &Owned, kind: Kind) -> Owned {
    let text = |value: &Owned| match value {
        Owned::Bool(b) => Some(b.to_string()),
        Owned::Int(n) => Some(n.to_string()),
        Owned::Real(x) => Some(x.to_string()),
        Owned::Text(text) | Owned::Json(text) => Some(text.clone()),
        Owned::Null | Owned::Bytes(_) => None,
    };
    match (kind, value) {
        (_, Owned::Null) => Owned::Null,
        (Kind::Bool, Owned::Bool(_)) | (Kind::Int, Owned::Int(_)) | (Kind::Real, Owned::Real(_)) => {
            value.clone()
        }
        (Kind::Real, Owned::Int(n)) => Owned::Real(*n as f64),
        (Kind::Bool, other) => text(other).and_then(|t| t.parse().ok()).map_or(Owned::Null, Owned::Bool),
        (Kind::Int, other) => text(other).and_then(|t| t.parse().ok()).map_or(Owned::Null, Owned::Int),
        (Kind::Real, other) => text(other).and_then(|t| t.parse().ok()).map_or(Owned::Null, Owned::Real),
        (Kind::Json, other) => text(other).map_or(Owned::Null, Owned::Json),
        (Kind::Bytes, other) => other.clone(),
        (_, other) => text(other).map_or(Owned::Null, Owned::Text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, y: f64) -> Option<Vec<u8>> {
        let mut wkb = Vec::new();
        tidegate_geo::wkb::write::point(&mut wkb, &[x, y]);
        Some(wkb)
    }

    fn update(at: RowSelector, n: i64) -> Update {
        let values = vec![("key".into(), Owned::Text("k".into())), ("n".into(), Owned::Int(n))];
        Update { at, wkb: point(n as f64, 0.0), crs: None, values }
    }

    #[test]
    fn a_row_is_replaced_or_added_and_twice_is_once() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.gpkg", "a.geojson", "a.geojsonl", "a.csv", "a.fgb"] {
            let path = dir.path().join(name);
            let key = |k: &str| RowSelector::Key("key".into(), k.into());
            assert_eq!(merge(&path, &[update(key("k"), 1)]).unwrap(), 1, "{name}");
            let once = merge(&path, &[update(key("k"), 2)]).unwrap();
            assert_eq!((once, merge(&path, &[update(key("k"), 2)]).unwrap()), (1, 1), "{name}");
            assert_eq!(merge(&path, &[update(RowSelector::Row(1), 3)]).unwrap(), 1, "{name}");
            assert!(merge(&path, &[update(RowSelector::Row(2), 3)]).is_err());
            let mut reader = format::open(&path, &ReadOptions::default()).unwrap();
            let batch = reader.next_batch(&mut Vec::new()).unwrap().unwrap();
            let n = batch.schema().position("n").unwrap();
            let found = fit(&batch.value(0, n).into(), Kind::Int);
            assert_eq!(
                (batch.len(), found, batch.bounds(0).unwrap().min_x),
                (1, Owned::Int(3), 3.0),
                "{name}"
            );
        }
    }
}
