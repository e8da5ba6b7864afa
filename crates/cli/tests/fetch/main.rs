//! `tidegate fetch` through the built binary, against services that misbehave.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

mod bench;
mod change;
mod faults;
mod files;
mod lies;
mod resume;
mod services;
mod source;
mod strangers;
