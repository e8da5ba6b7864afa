//! geocode and http: what a service knows, through its lane.
//!
//! All records of a batch are asked at once; the lane lets out as many as the service takes, and
//! waits, retries and gives up by the manifest's policy. The batch goes on when every record has
//! its end: an answer, nothing found, or a dead letter. An answer is kept in the response cache
//! before its record goes on, so that a run that is cut off pays for nothing twice. Equal
//! questions of a batch are asked once.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt, stream};
use tidegate_core::call::{Next, Why};
use tidegate_core::{Code, Kind as Verdict, Rng, Wall};
use tidegate_geo::batch::Pick;
use tidegate_geo::column::Column;
use tidegate_geo::wkb::{self, Cursor, Event, Shape, write};
use tidegate_geo::{Batch, Crs, Kind, Problem, Schema, Value};
use url::Url;

use super::{Aside, Flow, Step, StepError};
use crate::audit::Attempts;
use crate::cache::{self, Stored};
use crate::http::{Allow, Client, ClientConfig, Credential, Dialect, Exchange, Place, Request, Trace};
use crate::lane::{Clock, LaneKey, Lanes};
use crate::manifest::{self, Geocode, Http, Missing, Policy};
use crate::profile::{Ask, Asker, Profile, Profiles, What};
use crate::secret::{Redactor, Secret, SecretRef};
use crate::telemetry::Line;

/// The services of a manifest, with what they share: a runtime, the cache and the stop.
pub struct Services {
    forms: BTreeMap<String, manifest::Service>,
    policy: Policy,
    cache: Option<PathBuf>,
    /// Set to stop a run from outside.
    pub stop: Arc<AtomicBool>,
    /// What is counted of each service that a step asks.
    lines: Mutex<Vec<Line>>,
    /// Every call is entered in the audit, and not only those that failed in the end.
    attempts: bool,
}

impl Services {
    /// The services of a pipeline; `cache` is where answers are kept.
    #[must_use]
    pub fn new(manifest: &manifest::Manifest, cache: Option<PathBuf>, stop: Arc<AtomicBool>) -> Services {
        let forms = manifest.pipeline.services.clone();
        let attempts = manifest.pipeline.audit.attempts;
        Services { forms, policy: Policy::from(manifest), cache, stop, lines: Mutex::default(), attempts }
    }

    /// What is counted of each service that a step asks.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn open<T: Send + 'static>(
        &self,
        name: &str,
        base: &Url,
        dialect: Dialect<T>,
        trace: Trace,
    ) -> Result<Remote<T>, String> {
        let form = self.forms.get(name).ok_or_else(|| format!("there is no service `{name}`"))?;
        let allow = Allow::meant(base, form.allow_private, &[]);
        allow.url(base).map_err(|e| format!("{base}: {e}"))?;
        let client = Client::new(ClientConfig { allow, ..ClientConfig::default() })
            .map_err(|e| format!("the system's certificates cannot be used: {e}"))?;
        let mut lane = self.policy.lane;
        lane.limit.rate_max = form.requests_per_second.or(lane.limit.rate_max);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let mut redactor = Redactor::new();
        let key = secret(form)?;
        if let Some((_, secret)) = &key {
            redactor.add(secret);
        }
        // The manifest's lists of statuses are authoritative; the profile says what bodies mean.
        let dialect = Dialect { classifier: self.policy.classifier, ..dialect };
        let exchange = Exchange {
            client,
            lanes: Lanes::new(&lane, Clock::system()),
            dialect,
            policy: self.policy.call,
            redactor: Arc::new(redactor),
            trace,
        };
        let cache = match &self.cache {
            Some(dir) => Some(cache::open(dir).map_err(|e| e.to_string())?),
            None => None,
        };
        let credential = form.key.as_deref().unwrap_or_default();
        let line = Line::new(&LaneKey::of_url(base, credential), &exchange.lanes, &self.policy.call);
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line.clone());
        let window = (lane.limit.in_flight_max.max(1) as usize).saturating_mul(4).min(4096);
        let attempts = Attempts::new(name, self.attempts);
        Ok(Remote { runtime, exchange, cache, window, stop: self.stop.clone(), line, attempts })
    }
}

/// The key of a service, and where it came from.
pub(crate) fn secret(form: &manifest::Service) -> Result<Option<(String, Secret)>, String> {
    let Some(name) = &form.key else { return Ok(None) };
    let from: SecretRef = name.parse().map_err(|e: crate::secret::SecretError| e.to_string())?;
    Ok(Some((from.to_string(), from.fetch().map_err(|e| e.to_string())?)))
}

