//! `tidegate fetch` through the built binary, against services that misbehave.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

mod bench;
#[path = "../common/canned.rs"]
mod canned;
mod change;
mod faults;
mod files;
mod lane_state;
mod lies;
mod objects;
mod preset;
#[path = "../common/provider.rs"]
mod provider;
mod resume;
#[path = "../common/running.rs"]
mod running;
mod services;
mod source;
mod strangers;
mod systems;
mod tiles;
#[path = "../common/workdir.rs"]
mod workdir;
