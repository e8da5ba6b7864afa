//! NATS JetStream, on the conformance suite and with what only NATS does.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::server::{self, Server};
use async_trait::async_trait;
use tidegate_queue::conformance::Broker;
use tidegate_queue::{Message, QueueAddress, QueueError, QueueOptions, Transport, conformance, open};

/// NATS with file storage. `sync_interval` is missing, because Debian's 2.9 does not know it; killing the
/// process, as these tests do, does not need it.
struct Nats(Server);

/// A server with further lines in its settings.
fn with_settings(port: u16, directory: &Path, further: &str) -> io::Result<Command> {
    let settings = directory.join("nats.conf");
    let store = directory.join("store");
    let text = format!("listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {store:?} }}\n{further}\n");
    std::fs::write(&settings, text)?;
    let mut command = Command::new("nats-server");
    command.arg("-c").arg(settings);
    Ok(command)
}

fn durable(port: u16, directory: &Path) -> io::Result<Command> {
    with_settings(port, directory, "")
}

fn with_password(port: u16, directory: &Path) -> io::Result<Command> {
    with_settings(port, directory, "authorization { user: me, password: \"correct horse\" }")
}

fn with_token(port: u16, directory: &Path) -> io::Result<Command> {
    with_settings(port, directory, "authorization { token: \"correct horse\" }")
}

fn with_tls(port: u16, directory: &Path) -> io::Result<Command> {
    let (certificate, key) = (directory.join("server.pem"), directory.join("server.key"));
    with_settings(port, directory, &format!("tls {{ cert_file: {certificate:?}, key_file: {key:?} }}"))
}

fn started(start: fn(u16, &Path) -> io::Result<Command>) -> Result<Server, String> {
    Server::start(server::write_certificates, start).map_err(|e| e.to_string())
}

async fn connect(url: &str, options: &QueueOptions) -> Result<Arc<dyn Transport>, QueueError> {
    open(&QueueAddress::parse(url)?, options).await
}

impl Nats {
    fn url(&self, queue: &str) -> String {
        format!("nats://127.0.0.1:{}/{queue}", self.0.port)
    }
}

