//! What the benches that run Tidegate beside its peers share: which programs, how many workers, how
//! long, and what the machine was doing.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_chaos::spec;

/// The programs that are measured.
#[derive(clap::Args)]
pub(crate) struct PeerArgs {
    /// Workers of each client
    #[arg(long, default_value_t = 64)]
    pub(crate) workers: u64,
    /// Most time for one run
    #[arg(long, value_name = "SPAN", default_value = "120s", value_parser = spec::span)]
    pub(crate) timeout: Duration,
    /// The built release binary
    #[arg(long, value_name = "FILE", default_value = "target/release/tidegate")]
    pub(crate) tidegate: PathBuf,
    /// The built Rust peers
    #[arg(long, value_name = "FILE", default_value = "target/peers/release/bench-peer")]
    pub(crate) rust: PathBuf,
    /// A Python that has the Python peers
    #[arg(long, value_name = "FILE", default_value = "target/peers-venv/bin/python")]
    pub(crate) python: PathBuf,
}

/// The load averages of 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}
