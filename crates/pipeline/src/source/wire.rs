//! A source's way to its service: every request through its lane, every link judged.
//!
//! A page is a record of its own: it is retried, classified and counted like one. A body is read
//! while its call is still out, so that a page that is cut, or holds fewer features than it says,
//! is a failed attempt and not data.

use super::error::{SourceError, Trouble};
use super::page::FeaturePage;
use super::service::PagedLayer;
use crate::call::{self, CallOutcome, Later, SettingsOf};
use crate::http::{
    Answered, Client, ClientConfig, Credential, Exchange, ParsedResponse, Request, Response, ServiceDialect,
    Trace,
};
use crate::lane::{Clock, LaneHandle, LaneScope, LaneStates, Lanes};
use crate::profile::Profile;
use crate::secret::{NamedSecret, Redactor};
use crate::telemetry::ServiceMetrics;
use crate::traffic::Caller;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate_core::call::CallPolicy;
use tidegate_core::classify::Classifier;
use tidegate_core::lane::LaneConfig;
use tidegate_core::quote;
use tidegate_core::refusal::RefusalClass;
use tidegate_core::signal::{Finding, Means};
use tidegate_core::{Code, Rng, VerdictKind};
use url::Url;

/// Everything that requests need.
pub struct WireConfig {
    /// Where the service is.
    pub url: Url,
    /// How it speaks.
    pub profile: Profile,
    /// With which key: where it came from, and its value.
    pub key: Option<NamedSecret>,
    /// Which hosts and addresses may be asked.
    pub client: ClientConfig,
    /// How often and how long to try one page.
    pub policy: CallPolicy,
    /// What statuses mean; what the profile says if `None`.
    pub classifier: Option<Classifier>,
    /// Limits, breaker and budget.
    pub lane: LaneConfig,
    /// A longer wait than this ends the run: try later.
    pub patience: Duration,
    /// Decides all jitter.
    pub seed: u64,
    /// As whom in the traffic of a run; `None` has lanes of its own.
    pub caller: Option<Caller>,
    /// Where lanes of its own keep what their servers ask for; `None` keeps nothing.
    pub lane_state: Option<PathBuf>,
}

/// The way to one service. Clones share connections, lanes and counts.
#[derive(Clone)]
pub struct Wire {
    plain: Exchange<()>,
    profile: Arc<Profile>,
    /// Where the credentials belong.
    home: Url,
    credentials: Arc<[Credential]>,
    patience: Duration,
    seed: u64,
    calls: Arc<AtomicU64>,
    line: Arc<ServiceMetrics>,
    lane: LaneHandle,
    caller: Option<Caller>,
}

/// What was read of a page, or why it cannot be.
type ParsedPage = Option<Result<FeaturePage, String>>;

/// The way to a service whose pages are understood.
pub(super) struct PageReader {
    wire: Wire,
    exchange: Exchange<ParsedPage>,
    service: Arc<dyn PagedLayer>,
}

impl Wire {
    /// Connects nothing yet.
    ///
    /// # Errors
    /// The address, the key or the system's certificates cannot be used.
    pub fn new(config: WireConfig, clock: Clock) -> Result<Wire, SourceError> {
        let setup = SourceError::setup;
        let allow = &config.client.allow;
        allow.url(&config.url).map_err(|e| {
            setup(format!("{}: {e}; if you trust it, pass --allow-private or --allow-host", config.url))
        })?;
        let client = Client::new(config.client.clone(), [&config.url]).map_err(|e| setup(e.to_string()))?;
        let mut redactor = Redactor::new();
        if let Some(key) = &config.key {
            redactor.add(&key.secret);
        }
        let credentials =
            config.profile.credentials(config.key.as_ref()).map_err(|e| setup(e.to_string()))?;
        let classifier = config.classifier.unwrap_or_else(|| config.profile.classifier());
        let classifier = classifier.for_lane(&config.lane);
        let profile = Arc::new(config.profile);
        let dialect = {
            let profile = Arc::clone(&profile);
            ServiceDialect {
                classifier,
                hints: profile.hints(),
                read: Arc::new(move |response: &Response| (sniff(&profile, response), ())),
            }
        };
        let lanes = match &config.caller {
            Some(caller) => caller.lanes(&config.lane),
            None => {
                let lanes = Lanes::new(&config.lane, clock);
                match &config.lane_state {
                    Some(dir) => {
                        let states = LaneStates::open_within(dir, clock, config.lane.wait_max);
                        lanes.keeping(states).sharing(LaneScope::Machine(None))
                    }
                    None => lanes,
                }
            }
        };
        if let Some(NamedSecret { name, secret }) = &config.key {
            lanes.identify(name, secret);
        }
        let plain = Exchange {
            client,
            lanes,
            dialect,
            policy: config.policy,
            redactor: Arc::new(redactor),
            trace: Trace::of(profile.trace_context()),
        };
        let mut first = Request::get(config.url.clone());
        first.credentials.clone_from(&credentials);
        let lane = plain.lane(&first);
        let line = match &config.caller {
            Some(caller) => caller.line(lane.key(), &config.policy),
            None => ServiceMetrics::new(lane.key(), &plain.lanes, &config.policy),
        };
        Ok(Wire {
            plain,
            profile,
            home: config.url,
            credentials: credentials.into(),
            patience: config.patience,
            seed: config.seed,
            calls: Arc::default(),
            line: Arc::new(line),
            lane,
            caller: config.caller,
        })
    }

