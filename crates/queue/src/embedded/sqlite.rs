//! A queue in a SQLite file, for the processes of one machine. Needs no server.
//!
//! What is published is synced. Leases and acknowledgements are not: after a power failure they are
//! forgotten, and the message is delivered again, which changes nothing in the sink.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, TransactionBehavior, params};

use super::{BODY_MAX, receipt_ids};
use crate::address::QueueOptions;
use crate::error::QueueError;
use crate::message::{Delivery, Message, Receipt, now_ms};
use crate::transport::{Promises, QueueDepth, Transport};
use tidegate_client::sqlite::write_ahead;

/// The time to wait for another process that writes.
const BUSY: Duration = Duration::from_secs(10);
/// How often an empty queue is looked at.
const POLL: Duration = Duration::from_millis(25);

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS message (
    id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL,
    headers TEXT NOT NULL, priority INTEGER NOT NULL, ordering_key TEXT, not_before INTEGER,
    published INTEGER NOT NULL, is_ready INTEGER NOT NULL, visible_at INTEGER NOT NULL,
    token INTEGER NOT NULL DEFAULT 0, deliveries INTEGER NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX IF NOT EXISTS message_key ON message (queue, key);
CREATE INDEX IF NOT EXISTS message_ready ON message (queue, priority DESC, id) WHERE is_ready = 1;
CREATE INDEX IF NOT EXISTS message_hidden ON message (queue, visible_at) WHERE is_ready = 0;
CREATE INDEX IF NOT EXISTS message_order ON message (queue, ordering_key, id) WHERE ordering_key IS NOT NULL;";

/// A queue in a SQLite file.
pub(crate) struct SqliteQueue {
    /// Syncs each transaction.
    publisher: Arc<Mutex<Connection>>,
    consumer: Arc<Mutex<Connection>>,
    queue: String,
    lease_ms: i64,
}

fn failed(error: rusqlite::Error) -> QueueError {
    let busy = matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked));
    if busy {
        QueueError::Unreachable("the file is locked by another process".into())
    } else {
        QueueError::Refused(error.to_string())
    }
}

fn connect(path: &Path, synchronous: &str) -> Result<Connection, QueueError> {
    let connection =
        Connection::open(path).map_err(|e| QueueError::Refused(format!("{}: {e}", path.display())))?;
    // The queue has tables only. A view or a trigger in the file was put there by somebody, and is not executed.
    for off in [
        DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA,
        DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER,
        DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW,
    ] {
        connection.set_db_config(off, false).map_err(failed)?;
    }
    write_ahead(&connection, BUSY).map_err(failed)?;
    connection.pragma_update(None, "synchronous", synchronous).map_err(failed)?;
    Ok(connection)
}

fn guard(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs something on a connection, away from the async threads.
async fn run<T: Send + 'static>(
    connection: &Arc<Mutex<Connection>>,
    work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
) -> Result<T, QueueError> {
    let connection = connection.clone();
    let done = tokio::task::spawn_blocking(move || work(&mut guard(&connection))).await;
    done.map_err(|e| QueueError::Unreachable(e.to_string()))?.map_err(failed)
}