/// One service, ready to be asked.
struct Remote<T> {
    runtime: tokio::runtime::Runtime,
    exchange: Exchange<T>,
    cache: Option<(cache::Writer, cache::Reader)>,
    window: usize,
    stop: Arc<AtomicBool>,
    line: Line,
    attempts: Attempts,
}

/// What a service said to a question: status, content type and body, or why there is nothing.
type Said = Result<(u16, String, Vec<u8>), Problem>;

impl<T: Send + 'static> Remote<T> {
    /// Asks all questions; `None` asks nothing. The answers are in the order of the questions.
    /// Calls are noted for the audit, under the first record that asked.
    fn ask(
        &self,
        questions: Vec<Option<Request>>,
        batch: &Batch,
        aside: &mut Aside,
    ) -> Result<Vec<Option<Said>>, StepError> {
        let broken = |e: &dyn std::fmt::Display| StepError::Broken(e.to_string());
        let mut known: HashMap<[u8; 32], Said> = HashMap::new();
        let mut keys = Vec::with_capacity(questions.len());
        let mut open: Vec<([u8; 32], Request)> = Vec::new();
        for question in questions {
            let Some(request) = question else {
                keys.push(None);
                continue;
            };
            let key = request.idempotency_key.unwrap_or_else(|| request.key_bytes());
            keys.push(Some(key));
            if known.contains_key(&key) || open.iter().any(|(other, _)| *other == key) {
                self.line.calls.shared();
                continue;
            }
            let stored = match &self.cache {
                Some((_, reader)) => {
                    reader.get(&key).map_err(|e| broken(&e))?.and_then(|stored| unpack(&stored.answer))
                }
                None => None,
            };
            match stored {
                Some(said) => {
                    self.line.calls.cached();
                    known.insert(key, Ok(said));
                }
                None => open.push((key, request)),
            }
        }
        let done = self.runtime.block_on(self.all(open))?;
        known.extend(done);
        for (row, act) in self.attempts.take(&keys) {
            aside.attempts.push(if row < batch.len() {
                act.key(format!("record {}", batch.record(row)))
            } else {
                act
            });
        }
        Ok(keys.into_iter().map(|key| key.and_then(|key| known.get(&key).cloned())).collect())
    }

    async fn all(&self, open: Vec<([u8; 32], Request)>) -> Result<Vec<([u8; 32], Said)>, StepError> {
        let mut answers = stream::iter(open)
            .map(|(key, request)| async move {
                let said = self.one(&key, &request).await;
                (key, said)
            })
            .buffer_unordered(self.window);
        let mut done = Vec::new();
        loop {
            let next = tokio::time::timeout(std::time::Duration::from_millis(200), answers.next()).await;
            match next {
                Ok(Some((key, said))) => done.push((key, said?)),
                Ok(None) => return Ok(done),
                Err(_) if self.stop.load(Ordering::Relaxed) => return Err(StepError::Cancelled),
                Err(_) => {}
            }
        }
    }

    async fn one(&self, key: &[u8; 32], request: &Request) -> Result<Said, StepError> {
        let seed = key.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        let outcome = self.exchange.call(request, Rng::new(seed)).await;
        self.line.calls.call(outcome.history());
        self.attempts.note(key, &outcome, self.exchange.lanes.clock().wall().millis());
        if let Next::Park(until, why) = outcome.next
            && why == Why::QuotaSpent
        {
            let clock = self.exchange.lanes.clock();
            let wait = until.since(clock.mono()).as_millis() as i64;
            let until = Wall::from_millis(clock.wall().millis().saturating_add(wait));
            return Err(StepError::TryLater { code: Code::QUOTA_EXHAUSTED, until });
        }
        let redactor = &self.exchange.redactor;
        if outcome.is_accepted()
            && let Some(Ok(answer)) = &outcome.value
        {
            let response = &answer.response;
            let kept = (
                response.status.as_u16(),
                response.content_type().unwrap_or_default().to_owned(),
                redactor.bytes(&response.body).into_owned(),
            );
            self.keep(key, &kept).await?;
            return Ok(Ok(kept));
        }
        let not_found =
            matches!(outcome.verdict.kind, Verdict::NoMatch) || outcome.verdict.code == Code::NOT_FOUND;
        if let (true, Some(Ok(answer))) = (not_found, &outcome.value) {
            return Ok(Ok((answer.response.status.as_u16(), String::new(), Vec::new())));
        }
        let mut message = format!("{} after {} attempts", outcome.word(), outcome.attempts());
        match &outcome.value {
            Some(Err(failure)) => message.push_str(&format!(": {failure}")),
            Some(Ok(answer)) => {
                let said = answer.response.excerpt(200, redactor);
                if !said.is_empty() {
                    message.push_str(&format!(": the service said {said:?}"));
                }
            }
            None => {}
        }
        Ok(Err(Problem::new(outcome.verdict.code, redactor.text(&message).into_owned())))
    }

    /// Keeps an answer; it is durable when this returns. Answers that come meanwhile share its
    /// commit.
    async fn keep(&self, key: &[u8; 32], said: &(u16, String, Vec<u8>)) -> Result<(), StepError> {
        let Some((writer, _)) = &self.cache else { return Ok(()) };
        let (tell, told) = tokio::sync::oneshot::channel();
        let at_ms = self.exchange.lanes.clock().wall().millis();
        writer.put(*key, Stored { at_ms, job: 0, failed: false, answer: pack(said) }, move |done| {
            // Nobody waits any more when the run has been stopped.
            let _ = tell.send(done);
        });
        match told.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(StepError::Broken(e.to_string())),
            Err(_) => Err(StepError::Broken("the response cache has stopped".into())),
        }
    }
}

