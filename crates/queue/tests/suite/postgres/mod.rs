//! The queue in PostgreSQL, on the conformance suite, against a real server: `TIDEGATE_TEST_DATABASE`,
//! or the one on this machine's standard port. Each test has a queue of its own. What needs a server
//! that can be restarted, or that asks for a password, starts one.

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use self::server::Server;
use async_trait::async_trait;
use tidegate_ledger::bounded::BoundedConfig;
use tidegate_queue::conformance::{self, Broker};
use tidegate_queue::{Message, QueueAddress, QueueError, QueueOptions, Transport, open};

static NUMBER: AtomicU32 = AtomicU32::new(0);

fn database() -> String {
    std::env::var("TIDEGATE_TEST_DATABASE").unwrap_or_else(|_| "postgres://postgres@127.0.0.1/test".into())
}

/// Runs a query with one number as its result.
async fn ask(sql: &str) -> i64 {
    let (client, connection) = BoundedConfig::parse(&database()).unwrap().connect_async().await.unwrap();
    tokio::spawn(connection);
    client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn open_at(address: &str, options: &QueueOptions) -> Result<Arc<dyn Transport>, QueueError> {
    open(&QueueAddress::parse(address)?, options).await
}

/// A queue of one test. Its connections have its name, so that the server finds them.
struct OwnQueue(String);

impl OwnQueue {
    async fn start() -> OwnQueue {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let queue = OwnQueue(format!("test-{}-{number}", std::process::id()));
        // An earlier process with this number may have left something.
        queue.worker("first", conformance::LEASE).await.unwrap().purge().await.unwrap();
        queue.dead_queue().await.unwrap().purge().await.unwrap();
        queue
    }

    fn address(&self, suffix: &str) -> String {
        format!("{}?queue={name}{suffix}&application_name={name}", database(), name = self.0)
    }
}

#[async_trait]
impl Broker for OwnQueue {
    async fn worker(&self, name: &str, lease: Duration) -> Result<Arc<dyn Transport>, QueueError> {
        open_at(&self.address(""), &QueueOptions { lease, ..QueueOptions::new("tests", name) }).await
    }

    async fn dead_queue(&self) -> Result<Arc<dyn Transport>, QueueError> {
        open_at(&self.address("-dead"), &QueueOptions::new("tests", "dead")).await
    }

    /// The server belongs to others too: it ends the connections of this test, again and again.
    async fn restart(&self) -> Result<bool, QueueError> {
        let mut ended = 0;
        for _ in 0..10 {
            let sql =
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = ";
            ended += ask(&format!("{sql}'{}'", self.0)).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(ended > 2, "{ended} connections ended");
        Ok(true)
    }
}

tidegate_queue::conformance!(|| async { Ok::<_, String>(OwnQueue::start().await) });

#[async_trait]
impl Broker for Server {
    async fn worker(&self, name: &str, lease: Duration) -> Result<Arc<dyn Transport>, QueueError> {
        open_at(&self.url("postgres"), &QueueOptions { lease, ..QueueOptions::new("tests", name) }).await
    }

    async fn dead_queue(&self) -> Result<Arc<dyn Transport>, QueueError> {
        Err(QueueError::Unsupported("a dead queue".into()))
    }

    async fn restart(&self) -> Result<bool, QueueError> {
        tokio::task::block_in_place(|| self.restart());
        Ok(true)
    }
}

/// The server is stopped without warning and started again while messages go in and out. A wrong
/// password is refused, and no error shows one.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_its_own() -> Result<(), String> {
    let server = tokio::task::block_in_place(Server::start);
    conformance::survives_a_restart(&server).await?;
    server.sql("CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'swordfish'");
    let options = QueueOptions::new("tests", "a");
    let error = open_at(&server.url("locked:opensesame"), &options).await.err().ok_or("it was let in")?;
    assert!(matches!(error, QueueError::Refused(_)), "{error:?}");
    assert!(error.to_string().contains("password authentication failed"), "{error}");
    assert!(!format!("{error} {error:?}").contains("opensesame"));
    open_at(&server.url("locked:swordfish"), &options).await.map_err(|e| e.to_string())?;
    server.stop();
    let error = open_at(&server.url("locked:swordfish"), &options).await.err().ok_or("there is no server")?;
    assert!(error.is_transient() && !error.to_string().contains("swordfish"), "{error}");
    Ok(())
}

/// Many workers at once: every message is received once, and none twice while its lease holds.
#[tokio::test(flavor = "multi_thread")]
async fn workers_do_not_receive_the_same_message() {
    let queue = OwnQueue::start().await;
    let publisher = queue.worker("p", conformance::LEASE * 6).await.unwrap();
    let messages: Vec<Message> = (0..2000).map(|n| Message::new(format!("m{n}"), "{}")).collect();
    assert_eq!(publisher.publish(&messages).await.unwrap(), 2000);
    let mut workers = Vec::new();
    for n in 0..8 {
        let worker = queue.worker(&format!("w{n}"), conformance::LEASE * 6).await.unwrap();
        workers.push(tokio::spawn(async move {
            let mut mine = Vec::new();
            loop {
                let some = worker.receive(37, Duration::from_millis(300)).await.unwrap();
                if some.is_empty() {
                    return mine;
                }
                let receipts: Vec<_> = some.iter().map(|delivery| delivery.receipt.clone()).collect();
                assert_eq!(worker.extend(&receipts).await.unwrap(), vec![true; receipts.len()]);
                worker.acknowledge(&receipts).await.unwrap();
                mine.extend(some.into_iter().map(|delivery| delivery.message.key));
            }
        }));
    }
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.await.unwrap());
    }
    assert_eq!(all.len(), 2000);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 2000);
    assert_eq!(publisher.depth().await.unwrap().lag(), 0);
}

/// A key that PostgreSQL cannot hold is refused with a reason, and the queue goes on.
#[tokio::test(flavor = "multi_thread")]
async fn refuses_keys_that_it_cannot_hold() {
    let queue = OwnQueue::start().await.worker("a", conformance::LEASE).await.unwrap();
    for key in ["a\0b".to_owned(), "k".repeat(1025)] {
        let error = queue.publish(&[Message::new(key, "{}")]).await.unwrap_err();
        assert!(matches!(error, QueueError::Refused(_)), "{error}");
    }
    assert_eq!(queue.publish(&[Message::new("k".repeat(1024), "{}")]).await.unwrap(), 1);
    assert_eq!(queue.purge().await.unwrap(), Some(1));
}
