//! Kafka, on the conformance suite: against the broker of the client library, which runs in this
//! process and is reached over TCP.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use krafka::testing::FakeBroker;
use tidegate_queue::conformance::Broker;
use tidegate_queue::{Message, QueueAddress, QueueError, QueueOptions, Transport, conformance, open};

/// Long enough for the smallest session that brokers accept.
const LEASE: Duration = Duration::from_secs(6);

struct Cluster {
    broker: FakeBroker,
    protocol: &'static str,
}

impl Cluster {
    async fn start() -> Result<Cluster, String> {
        let broker = FakeBroker::start_cluster(2).await.map_err(|e| e.to_string())?;
        Ok(Cluster { broker, protocol: "classic" })
    }

    fn url(&self, topic: &str) -> String {
        let (hosts, protocol) = (self.broker.bootstrap_servers(), self.protocol);
        format!("kafka://{hosts}/{topic}?partitions=4&protocol={protocol}")
    }

    async fn open(&self, name: &str) -> Arc<dyn Transport> {
        worker(&self.url("geotasks"), name, LEASE).await.unwrap()
    }

    fn committed(&self) -> i64 {
        (0..4).filter_map(|partition| self.broker.committed_offset("tests", "geotasks", partition)).sum()
    }
}

async fn worker(url: &str, name: &str, lease: Duration) -> Result<Arc<dyn Transport>, QueueError> {
    open(&QueueAddress::parse(url)?, &QueueOptions { lease, ..QueueOptions::new("tests", name) }).await
}

#[async_trait]
impl Broker for Cluster {
    async fn worker(&self, name: &str, lease: Duration) -> Result<Arc<dyn Transport>, QueueError> {
        worker(&self.url("geotasks"), name, lease).await
    }

    async fn dead_queue(&self) -> Result<Arc<dyn Transport>, QueueError> {
        worker(&self.url("dead"), "dead", LEASE).await
    }

    async fn restart(&self) -> Result<bool, QueueError> {
        for node in 0..2 {
            self.broker.crash(node);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        for node in 0..2 {
            self.broker.restart(node);
        }
        Ok(true)
    }
}

conformance!(Cluster::start);

/// The same with the group protocol of Kafka 4.
mod consumer_protocol {
    use super::*;

    conformance!(|| async { Ok::<_, String>(Cluster { protocol: "consumer", ..Cluster::start().await? }) });
}

fn numbered(count: usize) -> Vec<Message> {
    (0..count).map(|n| Message::new(format!("task-{n}"), "{}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_refused_soon_and_not_told() {
    let cluster = Cluster::start().await.unwrap();
    cluster.broker.require_sasl_plain("me", "right");
    let url =
        |password: &str| cluster.url("geotasks").replace("kafka://", &format!("kafka://me:{password}@"));
    let began = Instant::now();
    let error = worker(&url("s3cret"), "a", LEASE).await.err().unwrap();
    assert!(matches!(error, QueueError::Refused(_)), "{error}");
    assert!(!error.to_string().contains("s3cret") && began.elapsed() < Duration::from_secs(25), "{error}");
    let queue = worker(&url("right"), "a", LEASE).await.unwrap();
    queue.publish(&numbered(1)).await.unwrap();
    for url in ["kafka://127.0.0.1:1/", "kafka://127.0.0.1:1/t?ca=x", "kafka://me@127.0.0.1:1/t?sasl=x"] {
        let error = worker(url, "a", LEASE).await.err().unwrap();
        assert!(matches!(error, QueueError::Refused(_)), "{error}");
    }
    let error = worker("kafka://127.0.0.1:1/t", "a", LEASE).await.err().unwrap();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_finished_without_a_gap_is_committed() {
    let cluster = Cluster::start().await.unwrap();
    let url = cluster.url("geotasks").replace("partitions=4", "partitions=1");
    let a = worker(&url, "a", LEASE).await.unwrap();
    a.publish(&numbered(5)).await.unwrap();
    let received = a.receive(5, Duration::from_secs(20)).await.unwrap();
    assert_eq!(received.len(), 5);
    let receipts: Vec<_> = received.iter().map(|delivery| delivery.receipt.clone()).collect();
    a.acknowledge(&receipts[1..4]).await.unwrap();
    assert_eq!(cluster.committed(), 0);
    assert_eq!(a.depth().await.unwrap().lag(), 2);
    a.acknowledge(&receipts[..1]).await.unwrap();
    assert_eq!(cluster.committed(), 4);
    drop(a);
    let b = worker(&url, "b", LEASE).await.unwrap();
    let received = b.receive(5, Duration::from_secs(20)).await.unwrap();
    assert_eq!(received.iter().map(|delivery| delivery.message.key.as_str()).collect::<Vec<_>>(), ["task-4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_come_and_go_lose_nothing() {
    // The broker knows groups of several members only in this protocol.
    let cluster = Cluster { protocol: "consumer", ..Cluster::start().await.unwrap() };
    let a = cluster.open("a").await;
    a.publish(&numbered(400)).await.unwrap();
    let mut seen = BTreeSet::new();
    let mut workers = vec![a, cluster.open("b").await];
    let mut changes = 0;
    let end = Instant::now() + Duration::from_secs(240);
    while seen.len() < 400 && Instant::now() < end {
        if seen.len() >= 50 * (changes + 1) {
            changes += 1;
            workers.push(cluster.open(&format!("worker-{changes}")).await);
            // It holds messages that it never finishes.
            let gone = workers.remove(0);
            let _ = gone.receive(5, Duration::from_millis(10)).await;
        }
        for worker in &workers {
            let received = worker.receive(7, Duration::from_millis(100)).await.unwrap();
            let receipts: Vec<_> = received.iter().map(|delivery| delivery.receipt.clone()).collect();
            if worker.acknowledge(&receipts).await.is_ok() {
                seen.extend(received.into_iter().map(|delivery| delivery.message.key));
            }
        }
    }
    assert_eq!(seen.len(), 400);
    assert!(changes >= 5, "{changes}");
}
