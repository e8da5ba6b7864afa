//! Everything through the built binary, as one program: it is linked once, and its tests share the
//! cores among them. What measures the memory of its children is in the program `hostile`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]
#![allow(clippy::disallowed_methods, reason = "a test starts programs and reaches databases in its own way")]

mod audit;
mod chaos;
mod command;
#[path = "../common/mod.rs"]
mod common;
mod daily;
mod dlq;
mod docs;
mod fetch;
mod geocode;
mod layer;
mod pipeline;
mod pipes;
mod queue;
mod raster;
mod simulate;
mod store;
mod telemetry;
mod validate;
mod worker;
