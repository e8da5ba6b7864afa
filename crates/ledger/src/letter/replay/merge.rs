//! Updates rows in an existing file by a key of their own.
//!
//! Only the rows of the updates change. In a text file the bytes of all others stay, in a GeoPackage
//! the rows are written in their place, and a binary file is read and written anew with every other
//! record as it was. A reader sees the old file or the new one, and the same update applied twice
//! gives the same file.

use super::ReplayError;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use tidegate_geo::batch::Span;
use tidegate_geo::crs::Transform;
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::format::gpkg::{Store, Writing, hold_any_shape};
use tidegate_geo::format::{self, Format, Options, Splice};
use tidegate_geo::mapping::Owned;
use tidegate_geo::repair::{Fit, fit as fit_geometry};
use tidegate_geo::{Batch, Crs, Kind, Schema, Value};

/// The new content of a row.
#[derive(Clone, Debug)]
pub struct Update {
    /// The text in the field of the key.
    pub key: String,
    /// Its geometry, as well-known binary.
    pub wkb: Option<Vec<u8>>,
    /// The coordinate reference system of the geometry, if it differs from the file's.
    pub crs: Option<String>,
    /// Its fields by name. Fields that a file with fixed columns does not have are ignored.
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
    match Format::of_path(path) {
        Some(_) => Ok(()),
        None => Err(ReplayError::UnknownFormat(path.to_owned())),
    }
}

/// Which of these keys the file contains in a field.
///
/// # Errors
/// When it cannot be read.
pub fn holds(path: &Path, field: &str, keys: &[String]) -> Result<Vec<bool>, ReplayError> {
    let at = |e: tidegate_geo::Error| ReplayError::output(path, e);
    let mut reader = format::open(path, &ReadOptions::default()).map_err(at)?;
    let mut missing: HashSet<&str> = keys.iter().map(String::as_str).collect();
    while let Some(batch) = reader.next_batch(&mut Vec::new()).map_err(at)? {
        let Some(place) = batch.schema().position(field) else { continue };
        for row in 0..batch.len() {
            if let Value::Text(text) = batch.value(row, place) {
                missing.remove(text);
            }
        }
    }
    Ok(keys.iter().map(|key| !missing.contains(key.as_str())).collect())
}

/// A file as it is.
struct OldFile {
    schema: Arc<Schema>,
    crs: Crs,
    layer: String,
    batches: Vec<Batch>,
    /// The rows that are replaced, by key: the batch and its row.
    rows: HashMap<String, (usize, usize)>,
}

impl OldFile {
    fn read(path: &Path, field: &str, updates: &[&Update]) -> Result<OldFile, ReplayError> {
        let at = |e: tidegate_geo::Error| ReplayError::output(path, e);
        let options = ReadOptions { keep_raw: true, keep_foreign: true, ..ReadOptions::default() };
        let mut reader = format::open(path, &options).map_err(at)?;
        let layer = reader.layer().clone();
        let wanted: HashSet<&str> = updates.iter().map(|update| update.key.as_str()).collect();
        let (mut batches, mut rejected, mut rows) = (Vec::new(), Vec::new(), HashMap::new());
        while let Some(batch) = reader.next_batch(&mut rejected).map_err(at)? {
            if let Some(place) = batch.schema().position(field) {
                for row in 0..batch.len() {
                    if let Value::Text(text) = batch.value(row, place)
                        && wanted.contains(text)
                    {
                        rows.entry(text.to_owned()).or_insert((batches.len(), row));
                    }
                }
            }
            batches.push(batch);
        }
        if let Some(first) = rejected.first() {
            return Err(ReplayError::Record { path: path.to_owned(), record: first.record });
        }
        let crs = layer.crs.unwrap_or_else(Crs::wgs84);
        Ok(OldFile { schema: layer.schema, crs, layer: layer.name, batches, rows })
    }

    /// The row that an update replaces.
    fn row(&self, update: &Update) -> Option<(&Batch, usize)> {
        let (batch, row) = self.rows.get(&update.key)?;
        Some((self.batches.get(*batch)?, *row))
    }

    fn last(&self) -> Option<Span> {
        let batch = self.batches.iter().rev().find(|batch| !batch.is_empty())?;
        Some(batch.origin(batch.len() - 1).0)
    }
}

