//! The HTTP transport of `object_store`: our client, which also records the responses.
//!
//! The crate builds and signs requests and parses the responses, but does not tell its caller
//! what a throttled response contained: headers are dropped, bodies become messages. So its
//! pluggable transport is implemented here. Every request goes through [`Client`], with the same
//! checks of hosts and addresses as all other calls, and status, hints and the finding of the
//! profile in the body are recorded for the call of the lane. The record is in a task-local slot,
//! because the crate cannot return it with an error. Each attempt is signed after it has waited for
//! its lane, so a signature does not expire in the queue. Redirects are not followed: a signature
//! is valid for one host.

use super::cloud::renew::{CredentialFault, CredentialWatch};
use super::listing;
use crate::http::{Client, HttpFailure, ResponseBody};
use crate::profile::Profile;
use bytes::Bytes;
use http::{HeaderMap, Method, header};
use http_body_util::{BodyExt, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use tidegate_core::Code;
use tidegate_core::hint::{self, HintProfile, Hints};
use tidegate_core::signal::{Finding, Means, Network};
use url::Url;

use crate::lane::Clock;

/// The largest response that is examined, in bytes.
const LOOK_BYTES_MAX: usize = 1 << 20;
/// The largest page of a listing, in bytes.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// The codes of a credential that has expired.
pub(super) const EXPIRED: [&str; 3] = ["ExpiredToken", "ExpiredTokenException", "InvalidAuthenticationInfo"];
/// The longest error code that is quoted, in bytes.
const CODE_BYTES_MAX: usize = 48;

/// The response to a request, or its failure, as the lane needs it.
#[derive(Debug)]
pub(super) enum ObservedExchange {
    /// A response.
    Answer {
        /// The HTTP status.
        status: u16,
        /// The finding in the body, if it takes precedence over the status.
        finding: Option<Finding>,
        /// The hints in the headers.
        hints: Box<Hints>,
        /// The error code of the service, such as `SlowDown`.
        word: Option<String>,
    },
    /// No response.
    Failure(HttpFailure),
    /// No request, because there was no credential to sign it with.
    Credential(CredentialFault),
}

tokio::task_local! {
    static SEEN: Cell<Option<ObservedExchange>>;
}

/// Runs `work`; returns its result and the exchange of its last request.
pub(super) async fn watched<T>(work: impl Future<Output = T>) -> (T, Option<ObservedExchange>) {
    let inside = async {
        let out = work.await;
        (out, SEEN.with(Cell::take))
    };
    SEEN.scope(Cell::new(None), inside).await
}

pub(super) fn note(seen: ObservedExchange) {
    // Outside of a watched call nobody needs it.
    let _ = SEEN.try_with(|slot| slot.set(Some(seen)));
}

/// The HTTP transport of one object store.
#[derive(Clone)]
pub(super) struct StoreTransport {
    pub(super) client: Client,
    pub(super) profile: Arc<Profile>,
    pub(super) hints: HintProfile,
    pub(super) clock: Clock,
    /// Set if the credential can be renewed.
    pub(super) watch: Option<Arc<CredentialWatch>>,
}

impl fmt::Debug for StoreTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreTransport")
    }
}

impl HttpConnector for StoreTransport {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl StoreTransport {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpFailure> {
        let (mut parts, body) = request.into_parts();
        let url = Url::parse(&parts.uri.to_string())
            .map_err(|_| HttpFailure::Malformed("the key cannot be used in a URL".into()))?;
        for name in ["authorization", "x-amz-security-token"] {
            if let Some(value) = parts.headers.get_mut(name) {
                value.set_sensitive(true);
            }
        }
        let body = match body.as_bytes() {
            Some(whole) => whole.clone(),
            None => body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default(),
        };
        let is_list = |(name, value): (Cow<'_, str>, Cow<'_, str>)| {
            name == "list-type" || (name == "comp" && value == "list")
        };
        let lists = parts.method == Method::GET && url.query_pairs().any(is_list);
        let is_head = parts.method == Method::HEAD;
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let shown = self.watch.as_ref().and_then(|_| CredentialWatch::shown(&parts.headers));
        let answer = self.client.open(parts.method, &url, parts.headers, body).await?;
        let (head, body) = answer.into_parts();
        let status = head.status.as_u16();
        let hints = Box::new(hint::read(&head.headers, self.clock.wall(), &self.hints));
        let seen = |finding, word| ObservedExchange::Answer { status, finding, hints, word };
        if let (true, Some(watch), Some(shown)) = (head.status.is_success(), &self.watch, shown) {
            watch.accept(shown);
        }
        if head.status.is_success() && lists {
            note(seen(None, None));
            let page = Limited::new(body, PAGE_BYTES_MAX).collect().await.map_err(|_| truncated())?;
            return Ok(HttpResponse::from_parts(head, listing::readable(page.to_bytes()).into()));
        }
        if head.status.is_success() && reads {
            note(seen(None, None));
            return Ok(HttpResponse::from_parts(head, streamed(body)));
        }
        let body = match Limited::new(body, LOOK_BYTES_MAX).collect().await {
            Ok(whole) => whole.to_bytes(),
            // The status of an error is sufficient.
            Err(_) if !head.status.is_success() => Bytes::new(),
            Err(_) => return Err(truncated()),
        };
        let mut finding = self.profile.sniff(status, content_type(&head.headers), &body);
        let word = word(&body).or_else(|| header_word(&head.headers));
        // S3 gives no code to a HEAD with an expired token, only the status.
        let expired = status == 401
            || (is_head && status == 400 && word.is_none())
            || word.as_deref().is_some_and(|word| EXPIRED.contains(&word));
        if let (true, Some(watch), Some(shown)) = (expired, &self.watch, shown) {
            let means = if watch.refuse(shown) { Means::Transient } else { Means::Permanent };
            finding = Some(Finding { means, code: Code::UNAUTHORIZED });
        }
        note(seen(finding, word));
        Ok(HttpResponse::from_parts(head, body.into()))
    }
}

#[async_trait::async_trait]
impl HttpService for StoreTransport {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.send(request).await.map_err(|failure| {
            let error = HttpError::new(HttpErrorKind::Unknown, failure.clone());
            note(ObservedExchange::Failure(failure));
            error
        })
    }
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::CONTENT_TYPE)?.to_str().ok()
}

fn truncated() -> HttpFailure {
    HttpFailure::Network(Network::Truncated, "the response body is truncated".into())
}

fn streamed(body: ResponseBody) -> HttpResponseBody {
    HttpResponseBody::new(body.map_err(|e| HttpError::new_boxed(HttpErrorKind::Interrupted, e.into())))
}

/// The error code of the service. Nothing else of the body is quoted, because it may repeat the
/// signed request.
pub(super) fn word(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    plain(code)
}

/// The same in a header, as Azure sends it with an answer without a body.
fn header_word(headers: &HeaderMap) -> Option<String> {
    plain(headers.get("x-ms-error-code")?.to_str().ok()?)
}

fn plain(code: &str) -> Option<String> {
    let fits = code.len() <= CODE_BYTES_MAX && code.bytes().all(|b| b.is_ascii_alphanumeric());
    (fits && !code.is_empty()).then(|| code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn only_the_word_of_an_error_is_quoted() {
        assert_eq!(
            word(b"<Error><Code>SlowDown</Code><Message>x</Message></Error>"),
            Some("SlowDown".into())
        );
        for none in [&b""[..], b"<Code>", b"<Code>a b</Code>", b"\xff<Code>A</Code>"] {
            assert_eq!(word(none), None);
        }
    }
}
