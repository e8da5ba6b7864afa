//! AWS SQS, standard and FIFO, on the conformance suite, against an SQS server on this machine.

mod moto;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tidegate_queue::conformance::Broker;
use tidegate_queue::{Delivery, Message, QueueAddress, QueueError, QueueOptions, Transport, now_ms, open};

/// A queue of its own on a server.
struct Sqs {
    port: u16,
    name: String,
}

impl Sqs {
    /// A new queue on the server that all tests share.
    async fn start(suffix: &str) -> Result<Sqs, String> {
        let port = tokio::task::spawn_blocking(server::shared).await.map_err(|e| e.to_string())??;
        Sqs::on(port, suffix)
    }

    fn on(port: u16, suffix: &str) -> Result<Sqs, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("geotasks{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        server::create(port, &format!("{name}{suffix}"))?;
        server::create(port, &format!("{name}-dead{suffix}"))?;
        Ok(Sqs { port, name: format!("{name}{suffix}") })
    }

    async fn open(&self, name: &str, options: &QueueOptions) -> Result<Arc<dyn Transport>, QueueError> {
        let address = format!("sqs+http://127.0.0.1:{}/000000000000/{name}", self.port);
        open(&QueueAddress::parse(&address)?, options).await
    }
}

#[async_trait]
impl Broker for Sqs {
    async fn worker(&self, name: &str, lease: Duration) -> Result<Arc<dyn Transport>, QueueError> {
        self.open(&self.name, &QueueOptions { lease, ..QueueOptions::new("tests", name) }).await
    }

    async fn dead_queue(&self) -> Result<Arc<dyn Transport>, QueueError> {
        let (name, suffix) = self.name.split_once('.').unwrap_or((&self.name, ""));
        let dot = if suffix.is_empty() { "" } else { "." };
        self.open(&format!("{name}-dead{dot}{suffix}"), &QueueOptions::new("tests", "dead")).await
    }

    async fn restart(&self) -> Result<bool, QueueError> {
        // It keeps nothing.
        Ok(false)
    }
}

mod standard {
    use super::Sqs;
    tidegate_queue::conformance!(|| Sqs::start(""));
}

mod fifo {
    use super::Sqs;
    tidegate_queue::conformance!(|| Sqs::start(".fifo"));
}

fn say(error: QueueError) -> String {
    error.to_string()
}

fn keys(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|one| one.message.key.as_str()).collect()
}

/// The messages of a group come one at a time, and one that was returned comes before those behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_has_one_message_at_a_time() -> Result<(), String> {
    let queue = Sqs::start(".fifo").await?.worker("a", Duration::from_secs(10)).await.map_err(say)?;
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

/// A delay above 15 minutes holds. What is returned is not counted as delivered.
#[tokio::test(flavor = "multi_thread")]
async fn long_delays_hold_and_returns_are_not_counted() -> Result<(), String> {
    for suffix in ["", ".fifo"] {
        let queue = Sqs::start(suffix).await?.worker("a", Duration::from_secs(10)).await.map_err(say)?;
        let late = Message { not_before: Some(now_ms() + 3_600_000), ..Message::new("late", "{}") };
        queue.publish(&[late, Message::new("back", "{}")]).await.map_err(say)?;
        for _ in 0..3 {
            let some = queue.receive(5, Duration::from_secs(20)).await.map_err(say)?;
            assert_eq!((keys(&some), some[0].deliveries), (vec!["back"], 1), "{suffix}");
            queue.requeue(&some, Duration::ZERO).await.map_err(say)?;
        }
        let some = queue.receive(5, Duration::from_secs(20)).await.map_err(say)?;
        queue.requeue(&some, Duration::from_secs(7200)).await.map_err(say)?;
        assert_eq!(queue.receive(5, Duration::from_secs(2)).await.map_err(say)?, []);
        assert_eq!(queue.depth().await.map_err(say)?.lag(), 2);
    }
    Ok(())
}

