//! GeoParquet 1.1: columns, compressed, in groups of rows.
//!
//! The low-level half of the `parquet` crate is used, without Arrow: our batches are columns
//! already, and Arrow would add half of the build's time to copy them into other columns. Geometry
//! is well-known binary with a box per feature beside it (the *covering*), so that a reader can skip
//! groups of rows by place; the reference system is PROJJSON; pages are compressed with zstd.
//!
//! The crate is young in places and the file may be hostile, so that a panic inside it becomes an
//! error here.

mod guard;
mod meta;
mod nested;
mod read;
mod write;

pub use read::ParquetReader;
pub use write::ParquetWriter;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ::parquet::errors::ParquetError;
use tidegate_core::Code;

use crate::error::{Error, Problem};

/// Runs what calls the crate.
fn guarded<T>(what: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    GUARDED.set(GUARDED.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(what));
    GUARDED.set(GUARDED.get() - 1);
    done.unwrap_or_else(|_| Err(broken("the file is damaged")))
}

thread_local! {
    static GUARDED: Cell<u32> = const { Cell::new(0) };
}

/// Whether a panic of this thread would become an error about a file: nothing that whoever reports
/// panics should report.
#[must_use]
pub fn is_guarded() -> bool {
    GUARDED.get() > 0
}

fn problem(message: impl std::fmt::Display) -> Problem {
    Problem::new(Code::CORRUPTED_HEADER, format!("not a GeoParquet file that can be read: {message}"))
}

fn broken(message: impl std::fmt::Display) -> Error {
    problem(message).into()
}

/// An error of the crate.
fn failed(error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(io) => Error::Io(*io),
            Err(other) => broken(other),
        },
        other => broken(other),
    }
}
