//! Drives [`tidegate_core`] in virtual time, with a seed.
//!
//! A [`scenario`] file names a question: the contention table ([`occ`]), a [`world`] of clients and
//! a server, or the table of the [`limiter`]. Running it gives an [`outcome`], which a [`report`] shows. Below lie the event
//! [`queue`], the [`draw`]s and the [`trace`] hash that says whether two runs were the same.
#![forbid(unsafe_code)]

pub mod compare;
pub mod dialect;
pub mod drain;
pub mod draw;
pub mod family;
pub mod limiter;
pub mod occ;
mod ours;
pub mod outcome;
pub mod queue;
pub mod report;
pub mod rival;
pub mod scenario;
pub mod server;
pub mod stats;
pub mod trace;
pub mod world;
