//! RabbitMQ, on the conformance suite: on the server at the usual port, and on a node of its own
//! for what others must not notice (a restart, TLS).

mod node;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use self::node::Node;
use amqprs::channel::{QueueDeclareArguments, QueueDeleteArguments};
use amqprs::connection::{Connection, OpenConnectionArguments};
use async_trait::async_trait;
use tidegate_queue::conformance::Broker;
use tidegate_queue::{Message, QueueAddress, QueueError, QueueOptions, Transport, conformance, open};

static QUEUES: AtomicU32 = AtomicU32::new(0);

/// A queue on the server at the usual port.
struct Shared {
    name: String,
}

impl Shared {
    fn new() -> Shared {
        let n = QUEUES.fetch_add(1, Ordering::Relaxed);
        Shared { name: format!("tidegate-test-{}-{n}", std::process::id()) }
    }

    fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:5672/{}", self.name)
    }

    async fn connection(&self) -> Connection {
        let login = OpenConnectionArguments::new("127.0.0.1", 5672, "guest", "guest");
        Connection::open(&login).await.unwrap()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let names: Vec<String> = ["", ".dead", ".wait.250", ".wait.1000", ".wait.5000", ".wait.30000"]
            .map(|suffix| format!("{}{suffix}", self.name))
            .to_vec();
        let delete = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let login = OpenConnectionArguments::new("127.0.0.1", 5672, "guest", "guest");
                let connection = Connection::open(&login).await.unwrap();
                let channel = connection.open_channel(None).await.unwrap();
                for name in names {
                    let _ = channel.queue_delete(QueueDeleteArguments::new(&name)).await;
                }
                let _ = connection.close().await;
            });
        };
        let _ = std::thread::spawn(delete).join();
    }
}

async fn worker(url: &str, name: &str, lease: Duration) -> Result<Arc<dyn Transport>, QueueError> {
    open(&QueueAddress::parse(url)?, &QueueOptions { lease, ..QueueOptions::new("tests", name) }).await
}

async fn queue(url: &str) -> Arc<dyn Transport> {
    worker(url, "a", Duration::from_secs(10)).await.unwrap()
}

#[async_trait]
impl Broker for Shared {
    async fn worker(&self, name: &str, lease: Duration) -> Result<Arc<dyn Transport>, QueueError> {
        worker(&self.url(), name, lease).await
    }

    async fn dead_queue(&self) -> Result<Arc<dyn Transport>, QueueError> {
        worker(&format!("{}.dead", self.url()), "dead", Duration::from_secs(10)).await
    }

    async fn restart(&self) -> Result<bool, QueueError> {
        Ok(false)
    }
}

conformance!(|| async { Ok::<_, String>(Shared::new()) });

#[async_trait]
impl Broker for Node {
    async fn worker(&self, name: &str, lease: Duration) -> Result<Arc<dyn Transport>, QueueError> {
        worker(&self.url("geotasks"), name, lease).await
    }

    async fn dead_queue(&self) -> Result<Arc<dyn Transport>, QueueError> {
        worker(&self.url("dead"), "dead", Duration::from_secs(10)).await
    }

