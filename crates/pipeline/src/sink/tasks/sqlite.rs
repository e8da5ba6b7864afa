//! The table of tasks in a GeoPackage.
//!
//! Writers of a file take turns, so each operation is one transaction and nothing else is to be
//! locked. The name of the table begins as those of the other tables of a pipeline, which a
//! GeoPackage of ours hides from GDAL's list of layers. It stays in the file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use tidegate_core::Code;

use super::{
    Claim, SinkError, TaskEnd, TaskRow, TaskState, TaskTable, distinct, distinct_ends, gone, in_order,
    read_state, stored, stored_key,
};
use crate::letter::now_ms;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS tidegate_task (
    pipeline TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL, token INTEGER NOT NULL,
    attempts INTEGER NOT NULL, worker TEXT NOT NULL, reason TEXT, changed_ms INTEGER NOT NULL,
    dead_records INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (pipeline, key))";

/// The columns that a new row gives.
const NEW: &str = "pipeline, key, state, token, attempts, worker, reason, changed_ms";

/// The table of tasks of a pipeline in a GeoPackage.
struct SqliteTasks {
    db: Connection,
    pipeline: String,
    /// The file, for errors.
    place: String,
}

/// Opens the table in an existing file.
pub(crate) fn open(path: &Path, pipeline: &str) -> Result<Box<dyn TaskTable>, SinkError> {
    let connect = || -> rusqlite::Result<Connection> {
        let db = Connection::open(path)?;
        db.busy_timeout(Duration::from_secs(30))?;
        db.execute_batch(
            "PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;",
        )?;
        db.execute_batch(TABLE)?;
        if !has_dead_records(&db)? {
            // A file from before. Another worker may do the same at the same time.
            let added = db.execute_batch(
                "ALTER TABLE tidegate_task ADD COLUMN dead_records INTEGER NOT NULL DEFAULT 0",
            );
            added.or_else(|e| if has_dead_records(&db)? { Ok(()) } else { Err(e) })?;
        }
        Ok(db)
    };
    let place = path.display().to_string();
    let db = connect().map_err(|e| judge(&e).at(&place))?;
    Ok(Box::new(SqliteTasks { db, pipeline: pipeline.to_owned(), place }))
}

/// Whether the table is there and counts the dead records of a task.
fn has_dead_records(db: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM pragma_table_info('tidegate_task') WHERE name = 'dead_records')";
    db.query_row(sql, [], |row| row.get(0))
}

fn judge(e: &rusqlite::Error) -> SinkError {
    let busy = matches!(
        e.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)
    );
    if busy {
        return SinkError::Transient { code: Code::DATABASE_UNAVAILABLE, message: e.to_string() };
    }
    SinkError::Fatal(e.to_string())
}

impl From<rusqlite::Error> for SinkError {
    fn from(e: rusqlite::Error) -> SinkError {
        judge(&e)
    }
}

/// Ends tasks in the open transaction; returns the keys whose tokens are not current.
pub(crate) fn finish(db: &Connection, pipeline: &str, ends: &[TaskEnd]) -> Result<Vec<String>, SinkError> {
    let mut lost = Vec::new();
    let mut update = db.prepare_cached(
        "UPDATE tidegate_task SET state = ?4, reason = ?5, changed_ms = ?6, dead_records = ?7
         WHERE pipeline = ?1 AND key = ?2 AND token = ?3 AND state = 'running'",
    )?;
    let now = now_ms();
    for end in distinct_ends(ends)? {
        let key = stored_key(&end.key);
        let (word, reason, dead) = (end.state.word(), &end.reason, end.dead_records);
        let values = params![pipeline, key, end.token, word, reason, now, dead];
        if update.execute(values)? == 0 {
            lost.push(end.key.clone());
        }
    }
    Ok(lost)
}

/// Counts dead records as replayed, in the open transaction: one for each time that a key of a task is
/// given. A task without any left is done.
pub(crate) fn resolve(db: &Connection, pipeline: &str, keys: &[String]) -> Result<(), SinkError> {
    if !has_dead_records(db)? {
        return Ok(());
    }
    let mut update = db.prepare_cached(
        "UPDATE tidegate_task SET dead_records = max(dead_records - 1, 0), changed_ms = ?3,
           reason = CASE WHEN dead_records > 1 THEN reason END,
           state = CASE WHEN dead_records > 1 THEN state ELSE 'done' END
         WHERE pipeline = ?1 AND key = ?2 AND state = 'dead'",
    )?;
    let now = now_ms();
    for key in keys {
        update.execute(params![pipeline, stored_key(key), now])?;
    }
    Ok(())
}

