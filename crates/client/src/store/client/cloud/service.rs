//! Services of a cloud other than its object store, such as its queues: signed requests through a
//! lane, with the credentials of the object store.
//!
//! Requests that wait at the server (polls) have a lane of their own: they take as long as they are
//! asked to, and say nothing about how fast the service is.

use super::jwt;
use super::renew::{CredentialFault, CredentialWatch};
use super::{CloudSettings, CredentialSource, OpenError, client, fetched, gcs, s3, variable, wrong};
use crate::call::{self, AttemptOutcome, CallOutcome};
use crate::http::{Client, HttpFailure};
use crate::lane::{Clock, LaneHandle, LaneKey};
use crate::secret::SecretRef;
use crate::store::client::wire::{self, EXPIRED, ObservedExchange};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body_util::{BodyExt, Limited};
use object_store::CredentialProvider;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::HttpRequest;
use object_store::gcp::GcpCredential;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate_core::call::{Call, CallPolicy, ThrottleWait};
use tidegate_core::classify::Classifier;
use tidegate_core::hint::{self, HintProfile, Hints};
use tidegate_core::lane::LaneConfig;
use tidegate_core::retry::backoff::{Backoff, Jitter};
use tidegate_core::signal::{Finding, Means, Network, Signal};
use tidegate_core::{Code, Rng, Verdict, VerdictKind};
use url::Url;

/// The largest response, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The longest time for an answer, in addition to the time that a poll waits.
const ATTEMPT: Duration = Duration::from_secs(10);
/// The longest time for a call with its retries, in addition to the time that a poll waits.
const DEADLINE: Duration = Duration::from_secs(15);
/// How long a call waits for a service that is down or asks to wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// The word of a fault without an answer in time. To a poll it may mean that there was nothing.
pub const NO_ANSWER: &str = "NoAnswer";

/// Reads the answer of a service that is not a success: what it means, if not what its status says,
/// and the error code of the service. Nothing else of the answer is quoted, because it may repeat
/// the signed request.
pub type ErrorReader = fn(u16, &[u8]) -> (Option<Finding>, String);

/// A request to a service.
#[derive(Clone, Debug)]
pub struct CloudRequest {
    /// The method.
    pub method: Method,
    /// The path after the endpoint, with a slash at its beginning.
    pub path: String,
    /// Its headers.
    pub headers: Vec<(&'static str, String)>,
    /// Its body, as JSON.
    pub body: Bytes,
    /// How long the server is asked to wait before it answers, if this is a poll.
    pub poll: Option<Duration>,
}

/// Why a service gave no answer that can be used. It contains no secret.
#[derive(Clone, Debug, PartialEq)]
pub struct CloudFault {
    /// The last verdict.
    pub verdict: Verdict,
    /// The error code of the service, such as `QueueDoesNotExist`; empty without one.
    pub word: String,
    /// What happened.
    pub words: String,
}

impl CloudFault {
    /// Whether the cause is remote and may pass with time.
    #[must_use]
    pub fn is_later(&self) -> bool {
        !matches!(self.verdict.kind, VerdictKind::Permanent)
    }

    fn later(code: Code, words: String) -> CloudFault {
        let kind = VerdictKind::Transient { until: None };
        CloudFault { verdict: Verdict { kind, code, status: None }, word: String::new(), words }
    }
}

impl fmt::Display for CloudFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for CloudFault {}

/// Who signs the requests.
enum RequestSigner {
    Aws { provider: AwsCredentialProvider, service: &'static str, region: String },
    Google(Arc<dyn CredentialProvider<Credential = GcpCredential>>),
    Nobody,
}

/// A service of a cloud.
pub struct CloudService {
    endpoint: Url,
    client: Client,
    signer: RequestSigner,
    watch: Option<Arc<CredentialWatch>>,
    errors: ErrorReader,
    lane: LaneHandle,
    poll_lane: LaneHandle,
    calls: AtomicU64,
}

impl CloudService {
    /// A service of AWS at this endpoint; `region` is used if the settings and the environment name
    /// none. An endpoint that is not https may be used without credentials.
    ///
    /// # Errors
    /// When there are no credentials, or a setting is invalid.
    pub fn aws(
        endpoint: &Url,
        service: &'static str,
        region: Option<&str>,
        settings: &CloudSettings,
        errors: ErrorReader,
    ) -> Result<CloudService, OpenError> {
        let clock = Clock::system();
        let region = match (&settings.region, region) {
            (None, Some(region)) => region.to_owned(),
            _ => s3::region(settings)?
                .ok_or_else(|| wrong("the region is unknown; name it as region=REGION"))?,
        };
        let identity = s3::identity(settings, &region, clock)?;
        let signer = match identity.provider {
            Some(provider) => RequestSigner::Aws { provider, service, region },
            None if endpoint.scheme() == "http" => RequestSigner::Nobody,
            None => {
                return Err(wrong(
                    "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name \
                     a source as credentials=web_identity, container or instance",
                ));
            }
        };
        CloudService::new(endpoint, settings, (signer, identity.watch), errors)
    }