    async fn restart(&self) -> Result<bool, QueueError> {
        self.kill();
        self.start().await;
        Ok(true)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_killed_under_load_loses_nothing_and_speaks_tls() {
    let node = Node::new().await;
    queue(&node.url("geotasks")).await;
    node.has_registered("geotasks").await;
    conformance::survives_a_restart(&node).await.unwrap();

    let a = queue(&node.tls_url("localhost", "geotasks")).await;
    a.publish(&[Message::new("over-tls", "{}")]).await.unwrap();
    let received = a.receive(1, Duration::from_secs(10)).await.unwrap();
    assert_eq!(received[0].message.key, "over-tls");

    // The certificate is not for this name, and not from an authority of the operating system.
    for url in [
        node.tls_url("127.0.0.1", "geotasks"),
        node.tls_url("localhost", "geotasks").replace("?ca=", "?vhost="),
    ] {
        let error = worker(&url, "b", Duration::from_secs(10)).await.err().unwrap();
        assert!(matches!(&error, QueueError::Refused(why) if why.contains("certificate")), "{error}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_soon_and_not_told() {
    let began = Instant::now();
    let error = worker("amqp://guest:s3cret@127.0.0.1/q", "a", Duration::from_secs(10)).await.err().unwrap();
    assert!(matches!(&error, QueueError::Refused(why) if why.contains("password")), "{error}");
    assert!(!error.to_string().contains("s3cret") && began.elapsed() < Duration::from_secs(20), "{error}");
    let error = worker("amqp://127.0.0.1/q?vhost=nowhere", "a", Duration::from_secs(10)).await.err().unwrap();
    assert!(matches!(&error, QueueError::Refused(why) if why.contains("nowhere")), "{error}");
    let error = worker("amqp://127.0.0.1:1/q", "a", Duration::from_secs(10)).await.err().unwrap();
    assert!(error.is_transient(), "{error}");
    for url in ["amqp://127.0.0.1/", "amqp://127.0.0.1/q?ca=x", "amqps://127.0.0.1/q?ca=/nowhere.pem"] {
        let error = worker(url, "a", Duration::from_secs(10)).await.err().unwrap();
        assert!(matches!(error, QueueError::Refused(_)), "{error}");
    }
}

#[tokio::test]
async fn a_receipt_is_used_once_and_only_by_its_connection() {
    let shared = Shared::new();
    let (a, b) = (queue(&shared.url()).await, queue(&shared.url()).await);
    a.publish(&[Message::new("1", "{}"), Message::new("2", "{}")]).await.unwrap();
    let received = a.receive(2, Duration::from_secs(10)).await.unwrap();
    let receipts: Vec<_> = received.iter().map(|delivery| delivery.receipt.clone()).collect();
    b.acknowledge(&receipts).await.unwrap();
    assert_eq!(b.extend(&receipts).await.unwrap(), [false, false]);
    assert_eq!(a.extend(&receipts).await.unwrap(), [true, true]);
    // Twice would close the channel, and with it the other delivery would come again.
    for _ in 0..2 {
        a.acknowledge(&receipts[..1]).await.unwrap();
    }
    assert_eq!(a.extend(&receipts).await.unwrap(), [false, true]);
    a.requeue(&received, Duration::ZERO).await.unwrap();
    let second = b.receive(5, Duration::from_secs(10)).await.unwrap();
    assert_eq!(second.len(), 1, "{second:?}");
    assert_eq!((second[0].message.key.as_str(), second[0].deliveries), ("2", 1), "a return is not counted");
}

#[tokio::test]
async fn deliveries_are_counted_across_crashes_and_delays() {
    let shared = Shared::new();
    let a = queue(&shared.url()).await;
    a.publish(&[Message::new("poison", "{}")]).await.unwrap();
    for crash in 1..=3 {
        let worker = queue(&shared.url()).await;
        let received = worker.receive(1, Duration::from_secs(20)).await.unwrap();
        assert_eq!(received[0].deliveries, crash);
    }
    let received = a.receive(1, Duration::from_secs(20)).await.unwrap();
    a.requeue(&received, Duration::from_millis(300)).await.unwrap();
    let received = a.receive(1, Duration::from_secs(20)).await.unwrap();
    assert_eq!(received[0].deliveries, 4, "three crashes, and one delivery that nobody worked on");
}

#[tokio::test]
async fn a_caller_that_goes_away_loses_nothing() {
    let shared = Shared::new();
    let (a, b) = (queue(&shared.url()).await, queue(&shared.url()).await);
    let gone = a.clone();
    let waiting = tokio::spawn(async move { gone.receive(5, Duration::from_secs(2)).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    waiting.abort();
    b.publish(&[Message::new("1", "{}")]).await.unwrap();
    let received = b.receive(1, Duration::from_secs(20)).await.unwrap();
    assert_eq!(received[0].message.key, "1");
    drop(a);
}

#[tokio::test]
async fn a_deleted_queue_is_declared_again_and_a_classic_one_is_warned_of() {
    let shared = Shared::new();
    let a = queue(&shared.url()).await;
    a.publish(&[Message::new("1", "{}")]).await.unwrap();
    assert_eq!(a.warnings().await.unwrap(), Vec::<String>::new());
    let connection = shared.connection().await;
    let channel = connection.open_channel(None).await.unwrap();
    channel.queue_delete(QueueDeleteArguments::new(&shared.name)).await.unwrap();
    // Not confirmed, because no queue took it.
    let error = a.publish(&[Message::new("2", "{}")]).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("NO_ROUTE"), "{error}");
    a.publish(&[Message::new("2", "{}")]).await.unwrap();
    let received = a.receive(1, Duration::from_secs(10)).await.unwrap();
    assert_eq!(received[0].message.key, "2");

    let classic = format!("{}.dead", shared.name);
    channel.queue_declare(QueueDeclareArguments::durable_client_named(&classic)).await.unwrap();
    let b = queue(&format!("{}.dead", shared.url())).await;
    b.publish(&[Message::new("1", "{}")]).await.unwrap();
    let warnings = b.warnings().await.unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("not a quorum queue"), "{warnings:?}");
}
