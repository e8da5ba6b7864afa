//! The embedded queue, on the conformance suite.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_queue::conformance::Broker;
use tidegate_queue::{QueueAddress, QueueError, QueueOptions, Transport, conformance, open};

struct File(tempfile::TempDir);

#[async_trait]
impl Broker for File {
    async fn worker(&self, name: &str, lease: Duration) -> Result<Arc<dyn Transport>, QueueError> {
        let address = QueueAddress::parse(&format!("{}", self.0.path().join("tasks.db").display()))?;
        open(&address, &QueueOptions { lease, ..QueueOptions::new("tests", name) }).await
    }

    async fn dead_queue(&self) -> Result<Arc<dyn Transport>, QueueError> {
        let address = format!("{}?queue=dead", self.0.path().join("tasks.db").display());
        open(&QueueAddress::parse(&address)?, &QueueOptions::new("tests", "dead")).await
    }

    async fn restart(&self) -> Result<bool, QueueError> {
        Ok(false)
    }
}

conformance!(|| async { tempfile::tempdir().map(File).map_err(|e| e.to_string()) });
