//! Ranges of an object over HTTP.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tidegate_core::content::{self, ContentKind};
use tidegate_core::signal::{Finding, Means};
use tidegate_core::{Code, Rng, VerdictKind, quote};
use tidegate_raster::{RasterCause, RasterError, SidecarName};
use url::Url;

use super::calls::{RasterCalls, RasterTrouble};
use super::remote::{ObjectVersion, RangeReader};
use crate::call;
use crate::http::{Credential, Exchange, Request, Response, ServiceDialect};

/// Characters of what a service said that are quoted.
const SAID_CHARS_MAX: usize = 200;

/// A way to one object on a web server.
#[derive(Clone)]
pub(super) struct WebRanges {
    pub(super) exchange: Exchange<()>,
    pub(super) url: Url,
    /// Sent along; `url` is where they belong.
    pub(super) credentials: Vec<Credential>,
    pub(super) patience: Duration,
    pub(super) seed: u64,
    /// The number of calls so far, for the jitter.
    pub(super) asked: Arc<AtomicU64>,
    pub(super) calls: Arc<RasterCalls>,
}

/// What `Content-Range: bytes 0-99/1234` says: the range and the size.
fn content_range(headers: &HeaderMap) -> Option<(Range<u64>, u64)> {
    let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = text.trim().strip_prefix("bytes")?.trim().split_once('/')?;
    let (from, to) = range.split_once('-')?;
    let (from, to): (u64, u64) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    Some((from..to.checked_add(1)?, total.trim().parse().ok()?))
}

fn etag(headers: &HeaderMap) -> Option<String> {
    Some(headers.get(header::ETAG)?.to_str().ok()?.to_owned())
}

/// What a body means that is a page or an exception; `None` for anything else, such as a file of XML beside
/// a raster. An exception with a code is about the request; without one it is trouble of the service.
fn error_document(body: &[u8]) -> Option<Finding> {
    match content::exception(body) {
        Some(report) => {
            let means = if report.code.is_some() { Means::Permanent } else { Means::Transient };
            Some(Finding { means, code: Code::SERVICE_EXCEPTION })
        }
        None if ContentKind::of(body) == ContentKind::Html => {
            Some(Finding { means: Means::Transient, code: Code::UNEXPECTED_BODY })
        }
        None => None,
    }
}

/// What is wrong with an answer, if anything.
fn flaw(response: &Response, wanted: &Range<u64>, of: Option<&ObjectVersion>) -> Option<Finding> {
    let wrong = |means, code| Some(Finding { means, code });
    if !response.status.is_success() {
        return None;
    }
    // What a service says in place of a raster, whatever it calls it.
    if wanted.start == 0
        && let Some(finding) = error_document(&response.body)
    {
        return Some(finding);
    }
    if response.status != StatusCode::PARTIAL_CONTENT
        || response.headers.contains_key(header::CONTENT_ENCODING)
    {
        return wrong(Means::Transient, Code::UNEXPECTED_STATUS);
    }
    let Some((range, size)) = content_range(&response.headers) else {
        return wrong(Means::Transient, Code::UNEXPECTED_BODY);
    };
    // A file may be shorter than what was asked for before its size was known.
    let wanted = wanted.start..wanted.end.min(of.map_or(size, |of| of.size));
    if range != wanted || response.body.len() as u64 != wanted.end - wanted.start {
        return wrong(Means::Transient, Code::UNEXPECTED_BODY);
    }
    let of = of?;
    if size != of.size || etag(&response.headers) != of.etag {
        return wrong(Means::Permanent, Code::CONFLICT);
    }
    None
}

impl WebRanges {
    /// The address without its query, which may hold a signature.
    pub(super) fn shown(&self) -> String {
        super::shown(self.url.as_str())
    }