impl SqliteQueue {
    pub(crate) async fn open(
        path: &Path,
        queue: &str,
        options: &QueueOptions,
    ) -> Result<SqliteQueue, QueueError> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let publisher = connect(&path, "FULL")?;
            publisher.execute_batch(TABLES).map_err(failed)?;
            private(&path)?;
            Ok((publisher, connect(&path, "NORMAL")?))
        });
        let (publisher, consumer) = opened.await.map_err(|e| QueueError::Unreachable(e.to_string()))??;
        Ok(SqliteQueue {
            publisher: Arc::new(Mutex::new(publisher)),
            consumer: Arc::new(Mutex::new(consumer)),
            queue: queue.to_owned(),
            lease_ms: i64::try_from(options.lease.as_millis()).unwrap_or(i64::MAX),
        })
    }

    /// Receives what there is now.
    async fn take(&self, most: usize) -> Result<Vec<Delivery>, QueueError> {
        let (queue, lease) = (self.queue.clone(), self.lease_ms);
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        run(&self.consumer, move |connection| {
            // A look without a lock, so that workers that wait do not disturb others.
            let now = now_ms();
            let any: Option<i64> = connection
                .prepare_cached(
                    "SELECT 1 FROM message WHERE queue = ?1 AND is_ready = 1
                     UNION ALL SELECT 1 FROM message WHERE queue = ?1 AND is_ready = 0 AND visible_at <= ?2 LIMIT 1",
                )?
                .query_row(params![queue, now], |row| row.get(0))
                .optional()?;
            if any.is_none() {
                return Ok(Vec::new());
            }
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction
                .prepare_cached("UPDATE message SET is_ready = 1 WHERE queue = ?1 AND is_ready = 0 AND visible_at <= ?2")?
                .execute(params![queue, now])?;
            let mut deliveries = {
                // Of each ordering key only the first message that is not acknowledged.
                let mut statement = transaction.prepare_cached(
                    "UPDATE message SET is_ready = 0, visible_at = ?2, token = token + 1, deliveries = deliveries + 1
                     WHERE id IN (SELECT id FROM message m WHERE queue = ?1 AND is_ready = 1
                       AND (ordering_key IS NULL OR NOT EXISTS (SELECT 1 FROM message o
                            WHERE o.queue = m.queue AND o.ordering_key = m.ordering_key AND o.id < m.id))
                       ORDER BY priority DESC, id LIMIT ?3)
                     RETURNING key, body, not_before, priority, ordering_key, headers, id, token, deliveries, published",
                )?;
                let rows = statement.query_map(params![queue, now.saturating_add(lease), most], delivery)?;
                rows.collect::<rusqlite::Result<Vec<_>>>()?
            };
            transaction.commit()?;
            deliveries.sort_by_key(|(id, delivery)| (std::cmp::Reverse(delivery.message.priority), *id));
            Ok(deliveries.into_iter().map(|(_, delivery)| delivery).collect())
        })
        .await
    }

    /// Runs a statement for each receipt; returns for each whether it changed a row.
    async fn each(
        &self,
        sql: &'static str,
        receipts: &[Receipt],
        value: i64,
    ) -> Result<Vec<bool>, QueueError> {
        let ids: Vec<Option<(i64, i64)>> = receipts.iter().map(|receipt| receipt_ids(&receipt.0)).collect();
        run(&self.consumer, move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut changed = Vec::with_capacity(ids.len());
            {
                let mut statement = transaction.prepare_cached(sql)?;
                for id in ids {
                    let rows = match id {
                        Some((id, token)) => statement.execute(params![id, token, value])?,
                        None => 0,
                    };
                    changed.push(rows > 0);
                }
            }
            transaction.commit()?;
            Ok(changed)
        })
        .await
    }
}

/// The file may hold addresses of people: only its owner reads it.
fn private(path: &Path) -> Result<(), QueueError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        for suffix in ["", "-wal", "-shm"] {
            let mut file = path.as_os_str().to_owned();
            file.push(suffix);
            let permissions = std::fs::Permissions::from_mode(0o600);
            match std::fs::set_permissions(&file, permissions) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(QueueError::Refused(format!("{}: {e}", path.display())));
                }
                _ => {}
            }
        }
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

