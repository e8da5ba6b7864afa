//! `submit` and `queue` through the built binary, on the queue in a SQLite file and a GeoPackage.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests may fail loudly")]

mod bench;
#[path = "../common/canned.rs"]
mod canned;
mod inputs;
mod journeys;
#[path = "../common/running.rs"]
mod running;
mod verbs;
#[path = "../common/workdir.rs"]
mod workdir;