/// Writes rows into a file, each in the row that has its key in a field, or at the end.
///
/// # Errors
/// When the file cannot be read or written. It is then unchanged.
pub fn merge(path: &Path, field: &str, updates: &[Update]) -> Result<(), ReplayError> {
    if updates.is_empty() {
        return Ok(());
    }
    // Of updates with the same key the last one counts.
    let mut seen = HashSet::new();
    let mut updates: Vec<&Update> = updates.iter().rev().filter(|update| seen.insert(&update.key)).collect();
    updates.reverse();
    let Some(form) = Format::of_path(path) else { return Err(ReplayError::UnknownFormat(path.to_owned())) };
    if !path.exists() {
        let mut schema = Schema::default();
        for (name, value) in updates.iter().flat_map(|update| &update.values) {
            if schema.position(name).is_none() {
                schema.add(name.clone(), value.kind());
            }
        }
        let layer = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer").to_owned();
        let (schema, batches, rows) = (Arc::new(schema), Vec::new(), HashMap::new());
        let old = OldFile { schema, crs: Crs::wgs84(), layer, batches, rows };
        return write_whole(path, &old, &updates);
    }
    let old = OldFile::read(path, field, &updates)?;
    match form {
        Format::GeoPackage => write_rows(path, field, &old, &updates),
        form if format::is_spliceable(form) && old.last().is_some() => {
            write_texts(path, form, &old, &updates)
        }
        _ => write_whole(path, &old, &updates),
    }
}

/// Replaces the texts of records.
fn write_texts(path: &Path, form: Format, old: &OldFile, updates: &[&Update]) -> Result<(), ReplayError> {
    let at = |e: tidegate_geo::Error| ReplayError::output(path, e);
    let mut options = Options { format: Some(form), ..Options::default() };
    if form == Format::Csv {
        options.csv_geometry = csv_geometry(path, old).map_err(at)?;
    }
    let mut changes = Splice { last: old.last(), ..Splice::default() };
    for update in updates {
        let was = old.row(update);
        // A feature has the members of its update, and those that it had besides.
        let schema =
            if form == Format::Csv { old.schema.clone() } else { Arc::new(with_values(update, was)) };
        let mut alone = Batch::new(schema);
        push(&mut alone, update, &old.crs, was)?;
        if let Some((batch, row)) = was {
            batch.id(row).into_iter().for_each(|id| alone.set_id(id));
            alone.set_foreign(batch.foreign(row));
        }
        let text = format::record_text(form, &alone, 0, &old.crs, &options).map_err(at)?;
        match was {
            Some((batch, row)) => changes.replaced.push((batch.origin(row).0, text)),
            None => changes.added.push(text),
        }
    }
    format::splice(path, form, &changes).map_err(at)
}

/// The columns of the geometry in a CSV file that we wrote.
fn csv_geometry(path: &Path, old: &OldFile) -> Result<format::csv::Geometry, tidegate_geo::Error> {
    use format::csv::{CsvOptions, Geometry, Lexer};
    let options = CsvOptions { keep_source: true, ..CsvOptions::default() };
    let other = |e: &dyn std::fmt::Display| std::io::Error::other(e.to_string());
    let mut lexer = Lexer::open(std::fs::File::open(path)?, &options).map_err(|e| other(&e))?;
    lexer.advance()?;
    for csv_geometry in [Geometry::LonLat, Geometry::Wkt, Geometry::None] {
        let options = Options { csv_geometry, ..Options::default() };
        if format::header_text(&Batch::new(old.schema.clone()), &old.crs, &options)? == lexer.record().source
        {
            return Ok(csv_geometry);
        }
    }
    Err(other(&"its header is not one that tidegate writes; choose another output").into())
}

/// The fields of an update, and those that its row had besides.
fn with_values(update: &Update, was: Option<(&Batch, usize)>) -> Schema {
    let mut schema = Schema::new(update.values.iter().map(|(name, value)| (name.clone(), value.kind())));
    if let Some((batch, row)) = was {
        for (at, field) in batch.schema().fields().iter().enumerate() {
            if schema.position(&field.name).is_none() && batch.value(row, at) != Value::Null {
                schema.add(field.name.clone(), field.kind);
            }
        }
    }
    schema
}

/// Writes the rows of a GeoPackage in their place; everything else in the file stays.
fn write_rows(path: &Path, field: &str, old: &OldFile, updates: &[&Update]) -> Result<(), ReplayError> {
    let at = |e: tidegate_geo::Error| ReplayError::output(path, e);
    if old.schema.position(field).is_none() {
        let what = format!("the layer {} has no column {field}; choose another output", old.layer);
        return Err(at(std::io::Error::other(what).into()));
    }
    let mut batch = Batch::new(old.schema.clone());
    for update in updates {
        push(&mut batch, update, &old.crs, old.row(update))?;
    }
    let mut schema = Schema::clone(&old.schema);
    let fits = |row| batch.geometry(row).is_none_or(|wkb| fit_geometry(wkb, schema.shape) == Fit::Same);
    if !(0..batch.len()).all(fits) {
        hold_any_shape(path, &old.layer).map_err(at)?;
        schema.shape = None;
    }
    let writing = Writing::upsert(vec![field.to_owned()]);
    let mut store = Store::open(path, &old.layer, &Arc::new(schema), &old.crs, writing).map_err(at)?;
    store.begin().map_err(at)?;
    for row in 0..batch.len() {
        if let Err(e) = store.write(&batch, row) {
            store.rollback();
            return Err(at(e));
        }
    }
    store.commit().map_err(at)?;
    store.finish().map_err(at)?;
    store.close().map_err(at)
}

