//! A request through its lane to an outcome.

use super::failure::Failure;
use super::redirect::{Hop, is_redirect};
use super::request::Request;
use super::{Client, Response};
use crate::call::{self, Outcome, Reply, Sender, Sent, Try};
use crate::lane::{Lane, LaneKey, Lanes};
use crate::secret::Redactor;
use bytes::Bytes;
use std::sync::Arc;
use tidegate_core::call::{Call, CallPolicy};
use tidegate_core::classify::Classifier;
use tidegate_core::hint::{self, HintProfile, Hints};
use tidegate_core::signal::{Finding, Signal};
use tidegate_core::{Chance, Verdict};
use tracing::{Instrument, debug_span, field};

/// Reads an answer: what its status does not say (an error in a 200, an empty result), and what
/// the caller wants of it, so that a body is parsed once.
pub type Read<T> = dyn Fn(&Response) -> (Option<Finding>, T) + Send + Sync;

/// How one service speaks.
pub struct Dialect<T = ()> {
    /// What its statuses mean.
    pub classifier: Classifier,
    /// How it bends the headers.
    pub hints: HintProfile,
    /// What its bodies mean.
    pub read: Arc<Read<T>>,
}

impl<T> Clone for Dialect<T> {
    fn clone(&self) -> Dialect<T> {
        Dialect { classifier: self.classifier, hints: self.hints.clone(), read: self.read.clone() }
    }
}

impl Default for Dialect {
    /// Plain HTTP: a body means nothing.
    fn default() -> Dialect {
        Dialect {
            classifier: Classifier::default(),
            hints: HintProfile::default(),
            read: Arc::new(|_| (None, ())),
        }
    }
}

/// An answer, whatever its status, and what was read in it.
#[derive(Clone, Debug)]
pub struct Answer<T = ()> {
    /// As it came.
    pub response: Response,
    /// As it was read.
    pub read: T,
}

/// What the last attempt brought: an answer, or why there is none.
pub type Answered<T = ()> = Result<Answer<T>, Failure>;

/// Takes requests to one service. Clones share connections and lanes.
pub struct Exchange<T = ()> {
    /// Connections.
    pub client: Client,
    /// Lanes.
    pub lanes: Lanes,
    /// How the service speaks.
    pub dialect: Dialect<T>,
    /// How often and how long to try.
    pub policy: CallPolicy,
    /// For the spans of attempts.
    pub redactor: Arc<Redactor>,
}

impl<T> Clone for Exchange<T> {
    fn clone(&self) -> Exchange<T> {
        Exchange {
            client: self.client.clone(),
            lanes: self.lanes.clone(),
            dialect: self.dialect.clone(),
            policy: self.policy,
            redactor: self.redactor.clone(),
        }
    }
}

impl<T: Send> Exchange<T> {
    /// The lane of a request.
    #[must_use]
    pub fn lane(&self, request: &Request) -> Lane {
        self.lanes.get(&LaneKey::of_url(&request.url, &request.credential_name()))
    }

    /// Takes one request to its end.
    pub async fn call<C: Chance>(&self, request: &Request, chance: C) -> Outcome<Answered<T>> {
        self.call_in(&self.lane(request), request, chance).await
    }

    /// The same for a caller that holds the lane already and so saves looking it up.
    pub async fn call_in<C: Chance>(
        &self,
        lane: &Lane,
        request: &Request,
        chance: C,
    ) -> Outcome<Answered<T>> {
        let call = if request.is_repeatable() { Call::new() } else { Call::once() };
        call::run(lane, &self.policy, call, chance, Hops { exchange: self, request, hop: None }).await
    }

    async fn send(&self, hop: &mut Hop<'_>) -> Sent<Answered<T>> {
        let config = self.client.config();
        let sent = match hop.wire(&config.allow) {
            Ok(wire) => self.client.send(wire).await,
            Err(failure) => Err(failure),
        };
        let (status, headers, body) = match sent {
            Ok(parts) => parts,
            Err(failure) => return self.failed(failure, Hints::default()),
        };
        let hints = hint::read(&headers, self.lanes.clock().wall(), &self.dialect.hints);
        let body = match body {
            Ok(body) => body,
            // The status of an error says enough, and its Retry-After must not be lost with its body.
            Err(_) if !status.is_success() => Bytes::new(),
            Err(failure) => return self.failed(failure, hints),
        };
        let response = Response { status, headers, body, url: hop.url.clone() };
        if is_redirect(&response) {
            return match hop.follow(&response, &config.allow, config.redirects_max) {
                Ok(()) => {
                    let lane = self.lanes.get(&LaneKey::of_url(&hop.url, &hop.credential_name()));
                    Sent::Hop { lane, status: status.as_u16(), hints }
                }
                Err(failure) => self.failed(failure, hints),
            };
        }
        let (finding, read) = (self.dialect.read)(&response);
        let signal = Signal::Http { status: status.as_u16(), finding };
        let verdict = self.classify(&signal, &hints);
        Sent::Reply(Reply { verdict, hints, value: Some(Ok(Answer { response, read })) })
    }

    fn failed(&self, failure: Failure, hints: Hints) -> Sent<Answered<T>> {
        let verdict = self.classify(&failure.signal(), &hints);
        Sent::Reply(Reply { verdict, hints, value: Some(Err(failure)) })
    }

    fn classify(&self, signal: &Signal<'_>, hints: &Hints) -> Verdict {
        let verdict = self.dialect.classifier.classify(signal, hints, self.lanes.clock().mono());
        let span = tracing::Span::current();
        if !span.is_disabled() {
            span.record("code", verdict.code.as_str());
            span.record("status", verdict.status);
        }
        verdict
    }
}

/// Sends the attempts of one request, each from hop to hop.
struct Hops<'a, T> {
    exchange: &'a Exchange<T>,
    request: &'a Request,
    hop: Option<Hop<'a>>,
}

impl<T: Send> Sender for Hops<'_, T> {
    type Value = Answered<T>;

    fn send(&mut self, attempt: Try) -> impl Future<Output = Sent<Answered<T>>> + Send {
        let Hops { exchange, request, hop } = self;
        if attempt.hop == 0 {
            *hop = None;
        }
        let hop = hop.get_or_insert_with(|| Hop::first(request, &exchange.client.config().user_agent));
        let span = debug_span!(
            "attempt",
            number = attempt.number,
            hop = attempt.hop,
            method = %request.method,
            url = exchange.redactor.url(&hop.url),
            code = field::Empty,
            status = field::Empty,
        );
        exchange.send(hop).instrument(span)
    }
}
