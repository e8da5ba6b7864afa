//! Writing CSV.
//!
//! Null is an empty cell, empty text a quoted one (`""`), so that a reader can distinguish them. A cell that
//! a spreadsheet would run as a formula can be neutralised with a leading apostrophe; this changes the data,
//! so it is not the default.
//!
//! Geographic coordinates are in columns `lon` and `lat`, projected ones in `x` and `y`. A system other than
//! WGS 84 is written to a `.prj` file beside the table, where GDAL and QGIS look for it as well.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::atomic::Pending;
use super::super::{Options, Out, Written, json};
use crate::batch::Batch;
use crate::column::Value;
use crate::crs::Crs;
use crate::error::Error;
use crate::number;
use crate::schema::{Schema, free_name};
use crate::wkb::{Cursor, Event, Shape};
use crate::wkt;

/// The columns of the geometry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Geometry {
    /// `lon` and `lat` (`x` and `y` in a projected system) if all are points, else `wkt`.
    #[default]
    Auto,
    /// Two columns, `lon` and `lat` or `x` and `y`; empty for what is not a point.
    LonLat,
    /// One column, `wkt`.
    Wkt,
    /// No column.
    None,
}

/// A CSV file being written.
pub struct CsvWriter {
    out: Out,
    geometry: Geometry,
    neutralise: bool,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    written: Written,
    /// Path and content of the `.prj` file.
    system: Option<(PathBuf, String)>,
}

impl CsvWriter {
    pub(crate) fn new(
        out: Out,
        schema: &Arc<Schema>,
        crs: &Crs,
        options: &Options,
        path: Option<&Path>,
    ) -> Result<CsvWriter, Error> {
        let in_degrees = crs.entry().is_none_or(|entry| entry.geographic);
        let geometry = match options.csv_geometry {
            Geometry::Auto if schema.shape == Some(Shape::Point) => Geometry::LonLat,
            Geometry::Auto => Geometry::Wkt,
            chosen => chosen,
        };
        let mut names: Vec<String> = schema.fields().iter().map(|field| field.name.clone()).collect();
        let added: &[&str] = match geometry {
            Geometry::LonLat if in_degrees => &["lon", "lat"],
            Geometry::LonLat => &["x", "y"],
            Geometry::Wkt => &["wkt"],
            Geometry::Auto | Geometry::None => &[],
        };
        for name in added {
            names.push(free_name(name, |taken| names.iter().any(|name| name == taken)));
        }
        let mut buffer = Vec::new();
        for (at, name) in names.iter().enumerate() {
            if at > 0 {
                buffer.push(b',');
            }
            cell(&mut buffer, name.as_bytes(), options.csv_neutralise);
        }
        buffer.push(b'\n');
        let neutralise = options.csv_neutralise;
        let system = path.filter(|_| geometry != Geometry::None).and_then(|path| beside(path, crs));
        let written = Written::default();
        Ok(CsvWriter { out, geometry, neutralise, buffer, scratch: Vec::new(), written, system })
    }

    fn row(&mut self, batch: &Batch, row: usize) {
        let out = &mut self.buffer;
        for (at, column) in batch.columns().iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            match column.get(row) {
                Value::Null => {}
                Value::Bool(b) => out.extend_from_slice(if b { b"true" } else { b"false" }),
                Value::Int(i) => number::int(out, i),
                Value::Real(x) => number::real(out, x),
                Value::Text(text) | Value::Json(text) => cell(out, text.as_bytes(), self.neutralise),
                Value::Bytes(bytes) => json::write_hex(out, bytes),
            }
        }
        let comma = !batch.columns().is_empty();
        match self.geometry {
            Geometry::Auto | Geometry::None => {}
            Geometry::Wkt => {
                out.extend(comma.then_some(b','));
                self.scratch.clear();
                if let Some(wkb) = batch.geometry(row) {
                    wkt::write(wkb, &mut self.scratch);
                    cell(out, &self.scratch, false);
                }
            }
            Geometry::LonLat => {
                let point = batch.geometry(row).and_then(point);
                out.extend(comma.then_some(b','));
                if let Some((x, _)) = point {
                    number::real(out, x);
                }
                out.push(b',');
                if let Some((_, y)) = point {
                    number::real(out, y);
                }
            }
        }
        out.push(b'\n');
        self.written.features += 1;
    }
}

