#![doc = include_str!("../README.md")]
//!
//! A [`scenario`] file selects an experiment: the [`contention`] table, a [`world`] of clients and
//! a server, or the table of the [`limiter`]. Running it gives an [`outcome`], which a [`report`]
//! formats. Underneath are the [`event_queue`], the [`distribution`]s and the [`trace`] hash, which
//! tells whether two runs were identical.
#![forbid(unsafe_code)]

pub mod compare;
pub mod contention;
pub mod dialect;
pub mod distribution;
pub mod drain;
mod error;
pub mod event_queue;
pub mod family;
pub mod limiter;
pub mod outcome;
pub mod real_limiter;
pub mod report;
pub mod rival;
pub mod scenario;
pub mod server;
mod shipped_limiter;
pub mod stats;
pub mod trace;
pub mod world;

pub use error::{UnknownNameError, WorldError};