/// Writes the whole file.
fn write_whole(path: &Path, old: &OldFile, updates: &[&Update]) -> Result<(), ReplayError> {
    let at = |e: tidegate_geo::Error| ReplayError::output(path, e);
    // A replaced row may have another geometry type than the file had.
    let mut schema = Schema::clone(&old.schema);
    schema.shape = None;
    let schema = Arc::new(schema);
    let options = Options { layer: Some(old.layer.clone()), ..Options::default() };
    let by: HashMap<(usize, usize), &Update> =
        updates.iter().filter_map(|update| Some((*old.rows.get(&update.key)?, *update))).collect();
    let mut writer = format::create(path, &schema, &old.crs, &options).map_err(at)?;
    for (number, batch) in old.batches.iter().enumerate() {
        let mut out = Batch::new(schema.clone());
        for row in 0..batch.len() {
            match by.get(&(number, row)) {
                Some(update) => push(&mut out, update, &old.crs, Some((batch, row)))?,
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
    for update in updates.iter().filter(|update| !old.rows.contains_key(&update.key)) {
        push(&mut out, update, &old.crs, None)?;
    }
    writer.write(&out).map_err(at)?;
    writer.finish().map(drop).map_err(at)
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

    fn update(key: &str, n: i64) -> Update {
        let values = vec![("key".into(), Owned::Text(key.into())), ("n".into(), Owned::Int(n))];
        Update { key: key.into(), wkb: point(n as f64, 0.0), crs: None, values }
    }

    /// The key, number and longitude of each row.
    fn rows(path: &Path) -> Vec<(Owned, Owned, f64)> {
        let mut reader = format::open(path, &ReadOptions::default()).unwrap();
        let mut found = Vec::new();
        while let Some(batch) = reader.next_batch(&mut Vec::new()).unwrap() {
            let place = |name| batch.schema().position(name).unwrap();
            for row in 0..batch.len() {
                let n = fit(&batch.value(row, place("n")).into(), Kind::Int);
                found.push((batch.value(row, place("key")).into(), n, batch.bounds(row).unwrap().min_x));
            }
        }
        found.sort_by(|a, b| a.2.total_cmp(&b.2));
        found
    }

    #[test]
    fn a_row_is_replaced_or_added_and_twice_is_once() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.gpkg", "a.geojson", "a.geojsonl", "a.geojsons", "a.csv", "a.fgb", "a.parquet"] {
            let path = dir.path().join(name);
            merge(&path, "key", &[update("k", 1), update("other", 9)]).unwrap();
            merge(&path, "key", &[update("k", 2)]).unwrap();
            let once = std::fs::read(&path).unwrap();
            merge(&path, "key", &[update("k", 2)]).unwrap();
            // The time of the last change of a GeoPackage is another.
            assert!(name == "a.gpkg" || std::fs::read(&path).unwrap() == once, "{name}");
            merge(&path, "key", &[update("new", 5), update("new", 6)]).unwrap();
            let text = |key: &str| Owned::Text(key.into());
            let expected = [(text("k"), 2), (text("new"), 6), (text("other"), 9)];
            assert_eq!(rows(&path), expected.map(|(key, n)| (key, Owned::Int(n), n as f64)), "{name}");
            let held = holds(&path, "key", &["k".into(), "x".into()]).unwrap();
            assert_eq!(held, [true, false], "{name}");
        }
    }

    #[test]
    fn what_is_not_ours_in_a_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.geojson");
        let other =
            r#"{ "type":"Feature", "properties":{"key":"other","n":1.50}, "geometry":null, "by": [1e0] }"#;
        let ours = r#"{"type":"Feature","properties":{"key":"k","n":1},"geometry":null}"#;
        let text =
            format!("{{\"type\":\"FeatureCollection\",\"title\":\"t\",\"features\":[{other},{ours}]}}");
        std::fs::write(&path, &text).unwrap();
        merge(&path, "key", &[update("k", 2)]).unwrap();
        let new = r#"{"type":"Feature","properties":{"key":"k","n":2},"geometry":{"type":"Point","coordinates":[2,0]}}"#;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text.replace(ours, new));
        let path = dir.path().join("a.gpkg");
        merge(&path, "key", &[update("k", 1), update("other", 9)]).unwrap();
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch("CREATE TABLE notes (t TEXT); INSERT INTO notes VALUES ('mine')").unwrap();
        drop(db);
        merge(&path, "key", &[update("k", 2)]).unwrap();
        let db = rusqlite::Connection::open(&path).unwrap();
        let found = db.query_row("SELECT t FROM notes", [], |row| row.get::<_, String>(0)).unwrap();
        assert_eq!(found, "mine");
    }
}
