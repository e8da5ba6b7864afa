//! AWS SQS, standard and FIFO, on the conformance suite, against an SQS server on this machine.
#![cfg(feature = "sqs")]

#[path = "sqs/server.rs"]
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_queue::conformance::Broker;
use tidegate_queue::{Message, QueueAddress, QueueError, QueueOptions, Transport, now_ms, open};

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
