//! A queue in PostgreSQL, for workers on several machines. Needs no server but the database.
//!
//! A message is a row of the table `tidegate_message`, in the first schema of the search path. Workers
//! take rows with SKIP LOCKED, so they do not wait for each other. What is published is synced. Leases
//! and acknowledgements are not: after a crash of the server the last ones are forgotten, and the
//! message is delivered again, which changes nothing in the sink.
//!
//! Why polling and not LISTEN and NOTIFY: a commit with a notification takes a lock of the whole
//! cluster, so busy publishers would wait for each other; leases and delays end without one anyway;
//! and a worker that waits asks only five times a second.

mod session;
mod sql;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tidegate_ledger::bounded::BoundedConfig;
use tokio_postgres::Row;
use url::Url;

use self::session::{PostgresLink, SqlParams};
use super::{BODY_MAX, receipt_ids};
use crate::address::QueueOptions;
use crate::error::QueueError;
use crate::message::{Delivery, Message, Receipt};
use crate::transport::{Promises, QueueDepth, Transport};

/// How soon an empty queue is looked at again: at first, and at most.
const POLL: Duration = Duration::from_millis(10);
const POLL_MAX: Duration = Duration::from_millis(200);
/// The messages and bytes of one statement.
const CHUNK: usize = 1000;
const CHUNK_BYTES: usize = 16 << 20;
/// The longest key in bytes.
const KEY_BYTES_MAX: usize = 1024;
/// The lock under which the table is created: two workers may start at once.
const CREATE: &str = "SELECT pg_advisory_xact_lock(8387794212852033893);";

/// A queue in a PostgreSQL database.
pub(crate) struct PostgresQueue {
    /// Syncs each transaction.
    publisher: PostgresLink,
    consumer: PostgresLink,
    queue: String,
    lease_ms: i64,
}

/// Separates the name of the queue from the URL of the database.
fn split(url: &Url) -> (String, String) {
    let mut database = url.clone();
    let query = url.query().unwrap_or_default();
    let (own, rest): (Vec<&str>, Vec<&str>) =
        query.split('&').filter(|pair| !pair.is_empty()).partition(|pair| pair.starts_with("queue="));
    database.set_query((!rest.is_empty()).then(|| rest.join("&")).as_deref());
    let name =
        url::form_urlencoded::parse(own.join("&").as_bytes()).next().map(|(_, name)| name.into_owned());
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| super::DEFAULT_QUEUE.to_owned());
    (database.into(), name)
}

impl PostgresQueue {
    pub(crate) async fn open(url: &Url, options: &QueueOptions) -> Result<PostgresQueue, QueueError> {
        let (database, queue) = split(url);
        let config = BoundedConfig::parse(&database).map_err(QueueError::Refused)?;
        let opened = PostgresQueue {
            publisher: PostgresLink::new(&config, "-c synchronous_commit=on"),
            consumer: PostgresLink::new(&config, "-c synchronous_commit=off"),
            queue,
            lease_ms: milliseconds(options.lease),
        };
        let there = "SELECT to_regclass('tidegate_message') IS NOT NULL";
        let rows = opened.publisher.query(there, &[]).await?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            opened.publisher.run(&format!("{CREATE} {}", sql::TABLE)).await?;
        }
        Ok(opened)
    }

    /// Receives what there is now.
    async fn take(&self, most: usize) -> Result<Vec<Delivery>, QueueError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let wake: SqlParams<'_> = &[&self.queue];
        let take: SqlParams<'_> = &[&self.queue, &most, &self.lease_ms];
        let rows = self.consumer.query_after((sql::WAKE, wake), (sql::TAKE, take)).await?;
        let mut deliveries: Vec<(i64, Delivery)> = rows.iter().map(delivery).collect();
        deliveries.sort_by_key(|(id, delivery)| (std::cmp::Reverse(delivery.message.priority), *id));
        Ok(deliveries.into_iter().map(|(_, delivery)| delivery).collect())
    }

    /// Runs a statement on the rows of receipts; returns for each whether it changed one.
    async fn each(
        &self,
        sql: &'static str,
        receipts: &[Receipt],
        value: i64,
    ) -> Result<Vec<bool>, QueueError> {
        let ids: Vec<Option<(i64, i64)>> = receipts.iter().map(|receipt| receipt_ids(&receipt.0)).collect();
        let (rows, tokens): (Vec<i64>, Vec<i64>) = ids.iter().flatten().copied().unzip();
        let changed = self.consumer.query(sql, &[&rows, &tokens, &value]).await?;
        let changed: BTreeSet<i64> = changed.iter().map(|row| row.get(0)).collect();
        Ok(ids.iter().map(|id| id.is_some_and(|(id, _)| changed.contains(&id))).collect())
    }

    async fn publish_chunk(&self, messages: &[Message]) -> Result<u64, QueueError> {
        let keys: Vec<&str> = messages.iter().map(|message| message.key.as_str()).collect();
        let bodies: Vec<&[u8]> = messages.iter().map(|message| message.body.as_slice()).collect();
        let headers: Vec<String> = messages
            .iter()
            .map(|message| serde_json::to_string(&message.headers).unwrap_or_default())
            .collect();
        let priorities: Vec<i16> =
            messages.iter().map(|message| i16::from(message.priority.min(9))).collect();
        let order: Vec<Option<&str>> =
            messages.iter().map(|message| message.ordering_key.as_deref()).collect();
        let not_before: Vec<Option<i64>> = messages.iter().map(|message| message.not_before).collect();
        let ordered = order.iter().any(Option::is_some);
        let sql = if ordered { sql::PUBLISH_IN_ORDER } else { sql::PUBLISH };
        let params: SqlParams<'_> =
            &[&self.queue, &keys, &bodies, &headers, &priorities, &order, &not_before];
        self.publisher.execute(sql, params).await
    }
}

