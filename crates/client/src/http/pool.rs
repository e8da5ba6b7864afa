//! A pool of open connections by origin.
//!
//! Why not an existing pool: they run each connection in a task of its own, so every request and
//! response passes between two tasks. Here an HTTP/1 connection has one user at a time and is
//! driven by the task of the call; an idle one is an entry in a list. An HTTP/2 connection serves
//! many calls and has its own task.
//!
//! A call takes the most recently used connection. If it was closed before the first byte of the
//! request was written, no server has seen the request and the next connection is tried. A new
//! connection is tried only once.

use super::connect::{Connector, MaybeTlsStream};
use super::failure::HttpFailure;
use super::http2::SharedConnection;
use crate::lock::lock;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderValue, Uri, header};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use url::{Position, Url};

pub(super) type HyperRequest = http::Request<Full<Bytes>>;

/// Connections by origin. Clones share them.
#[derive(Clone)]
pub(super) struct Pool(Arc<PoolInner>);

struct PoolInner {
    connector: Connector,
    /// The time after which an idle connection is closed.
    idle_timeout: Duration,
    /// Few in number, by the origin of the normalized URL.
    origins: Mutex<Vec<(String, Arc<Origin>)>>,
    swept: AtomicBool,
}

/// One origin and its open connections.
struct Origin {
    host: Option<HeaderValue>,
    open: Mutex<OpenConnections>,
}

/// The open connections to one origin.
#[derive(Default)]
struct OpenConnections {
    /// The most recently used is last.
    idle: Vec<(Instant, Box<Http1Connection>)>,
    shared: Option<(Instant, SharedConnection)>,
}

/// An HTTP/1 connection with its request sender.
struct Http1Connection {
    send: http1::SendRequest<Full<Bytes>>,
    connection: http1::Connection<TokioIo<MaybeTlsStream>, Full<Bytes>>,
}

/// A connection to send one request through.
enum PooledSender {
    Own(Box<Http1Connection>),
    Shared(SharedConnection),
}

impl Pool {
    pub(super) fn new(connector: Connector, idle_timeout: Duration) -> Pool {
        let origins = Mutex::default();
        Pool(Arc::new(PoolInner { connector, idle_timeout, origins, swept: AtomicBool::new(false) }))
    }

    /// Sends once to the host of `url`, whatever the request says; returns with the body unread.
    pub(super) async fn send(
        &self,
        url: &Url,
        mut request: HyperRequest,
    ) -> Result<http::Response<ResponseBody>, HttpFailure> {
        let path = PathAndQuery::try_from(&url[Position::BeforePath..Position::AfterQuery])
            .map_err(|_| HttpFailure::Malformed("the URL is invalid or too long".into()))?;
        let host = &url[Position::BeforeHost..Position::AfterPort];
        let origin = self.origin(&url[..Position::BeforePath], host);
        loop {
            let taken = lock(&origin.open).take(self.0.idle_timeout);
            let (way, used) = match taken {
                Some(way) => (way, true),
                None => (self.connect(&origin, url).await?, false),
            };
            let sent = match way {
                PooledSender::Own(mut conn) => {
                    *request.uri_mut() = path.clone().into();
                    if !request.headers().contains_key(header::HOST)
                        && let Some(host) = &origin.host
                    {
                        request.headers_mut().insert(header::HOST, host.clone());
                    }
                    let answer = conn.send.try_send_request(request);
                    ConnectionLease { conn: Some(conn), origin: Arc::clone(&origin) }.bring(answer).await
                }
                PooledSender::Shared(mut send) => {
                    let uri =
                        Uri::builder().scheme(url.scheme()).authority(host).path_and_query(path.clone());
                    *request.uri_mut() =
                        uri.build().map_err(|_| HttpFailure::Malformed("the URL has no host".into()))?;
                    let sent = send.send(request).await;
                    if sent.as_ref().is_err_and(|e| e.message().is_some()) {
                        lock(&origin.open).shared = None;
                    }
                    sent.map(|answer| answer.map(|body| ResponseBody { body, lent: None }))
                }
            };
            match sent {
                Ok(answer) => return Ok(answer),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if used => request = unsent,
                    _ => return Err(HttpFailure::of_send(&error.into_error())),
                },
            }
        }
    }

    fn origin(&self, name: &str, host: &str) -> Arc<Origin> {
        let mut origins = lock(&self.0.origins);
        if let Some((_, origin)) = origins.iter().find(|(known, _)| known == name) {
            return Arc::clone(origin);
        }
        let host = HeaderValue::from_str(host).ok();
        let origin = Arc::new(Origin { host, open: Mutex::default() });
        origins.push((name.to_owned(), Arc::clone(&origin)));
        origin
    }

    async fn connect(&self, origin: &Origin, url: &Url) -> Result<PooledSender, HttpFailure> {
        let stream = self.0.connector.connect(url).await.map_err(|e| HttpFailure::of_connect(&e))?;
        if !self.0.swept.swap(true, Ordering::Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(&self.0), self.0.idle_timeout));
        }
        let (is_http2, io) = (stream.is_http2(), TokioIo::new(stream));
        if !is_http2 {
            let (send, connection) = http1::handshake(io).await.map_err(|e| HttpFailure::of_send(&e))?;
            return Ok(PooledSender::Own(Box::new(Http1Connection { send, connection })));
        }
        let send = SharedConnection::begin(io).await?;
        // If several connected at the same time, one connection is kept.
        let mut open = lock(&origin.open);
        if open.shared.as_ref().is_none_or(|(_, send)| send.is_closed()) {
            open.shared = Some((Instant::now(), send.clone()));
        }
        Ok(PooledSender::Shared(send))
    }
}

