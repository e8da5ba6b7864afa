//! A queue in Redis: a stream with one consumer group.
//!
//! | key | holds |
//! |---|---|
//! | `NAME` | the stream: an entry is a message that can be delivered or is leased |
//! | `{NAME}:waiting` | messages that wait for their time, by that time |
//! | `{NAME}:keys` | the keys of all queued messages, with the id of their entry |
//! | `{NAME}:rescue` | exists for a moment after a worker looked for ended leases |
//!
//! Each operation is one Lua script: it happens as a whole or not at all, also when the server
//! dies. The lease is the idle time of the entry in the group's list of pending entries. Redis does not
//! fence: an acknowledgement by a former holder would succeed. So a receipt names the entry and the number of
//! its deliveries, and the scripts compare them and the name of the worker.
//!
//! Why no `MAXLEN`: trimming deletes leased entries too. Entries are deleted when they are acknowledged.

mod connect;
mod entry;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use redis::{Script, ScriptInvocation, Value};
use tokio::sync::Mutex;
use url::Url;

use self::connect::{RedisLink, is_group_missing};
use crate::address::QueueOptions;
use crate::error::QueueError;
use crate::message::{Delivery, Message, Receipt, now_ms};
use crate::parameters::queue_name;
use crate::transport::{Promises, QueueDepth, Transport};

/// The largest body. Redis keeps all messages in memory.
const BODY_MAX: usize = 16 << 20;
/// The most messages and bytes of one script; nothing else runs on the server meanwhile.
const BATCH_MAX: usize = 500;
const BATCH_BYTES: usize = 4 << 20;
/// How long the server is asked to wait, at most, before waiting messages and ended leases are
/// looked at again.
const SLICE: Duration = Duration::from_millis(250);
/// A consumer that holds nothing and was not seen for this time is removed.
const CONSUMER_IDLE: Duration = Duration::from_secs(600);

/// A queue in Redis.
pub(crate) struct RedisQueue {
    link: RedisLink,
    /// For reads that wait: they hold up everything else on their connection.
    reader: Mutex<RedisLink>,
    scripts: Scripts,
    stream: String,
    waiting: String,
    keys: String,
    rescue: String,
    group: String,
    worker: String,
    lease: Duration,
    is_joined: AtomicBool,
}

struct Scripts {
    publish: Script,
    take: Script,
    settle: Script,
    join: Script,
    look: Script,
    purge: Script,
}

impl RedisQueue {
    pub(crate) async fn open(url: &Url, options: &QueueOptions) -> Result<RedisQueue, QueueError> {
        let stream = queue_name(url)?;
        let client = connect::client(url)?;
        let queue = RedisQueue {
            link: RedisLink::new(client.clone(), Duration::ZERO),
            reader: Mutex::new(RedisLink::new(client, SLICE)),
            scripts: Scripts {
                publish: Script::new(include_str!("publish.lua")),
                take: Script::new(include_str!("take.lua")),
                settle: Script::new(include_str!("settle.lua")),
                join: Script::new(include_str!("join.lua")),
                look: Script::new(include_str!("look.lua")),
                purge: Script::new(include_str!("purge.lua")),
            },
            waiting: format!("{{{stream}}}:waiting"),
            keys: format!("{{{stream}}}:keys"),
            rescue: format!("{{{stream}}}:rescue"),
            stream,
            group: options.group.clone(),
            worker: options.worker.clone(),
            lease: options.lease.max(Duration::from_millis(1)),
            is_joined: AtomicBool::new(false),
        };
        // So that wrong credentials and a wrong kind of key are found now.
        queue.look(0).await?;
        Ok(queue)
    }

