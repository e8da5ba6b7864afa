//! Stands in for tables as sources in a build without PostgreSQL.

use tidegate_core::part::{MissingPart, OptionalPart};

use super::source::Source;
use crate::manifest::{SinceSpec, SourceTable};
use crate::source::CountTolerance;
use crate::step::StepError;

/// Fails.
pub(super) fn open(
    _: &SourceTable,
    _: usize,
    _: (CountTolerance, Option<&SinceSpec>),
) -> Result<Box<dyn Source>, StepError> {
    Err(StepError::Broken(MissingPart(OptionalPart::PostgreSql).to_string()))
}
