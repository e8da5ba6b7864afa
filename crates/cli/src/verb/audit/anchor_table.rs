//! Anchors as rows of a table in PostgreSQL.

use tidegate_ledger::audit::{LogHead, user};
use tidegate_ledger::bounded::{BoundedClient, BoundedConfig};

use super::anchor::Anchor;
use super::{CommandFailure, Exit, failure, usage};

fn connect(place: &str) -> Result<BoundedClient, CommandFailure> {
    let config = BoundedConfig::parse(place).map_err(usage)?;
    config.connect().map_err(|e| of_database(&e))
}

fn of_database(error: &postgres::Error) -> CommandFailure {
    use tidegate_ledger::bounded::tls_failure;
    if let Some(why) = tls_failure(error) {
        return failure(why);
    }
    match error.as_db_error() {
        Some(db) => {
            failure(format!("{} ({})", tidegate_client::secret::mask(db.message()), db.code().code()))
        }
        None => CommandFailure(Exit::TryLater, format!("the database of the anchors: {error}")),
    }
}

/// Appends heads.
pub(super) fn insert(place: &str, heads: &[LogHead]) -> Result<(), CommandFailure> {
    let mut client = connect(place)?;
    let table = "CREATE TABLE IF NOT EXISTS tidegate_anchor (at timestamptz NOT NULL DEFAULT now(),
                 who text NOT NULL, file text NOT NULL, n bigint NOT NULL, hash text NOT NULL); BEGIN";
    client.batch_execute(table).map_err(|e| of_database(&e))?;
    for head in heads {
        let sql = "INSERT INTO tidegate_anchor (who, file, n, hash) VALUES ($1, $2, $3, $4)";
        client.execute(sql, &[&user(), &head.file, &head.n, &head.hash]).map_err(|e| of_database(&e))?;
    }
    client.batch_execute("COMMIT").map_err(|e| of_database(&e))
}

/// All heads that were kept.
pub(super) fn select(place: &str) -> Result<Vec<Anchor>, CommandFailure> {
    let mut client = connect(place)?;
    let sql = "SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), file, n, hash
               FROM tidegate_anchor ORDER BY at";
    let rows = client.query(sql, &[]).map_err(|e| of_database(&e))?;
    let anchor = |row: &postgres::Row| {
        let head = LogHead { file: row.get(1), n: row.get(2), hash: row.get(3) };
        Anchor { at: row.get(0), head }
    };
    Ok(rows.iter().map(anchor).collect())
}
