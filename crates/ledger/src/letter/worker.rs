//! The worker that gives a record up, as a letter names it.

use std::sync::OnceLock;

/// This process: its host, its number and its version, such as `web-1, pid 1234, tidegate 0.1.0`.
#[must_use]
pub fn worker() -> String {
    static HOST: OnceLock<String> = OnceLock::new();
    let host = HOST.get_or_init(host);
    format!("{host}, pid {}, tidegate {}", std::process::id(), env!("CARGO_PKG_VERSION"))
}

fn host() -> String {
    let named = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let named = named.or_else(|| std::fs::read_to_string("/etc/hostname").ok());
    let named = named.or_else(|| std::env::var("COMPUTERNAME").or_else(|_| std::env::var("HOSTNAME")).ok());
    named
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown host".into())
}
