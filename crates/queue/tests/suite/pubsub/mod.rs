//! Google Pub/Sub on the conformance suite, against the emulator of the Google Cloud SDK.

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_queue::conformance::Broker;
use tidegate_queue::{Message, QueueAddress, QueueError, QueueOptions, Transport, conformance, now_ms, open};

/// A topic of its own.
struct Topic {
    port: u16,
    name: String,
    is_ordered: bool,
}

impl Topic {
    async fn start() -> Result<Topic, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let port = tokio::task::spawn_blocking(server::shared).await.map_err(|e| e.to_string())??;
        let name = format!("geotasks{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Ok(Topic { port, name, is_ordered: false })
    }

    async fn ordered() -> Result<Topic, String> {
        Ok(Topic { is_ordered: true, ..Topic::start().await? })
    }

    async fn open(&self, topic: &str, options: &QueueOptions) -> Result<Arc<dyn Transport>, QueueError> {
        let ordering = if self.is_ordered { "&ordering=true" } else { "" };
        let address = format!("pubsub://tests/{topic}?endpoint=http://127.0.0.1:{}{ordering}", self.port);
        open(&QueueAddress::parse(&address)?, options).await
    }
}

#[async_trait]
impl Broker for Topic {
    async fn worker(&self, name: &str, lease: Duration) -> Result<Arc<dyn Transport>, QueueError> {
        self.open(&self.name, &QueueOptions { lease, ..QueueOptions::new("workers", name) }).await
    }

    async fn dead_queue(&self) -> Result<Arc<dyn Transport>, QueueError> {
        self.open(&format!("{}.dead", self.name), &QueueOptions::new("workers", "dead")).await
    }

    async fn restart(&self) -> Result<bool, QueueError> {
        // It keeps nothing.
        Ok(false)
    }
}

conformance!(Topic::start);

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_with_ordering_keeps_it() -> Result<(), String> {
    conformance::keeps_the_order_of_a_key(&Topic::ordered().await?).await
}

/// A message of an ordering key is delivered when the one before it was acknowledged, also if the
/// server delivers both in one answer; a message that was returned comes again before those behind it.
#[tokio::test(flavor = "multi_thread")]
async fn an_ordering_key_has_one_message_at_a_time() -> Result<(), String> {
    let say = |e: QueueError| e.to_string();
    let topic = Topic::ordered().await?;
    let queue = topic.worker("a", Duration::from_secs(10)).await.map_err(say)?;
    let ordered =
        |n: u32| Message { ordering_key: Some("parcel".into()), ..Message::new(format!("edit-{n}"), "{}") };
    queue.publish(&[ordered(0), ordered(1), ordered(2)]).await.map_err(say)?;
    let mut order = Vec::new();
    let mut returned = false;
    while order.len() < 3 {
        let some = queue.receive(10, Duration::from_secs(20)).await.map_err(say)?;
        assert_eq!(some.len(), 1, "{order:?} {some:?}");
        if some[0].message.key == "edit-1" && !returned {
            returned = true;
            queue.requeue(&some, Duration::ZERO).await.map_err(say)?;
            continue;
        }
        order.push(some[0].message.key.clone());
        queue.acknowledge(&[some[0].receipt.clone()]).await.map_err(say)?;
    }
    assert_eq!(order, ["edit-0", "edit-1", "edit-2"]);
    Ok(())
}

/// Every group receives every message.
#[tokio::test(flavor = "multi_thread")]
async fn groups_receive_every_message() -> Result<(), String> {
    let say = |e: QueueError| e.to_string();
    let topic = Topic::start().await?;
    let mut groups = Vec::new();
    for group in ["one", "two"] {
        groups.push(topic.open(&topic.name, &QueueOptions::new(group, group)).await.map_err(say)?);
    }
    groups[0].publish(&[Message::new("k", "{}")]).await.map_err(say)?;
    for group in &groups {
        let some = group.receive(5, Duration::from_secs(20)).await.map_err(say)?;
        assert_eq!(some.iter().map(|one| one.message.key.as_str()).collect::<Vec<_>>(), ["k"]);
        group.acknowledge(&[some[0].receipt.clone()]).await.map_err(say)?;
    }
    Ok(())
}

/// A delay above ten minutes is a copy that carries its time; nobody sees it before.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_delay_is_carried_by_a_copy() -> Result<(), String> {
    let say = |e: QueueError| e.to_string();
    let topic = Topic::start().await?;
    let queue = topic.worker("a", Duration::from_secs(10)).await.map_err(say)?;
    let late = Message { not_before: Some(now_ms() + 3_600_000), ..Message::new("late", "{}") };
    queue.publish(&[late, Message::new("back", "{}")]).await.map_err(say)?;
    let some = queue.receive(5, Duration::from_secs(20)).await.map_err(say)?;
    assert_eq!(some.iter().map(|one| one.message.key.as_str()).collect::<Vec<_>>(), ["back"]);
    queue.requeue(&some, Duration::from_secs(3600)).await.map_err(say)?;
    assert_eq!(queue.receive(5, Duration::from_secs(2)).await.map_err(say)?, []);
    Ok(())
}

/// What cannot work is refused with a sentence that says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_addresses_and_accounts_are_refused() -> Result<(), String> {
    let port = Topic::start().await?.port;
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = dir.path().join("account.json");
    let account = r#"{"type":"service_account","client_email":"a@b","private_key":"SECRET-KEY"}"#;
    std::fs::write(&file, account).map_err(|e| e.to_string())?;
    let file = file.display();
    let cases = [
        (format!("pubsub://tests/ab?endpoint=http://127.0.0.1:{port}"), "cannot be the topic"),
        (format!("pubsub://tests/tasks?colour=red&endpoint=http://127.0.0.1:{port}"), "unknown parameter"),
        ("pubsub://me:SECRET-KEY@tests/tasks".to_owned(), "must not contain credentials"),
        (
            format!("pubsub://tests/tasks?endpoint=https://127.0.0.1:1&service_account=file:{file}"),
            "private key of the service account",
        ),
        ("pubsub://tests/tasks?endpoint=https://127.0.0.1:1&credentials=given".to_owned(), "no credentials"),
    ];
    for (address, expected) in cases {
        let address = QueueAddress::parse(&address).map_err(|e| e.to_string())?;
        match open(&address, &QueueOptions::new("workers", "a")).await {
            Err(QueueError::Refused(why)) => {
                assert!(why.contains(expected), "{why}");
                assert!(!why.contains("SECRET"), "{why}");
            }
            Err(other) => return Err(other.to_string()),
            Ok(_) => return Err(format!("opened: {address}")),
        }
    }
    Ok(())
}
