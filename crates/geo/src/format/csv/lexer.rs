//! A lexer for CSV with damaged rows, none of which is lost.
//!
//! Why not a general CSV crate: they stop at the first byte that is not UTF-8, buffer a cell of any size,
//! and an unclosed quote silently swallows the rest of the file. Here a bad row has a [`RowProblem`] that
//! names its column, and reading continues after it:
//!
//! - a cell over the limit is skipped to its end, in constant memory;
//! - a quote that is never closed ends at the end of its own line, and from there on a quoted
//!   cell may not span lines (so the file is scanned at most twice, however broken it is);
//! - too few or too many cells are found by the readers, which know the header;
//! - bytes that do not fit the encoding are a problem of their cell, not of the file.
//!
//! Delimiter (comma, semicolon, tab, bar) is guessed from the header unless given; a byte-order
//! mark is dropped; line ends may be LF, CRLF or CR; blank lines are skipped.

use super::problem::{CsvError, RowProblem};
use super::record::{CsvOptions, Record, Rewind};
use super::sniff::{guess_delimiter, other_format};
use memchr::{memchr, memchr2, memchr3};
use std::io;

const CHUNK: usize = 256 * 1024;

/// Splits bytes into rows and cells.
#[derive(Debug)]
pub struct Lexer<I> {
    input: I,
    buf: Vec<u8>,
    /// Next byte in `buf`.
    at: usize,
    /// Bytes in `buf`.
    filled: usize,
    /// Offset of `buf` in the input.
    before: u64,
    /// First byte of `buf` that belongs to the source of the row.
    mark: usize,
    ended: bool,
    options: CsvOptions,
    delimiter: u8,
    /// After an unclosed quote: quoted cells end with their line.
    one_line: bool,
    /// Line number, from 1.
    line: u64,
    record: Record,
}

impl<I: Rewind> Lexer<I> {
    /// Looks at the first bytes: what is not CSV is refused, a byte-order mark dropped, the
    /// delimiter guessed.
    ///
    /// # Errors
    /// When the input cannot be read, or is of another format.
    pub fn open(input: I, options: &CsvOptions) -> Result<Lexer<I>, CsvError> {
        let mut lexer = Lexer {
            input,
            buf: vec![0; CHUNK],
            at: 0,
            filled: 0,
            before: 0,
            mark: 0,
            ended: false,
            options: *options,
            delimiter: b',',
            one_line: false,
            line: 1,
            record: Record::default(),
        };
        lexer.fill()?;
        let start = &lexer.buf[..lexer.filled];
        if let Some(format) = other_format(start) {
            return Err(CsvError::NotCsv(format));
        }
        if start.starts_with(b"\xef\xbb\xbf") {
            lexer.at = 3;
        }
        lexer.delimiter =
            options.delimiter.unwrap_or_else(|| guess_delimiter(&lexer.buf[lexer.at..lexer.filled]));
        Ok(lexer)
    }

    /// How far in the input reading is, in bytes.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// The row that was read last.
    #[must_use]
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// Reads the next row that is not blank; false at the end.
    ///
    /// # Errors
    /// I/O errors.
    pub fn advance(&mut self) -> io::Result<bool> {
        loop {
            self.record.clear();
            self.record.line = self.line;
            if self.peek()?.is_none() {
                return Ok(false);
            }
            self.mark = self.at;
            self.record.offset = self.offset();
            self.scan()?;
            let row = &self.record;
            let blank = row.count == 1 && row.cells.is_empty() && row.quoted.first() == Some(&false);
            if !blank || row.problem.is_some() {
                return Ok(true);
            }
        }
    }

    /// Splits one row into cells.
    fn scan(&mut self) -> io::Result<()> {
        loop {
            let quoted = self.peek()? == Some(b'"');
            let ended = if quoted { self.quoted_cell()? } else { self.plain_cell()? };
            let row = &mut self.record;
            row.count += 1;
            // Beyond the limit cells are counted and not kept.
            if row.len <= self.options.row_max as u64 {
                row.ends.push(row.cells.len());
                row.quoted.push(quoted);
            }
            if ended {
                return Ok(());
            }
        }
    }

    /// Reads a cell without quotes; true when it ends the row.
    fn plain_cell(&mut self) -> io::Result<bool> {
        let start = self.record.cells.len();
        let mut size = 0;
        loop {
            if self.at == self.filled && !self.fill()? {
                self.check_size(start, size);
                return Ok(self.end_of_input());
            }
            let rest = &self.buf[self.at..self.filled];
            let stop = memchr3(self.delimiter, b'\n', b'\r', rest);
            self.take(stop.unwrap_or(rest.len()), &mut size);
            if stop.is_some() {
                self.check_size(start, size);
                return self.end_of_cell();
            }
        }
    }

