#![doc = include_str!("../README.md")]
//!
//! | module | holds |
//! |---|---|
//! | [`letter`] | dead letters: envelope, store, seal, remedies, replay, export, archive |
//! | [`audit`] | the append-only log of what was decided, hash-chained and signed |
//! | [`sql`] | values and statements that SQLite and PostgreSQL both understand |
#![forbid(unsafe_code)]

pub mod audit;
pub mod letter;
pub mod sql;
