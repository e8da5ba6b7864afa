//! The questions of a remote step that are out: from a batch into the lane, and back to whoever
//! waits for the answer.
//!
//! Questions are asked by tasks of the runtime. While one waits for its lane or backs off it holds
//! a place and nothing else, so the questions behind it go past it. A task that has asked goes on
//! with the next question: to make one for each is a tenth of the work. An answer is durable in the
//! response cache before its record has its end, so that a run that is cut off pays for nothing
//! twice. Equal questions are asked once: those of a batch, those that are out, and those whose
//! answer is in the cache.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::refusal::RepeatedRefusal;
use tidegate_core::{Code, Rng, Verdict, VerdictKind, Wall};
use tidegate_geo::Problem;
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::StepError;
use super::remote::RemoteKind;
use super::window::{Replies, Reply};
use crate::cache::{self, CacheKey, CachedAnswer};
use crate::call::{self, CallOutcome, Later, RefusalCounter, SettingsOf};
use crate::http::{Answered, Exchange, Request};
use crate::lane::LaneHandle;
use crate::telemetry::ServiceMetrics;
use crate::telemetry::trace::BatchSpan;
use crate::traffic::Caller;

/// Calls waiting or out, for each that may be out: records that back off must not keep the lane
/// idle.
const PLACES_PER_CALL: u32 = 16;
/// How a service is asked.
pub(super) struct ServiceLink<T> {
    pub(super) exchange: Exchange<T>,
    pub(super) cache: Option<cache::CacheWriter>,
    /// Calls that the lane lets out at once, at most.
    pub(super) in_flight_max: u32,
    pub(super) line: ServiceMetrics,
    pub(super) caller: Caller,
    /// A longer wait than this ends the run: try later.
    pub(super) patience: Duration,
    pub(super) refusals: RefusalCounter,
}

impl<T> ServiceLink<T> {
    /// The service refuses record after record: why the run stops.
    fn refused(&self, why: &RepeatedRefusal, host: &str, outcome: &CallOutcome<Answered<T>>) -> StepError {
        let redactor = &self.exchange.redactor;
        let said = match &outcome.value {
            Some(Ok(answer)) => answer.response.excerpt(200, redactor),
            Some(Err(_)) | None => String::new(),
        };
        let said = call::refused(why, host, &said, &SettingsOf::Service(self.caller.to()));
        let said = redactor.text(&said).into_owned();
        if !why.class.is_later() {
            return StepError::Broken(said);
        }
        let wait = i64::try_from(self.exchange.policy.quota_wait.as_millis()).unwrap_or(i64::MAX);
        let now = self.exchange.lanes.clock().wall().millis();
        self.later(Later { code: why.code, until: Wall::from_millis(now.saturating_add(wait)), said })
    }

    /// The service wants more time than there is.
    fn later(&self, Later { code, until, said }: Later) -> StepError {
        self.caller.later(&said);
        StepError::TryLater { code, until, said }
    }
}

/// Takes questions, and sees to their replies. What is still out ends with it.
pub(super) struct Dispatcher<K: RemoteKind> {
    shared: Arc<Shared<K>>,
    cached: Option<cache::CacheReader>,
    questions: mpsc::UnboundedSender<OpenQuestion<K>>,
    driver: AbortHandle,
    /// Last, so that it goes last.
    _runtime: Arc<Runtime>,
}

struct Shared<K: RemoteKind> {
    kind: Arc<K>,
    link: ServiceLink<K::Parsed>,
    /// Who waits for the reply to each question that is out: batches, and the question's number in
    /// each.
    out: Mutex<HashMap<CacheKey, Vec<Waiter<K::Answer>>>>,
    /// Why the run ends, once the service refuses everybody or asks for more time than there is:
    /// no other question is asked then.
    over: watch::Sender<Option<StepError>>,
}

type Waiter<A> = (Arc<Replies<A>>, usize);

