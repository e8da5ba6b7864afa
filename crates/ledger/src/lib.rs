#![doc = include_str!("../README.md")]
//!
//! | module | holds |
//! |---|---|
//! | [`letter`] | dead letters: envelope, store, seal, remedies, replay, export, archive |
//! | [`audit`] | the append-only log of what was decided, hash-chained and signed |
//! | `bounded` | the connection to PostgreSQL, on which no wait is endless |
//! | [`sql`] | values and statements that SQLite and PostgreSQL both understand |
#![forbid(unsafe_code)]

pub mod audit;
#[cfg(feature = "postgres")]
pub mod bounded;
pub mod letter;
pub mod sql;
