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

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn many_open_a_new_file_at_once() -> Result<(), String> {
    let file = Arc::new(File(tempfile::tempdir().map_err(|e| e.to_string())?));
    let barrier = Arc::new(tokio::sync::Barrier::new(8));
    let opened = (0..8).map(|n| {
        let (file, barrier) = (file.clone(), barrier.clone());
        tokio::spawn(async move {
            barrier.wait().await;
            file.worker(&format!("worker {n}"), Duration::from_secs(30)).await.map(drop)
        })
    });
    for opened in opened.collect::<Vec<_>>() {
        opened.await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    }
    Ok(())
}
