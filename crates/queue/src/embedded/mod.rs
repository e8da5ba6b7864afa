//! Queues in a database: SQLite on one machine, PostgreSQL on several.
//!
//! A row is a message. `visible_at` is the end of its lease or of its waiting time; a row in the
//! state "ready" can be delivered. The token of a row grows with each delivery, so that a receipt
//! of an earlier delivery is not taken for the current one.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod sqlite;

/// The name of a queue that has none.
pub(crate) const DEFAULT_QUEUE: &str = "geotasks";

/// The largest body.
const BODY_MAX: usize = 64 << 20;

/// The row and the token of a receipt.
fn receipt_ids(receipt: &str) -> Option<(i64, i64)> {
    let (id, token) = receipt.split_once(':')?;
    Some((id.parse().ok()?, token.parse().ok()?))
}
