//! Rows of text under a header, decoded from any encoding.

use super::lexer::Lexer;
use super::problem::{CsvError, RowProblem};
use super::record::{CsvOptions, Rewind};
use encoding_rs::{Encoding, UTF_8};
use std::io;

/// One row. Reused from row to row.
#[derive(Clone, Debug, Default)]
pub struct CsvRow {
    /// Row number, from 1, the header not counted.
    pub number: u64,
    /// Line number of its first line, from 1.
    pub line: u64,
    /// The first problem, if there is one. The cells are then as far as they could be read.
    pub problem: Option<RowProblem>,
    text: String,
    ends: Vec<usize>,
}

impl CsvRow {
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

    /// How much text it holds, in bytes.
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

/// A reader of rows.
#[derive(Debug)]
pub struct RowReader<I> {
    lexer: Lexer<I>,
    encoding: &'static Encoding,
    rows: u64,
    header: Vec<String>,
}

impl<I: Rewind> RowReader<I> {
    /// Reads the header.
    ///
    /// # Errors
    /// When there is no usable header.
    pub fn open(input: I, options: &CsvOptions) -> Result<RowReader<I>, CsvError> {
        let lexer = Lexer::open(input, options)?;
        let mut reader = RowReader { lexer, encoding: options.encoding, rows: 0, header: Vec::new() };
        let mut row = CsvRow::default();
        if !reader.read(&mut row)? {
            return Err(CsvError::Empty);
        }
        if let Some(problem) = row.problem {
            return Err(CsvError::Header(problem));
        }
        let header: Vec<String> = row.cells().map(|c| c.trim().to_string()).collect();
        for (i, name) in header.iter().enumerate() {
            if !name.is_empty() && header.iter().take(i).any(|other| other == name) {
                return Err(CsvError::SameName(name.clone()));
            }
        }
        reader.header = header;
        reader.rows = 0;
        Ok(reader)
    }

    /// The names of the columns.
    #[must_use]
    pub fn header(&self) -> &[String] {
        &self.header
    }

    /// How far in the input reading is, in bytes.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.lexer.offset()
    }

    /// Passes over the next row without decoding it; false at the end.
    ///
    /// # Errors
    /// I/O errors.
    pub fn skip(&mut self) -> io::Result<bool> {
        let found = self.lexer.advance()?;
        self.rows += u64::from(found);
        Ok(found)
    }

    /// Reads the next row; false at the end.
    ///
    /// # Errors
    /// I/O errors.
    pub fn read(&mut self, row: &mut CsvRow) -> io::Result<bool> {
        let found = self.lexer.advance()?;
        let record = self.lexer.record();
        row.line = record.line;
        row.problem.clone_from(&record.problem);
        if !found {
            return Ok(false);
        }
        self.rows += 1;
        row.number = self.rows;
        row.text.clear();
        row.ends.clear();
        match std::str::from_utf8(&record.cells) {
            Ok(text) if self.encoding == UTF_8 && record.ends.iter().all(|&e| text.is_char_boundary(e)) => {
                row.text.push_str(text);
                row.ends.extend_from_slice(&record.ends);
            }
            _ => {
                for column in 0..record.ends.len() {
                    let (text, bad) = self.encoding.decode_without_bom_handling(record.cell(column));
                    if bad {
                        row.problem.get_or_insert(RowProblem::NotText { column });
                    }
                    row.text.push_str(&text);
                    row.ends.push(row.text.len());
                }
            }
        }
        let (found, expected) = (record.count, self.header.len());
        if expected > 0 && found != expected {
            row.problem.get_or_insert(RowProblem::CellCount { found, expected });
        }
        Ok(true)
    }
}