    /// Reads a cell in quotes; true when it ends the row.
    fn quoted_cell(&mut self) -> io::Result<bool> {
        let (start, opened, line) = (self.record.cells.len(), self.offset(), self.line);
        let mut size = 0;
        self.at += 1;
        loop {
            if self.at == self.filled && !self.fill()? {
                return self.not_closed(start, opened, line);
            }
            let rest = &self.buf[self.at..self.filled];
            let stop = memchr(b'"', rest);
            let part = &rest[..stop.unwrap_or(rest.len())];
            if self.one_line && memchr2(b'\n', b'\r', part).is_some() {
                return self.not_closed(start, opened, line);
            }
            self.line += part.iter().filter(|&&b| b == b'\n').count() as u64;
            self.take(part.len(), &mut size);
            if stop.is_none() {
                continue;
            }
            self.at += 1;
            let next = self.peek()?;
            if next == Some(b'"') {
                self.take(1, &mut size);
                continue;
            }
            self.check_size(start, size);
            match next {
                None => return Ok(self.end_of_input()),
                Some(b) if b == self.delimiter || b == b'\n' || b == b'\r' => return self.end_of_cell(),
                Some(_) => {
                    if self.options.strict_quotes {
                        let column = self.record.count;
                        self.record.problem.get_or_insert(RowProblem::TextAfterQuote { column });
                    }
                    return self.plain_cell();
                }
            }
        }
    }

    /// The quote opened at `opened` has no end: the cell ends with its line instead.
    fn not_closed(&mut self, start: usize, opened: u64, line: u64) -> io::Result<bool> {
        let row = &mut self.record;
        row.problem.get_or_insert(RowProblem::QuoteNotClosed { column: row.count });
        row.cells.truncate(start);
        self.one_line = true;
        if opened < self.before {
            self.input.rewind_to(opened)?;
            row.source.truncate(usize::try_from(opened - row.offset).unwrap_or(usize::MAX));
            self.before = opened;
            self.at = 0;
            self.filled = 0;
            self.mark = 0;
            self.ended = false;
        } else {
            self.at = (opened - self.before) as usize;
        }
        self.line = line;
        self.peek()?;
        self.at += 1;
        // The rest of the line belongs to the bad row; its delimiters are ignored.
        let mut size = 0;
        loop {
            if self.at == self.filled && !self.fill()? {
                return Ok(self.end_of_input());
            }
            let rest = &self.buf[self.at..self.filled];
            let stop = memchr2(b'\n', b'\r', rest);
            self.take(stop.unwrap_or(rest.len()), &mut size);
            if stop.is_some() {
                return self.end_of_cell();
            }
        }
    }

    /// Steps over `len` bytes of a cell that had `size` bytes, and keeps them within the limits.
    fn take(&mut self, len: usize, size: &mut u64) {
        *size += len as u64;
        if *size <= self.options.cell_max as u64 && self.record.len <= self.options.row_max as u64 {
            self.record.cells.extend_from_slice(&self.buf[self.at..self.at + len]);
        }
        self.at += len;
    }

    fn check_size(&mut self, start: usize, size: u64) {
        if size > self.options.cell_max as u64 {
            let row = &mut self.record;
            row.cells.truncate(start);
            row.problem.get_or_insert(RowProblem::CellTooLarge { column: row.count, bytes: size });
        }
    }

    /// Steps over a delimiter (false) or a line end (true).
    fn end_of_cell(&mut self) -> io::Result<bool> {
        let byte = self.buf[self.at];
        self.record.len = self.offset() - self.record.offset;
        if byte == self.delimiter {
            self.at += 1;
            return Ok(false);
        }
        self.keep_source(self.at);
        self.end_of_row();
        self.at += 1;
        self.line += 1;
        if byte == b'\r' && self.peek()? == Some(b'\n') {
            self.at += 1;
        }
        Ok(true)
    }

    /// The row ends with the input.
    fn end_of_input(&mut self) -> bool {
        self.record.len = self.offset() - self.record.offset;
        self.end_of_row();
        true
    }

    fn end_of_row(&mut self) {
        let row = &mut self.record;
        if row.len > self.options.row_max as u64 {
            row.problem.get_or_insert(RowProblem::RowTooLarge { bytes: row.len });
        }
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        if self.at == self.filled && !self.fill()? {
            return Ok(None);
        }
        Ok(Some(self.buf[self.at]))
    }

    /// Keeps what the buffer has of the row's source, up to `to`.
    fn keep_source(&mut self, to: usize) {
        if self.options.keep_source {
            let room = self.options.row_max.saturating_sub(self.record.source.len());
            let part = self.buf.get(self.mark..to).unwrap_or_default();
            self.record.source.extend_from_slice(&part[..part.len().min(room)]);
            self.mark = self.filled;
        }
    }

    /// Reads the next chunk; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        self.keep_source(self.filled);
        self.before += self.filled as u64;
        self.at = 0;
        self.filled = 0;
        self.mark = 0;
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
