//! A small web server for `--metrics` and `serve`: it answers GET and HEAD, one request per
//! connection, and reads only the request head.
//!
//! It defends against other web sites that try to read it through the user's browser. The `Host`
//! header must be an IP address, `localhost` or an allowed name, which prevents DNS rebinding.
//! Responses must not be framed, sniffed, cached or read by another origin.
//!
//! Connections are bounded for each client and in all (`room`), and so is the time of each.

mod room;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tidegate_core::host::{self, HostAddresses};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use room::{ConnectionPlace, ConnectionRoom};

/// The largest request head, in bytes.
const HEAD_MAX: usize = 16 * 1024;
/// The most headers of a request.
const HEADERS_MAX: usize = 64;
/// The most requests that are answered at the same time; further ones wait.
const ANSWERS_MAX: usize = 8;
/// The timeout for reading a request.
const ASKING: Duration = Duration::from_secs(5);
/// The timeout for writing a response.
const READING: Duration = Duration::from_secs(30);

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebResponse {
    /// The status code and reason.
    pub(crate) status: &'static str,
    /// The media type.
    pub(crate) kind: &'static str,
    /// The content security policy; each page has its own.
    pub(crate) policy: String,
    pub(crate) body: String,
}

impl WebResponse {
    /// A plain text response.
    pub(crate) fn text(status: &'static str, body: impl Into<String>) -> WebResponse {
        WebResponse {
            status,
            kind: "text/plain; charset=utf-8",
            policy: "default-src 'none'".into(),
            body: body.into(),
        }
    }

    /// A page with its content security policy.
    pub(crate) fn page(policy: impl Into<String>, body: String) -> WebResponse {
        WebResponse {
            kind: "text/html; charset=utf-8",
            policy: policy.into(),
            ..WebResponse::text("200 OK", body)
        }
    }

    /// A response with Prometheus metrics.
    pub(crate) fn metrics(body: String) -> WebResponse {
        WebResponse { kind: "text/plain; version=0.0.4; charset=utf-8", ..WebResponse::text("200 OK", body) }
    }
}

/// The request handler; it gets the path without the query.
pub(crate) type Answers = Arc<dyn Fn(String) -> BoxFuture<'static, WebResponse> + Send + Sync>;

/// Serves until the future is dropped. `names` are host names accepted besides IP addresses.
pub(crate) async fn serve(listener: std::net::TcpListener, names: Vec<String>, answers: Answers) {
    // The listener is already bound; registering it with tokio does not fail in practice.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let (room, names) = (Arc::new(Mutex::new(ConnectionRoom::default())), Arc::new(names));
    let turns = Arc::new(Semaphore::new(ANSWERS_MAX));
    loop {
        let Ok((stream, client)) = listener.accept().await else {
            // Out of file descriptors, or the client disconnected: neither ends the server.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Some(place) = ConnectionRoom::enter(&room, client.ip()) else { continue };
        let (names, answers, turns) = (Arc::clone(&names), Arc::clone(&answers), Arc::clone(&turns));
        tokio::spawn(async move {
            let leave = Arc::clone(&place.leave);
            tokio::select! {
                // A client may disconnect during the response.
                _ = connection(stream, &names, (&answers, &turns), &place) => {}
                () = leave.notified() => {}
            }
        });
    }
}

async fn connection(
    mut stream: TcpStream,
    names: &[String],
    (answers, turns): (&Answers, &Semaphore),
    place: &ConnectionPlace,
) -> io::Result<()> {
    let Ok(asked) = tokio::time::timeout(ASKING, read(&mut stream, names)).await else { return Ok(()) };
    let (head_only, answer) = match asked? {
        WebRequest::Nothing => return Ok(()),
        WebRequest::Wrong(answer) => (false, answer),
        WebRequest::Path { path, head_only } => {
            place.idle(false);
            let Ok(turn) = turns.acquire().await else { return Ok(()) };
            let answer = answers(path).await;
            drop(turn);
            place.idle(true);
            (head_only, answer)
        }
    };
    let write = async {
        stream.write_all(head(&answer).as_bytes()).await?;
        if !head_only {
            stream.write_all(answer.body.as_bytes()).await?;
        }
        stream.shutdown().await
    };
    tokio::time::timeout(READING, write).await.unwrap_or(Ok(()))
}

fn head(answer: &WebResponse) -> String {
    let allow = if answer.status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\
         Cache-Control: no-store\r\nContent-Security-Policy: {}; frame-ancestors 'none'\r\n\
         X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n\r\n",
        answer.status,
        answer.kind,
        answer.body.len(),
        answer.policy,
    )
}