fn message(row: &Row<'_>) -> rusqlite::Result<Message> {
    let headers: String = row.get(5)?;
    Ok(Message {
        key: row.get(0)?,
        body: row.get(1)?,
        not_before: row.get(2)?,
        priority: row.get(3)?,
        ordering_key: row.get(4)?,
        headers: serde_json::from_str(&headers).unwrap_or_default(),
    })
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<(i64, Delivery)> {
    let (id, token): (i64, i64) = (row.get(6)?, row.get(7)?);
    let receipt = Receipt(format!("{id}:{token}"));
    Ok((id, Delivery { message: message(row)?, receipt, deliveries: row.get(8)?, published: row.get(9)? }))
}

#[async_trait]
impl Transport for SqliteQueue {
    fn promises(&self) -> Promises {
        Promises {
            name: "SQLite",
            ordering: true,
            priority: true,
            unique: true,
            counts_deliveries: true,
            leases: true,
            groups: false,
            delay_max: None,
            body_max: BODY_MAX,
        }
    }

    async fn publish(&self, messages: &[Message]) -> Result<u64, QueueError> {
        if let Some(message) = messages.iter().find(|message| message.body.len() > BODY_MAX) {
            return Err(QueueError::TooLarge { bytes: message.body.len(), max: BODY_MAX });
        }
        let (queue, messages) = (self.queue.clone(), messages.to_vec());
        run(&self.publisher, move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut added = 0;
            {
                let mut statement = transaction.prepare_cached(
                    "INSERT INTO message (queue, key, body, headers, priority, ordering_key, not_before, published, is_ready, visible_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (queue, key) DO NOTHING",
                )?;
                let now = now_ms();
                for message in &messages {
                    let visible = message.not_before.unwrap_or(0);
                    added += statement.execute(params![
                        queue,
                        message.key,
                        message.body,
                        serde_json::to_string(&message.headers).unwrap_or_default(),
                        message.priority,
                        message.ordering_key,
                        message.not_before,
                        now,
                        visible <= now,
                        visible,
                    ])?;
                }
            }
            transaction.commit()?;
            Ok(added as u64)
        })
        .await
    }

    async fn receive(&self, most: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let end = Instant::now() + wait;
        loop {
            let deliveries = self.take(most).await?;
            let left = end.saturating_duration_since(Instant::now());
            if !deliveries.is_empty() || left.is_zero() {
                return Ok(deliveries);
            }
            tokio::time::sleep(POLL.min(left)).await;
        }
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<Vec<bool>, QueueError> {
        let until = now_ms().saturating_add(self.lease_ms);
        self.each(
            "UPDATE message SET visible_at = ?3, is_ready = 0 WHERE id = ?1 AND token = ?2",
            receipts,
            until,
        )
        .await
    }

    async fn acknowledge(&self, receipts: &[Receipt]) -> Result<(), QueueError> {
        self.each("DELETE FROM message WHERE id = ?1 AND token = ?2 AND ?3 = 0", receipts, 0).await.map(drop)
    }

    async fn requeue(&self, deliveries: &[Delivery], delay: Duration) -> Result<(), QueueError> {
        let receipts: Vec<Receipt> = deliveries.iter().map(|delivery| delivery.receipt.clone()).collect();
        let until = now_ms().saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
        // Not counted as a delivery: nobody worked on it.
        let sql = "UPDATE message SET visible_at = ?3, is_ready = 0, deliveries = deliveries - 1 WHERE id = ?1 AND token = ?2";
        self.each(sql, &receipts, until).await.map(drop)
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        let queue = self.queue.clone();
        run(&self.consumer, move |connection| {
            let now = now_ms();
            let count = |sql: &str| -> rusqlite::Result<u64> {
                connection.prepare_cached(sql)?.query_row(params![queue, now], |row| {
                    row.get::<_, i64>(0).map(|n| u64::try_from(n).unwrap_or(0))
                })
            };
            let ready = count("SELECT count(*) FROM message WHERE queue = ?1 AND (is_ready = 1 OR visible_at <= ?2)")?;
            let leased = count(
                "SELECT count(*) FROM message WHERE queue = ?1 AND is_ready = 0 AND visible_at > ?2 AND deliveries > 0",
            )?;
            let waiting = count(
                "SELECT count(*) FROM message WHERE queue = ?1 AND is_ready = 0 AND visible_at > ?2 AND deliveries = 0",
            )?;
            let oldest: Option<i64> = connection
                .prepare_cached("SELECT min(published) FROM message WHERE queue = ?1 AND (is_ready = 1 OR visible_at <= ?2)")?
                .query_row(params![queue, now], |row| row.get(0))?;
            let oldest_ms = oldest.map(|at| u64::try_from(now - at).unwrap_or(0));
            Ok(QueueDepth { ready, leased: Some(leased), waiting: Some(waiting), oldest_ms })
        })
        .await
    }

    async fn peek(&self, most: usize) -> Result<Vec<Message>, QueueError> {
        let (queue, most) = (self.queue.clone(), i64::try_from(most).unwrap_or(i64::MAX));
        run(&self.consumer, move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT key, body, not_before, priority, ordering_key, headers FROM message
                 WHERE queue = ?1 AND (is_ready = 1 OR visible_at <= ?2) ORDER BY priority DESC, id LIMIT ?3",
            )?;
            let rows = statement.query_map(params![queue, now_ms(), most], message)?;
            rows.collect()
        })
        .await
    }

    async fn purge(&self) -> Result<Option<u64>, QueueError> {
        let queue = self.queue.clone();
        run(&self.consumer, move |connection| {
            connection.execute("DELETE FROM message WHERE queue = ?1", params![queue]).map(|n| Some(n as u64))
        })
        .await
    }
}