/// A question without a reply. Whoever waits for it is told even if its task ends on a fault.
struct OpenQuestion<K: RemoteKind> {
    shared: Arc<Shared<K>>,
    key: CacheKey,
    request: Request,
    batch: Option<BatchSpan>,
    ended: bool,
}

impl<K: RemoteKind> Dispatcher<K> {
    pub(super) fn new(
        kind: Arc<K>,
        link: ServiceLink<K::Parsed>,
        cached: Option<cache::CacheReader>,
        runtime: Arc<Runtime>,
    ) -> Dispatcher<K> {
        let shared = Arc::new(Shared { kind, link, out: Mutex::default(), over: watch::channel(None).0 });
        // As many as the window of records admits, so it needs no bound of its own.
        let (questions, incoming) = mpsc::unbounded_channel();
        let driver = runtime.spawn(drive(Intake::new(incoming, shared.link.in_flight_max))).abort_handle();
        Dispatcher { shared, cached, questions, driver, _runtime: runtime }
    }

    /// Asks what is not known: each of these questions is another. Their replies are in their order.
    pub(super) fn ask(
        &self,
        questions: Vec<(CacheKey, Request)>,
        batch: Option<BatchSpan>,
    ) -> Result<Arc<Replies<K::Answer>>, StepError> {
        let replies = Arc::new(Replies::new(questions.len()));
        let line = &self.shared.link.line;
        for (at, (key, request)) in questions.into_iter().enumerate() {
            // First those that are out, then the cache: a question leaves the one when it is in the
            // other, and nobody else adds to them.
            if let Some(waiters) = self.shared.out().get_mut(&key) {
                waiters.push((replies.clone(), at));
                line.calls.shared();
                continue;
            }
            if let Some(reply) = self.known(&key)? {
                line.calls.cached();
                replies.put(at, Ok(reply));
                continue;
            }
            self.shared.out().insert(key, vec![(replies.clone(), at)]);
            let shared = self.shared.clone();
            // A driver that has gone drops the question, and that is told.
            let _ = self.questions.send(OpenQuestion { shared, key, request, batch, ended: false });
        }
        Ok(replies)
    }

    /// Who enters calls in the audit that no committed batch holds.
    pub(super) fn caller(&self) -> &Caller {
        &self.shared.link.caller
    }

    /// Counts a question that was equal to another of its batch.
    pub(super) fn repeated(&self) {
        self.shared.link.line.calls.shared();
    }

    fn known(&self, key: &CacheKey) -> Result<Option<Reply<K::Answer>>, StepError> {
        let Some(cached) = &self.cached else { return Ok(None) };
        let stored = cached.get(key).map_err(|e| StepError::Broken(e.to_string()))?;
        let known = stored.as_ref().and_then(|stored| unpack(&stored.answer));
        Ok(known.map(|(status, content_type, body)| self.shared.kind.read(status, content_type, body, None)))
    }
}

impl<K: RemoteKind> Drop for Dispatcher<K> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The questions that wait to be asked, and the places for those that are.
struct Intake<K: RemoteKind> {
    questions: tokio::sync::Mutex<mpsc::UnboundedReceiver<OpenQuestion<K>>>,
    places: Arc<Semaphore>,
    /// Tasks that were made and have not begun.
    coming: AtomicU32,
}

impl<K: RemoteKind> Intake<K> {
    fn new(questions: mpsc::UnboundedReceiver<OpenQuestion<K>>, in_flight_max: u32) -> Arc<Intake<K>> {
        let places = in_flight_max.saturating_mul(PLACES_PER_CALL).clamp(64, 4096);
        let places = Arc::new(Semaphore::new(places as usize));
        Arc::new(Intake { questions: questions.into(), places, coming: AtomicU32::new(0) })
    }

    /// The next question, if there is one at once, and a place for it.
    fn next_at_once(&self) -> Option<(OpenQuestion<K>, OwnedSemaphorePermit)> {
        let place = self.places.clone().try_acquire_owned().ok()?;
        let question = self.questions.try_lock().ok()?.try_recv().ok()?;
        Some((question, place))
    }
}