fn state(db: &Connection, pipeline: &str, key: &str) -> Result<Option<TaskState>, SinkError> {
    let mut select = db.prepare_cached("SELECT state FROM tidegate_task WHERE pipeline = ?1 AND key = ?2")?;
    let word: Option<String> = select.query_row([pipeline, key], |row| row.get(0)).optional()?;
    word.map(|word| read_state(&word)).transpose()
}

const COLUMNS: &str = "key, state, token, attempts, worker, reason, changed_ms";

fn row(row: &Row<'_>) -> Result<TaskRow, SinkError> {
    Ok(TaskRow {
        key: row.get(0)?,
        state: read_state(&row.get::<_, String>(1)?)?,
        token: row.get(2)?,
        attempts: row.get(3)?,
        worker: row.get(4)?,
        reason: row.get(5)?,
        changed_ms: row.get(6)?,
    })
}

impl SqliteTasks {
    fn transact<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>, &str) -> Result<T, SinkError>,
    ) -> Result<T, SinkError> {
        let SqliteTasks { db, pipeline, place } = self;
        let transact = || {
            let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction, pipeline)?;
            transaction.commit()?;
            Ok(done)
        };
        transact().map_err(|e: SinkError| e.at(place))
    }

    /// Adds tasks that have no row, in this state, and calls `change` for each that has one. Returns
    /// the states before.
    fn add(
        &mut self,
        keys: &[String],
        fresh: TaskState,
        change: &str,
    ) -> Result<Vec<Option<TaskState>>, SinkError> {
        let keys = &stored(keys);
        let unique = distinct(keys);
        let before = self.transact(|db, pipeline| {
            let mut before = BTreeMap::new();
            let now = now_ms();
            let mut insert = db.prepare_cached(&format!(
                "INSERT INTO tidegate_task ({NEW}) VALUES (?1, ?2, ?3, 0, 0, '', NULL, ?4)
                 ON CONFLICT (pipeline, key) {change}"
            ))?;
            for key in unique {
                before.insert(key.to_owned(), state(db, pipeline, key)?);
                insert.execute(params![pipeline, key, fresh.word(), now])?;
            }
            Ok(before)
        })?;
        Ok(keys.iter().map(|key| before.get(key).copied().flatten()).collect())
    }
}

impl TaskTable for SqliteTasks {
    fn submit(&mut self, keys: &[String]) -> Result<Vec<Option<TaskState>>, SinkError> {
        self.add(keys, TaskState::Queued, "DO NOTHING")
    }

    fn claim(&mut self, keys: &[String], worker: &str) -> Result<Vec<Claim>, SinkError> {
        let keys = &stored(keys);
        let unique = distinct(keys);
        let claims = self.transact(|db, pipeline| {
            let mut claims = BTreeMap::new();
            let now = now_ms();
            let mut insert = db.prepare_cached(&format!(
                "INSERT INTO tidegate_task ({NEW}) VALUES (?1, ?2, 'running', ?4, 1, ?3, NULL, ?4)
                 ON CONFLICT (pipeline, key) DO UPDATE SET state = 'running',
                   token = max(token + 1, excluded.token),
                   attempts = attempts + (state <> 'running' OR worker <> excluded.worker),
                   worker = excluded.worker, changed_ms = excluded.changed_ms
                 WHERE state IN ('queued', 'running')
                 RETURNING token, attempts"
            ))?;
            for key in unique {
                let granted = insert
                    .query_row(params![pipeline, key, worker, now], |row| {
                        Ok(Claim::Granted { token: row.get(0)?, attempts: row.get(1)? })
                    })
                    .optional()?;
                let claim = match granted {
                    Some(granted) => granted,
                    None => Claim::Ended(state(db, pipeline, key)?.ok_or_else(|| gone(key))?),
                };
                claims.insert(key.to_owned(), claim);
            }
            Ok(claims)
        })?;
        in_order(keys, claims)
    }

    fn release(&mut self, claims: &[(String, i64)]) -> Result<(), SinkError> {
        self.transact(|db, pipeline| {
            let now = now_ms();
            let mut update = db.prepare_cached(
                "UPDATE tidegate_task SET attempts = max(attempts - 1, 0), changed_ms = ?4,
                   state = CASE WHEN token = ?3 THEN 'queued' ELSE state END
                 WHERE pipeline = ?1 AND key = ?2 AND token >= ?3 AND state IN ('queued', 'running')",
            )?;
            for (key, token) in claims {
                update.execute(params![pipeline, stored_key(key), token, now])?;
            }
            Ok(())
        })
    }

