#![doc = include_str!("../README.md")]
//!
//! | module | holds |
//! |---|---|
//! | [`letter`] | dead letters: envelope, store, seal, remedies, replay, export, archive |
//! | [`audit`] | the append-only list of what was decided, chained and signed |
//! | [`sql`] | the SQL that SQLite and PostgreSQL both understand |
#![forbid(unsafe_code)]

pub mod audit;
pub mod letter;
pub mod sql;
