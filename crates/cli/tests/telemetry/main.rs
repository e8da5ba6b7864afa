//! What a run tells while it goes on and afterwards: metrics, spans, logs, alerts, the report.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod alert;
mod bench;
#[path = "../common/canned.rs"]
mod canned;
mod log;
mod metrics;
mod push;
mod report;
#[path = "../common/running.rs"]
mod running;
mod serve;
#[path = "../common/workdir.rs"]
mod workdir;