#[async_trait]
impl Broker for Nats {
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

conformance!(|| async { started(durable).map(Nats) });

type Outcome = Result<(), Box<dyn std::error::Error>>;
const SOON: Duration = Duration::from_secs(20);

fn numbered(count: u32) -> Vec<Message> {
    (0..count).map(|n| Message::new(format!("task-{n}"), "{}")).collect()
}

async fn refused(url: &str, secret: &str) -> Outcome {
    let options = QueueOptions::new("tests", "a");
    let error = connect(url, &options).await.err().ok_or("it was accepted")?;
    assert!(matches!(error, QueueError::Refused(_)), "{error}");
    assert!(!error.to_string().contains(secret), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_a_wrong_password_and_does_not_show_it() -> Outcome {
    let options = QueueOptions::new("tests", "a");
    let server = started(with_password)?;
    let url = |user: &str| format!("nats://{user}127.0.0.1:{}/geotasks", server.port);
    for user in ["", "me:battery%20staple@", "battery%20staple@"] {
        refused(&url(user), "battery").await?;
    }
    assert_eq!(connect(&url("me:correct%20horse@"), &options).await?.publish(&numbered(1)).await?, 1);
    let server = started(with_token)?;
    let url = |user: &str| format!("nats://{user}127.0.0.1:{}/geotasks", server.port);
    refused(&url("battery@"), "battery").await?;
    assert_eq!(connect(&url("correct%20horse@"), &options).await?.publish(&numbered(1)).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn uses_tls_with_an_own_authority() -> Outcome {
    let server = started(with_tls)?;
    let options = QueueOptions::new("tests", "a");
    let url = format!("tls+nats://localhost:{}/geotasks", server.port);
    let queue = connect(&format!("{url}?ca={}", server::ca(&server).display()), &options).await?;
    queue.publish(&numbered(1)).await?;
    assert_eq!(queue.receive(5, SOON).await?.len(), 1);
    // Without the authority the certificate is not trusted.
    refused(&url, "ca.pem").await?;
    refused(&format!("{url}?ca=/missing/ca.pem"), "geotasks").await
}

#[tokio::test(flavor = "multi_thread")]
async fn warns_of_settings_that_lose() -> Outcome {
    let options = QueueOptions::new("tests", "a");
    let broker = Nats(started(durable)?);
    let warnings = connect(&broker.url("geotasks"), &options).await?.warnings().await?;
    assert!(warnings.len() == 1 && warnings[0].contains("sync_interval: always"), "{warnings:?}");
    let queue = connect(&format!("{}?sync=always", broker.url("geotasks")), &options).await?;
    assert_eq!(queue.warnings().await?, Vec::<String>::new());
    // A stream that somebody made before.
    let client = async_nats::connect(format!("127.0.0.1:{}", broker.0.port)).await?;
    let jetstream = async_nats::jetstream::new(client);
    let mut config = async_nats::jetstream::stream::Config {
        name: "volatile".into(),
        retention: async_nats::jetstream::stream::RetentionPolicy::WorkQueue,
        storage: async_nats::jetstream::stream::StorageType::Memory,
        subjects: vec!["volatile".into()],
        ..Default::default()
    };
    jetstream.create_stream(&config).await?;
    let warnings = connect(&broker.url("volatile"), &options).await?.warnings().await?;
    assert!(warnings.len() == 1 && warnings[0].contains("in memory"), "{warnings:?}");
    // One that would deliver every message to everybody, or other messages too.
    config.name = "events".into();
    config.subjects = vec!["events".into(), "more".into()];
    jetstream.create_stream(&config).await?;
    let error = connect(&broker.url("events"), &options).await.err().ok_or("it was used")?;
    assert!(error.to_string().contains("not a queue of its own"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_a_second_group() -> Outcome {
    let broker = Nats(started(durable)?);
    let first = connect(&broker.url("geotasks"), &QueueOptions::new("parcels", "a")).await?;
    first.publish(&numbered(1)).await?;
    assert_eq!(first.receive(1, SOON).await?.len(), 1);
    // To publish and to look needs no group.
    let second = connect(&broker.url("geotasks"), &QueueOptions::new("roads", "b")).await?;
    assert_eq!(second.publish(&numbered(1)).await?, 1);
    let depth = second.depth().await?;
    assert_eq!((depth.ready, depth.leased), (1, Some(1)));
    let error = second.receive(1, Duration::ZERO).await.err().ok_or("a second group received")?;
    assert!(error.to_string().contains("belongs to another group"), "{error}");
    Ok(())
}

/// What another worker holds now cannot be acknowledged, extended or given back with an old receipt.
#[tokio::test(flavor = "multi_thread")]
async fn ignores_old_receipts() -> Outcome {
    let broker = Nats(started(durable)?);
    let lease = Duration::from_secs(2);
    let (a, b) = (broker.worker("a", lease).await?, broker.worker("b", lease).await?);
    a.publish(&numbered(1)).await?;
    let old = a.receive(1, SOON).await?;
    let new = b.receive(1, SOON).await?;
    assert_eq!((new[0].deliveries, &new[0].message), (2, &old[0].message));
    a.acknowledge(&[old[0].receipt.clone()]).await?;
    a.requeue(&old, Duration::ZERO).await?;
    assert_eq!(a.extend(&[old[0].receipt.clone()]).await?, [false]);
    assert_eq!(b.extend(&[new[0].receipt.clone()]).await?, [true]);
    assert_eq!(b.depth().await?.lag(), 1);
    // What is given back keeps its number of deliveries, less the one that was not used.
    b.requeue(&new, Duration::from_millis(50)).await?;
    let again = a.receive(1, SOON).await?;
    assert_eq!((again[0].deliveries, again[0].published), (2, new[0].published));
    a.acknowledge(&[again[0].receipt.clone()]).await?;
    assert_eq!(a.depth().await?.lag(), 0);
    Ok(())
}

/// Somebody deletes the stream while a worker is connected.
#[tokio::test(flavor = "multi_thread")]
async fn goes_on_after_the_stream_was_deleted() -> Outcome {
    let broker = Nats(started(durable)?);
    let queue = broker.worker("a", Duration::from_secs(5)).await?;
    queue.publish(&numbered(3)).await?;
    assert_eq!(queue.receive(1, SOON).await?.len(), 1);
    let client = async_nats::connect(format!("127.0.0.1:{}", broker.0.port)).await?;
    async_nats::jetstream::new(client).delete_stream("geotasks").await?;
    let end = std::time::Instant::now() + SOON;
    while let Err(e) = queue.publish(&numbered(3)).await {
        assert!(e.is_transient() && std::time::Instant::now() < end, "{e}");
    }
    let mut received = 0;
    while received < 3 {
        match queue.receive(10, SOON).await {
            Ok(some) => received += some.len(),
            Err(e) => assert!(e.is_transient() && std::time::Instant::now() < end, "{e}"),
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_impossible_urls() -> Outcome {
    for url in [
        "nats://127.0.0.1:1/a*b",
        "nats://127.0.0.1:1/",
        "nats://127.0.0.1:1/a?chacert=x",
        "nats://127.0.0.1:1/a?key=/",
    ] {
        refused(url, "password").await?;
    }
    let error = connect("nats://me:password@127.0.0.1:1/a", &QueueOptions::new("tests", "a")).await;
    assert!(matches!(&error, Err(QueueError::Unreachable(text)) if !text.contains("password")));
    Ok(())
}
