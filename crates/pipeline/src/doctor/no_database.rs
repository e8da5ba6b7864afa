//! Stands in for the check of a database in a build without PostgreSQL.

use tidegate_core::part::{MissingPart, OptionalPart};

use super::Diagnosis;
use crate::manifest::{self, Manifest};

/// Tells what the build lacks.
pub(super) fn database(_: &manifest::SinkTable) -> Diagnosis {
    let missing = MissingPart(OptionalPart::PostgreSql);
    Diagnosis::fail("sink", missing.to_string(), "install the full build")
}

/// None: every part that needs one says what the build lacks.
pub(super) fn connections(_: &Manifest) -> Vec<Diagnosis> {
    Vec::new()
}
