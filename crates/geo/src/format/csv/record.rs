//! Options, input and output of the lexer.

use super::problem::RowProblem;
use encoding_rs::{Encoding, UTF_8};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

/// How to read.
#[derive(Clone, Copy, Debug)]
pub struct CsvOptions {
    /// Delimiter between cells; guessed from the header when `None`.
    pub delimiter: Option<u8>,
    /// Encoding of the text.
    pub encoding: &'static Encoding,
    /// Largest cell, in bytes.
    pub cell_max: usize,
    /// Largest row, in bytes.
    pub row_max: usize,
    /// Whether text behind the closing quote of a cell is a problem. If not, it is taken as it
    /// stands, as spreadsheets do.
    pub strict_quotes: bool,
    /// Whether to keep the bytes of each row as the input has them ([`Record::source`]).
    pub keep_source: bool,
}

impl Default for CsvOptions {
    fn default() -> CsvOptions {
        CsvOptions {
            delimiter: None,
            encoding: UTF_8,
            cell_max: 1 << 20,
            row_max: 64 << 20,
            strict_quotes: false,
            keep_source: false,
        }
    }
}

/// An input that can seek back: an unclosed quote is found only at the end.
pub trait Rewind: Read {
    /// Goes to `offset`, which has been read before.
    ///
    /// # Errors
    /// I/O errors.
    fn rewind_to(&mut self, offset: u64) -> io::Result<()>;
}

impl Rewind for std::fs::File {
    fn rewind_to(&mut self, offset: u64) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset)).map(|_| ())
    }
}

impl<T: AsRef<[u8]>> Rewind for io::Cursor<T> {
    fn rewind_to(&mut self, offset: u64) -> io::Result<()> {
        self.set_position(offset);
        Ok(())
    }
}

impl<I: Rewind + ?Sized> Rewind for Box<I> {
    fn rewind_to(&mut self, offset: u64) -> io::Result<()> {
        (**self).rewind_to(offset)
    }
}

/// The cells of one row, as bytes in the encoding of the input. Reused from row to row.
#[derive(Debug, Default)]
pub struct Record {
    /// The cells without quotes, one behind the other.
    pub cells: Vec<u8>,
    /// End of each cell in `cells`.
    pub ends: Vec<usize>,
    /// Whether each cell was in quotes.
    pub quoted: Vec<bool>,
    /// Number of cells, those over the row's limit included.
    pub count: usize,
    /// The first problem, if there is one. The cells are then as far as they could be read.
    pub problem: Option<RowProblem>,
    /// Line number of the first line, from 1.
    pub line: u64,
    /// Offset of the first byte in the input.
    pub offset: u64,
    /// Length in the input without the line end, in bytes.
    pub len: u64,
    /// The bytes as the input has them, without the line end; at most `row_max`, empty unless asked for.
    pub source: Vec<u8>,
}

impl Record {
    /// A cell, counted from 0; empty beyond the last.
    #[must_use]
    pub fn cell(&self, i: usize) -> &[u8] {
        self.cells.get(self.range(i)).unwrap_or_default()
    }

    /// Where a cell lies in `cells`.
    pub(super) fn range(&self, i: usize) -> Range<usize> {
        let start = i.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        start..self.ends.get(i).copied().unwrap_or(start)
    }

    pub(super) fn clear(&mut self) {
        self.cells.clear();
        self.ends.clear();
        self.quoted.clear();
        self.source.clear();
        (self.count, self.len, self.problem) = (0, 0, None);
    }
}
