//! HTTP without implicit behaviour: one exchange at a time.
//!
//! The client is hyper with our own connection pool: keep-alive, and HTTP/2 if the server offers
//! it. It does nothing on its own that other clients do. Redirects are followed here, each checked
//! and with a permit of its lane; retries are decided by the core; there are no proxies and no
//! cookies. The pool sends a request again on another connection only if the first was closed
//! *before the first byte was written*, so no server can have seen it.
//!
//! | file | holds |
//! |---|---|
//! | [`request`] | a request, its credentials and its key |
//! | `allow`, [`address`] | which URLs and addresses are allowed |
//! | `resolve`, `connect` | name resolution, connections |
//! | `pool` | the pool of open connections |
//! | `http2` | connections that calls share, with the feature `http2` |
//! | `body` | reads a response body within limits |
//! | `failure` | failures without a response, as signals |
//! | `redirect` | follows redirects, drops credentials |
//! | [`path`] | values of records in the path of a request |
//! | `exchange` | sends a request through its lane |

pub mod address;
mod allow;
mod body;
mod connect;
mod exchange;
mod failure;
#[cfg(not(feature = "http2"))]
#[path = "no_http2.rs"]
mod http2;
#[cfg(feature = "http2")]
mod http2;
mod message;
pub mod path;
mod pool;
mod redirect;
pub mod request;
mod resolve;

pub use allow::{Allow, Forbidden};
pub use body::BodyLimits;
pub use exchange::{Answered, Exchange, ParsedResponse, ResponseParser, ServiceDialect, Trace};
pub use failure::HttpFailure;
pub use message::{error_in, message};
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
    /// The hosts and addresses that may be requested.
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
    /// Public hosts, 5 s to connect, 60 s idle, 64 MiB, 5 redirects.
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

/// The number of bytes of a body that are searched for a message.
const EXCERPT_BYTES_MAX: usize = 64 * 1024;

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, decompressed and complete. Empty if the body of an error could not be read.
    pub body: Bytes,
    /// The URL of the response, without credentials.
    pub url: Url,
}

impl Response {
    /// The media type with its parameters.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.headers.get(http::header::CONTENT_TYPE)?.to_str().ok()
    }

    /// The body as one line of text for messages, with secrets masked: its error message if there
    /// is one, else its beginning.
    #[must_use]
    pub fn excerpt(&self, chars_max: usize, redactor: &Redactor) -> String {
        // Mask before truncating: a truncated secret would not be recognized.
        let start = self.body.get(..self.body.len().min(EXCERPT_BYTES_MAX)).unwrap_or_default();
        let said = message(start);
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
    /// A client for these URLs that uses the root certificates of the operating system. If one of
    /// the URLs is https they are loaded now, so that an error shows before the first request;
    /// otherwise when a redirect leads to https.
    ///
    /// # Errors
    /// When the certificates of the operating system cannot be used.
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

    /// A client with another resolver or other root certificates.
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

    /// Sends once and reads the whole response. The outer error occurred before the response head,
    /// the inner one in the body.
    async fn send(
        &self,
        outgoing: OutgoingRequest<'_>,
    ) -> Result<(StatusCode, HeaderMap, Result<Bytes, HttpFailure>), HttpFailure> {
        let (head, incoming) = self.begin(outgoing).await?.into_parts();
        let body = body::read(incoming, &head.headers, &self.config.body).await;
        Ok((head.status, head.headers, body))
    }

    /// Sends once and returns the body unread. For object stores, whose requests are signed for one
    /// host and whose bodies have no size limit. Adds no headers and follows no redirects.
    #[cfg(feature = "object-store")]
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
        write!(f, "cannot load the system certificates: {}", self.0)
    }
}

impl std::error::Error for CertificateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// The root certificates of the operating system, with ring. Loaded once, because loading takes
/// longer than many a run.
///
/// # Errors
/// When the certificates of the operating system cannot be used.
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
