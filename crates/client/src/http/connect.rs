//! Opens one connection: name resolution, address check, TCP and, for https, TLS.
//!
//! Why not an existing connector: addresses must be checked where they are used, including
//! literals, and an error must say which step failed. Existing connectors bypass the resolver for
//! literals and report a single error. Proxies from the environment are ignored, because the
//! address behind a proxy cannot be checked.

use super::allow::{Allow, Forbidden};
use super::failure::ConnectError;
use super::http2::PROTOCOLS;
use super::resolve::Resolve;
use super::{CertificateError, platform_tls};
use rustls::pki_types::ServerName;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Url;

/// Opens connections. Clones share the settings.
#[derive(Clone)]
pub(super) struct Connector(Arc<ConnectorInner>);

struct ConnectorInner {
    allow: Allow,
    resolver: Arc<dyn Resolve>,
    trust: TlsTrust,
    tls: OnceLock<TlsConnector>,
    /// The timeout of name resolution, TCP and TLS together.
    timeout: Duration,
}

/// Which server certificates are trusted.
pub(super) enum TlsTrust {
    /// The root certificates of the operating system, loaded on first use, because loading takes
    /// longer than many a run without TLS.
    Platform,
    /// The roots and the verifier of this configuration.
    Given(Box<rustls::ClientConfig>),
}

impl TlsTrust {
    fn connector(&self) -> Result<TlsConnector, rustls::Error> {
        let mut tls = match self {
            TlsTrust::Platform => platform_tls()?,
            TlsTrust::Given(tls) => tls.as_ref().clone(),
        };
        tls.alpn_protocols = PROTOCOLS.iter().map(|name| name.to_vec()).collect();
        Ok(TlsConnector::from(Arc::new(tls)))
    }
}

impl Connector {
    pub(super) fn new(
        allow: Allow,
        resolver: Arc<dyn Resolve>,
        trust: TlsTrust,
        timeout: Duration,
    ) -> Connector {
        Connector(Arc::new(ConnectorInner { allow, resolver, trust, tls: OnceLock::new(), timeout }))
    }

    /// The TLS connector. The error is about the certificates of the operating system.
    pub(super) fn tls(&self) -> Result<&TlsConnector, rustls::Error> {
        if let Some(tls) = self.0.tls.get() {
            return Ok(tls);
        }
        let tls = self.0.trust.connector()?;
        Ok(self.0.tls.get_or_init(|| tls))
    }

    /// Connects to the host of a URL.
    pub(super) async fn connect(&self, url: &Url) -> Result<MaybeTlsStream, ConnectError> {
        tokio::time::timeout(self.0.timeout, self.open(url)).await.unwrap_or(Err(ConnectError::Timeout))
    }

    async fn open(&self, url: &Url) -> Result<MaybeTlsStream, ConnectError> {
        let secure = url.scheme() == "https";
        let host = url.host_str().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let port = url.port().unwrap_or(if secure { 443 } else { 80 });
        let stream = self.tcp(&self.addresses(host).await?, port).await?;
        if !secure {
            return Ok(MaybeTlsStream::Plain(stream));
        }
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| ConnectError::Tls("no server name".into()))?;
        let tls = self.tls().map_err(|e| ConnectError::Tls(CertificateError(e).to_string()))?;
        let tls = tls.connect(name, stream).await.map_err(|e| ConnectError::Tls(e.to_string()))?;
        Ok(MaybeTlsStream::Tls(Box::new(tls)))
    }

    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, ConnectError> {
        let all = match host.parse::<IpAddr>() {
            Ok(literal) => vec![literal],
            Err(_) => self.0.resolver.resolve(host).await.map_err(|e| ConnectError::Dns(e.to_string()))?,
        };
        let good: Vec<IpAddr> = all.iter().copied().filter(|a| self.0.allow.address(*a).is_ok()).collect();
        match (good.is_empty(), all.first()) {
            (false, _) => Ok(good),
            (true, Some(bad)) => Err(ConnectError::Forbidden(Forbidden::Address(*bad))),
            (true, None) => Err(ConnectError::Dns("the host name has no address".into())),
        }
    }

    /// Connects to the first address that answers. Each address but the last gets a share of the
    /// timeout.
    async fn tcp(&self, addresses: &[IpAddr], port: u16) -> Result<TcpStream, ConnectError> {
        let share = self.0.timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut failed = ConnectError::Timeout;
        for address in addresses {
            match tokio::time::timeout(share, TcpStream::connect(SocketAddr::new(*address, port))).await {
                Ok(Ok(stream)) => {
                    // Avoids delays of small requests. Failing to set it only costs speed.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(e)) => failed = ConnectError::from_io(&e),
                Err(_) => failed = ConnectError::Timeout,
            }
        }
        Err(failed)
    }
}

/// A TCP connection with or without TLS.
pub(super) enum MaybeTlsStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl MaybeTlsStream {
    /// Whether HTTP/2 was negotiated.
    pub(super) fn is_http2(&self) -> bool {
        matches!(self, MaybeTlsStream::Tls(tls) if tls.get_ref().1.alpn_protocol() == Some(b"h2"))
    }
}

impl AsyncRead for MaybeTlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(s) => Pin::new(s).poll_read(cx, buf),
            MaybeTlsStream::Tls(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for MaybeTlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(s) => Pin::new(s).poll_write(cx, buf),
            MaybeTlsStream::Tls(s) => Pin::new(s).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(s) => Pin::new(s).poll_write_vectored(cx, bufs),
            MaybeTlsStream::Tls(s) => Pin::new(s).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            MaybeTlsStream::Plain(s) => s.is_write_vectored(),
            MaybeTlsStream::Tls(s) => s.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(s) => Pin::new(s).poll_flush(cx),
            MaybeTlsStream::Tls(s) => Pin::new(s).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            MaybeTlsStream::Plain(s) => Pin::new(s).poll_shutdown(cx),
            MaybeTlsStream::Tls(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}
