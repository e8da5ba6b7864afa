//! HTTP, one exchange at a time, with nothing decided behind our back.
//!
//! The client is hyper with a pool of our own: keep-alive, HTTP/2 where the server offers it. What
//! usual clients do by themselves is done here in the open or not at all: redirects are followed by
//! us, each hop judged and paid for with a permit of its lane; retries are the core's; proxies and
//! cookies do not exist. The pool may pass a request to another connection when the one it took
//! turns out closed *before the first byte was written*; no server has seen anything then.
//!
//! | file | holds |
//! |---|---|
//! | [`request`] | what is asked, its credentials and its key |
//! | `allow`, [`address`] | what may be asked and connected to |
//! | `resolve`, `connect` | names to addresses, addresses to connections |
//! | `pool` | connections kept open |
//! | `body` | reading an answer within limits |
//! | `failure` | what can go wrong, as signals |
//! | `redirect` | where the next hop goes and what it leaves behind |
//! | `exchange` | a request through its lane to an outcome |

pub mod address;
mod allow;
mod body;
mod connect;
mod exchange;
mod failure;
mod message;
mod pool;
mod redirect;
pub mod request;
mod resolve;

pub use allow::{Allow, Forbidden};
pub use body::BodyLimits;
pub use exchange::{Answered, Exchange, ParsedResponse, ResponseParser, ServiceDialect, Trace};
pub use failure::HttpFailure;
pub(crate) use pool::ResponseBody;
pub use request::{Credential, CredentialLocation, Request};
pub use resolve::{Resolve, SystemResolver};

use crate::secret::Redactor;
use bytes::Bytes;
use connect::{Connector, TlsTrust};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::Full;
use pool::Pool;
use rustls_platform_verifier::BuilderVerifierExt;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use url::Url;

/// The settings of a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The hosts and addresses that may be asked.
    pub allow: Allow,
    /// The timeout of name resolution, connection and TLS handshake together.
    pub connect_timeout: Duration,
    /// The time after which an idle connection is closed.
    pub idle_timeout: Duration,
    /// The limits of the body of a response.
    pub body: BodyLimits,
    /// The most redirects followed in one attempt.
    pub redirects_max: u32,
    /// The User-Agent of requests that name no other.
    pub user_agent: HeaderValue,
}

impl Default for ClientConfig {
    /// Public hosts, 5 s to connect, 60 s idle, 64 MiB, 5 hops.
    fn default() -> ClientConfig {
        ClientConfig {
            allow: Allow::public(),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            body: BodyLimits::default(),
            redirects_max: 5,
            user_agent: HeaderValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION"))),
        }
    }
}

/// Of a body, this much is looked at for a message.
const EXCERPT_BYTES_MAX: usize = 64 * 1024;

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, decompressed and complete. Empty if the body of an error could not be read.
    pub body: Bytes,
    /// The URL that gave it, without credentials.
    pub url: Url,
}

impl Response {
    /// The media type with its parameters.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.headers.get(http::header::CONTENT_TYPE)?.to_str().ok()
    }

    /// What the body says, as one line of text for messages, secrets masked: the message of an
    /// error, if it has one, or else its beginning.
    #[must_use]
    pub fn excerpt(&self, chars_max: usize, redactor: &Redactor) -> String {
        // Masked before it is cut: half a secret would not be found.
        let start = self.body.get(..self.body.len().min(EXCERPT_BYTES_MAX)).unwrap_or_default();
        let said = message::message(start);
        let masked = redactor.bytes(said.as_deref().map_or(start, str::as_bytes));
        let text = String::from_utf8_lossy(masked.get(..masked.len().min(chars_max * 4)).unwrap_or_default());
        let mut out: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((end, _)) = out.char_indices().nth(chars_max) {
            out.truncate(end);
            out.push('…');
        }
        out
    }
}

/// A request as it is sent, credentials included.
struct OutgoingRequest<'a> {
    method: Method,
    url: Cow<'a, Url>,
    headers: HeaderMap,
    body: Bytes,
}

/// An HTTP client. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    pool: Pool,
    config: Arc<ClientConfig>,
}

impl Client {
    /// A client for these URLs that trusts what the operating system trusts. If one of them needs
    /// its certificates, they are looked at now, so that nothing is asked in vain; else when a redirect
    /// leads to where they are needed.
    ///
    /// # Errors
    /// The operating system's certificates cannot be used.
    pub fn new<'a>(
        config: ClientConfig,
        urls: impl IntoIterator<Item = &'a Url>,
    ) -> Result<Client, CertificateError> {
        let connector = Connector::new(
            config.allow.clone(),
            Arc::new(SystemResolver),
            TlsTrust::Platform,
            config.connect_timeout,
        );
        if urls.into_iter().any(|url| url.scheme() == "https") {
            connector.tls().map_err(CertificateError)?;
        }
        Ok(Client::over(connector, config))
    }

    /// A client with another resolver or other trust.
    #[must_use]
    pub fn with(config: ClientConfig, resolver: Arc<dyn Resolve>, tls: rustls::ClientConfig) -> Client {
        let trust = TlsTrust::Given(Box::new(tls));
        let connector = Connector::new(config.allow.clone(), resolver, trust, config.connect_timeout);
        Client::over(connector, config)
    }

    fn over(connector: Connector, config: ClientConfig) -> Client {
        let pool = Pool::new(connector, config.idle_timeout);
        Client { pool, config: Arc::new(config) }
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Sends once and reads the whole answer. The outer failure is one before the answer's head,
    /// the inner one is of its body.
    async fn send(
        &self,
        outgoing: OutgoingRequest<'_>,
    ) -> Result<(StatusCode, HeaderMap, Result<Bytes, HttpFailure>), HttpFailure> {
        let (head, incoming) = self.begin(outgoing).await?.into_parts();
        let body = body::read(incoming, &head.headers, &self.config.body).await;
        Ok((head.status, head.headers, body))
    }

    /// Sends once and leaves the body to the caller. For the object stores, whose requests are
    /// signed for one host and whose bodies have no limit; nothing is added and no redirect followed.
    #[cfg(feature = "store")]
    pub(crate) async fn open(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<http::Response<ResponseBody>, HttpFailure> {
        self.config.allow.url(url)?;
        self.begin(OutgoingRequest { method, url: Cow::Borrowed(url), headers, body }).await
    }

    async fn begin(
        &self,
        outgoing: OutgoingRequest<'_>,
    ) -> Result<http::Response<ResponseBody>, HttpFailure> {
        let mut request = http::Request::new(Full::new(outgoing.body));
        *request.method_mut() = outgoing.method;
        *request.headers_mut() = outgoing.headers;
        self.pool.send(&outgoing.url, request).await
    }
}

/// The certificates of the operating system cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateError(rustls::Error);

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the system's certificates cannot be used: {}", self.0)
    }
}

impl std::error::Error for CertificateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// The trust of the operating system, by ring. It is read once: the certificates are more work than
/// many a run.
///
/// # Errors
/// The operating system's certificates cannot be used.
pub fn platform_tls() -> Result<rustls::ClientConfig, rustls::Error> {
    static TLS: OnceLock<rustls::ClientConfig> = OnceLock::new();
    if let Some(tls) = TLS.get() {
        return Ok(tls.clone());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth();
    Ok(TLS.get_or_init(|| tls).clone())
}
