//! What a pipeline is made of, and how it is driven on real time.
//!
//! The engine acts where `tidegate-core` decides.
#![forbid(unsafe_code)]

pub mod alert;
pub mod audit;
pub mod cache;
pub mod call;
pub mod doctor;
pub mod fetch;
pub mod gate;
pub mod geocode;
pub mod http;
pub mod lane;
pub mod letter;
mod lock;
pub mod manifest;
pub mod profile;
pub mod run;
pub mod secret;
pub mod sink;
pub mod source;
pub mod spool;
pub mod sql;
pub mod step;
pub mod store;
pub mod telemetry;
pub mod traffic;