/// Lets questions into their lane as they come: as many tasks as there can be calls out, besides
/// those that back off. The tasks end with it.
async fn drive<K: RemoteKind>(intake: Arc<Intake<K>>) {
    let mut tasks = JoinSet::new();
    let mut lane: Option<LaneHandle> = None;
    loop {
        let Ok(place) = intake.places.clone().acquire_owned().await else { return };
        // Before a question is taken: what waits here would be overtaken.
        if let Some(lane) = &lane {
            lane.has_room(&intake.coming).await;
        }
        let Some(question) = intake.questions.lock().await.recv().await else { return };
        lane = Some(question.lane());
        intake.coming.fetch_add(1, Ordering::Relaxed);
        tasks.spawn(work(intake.clone(), question, place));
        while tasks.try_join_next().is_some() {}
    }
}

/// Asks one question after another, as long as there is one at once.
async fn work<K: RemoteKind>(
    intake: Arc<Intake<K>>,
    mut question: OpenQuestion<K>,
    mut place: OwnedSemaphorePermit,
) {
    intake.coming.fetch_sub(1, Ordering::Relaxed);
    loop {
        let lane = question.lane();
        question.call(&lane, place).await;
        // Whoever waits has the turn of this one: more would only wait with them.
        if lane.is_crowded() {
            return;
        }
        let Some(next) = intake.next_at_once() else { return };
        (question, place) = next;
    }
}

impl<K: RemoteKind> OpenQuestion<K> {
    fn lane(&self) -> LaneHandle {
        self.shared.link.exchange.lane(&self.request)
    }

    /// Asks until there is an end to it. `place` is free when the answer is durable.
    async fn call(self, lane: &LaneHandle, place: OwnedSemaphorePermit) {
        let link = &self.shared.link;
        let seed = self.key.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        let ask = |number| {
            let (lane, request, batch) = (lane, &self.request, self.batch);
            let first = self.first();
            async move {
                let chance = Rng::fork(seed, u64::from(number));
                let outcome = BatchSpan::within(batch, link.exchange.call_in(lane, request, chance)).await;
                link.line.calls.call(outcome.history());
                if let (Some(act), Some((replies, at))) = (link.caller.act(&outcome), first) {
                    replies.note(at, act);
                }
                outcome
            }
        };
        let mut over = self.shared.over.subscribe();
        let asked = tokio::select! {
            biased;
            Ok(why) = over.wait_for(Option::is_some) => Err(why.clone()),
            asked = call::patient(lane, link.patience, ask) => Ok(asked),
        };
        let mut outcome = match asked {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(later)) => {
                let why = link.later(later);
                return self.end_all(why);
            }
            Err(why) => return self.end(Err(why.unwrap_or(StepError::Cancelled))),
        };
        match (self.shared.read(&mut outcome, lane), link.cache.clone()) {
            (Ok((reply, Some(answer))), Some(cache)) => {
                let at_ms = link.exchange.lanes.clock().wall().millis();
                let stored = CachedAnswer { at_ms, job: 0, failed: false, answer };
                cache.put(self.key, stored, move |durable| {
                    self.end(durable.map(|()| reply).map_err(|e| StepError::Broken(e.to_string())));
                    drop(place);
                });
            }
            (Ok((reply, _)), _) => self.end(Ok(reply)),
            (Err(why), _) => self.end_all(why),
        }
    }

    /// Ends this question and all others.
    fn end_all(self, why: StepError) {
        self.shared.over.send_if_modified(|over| {
            let first = over.is_none();
            over.get_or_insert_with(|| why.clone());
            first
        });
        self.end(Err(why));
    }

    /// Who asked first.
    fn first(&self) -> Option<Waiter<K::Answer>> {
        self.shared.out().get(&self.key).and_then(|waiters| waiters.first().cloned())
    }

    fn end(mut self, reply: Result<Reply<K::Answer>, StepError>) {
        self.tell(reply);
    }

    fn tell(&mut self, reply: Result<Reply<K::Answer>, StepError>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let waiters = self.shared.out().remove(&self.key).unwrap_or_default();
        for (replies, at) in waiters {
            replies.put(at, reply.clone());
        }
    }
}