    /// Writes down what servers asked for. To be called when a run ends.
    pub fn flush(&self) {
        self.plain.lanes.flush();
    }

    /// The lane of the service.
    #[must_use]
    pub fn lane(&self) -> &LaneHandle {
        &self.lane
    }

    /// What is counted.
    #[must_use]
    pub fn line(&self) -> &ServiceMetrics {
        &self.line
    }

    /// A text without secrets.
    #[must_use]
    pub fn masked(&self, text: &str) -> String {
        self.plain.redactor.text(text).into_owned()
    }

    /// A GET to this address; the credentials go along only to where they belong.
    pub(super) fn get(&self, url: Url) -> Request {
        self.with_credentials(Request::get(url))
    }

    /// A question by POST, which changes nothing and may be repeated.
    pub(super) fn post(&self, url: Url, body: String) -> Request {
        let mut request = Request::new(http::Method::POST, url, body.into());
        let json = http::HeaderValue::from_static("application/json");
        request.headers.insert(http::header::CONTENT_TYPE, json);
        request.idempotency_key = Some(request.key_bytes());
        self.with_credentials(request)
    }

    fn with_credentials(&self, mut request: Request) -> Request {
        if request.url.origin() == self.home.origin() {
            request.credentials = self.credentials.to_vec();
        }
        request
    }

    /// Where a link on `page` leads, if it may be followed.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn follow(&self, page: &Url, href: &str) -> Result<Url, SourceError> {
        let refuse = |why: String| {
            let message = format!("link to the next page {href:?} not followed: {why}");
            SourceError::broken(Code::HOST_NOT_ALLOWED, self.masked(&message))
        };
        let url = page.join(href).map_err(|e| refuse(e.to_string()))?;
        let allow = &self.plain.client.config().allow;
        allow.url(&url).map_err(|e| refuse(format!("{e}; if you trust it, pass --allow-host")))?;
        if self.home.scheme() == "https" && url.scheme() == "http" {
            return Err(refuse("it leads from https to http".into()));
        }
        Ok(url)
    }

    /// Asks for something that is not a page.
    ///
    /// # Errors
    /// When there is no answer.
    pub(super) async fn ask(&self, request: &Request, what: &str) -> Result<Response, SourceError> {
        self.through(&self.plain, request, what).await.map(|answer| answer.response)
    }

    /// Takes one request to its end, waiting as long as our patience lasts.
    async fn through<T: Send>(
        &self,
        exchange: &Exchange<T>,
        request: &Request,
        what: &str,
    ) -> Result<ParsedResponse<T>, SourceError> {
        let lane = exchange.lane(request);
        let ask = |_| async {
            let chance = Rng::fork(self.seed, self.calls.fetch_add(1, Ordering::Relaxed));
            let outcome = exchange.call_in(&lane, request, chance).await;
            match &self.caller {
                Some(caller) => caller.ended(&self.line, &self.masked(what), &outcome),
                None => self.line.calls.call(outcome.history()),
            }
            outcome
        };
        match call::patient(&lane, self.patience, ask).await {
            Ok(outcome) => self.end(outcome, what),
            Err(Later { code, until, said }) => {
                if let Some(caller) = &self.caller {
                    caller.later(&said);
                }
                Err(SourceError { trouble: Trouble::TryLater(until), code, message: said })
            }
        }
    }

    fn end<T>(
        &self,
        outcome: CallOutcome<Answered<T>>,
        what: &str,
    ) -> Result<ParsedResponse<T>, SourceError> {
        let accepted = outcome.is_accepted();
        let (word, code, attempts) = (outcome.word(), outcome.verdict.code, outcome.attempts());
        let heals = matches!(
            outcome.verdict.kind,
            VerdictKind::Throttled { .. } | VerdictKind::Transient { .. } | VerdictKind::QuotaSpent { .. }
        );
        let advice = match (RefusalClass::of(&outcome.verdict), &self.caller) {
            (Some(class @ RefusalClass::Credential), None) => call::advice(class, &SettingsOf::Options),
            (Some(class @ RefusalClass::Credential), Some(caller)) => call::advice(class, &caller.settings()),
            _ => String::new(),
        };
        let said = match outcome.value {
            Some(Ok(answer)) if accepted => return Ok(answer),
            Some(Ok(answer)) => {
                let said = answer.response.excerpt(200, &self.plain.redactor);
                if said.is_empty() { said } else { format!(": the service said {}", quote::said(&said)) }
            }
            Some(Err(failure)) => format!(": {failure}"),
            None => String::new(),
        };
        let times = if attempts == 1 { "1 attempt".into() } else { format!("{attempts} attempts") };
        let mut text = format!("{what}: {word} after {times}{said}");
        if !advice.is_empty() {
            text.push_str(&format!(". {advice}"));
        }
        let mut error = SourceError::broken(code, self.masked(&text));
        if heals {
            error.trouble = Trouble::Down;
            if let Some(caller) = &self.caller {
                caller.later(&error.message);
            }
        }
        Err(error)
    }
}

