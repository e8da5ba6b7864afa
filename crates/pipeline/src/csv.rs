//! CSV as people have it: rows that can be used, rows that cannot, and none lost between them.
//!
//! Why not a general CSV crate: they stop at the first byte that is not UTF-8, buffer a cell of
//! any size, and let one unclosed quote swallow the rest of the file without a word. Here a bad
//! row is a row with a [`Problem`] that names its column, and reading goes on behind it:
//!
//! - a cell over the limit is skipped to its end, in constant memory;
//! - a quote that is never closed ends at the end of its own line, and from there on a quoted
//!   cell may not span lines (so the file is scanned at most twice, however broken it is);
//! - too few or too many cells are counted against the header;
//! - bytes that do not fit the encoding are a problem of their cell, not of the file.
//!
//! Delimiter (comma, semicolon, tab, bar) is guessed from the header unless given; a byte-order
//! mark is dropped; line ends may be LF, CRLF or CR; blank lines are no rows.

use crate::spool::Spool;
use encoding_rs::{Encoding, UTF_8};
use memchr::{memchr, memchr3};
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};

/// How to read.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Between cells; guessed from the header when `None`.
    pub delimiter: Option<u8>,
    /// Of the text.
    pub encoding: &'static Encoding,
    /// The largest cell, in bytes.
    pub cell_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { delimiter: None, encoding: UTF_8, cell_max: 1 << 20 }
    }
}

/// Where the bytes come from. It can go back: a quote that is never closed is found at the end.
pub trait Input: Read {
    /// Goes back to `offset`.
    ///
    /// # Errors
    /// Those of seeking.
    fn back_to(&mut self, offset: u64) -> io::Result<()>;
}

impl Input for std::fs::File {
    fn back_to(&mut self, offset: u64) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset)).map(|_| ())
    }
}

impl<T: AsRef<[u8]>> Input for io::Cursor<T> {
    fn back_to(&mut self, offset: u64) -> io::Result<()> {
        self.set_position(offset);
        Ok(())
    }
}

impl<R: Read> Input for Spool<R> {
    fn back_to(&mut self, offset: u64) -> io::Result<()> {
        Spool::back_to(self, offset)
    }
}

impl<I: Input + ?Sized> Input for Box<I> {
    fn back_to(&mut self, offset: u64) -> io::Result<()> {
        (**self).back_to(offset)
    }
}

/// What is wrong with a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Not as many cells as the header has.
    CellCount {
        /// In this row.
        found: usize,
        /// In the header.
        expected: usize,
    },
    /// A cell over the limit.
    CellTooLarge {
        /// Counted from 0.
        column: usize,
        /// Its size in bytes.
        bytes: u64,
    },
    /// A quote that is never closed.
    QuoteNotClosed {
        /// Counted from 0.
        column: usize,
    },
    /// Bytes that are not text in the given encoding.
    NotText {
        /// Counted from 0.
        column: usize,
    },
}

impl Problem {
    /// The column it is in, counted from 0.
    #[must_use]
    pub const fn column(&self) -> Option<usize> {
        match self {
            Problem::CellCount { .. } => None,
            Problem::CellTooLarge { column, .. }
            | Problem::QuoteNotClosed { column }
            | Problem::NotText { column } => Some(*column),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::CellCount { found, expected } => {
                write!(f, "the row has {found} cells, the header {expected}")
            }
            Problem::CellTooLarge { bytes, .. } => write!(f, "the cell has {bytes} bytes, over the limit"),
            Problem::QuoteNotClosed { .. } => write!(f, "the cell's quote is not closed"),
            Problem::NotText { .. } => {
                write!(f, "the cell is not text in this encoding; try --encoding windows-1252")
            }
        }
    }
}

/// One row. Reused from row to row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Counted from 1, the header not counted.
    pub number: u64,
    /// The line on which it starts, counted from 1.
    pub line: u64,
    /// The first problem, if there is one. The cells are then as far as they could be read.
    pub problem: Option<Problem>,
    text: String,
    ends: Vec<usize>,
}

