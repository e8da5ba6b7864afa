//! `source.tasks`: what the tasks of a queue are.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::objects::ObjectsSpec;
use super::step::Cast;

/// What the tasks of a queue are. A task is a record, or several that are committed together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskSource {
    /// The kinds of tasks that this pipeline works on. By default the id of the pipeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 200)), extend("uniqueItems" = true))]
    pub kinds: Vec<String>,

    /// The fields of the records: name and type. Another field makes the task a dead letter.
    #[schemars(extend("minProperties" = 1))]
    pub fields: BTreeMap<String, Cast>,

    /// The geometry type of the records.
    #[serde(default)]
    pub geometry: TaskGeometry,

    /// How long a task belongs to a worker that has stopped responding. Then another worker takes it.
    ///
    /// Touch it upwards for a queue that is far away.
    #[serde(default = "lease")]
    #[schemars(range(min = 2.0, max = 600.0))]
    pub lease_seconds: f64,

    /// After so many crashes of its workers a task becomes a dead letter. At the last attempt it is alone
    /// in its worker, so that the crash is not the fault of another task.
    #[serde(default = "crashes")]
    #[schemars(range(min = 2, max = 100))]
    pub crashes_max: u32,

    /// The largest payload of a task in bytes, also of an object that it refers to.
    #[serde(default = "bytes")]
    #[schemars(range(min = 1024, max = 1_073_741_824_u64))]
    pub bytes_max: u64,

    /// What the `object` of a task may name. Whoever can write to the queue chooses it, so by default
    /// nothing is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ObjectsSpec")]
    pub objects: Option<ObjectsSpec>,

    /// How long the ends of tasks are kept in the sink. A task that is delivered or submitted again
    /// later is taken for a new one.
    #[serde(default = "days")]
    #[schemars(range(min = 1, max = 3650))]
    pub remember_days: u32,
}

/// The geometry type of the records of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskGeometry {
    /// Any, or none.
    #[default]
    Any,
    /// Points.
    Point,
    /// Lines.
    Linestring,
    /// Polygons.
    Polygon,
    /// Multipoints.
    Multipoint,
    /// Multilines.
    Multilinestring,
    /// Multipolygons.
    Multipolygon,
}

fn lease() -> f64 {
    10.0
}
fn crashes() -> u32 {
    3
}
fn bytes() -> u64 {
    64 << 20
}
fn days() -> u32 {
    30
}