fn pack((status, content_type, body): &(u16, String, Vec<u8>)) -> Vec<u8> {
    let content_type = content_type.get(..content_type.len().min(255)).unwrap_or_default();
    let mut out = status.to_le_bytes().to_vec();
    out.push(content_type.len() as u8);
    out.extend_from_slice(content_type.as_bytes());
    out.extend_from_slice(body);
    out
}

fn unpack(bytes: &[u8]) -> Option<(u16, String, Vec<u8>)> {
    let (&[low, high, len], rest) = bytes.split_first_chunk::<3>()?;
    let (content_type, body) = rest.split_at_checked(usize::from(len))?;
    Some((u16::from_le_bytes([low, high]), String::from_utf8(content_type.to_vec()).ok()?, body.to_vec()))
}

struct GeocodeStep {
    remote: Remote<crate::profile::Sniffed>,
    profile: Profile,
    asker: Asker,
    user_agent: Option<String>,
    address: Vec<usize>,
    label: Option<usize>,
    score: Option<usize>,
    no_match: Missing,
    schema: Arc<Schema>,
}

pub(super) fn geocode(form: &Geocode, flow: &mut Flow, services: &Services) -> Result<Box<dyn Step>, String> {
    let service =
        services.forms.get(&form.service).ok_or_else(|| format!("there is no service `{}`", form.service))?;
    let name = service
        .profile
        .as_deref()
        .ok_or_else(|| format!("the service `{}` names no `profile`", form.service))?;
    let mut profile = Profiles::embedded().map_err(|e| e.to_string())?.get(name)?.clone();
    if let Some(url) = &service.url {
        profile = profile.at(url)?;
    }
    if flow.crs.as_ref().is_some_and(|crs| !crs.is_wgs84()) {
        return Err("geocoders speak longitude and latitude; put this step before `reproject`, or reproject to EPSG:4326 before it".into());
    }
    let address = form.address.iter().map(|name| flow.field(name)).collect::<Result<Vec<_>, _>>()?;
    let mut fields = flow.fields();
    let mut add = |name: &Option<String>, kind| -> Result<Option<usize>, String> {
        let Some(name) = name else { return Ok(None) };
        if fields.iter().any(|(other, _)| other == name) {
            return Err(format!("the records have a field `{name}` already; rename it before"));
        }
        fields.push((name.clone(), kind));
        Ok(Some(fields.len() - 1))
    };
    let (label, score) = (add(&form.label, Kind::Text)?, add(&form.score, Kind::Real)?);
    flow.with(fields);
    if !address.is_empty() {
        let mut schema = Schema::clone(&flow.schema);
        schema.shape = Some(Shape::Point).filter(|_| schema.shape.is_none_or(|shape| shape == Shape::Point));
        flow.schema = Arc::new(schema);
        flow.multi = flow.schema.shape.map(Shape::multi);
        flow.crs = Some(Crs::wgs84());
    }
    let asker = profile.asker(secret(service)?.as_ref())?;
    let remote = services.open(
        &form.service,
        &profile.base_url()?,
        profile.dialect(),
        Trace::of(profile.trace_context()),
    )?;
    Ok(Box::new(GeocodeStep {
        remote,
        profile,
        asker,
        user_agent: service.user_agent.clone(),
        address,
        label,
        score,
        no_match: form.no_match,
        schema: flow.schema.clone(),
    }))
}

