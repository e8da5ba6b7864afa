//! The connector and the stream that the PostgreSQL client asks for.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::{TlsProblem, TlsSettings};

/// Wraps a connection to PostgreSQL in TLS. The files are read when the first connection needs
/// them.
#[derive(Clone)]
pub struct PostgresTls {
    settings: TlsSettings,
    used: bool,
    client: Option<Arc<ClientConfig>>,
}

impl PostgresTls {
    /// For connections of this mode.
    #[must_use]
    pub fn new(settings: &TlsSettings, mode: SslMode) -> PostgresTls {
        PostgresTls { settings: settings.clone(), used: mode != SslMode::Disable, client: None }
    }
}

/// A handshake to come.
pub struct PendingHandshake {
    /// None if TLS is not used.
    client: Option<Arc<ClientConfig>>,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for PostgresTls {
    type Stream = EncryptedStream<S>;
    type TlsConnect = PendingHandshake;
    type Error = TlsProblem;

    fn make_tls_connect(&mut self, host: &str) -> Result<PendingHandshake, TlsProblem> {
        if self.used && self.client.is_none() {
            self.client = Some(Arc::new(self.settings.client()?));
        }
        Ok(PendingHandshake { client: self.client.clone(), host: host.to_owned() })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for PendingHandshake {
    type Stream = EncryptedStream<S>;
    type Error = TlsProblem;
    type Future = Pin<Box<dyn Future<Output = Result<EncryptedStream<S>, TlsProblem>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let client = self.client.ok_or_else(|| TlsProblem::Setting("TLS is disabled".into()))?;
            let name = ServerName::try_from(self.host)
                .map_err(|_| TlsProblem::Setting("the host in the database URL is no host name".into()))?;
            let tls = TlsConnector::from(client).connect(name, stream).await;
            tls.map(EncryptedStream).map_err(TlsProblem::Handshake)
        })
    }
}

/// A connection with TLS.
pub struct EncryptedStream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for EncryptedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}
