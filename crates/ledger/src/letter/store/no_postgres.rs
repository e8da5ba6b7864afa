//! Stands in for stores in PostgreSQL in a build without it.

use super::{Db, LetterError, Result};
use tidegate_core::part::{MissingPart, OptionalPart};

/// Fails.
pub(super) fn open(_: &str) -> Result<Box<dyn Db>> {
    Err(LetterError::Store(MissingPart(OptionalPart::PostgreSql).to_string()))
}

/// Fails.
pub(super) fn look(url: &str) -> Result<Option<Box<dyn Db>>> {
    open(url).map(Some)
}