impl GeocodeStep {
    fn question(&self, batch: &Batch, row: usize) -> Result<Request, Problem> {
        let refuse = |message: String| Problem::new(Code::UNPROCESSABLE, message);
        let mut address = String::new();
        let what = if self.address.is_empty() {
            let point = batch
                .geometry(row)
                .and_then(point)
                .ok_or_else(|| refuse("there is no point to ask about".into()))?;
            What::Reverse { lon: point.0, lat: point.1 }
        } else {
            for at in &self.address {
                let part = match batch.value(row, *at) {
                    Value::Text(text) => text.trim().to_owned(),
                    Value::Int(i) => i.to_string(),
                    _ => continue,
                };
                if !part.is_empty() {
                    address.push_str(if address.is_empty() { "" } else { ", " });
                    address.push_str(&part);
                }
            }
            What::Forward(&address)
        };
        self.asker.request(&Ask { user_agent: self.user_agent.as_deref(), ..Ask::new(what) }).map_err(refuse)
    }
}

/// The position of a point.
fn point(wkb: &[u8]) -> Option<(f64, f64)> {
    if wkb::head(wkb)?.0 != Shape::Point {
        return None;
    }
    let mut cursor = Cursor::default();
    while let Ok(Some(event)) = cursor.next(wkb) {
        if let Event::Coords(run) = event {
            return run.xy(wkb).next();
        }
    }
    None
}

/// A question for each row, and the rows of which nothing can be asked.
fn questions(
    rows: usize,
    mut of: impl FnMut(usize) -> Result<Request, Problem>,
) -> (Vec<Option<Request>>, Vec<(usize, Problem)>) {
    let (mut questions, mut refused) = (Vec::with_capacity(rows), Vec::new());
    for row in 0..rows {
        match of(row) {
            Ok(request) => questions.push(Some(request)),
            Err(problem) => {
                questions.push(None);
                refused.push((row, problem));
            }
        }
    }
    (questions, refused)
}

impl Step for GeocodeStep {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let (questions, mut refused) = questions(batch.len(), |row| self.question(&batch, row));
        let answers = self.remote.ask(questions, &batch, aside)?;
        let mut best = Vec::with_capacity(batch.len());
        for (row, said) in answers.into_iter().enumerate() {
            best.push(match said {
                Some(Ok((status, content_type, body))) => {
                    let read = self.profile.read(status, Some(&content_type), &body);
                    let answer = read.answers.into_iter().next();
                    if answer.is_none() {
                        if self.no_match == Missing::Reject {
                            refused.push((
                                row,
                                Problem::new(Code::NO_MATCH, "the service has nothing for this record"),
                            ));
                        } else {
                            aside.missed.push(batch.record(row));
                        }
                    }
                    answer
                }
                Some(Err(problem)) => {
                    refused.push((row, problem));
                    None
                }
                None => None,
            });
        }
        let old = batch.columns().len();
        let mut picks: Vec<Pick> = (0..old).map(Pick::Old).collect();
        for at in [self.label, self.score].into_iter().flatten() {
            let is_label = Some(at) == self.label;
            let mut column = Column::new(if is_label { Kind::Text } else { Kind::Real });
            for answer in &best {
                let value = answer.as_ref().and_then(|answer| {
                    if is_label {
                        answer.label.as_deref().map(Value::Text)
                    } else {
                        answer.score.map(Value::Real)
                    }
                });
                column
                    .push(value.unwrap_or(Value::Null))
                    .map_err(|problem| StepError::Broken(problem.to_string()))?;
            }
            picks.push(Pick::New(column));
        }
        let forward = !self.address.is_empty();
        let batch = batch.with_columns(self.schema.clone(), picks);
        let (batch, _) = batch.map_geometry(self.schema.clone(), |row, geometry, out| {
            match best.get(row).and_then(Option::as_ref).filter(|_| forward) {
                Some(answer) => write::point(out, &[answer.lon, answer.lat]),
                None => out.extend_from_slice(geometry.unwrap_or_default()),
            }
            Ok(())
        });
        refused.sort_by_key(|(row, _)| *row);
        Ok(aside.set_aside(batch, refused))
    }
}

struct HttpStep {
    remote: Remote<()>,
    base: Url,
    parts: Vec<Part>,
    credential: Option<Credential>,
    pointers: Vec<String>,
    no_match: Missing,
    schema: Arc<Schema>,
}

enum Part {
    Text(String),
    Field(usize),
}