/// An index of PostgreSQL holds no longer keys, and a text no zero byte.
fn check_key(key: &str) -> Result<(), QueueError> {
    if key.len() <= KEY_BYTES_MAX && !key.contains('\0') {
        return Ok(());
    }
    let start: String = key.chars().take(40).collect();
    Err(QueueError::Refused(format!(
        "the key {start:?} has {} bytes; PostgreSQL accepts {KEY_BYTES_MAX} bytes without a zero byte",
        key.len()
    )))
}

fn milliseconds(time: Duration) -> i64 {
    // A hundred years; more would overflow when it is added to the time.
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).min(3_155_760_000_000)
}

fn message(row: &Row) -> Message {
    Message {
        key: row.get(0),
        body: row.get(1),
        not_before: row.get(2),
        priority: u8::try_from(row.get::<_, i16>(3)).unwrap_or_default(),
        ordering_key: row.get(4),
        headers: serde_json::from_str(row.get(5)).unwrap_or_default(),
    }
}

fn delivery(row: &Row) -> (i64, Delivery) {
    let (id, token): (i64, i64) = (row.get(6), row.get(7));
    let deliveries = u32::try_from(row.get::<_, i32>(8)).unwrap_or(1);
    let receipt = Receipt(format!("{id}:{token}"));
    (id, Delivery { message: message(row), receipt, deliveries, published: Some(row.get(9)) })
}

#[async_trait]
impl Transport for PostgresQueue {
    fn promises(&self) -> Promises {
        Promises {
            name: "PostgreSQL",
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
        for message in messages {
            check_key(&message.key)?;
            message.ordering_key.as_deref().map_or(Ok(()), check_key)?;
        }
        let (mut added, mut rest) = (0, messages);
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |message: &&Message| {
                bytes += message.body.len();
                bytes <= CHUNK_BYTES
            };
            let count = rest.iter().take(CHUNK).take_while(fits).count().max(1);
            let (chunk, after) = rest.split_at(count);
            added += self.publish_chunk(chunk).await?;
            rest = after;
        }
        Ok(added)
    }

    async fn receive(&self, most: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let end = Instant::now() + wait;
        let mut pause = POLL;
        loop {
            let deliveries = self.take(most).await?;
            let left = end.saturating_duration_since(Instant::now());
            if !deliveries.is_empty() || left.is_zero() {
                return Ok(deliveries);
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(POLL_MAX);
        }
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<Vec<bool>, QueueError> {
        self.each(sql::EXTEND, receipts, self.lease_ms).await
    }

    async fn acknowledge(&self, receipts: &[Receipt]) -> Result<(), QueueError> {
        let ids = receipts.iter().filter_map(|receipt| receipt_ids(&receipt.0));
        let (rows, tokens): (Vec<i64>, Vec<i64>) = ids.unzip();
        self.consumer.execute(sql::ACKNOWLEDGE, &[&rows, &tokens]).await.map(drop)
    }

    async fn requeue(&self, deliveries: &[Delivery], delay: Duration) -> Result<(), QueueError> {
        let receipts: Vec<Receipt> = deliveries.iter().map(|delivery| delivery.receipt.clone()).collect();
        self.each(sql::REQUEUE, &receipts, milliseconds(delay)).await.map(drop)
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        let rows = self.consumer.query(sql::DEPTH, &[&self.queue]).await?;
        let Some(row) = rows.first() else { return Ok(QueueDepth::default()) };
        let count = |at| u64::try_from(row.get::<_, i64>(at)).unwrap_or(0);
        let oldest: Option<i64> = row.get(3);
        Ok(QueueDepth {
            ready: count(0),
            leased: Some(count(1)),
            waiting: Some(count(2)),
            oldest_ms: oldest.map(|age| u64::try_from(age).unwrap_or(0)),
        })
    }

    async fn peek(&self, most: usize) -> Result<Vec<Message>, QueueError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = self.consumer.query(sql::PEEK, &[&self.queue, &most]).await?;
        Ok(rows.iter().map(message).collect())
    }

    async fn purge(&self) -> Result<Option<u64>, QueueError> {
        self.publisher.execute(sql::PURGE, &[&self.queue]).await.map(Some)
    }

    async fn warnings(&self) -> Result<Vec<String>, QueueError> {
        let rows = self.publisher.query("SELECT current_setting('fsync') = 'off'", &[]).await?;
        let off = rows.first().is_some_and(|row| row.get(0));
        let lost = "the PostgreSQL server has fsync = off, so a power failure can destroy the database; set fsync = on";
        Ok(if off { vec![lost.to_owned()] } else { Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_queue_is_taken_out_of_the_url() {
        let split = |text: &str| split(&Url::parse(text).unwrap());
        let found = split("postgres://me:a%20b@db/gis?sslmode=require&queue=tiles%201&reply_timeout=5");
        assert_eq!(
            found,
            ("postgres://me:a%20b@db/gis?sslmode=require&reply_timeout=5".into(), "tiles 1".into())
        );
        assert_eq!(split("postgresql://db/gis"), ("postgresql://db/gis".into(), "geotasks".into()));
        assert_eq!(split("postgres://db/gis?queue="), ("postgres://db/gis".into(), "geotasks".into()));
    }
}
