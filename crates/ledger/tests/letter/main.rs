//! The store of dead letters: one suite over SQLite and PostgreSQL, both real.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

mod bench;
mod conform;
mod upgrade;
