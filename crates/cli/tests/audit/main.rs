//! Before and after a run, through the binary: plan and doctor, and the audit.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

#[allow(dead_code, reason = "another test binary uses the rest")]
#[path = "../pipeline/bench.rs"]
mod bench;
#[path = "../common/canned.rs"]
mod canned;
mod copies;
mod doctor;
mod modes;
mod plan;
#[path = "../common/provider.rs"]
mod provider;
mod register;
#[path = "../common/running.rs"]
mod running;
mod trail;
#[path = "../common/workdir.rs"]
mod workdir;
