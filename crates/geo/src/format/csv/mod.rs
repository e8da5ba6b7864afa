//! Comma-separated values, RFC 4180 with line feeds.
//!
//! `lexer` splits bytes into cells; quotes, delimiters and line ends are handled only there. Two readers
//! use it: [`RowReader`] gives rows of text (for `geocode`), and [`CsvReader`] gives batches of features.

mod geometry;
mod lexer;
mod problem;
mod read;
mod record;
mod row;
mod sniff;
mod write;

pub use lexer::Lexer;
pub use problem::{CsvError, RowProblem};
pub use read::CsvReader;
pub use record::{CsvOptions, Record, Rewind};
pub use row::{CsvRow, RowReader};
pub use write::{CsvWriter, Geometry};

#[cfg(test)]
mod tests;
