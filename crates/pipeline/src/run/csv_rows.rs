//! A CSV file as a source: rows of text with a header.
//!
//! Why not [`FileSource`](super::source::FileSource), which reads CSV too: it detects geometries
//! and types. A geocoded table must keep its cells unchanged, leading zeros included, and every
//! row, even a malformed one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use encoding_rs::Encoding;
use tidegate_core::Code;
use tidegate_geo::format::csv::{CsvOptions, CsvRow, RowReader};
use tidegate_geo::format::{Layer, Rejected};
use tidegate_geo::{Batch, Crs, Kind, Problem, Schema, Value};

use super::source::{Page, Source, file_stamp};
use crate::error::SetupError;
use crate::manifest::CsvRows;
use crate::source::IdentifierHash;
use crate::step::StepError;

/// The largest text of a page, in bytes.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Parses a delimiter.
///
/// # Errors
/// When it is not one.
pub fn csv_delimiter(text: &str) -> Result<u8, SetupError> {
    match text {
        "tab" | "\\t" | "\t" => Ok(b'\t'),
        _ => match text.as_bytes() {
            [b] if b.is_ascii() && !matches!(b, b'"' | b'\n' | b'\r') => Ok(*b),
            _ => Err("the delimiter must be one ASCII character, or `tab`".into()),
        },
    }
}

/// Parses an encoding.
///
/// # Errors
/// When it is unknown, or a delimiter is not one byte in it.
pub fn csv_encoding(text: &str) -> Result<&'static Encoding, SetupError> {
    match Encoding::for_label(text.as_bytes()) {
        Some(encoding) if encoding.is_ascii_compatible() => Ok(encoding),
        Some(encoding) => {
            Err(format!("{} is not supported; convert the file to UTF-8 first", encoding.name()).into())
        }
        None => Err(format!("unknown encoding {text:?}").into()),
    }
}

fn options(form: &CsvRows) -> Result<CsvOptions, String> {
    let mut options = CsvOptions { delimiter: None, ..CsvOptions::default() };
    options.delimiter = form.delimiter.as_deref().map(csv_delimiter).transpose()?;
    if let Some(name) = &form.encoding {
        options.encoding = csv_encoding(name)?;
    }
    Ok(options)
}

fn open(path: &Path, options: &CsvOptions) -> Result<RowReader<File>, String> {
    let at = |what: String| format!("{}: {what}", path.display());
    let file = File::open(path).map_err(|e| at(e.to_string()))?;
    if file.metadata().map_err(|e| at(e.to_string()))?.is_dir() {
        return Err(at("it is a directory".into()));
    }
    RowReader::open(file, options).map_err(|e| at(e.to_string()))
}

/// The column names of a CSV file.
///
/// # Errors
/// The reason why it cannot be read.
pub fn csv_header(path: &Path, form: &CsvRows) -> Result<Vec<String>, SetupError> {
    Ok(open(path, &options(form)?)?.header().to_vec())
}

/// The field names of a header: unnamed columns get a name.
#[must_use]
pub fn csv_fields(header: &[String]) -> Vec<String> {
    let mut fields: Vec<String> = Vec::with_capacity(header.len());
    for (at, name) in header.iter().enumerate() {
        let mut wanted = if name.is_empty() { format!("column_{}", at + 1) } else { name.clone() };
        while name.is_empty() && (header.contains(&wanted) || fields.contains(&wanted)) {
            wanted.push('_');
        }
        fields.push(wanted);
    }
    fields
}

/// Reads a CSV file as rows of text.
pub(super) struct RowSource {
    path: PathBuf,
    options: CsvOptions,
    reader: RowReader<File>,
    layer: Layer,
    /// The number of columns in the file; the field for a row's fault comes after them.
    columns: usize,
    has_row_error: bool,
    /// Which columns must be readable.
    required: Vec<bool>,
    /// The most rows on a page.
    page_rows_max: usize,
    /// The number of rows to skip.
    from: u64,
    row: CsvRow,
    ended: bool,
}

impl RowSource {
    /// Opens a file and counts its rows.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub(super) fn open(path: &Path, form: &CsvRows, page_rows_max: usize) -> Result<RowSource, String> {
        if !path.exists() {
            return Err(format!("{}: no such file", path.display()));
        }
        let options = options(form)?;
        let reader = open(path, &options)?;
        let fields = csv_fields(reader.header());
        let mut required = vec![form.required.is_empty(); fields.len()];
        for name in &form.required {
            match fields.iter().position(|field| field == name) {
                Some(at) => required.iter_mut().skip(at).take(1).for_each(|flag| *flag = true),
                None => return Err(format!("csv.required: the file has no column {name:?}")),
            }
        }
        let columns = fields.len();
        let all = fields.into_iter().chain(form.row_error.clone()).map(|name| (name, Kind::Text));
        let mut schema = Schema::default();
        for (name, kind) in all {
            if schema.position(&name).is_some() {
                return Err(format!("csv.row_error: the file already has a column {name:?}"));
            }
            schema.add(name, kind);
        }
        let (mut counted, mut records) = (open(path, &options)?, 0);
        while counted.skip().map_err(|e| format!("{}: {e}", path.display()))? {
            records += 1;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(RowSource {
            path: path.into(),
            options,
            reader,
            // Rows have no geometry yet; the step that adds one uses degrees.
            layer: Layer { name, schema: Arc::new(schema), crs: Some(Crs::wgs84()), records: Some(records) },
            columns,
            has_row_error: form.row_error.is_some(),
            required,
            page_rows_max,
            from: 0,
            row: CsvRow::default(),
            ended: false,
        })
    }

