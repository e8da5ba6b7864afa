//! `tidegate geocode` through the built binary, against servers that misbehave.

mod bench;
mod cache;
mod csv;
mod dialects;
mod faults;
mod fleet;
mod lane_state;
mod options;
mod outputs;
mod processes;
mod profiles;
mod refusals;
mod resume;
mod secrets;
mod statuses;
mod strangers;
mod watch;
