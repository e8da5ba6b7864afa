//! Reading CSV.
//!
//! Every field is text. Guessed types would lose what a mapping may still need (`007`, `1.50`); a mapping
//! sets the type of a column. The exceptions are the columns of the geometry: `lon` and `lat` (or `x` and
//! `y`) under their common names, or a column of WKT, or of WKB in hexadecimal. They are no fields.
//!
//! An empty cell is null, a quoted empty cell is empty text.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use tidegate_core::Code;

use super::super::geojson::ReadOptions;
use super::geometry::GeometryColumns;
use super::lexer::Lexer;
use super::problem::{CsvError, RowProblem};
use super::record::{CsvOptions, Record};
use crate::batch::{Batch, Span};
use crate::column::Value;
use crate::error::{Error, Problem};
use crate::format::{Layer, Rejected};
use crate::schema::{FIELDS_MAX, FreeNames, Kind, Schema, too_many_fields};
use crate::wkb::Shape;

/// A CSV file being read.
pub struct CsvReader {
    lexer: Lexer<File>,
    geometry: GeometryColumns,
    names: Vec<String>,
    layer: Layer,
    record: u64,
    options: ReadOptions,
}

impl CsvReader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// If there is no header, or it is not UTF-8.
    pub fn open(path: &Path, options: ReadOptions) -> Result<CsvReader, Error> {
        let csv = CsvOptions {
            cell_max: options.limits.record_bytes_max,
            row_max: options.limits.record_bytes_max,
            strict_quotes: true,
            keep_source: true,
            ..CsvOptions::default()
        };
        let mut lexer = open(path, &csv)?;
        let broken = |message: &str| Problem::new(Code::CORRUPTED_HEADER, message);
        if !lexer.advance()? {
            return Err(broken("the file has no header").into());
        }
        let header = lexer.record();
        check_size(header, &options)?;
        let text = text_of(header).map_err(broken)?;
        let names: Vec<String> =
            (0..header.count).map(|at| cell_of(header, text, at).trim().to_owned()).collect();
        if names.len() > FIELDS_MAX {
            return Err(too_many_fields().at(0).into());
        }
        let geometry = GeometryColumns::of_header(&names);
        let (mut schema, mut free) = (Schema::default(), FreeNames::default());
        for (at, name) in names.iter().enumerate() {
            if !geometry.contains(at) {
                let name = if name.is_empty() { "field" } else { name };
                let name = free.of(name, |taken| schema.position(taken).is_some());
                schema.add(name, Kind::Text);
            }
        }
        schema.shape = matches!(geometry, GeometryColumns::LonLat(..)).then_some(Shape::Point);
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer").to_owned();
        let crs = geometry.crs(path, &names, &csv, options.crs.as_ref())?;
        let layer = Layer { name, schema: Arc::new(schema), crs, records: None };
        Ok(CsvReader { lexer, geometry, names, layer, record: 0, options })
    }

    /// The number of records from here to the end, readable or not.
    ///
    /// # Errors
    /// I/O errors.
    pub fn count(mut self) -> Result<u64, Error> {
        let mut records = 0;
        while self.lexer.advance()? {
            records += 1;
        }
        Ok(records)
    }

    fn push(&self, batch: &mut Batch) -> Result<(), Problem> {
        let row = self.lexer.record();
        let text = text_of(row).map_err(|message| Problem::new(Code::DATA_EXCEPTION, message))?;
        if row.count != self.names.len() {
            let message = format!("the row has {} cells, the header {}", row.count, self.names.len());
            return Err(Problem::new(Code::SCHEMA_MISMATCH, message));
        }
        let cell = |at: usize| cell_of(row, text, at);
        let value = |at: usize| match cell(at) {
            "" if row.quoted.get(at) != Some(&true) => Value::Null,
            text => Value::Text(text),
        };
        let values = (0..row.count).filter(|at| !self.geometry.contains(*at)).map(value);
        batch.push_with(|out| self.geometry.read(&self.names, cell, out), values)
    }
}