    /// The fault of the current row, if a required column is affected.
    fn fault(&self) -> Option<String> {
        let problem = self.row.problem.as_ref()?;
        let column = problem.column();
        let harmless = column.is_some_and(|at| self.required.get(at) == Some(&false));
        if harmless {
            return None;
        }
        let (number, line) = (self.row.number, self.row.line);
        let place = match column.and_then(|at| self.reader.header().get(at)) {
            Some(name) => format!("row {number} (line {line}), column {name:?}"),
            None => format!("row {number} (line {line})"),
        };
        Some(format!("{place}: {problem}"))
    }

    fn broken(&self, what: &dyn std::fmt::Display) -> StepError {
        StepError::Broken(format!("{}: line {}: {what}", self.path.display(), self.row.line))
    }
}

impl Source for RowSource {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn stamp(&self) -> String {
        file_stamp(&self.path)
    }

    fn seek(&mut self, position: &str, _: Vec<IdentifierHash>) -> Result<(), StepError> {
        let no = || StepError::Broken(format!("invalid file position {position:?}"));
        self.from = position.parse().map_err(|_| no())?;
        self.reader = open(&self.path, &self.options).map_err(StepError::Broken)?;
        self.ended = false;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Page>, StepError> {
        if self.ended {
            return Ok(None);
        }
        let mut batch = Batch::new(self.layer.schema.clone());
        let mut rejected = Vec::new();
        let (mut bytes, mut last) = (0, None);
        while batch.len() + rejected.len() < self.page_rows_max && bytes < PAGE_BYTES_MAX {
            if !self.reader.read(&mut self.row).map_err(|e| self.broken(&e))? {
                self.ended = true;
                break;
            }
            let record = self.row.number - 1;
            if record < self.from {
                continue;
            }
            last = Some(self.row.number);
            bytes += self.row.bytes();
            let fault = self.fault();
            if let (Some(fault), false) = (&fault, self.has_row_error) {
                let problem = Problem::new(Code::SCHEMA_MISMATCH, fault.clone()).of_record(record);
                let raw = self.row.cells().collect::<Vec<_>>().join("\t").into_bytes();
                rejected.push(Rejected { record, span: Default::default(), raw, problems: vec![problem] });
                continue;
            }
            batch.go_to_record(record);
            let cells = (0..self.columns).map(|at| Value::Text(self.row.cell(at)));
            let error = self.has_row_error.then(|| fault.as_deref().map_or(Value::Null, Value::Text));
            batch.push(None, cells.chain(error)).map_err(|e| self.broken(&e))?;
        }
        let Some(last) = last else { return Ok(None) };
        Ok(Some(Page { batch, rejected, position: last.to_string(), marks: Vec::new() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &[u8], form: &CsvRows, rows: usize) -> (tempfile::TempDir, RowSource) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in.csv");
        std::fs::write(&path, text).unwrap();
        let source = RowSource::open(&path, form, rows).unwrap();
        (dir, source)
    }

    fn cells(page: &Page, field: usize) -> Vec<String> {
        (0..page.batch.len())
            .map(|row| match page.batch.value(row, field) {
                Value::Text(text) => text.to_owned(),
                _ => "-".into(),
            })
            .collect()
    }

    const FAULTY: &[u8] = b"id,a,b\n01,x,\xff\n02,y\n03,\xff,z\n";

    #[test]
    fn rows_are_text_and_a_faulty_one_is_rejected() {
        let (_dir, mut source) = source(FAULTY, &CsvRows::default(), 10);
        assert_eq!(source.layer().records, Some(3));
        let page = source.next().unwrap().unwrap();
        assert_eq!((page.batch.len(), page.rejected.len(), page.position.as_str()), (0, 3, "3"));
        assert!(page.rejected[1].problems[0].message.starts_with("row 2 (line 3): the row has 2 cells"));
        assert!(source.next().unwrap().is_none());
    }

    #[test]
    fn a_faulty_row_goes_on_with_its_fault_in_a_field() {
        let form =
            CsvRows { row_error: Some("fault".into()), required: vec!["a".into()], ..CsvRows::default() };
        let (_dir, mut source) = source(FAULTY, &form, 2);
        let page = source.next().unwrap().unwrap();
        assert_eq!(cells(&page, 0), ["01", "02"]);
        let faults = cells(&page, 3);
        assert_eq!(faults[0], "-", "the column is not asked for");
        assert!(faults[1].contains("2 cells"), "{faults:?}");
        // Seeking forward to a position, and back.
        source.seek("2", Vec::new()).unwrap();
        let page = source.next().unwrap().unwrap();
        assert_eq!((cells(&page, 0), page.batch.record(0)), (vec!["03".to_owned()], 2));
        assert!(cells(&page, 3)[0].contains("column \"a\""));
        assert!(source.next().unwrap().is_none());
    }

    #[test]
    fn names_delimiters_and_encodings() {
        assert_eq!(csv_delimiter("tab"), Ok(b'\t'));
        assert!(csv_delimiter("\"").is_err() && csv_delimiter(",,").is_err());
        assert!(csv_encoding("utf-16").is_err() && csv_encoding("latin1").is_ok());
        let names = ["a", "", "column_2", ""].map(String::from);
        assert_eq!(csv_fields(&names), ["a", "column_2_", "column_2", "column_4"]);
    }
}
