//! Sends requests through their lanes.

use super::failure::HttpFailure;
use super::redirect::{Hop, is_redirect};
use super::request::Request;
use super::{Client, Response};
use crate::call::{self, AttemptOutcome, CallOutcome, Sender, Sent, Try};
use crate::lane::{LaneHandle, LaneKey, Lanes};
use crate::secret::Redactor;
use crate::telemetry::trace::{self, CallSpanIds, Tracer};
use bytes::Bytes;
use std::sync::Arc;
use tidegate_core::call::{Call, CallPolicy};
use tidegate_core::classify::Classifier;
use tidegate_core::hint::{self, HintProfile, Hints};
use tidegate_core::signal::{Finding, Signal};
use tidegate_core::{Chance, Verdict};
use tracing::debug;

/// Parses a response. It returns the finding in the body (an error with status 200, an empty
/// result) and the value for the caller, so that the body is parsed once.
pub type ResponseParser<T> = dyn Fn(&Response) -> (Option<Finding>, T) + Send + Sync;

/// How the responses of one service are classified and parsed.
pub struct ServiceDialect<T = ()> {
    /// The classifier of statuses and failures.
    pub classifier: Classifier,
    /// How its rate-limit headers differ from the standards.
    pub hints: HintProfile,
    /// The parser of its bodies.
    pub read: Arc<ResponseParser<T>>,
}

impl<T> Clone for ServiceDialect<T> {
    fn clone(&self) -> ServiceDialect<T> {
        ServiceDialect { classifier: self.classifier, hints: self.hints.clone(), read: self.read.clone() }
    }
}

impl Default for ServiceDialect {
    /// Plain HTTP: bodies are not examined.
    fn default() -> ServiceDialect {
        ServiceDialect {
            classifier: Classifier::default(),
            hints: HintProfile::default(),
            read: Arc::new(|_| (None, ())),
        }
    }
}

/// A response of any status with its parsed value.
#[derive(Clone, Debug)]
pub struct ParsedResponse<T = ()> {
    /// The response as received.
    pub response: Response,
    /// The value that the parser returned.
    pub read: T,
}

/// The result of the last attempt: a response, or why there is none.
pub type Answered<T = ()> = Result<ParsedResponse<T>, HttpFailure>;

/// Sends the requests of one service. Clones share connections and lanes.
pub struct Exchange<T = ()> {
    /// The HTTP client.
    pub client: Client,
    /// The lanes of the calls.
    pub lanes: Lanes,
    /// The dialect of the service.
    pub dialect: ServiceDialect<T>,
    /// The policy of calls: attempts, delays, deadline.
    pub policy: CallPolicy,
    /// The redactor of secrets in messages about attempts.
    pub redactor: Arc<Redactor>,
    /// Whether and how its calls are traced.
    pub trace: Trace,
}

/// What is traced of calls while a tracer is installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    /// Nothing.
    Off,
    /// Spans.
    #[default]
    Spans,
    /// Spans, and the W3C header `traceparent` in requests to the service.
    SendAlong,
}

impl Trace {
    /// `SendAlong` if the profile of the service allows the header, else `Spans`.
    #[must_use]
    pub fn of(allowed: bool) -> Trace {
        if allowed { Trace::SendAlong } else { Trace::Spans }
    }
}

impl<T> Clone for Exchange<T> {
    fn clone(&self) -> Exchange<T> {
        Exchange {
            client: self.client.clone(),
            lanes: self.lanes.clone(),
            dialect: self.dialect.clone(),
            policy: self.policy,
            redactor: self.redactor.clone(),
            trace: self.trace,
        }
    }
}

impl<T: Send> Exchange<T> {
    /// The lane of a request.
    #[must_use]
    pub fn lane(&self, request: &Request) -> LaneHandle {
        self.lanes.get(&LaneKey::of_url(&request.url, &request.credential_name()))
    }

