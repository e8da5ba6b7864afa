//! Stands in for anchors in PostgreSQL in a build without it.

use tidegate_core::part::{MissingPart, OptionalPart};
use tidegate_ledger::audit::LogHead;

use super::anchor::Anchor;
use super::{CommandFailure, usage};

/// Fails.
pub(super) fn insert(_: &str, _: &[LogHead]) -> Result<(), CommandFailure> {
    Err(usage(MissingPart(OptionalPart::PostgreSql).to_string()))
}

/// Fails.
pub(super) fn select(_: &str) -> Result<Vec<Anchor>, CommandFailure> {
    Err(usage(MissingPart(OptionalPart::PostgreSql).to_string()))
}
