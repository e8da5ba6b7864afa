//! Stands in for HTTP/2 in a build without it: it is not offered to servers.

use super::connect::MaybeTlsStream;
use super::failure::HttpFailure;
use super::pool::HyperRequest;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;

/// The protocols that a server may choose from.
pub(super) const PROTOCOLS: &[&[u8]] = &[b"http/1.1"];

/// A shared connection; it has no values.
#[derive(Clone)]
pub(super) struct SharedConnection(Infallible);

impl SharedConnection {
    pub(super) async fn begin(_: TokioIo<MaybeTlsStream>) -> Result<SharedConnection, HttpFailure> {
        Err(HttpFailure::Malformed("the server speaks HTTP/2, which was not offered".into()))
    }

    pub(super) fn is_closed(&self) -> bool {
        match self.0 {}
    }

    pub(super) async fn send(
        &mut self,
        _: HyperRequest,
    ) -> Result<http::Response<Incoming>, TrySendError<HyperRequest>> {
        match self.0 {}
    }
}