    /// Whether a lane is that of a request, for a caller that sends one request after another.
    #[must_use]
    pub fn is_lane(&self, lane: &LaneHandle, request: &Request) -> bool {
        lane.key().is_of_url(&request.url, &request.credential_name())
    }

    /// Sends one request until it is accepted, parked or given up.
    pub async fn call<C: Chance>(&self, request: &Request, chance: C) -> CallOutcome<Answered<T>> {
        self.call_in(&self.lane(request), request, chance).await
    }

    /// The same for a caller that already has the lane.
    pub async fn call_in<C: Chance>(
        &self,
        lane: &LaneHandle,
        request: &Request,
        chance: C,
    ) -> CallOutcome<Answered<T>> {
        let call = if request.is_repeatable() { Call::new() } else { Call::once() };
        let tracer = if self.trace == Trace::Off { None } else { trace::tracer() };
        let begun = tracer.map(|tracer| (tracer, tracer.call()));
        let hops = Hops { exchange: self, request, hop: None, begun };
        let outcome = call::run(lane, &self.policy, call, chance, hops).await;
        if let Some((tracer, begun)) = begun {
            tracer.called(begun, lane, &request.method, &outcome);
        }
        if outcome.attempts() > 1 || !outcome.is_accepted() {
            debug!(
                target: "tidegate::call",
                code = outcome.verdict.code.as_str(),
                status = outcome.verdict.status,
                attempts = outcome.attempts(),
                elapsed_ms = outcome.elapsed.as_millis() as u64,
                url = self.redactor.url(&request.url),
                "{}",
                outcome.word()
            );
        }
        outcome
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
            // The status of an error is sufficient, and its Retry-After must not be lost with its
            // body.
            Err(_) if !status.is_success() => Bytes::new(),
            Err(failure) => return self.failed(failure, hints),
        };
        let response = Response { status, headers, body, url: hop.url().clone() };
        if is_redirect(&response) {
            return match hop.follow(&response, &config.allow, config.redirects_max) {
                Ok(()) => {
                    let lane = self.lanes.get(&LaneKey::of_url(hop.url(), &hop.credential_name()));
                    Sent::Hop { lane, status: status.as_u16(), hints }
                }
                Err(failure) => self.failed(failure, hints),
            };
        }
        let (finding, read) = (self.dialect.read)(&response);
        let signal = Signal::Http { status: status.as_u16(), finding };
        let verdict = self.classify(&signal, &hints);
        Sent::Reply(AttemptOutcome { verdict, hints, value: Some(Ok(ParsedResponse { response, read })) })
    }

    fn failed(&self, failure: HttpFailure, hints: Hints) -> Sent<Answered<T>> {
        let verdict = self.classify(&failure.signal(), &hints);
        Sent::Reply(AttemptOutcome { verdict, hints, value: Some(Err(failure)) })
    }

    fn classify(&self, signal: &Signal<'_>, hints: &Hints) -> Verdict {
        self.dialect.classifier.classify(signal, hints, self.lanes.clock().mono())
    }
}

/// Sends the attempts of one request, following redirects.
struct Hops<'a, T> {
    exchange: &'a Exchange<T>,
    request: &'a Request,
    hop: Option<Hop<'a>>,
    begun: Option<(&'static Tracer, CallSpanIds)>,
}

impl<T: Send> Sender for Hops<'_, T> {
    type Value = Answered<T>;

    fn send(&mut self, attempt: Try) -> impl Future<Output = Sent<Answered<T>>> + Send {
        let Hops { exchange, request, hop, begun } = self;
        let exchange = *exchange;
        if attempt.hop == 0 {
            *hop = None;
        }
        let hop = hop.get_or_insert_with(|| Hop::first(request, &exchange.client.config().user_agent));
        if let (Trace::SendAlong, Some((tracer, begun))) = (exchange.trace, begun) {
            hop.belongs_to(&tracer.traceparent(*begun, attempt.number));
        }
        // Boxed: the outer futures are moved, and many of them are only waiting.
        Box::pin(exchange.send(hop))
    }
}
