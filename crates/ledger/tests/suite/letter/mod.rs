//! The store of dead letters: one suite over SQLite and PostgreSQL, both real.

mod bench;
mod conform;
mod upgrade;
