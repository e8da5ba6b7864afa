//! What can be wrong with data, and where.
//!
//! Two words, because two things happen to them. A [`Problem`] is about one record: it carries a
//! code of the taxonomy and the place (record, byte offset, path), it can be collected by the
//! thousand, and the record it names becomes a dead letter. An [`Error`] ends the work on a file:
//! the disk is full, the header is not of this format, a limit was passed.

use std::fmt;
use std::io;

use tidegate_core::Code;

/// One thing wrong with one record, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The code of the taxonomy.
    pub code: Code,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// The record, counted from 0, where one is known.
    pub record: Option<u64>,
    /// The byte of the source at which the trouble shows, where one is known.
    pub offset: Option<u64>,
    /// The place inside the record: a JSON path such as `$.geometry.coordinates[0][3]`, a
    /// field's name, or nothing.
    pub path: String,
}

impl Problem {
    /// A problem without a place yet.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Problem {
        Problem { code, message: message.into(), record: None, offset: None, path: String::new() }
    }

    /// The same problem, of this record.
    #[must_use]
    pub fn of_record(mut self, record: u64) -> Problem {
        self.record = Some(record);
        self
    }

    /// The same problem, at this byte.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Problem {
        self.offset = Some(offset);
        self
    }

    /// The same problem, at this path.
    #[must_use]
    pub fn under(mut self, path: impl Into<String>) -> Problem {
        self.path = path.into();
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        if let Some(record) = self.record {
            write!(f, ", record {record}")?;
        }
        if !self.path.is_empty() {
            write!(f, ", at {}", self.path)?;
        }
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// Why the work on a file ended.
#[derive(Debug)]
pub enum Error {
    /// The operating system refused.
    Io(io::Error),
    /// SQLite refused.
    Sqlite(rusqlite::Error),
    /// The content cannot be what was asked for.
    Problem(Box<Problem>),
}

impl Error {
    /// The code of the taxonomy that this error falls under.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Error::Io(_) => Code::UNKNOWN,
            Error::Sqlite(_) => Code::DATABASE_ERROR,
            Error::Problem(problem) => problem.code,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(e) => write!(f, "{e}"),
            Error::Sqlite(e) => write!(f, "SQLite: {e}"),
            Error::Problem(p) => write!(f, "{p}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(e) => Some(e),
            Error::Sqlite(e) => Some(e),
            Error::Problem(p) => Some(p.as_ref()),
        }
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        Error::Io(e)
    }
}

impl From<rusqlite::Error> for Error {
    fn from(e: rusqlite::Error) -> Error {
        Error::Sqlite(e)
    }
}

impl From<Problem> for Error {
    fn from(p: Problem) -> Error {
        Error::Problem(Box::new(p))
    }
}
