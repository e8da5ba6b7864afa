//! Exports letters as map layers: valid geometries, invalid geometries, points of defects, and
//! letters without a location.
//!
//! A GeoPackage has a layer for each; other formats have one layer with the field `layer`. All
//! coordinates are on WGS 84.

use super::envelope::Letter;
use super::error::{LetterError, Result};
use super::feature::FeaturePayload;
use super::filter::LetterFilter;
use super::seal::Keyring;
use super::store::{LetterPage, LetterStore};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_client::durable;
use tidegate_core::time::calendar::rfc3339;
use tidegate_geo::crs::Transform;
use tidegate_geo::format::{self, Format, Options, Writer};
use tidegate_geo::wkb::{Dim, Shape, write};
use tidegate_geo::{Batch, Crs, Kind, Schema, Value, validity};

/// The number of letters exported to each layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Exported {
    /// Letters with a valid geometry, or shown by their bounding box.
    pub valid: u64,
    /// Letters with an invalid geometry.
    pub invalid: u64,
    /// Points of defects.
    pub defects: u64,
    /// Letters without a location.
    pub nowhere: u64,
}

const LAYERS: [&str; 4] = ["valid", "invalid", "defects", "nowhere"];
const FIELDS: [(&str, Kind); 20] = [
    ("layer", Kind::Text),
    ("id", Kind::Text),
    ("state", Kind::Text),
    ("code", Kind::Text),
    ("class", Kind::Text),
    ("message", Kind::Text),
    ("pipeline", Kind::Text),
    ("stage", Kind::Text),
    ("service", Kind::Text),
    ("fingerprint", Kind::Text),
    ("generation", Kind::Int),
    ("attempts", Kind::Int),
    ("first_failed", Kind::Text),
    ("failed", Kind::Text),
    ("times", Kind::Int),
    ("last_seen", Kind::Text),
    ("crs", Kind::Text),
    ("reason", Kind::Text),
    ("source", Kind::Text),
    ("position", Kind::Text),
];

/// The geometry of a letter on WGS 84, and whether it is valid. Its bounding box if the payload is
/// sealed or has no geometry.
fn geometry(letter: &Letter) -> Option<(Vec<u8>, bool)> {
    let spatial = letter.spatial.as_ref();
    let own = FeaturePayload::parse(letter.payload.current()).ok().and_then(|feature| {
        let mut wkb = feature.wkb().ok()?;
        let valid = validity::first_flaw(&wkb).is_none();
        let crs = spatial.map(|s| s.source_crs.as_str()).filter(|c| !c.is_empty());
        let crs: Crs = crs.map_or_else(|| Some(Crs::wgs84()), |text| text.parse().ok())?;
        if !crs.is_wgs84() {
            Transform::new(&crs, &Crs::wgs84()).ok()?.geometry(&mut wkb).ok()?;
        }
        Some((wkb, valid))
    });
    own.or_else(|| {
        let [w, s, e, n] = spatial?.bbox?;
        let mut wkb = Vec::new();
        if w == e && s == n {
            write::point(&mut wkb, &[w, s]);
        } else {
            write::begin(&mut wkb, Shape::Polygon, Dim::Xy);
            write::count(&mut wkb, 1);
            write::count(&mut wkb, 5);
            for p in [[w, s], [e, s], [e, n], [w, n], [w, s]] {
                write::position(&mut wkb, &p);
            }
        }
        Some((wkb, spatial?.defect.is_none()))
    })
}

/// A text for a cell that a spreadsheet opens: what it would take for a formula gets an apostrophe,
/// and a zero byte, at which some programs end, is replaced. Numbers stay numbers.
fn cell(text: &str) -> Cow<'_, str> {
    let is_number = || text.parse::<f64>().is_ok_and(f64::is_finite);
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && !is_number();
    if !is_formula && !text.contains('\0') {
        return Cow::Borrowed(text);
    }
    let mark = if is_formula { "'" } else { "" };
    Cow::Owned(format!("{mark}{}", text.replace('\0', "\u{fffd}")))
}

