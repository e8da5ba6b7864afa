//! `tidegate geocode` through the built binary, against servers that misbehave.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

mod bench;
mod cache;
#[path = "../common/canned.rs"]
mod canned;
mod csv;
mod dialects;
mod faults;
mod fleet;
mod lane_state;
mod options;
mod outputs;
mod processes;
mod profiles;
#[path = "../common/provider.rs"]
mod provider;
mod refusals;
mod resume;
#[path = "../common/running.rs"]
mod running;
mod secrets;
mod statuses;
mod strangers;
mod watch;
#[path = "../common/workdir.rs"]
mod workdir;
