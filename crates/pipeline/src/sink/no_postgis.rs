//! Stands in for tables of PostgreSQL in a build without it.

use tidegate_core::part::{MissingPart, OptionalPart};

use super::{HeldShape, SavedWatermark, Sink, SinkError, Spec, TaskTable};
use crate::manifest::SinkTable;

fn missing() -> SinkError {
    SinkError::Fatal(MissingPart(OptionalPart::PostgreSql).to_string())
}

pub(super) fn is_there() -> Result<(), SinkError> {
    Err(missing())
}

pub(super) fn open(_: &Spec, _: &SinkTable) -> Result<Box<dyn Sink>, SinkError> {
    Err(missing())
}

pub(super) fn open_tasks(_: &SinkTable, _: &str) -> Result<Box<dyn TaskTable>, SinkError> {
    Err(missing())
}

pub(super) fn watermark(_: &SinkTable, _: &str) -> Result<Option<SavedWatermark>, SinkError> {
    Err(missing())
}

pub(super) fn held_shape(_: &SinkTable) -> Result<HeldShape, SinkError> {
    Err(missing())
}

pub(super) fn differences(_: &Spec, _: &SinkTable) -> Result<Vec<String>, SinkError> {
    Err(missing())
}