    /// An API of Google at this endpoint. An endpoint that is not https is used without credentials.
    ///
    /// # Errors
    /// When there are no credentials, or a setting is invalid.
    pub fn google(
        endpoint: &Url,
        audience: &str,
        settings: &CloudSettings,
        errors: ErrorReader,
    ) -> Result<CloudService, OpenError> {
        if endpoint.scheme() == "http" {
            return CloudService::new(endpoint, settings, (RequestSigner::Nobody, None), errors);
        }
        let clock = Clock::system();
        let environment = settings.credentials == CredentialSource::Environment;
        let usual = || variable(gcs::VARIABLE).map(|path| SecretRef::File(path.into()));
        let from = settings.service_account.clone().or_else(|| environment.then(usual).flatten());
        let identity = match (from, settings.credentials) {
            (Some(from), _) => {
                let account = fetched(Some(&from))?.ok_or_else(|| wrong("the service account is empty"))?;
                jwt::identity(&account, &from.to_string(), audience, clock)?
            }
            (None, CredentialSource::Instance) => gcs::instance(clock)?,
            (None, CredentialSource::Given | CredentialSource::Environment) => {
                return Err(wrong(
                    "there are no credentials; set GOOGLE_APPLICATION_CREDENTIALS to the file of a service \
                     account, or use credentials=instance",
                ));
            }
            (None, other) => return Err(wrong(format!("Google has no credentials of the kind `{other}`"))),
        };
        let watch = Some(identity.watch());
        CloudService::new(endpoint, settings, (RequestSigner::Google(Arc::new(identity)), watch), errors)
    }

    fn new(
        endpoint: &Url,
        settings: &CloudSettings,
        (signer, watch): (RequestSigner, Option<Arc<CredentialWatch>>),
        errors: ErrorReader,
    ) -> Result<CloudService, OpenError> {
        let clock = Clock::system();
        let mut config = LaneConfig::default();
        config.breaker.cooldown = Duration::from_secs(1);
        config.breaker.cooldown_factor = 1.5;
        config.breaker.cooldown_max = Duration::from_secs(30);
        config.breaker.probes = 1;
        let lane = LaneHandle::new(LaneKey::of_url(endpoint, ""), &config, clock);
        config.limit.learn = false;
        let poll_lane = LaneHandle::new(LaneKey::of_url(endpoint, "polls"), &config, clock);
        Ok(CloudService {
            client: client(endpoint, settings.private)?,
            endpoint: endpoint.clone(),
            signer,
            watch,
            errors,
            lane,
            poll_lane,
            calls: AtomicU64::new(0),
        })
    }

    /// Sends a request until it succeeds or is given up; returns the body of the answer.
    ///
    /// # Errors
    /// When the service refuses it, or cannot be reached for some seconds.
    pub async fn call(&self, request: &CloudRequest) -> Result<Bytes, CloudFault> {
        let lane = if request.poll.is_some() { &self.poll_lane } else { &self.lane };
        let poll = request.poll.unwrap_or_default();
        let policy = CallPolicy {
            throttles_free: 20,
            outages_free: 5,
            deadline: DEADLINE + poll,
            attempt_timeout: ATTEMPT + poll,
            backoff: Backoff::new(Duration::from_millis(100), 2.0, Duration::from_secs(5), Jitter::Full),
            throttle_wait: ThrottleWait::Lane,
            ..CallPolicy::default()
        };
        let run = |_| {
            let chance = Rng::fork(
                lane.clock().wall().millis().unsigned_abs(),
                self.calls.fetch_add(1, Ordering::Relaxed),
            );
            call::run(lane, &policy, Call::new(), chance, |_| async move {
                let (verdict, hints, value) = self.attempt(request).await;
                AttemptOutcome { verdict, hints, value: Some(value) }.into()
            })
        };
        let host = self.endpoint.host_str().unwrap_or_default();
        let made = tokio::time::timeout(DEADLINE + PATIENCE + poll, call::patient(lane, PATIENCE, run)).await;
        let outcome: CallOutcome<Result<Bytes, CloudFault>> = match made {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(later)) => return Err(CloudFault::later(later.code, later.said)),
            Err(_) => return Err(CloudFault::later(Code::TIMEOUT, format!("{host} did not answer in time"))),
        };
        let accepted = outcome.is_accepted();
        match outcome.value {
            Some(Ok(body)) if accepted => Ok(body),
            Some(Err(fault)) => Err(fault),
            // The last attempt was cut off.
            Some(Ok(_)) | None => Err(CloudFault {
                word: NO_ANSWER.to_owned(),
                ..CloudFault::later(outcome.verdict.code, format!("{host} did not answer in time"))
            }),
        }
    }

