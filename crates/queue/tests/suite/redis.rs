//! Redis Streams, on the conformance suite and with what only Redis does.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::server::{self, Server};
use async_trait::async_trait;
use tidegate_queue::conformance::Broker;
use tidegate_queue::{Message, QueueAddress, QueueError, QueueOptions, Transport, conformance, open};

/// Redis with its durable settings.
struct Redis(Server);

fn durable(port: u16, directory: &Path) -> io::Result<Command> {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(directory);
    command.args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
    Ok(command)
}

fn with_password(port: u16, directory: &Path) -> io::Result<Command> {
    let mut command = durable(port, directory)?;
    command.args(["--requirepass", "correct horse"]);
    Ok(command)
}

fn with_tls(port: u16, directory: &Path) -> io::Result<Command> {
    let mut command = durable(0, directory)?;
    command.args(["--tls-port", &port.to_string(), "--tls-auth-clients", "no"]);
    for (option, file) in [
        ("--tls-cert-file", "server.pem"),
        ("--tls-key-file", "server.key"),
        ("--tls-ca-cert-file", "ca.pem"),
    ] {
        command.arg(option).arg(directory.join(file));
    }
    Ok(command)
}

fn volatile(port: u16, directory: &Path) -> io::Result<Command> {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(directory);
    command.args(["--save", "", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    Ok(command)
}

fn started(start: fn(u16, &Path) -> io::Result<Command>) -> Result<Server, String> {
    Server::start(server::write_certificates, start).map_err(|e| e.to_string())
}

async fn connect(url: &str, options: &QueueOptions) -> Result<Arc<dyn Transport>, QueueError> {
    open(&QueueAddress::parse(url)?, options).await
}

impl Redis {
    fn url(&self, queue: &str) -> String {
        format!("redis://127.0.0.1:{}/{queue}", self.0.port)
    }
}

#[async_trait]
impl Broker for Redis {
    async fn worker(&self, name: &str, lease: Duration) -> Result<Arc<dyn Transport>, QueueError> {
        connect(&self.url("geotasks"), &QueueOptions { lease, ..QueueOptions::new("tests", name) }).await
    }

    async fn dead_queue(&self) -> Result<Arc<dyn Transport>, QueueError> {
        connect(&self.url("geotasks.dead"), &QueueOptions::new("tests", "dead")).await
    }

    async fn restart(&self) -> Result<bool, QueueError> {
        let restarted = tokio::task::block_in_place(|| self.0.restart());
        restarted.map(|()| true).map_err(|e| QueueError::Unreachable(e.to_string()))
    }
}

conformance!(|| async { started(durable).map(Redis) });

type Outcome = Result<(), Box<dyn std::error::Error>>;
const SOON: Duration = Duration::from_secs(20);

fn numbered(count: u32) -> Vec<Message> {
    (0..count).map(|n| Message::new(format!("task-{n}"), "{}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_a_wrong_password_and_does_not_show_it() -> Outcome {
    let server = started(with_password)?;
    let options = QueueOptions::new("tests", "a");
    let url = |user: &str| format!("redis://{user}127.0.0.1:{}/geotasks", server.port);
    for user in ["", ":battery%20staple@", "nobody:battery%20staple@"] {
        let error = connect(&url(user), &options).await.err().ok_or("the password was accepted")?;
        assert!(matches!(error, QueueError::Refused(_)), "{error}");
        assert!(!error.to_string().contains("battery"), "{error}");
    }
    let queue = connect(&url(":correct%20horse@"), &options).await?;
    assert_eq!(queue.publish(&numbered(1)).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn uses_tls_with_an_own_authority() -> Outcome {
    let server = started(with_tls)?;
    let options = QueueOptions::new("tests", "a");
    let url = format!("rediss://localhost:{}/geotasks?db=2", server.port);
    let queue = connect(&format!("{url}&ca={}", server::ca(&server).display()), &options).await?;
    queue.publish(&numbered(1)).await?;
    assert_eq!(queue.receive(5, SOON).await?.len(), 1);
    // Without the authority the certificate is not trusted; without TLS nobody answers.
    let error = connect(&url, &options).await.err().ok_or("an unknown authority was trusted")?;
    assert!(matches!(error, QueueError::Refused(_)), "{error}");
    let plain = format!("redis://localhost:{}/geotasks", server.port);
    assert!(connect(&plain, &options).await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn warns_of_settings_that_lose() -> Outcome {
    let options = QueueOptions::new("tests", "a");
    let lossy = Redis(started(volatile)?);
    let warnings = connect(&lossy.url("geotasks"), &options).await?.warnings().await?;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("appendonly yes") && warnings[1].contains("noeviction"), "{warnings:?}");
    let good = Redis(started(durable)?);
    let warnings = connect(&good.url("geotasks"), &options).await?.warnings().await?;
    assert_eq!(warnings, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_a_second_group() -> Outcome {
    let broker = Redis(started(durable)?);
    let first = connect(&broker.url("geotasks"), &QueueOptions::new("parcels", "a")).await?;
    first.publish(&numbered(1)).await?;
    assert_eq!(first.receive(1, SOON).await?.len(), 1);
    // To publish and to look needs no group.
    let second = connect(&broker.url("geotasks"), &QueueOptions::new("roads", "b")).await?;
    assert_eq!(second.publish(&[Message::new("other", "{}")]).await?, 1);
    assert_eq!(second.depth().await?.lag(), 2);
    let error = second.receive(1, Duration::ZERO).await.err().ok_or("a second group received")?;
    assert!(error.to_string().contains("belongs to the group parcels"), "{error}");
    Ok(())
}

/// What another worker holds now cannot be acknowledged, extended or given back with an old receipt.
#[tokio::test(flavor = "multi_thread")]
async fn ignores_old_receipts() -> Outcome {
    let broker = Redis(started(durable)?);
    let lease = Duration::from_millis(200);
    let (a, b) = (broker.worker("a", lease).await?, broker.worker("b", lease).await?);
    a.publish(&numbered(1)).await?;
    let old = a.receive(1, SOON).await?;
    let new = b.receive(1, SOON).await?;
    assert_eq!((new[0].deliveries, &new[0].message), (2, &old[0].message));
    // And again the first worker, so that only the number of deliveries tells.
    let newest = a.receive(1, SOON).await?;
    assert_eq!(newest[0].deliveries, 3);
    a.acknowledge(&[old[0].receipt.clone()]).await?;
    b.requeue(&new, Duration::ZERO).await?;
    assert_eq!(a.extend(&[old[0].receipt.clone(), newest[0].receipt.clone()]).await?, [false, true]);
    assert_eq!(b.extend(&[new[0].receipt.clone()]).await?, [false]);
    assert_eq!(a.depth().await?.leased, Some(1));
    // What is given back keeps its number of deliveries, less the one that was not used.
    a.requeue(&newest, Duration::from_millis(50)).await?;
    let again = b.receive(1, SOON).await?;
    assert_eq!((again[0].deliveries, again[0].published), (3, newest[0].published));
    b.acknowledge(&[again[0].receipt.clone()]).await?;
    assert_eq!(b.depth().await?.lag(), 0);
    // Its key can be queued again.
    assert_eq!(b.publish(&numbered(1)).await?, 1);
    Ok(())
}

/// Somebody deletes or trims the stream while workers are connected.
#[tokio::test(flavor = "multi_thread")]
async fn goes_on_after_the_stream_was_deleted() -> Outcome {
    let broker = Redis(started(durable)?);
    let queue = broker.worker("a", Duration::from_secs(5)).await?;
    let redis = |arguments: &[&str]| {
        Command::new("redis-cli").args(["-p", &broker.0.port.to_string()]).args(arguments).output()
    };
    queue.publish(&numbered(3)).await?;
    let held = queue.receive(1, SOON).await?;
    assert!(redis(&["XTRIM", "geotasks", "MAXLEN", "0"])?.status.success());
    assert_eq!(queue.publish(&numbered(3)).await?, 3);
    assert!(redis(&["DEL", "geotasks"])?.status.success());
    queue.acknowledge(&[held[0].receipt.clone()]).await?;
    assert_eq!(queue.extend(&[held[0].receipt.clone()]).await?, [false]);
    assert_eq!(queue.publish(&numbered(3)).await?, 3);
    assert_eq!(queue.receive(10, SOON).await?.len(), 3);
    Ok(())
}

/// Consumers of workers that ended are removed, but not with what they hold.
#[tokio::test(flavor = "multi_thread")]
async fn removes_consumers_that_hold_nothing() -> Outcome {
    let broker = Redis(started(durable)?);
    let lease = Duration::from_secs(60);
    let (a, b) = (broker.worker("a", lease).await?, broker.worker("b", lease).await?);
    a.publish(&numbered(2)).await?;
    let done = b.receive(1, SOON).await?;
    b.acknowledge(&[done[0].receipt.clone()]).await?;
    assert_eq!(a.receive(1, SOON).await?.len(), 1);
    // The script of a worker that starts, as if ten minutes had passed.
    let join = include_str!("../../src/redis/join.lua");
    let port = broker.0.port.to_string();
    let redis = |arguments: &[&str]| Command::new("redis-cli").args(["-p", &port]).args(arguments).output();
    assert!(redis(&["EVAL", join, "1", "geotasks", "tests", "-1"])?.status.success());
    let left = String::from_utf8(redis(&["XINFO", "CONSUMERS", "geotasks", "tests"])?.stdout)?;
    assert!(left.contains("\na\n") && !left.contains("\nb\n"), "{left}");
    // A worker whose consumer was removed goes on.
    b.publish(&[Message::new("another", "{}")]).await?;
    assert_eq!(b.receive(1, SOON).await?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn keeps_waiting_messages_over_a_restart() -> Outcome {
    let broker = Redis(started(durable)?);
    let queue = broker.worker("a", Duration::from_secs(5)).await?;
    let at = tidegate_queue::now_ms() + 1500;
    queue.publish(&[Message { not_before: Some(at), ..Message::new("late", "{}") }]).await?;
    let depth = queue.depth().await?;
    assert_eq!((depth.ready, depth.waiting), (0, Some(1)));
    assert!(broker.restart().await?);
    let end = std::time::Instant::now() + SOON;
    let received = loop {
        match queue.receive(1, SOON).await {
            Ok(received) => break received,
            Err(e) if e.is_transient() && std::time::Instant::now() < end => {}
            Err(e) => return Err(e.into()),
        }
    };
    assert!(tidegate_queue::now_ms() >= at);
    assert_eq!(received[0].message.not_before, Some(at));
    Ok(())
}
