//! The connector and the stream that the PostgreSQL client asks for.
//!
//! The client would hand out a stream of its own where there is no TLS, past [`AuthGuard`]. So it is told
//! to begin with TLS at once (`sslnegotiation=direct`), which makes it call the connector in any case;
//! the connector asks the server whether it speaks TLS.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::auth::{AuthGuard, SeenMethod};
use super::{CertificateCheck, Encryption, TlsProblem, TlsSettings};

/// Asks a server whether it speaks TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// Wraps a connection to PostgreSQL in TLS, and looks at who asks for the password. The files are read
/// when the first connection needs them.
#[derive(Clone)]
pub struct PostgresTls {
    settings: TlsSettings,
    client: Option<Arc<ClientConfig>>,
    seen: Arc<SeenConnection>,
}

/// What became of a connection.
#[derive(Default)]
struct SeenConnection {
    is_encrypted: std::sync::atomic::AtomicBool,
    method: SeenMethod,
}

impl PostgresTls {
    pub(super) fn new(settings: &TlsSettings) -> PostgresTls {
        PostgresTls { settings: settings.clone(), client: None, seen: Arc::default() }
    }

    /// What the last connection uses, and why.
    #[must_use]
    pub fn used(&self) -> String {
        let encrypted = self.seen.is_encrypted.load(std::sync::atomic::Ordering::Relaxed);
        let asked = self.seen.method.asked().unwrap_or("nothing that is known");
        let tls = match (encrypted, self.settings.check) {
            (false, _) if self.settings.is_socket => "a socket of this machine",
            (false, _) => "no TLS",
            (true, CertificateCheck::Nothing) => "TLS without a check of the certificate",
            (true, CertificateCheck::Authority) => "TLS, the certificate is checked without the host name",
            (true, CertificateCheck::HostName) => "TLS, the certificate is checked for the host name",
        };
        format!("{tls} ({}); the server asks for {asked}", self.settings.reason())
    }

    /// Whether anybody between here and another machine may read or change what is sent.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        let encrypted = self.seen.is_encrypted.load(std::sync::atomic::Ordering::Relaxed);
        let proven = encrypted && self.settings.check != CertificateCheck::Nothing;
        !proven && !self.settings.auth.is_local
    }
}

/// A handshake to come.
pub struct PendingHandshake {
    settings: TlsSettings,
    /// None if TLS is not used.
    client: Option<Arc<ClientConfig>>,
    host: String,
    seen: Arc<SeenConnection>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for PostgresTls {
    type Stream = GuardedStream<S>;
    type TlsConnect = PendingHandshake;
    type Error = TlsProblem;

    fn make_tls_connect(&mut self, host: &str) -> Result<PendingHandshake, TlsProblem> {
        if self.settings.encryption != Encryption::Never && self.client.is_none() {
            self.client = Some(Arc::new(self.settings.client()?));
        }
        Ok(PendingHandshake {
            settings: self.settings.clone(),
            client: self.client.clone(),
            host: host.to_owned(),
            seen: self.seen.clone(),
        })
    }
}

impl PendingHandshake {
    /// Whether the server speaks TLS.
    async fn is_offered<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
    ) -> Result<bool, TlsProblem> {
        if self.settings.direct {
            return Ok(true);
        }
        let mut answer = [0];
        let asked = async {
            stream.write_all(&SSL_REQUEST).await?;
            stream.flush().await?;
            stream.read_exact(&mut answer).await
        };
        asked.await.map_err(|e| TlsProblem::Handshake(e, false))?;
        Ok(answer == *b"S")
    }

    fn guard(&self, is_encrypted: bool) -> AuthGuard {
        self.seen.is_encrypted.store(is_encrypted, std::sync::atomic::Ordering::Relaxed);
        let is_proven = is_encrypted && self.settings.check != CertificateCheck::Nothing;
        AuthGuard::new(self.settings.auth.clone(), (is_encrypted, is_proven), self.seen.method.clone())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for PendingHandshake {
    type Stream = GuardedStream<S>;
    type Error = TlsProblem;
    type Future = Pin<Box<dyn Future<Output = Result<GuardedStream<S>, TlsProblem>> + Send>>;

    fn connect(self, mut stream: S) -> Self::Future {
        Box::pin(async move {
            let Some(client) = self.client.clone() else {
                return Ok(GuardedStream { inner: InnerStream::Plain(stream), guard: self.guard(false) });
            };
            if !self.is_offered(&mut stream).await? {
                if self.settings.encryption == Encryption::Always {
                    return Err(self.settings.not_offered());
                }
                return Ok(GuardedStream { inner: InnerStream::Plain(stream), guard: self.guard(false) });
            }
            let name = ServerName::try_from(self.host.clone())
                .map_err(|_| TlsProblem::Setting("the host in the database URL is no host name".into()))?;
            let tls = TlsConnector::from(client).connect(name, stream).await;
            let tls = tls.map_err(|e| TlsProblem::Handshake(e, !self.settings.is_set))?;
            Ok(GuardedStream { inner: InnerStream::Tls(Box::new(tls)), guard: self.guard(true) })
        })
    }
}

/// A connection on which the server is looked at until it lets us in.
pub struct GuardedStream<S> {
    inner: InnerStream<S>,
    guard: AuthGuard,
}

enum InnerStream<S> {
    Plain(S),
    Tls(Box<tokio_rustls::client::TlsStream<S>>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for GuardedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for GuardedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        let before = buf.filled().len();
        ready!(match &mut own.inner {
            InnerStream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            InnerStream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        })?;
        let looked = own.guard.look(buf.filled().get(before..).unwrap_or_default());
        if looked.is_err() {
            buf.set_filled(before);
        }
        Poll::Ready(looked)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for GuardedStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().inner {
            InnerStream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            InnerStream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().inner {
            InnerStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            InnerStream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().inner {
            InnerStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            InnerStream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
