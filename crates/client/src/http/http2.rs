//! HTTP/2: one connection that many calls share, driven by a task of its own.
//!
//! Its beginning is boxed, so that it is compiled in this crate and not in each that sends requests.

use super::connect::MaybeTlsStream;
use super::failure::HttpFailure;
use super::pool::HyperRequest;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};

/// The protocols that a server may choose from, the best first.
pub(super) const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Sends requests through a shared connection. Clones share it.
#[derive(Clone)]
pub(super) struct SharedConnection(http2::SendRequest<Full<Bytes>>);

impl SharedConnection {
    pub(super) fn begin(
        io: TokioIo<MaybeTlsStream>,
    ) -> BoxFuture<'static, Result<SharedConnection, HttpFailure>> {
        Box::pin(async {
            let begun = http2::handshake(TokioExecutor::new(), io).await;
            let (send, connection) = begun.map_err(|e| HttpFailure::of_send(&e))?;
            tokio::spawn(connection);
            Ok(SharedConnection(send))
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    pub(super) async fn send(
        &mut self,
        request: HyperRequest,
    ) -> Result<http::Response<Incoming>, TrySendError<HyperRequest>> {
        self.0.try_send_request(request).await
    }
}
