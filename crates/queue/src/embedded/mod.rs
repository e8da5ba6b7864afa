//! Queues in a database: SQLite on one machine, PostgreSQL on several.
//!
//! A row is a message. `visible_at` is the end of its lease or of its waiting time; a row in the
//! state "ready" can be delivered. The token of a row grows with each delivery, so that a receipt
//! of an earlier delivery is not taken for the current one.

pub(crate) mod sqlite;