fn push(
    batch: &mut Batch,
    letter: &Letter,
    (layer, as_cells): (&str, bool),
    wkb: Option<&[u8]>,
) -> Result<()> {
    let f = &letter.failure;
    let s = letter.spatial.as_ref();
    let texts = [
        letter.id.to_string(),
        letter.fingerprint().to_string(),
        rfc3339(letter.first_failed_ms()),
        rfc3339(f.failed_ms),
        rfc3339(letter.last_seen_ms),
    ];
    let [id, fingerprint, first, failed, last] = texts.each_ref().map(|text| Value::Text(text));
    let reason = s.and_then(|s| s.defect.as_ref()).map_or(Value::Null, |d| Value::Text(&d.reason));
    let values = [
        Value::Text(layer),
        id,
        Value::Text(letter.state.as_str()),
        Value::Text(f.code.as_str()),
        Value::Text(f.class.as_str()),
        Value::Text(&f.message),
        Value::Text(&letter.pipeline),
        Value::Text(&letter.stage),
        Value::Text(&f.service),
        fingerprint,
        Value::Int(i64::from(letter.lineage.generation)),
        Value::Int(f.attempts.len() as i64),
        first,
        failed,
        Value::Int(letter.times.cast_signed()),
        last,
        s.map_or(Value::Null, |s| Value::Text(&s.source_crs)),
        reason,
        Value::Text(&letter.source.uri),
        Value::Text(&letter.source.position),
    ];
    let cells = values.map(|value| match value {
        Value::Text(text) if as_cells => Some(cell(text)),
        _ => None,
    });
    let mut values = values;
    for (value, cell) in values.iter_mut().zip(&cells) {
        if let Some(text) = cell {
            *value = Value::Text(text);
        }
    }
    batch.push(wkb, values).map_err(|e| LetterError::Refused(format!("letter {}: {e}", letter.id)))
}

struct Layers {
    writers: Vec<Box<dyn Writer>>,
    batches: Vec<Batch>,
    /// Whether texts are cells for a spreadsheet.
    as_cells: bool,
}

impl Layers {
    fn add(&mut self, layer: usize, letter: &Letter, wkb: Option<&[u8]>) -> Result<()> {
        let at = layer.min(self.writers.len().saturating_sub(1));
        let name = LAYERS.get(layer).copied().unwrap_or_default();
        let (Some(writer), Some(batch)) = (self.writers.get_mut(at), self.batches.get_mut(at)) else {
            return Ok(());
        };
        push(batch, letter, (name, self.as_cells), wkb)?;
        if batch.len() >= 1024 {
            writer.write(batch).map_err(|e| LetterError::Refused(e.to_string()))?;
            batch.clear(0);
        }
        Ok(())
    }
}

