//! Serves Prometheus metrics on loopback while a command runs.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::web::{self, WebResponse};

/// Binds the address before the run starts. Only loopback is allowed: metrics contain no secrets,
/// but there is no authentication.
pub(crate) fn bind(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    if !addr.ip().is_loopback() {
        return Err(io::Error::other("not a loopback address; use 127.0.0.1 or [::1]"));
    }
    let listener = std::net::TcpListener::bind(addr).map_err(in_use)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Says what to do if another program has the port.
pub(crate) fn in_use(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::AddrInUse {
        return error;
    }
    io::Error::new(error.kind(), "another program is listening on this port; choose another one, or stop it")
}

/// Serves `text` at `/metrics` until the future is dropped.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    text: impl Fn() -> String + Send + Sync + 'static,
) {
    let answers = move |path: String| {
        let answer = match path.as_str() {
            "/metrics" => WebResponse::metrics(text()),
            _ => WebResponse::text("404 Not Found", "see /metrics\n"),
        };
        Box::pin(std::future::ready(answer)) as futures_util::future::BoxFuture<'static, WebResponse>
    };
    web::serve(listener, Vec::new(), Arc::new(answers)).await;
}