    fn finish(&mut self, ends: &[TaskEnd]) -> Result<Vec<String>, SinkError> {
        self.transact(|db, pipeline| finish(db, pipeline, ends))
    }

    fn cancel(&mut self, keys: &[String]) -> Result<Vec<Option<TaskState>>, SinkError> {
        let change = "DO UPDATE SET state = excluded.state, changed_ms = excluded.changed_ms
                      WHERE state IN ('queued', 'running')";
        self.add(keys, TaskState::Cancelled, change)
    }

    fn reopen(&mut self, keys: &[String]) -> Result<u64, SinkError> {
        let keys = &stored(keys);
        let unique = distinct(keys);
        self.transact(|db, pipeline| {
            let now = now_ms();
            let mut update = db.prepare_cached(
                "UPDATE tidegate_task SET state = 'queued', attempts = 0, reason = NULL, changed_ms = ?3
                 WHERE pipeline = ?1 AND key = ?2 AND state IN ('done', 'dead', 'cancelled')",
            )?;
            let mut changed = 0;
            for key in unique {
                changed += update.execute(params![pipeline, key, now])? as u64;
            }
            Ok(changed)
        })
    }

    fn rows(&mut self, keys: &[String]) -> Result<Vec<Option<TaskRow>>, SinkError> {
        let sql = format!("SELECT {COLUMNS} FROM tidegate_task WHERE pipeline = ?1 AND key = ?2");
        let mut select = self.db.prepare_cached(&sql)?;
        let mut find = |key: &String| {
            let mut rows = select.query([self.pipeline.as_str(), &*stored_key(key)])?;
            let found = rows.next()?.map(row).transpose()?;
            Ok(found.map(|row| TaskRow { key: key.clone(), ..row }))
        };
        keys.iter().map(&mut find).collect::<Result<_, SinkError>>().map_err(|e| e.at(&self.place))
    }

    fn counts(&mut self) -> Result<[u64; 5], SinkError> {
        // One pass. GROUP BY would sort all rows in memory.
        let words = TaskState::ALL.map(|state| format!("'{}'", state.word()));
        let each = words.each_ref().map(|word| format!("count(*) FILTER (WHERE state = {word})"));
        let sql = format!(
            "SELECT {}, min(state) FILTER (WHERE state NOT IN ({})) FROM tidegate_task WHERE pipeline = ?1",
            each.join(", "),
            words.join(", ")
        );
        let (counts, unknown) = self.db.prepare_cached(&sql)?.query_row([&self.pipeline], |row| {
            let mut counts = [0; 5];
            for (at, count) in counts.iter_mut().enumerate() {
                *count = row.get::<_, i64>(at)?.unsigned_abs();
            }
            Ok((counts, row.get::<_, Option<String>>(counts.len())?))
        })?;
        match unknown.as_deref().map(read_state) {
            Some(Err(e)) => Err(e.at(&self.place)),
            _ => Ok(counts),
        }
    }

    fn list(
        &mut self,
        state: Option<TaskState>,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<TaskRow>, SinkError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM tidegate_task WHERE pipeline = ?1 AND key > ?2 AND (?3 IS NULL OR state = ?3)
             ORDER BY key LIMIT ?4"
        );
        let mut select = self.db.prepare_cached(&sql)?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut rows = select.query(params![
            self.pipeline,
            after.unwrap_or_default(),
            state.map(TaskState::word),
            most
        ])?;
        let mut out = Vec::new();
        while let Some(next) = rows.next()? {
            out.push(row(next).map_err(|e| e.at(&self.place))?);
        }
        Ok(out)
    }

    fn forget(&mut self, before_ms: i64) -> Result<u64, SinkError> {
        self.transact(|db, pipeline| {
            let sql = "DELETE FROM tidegate_task
                       WHERE pipeline = ?1 AND state IN ('done', 'dead', 'cancelled') AND changed_ms < ?2";
            Ok(db.execute(sql, params![pipeline, before_ms])? as u64)
        })
    }
}

impl Drop for SqliteTasks {
    fn drop(&mut self) {
        // Removes the empty journal that the persistent mode leaves, unless somebody writes.
        let _ = self.db.busy_timeout(Duration::ZERO);
        let _ = self.db.execute_batch("PRAGMA journal_mode = DELETE");
    }
}
