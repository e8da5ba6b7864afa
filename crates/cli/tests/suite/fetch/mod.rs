//! `tidegate fetch` through the built binary, against services that misbehave.

mod bench;
mod change;
mod faults;
mod files;
mod lane_state;
mod lies;
mod objects;
mod preset;
mod resume;
mod services;
mod source;
mod strangers;
mod systems;
mod tiles;
