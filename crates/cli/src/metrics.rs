//! Metrics for Prometheus while a verb runs: one answer of a tiny web server, on loopback.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::web::{self, WebResponse};

/// Takes the address, so that a run that cannot be watched does not begin. Only loopback is served:
/// metrics carry no secrets, but nobody asked the network to read them either.
pub(crate) fn bind(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    if !addr.ip().is_loopback() {
        return Err(io::Error::other("not a loopback address; use 127.0.0.1 or [::1]"));
    }
    let listener = std::net::TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves `text` at `/metrics` for as long as it is awaited.
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
