//! The HTTP driver against real sockets on loopback: what breaks, what lies, what must not be asked.
#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, reason = "helpers of tests may fail loudly")]

mod broken;
mod reach;
mod secrets;
mod server;
mod tls;
mod whole;