    async fn ask(&self, wanted: Range<u64>, of: Option<&ObjectVersion>) -> Result<Response, RasterError> {
        let mut request = Request::get(self.url.clone());
        request.credentials.clone_from(&self.credentials);
        let range = format!("bytes={}-{}", wanted.start, wanted.end.saturating_sub(1));
        let mut insert = |name, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                request.headers.insert(name, value);
            }
        };
        insert(header::RANGE, &range);
        insert(header::ACCEPT_ENCODING, "identity");
        // A weak ETag cannot be asked for; it is compared.
        if let Some(tag) = of.and_then(|of| of.etag.as_deref()).filter(|tag| !tag.starts_with("W/")) {
            insert(header::IF_MATCH, tag);
        }
        let (expected, version) = (wanted.clone(), of.cloned());
        let mut exchange = self.exchange.clone();
        exchange.dialect = ServiceDialect {
            read: Arc::new(move |response: &Response| (flaw(response, &expected, version.as_ref()), ())),
            ..exchange.dialect
        };
        let lane = exchange.lane(&request);
        let asking = call::patient(&lane, self.patience, |_| async {
            let chance = Rng::fork(self.seed, self.asked.fetch_add(1, Ordering::Relaxed));
            let outcome = exchange.call_in(&lane, &request, chance).await;
            self.calls.ended(&lane, &exchange.policy, &self.shown(), &outcome);
            outcome
        });
        let place = format!("bytes {} to {}", wanted.start, wanted.end);
        let outcome = asking.await.map_err(|later| {
            let message = format!("{place}: {}", later.said);
            let error = RasterError::new(RasterCause::Transient(later.code), message);
            self.calls.note(RasterTrouble::Later(later));
            error
        })?;
        let (accepted, verdict) = (outcome.is_accepted(), outcome.verdict);
        if !accepted {
            self.calls.note_failed(&lane, &self.shown(), &outcome);
        }
        let (code, word, attempts) = (verdict.code, outcome.word(), outcome.attempts());
        let mut said = String::new();
        match outcome.value {
            Some(Ok(answer)) if accepted && answer.response.status == StatusCode::PARTIAL_CONTENT => {
                return Ok(answer.response);
            }
            Some(Ok(answer)) if code == Code::SERVICE_EXCEPTION => {
                said = quote::said(&answer.response.excerpt(SAID_CHARS_MAX, &self.exchange.redactor));
            }
            _ => {}
        }
        let cause = match (verdict.kind, code) {
            (_, Code::CONFLICT) => RasterCause::Changed,
            (VerdictKind::Permanent | VerdictKind::NoMatch, _) => RasterCause::Refused(code),
            _ => RasterCause::Transient(code),
        };
        let why = match cause {
            RasterCause::Changed => "the object was replaced while it was read".to_owned(),
            _ if code == Code::UNEXPECTED_STATUS => {
                "the server sends whole files where a range is asked for (status 200 and not 206); download the file first"
                    .to_owned()
            }
            _ if !said.is_empty() => format!("the service said {said}"),
            _ => word,
        };
        Err(RasterError::new(cause, format!("{place}: {why}, {attempts} attempts ({code})")))
    }
}

#[async_trait]
impl RangeReader for WebRanges {
    async fn first(&self, len: u64) -> Result<(Bytes, ObjectVersion), RasterError> {
        let response = self.ask(0..len, None).await?;
        let Some((_, size)) = content_range(&response.headers) else {
            return Err(RasterError::new(RasterCause::Refused(Code::UNEXPECTED_BODY), "no Content-Range"));
        };
        Ok((response.body, ObjectVersion { size, etag: etag(&response.headers) }))
    }

    async fn range(&self, range: Range<u64>, of: &ObjectVersion) -> Result<Bytes, RasterError> {
        Ok(self.ask(range, Some(of)).await?.body)
    }

    fn beside(&self, suffix: SidecarName<'_>) -> Option<(String, Arc<dyn RangeReader>)> {
        // An address with a query, such as a signed one, names one object and no other.
        if self.url.query().is_some() {
            return None;
        }
        let path = super::beside(self.url.path(), suffix);
        let mut url = self.url.clone();
        url.set_path(&path);
        Some((url.to_string(), Arc::new(WebRanges { url, ..self.clone() })))
    }
}