impl super::super::Writer for CsvWriter {
    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        for row in 0..batch.len() {
            self.row(batch, row);
            self.out.spill(&mut self.buffer)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written, Error> {
        self.out.write_all(&self.buffer)?;
        if let Some((path, text)) = &self.system {
            let mut file = Pending::new(path)?;
            file.write_all(text.as_bytes())?;
            file.commit()?;
        }
        self.out.finish()?;
        Ok(self.written)
    }
}

/// Path and content of the `.prj` file. WGS 84 needs none, but replaces that of an earlier file. The one of a
/// Shapefile is not touched.
fn beside(path: &Path, crs: &Crs) -> Option<(PathBuf, String)> {
    let file = system_file(path)?;
    let needed = !crs.is_wgs84() || file.exists();
    let crs = if crs.is_wgs84() { &Crs::epsg(4326) } else { crs };
    Some((file, crs.esri_wkt()?)).filter(|_| needed)
}

/// The `.prj` file of a table, unless it belongs to a Shapefile.
pub(super) fn system_file(path: &Path) -> Option<PathBuf> {
    Some(path.with_extension("prj")).filter(|_| !path.with_extension("shp").exists())
}

/// The position of a point that has one.
fn point(wkb: &[u8]) -> Option<(f64, f64)> {
    let mut cursor = Cursor::default();
    match (cursor.next(wkb), cursor.next(wkb)) {
        (Ok(Some(Event::Begin { shape: Shape::Point, .. })), Ok(Some(Event::Coords(run)))) => {
            run.xy(wkb).next().filter(|(x, y)| !x.is_nan() && !y.is_nan())
        }
        _ => None,
    }
}

/// Appends a cell of text, quoted if necessary.
fn cell(out: &mut Vec<u8>, text: &[u8], neutralise: bool) {
    let formula = neutralise && matches!(text.first(), Some(b'=' | b'+' | b'-' | b'@' | b'\t' | b'\r'));
    let blank = |b: Option<&u8>| b.is_some_and(u8::is_ascii_whitespace);
    let quoted = text.is_empty()
        || blank(text.first())
        || blank(text.last())
        || text.iter().any(|b| matches!(b, b',' | b'"' | b'\n' | b'\r'));
    if !quoted {
        out.extend(formula.then_some(b'\''));
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    out.extend(formula.then_some(b'\''));
    for byte in text {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Kind;

    fn written(schema: Schema, options: &Options, fill: impl FnOnce(&mut Batch)) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        let schema = Arc::new(schema);
        let mut batch = Batch::new(schema.clone());
        fill(&mut batch);
        let mut writer = crate::format::create(&path, &schema, &Crs::wgs84(), options).unwrap();
        writer.write(&batch).unwrap();
        assert_eq!(writer.finish().unwrap().features, batch.len() as u64);
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn absent_and_empty_differ_and_what_must_be_quoted_is() {
        let schema = Schema::new([("a,b", Kind::Text), ("n", Kind::Real)]).of_shape(Shape::Point);
        let text = written(schema, &Options::default(), |batch| {
            batch.push_point(1.5, -2.0, [Value::Text("say \"hi\"\n"), Value::Real(0.1)]).unwrap();
            batch.push(None, [Value::Text(""), Value::Null]).unwrap();
            batch.push(None, [Value::Null, Value::Int(3)]).unwrap();
        });
        assert_eq!(text, "\"a,b\",n,lon,lat\n\"say \"\"hi\"\"\n\",0.1,1.5,-2\n\"\",,,\n,3,,\n");
    }

    #[test]
    fn projected_columns_are_x_and_y_and_are_read_back_in_their_system() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        let schema = Arc::new(Schema::new([("n", Kind::Int)]).of_shape(Shape::Point));
        let mut batch = Batch::new(schema.clone());
        batch.push_point(500_000.5, 5_300_000.0, [Value::Int(1)]).unwrap();
        let mut writer =
            crate::format::create(&path, &schema, &Crs::epsg(25832), &Options::default()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "n,x,y\n1,500000.5,5300000\n");
        let open = || crate::format::open(&path, &crate::format::geojson::ReadOptions::default()).unwrap();
        assert_eq!(open().layer().crs, Some(Crs::epsg(25832)));
        let read = open().next_batch(&mut Vec::new()).unwrap().unwrap();
        assert_eq!(read.geometry(0).map(wkt::to_string).unwrap(), "POINT (500000.5 5300000)");
        // Without the file beside it, metres are not taken for degrees.
        std::fs::remove_file(path.with_extension("prj")).unwrap();
        assert_eq!(open().layer().crs, None);
        std::fs::write(&path, "x,y\n,\n16.37,48.21\n").unwrap();
        assert_eq!(open().layer().crs, Some(Crs::wgs84()));
    }

    #[test]
    fn other_shapes_are_text_and_names_stay_unique() {
        let text = written(Schema::new([("wkt", Kind::Int)]), &Options::default(), |batch| {
            batch.push_point(1.0, 2.0, [Value::Int(1)]).unwrap();
        });
        assert_eq!(text, "wkt,wkt_1\n1,POINT (1 2)\n");
    }

    #[test]
    fn formulas_are_neutralised_on_request() {
        let options = Options { csv_neutralise: true, csv_geometry: Geometry::None, ..Options::default() };
        let text = written(Schema::new([("t", Kind::Text), ("n", Kind::Int)]), &options, |batch| {
            batch.push(None, [Value::Text("=1+1"), Value::Int(-1)]).unwrap();
            batch.push(None, [Value::Text("@a,b"), Value::Null]).unwrap();
        });
        assert_eq!(text, "t,n\n'=1+1,-1\n\"'@a,b\",\n");
    }
}
