//! Comma-separated values, RFC 4180 with line feeds.
//!
//! `lexer` splits bytes into cells; it is the only code that knows quotes, delimiters and line
//! ends. Two readers stand on it: [`RowReader`] gives rows of text under a header (what `geocode`
//! passes through), and [`CsvReader`] gives batches of features with a geometry.

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
