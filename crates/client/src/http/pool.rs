//! Connections, kept open by origin.
//!
//! Why not a ready pool: they give each connection a task of its own, so that an answer wakes the
//! connection, which wakes the call, and a request goes the same way back. Here a connection of
//! HTTP/1 has one user at a time and is driven by it, in the task of the call; an idle one lies in
//! a list and costs nothing. One of HTTP/2 serves many calls at once and does have its task.
//!
//! A call takes the connection that was used last. If that turns out closed before the first byte
//! of the request was written, no server has seen anything and the next one is tried; a new
//! connection is not tried twice.

use super::connect::{Connector, Stream};
use super::failure::Failure;
use crate::lock::lock;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderValue, Uri, header};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use url::{Position, Url};

type Request = http::Request<Full<Bytes>>;

/// Connections by origin. Clones share them.
#[derive(Clone)]
pub(super) struct Pool(Arc<Shared>);

struct Shared {
    connector: Connector,
    idle_timeout: Duration,
    /// Of one or a few origins, as the URL spells them: all spellings of a host are one there.
    origins: Mutex<Vec<(String, Arc<Origin>)>>,
    swept: AtomicBool,
}

/// One origin, as requests name it, and what is open to it.
struct Origin {
    host: Option<HeaderValue>,
    open: Mutex<Open>,
}

/// What is open to one origin.
#[derive(Default)]
struct Open {
    /// The last one was used last.
    idle: Vec<(Instant, Box<Line>)>,
    shared: Option<(Instant, http2::SendRequest<Full<Bytes>>)>,
}

/// A connection of HTTP/1 and the way into it.
struct Line {
    send: http1::SendRequest<Full<Bytes>>,
    connection: http1::Connection<TokioIo<Stream>, Full<Bytes>>,
}

enum Way {
    Own(Box<Line>),
    Shared(http2::SendRequest<Full<Bytes>>),
}

impl Pool {
    pub(super) fn new(connector: Connector, idle_timeout: Duration) -> Pool {
        let origins = Mutex::default();
        Pool(Arc::new(Shared { connector, idle_timeout, origins, swept: AtomicBool::new(false) }))
    }

    /// Sends once to where the URL says, whatever the request says; the body is still to come.
    pub(super) async fn send(
        &self,
        url: &Url,
        mut request: Request,
    ) -> Result<http::Response<Arriving>, Failure> {
        let path = PathAndQuery::try_from(&url[Position::BeforePath..Position::AfterQuery])
            .map_err(|_| Failure::Malformed("the URL is too long or no URL".into()))?;
        let host = &url[Position::BeforeHost..Position::AfterPort];
        let origin = self.origin(&url[..Position::BeforePath], host);
        loop {
            let taken = lock(&origin.open).take(self.0.idle_timeout);
            let (way, used) = match taken {
                Some(way) => (way, true),
                None => (self.connect(&origin, url).await?, false),
            };
            let sent = match way {
                Way::Own(mut line) => {
                    *request.uri_mut() = path.clone().into();
                    if !request.headers().contains_key(header::HOST)
                        && let Some(host) = &origin.host
                    {
                        request.headers_mut().insert(header::HOST, host.clone());
                    }
                    let answer = line.send.try_send_request(request);
                    Lent { line: Some(line), origin: Arc::clone(&origin) }.bring(answer).await
                }
                Way::Shared(mut send) => {
                    let uri =
                        Uri::builder().scheme(url.scheme()).authority(host).path_and_query(path.clone());
                    *request.uri_mut() =
                        uri.build().map_err(|_| Failure::Malformed("the URL names no host".into()))?;
                    let sent = send.try_send_request(request).await;
                    if sent.as_ref().is_err_and(|e| e.message().is_some()) {
                        lock(&origin.open).shared = None;
                    }
                    sent.map(|answer| answer.map(|body| Arriving { body, lent: None }))
                }
            };
            match sent {
                Ok(answer) => return Ok(answer),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if used => request = unsent,
                    _ => return Err(Failure::of_send(&error.into_error())),
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

    async fn connect(&self, origin: &Origin, url: &Url) -> Result<Way, Failure> {
        let stream = self.0.connector.connect(url).await.map_err(|e| Failure::of_connect(&e))?;
        if !self.0.swept.swap(true, Ordering::Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(&self.0), self.0.idle_timeout));
        }
        let (is_http2, io) = (stream.is_http2(), TokioIo::new(stream));
        let failed = |e: hyper::Error| Failure::of_send(&e);
        if !is_http2 {
            let (send, connection) = http1::handshake(io).await.map_err(failed)?;
            return Ok(Way::Own(Box::new(Line { send, connection })));
        }
        let (send, connection) = http2::handshake(TokioExecutor::new(), io).await.map_err(failed)?;
        tokio::spawn(connection);
        // Of several that connected at once one is kept.
        let mut open = lock(&origin.open);
        if open.shared.as_ref().is_none_or(|(_, send)| send.is_closed()) {
            open.shared = Some((Instant::now(), send.clone()));
        }
        Ok(Way::Shared(send))
    }
}

impl Open {
    fn take(&mut self, idle_timeout: Duration) -> Option<Way> {
        let now = Instant::now();
        if let Some((used, send)) = &mut self.shared
            && !send.is_closed()
        {
            *used = now;
            return Some(Way::Shared(send.clone()));
        }
        let (since, line) = self.idle.pop()?;
        if now < since + idle_timeout {
            return Some(Way::Own(line));
        }
        // The others have been idle for longer.
        self.idle.clear();
        None
    }
}

/// Closes what has not been used for too long, as long as the pool lives.
async fn sweep(pool: Weak<Shared>, idle_timeout: Duration) {
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

/// A connection in the hands of one call. It goes back to the pool when it is free for another
/// request, and is closed when it is dropped before.
struct Lent {
    line: Option<Box<Line>>,
    origin: Arc<Origin>,
}

impl Lent {
    /// Drives the connection until the head of the answer is there.
    async fn bring(
        mut self,
        answer: impl Future<Output = Result<http::Response<Incoming>, TrySendError<Request>>>,
    ) -> Result<http::Response<Arriving>, TrySendError<Request>> {
        let mut answer = pin!(answer);
        let answer = poll_fn(|cx| {
            self.drive(cx);
            answer.as_mut().poll(cx)
        })
        .await?;
        Ok(answer.map(|body| Arriving { body, lent: Some(self) }))
    }

    /// Lets the connection read and write what it can.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(line) = &mut self.line
            && Pin::new(&mut line.connection).poll(cx).is_ready()
        {
            // It has ended; by its drop those who wait for something out of it are told so.
            self.line = None;
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(line) = self.line.take()
            && line.send.is_ready()
        {
            lock(&self.origin.open).idle.push((Instant::now(), line));
        }
    }
}

/// A body that is on its way.
pub(crate) struct Arriving {
    body: Incoming,
    /// What it comes through, unless that has a task of its own.
    lent: Option<Lent>,
}

impl Body for Arriving {
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