impl crate::format::Reader for CsvReader {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error> {
        let mut batch = Batch::new(self.layer.schema.clone()).from_record(self.record);
        let mut aside = 0;
        while batch.len() < self.options.batch_rows_max
            && batch.full_len() + aside < self.options.batch_bytes_max
        {
            if !self.lexer.advance()? {
                return Ok((!batch.is_empty()).then_some(batch));
            }
            let row = self.lexer.record();
            check_size(row, &self.options)?;
            let span = Span { offset: row.offset, len: row.len };
            match self.push(&mut batch) {
                Ok(()) => batch.set_origin(span, if self.options.keep_raw { &row.source } else { &[] }),
                Err(problem) => {
                    let problems = vec![problem.of_record(self.record).at(span.offset)];
                    let raw = row.source.clone();
                    rejected.push(Rejected { record: self.record, span, raw, problems });
                    aside += rejected.last().map_or(0, Rejected::byte_len);
                }
            }
            self.record += 1;
            batch.go_to_record(self.record);
        }
        Ok(Some(batch))
    }
}

pub(super) fn open(path: &Path, options: &CsvOptions) -> Result<Lexer<File>, Error> {
    Lexer::open(File::open(path)?, options).map_err(|error| match error {
        CsvError::Io(error) => error.into(),
        error => Problem::new(Code::CORRUPTED_HEADER, error.to_string()).into(),
    })
}

/// A record over the limit is an error: its source is incomplete and could not be a dead letter.
fn check_size(row: &Record, options: &ReadOptions) -> Result<(), Error> {
    if row.len <= options.limits.record_bytes_max as u64 {
        return Ok(());
    }
    let message = format!("a record is larger than {} bytes", options.limits.record_bytes_max);
    Err(Problem::new(Code::PAYLOAD_TOO_LARGE, message).at(row.offset).into())
}

/// All cells of a row as one text, if it has no problem.
fn text_of(row: &Record) -> Result<&str, &'static str> {
    match &row.problem {
        Some(RowProblem::QuoteNotClosed { .. }) => return Err("the quote of a cell is not closed"),
        Some(RowProblem::TextAfterQuote { .. }) => return Err("text follows a quoted cell"),
        _ => {}
    }
    let text = std::str::from_utf8(&row.cells).ok();
    text.filter(|text| row.ends.iter().all(|end| text.is_char_boundary(*end))).ok_or("the text is not UTF-8")
}

