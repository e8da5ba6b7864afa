//! Services that issue credentials: one request, and what its answer means.

use super::renew::CredentialFault;
use super::{OpenError, client};
use crate::http::{Client, HttpFailure};
use crate::lane::Clock;
use crate::secret::issued;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;
use tidegate_core::hint::date;
use tidegate_core::signal::{Finding, Means};
use tidegate_core::{Code, Wall};
use url::Url;

/// The largest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// The longest wait for an answer. These services are near, or fast.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A service that issues credentials.
#[derive(Clone)]
pub(super) struct CredentialService {
    client: Client,
    pub(super) url: Url,
    /// What it is, for messages.
    what: &'static str,
    pub(super) clock: Clock,
}

/// A token of OAuth 2, as Azure and Google issue it.
#[derive(Deserialize)]
pub(super) struct IssuedToken {
    pub(super) access_token: String,
    /// Seconds until it expires; Azure's instances say it as text.
    expires_in: serde_json::Value,
}

impl IssuedToken {
    pub(super) fn expires(&self, now: Wall) -> Option<Wall> {
        let seconds = self.expires_in.as_i64().or_else(|| self.expires_in.as_str()?.parse().ok())?;
        Some(Wall::from_millis(now.millis().saturating_add(seconds.saturating_mul(1000))))
    }
}

impl CredentialService {
    /// The service at `url`, which may be at a private address only if the URL says so by itself.
    pub(super) fn new(url: Url, what: &'static str, clock: Clock) -> Result<CredentialService, OpenError> {
        let client = client(&url, false)?;
        Ok(CredentialService { client, url, what, clock })
    }

    /// Sends one request; only a 200 is an answer.
    pub(super) async fn ask(
        &self,
        method: Method,
        url: &Url,
        headers: &[(&'static str, &str)],
        body: String,
    ) -> Result<Bytes, CredentialFault> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| self.permanent(format!("the value of {name} cannot be a header")))?;
            value.set_sensitive(true);
            map.insert(HeaderName::from_static(name), value);
        }
        if !body.is_empty() {
            let form = HeaderValue::from_static("application/x-www-form-urlencoded");
            map.insert(http::header::CONTENT_TYPE, form);
        }
        let exchange = async {
            let (head, body) = self.client.open(method, url, map, body.into()).await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            Ok((head.status, body.map(http_body_util::Collected::to_bytes).ok()))
        };
        match tokio::time::timeout(TIMEOUT, exchange).await {
            Ok(Ok((StatusCode::OK, Some(body)))) => Ok(body),
            Ok(Ok((status, body))) => Err(self.refused(status, &body.unwrap_or_default())),
            Ok(Err(failure)) => Err(self.failed(&failure)),
            Err(_) => Err(self.transient(Code::TIMEOUT, "no answer".to_owned())),
        }
    }

    /// Reads an answer in JSON.
    pub(super) fn read<'a, T: Deserialize<'a>>(&self, body: &'a Bytes) -> Result<T, CredentialFault> {
        // What is wrong is not quoted: the answer is a secret.
        serde_json::from_slice(body)
            .map_err(|_| self.transient(Code::UNEXPECTED_BODY, "the answer is not a credential".to_owned()))
    }

    /// The token in a file, which its owner replaces from time to time.
    pub(super) fn token_file(&self, path: &str) -> Result<String, CredentialFault> {
        let text = std::fs::read_to_string(Path::new(path))
            .map_err(|e| self.permanent(format!("cannot read the token file {path}: {e}")))?;
        let token = text.trim();
        if token.is_empty() {
            return Err(self.permanent(format!("the token file {path} is empty")));
        }
        Ok(issued(token.to_owned()).reveal().to_owned())
    }

    /// A date in an answer.
    pub(super) fn date(&self, text: &str) -> Option<Wall> {
        date::parse(text.as_bytes(), self.clock.wall())
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> CredentialFault {
        let code = super::super::wire::word(body).map(|word| format!(" {word}")).unwrap_or_default();
        let words = format!("{}{code}", status.as_u16());
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
                self.transient(Code::RATE_LIMITED, words)
            }
            status if status.is_server_error() => self.transient(Code::SERVICE_UNAVAILABLE, words),
            _ => self.permanent(words),
        }
    }

    fn failed(&self, failure: &HttpFailure) -> CredentialFault {
        match failure {
            HttpFailure::Network(..) | HttpFailure::Malformed(_) => {
                self.transient(Code::SERVICE_UNAVAILABLE, failure.to_string())
            }
            _ => self.permanent(failure.to_string()),
        }
    }

    pub(super) fn permanent(&self, words: String) -> CredentialFault {
        self.fault(Means::Permanent, Code::UNAUTHORIZED, &words)
    }

    fn transient(&self, code: Code, words: String) -> CredentialFault {
        self.fault(Means::Transient, code, &words)
    }

    fn fault(&self, means: Means, code: Code, words: &str) -> CredentialFault {
        let host = self.url.host_str().unwrap_or_default();
        let words = format!("credentials of {} at {host}: {words}", self.what);
        CredentialFault { finding: Finding { means, code }, words }
    }
}