/// A server that is gone is unreachable, not a refusal; when it is back, the same transport works.
#[tokio::test(flavor = "multi_thread")]
async fn connects_again_when_the_server_is_back() -> Result<(), String> {
    let server = server::start(0)?;
    let sqs = Sqs::on(server.port, "")?;
    let queue = sqs.worker("a", Duration::from_secs(10)).await.map_err(say)?;
    let message = [Message::new("k", "{}")];
    queue.publish(&message).await.map_err(say)?;
    drop(server);
    match queue.publish(&message).await {
        Err(e) if e.is_transient() => {}
        other => return Err(format!("expected Unreachable, found {other:?}")),
    }
    let _server = server::start(sqs.port)?;
    server::create(sqs.port, &sqs.name)?;
    let end = Instant::now() + Duration::from_secs(60);
    while let Err(e) = queue.publish(&message).await {
        assert!(e.is_transient() && Instant::now() < end, "{e}");
    }
    let some = queue.receive(5, Duration::from_secs(20)).await.map_err(say)?;
    assert_eq!(keys(&some), ["k"]);
    Ok(())
}

async fn refusal(address: &str) -> Result<String, String> {
    let address = QueueAddress::parse(address).map_err(say)?;
    match open(&address, &QueueOptions::new("tests", "a")).await {
        Err(QueueError::Refused(why)) => Ok(why),
        Err(other) => Err(format!("expected Refused, found {other:?}")),
        Ok(_) => Err(format!("opened: {address}")),
    }
}

/// What cannot work is refused with a sentence that says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_addresses_are_refused() -> Result<(), String> {
    let port = Sqs::start("").await?.port;
    for (address, expected) in [
        (format!("sqs+http://127.0.0.1:{port}/000000000000/missing"), "there is no queue"),
        (format!("sqs+http://127.0.0.1:{port}/missing"), "expected sqs://HOST/ACCOUNT/QUEUE"),
        (format!("sqs+http://me:hunter2@127.0.0.1:{port}/000000000000/q"), "must not contain credentials"),
        (format!("sqs+http://127.0.0.1:{port}/000000000000/q?colour=red"), "unknown parameter"),
        (format!("sqs+http://127.0.0.1:{port}/000000000000/q?secret_key=hunter2"), "env:NAME or file:PATH"),
        ("sqs://sqs.eu-central-1.amazonaws.com/1/q?credentials=given".to_owned(), "there are no credentials"),
        ("sqs://queue.example/1/q?credentials=given".to_owned(), "the region is unknown"),
    ] {
        let why = refusal(&address).await?;
        assert!(why.contains(expected), "{why}");
        assert!(!why.contains("hunter2"), "{why}");
    }
    Ok(())
}

/// Against a server that verifies signatures: ours is right, and wrong keys are refused without
/// being told.
#[tokio::test(flavor = "multi_thread")]
async fn signatures_are_verified() -> Result<(), String> {
    let moto = tokio::task::spawn_blocking(moto::Moto::start).await.map_err(|e| e.to_string())??;
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = |name: &str, value: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, value).map(|()| format!("file:{}", path.display())).map_err(|e| e.to_string())
    };
    let address = |access: &str, secret: &str| {
        let at = format!("sqs+http://127.0.0.1:{}/123456789012/tasks?region=us-east-1", moto.port);
        format!("{at}&access_key={access}&secret_key={secret}")
    };
    let (access, secret) = (file("access", &moto.access_key)?, file("secret", &moto.secret_key)?);
    let good = QueueAddress::parse(&address(&access, &secret)).map_err(say)?;
    let queue = open(&good, &QueueOptions::new("tests", "a")).await.map_err(say)?;
    queue.publish(&[Message::new("Parzelle 12/3 ü", "{}")]).await.map_err(say)?;
    let some = queue.receive(5, Duration::from_secs(20)).await.map_err(say)?;
    assert_eq!(keys(&some), ["Parzelle 12/3 ü"]);
    queue.acknowledge(&[some[0].receipt.clone()]).await.map_err(say)?;
    let wrong = file("wrong", "WRONG-SECRET")?;
    let unknown = file("unknown", "AKIAUNKNOWNUNKNOWN00")?;
    for (address, code) in [
        (address(&access, &wrong), "SignatureDoesNotMatch"),
        (address(&unknown, &secret), "InvalidClientTokenId"),
    ] {
        let why = refusal(&address).await?;
        assert!(why.contains("the credentials are not accepted") && why.contains(code), "{why}");
        assert!(!why.contains("WRONG") && !why.contains(&moto.secret_key), "{why}");
    }
    Ok(())
}
