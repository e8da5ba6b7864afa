//! The HTTP driver against real sockets on loopback: what breaks, what lies, what must not be asked.

mod broken;
mod reach;
mod secrets;
mod server;
mod tls;
mod whole;