/// A request as read from a connection.
#[derive(Debug, PartialEq, Eq)]
enum WebRequest {
    /// The client disconnected without a request.
    Nothing,
    /// An invalid request and its response.
    Wrong(WebResponse),
    Path {
        path: String,
        head_only: bool,
    },
}

async fn read(stream: &mut TcpStream, names: &[String]) -> io::Result<WebRequest> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(WebRequest::Nothing);
        }
        if let Some(asked) = parse(&bytes, names) {
            return Ok(asked);
        }
        if bytes.len() > HEAD_MAX {
            return Ok(WebRequest::Wrong(WebResponse::text(
                "431 Request Header Fields Too Large",
                "request header too large\n",
            )));
        }
    }
}

/// Parses a request head; `None` while it is incomplete.
fn parse(bytes: &[u8], names: &[String]) -> Option<WebRequest> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let wrong = |status, why: &str| Some(WebRequest::Wrong(WebResponse::text(status, format!("{why}\n"))));
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return None,
        Err(_) => return wrong("400 Bad Request", "not an HTTP request"),
    }
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let named = hosts.next().map(|header| std::str::from_utf8(header.value));
    let (Some(Ok(named)), None) = (named, hosts.next()) else {
        return wrong("400 Bad Request", "exactly one Host header is required");
    };
    if !host::is_ours(named, HostAddresses::Any, names) {
        return wrong(
            "421 Misdirected Request",
            "unknown host name; use an IP address or localhost, or start with `serve --allow-host NAME`",
        );
    }
    let head_only = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return wrong("405 Method Not Allowed", "only GET and HEAD are supported"),
    };
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    if !path.starts_with('/') {
        return wrong("400 Bad Request", "invalid path");
    }
    Some(WebRequest::Path { path: path.to_owned(), head_only })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> Option<String> {
        match parse(request.as_bytes(), &["ops.example".to_owned()])? {
            WebRequest::Nothing => None,
            WebRequest::Wrong(answer) => Some(answer.status.to_owned()),
            WebRequest::Path { path, head_only } => Some(format!("{path} {head_only}")),
        }
    }

    #[test]
    fn a_server_is_named_by_an_address_or_by_a_name_that_was_allowed() {
        for host in [
            "127.0.0.1:9464",
            "127.0.0.1",
            "[::1]:9464",
            "[::1]",
            "localhost:1",
            "LocalHost",
            "ops.Example:80",
        ] {
            assert_eq!(
                status(&format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\n\r\n")).as_deref(),
                Some("/metrics false"),
                "{host}"
            );
        }
        for host in [
            "evil.example",
            "evil.example:9464",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "localhost:x",
            "localhost:",
            "[::1]evil",
            "[evil]",
            "a@127.0.0.1",
            "sub.ops.example",
            "",
        ] {
            assert_eq!(
                status(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).as_deref(),
                Some("421 Misdirected Request"),
                "{host}"
            );
        }
    }

    #[test]
    fn only_looking_is_answered() {
        let say = |text: &str| status(text).unwrap_or_default();
        assert_eq!(say("HEAD /?a=b HTTP/1.1\r\nHost: localhost\r\n\r\n"), "/ true");
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"] {
            assert_eq!(
                say(&format!("{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n")),
                "405 Method Not Allowed"
            );
        }
        for wrong in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
            "GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "\u{16}\u{3}\u{1}",
            "nonsense\r\n\r\n",
        ] {
            assert_eq!(say(wrong), "400 Bad Request", "{wrong}");
        }
        // An incomplete head: keep reading.
        assert_eq!(status("GET / HTTP/1.1\r\nHost: local"), None);
    }

    #[test]
    fn every_answer_says_what_may_be_done_with_it() {
        let head = head(&WebResponse::text("405 Method Not Allowed", "no\n"));
        for line in [
            "HTTP/1.1 405 Method Not Allowed\r\n",
            "\r\nContent-Length: 3\r\n",
            "\r\nAllow: GET, HEAD\r\n",
            "\r\nContent-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n",
            "\r\nX-Content-Type-Options: nosniff\r\n",
            "\r\nCache-Control: no-store\r\n",
        ] {
            assert!(head.contains(line), "{line}{head}");
        }
        assert!(head.ends_with("\r\n\r\n"));
    }
}