impl PageReader {
    pub(super) fn new(wire: Wire, service: Arc<dyn PagedLayer>) -> PageReader {
        let profile = Arc::clone(&wire.profile);
        let reader = Arc::clone(&service);
        let exchange = Exchange {
            client: wire.plain.client.clone(),
            lanes: wire.plain.lanes.clone(),
            dialect: ServiceDialect {
                classifier: wire.plain.dialect.classifier,
                hints: wire.plain.dialect.hints.clone(),
                read: Arc::new(move |response: &Response| read(&profile, &*reader, response)),
            },
            policy: wire.plain.policy,
            redactor: wire.plain.redactor.clone(),
            trace: wire.plain.trace,
        };
        PageReader { wire, exchange, service }
    }

    pub(super) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Takes one page to its end.
    pub(super) async fn fetch(&self, step: &super::position::NextPage) -> Result<FeaturePage, SourceError> {
        let request = self.service.request(&self.wire, step)?;
        let what = self.service.name(step);
        let answer = self.wire.through(&self.exchange, &request, &what).await?;
        let mut page = match answer.read {
            Some(Ok(page)) => page,
            Some(Err(why)) => {
                return Err(SourceError::broken(Code::UNEXPECTED_BODY, format!("{what}: {why}")));
            }
            None => return Err(SourceError::broken(Code::UNEXPECTED_BODY, format!("{what}: no page"))),
        };
        if let Some(why) = page.refusal.take() {
            return Err(SourceError::broken(Code::CRS_MISMATCH, format!("{what}: {why}")));
        }
        // A link is relative to what gave it.
        if let Some(super::position::NextPage::Link { url, .. }) = &mut page.next {
            *url = self.wire.follow(&answer.response.url, url)?.into();
        }
        Ok(page)
    }
}

fn sniff(profile: &Profile, response: &Response) -> Option<Finding> {
    profile.sniff(response.status.as_u16(), response.content_type(), &response.body)
}

/// What a page's answer means, and the page.
fn read(profile: &Profile, service: &dyn PagedLayer, response: &Response) -> (Option<Finding>, ParsedPage) {
    let finding = sniff(profile, response);
    let good = finding.is_none_or(|f| matches!(f.means, Means::Done | Means::NoMatch));
    if !good || !response.status.is_success() {
        return (finding, None);
    }
    match service.read(response) {
        Ok(page) => (finding, Some(Ok(page))),
        Err(why) => {
            let cut = Finding { means: Means::Transient, code: Code::TRUNCATED_BODY };
            (Some(cut), Some(Err(why)))
        }
    }
}
