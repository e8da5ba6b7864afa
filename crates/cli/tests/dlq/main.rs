//! `tidegate dlq` and `tidegate keys` through the built binary, end to end.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests may fail loudly")]

#[path = "../common/canned.rs"]
mod canned;

mod auto;
mod coarse;
mod desk;
mod geocode;
mod keep;
mod kill;
mod mend;
mod nightly;
mod put;
mod rot;
#[path = "../common/running.rs"]
mod running;
mod seal;
mod triage;
#[path = "../common/workdir.rs"]
mod workdir;