    fn call<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let mut call = script.key(&self.stream);
        call.key(&self.waiting).key(&self.keys);
        call
    }

    /// Joins the group, which is created if needed.
    async fn join(&self) -> Result<(), QueueError> {
        let mut call = self.scripts.join.key(&self.stream);
        call.arg(&self.group).arg(millis(CONSUMER_IDLE));
        let other: String = self.link.script(&call).await?;
        if other.is_empty() {
            self.is_joined.store(true, Ordering::Relaxed);
            return Ok(());
        }
        Err(QueueError::Refused(format!(
            "the stream {} belongs to the group {other}; Redis deletes a message when one group has acknowledged it, so a second group needs a queue of its own",
            self.stream
        )))
    }

    /// Takes what there is now; also returns the time until the next waiting message.
    async fn take(&self, most: usize) -> Result<(Vec<Delivery>, Option<u64>), QueueError> {
        if !self.is_joined.load(Ordering::Relaxed) {
            self.join().await?;
        }
        let mut call = self.call(&self.scripts.take);
        // Ended leases are found within a twentieth of the lease, at most a quarter of a second.
        let pause = (self.lease / 20).clamp(Duration::from_millis(10), SLICE);
        call.key(&self.rescue).arg(&self.group).arg(&self.worker).arg(most);
        call.arg(millis(self.lease)).arg(millis(pause));
        let answer: Value = match self.link.script(&call).await {
            Err(error) if is_group_missing(&error) => {
                self.join().await?;
                self.link.script(&call).await?
            }
            other => other?,
        };
        Ok(entry::taken(answer))
    }

    /// Waits for a new message for a while.
    async fn wait(&self, most: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let Ok(reader) = tokio::time::timeout(wait, self.reader.lock()).await else {
            return Ok(Vec::new());
        };
        let mut command = redis::cmd("XREADGROUP");
        command.arg("GROUP").arg(&self.group).arg(&self.worker).arg("COUNT").arg(most);
        command.arg("BLOCK").arg(millis(wait).max(1)).arg("STREAMS").arg(&self.stream).arg(">");
        match reader.command(&command).await {
            Ok(answer) => Ok(entry::read(answer)),
            // The next look creates it again.
            Err(error) if is_group_missing(&error) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Runs an operation on what is still held; returns for each receipt whether it was.
    async fn settle(
        &self,
        operation: &str,
        receipts: &[Receipt],
        delay: Duration,
    ) -> Result<Vec<bool>, QueueError> {
        let mut all = Vec::with_capacity(receipts.len());
        for some in receipts.chunks(BATCH_MAX) {
            let mut call = self.call(&self.scripts.settle);
            call.arg(&self.group).arg(&self.worker).arg(operation).arg(millis(delay));
            let parts: Vec<_> = some.iter().map(entry::parts).collect();
            for (id, deliveries, key) in parts.iter().flatten() {
                call.arg(*id).arg(*deliveries).arg(*key);
            }
            let held: Vec<u8> = match self.link.script(&call).await {
                // Without the group nothing is leased.
                Err(error) if is_group_missing(&error) => Vec::new(),
                other => other?,
            };
            let mut held = held.into_iter();
            all.extend(parts.iter().map(|parts| parts.is_some() && held.next() == Some(1)));
        }
        Ok(all)
    }

    async fn look(&self, most: usize) -> Result<(u64, u64, u64, u64, i64, Value), QueueError> {
        let mut call = self.scripts.look.key(&self.stream);
        call.key(&self.waiting).arg(most);
        self.link.script(&call).await
    }
}

/// Milliseconds that Redis accepts.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(1 << 50)
}

/// Splits messages so that no script is long.
fn batches(messages: &[Message]) -> impl Iterator<Item = &[Message]> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let mut count = 0;
        while count < rest.len().min(BATCH_MAX) && (count == 0 || bytes < BATCH_BYTES) {
            bytes += rest[count].body.len();
            count += 1;
        }
        let (batch, others) = rest.split_at(count);
        rest = others;
        (count > 0).then_some(batch)
    })
}