    /// Signs and sends once.
    async fn attempt(&self, request: &CloudRequest) -> (Verdict, Hints, Result<Bytes, CloudFault>) {
        let now = self.lane.clock();
        let judge =
            |signal: &Signal<'_>, hints: &Hints| Classifier::default().classify(signal, hints, now.mono());
        let fail = |signal: Signal<'_>, hints: Hints, (word, words): (String, String)| {
            let mut verdict = judge(&signal, &hints);
            // An empty answer is for lookups; here something is missing.
            if verdict.kind == VerdictKind::NoMatch {
                (verdict.kind, verdict.code) = (VerdictKind::Permanent, Code::NOT_FOUND);
            }
            (verdict, hints, Err(CloudFault { verdict, word, words }))
        };
        let host = self.endpoint.host_str().unwrap_or_default();
        let (url, headers) = match self.signed(request).await {
            Ok(signed) => signed,
            Err(fault) => {
                return fail(Signal::Task(fault.finding), Hints::default(), (String::new(), fault.words));
            }
        };
        let shown = self.watch.as_ref().and_then(|_| CredentialWatch::shown(&headers));
        let sending = async {
            let answer =
                self.client.open(request.method.clone(), &url, headers, request.body.clone()).await?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|_| {
                HttpFailure::Network(Network::Truncated, "the response body is truncated".into())
            });
            Ok::<_, HttpFailure>((head, body))
        };
        let (head, body) = match sending.await {
            Ok(answer) => answer,
            Err(failure) => {
                let words = format!("{host}: {failure}");
                return fail(failure.signal(), Hints::default(), (String::new(), words));
            }
        };
        let status = head.status.as_u16();
        let hints = hint::read(&head.headers, now.wall(), &HintProfile::default());
        if head.status.is_success() {
            if let (Some(watch), Some(shown)) = (&self.watch, shown) {
                watch.accept(shown);
            }
            return match body {
                Ok(body) => {
                    let verdict = judge(&Signal::Http { status, finding: None }, &hints);
                    (verdict, hints, Ok(body.to_bytes()))
                }
                Err(failure) => fail(failure.signal(), hints, (String::new(), format!("{host}: {failure}"))),
            };
        }
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let (mut finding, word) = (self.errors)(status, &body);
        let is_expired = status == 401 || EXPIRED.contains(&word.as_str());
        if let (true, Some(watch), Some(shown)) = (is_expired, &self.watch, shown) {
            let means = if watch.refuse(shown) { Means::Transient } else { Means::Permanent };
            finding = Some(Finding { means, code: Code::UNAUTHORIZED });
        }
        let words = format!("{host} answered {}", format!("{status} {word}").trim_end());
        fail(Signal::Http { status, finding }, hints, (word, words))
    }

    /// The URL and the headers of a request, signed now.
    async fn signed(&self, request: &CloudRequest) -> Result<(Url, HeaderMap), CredentialFault> {
        let fault = |words: &str| CredentialFault {
            finding: Finding { means: Means::Permanent, code: Code::BAD_REQUEST },
            words: words.to_owned(),
        };
        let at = format!("{}{}", self.endpoint.as_str().trim_end_matches('/'), request.path);
        let url = Url::parse(&at).map_err(|_| fault("the path is not one of a URL"))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, self.client.config().user_agent.clone());
        for (name, value) in &request.headers {
            let value = HeaderValue::from_str(value).map_err(|_| fault("a header is invalid"))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        match &self.signer {
            RequestSigner::Nobody => {}
            RequestSigner::Google(provider) => {
                let credential = issued_by(provider.as_ref()).await?;
                let mut value = HeaderValue::from_str(&format!("Bearer {}", credential.bearer))
                    .map_err(|_| fault("the token cannot be sent in a header"))?;
                value.set_sensitive(true);
                headers.insert(header::AUTHORIZATION, value);
            }
            RequestSigner::Aws { provider, service, region } => {
                let credential = issued_by(provider.as_ref()).await?;
                // The library takes for granted that they can be sent.
                let sendable = |text: &str| HeaderValue::from_str(text).is_ok();
                if !sendable(&credential.key_id) || !credential.token.as_deref().is_none_or(sendable) {
                    return Err(fault("the access key or the session token cannot be sent in a header"));
                }
                let mut signed = HttpRequest::new(request.body.clone().into());
                *signed.method_mut() = request.method.clone();
                *signed.uri_mut() =
                    url.as_str().parse().map_err(|_| fault("the path is not one of a URL"))?;
                *signed.headers_mut() = headers;
                AwsAuthorizer::new(&credential, service, region)
                    .try_authorize(&mut signed, None)
                    .map_err(|_| fault("the request cannot be signed"))?;
                headers = std::mem::take(signed.headers_mut());
                for name in ["authorization", "x-amz-security-token"] {
                    if let Some(value) = headers.get_mut(name) {
                        value.set_sensitive(true);
                    }
                }
            }
        }
        Ok((url, headers))
    }
}

/// The credential of a provider, or why it has none.
async fn issued_by<T>(provider: &dyn CredentialProvider<Credential = T>) -> Result<Arc<T>, CredentialFault> {
    let (credential, seen) = wire::watched(provider.get_credential()).await;
    credential.map_err(|_| match seen {
        Some(ObservedExchange::Credential(fault)) => fault,
        _ => CredentialFault {
            finding: Finding { means: Means::Permanent, code: Code::UNAUTHORIZED },
            words: "there is no credential".to_owned(),
        },
    })
}