/// Exports the letters that match a filter to a file. Sealed payloads without a key are shown by
/// their bounding boxes.
///
/// # Errors
/// When the store cannot be read or the file cannot be written. The old file is then unchanged.
pub fn export(
    store: &mut LetterStore,
    filter: &LetterFilter,
    keys: &Keyring,
    path: &Path,
) -> Result<Exported> {
    let refused = |e: &dyn std::fmt::Display| LetterError::Refused(format!("{}: {e}", path.display()));
    let Some(kind) = Format::of_path(path) else {
        return Err(refused(&"unknown file extension; expected one of .gpkg, .fgb, .geojson, .ndjson, .csv"));
    };
    let schema = Arc::new(Schema::new(FIELDS));
    let scratch = tempfile::tempdir().map_err(|e| refused(&e))?;
    let several = kind == Format::GeoPackage;
    let files: Vec<PathBuf> = if several {
        LAYERS.iter().map(|layer| scratch.path().join(format!("{layer}.gpkg"))).collect()
    } else {
        vec![path.to_owned()]
    };
    let mut layers = Layers { writers: Vec::new(), batches: Vec::new(), as_cells: kind == Format::Csv };
    for file in &files {
        let writer =
            format::create(file, &schema, &Crs::wgs84(), &Options::default()).map_err(|e| refused(&e))?;
        layers.writers.push(writer);
        layers.batches.push(Batch::new(schema.clone()));
    }
    let mut done = Exported::default();
    let mut filter = LetterFilter { after: Some(filter.after.unwrap_or(-1)), ..filter.clone() };
    loop {
        let rows = store.find(&filter, LetterPage { limit: 1000, newest_first: false, payload: true })?;
        let Some(last) = rows.last() else { break };
        filter.after = Some(last.seq);
        for mut row in rows {
            if let Some(sealed) = &row.sealed
                && let Ok(payload) = keys.open(sealed)
            {
                row.letter.payload = payload;
            }
            let letter = &row.letter;
            match geometry(letter) {
                None => {
                    done.nowhere += 1;
                    layers.add(3, letter, None)?;
                }
                Some((wkb, valid)) => {
                    if valid {
                        done.valid += 1;
                    } else {
                        done.invalid += 1;
                    }
                    layers.add(usize::from(!valid), letter, Some(&wkb))?;
                }
            }
            if let Some(defect) = letter.spatial.as_ref().and_then(|s| s.defect.as_ref()) {
                let mut wkb = Vec::new();
                write::point(&mut wkb, &[defect.lon, defect.lat]);
                done.defects += 1;
                layers.add(2, letter, Some(&wkb))?;
            }
        }
    }
    for (mut writer, batch) in layers.writers.into_iter().zip(&layers.batches) {
        writer.write(batch).map_err(|e| refused(&e))?;
        writer.finish().map_err(|e| refused(&e))?;
    }
    if several {
        join(&files, path).map_err(|e| refused(&e))?;
    }
    Ok(done)
}

/// Joins GeoPackages of one layer each into one file, with the triggers of the spatial index.
fn join(files: &[PathBuf], path: &Path) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let Some((first, others)) = files.split_first() else { return Ok(()) };
    let connection = rusqlite::Connection::open(first)?;
    for file in others {
        let layer = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        connection.execute("ATTACH ?1 AS other", [file.display().to_string()])?;
        let mut made: Vec<(String, String, String)> = Vec::new();
        {
            let mut statement = connection.prepare(
                "SELECT type, name, sql FROM other.sqlite_master WHERE sql IS NOT NULL
                 AND name NOT LIKE 'gpkg_%' AND name NOT LIKE 'sqlite_%' AND name NOT GLOB 'rtree_*_node'
                 AND name NOT GLOB 'rtree_*_rowid' AND name NOT GLOB 'rtree_*_parent'
                 ORDER BY CASE type WHEN 'table' THEN 0 WHEN 'index' THEN 1 ELSE 2 END",
            )?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            for row in rows {
                made.push(row?);
            }
        }
        for (kind, name, sql) in &made {
            connection.execute_batch(sql)?;
            if kind == "table" {
                connection
                    .execute_batch(&format!("INSERT INTO main.\"{name}\" SELECT * FROM other.\"{name}\""))?;
            }
        }
        for table in ["gpkg_contents", "gpkg_geometry_columns", "gpkg_extensions", "gpkg_ogr_contents"] {
            let there: i64 = connection.query_row(
                "SELECT count(*) FROM other.sqlite_master WHERE name = ?1",
                [table],
                |row| row.get(0),
            )?;
            if there == 1 {
                connection.execute_batch(&format!(
                    "INSERT OR IGNORE INTO main.{table} SELECT * FROM other.{table} WHERE table_name = '{layer}'"
                ))?;
            }
        }
        connection.execute_batch("DETACH other")?;
    }
    connection.close().map_err(|(_, e)| e)?;
    // Write to a temporary file in the same directory: a rename does not cross file systems.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    std::fs::copy(first, &partial)?;
    std::fs::File::open(&partial)?.sync_all()?;
    durable::rename(&partial, path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn a_cell_is_never_a_formula_and_a_number_stays_one() {
        for text in ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"] {
            assert_eq!(cell(text), format!("'{text}"));
        }
        for text in ["", "-5", "+3.5", "-1e9", "a=b", "Straße"] {
            assert_eq!(cell(text), text);
        }
        assert_eq!(cell("a\0b"), "a\u{fffd}b");
    }
}