impl<K: RemoteKind> Drop for OpenQuestion<K> {
    fn drop(&mut self) {
        let fault = "a call to a service failed on a fault of its own; please report this";
        self.tell(Err(StepError::Broken(fault.into())));
    }
}

impl<K: RemoteKind> Shared<K> {
    fn out(&self) -> std::sync::MutexGuard<'_, HashMap<CacheKey, Vec<Waiter<K::Answer>>>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an outcome means for the record, and what of it goes into the response cache.
    #[allow(clippy::type_complexity, reason = "read where it is made")]
    fn read(
        &self,
        outcome: &mut CallOutcome<Answered<K::Parsed>>,
        lane: &LaneHandle,
    ) -> Result<(Reply<K::Answer>, Option<Vec<u8>>), StepError> {
        let not_found = matches!(outcome.verdict.kind, VerdictKind::NoMatch)
            || (self.kind.not_found_is_answer() && outcome.verdict.code == Code::NOT_FOUND);
        let verdict = if not_found {
            Verdict { kind: VerdictKind::NoMatch, ..outcome.verdict }
        } else {
            outcome.verdict
        };
        if let Some(why) = self.link.refusals.count(&verdict) {
            return Err(self.link.refused(&why, &lane.key().host(), outcome));
        }
        let redactor = &self.link.exchange.redactor;
        let is_accepted = outcome.is_accepted();
        match outcome.value.take() {
            Some(Ok(answer)) if is_accepted => {
                let response = &answer.response;
                let body = redactor.bytes(&response.body);
                // A service may repeat the request, and the key with it: then what was read holds it.
                let parsed = matches!(body, Cow::Borrowed(_)).then_some(answer.read);
                let status = response.status.as_u16();
                let content_type = response.content_type().unwrap_or_default();
                let stored = self.link.cache.is_some().then(|| pack(status, content_type, &body));
                Ok((self.kind.read(status, content_type, &body, parsed), stored))
            }
            Some(Ok(answer)) if not_found => {
                Ok((self.kind.read(answer.response.status.as_u16(), "", &[], None), None))
            }
            value => {
                let mut message = format!("{} after {} attempts", outcome.word(), outcome.attempts());
                match &value {
                    Some(Err(failure)) => message.push_str(&format!(": {failure}")),
                    Some(Ok(answer)) => {
                        let said = answer.response.excerpt(200, redactor);
                        if !said.is_empty() {
                            message.push_str(&format!(": the service said {said:?}"));
                        }
                    }
                    None => {}
                }
                Ok((Err(Problem::new(outcome.verdict.code, redactor.text(&message).into_owned())), None))
            }
        }
    }
}

/// An answer as the response cache keeps it.
fn pack(status: u16, content_type: &str, body: &[u8]) -> Vec<u8> {
    let content_type = content_type.get(..content_type.len().min(255)).unwrap_or_default();
    let mut out = Vec::with_capacity(3 + content_type.len() + body.len());
    out.extend_from_slice(&status.to_le_bytes());
    out.push(content_type.len() as u8);
    out.extend_from_slice(content_type.as_bytes());
    out.extend_from_slice(body);
    out
}

/// Status, content type and body of a stored answer.
fn unpack(bytes: &[u8]) -> Option<(u16, &str, &[u8])> {
    let (&[low, high, len], rest) = bytes.split_first_chunk::<3>()?;
    let (content_type, body) = rest.split_at_checked(usize::from(len))?;
    Some((u16::from_le_bytes([low, high]), std::str::from_utf8(content_type).ok()?, body))
}
