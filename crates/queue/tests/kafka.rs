//! Kafka, on the conformance suite: against the broker of the client library, which runs in this
//! process and is reached over TCP.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use krafka::testing::FakeBroker;
use tidegate_queue::conformance::Broker;
use tidegate_queue::{Message, QueueAddress, QueueError, QueueOptions, Transport, conformance, open};

/// Long enough for the smallest session that brokers accept.
const LEASE: Duration = Duration::from_secs(6);

struct Cluster(FakeBroker);

impl Cluster {
    async fn start() -> Result<Cluster, String> {
        FakeBroker::start_cluster(2).await.map(Cluster).map_err(|e| e.to_string())
    }

    fn url(&self, topic: &str) -> String {
        format!("kafka://{}/{topic}?partitions=4", self.0.bootstrap_servers())
    }

    async fn open(&self, name: &str) -> Arc<dyn Transport> {
        worker(&self.url("geotasks"), name, LEASE).await.unwrap()
    }

    fn committed(&self) -> i64 {
        (0..4).filter_map(|partition| self.0.committed_offset("tests", "geotasks", partition)).sum()
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
            self.0.crash(node);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        for node in 0..2 {
            self.0.restart(node);
        }
        Ok(true)
    }
}

conformance!(Cluster::start);

fn numbered(count: usize) -> Vec<Message> {
    (0..count).map(|n| Message::new(format!("task-{n}"), "{}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_refused_soon_and_not_told() {
    let cluster = Cluster::start().await.unwrap();
    cluster.0.require_sasl_plain("me", "right");
    let url = |password: &str| cluster.url("geotasks").replace("kafka://", &format!("kafka://me:{password}@"));
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
    let cluster = Cluster::start().await.unwrap();
    let a = cluster.open("a").await;
    a.publish(&numbered(400)).await.unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let mut workers = vec![a];
    let end = Instant::now() + Duration::from_secs(60);
    let mut round = 0;
    while seen.len() < 400 && Instant::now() < end {
        round += 1;
        if round % 10 == 5 && workers.len() < 3 {
            workers.push(cluster.open(&format!("w{round}")).await);
        } else if round % 10 == 0 && workers.len() > 1 {
            // It holds messages that it never finishes.
            let gone = workers.remove(0);
            let _ = gone.receive(5, Duration::from_millis(10)).await;
        }
        for worker in &workers {
            let received = worker.receive(7, Duration::from_millis(100)).await.unwrap();
            let receipts: Vec<_> = received.iter().map(|delivery| delivery.receipt.clone()).collect();
            let held = worker.extend(&receipts).await.unwrap();
            if worker.acknowledge(&receipts).await.is_ok() {
                let held = received.iter().zip(held).filter(|(_, held)| *held);
                seen.extend(held.map(|(delivery, _)| delivery.message.key.clone()));
            }
        }
    }
    assert_eq!(seen.len(), 400);
}