impl Row {
    /// How many cells it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How much text it holds.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.text.len()
    }

    /// A cell, counted from 0; empty beyond the last.
    #[must_use]
    pub fn cell(&self, i: usize) -> &str {
        let Some(&end) = self.ends.get(i) else { return "" };
        let start = if i == 0 { 0 } else { self.ends.get(i - 1).copied().unwrap_or(0) };
        self.text.get(start..end).unwrap_or("")
    }

    /// All cells.
    pub fn cells(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|i| self.cell(i))
    }
}

/// Why a file could not be opened as CSV at all.
#[derive(Debug)]
pub enum OpenError {
    /// It could not be read.
    Io(io::Error),
    /// It has no header.
    Empty,
    /// Its header cannot be used.
    Header(Problem),
    /// It starts like something else.
    NotCsv(&'static str),
    /// Two columns have one name.
    SameName(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Io(e) => write!(f, "it cannot be read: {e}"),
            OpenError::Empty => f.write_str("it is empty; the first line must name the columns"),
            OpenError::Header(p) => write!(f, "its header cannot be read: {p}"),
            OpenError::NotCsv(what) => write!(f, "it is {what}, not CSV"),
            OpenError::SameName(name) => write!(f, "two columns are named {name:?}; rename one"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(e: io::Error) -> OpenError {
        OpenError::Io(e)
    }
}

const CHUNK: usize = 256 * 1024;

/// A reader of rows.
#[derive(Debug)]
pub struct Csv<I> {
    input: I,
    buf: Vec<u8>,
    at: usize,
    filled: usize,
    /// Bytes of the input before `buf`.
    before: u64,
    ended: bool,
    delimiter: u8,
    encoding: &'static Encoding,
    cell_max: usize,
    /// After an unclosed quote: quoted cells end with their line.
    one_line: bool,
    line: u64,
    rows: u64,
    header: Vec<String>,
    raw: Vec<u8>,
    raw_ends: Vec<usize>,
}

impl<I: Input> Csv<I> {
    /// Reads the header.
    ///
    /// # Errors
    /// When there is no usable header.
    pub fn open(input: I, options: &Options) -> Result<Csv<I>, OpenError> {
        let mut csv = Csv {
            input,
            buf: vec![0; CHUNK],
            at: 0,
            filled: 0,
            before: 0,
            ended: false,
            delimiter: b',',
            encoding: options.encoding,
            cell_max: options.cell_max,
            one_line: false,
            line: 1,
            rows: 0,
            header: Vec::new(),
            raw: Vec::new(),
            raw_ends: Vec::new(),
        };
        csv.fill()?;
        let start = &csv.buf[..csv.filled];
        if start.starts_with(b"PK\x03\x04") {
            return Err(OpenError::NotCsv("a zip archive or a spreadsheet (.xlsx)"));
        }
        if start.starts_with(b"\x1f\x8b") {
            return Err(OpenError::NotCsv("a gzip file; unpack it first"));
        }
        if start.starts_with(b"SQLite format 3\0") {
            return Err(OpenError::NotCsv("a GeoPackage or SQLite file"));
        }
        if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
            return Err(OpenError::NotCsv("UTF-16 text; save it as UTF-8"));
        }
        if start.starts_with(b"\xef\xbb\xbf") {
            csv.at = 3;
        }
        csv.delimiter = options.delimiter.unwrap_or_else(|| guess_delimiter(&csv.buf[csv.at..csv.filled]));
        let mut row = Row::default();
        if !csv.read(&mut row)? {
            return Err(OpenError::Empty);
        }
        if let Some(problem) = row.problem {
            return Err(OpenError::Header(problem));
        }
        csv.header = row.cells().map(|c| c.trim().to_string()).collect();
        for (i, name) in csv.header.iter().enumerate() {
            if !name.is_empty() && csv.header[..i].contains(name) {
                return Err(OpenError::SameName(name.clone()));
            }
        }
        csv.rows = 0;
        Ok(csv)
    }

    /// The names of the columns.
    #[must_use]
    pub fn header(&self) -> &[String] {
        &self.header
    }

    /// How far in the input reading is, in bytes.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// Reads the next row; false at the end.
    ///
    /// # Errors
    /// Those of the input.
    pub fn read(&mut self, row: &mut Row) -> io::Result<bool> {
        loop {
            row.line = self.line;
            row.problem = None;
            if !self.scan(row)? {
                return Ok(false);
            }
            let blank = self.raw_ends.len() == 1 && self.raw.is_empty() && row.problem.is_none();
            if !blank {
                break;
            }
        }
        self.rows += 1;
        row.number = self.rows;
        self.decode(row);
        if row.problem.is_none() && !self.header.is_empty() && row.ends.len() != self.header.len() {
            row.problem = Some(Problem::CellCount { found: row.ends.len(), expected: self.header.len() });
        }
        Ok(true)
    }

    /// Turns the raw cells into text.
    fn decode(&self, row: &mut Row) {
        row.text.clear();
        row.ends.clear();
        if self.encoding == UTF_8
            && let Ok(text) = std::str::from_utf8(&self.raw)
            && self.raw_ends.iter().all(|&e| text.is_char_boundary(e))
        {
            row.text.push_str(text);
            row.ends.extend_from_slice(&self.raw_ends);
            return;
        }
        let mut start = 0;
        for (column, &end) in self.raw_ends.iter().enumerate() {
            let (text, bad) = self.encoding.decode_without_bom_handling(&self.raw[start..end]);
            if bad && row.problem.is_none() {
                row.problem = Some(Problem::NotText { column });
            }
            row.text.push_str(&text);
            row.ends.push(row.text.len());
            start = end;
        }
    }

    /// Splits one row into `raw` and `raw_ends`; false at the end of the input.
    fn scan(&mut self, row: &mut Row) -> io::Result<bool> {
        self.raw.clear();
        self.raw_ends.clear();
        if self.peek()?.is_none() {
            return Ok(false);
        }
        loop {
            let quoted = self.peek()? == Some(b'"');
            let ended = if quoted { self.quoted_cell(row)? } else { self.plain_cell(row)? };
            self.raw_ends.push(self.raw.len());
            if ended {
                return Ok(true);
            }
        }
    }

    /// Reads a cell without quotes; true when it ends the row.
    fn plain_cell(&mut self, row: &mut Row) -> io::Result<bool> {
        let start = self.raw.len();
        let mut size = 0u64;
        loop {
            if self.at == self.filled && !self.fill()? {
                self.check_size(row, start, size);
                return Ok(true);
            }
            let rest = &self.buf[self.at..self.filled];
            let stop = memchr3(self.delimiter, b'\n', b'\r', rest);
            let part = stop.unwrap_or(rest.len());
            size += part as u64;
            if size <= self.cell_max as u64 {
                self.raw.extend_from_slice(&rest[..part]);
            }
            self.at += part;
            if stop.is_some() {
                self.check_size(row, start, size);
                return self.end_of_cell();
            }
        }
    }

    /// Reads a cell in quotes; true when it ends the row.
    fn quoted_cell(&mut self, row: &mut Row) -> io::Result<bool> {
        let (start, opened, line) = (self.raw.len(), self.offset(), self.line);
        let mut size = 0u64;
        self.at += 1;
        loop {
            if self.at == self.filled && !self.fill()? {
                return self.not_closed(row, start, opened, line);
            }
            let rest = &self.buf[self.at..self.filled];
            let stop = memchr(b'"', rest);
            let part = &rest[..stop.unwrap_or(rest.len())];
            if self.one_line && memchr::memchr2(b'\n', b'\r', part).is_some() {
                return self.not_closed(row, start, opened, line);
            }
            self.line += part.iter().filter(|&&b| b == b'\n').count() as u64;
            size += part.len() as u64;
            if size <= self.cell_max as u64 {
                self.raw.extend_from_slice(part);
            }
            self.at += part.len();
            if stop.is_none() {
                continue;
            }
            self.at += 1;
            match self.peek()? {
                Some(b'"') => {
                    self.at += 1;
                    size += 1;
                    if size <= self.cell_max as u64 {
                        self.raw.push(b'"');
                    }
                }
                // Text behind the closing quote is taken as it stands, as spreadsheets do.
                Some(b) if b != self.delimiter && b != b'\n' && b != b'\r' => {
                    self.check_size(row, start, size);
                    return self.plain_cell(row);
                }
                Some(_) => {
                    self.check_size(row, start, size);
                    return self.end_of_cell();
                }
                None => {
                    self.check_size(row, start, size);
                    return Ok(true);
                }
            }
        }
    }

    /// The quote opened at `opened` has no end: the cell ends with its line instead.
    fn not_closed(&mut self, row: &mut Row, start: usize, opened: u64, line: u64) -> io::Result<bool> {
        row.problem.get_or_insert(Problem::QuoteNotClosed { column: self.raw_ends.len() });
        self.raw.truncate(start);
        self.one_line = true;
        if opened < self.before {
            self.input.back_to(opened)?;
            self.before = opened;
            self.at = 0;
            self.filled = 0;
            self.ended = false;
        } else {
            self.at = (opened - self.before) as usize;
        }
        self.line = line;
        self.peek()?;
        self.at += 1;
        // The rest of the line belongs to the bad row; its delimiters mean nothing any more.
        let mut size = 0u64;
        loop {
            if self.at == self.filled && !self.fill()? {
                return Ok(true);
            }
            let rest = &self.buf[self.at..self.filled];
            let stop = memchr::memchr2(b'\n', b'\r', rest);
            let part = stop.unwrap_or(rest.len());
            size += part as u64;
            if size <= self.cell_max as u64 {
                self.raw.extend_from_slice(&rest[..part]);
            }
            self.at += part;
            if stop.is_some() {
                return self.end_of_cell();
            }
        }
    }

    fn check_size(&mut self, row: &mut Row, start: usize, size: u64) {
        if size > self.cell_max as u64 {
            self.raw.truncate(start);
            let column = self.raw_ends.len();
            row.problem.get_or_insert(Problem::CellTooLarge { column, bytes: size });
        }
    }

    /// Steps over a delimiter (false) or a line end (true).
    fn end_of_cell(&mut self) -> io::Result<bool> {
        let byte = self.buf[self.at];
        self.at += 1;
        if byte == self.delimiter {
            return Ok(false);
        }
        self.line += 1;
        if byte == b'\r' && self.peek()? == Some(b'\n') {
            self.at += 1;
        }
        Ok(true)
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        if self.at == self.filled && !self.fill()? {
            return Ok(None);
        }
        Ok(Some(self.buf[self.at]))
    }

    /// Reads the next chunk; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        self.before += self.filled as u64;
        self.at = 0;
        self.filled = 0;
        loop {
            match self.input.read(&mut self.buf) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(false);
                }
                Ok(n) => {
                    self.filled = n;
                    return Ok(true);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// The candidate that occurs most often outside quotes in the first line.
fn guess_delimiter(start: &[u8]) -> u8 {
    let candidates = [b',', b';', b'\t', b'|'];
    let mut counts = [0usize; 4];
    let mut quoted = false;
    for &b in start {
        match b {
            b'"' => quoted = !quoted,
            b'\n' | b'\r' if !quoted => break,
            _ if !quoted => {
                if let Some(i) = candidates.iter().position(|&c| c == b) {
                    counts[i] += 1;
                }
            }
            _ => {}
        }
    }
    let best = (0..4).rev().max_by_key(|&i| counts[i]).unwrap_or(0);
    if counts[best] == 0 { b',' } else { candidates[best] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    fn read(text: &[u8], options: &Options) -> Vec<(u64, u64, Vec<String>, Option<Problem>)> {
        let mut csv = Csv::open(Cursor::new(text.to_vec()), options).unwrap();
        let (mut row, mut out) = (Row::default(), Vec::new());
        while csv.read(&mut row).unwrap() {
            let cells = row.cells().map(str::to_string).collect();
            out.push((row.number, row.line, cells, row.problem.clone()));
        }
        out
    }

    fn cells(text: &str) -> Vec<Vec<String>> {
        read(text.as_bytes(), &Options::default()).into_iter().map(|r| r.2).collect()
    }

    #[test]
    fn plain_quoted_and_blank() {
        let text = "\u{feff}id,name\r\n1,\"Main St, 5\"\n\n2,\"say \"\"hi\"\"\"\r3,\"two\nlines\"\n4,x";
        assert_eq!(cells(text), [["1", "Main St, 5"], ["2", "say \"hi\""], ["3", "two\nlines"], ["4", "x"]]);
        let lines: Vec<u64> = read(text.as_bytes(), &Options::default()).iter().map(|r| r.1).collect();
        assert_eq!(lines, [2, 4, 5, 7]);
    }

    #[test]
    fn delimiters_are_guessed() {
        assert_eq!(cells("a;b\n1,5;2\n"), [["1,5", "2"]]);
        assert_eq!(cells("a\tb\n1\t2\n"), [["1", "2"]]);
        assert_eq!(cells("\"a;x\",b\n1,2\n"), [["1", "2"]]);
        assert_eq!(cells("only\nx\n"), [["x"]]);
    }

    #[test]
    fn a_bad_row_does_not_take_its_neighbours() {
        let text = b"id,name\n1,a\n2\n3,b,c\n4,\xff\xfe\n5,d\n";
        let rows = read(text, &Options::default());
        let problems: Vec<_> = rows.iter().map(|r| r.3.clone()).collect();
        assert_eq!(
            problems,
            [
                None,
                Some(Problem::CellCount { found: 1, expected: 2 }),
                Some(Problem::CellCount { found: 3, expected: 2 }),
                Some(Problem::NotText { column: 1 }),
                None,
            ]
        );
        assert_eq!(rows[4].2, ["5", "d"]);
        let latin = Options { encoding: encoding_rs::WINDOWS_1252, ..Options::default() };
        assert_eq!(read(b"a,b\n1,Stra\xdfe\n", &latin)[0].2, ["1", "Straße"]);
    }

    #[test]
    fn a_huge_cell_is_skipped_in_its_own_row() {
        let mut text = b"id,name\n1,\"".to_vec();
        text.resize(text.len() + 10_000_000, b'x');
        text.extend_from_slice(b"\ny\"\n2,ok\n3,");
        text.resize(text.len() + 2_000_000, b'z');
        text.extend_from_slice(b"\n4,fine\n");
        let rows = read(&text, &Options::default());
        assert_eq!(rows[0].3, Some(Problem::CellTooLarge { column: 1, bytes: 10_000_002 }));
        assert_eq!((rows[1].2.clone(), rows[1].3.clone()), (vec!["2".into(), "ok".into()], None));
        assert_eq!(rows[2].3, Some(Problem::CellTooLarge { column: 1, bytes: 2_000_000 }));
        assert_eq!(rows[3].2, ["4", "fine"]);
        assert_eq!(rows.len(), 4);
    }

    #[test]
    fn an_unclosed_quote_costs_one_row() {
        let mut text = String::from("id,name\n1,a\n2,\"open\n");
        for i in 3..50_000 {
            text.push_str(&format!("{i},name {i}\n"));
        }
        let rows = read(text.as_bytes(), &Options::default());
        assert_eq!(rows.len(), 49_999);
        assert_eq!(rows[1].3, Some(Problem::QuoteNotClosed { column: 1 }));
        assert!(rows.iter().enumerate().all(|(i, r)| i == 1 || r.3.is_none()));
        assert_eq!(rows[49_998].2, ["49999", "name 49999"]);
        assert_eq!(rows[49_998].1, 50_000);
    }

    #[test]
    fn what_is_not_csv_is_said() {
        let open = |bytes: &[u8]| {
            Csv::open(Cursor::new(bytes.to_vec()), &Options::default()).unwrap_err().to_string()
        };
        assert!(open(b"").contains("empty"));
        assert!(open(b"PK\x03\x04...").contains("zip"));
        assert!(open(b"\xff\xfea\0").contains("UTF-16"));
        assert!(open(b"a,b,a\n").contains("\"a\""));
        assert!(open(b"a,\xff\n").contains("encoding"));
    }

    proptest! {
        /// Total, and no line of plain input is lost.
        #[test]
        fn any_bytes_can_be_read(text in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(mut csv) = Csv::open(Cursor::new(text.clone()), &Options { cell_max: 20, ..Options::default() }) {
                let (mut row, mut rows) = (Row::default(), 0);
                while csv.read(&mut row).unwrap() {
                    rows += 1;
                    prop_assert!(rows <= text.len());
                }
            }
        }

        /// What is written by the rules is read back.
        #[test]
        fn round_trip(rows in prop::collection::vec(prop::collection::vec("[a-z\",\n\r é]{0,8}", 3), 0..20)) {
            let mut text = String::from("a,b,c\n");
            for row in &rows {
                let quoted: Vec<String> = row.iter().map(|c| format!("\"{}\"", c.replace('"', "\"\""))).collect();
                text.push_str(&quoted.join(","));
                text.push('\n');
            }
            prop_assert_eq!(cells(&text), rows);
        }
    }
}
