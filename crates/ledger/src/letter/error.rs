//! Errors of operations on letters.

use std::fmt;

/// Why an operation on letters failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterError {
    /// The store cannot be used: nothing more may be acknowledged.
    Store(String),
    /// The server of the store is down or refuses connections: try again later. Nothing more may be
    /// acknowledged.
    Unreachable(String),
    /// The store is full: nothing more may be acknowledged.
    Full(String),
    /// The letter is gone, or somebody else has leased it since.
    Fenced(String),
    /// The request cannot be fulfilled; nothing was changed.
    Refused(String),
    /// A key is missing, wrong, or does not belong to this letter.
    Sealed(String),
}

impl fmt::Display for LetterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LetterError::Store(what) | LetterError::Unreachable(what) => {
                write!(f, "the dead letter store: {what}")
            }
            LetterError::Full(what)
            | LetterError::Fenced(what)
            | LetterError::Refused(what)
            | LetterError::Sealed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for LetterError {}

pub(crate) type Result<T> = std::result::Result<T, LetterError>;