pub(super) fn http(form: &Http, flow: &mut Flow, services: &Services) -> Result<Box<dyn Step>, String> {
    let service =
        services.forms.get(&form.service).ok_or_else(|| format!("there is no service `{}`", form.service))?;
    let url =
        service.url.as_deref().ok_or_else(|| format!("the service `{}` names no `url`", form.service))?;
    let base = Url::parse(url).map_err(|e| format!("{url}: {e}"))?;
    let mut parts = Vec::new();
    let mut rest = form.path.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or("`{` is not closed by `}` in `path`")?;
        parts.push(Part::Text(before.to_owned()));
        parts.push(Part::Field(flow.field(name)?));
        rest = after;
    }
    parts.push(Part::Text(rest.to_owned()));
    let mut fields = flow.fields();
    for name in form.take.keys() {
        if fields.iter().any(|(other, _)| other == name) {
            return Err(format!("the records have a field `{name}` already; rename it before"));
        }
        fields.push((name.clone(), Kind::Text));
    }
    flow.with(fields);
    let credential = secret(service)?.map(|(name, secret)| Credential {
        name,
        place: Place::Header(http::header::AUTHORIZATION, "Bearer ".to_owned()),
        secret,
    });
    let remote = services.open(&form.service, &base, Dialect::default(), Trace::Spans)?;
    Ok(Box::new(HttpStep {
        remote,
        base,
        parts,
        credential,
        pointers: form.take.values().cloned().collect(),
        no_match: form.no_match,
        schema: flow.schema.clone(),
    }))
}

impl HttpStep {
    fn question(&self, batch: &Batch, row: usize) -> Result<Request, Problem> {
        let mut path = self.base.as_str().trim_end_matches('/').to_owned();
        for part in &self.parts {
            match part {
                Part::Text(text) => path.push_str(text),
                Part::Field(at) => {
                    let value = match batch.value(row, *at) {
                        Value::Text(text) => text.to_owned(),
                        Value::Int(i) => i.to_string(),
                        Value::Real(x) => x.to_string(),
                        Value::Bool(b) => b.to_string(),
                        Value::Null | Value::Bytes(_) | Value::Json(_) => {
                            let name = self.schema.fields().get(*at).map_or("", |field| field.name.as_str());
                            return Err(Problem::new(Code::UNPROCESSABLE, "there is no value to ask with")
                                .under(name));
                        }
                    };
                    path.extend(
                        url::form_urlencoded::byte_serialize(value.as_bytes())
                            .map(|part| part.replace('+', "%20")),
                    );
                }
            }
        }
        let url = Url::parse(&path).map_err(|e| Problem::new(Code::UNPROCESSABLE, format!("{path}: {e}")))?;
        let mut request = Request::get(url);
        request.credentials.extend(self.credential.clone());
        Ok(request)
    }
}

impl Step for HttpStep {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let (questions, mut refused) = questions(batch.len(), |row| self.question(&batch, row));
        let answers = self.remote.ask(questions, &batch, aside)?;
        let mut columns: Vec<Column> = self.pointers.iter().map(|_| Column::new(Kind::Text)).collect();
        for (row, said) in answers.into_iter().enumerate() {
            let json = match said {
                Some(Ok((status, _, body))) if (200..300).contains(&status) => {
                    match serde_json::from_slice(&body) {
                        Ok(json) => Some(json),
                        Err(e) => {
                            refused.push((
                                row,
                                Problem::new(Code::UNEXPECTED_BODY, format!("the answer is not JSON: {e}")),
                            ));
                            None
                        }
                    }
                }
                Some(Ok(_)) => Some(serde_json::Value::Null),
                Some(Err(problem)) => {
                    refused.push((row, problem));
                    None
                }
                None => None,
            };
            let found: Vec<Option<String>> = self
                .pointers
                .iter()
                .map(|pointer| match json.as_ref().and_then(|json| json.pointer(pointer)) {
                    None | Some(serde_json::Value::Null) => None,
                    Some(serde_json::Value::String(text)) => Some(text.clone()),
                    Some(other) => Some(other.to_string()),
                })
                .collect();
            if json.is_some() && found.iter().all(Option::is_none) {
                if self.no_match == Missing::Reject {
                    refused
                        .push((row, Problem::new(Code::NO_MATCH, "the service has nothing for this record")));
                } else {
                    aside.missed.push(batch.record(row));
                }
            }
            for (column, value) in columns.iter_mut().zip(found) {
                column
                    .push(value.as_deref().map_or(Value::Null, Value::Text))
                    .map_err(|problem| StepError::Broken(problem.to_string()))?;
            }
        }
        let picks =
            (0..batch.columns().len()).map(Pick::Old).chain(columns.into_iter().map(Pick::New)).collect();
        refused.sort_by_key(|(row, _)| *row);
        Ok(aside.set_aside(batch.with_columns(self.schema.clone(), picks), refused))
    }
}
