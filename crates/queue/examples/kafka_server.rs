//! The Kafka broker of the client library as a server of its own, for benchmarks: prints its addresses,
//! and ends with its standard input.
//!
//!     cargo run -p tidegate-queue --example kafka_server

use std::io::{Read as _, Write as _};

use krafka::testing::FakeBroker;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let broker = runtime.block_on(FakeBroker::start_cluster(1))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", broker.bootstrap_servers())?;
    out.flush()?;
    let mut rest = Vec::new();
    std::io::stdin().lock().read_to_end(&mut rest)?;
    Ok(())
}
