//! Errors of a replay.

use crate::letter::feature::PayloadError;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why letters cannot be replayed.
#[derive(Debug)]
pub enum ReplayError {
    /// No file can be created in the directory of the output.
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The name of the output does not tell its format.
    UnknownFormat(PathBuf),
    /// The output cannot be read or written.
    Output {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A record of the output cannot be read.
    Record {
        /// The file.
        path: PathBuf,
        /// The number of the record, from 1.
        record: u64,
    },
    /// A payload is not a feature.
    Payload(PayloadError),
    /// A geometry cannot be transformed to the coordinate reference system of the output.
    Geometry(Box<dyn Error + Send + Sync>),
    /// The pipeline cannot replay the letters now; the reason.
    Pipeline(String),
}

impl ReplayError {
    pub(super) fn output(path: &Path, source: impl Into<Box<dyn Error + Send + Sync>>) -> ReplayError {
        ReplayError::Output { path: path.to_owned(), source: source.into() }
    }

    pub(super) fn geometry(source: impl Into<Box<dyn Error + Send + Sync>>) -> ReplayError {
        ReplayError::Geometry(source.into())
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Directory { path, source } => {
                write!(f, "cannot write {}: {source}", path.display())
            }
            ReplayError::UnknownFormat(path) => {
                write!(f, "{}: unknown file extension", path.display())
            }
            ReplayError::Output { path, source } => write!(f, "{}: {source}", path.display()),
            ReplayError::Record { path, record } => {
                let path = path.display();
                write!(f, "{path}: cannot read record {record}, so the file was not changed")
            }
            ReplayError::Payload(e) => e.fmt(f),
            ReplayError::Geometry(e) => e.fmt(f),
            ReplayError::Pipeline(why) => f.write_str(why),
        }
    }
}

impl Error for ReplayError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ReplayError::Directory { source, .. } => Some(source),
            ReplayError::Output { source: e, .. } | ReplayError::Geometry(e) => Some(e.as_ref()),
            ReplayError::Payload(e) => Some(e),
            ReplayError::UnknownFormat(_) | ReplayError::Record { .. } | ReplayError::Pipeline(_) => None,
        }
    }
}

impl From<PayloadError> for ReplayError {
    fn from(e: PayloadError) -> ReplayError {
        ReplayError::Payload(e)
    }
}

/// The reason of a pipeline.
impl From<String> for ReplayError {
    fn from(why: String) -> ReplayError {
        ReplayError::Pipeline(why)
    }
}
