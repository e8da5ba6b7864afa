//! The audit of runs and dead letters, through the binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

#[allow(dead_code, reason = "another test binary uses the rest")]
#[path = "../pipeline/bench.rs"]
mod bench;
mod trail;
