//! `tidegate dlq` and `tidegate keys` through the built binary, end to end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

#[path = "../geocode/canned.rs"]
#[allow(dead_code, reason = "shared with the tests of geocode")]
mod canned;

mod desk;
mod geocode;
mod keep;
mod kill;
mod mend;
mod seal;
mod triage;
