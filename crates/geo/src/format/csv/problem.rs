//! Problems of a row, and of a whole file.

use std::fmt;
use std::io;

/// A problem of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowProblem {
    /// The number of cells differs from the header.
    CellCount {
        /// Cells in this row.
        found: usize,
        /// Cells in the header.
        expected: usize,
    },
    /// A cell over the limit.
    CellTooLarge {
        /// Column index, from 0.
        column: usize,
        /// Size in bytes.
        bytes: u64,
    },
    /// A row over the limit.
    RowTooLarge {
        /// Size in bytes.
        bytes: u64,
    },
    /// A quote that is never closed.
    QuoteNotClosed {
        /// Column index, from 0.
        column: usize,
    },
    /// Text behind the closing quote of a cell; only found if [`super::CsvOptions::strict_quotes`].
    TextAfterQuote {
        /// Column index, from 0.
        column: usize,
    },
    /// Bytes that are not text in the given encoding.
    NotText {
        /// Column index, from 0.
        column: usize,
    },
}

impl RowProblem {
    /// The column it is in, counted from 0.
    #[must_use]
    pub const fn column(&self) -> Option<usize> {
        match self {
            RowProblem::CellCount { .. } | RowProblem::RowTooLarge { .. } => None,
            RowProblem::CellTooLarge { column, .. }
            | RowProblem::QuoteNotClosed { column }
            | RowProblem::TextAfterQuote { column }
            | RowProblem::NotText { column } => Some(*column),
        }
    }
}

impl fmt::Display for RowProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowProblem::CellCount { found, expected } => {
                write!(f, "the row has {found} cells, the header {expected}")
            }
            RowProblem::CellTooLarge { bytes, .. } => {
                write!(f, "the cell has {bytes} bytes, over the limit")
            }
            RowProblem::RowTooLarge { bytes } => write!(f, "the row has {bytes} bytes, over the limit"),
            RowProblem::QuoteNotClosed { .. } => write!(f, "the cell's quote is not closed"),
            RowProblem::TextAfterQuote { .. } => write!(f, "text follows a quoted cell"),
            RowProblem::NotText { .. } => {
                write!(f, "the cell is not text in this encoding; try --encoding windows-1252")
            }
        }
    }
}

/// Why a file cannot be opened as CSV.
#[derive(Debug)]
pub enum CsvError {
    /// It could not be read.
    Io(io::Error),
    /// It has no header.
    Empty,
    /// Its header cannot be used.
    Header(RowProblem),
    /// It has another format.
    NotCsv(&'static str),
    /// Two columns have the same name.
    SameName(String),
}

impl fmt::Display for CsvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CsvError::Io(e) => write!(f, "it cannot be read: {e}"),
            CsvError::Empty => f.write_str("it is empty; the first line must name the columns"),
            CsvError::Header(p) => write!(f, "its header cannot be read: {p}"),
            CsvError::NotCsv(what) => write!(f, "it is {what}, not CSV"),
            CsvError::SameName(name) => write!(f, "two columns are named {name:?}; rename one"),
        }
    }
}

impl std::error::Error for CsvError {}

impl From<io::Error> for CsvError {
    fn from(e: io::Error) -> CsvError {
        CsvError::Io(e)
    }
}