impl OpenConnections {
    fn take(&mut self, idle_timeout: Duration) -> Option<PooledSender> {
        let now = Instant::now();
        if let Some((used, send)) = &mut self.shared
            && !send.is_closed()
        {
            *used = now;
            return Some(PooledSender::Shared(send.clone()));
        }
        let (since, conn) = self.idle.pop()?;
        if now < since + idle_timeout {
            return Some(PooledSender::Own(conn));
        }
        // The remaining ones have been idle for longer.
        self.idle.clear();
        None
    }
}

/// Closes idle connections after the timeout, until the pool is dropped.
async fn sweep(pool: Weak<PoolInner>, idle_timeout: Duration) {
    loop {
        tokio::time::sleep(idle_timeout).await;
        let Some(pool) = pool.upgrade() else { return };
        let now = Instant::now();
        let is_young = |since: Instant| now < since + idle_timeout;
        lock(&pool.origins).retain(|(_, origin)| {
            let mut open = lock(&origin.open);
            open.idle.retain(|(since, _)| is_young(*since));
            open.shared.take_if(|(used, send)| send.is_closed() || !is_young(*used));
            !open.idle.is_empty() || open.shared.is_some() || Arc::strong_count(origin) > 1
        });
    }
}

/// An HTTP/1 connection leased to one call. It returns to the pool when it is ready for another
/// request; if dropped before, it is closed.
struct ConnectionLease {
    conn: Option<Box<Http1Connection>>,
    origin: Arc<Origin>,
}

impl ConnectionLease {
    /// Drives the connection until the response head has arrived.
    async fn bring(
        mut self,
        answer: impl Future<Output = Result<http::Response<Incoming>, TrySendError<HyperRequest>>>,
    ) -> Result<http::Response<ResponseBody>, TrySendError<HyperRequest>> {
        let mut answer = pin!(answer);
        let answer = poll_fn(|cx| {
            self.drive(cx);
            answer.as_mut().poll(cx)
        })
        .await?;
        Ok(answer.map(|body| ResponseBody { body, lent: Some(self) }))
    }

    /// Polls the connection.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(conn) = &mut self.conn
            && Pin::new(&mut conn.connection).poll(cx).is_ready()
        {
            // It has ended; dropping it notifies those who wait for it.
            self.conn = None;
        }
    }
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take()
            && conn.send.is_ready()
        {
            lock(&self.origin.open).idle.push((Instant::now(), conn));
        }
    }
}

/// The body of a response, not read yet.
pub(crate) struct ResponseBody {
    body: Incoming,
    /// The connection that the body arrives on, unless it has its own task.
    lent: Option<ConnectionLease>,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(lent) = &mut self.lent {
            lent.drive(cx);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