fn cell_of<'a>(row: &Record, text: &'a str, at: usize) -> &'a str {
    let range = row.range(at);
    text.get(range).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crs::Crs;
    use crate::format::Reader as _;
    use crate::wkt;

    fn read(text: &[u8]) -> (Vec<String>, Vec<Rejected>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        std::fs::write(&path, text).unwrap();
        let mut reader =
            CsvReader::open(&path, ReadOptions { keep_raw: true, ..ReadOptions::default() }).unwrap();
        let (mut rows, mut rejected) = (Vec::new(), Vec::new());
        while let Some(batch) = reader.next_batch(&mut rejected).unwrap() {
            for row in 0..batch.len() {
                let geometry = batch.geometry(row).map_or("null".into(), wkt::to_string);
                let values: Vec<_> =
                    batch.columns().iter().map(|column| format!("{:?}", column.get(row))).collect();
                rows.push(format!("{} {geometry} {}", batch.record(row), values.join(" ")));
            }
        }
        (rows, rejected)
    }

    #[test]
    fn cells_are_read_as_they_were_written() {
        let text =
            b"\xEF\xBB\xBFname;Latitude;lon;note\r\nA;48.21;16.37;\r\n\"B \"\"x\"\"; \n\";1e1;-2;\"\"\n";
        let (rows, rejected) = read(text);
        assert_eq!(
            rows,
            [
                "0 POINT (16.37 48.21) Text(\"A\") Null",
                "1 POINT (-2 10) Text(\"B \\\"x\\\"; \\n\") Text(\"\")"
            ]
        );
        assert_eq!(rejected, []);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let text = "wkt,a\nPOINT (1 2),x\n,y\nPOINT (1,z\n\"LINESTRING (0 0, 1 1)\"x,q\nPOINT (3 4),v\n";
        let (rows, rejected) = read(text.as_bytes());
        assert_eq!(rows, ["0 POINT (1 2) Text(\"x\")", "1 null Text(\"y\")", "4 POINT (3 4) Text(\"v\")"]);
        let told: Vec<_> = rejected.iter().map(|r| (r.record, r.problems[0].code, r.span.offset)).collect();
        assert_eq!(told, [(2, Code::INVALID_GEOMETRY, 23), (3, Code::DATA_EXCEPTION, 34)]);
        assert_eq!(rejected[0].raw, b"POINT (1,z");
        let (rows, rejected) = read(b"lon,lat\n1,x\n1\n1,2,3\n\xff,1\n5,6\n");
        assert_eq!((rows.len(), rejected.len()), (1, 4));
    }

    #[test]
    fn a_bad_geometry_names_its_column() {
        for (text, path) in [(&b"name,lon,lat\na,x,3\n"[..], "lon"), (b"id,wkt\n3,POINT (\n", "wkt")] {
            let (_, rejected) = read(text);
            let problem = rejected.first().and_then(|record| record.problems.first()).unwrap();
            assert_eq!(problem.path, path, "{problem}");
        }
    }

    #[test]
    fn half_a_position_is_a_bad_record() {
        let (rows, rejected) = read(b"name,lon,lat\na,16.37,\nb, ,48.21\nc,,\nd,1,2\n");
        assert_eq!(rows, ["2 null Text(\"c\")", "3 POINT (1 2) Text(\"d\")"]);
        let told: Vec<String> = rejected.iter().map(|record| record.problems[0].to_string()).collect();
        let both = "fill in both, or neither for a row without geometry";
        assert_eq!(
            told,
            [
                format!(
                    "INVALID_GEOMETRY: lat is empty, and lon is 16.37; {both}, record 0, at lat, byte 13"
                ),
                format!(
                    "INVALID_GEOMETRY: lon is empty, and lat is 48.21; {both}, record 1, at lon, byte 22"
                ),
            ]
        );
    }

    #[test]
    fn a_prj_file_is_used_or_leaves_the_system_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        let prj = dir.path().join("a.prj");
        let open = |header: &str, given: Option<Crs>| {
            std::fs::write(&path, format!("{header}\n10,50\n")).unwrap();
            CsvReader::open(&path, ReadOptions { crs: given, ..ReadOptions::default() })
                .map(|reader| reader.layer.crs)
        };
        let utm = Crs::epsg(25832);
        for unknown in [&b"PROJCS[\"Atlantis\"]"[..], b"\xff\xfe\0", b""] {
            std::fs::write(&prj, unknown).unwrap();
            for header in ["lon,lat", "x,y"] {
                assert_eq!(open(header, None).unwrap(), None, "{header}");
                assert_eq!(open(header, Some(utm.clone())).unwrap(), Some(utm.clone()));
            }
        }
        std::fs::write(&prj, utm.esri_wkt().unwrap()).unwrap();
        assert_eq!(open("x,y", None).unwrap(), Some(utm));
        let refused = open("lon,lat", None).unwrap_err().to_string();
        assert!(refused.starts_with("CRS_MISMATCH: lon and lat are degrees, and "), "{refused}");
        assert!(refused.contains("a.prj names EPSG:25832"), "{refused}");
        std::fs::write(&prj, Crs::epsg(4258).esri_wkt().unwrap()).unwrap();
        assert_eq!(open("lon,lat", None).unwrap(), Some(Crs::epsg(4258)));
        std::fs::remove_file(&prj).unwrap();
        std::fs::create_dir(&prj).unwrap();
        let refused = open("lon,lat", None).unwrap_err().to_string();
        assert!(refused.contains("a.prj: "), "{refused}");
    }

    #[test]
    fn a_quote_that_never_ends_is_one_bad_record() {
        let (rows, rejected) = read(b"a,b\n1,\"2\n3,4\n5,6\n");
        assert_eq!(rows, ["1 null Text(\"3\") Text(\"4\")", "2 null Text(\"5\") Text(\"6\")"]);
        assert_eq!(
            (rejected.len(), rejected[0].record, rejected[0].problems[0].code),
            (1, 0, Code::DATA_EXCEPTION)
        );
        assert_eq!(
            (rejected[0].raw.as_slice(), rejected[0].span),
            (&b"1,\"2"[..], Span { offset: 4, len: 4 })
        );
    }
}
