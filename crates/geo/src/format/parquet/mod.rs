//! GeoParquet 1.1.
//!
//! Why the low-level API of the `parquet` crate, without Arrow: our batches are columnar already, and Arrow
//! would add half of the build time to copy them into other columns. The geometry is well-known binary with
//! a bounding box per feature (the *covering*), so that readers can skip row groups; the coordinate
//! reference system is PROJJSON; pages are compressed with zstd.
//!
//! The file may be hostile, so a panic inside the crate becomes an error here.

mod guard;
mod meta;
mod nested;
mod read;
mod write;

pub use read::ParquetReader;
pub use write::ParquetWriter;

use ::parquet::errors::ParquetError;
use tidegate_core::Code;

use crate::error::{Error, Problem};

/// Calls the crate.
fn guarded<T>(what: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    crate::guard::guarded(what).unwrap_or_else(|| Err(broken("the file is damaged")))
}

fn problem(message: impl std::fmt::Display) -> Problem {
    Problem::new(Code::CORRUPTED_HEADER, format!("the file is not valid GeoParquet: {message}"))
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
