//! The HTTP transport of `object_store`: our client, which also records the responses.
//!
//! The crate builds and signs S3 requests and parses the responses, but does not tell its caller
//! what a throttled response contained: headers are dropped, bodies become messages. So its
//! pluggable transport is implemented here. Every request goes through [`Client`], with the same
//! checks of hosts and addresses as all other calls, and status, hints and the finding of the
//! profile in the body are recorded for the call of the lane. The record is in a task-local slot,
//! because the crate cannot return it with an error. Each attempt is signed after it has waited for
//! its lane, so a signature does not expire in the queue. Redirects are not followed: a signature
//! is valid for one host.

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
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use tidegate_core::hint::{self, HintProfile, Hints};
use tidegate_core::signal::{Finding, Network};
use url::Url;

use crate::lane::Clock;

/// The largest response that is examined, in bytes.
const LOOK_BYTES_MAX: usize = 1 << 20;
/// The largest page of a listing, in bytes.
const PAGE_BYTES_MAX: usize = 64 << 20;
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

fn note(seen: ObservedExchange) {
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
        let lists = url.query_pairs().any(|(name, _)| name == "list-type");
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let answer = self.client.open(parts.method, &url, parts.headers, body).await?;
        let (head, body) = answer.into_parts();
        let status = head.status.as_u16();
        let hints = Box::new(hint::read(&head.headers, self.clock.wall(), &self.hints));
        let seen = |finding, word| ObservedExchange::Answer { status, finding, hints, word };
        if head.status.is_success() && reads {
            note(seen(None, None));
            let most = if lists { PAGE_BYTES_MAX } else { usize::MAX };
            return Ok(HttpResponse::from_parts(head, streamed(body, most)));
        }
        let body = match Limited::new(body, LOOK_BYTES_MAX).collect().await {
            Ok(whole) => whole.to_bytes(),
            // The status of an error is sufficient.
            Err(_) if !head.status.is_success() => Bytes::new(),
            Err(_) => {
                return Err(HttpFailure::Network(
                    Network::Truncated,
                    "the response body is truncated".into(),
                ));
            }
        };
        let finding = self.profile.sniff(status, content_type(&head.headers), &body);
        note(seen(finding, word(&body)));
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

fn streamed(body: ResponseBody, most: usize) -> HttpResponseBody {
    let broken =
        |e: Box<dyn std::error::Error + Send + Sync>| HttpError::new_boxed(HttpErrorKind::Interrupted, e);
    HttpResponseBody::new(Limited::new(body, most).map_err(broken))
}

/// The error code of the service. Nothing else of the body is quoted, because it may repeat the
/// signed request.
fn word(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let fits = code.len() <= CODE_BYTES_MAX && code.bytes().all(|b| b.is_ascii_alphanumeric());
    fits.then(|| code.to_owned())
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
