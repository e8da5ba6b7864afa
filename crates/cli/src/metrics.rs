//! Metrics for Prometheus while a verb runs: one tiny HTTP answer, on loopback.

use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Takes the address, so that a run that cannot be watched does not begin. Only loopback is served:
/// metrics carry no secrets, but nobody asked the network to read them either.
pub(crate) fn bind(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    if !addr.ip().is_loopback() {
        return Err(io::Error::other("only loopback addresses are served"));
    }
    let listener = std::net::TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves `text` at `/metrics` for as long as it is awaited.
pub(crate) async fn serve(listener: std::net::TcpListener, text: impl Fn() -> String) {
    // It was a listener of the operating system already.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        // A client that goes away mid-answer has had enough.
        let _ = answer(stream, &text).await;
    }
}

async fn answer(mut stream: TcpStream, text: &impl Fn() -> String) -> io::Result<()> {
    let mut request = [0; 1024];
    let read = tokio::time::timeout(std::time::Duration::from_secs(2), stream.read(&mut request)).await;
    let Ok(Ok(n)) = read else { return Ok(()) };
    let wanted = request.get(..n).unwrap_or_default();
    let (status, body) = if wanted.starts_with(b"GET /metrics") {
        ("200 OK", text())
    } else {
        ("404 Not Found", "see /metrics\n".to_string())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}
