//! Stands in for the check of a database in a build without PostgreSQL.

use tidegate_core::part::{MissingPart, OptionalPart};

use super::Diagnosis;
use crate::manifest;

/// Tells what the build lacks.
pub(super) fn database(_: &manifest::SinkTable) -> Diagnosis {
    let missing = MissingPart(OptionalPart::PostgreSql);
    Diagnosis::fail("sink", missing.to_string(), "install the full build")
}