#[async_trait]
impl Transport for RedisQueue {
    fn promises(&self) -> Promises {
        Promises {
            name: "Redis Streams",
            ordering: false,
            priority: false,
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
        let mut added = 0;
        for batch in batches(messages) {
            let now = now_ms();
            let mut call = self.call(&self.scripts.publish);
            for message in batch {
                let fields = entry::fields(message, now);
                call.arg(&message.key).arg(message.not_before.unwrap_or(0)).arg(fields.len());
                for field in &fields {
                    call.arg(field.as_slice());
                }
            }
            added += self.link.script::<u64>(&call).await?;
        }
        Ok(added)
    }

    async fn receive(&self, most: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let most = most.min(BATCH_MAX);
        if most == 0 {
            return Ok(Vec::new());
        }
        let end = Instant::now() + wait;
        loop {
            let (deliveries, next) = self.take(most).await?;
            let left = end.saturating_duration_since(Instant::now());
            if !deliveries.is_empty() || left.is_zero() {
                return Ok(deliveries);
            }
            let next = next.map_or(SLICE, Duration::from_millis);
            let deliveries = self.wait(most, left.min(SLICE).min(next)).await?;
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
        }
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<Vec<bool>, QueueError> {
        self.settle("extend", receipts, Duration::ZERO).await
    }

    async fn acknowledge(&self, receipts: &[Receipt]) -> Result<(), QueueError> {
        self.settle("acknowledge", receipts, Duration::ZERO).await.map(drop)
    }

    async fn requeue(&self, deliveries: &[Delivery], delay: Duration) -> Result<(), QueueError> {
        let receipts: Vec<Receipt> = deliveries.iter().map(|delivery| delivery.receipt.clone()).collect();
        self.settle("requeue", &receipts, delay).await.map(drop)
    }

    async fn depth(&self) -> Result<QueueDepth, QueueError> {
        let (new, leased, waiting, due, now, shown) = self.look(1).await?;
        let oldest = entry::entries(shown).next().and_then(|entry| entry.published);
        let oldest_ms = oldest.map(|at| u64::try_from(now - at).unwrap_or(0));
        Ok(QueueDepth { ready: new + due, leased: Some(leased), waiting: Some(waiting), oldest_ms })
    }

    async fn peek(&self, most: usize) -> Result<Vec<Message>, QueueError> {
        let shown = self.look(most.min(BATCH_MAX)).await?.5;
        Ok(entry::entries(shown).map(|entry| entry.message).collect())
    }

    async fn purge(&self) -> Result<Option<u64>, QueueError> {
        self.link.script(&self.call(&self.scripts.purge)).await.map(Some)
    }

    async fn warnings(&self) -> Result<Vec<String>, QueueError> {
        let info: String = self.link.command(&redis::cmd("INFO")).await?;
        let mut config = redis::cmd("CONFIG");
        config.arg("GET").arg("appendfsync");
        // Hosted servers forbid CONFIG.
        let config: Result<Vec<String>, QueueError> = self.link.command(&config).await;
        Ok(warnings(&info, config.ok().and_then(|values| values.into_iter().nth(1)).as_deref()))
    }
}

/// What the settings of the server lose.
fn warnings(info: &str, appendfsync: Option<&str>) -> Vec<String> {
    let value = |name: &str| {
        let of = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned());
        info.lines().find_map(of).unwrap_or_default()
    };
    let mut warnings = Vec::new();
    if value("aof_enabled") == "0" {
        warnings.push("Redis has no append-only file: a restart loses messages. Set appendonly yes and appendfsync always.".to_owned());
    } else {
        match appendfsync {
            Some("everysec") => warnings.push("Redis syncs its append-only file every second: if the machine fails, confirmed messages of the last second or two are lost. Set appendfsync always.".to_owned()),
            Some("no") => warnings.push("Redis leaves syncing to the operating system: if the machine fails, confirmed messages of the last half minute are lost. Set appendfsync always.".to_owned()),
            _ => {}
        }
    }
    let policy = value("maxmemory_policy");
    if policy.starts_with("allkeys-") && value("maxmemory") != "0" {
        warnings.push(format!("Redis deletes whole queues when its memory is full (maxmemory-policy {policy}). Set maxmemory-policy noeviction."));
    }
    let major = value("redis_version").split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < 7) {
        warnings.push("Redis is older than version 7, which this queue is tested with.".to_owned());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_name_what_loses() {
        let info = |aof: u8, policy: &str| {
            format!(
                "redis_version:7.0.15\r\naof_enabled:{aof}\r\nmaxmemory:1000\r\nmaxmemory_policy:{policy}\r\n"
            )
        };
        assert_eq!(warnings(&info(1, "noeviction"), Some("always")), Vec::<String>::new());
        assert_eq!(warnings(&info(1, "volatile-lru"), None), Vec::<String>::new());
        assert!(warnings(&info(0, "noeviction"), Some("always"))[0].contains("appendonly"));
        assert!(warnings(&info(1, "noeviction"), Some("everysec"))[0].contains("every second"));
        assert!(warnings(&info(1, "noeviction"), Some("no"))[0].contains("operating system"));
        assert!(
            warnings(&info(1, "allkeys-lru"), Some("always"))[0].contains("maxmemory-policy allkeys-lru")
        );
    }

    #[test]
    fn batches_are_bounded_by_number_and_bytes() {
        let small = vec![Message::new("k", "{}"); BATCH_MAX + 1];
        assert_eq!(batches(&small).map(<[Message]>::len).collect::<Vec<_>>(), [BATCH_MAX, 1]);
        let large = vec![Message::new("k", vec![0; BATCH_BYTES]); 3];
        assert_eq!(batches(&large).count(), 3);
        assert_eq!(batches(&[]).count(), 0);
    }
}
