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
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tidegate_core::quote;
use tidegate_core::refusal::{RefusalClass, RepeatedRefusal};
use tidegate_core::{Code, Rng, Verdict, VerdictKind, Wall};
use tidegate_geo::Problem;
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use super::StepError;
use super::cached::CachedReply;
use super::digest_map::DigestMap;
use super::lane_watch::LaneWatches;
use super::remote::RemoteKind;
use super::window::{CallHistory, Replies, Settled};
use crate::cache::{self, CacheKey, CachedAnswer};
use crate::call::{self, CallOutcome, Later, RefusalCounter};
use crate::http::{Answered, Exchange, Request};
use crate::lane::LaneHandle;
use crate::letter;
use crate::lock::lock;
use crate::secret::Redactor;
use crate::telemetry::ServiceMetrics;
use crate::telemetry::trace::BatchSpan;
use crate::traffic::Caller;

/// Calls waiting or out, for each that may be out: records that back off must not keep the lane
/// idle.
const PLACES_PER_CALL: u32 = 16;
/// The largest body that the response cache takes.
const CACHED_MAX: usize = 256 * 1024;

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
    /// How old an answer of the response cache may be.
    pub(super) cache_max_age: Duration,
    /// The number of the run, under which failures are cached; 0 caches none.
    pub(super) run: u64,
    /// Its name in the manifest.
    pub(super) name: String,
    /// How the service is spoken to: the name of its profile.
    pub(super) driver: String,
    /// Its address, without a key.
    pub(super) base: String,
}

impl<T> ServiceLink<T> {
    /// The service refuses record after record: why the run stops.
    fn refused(&self, why: &RepeatedRefusal, host: &str, outcome: &CallOutcome<Answered<T>>) -> StepError {
        let redactor = &self.exchange.redactor;
        let said = match &outcome.value {
            Some(Ok(answer)) => answer.response.excerpt(200, redactor),
            Some(Err(_)) | None => String::new(),
        };
        let said = call::refused(why, host, &said, &self.caller.settings());
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
    shared: Arc<DispatcherState<K>>,
    cached: Option<cache::CacheReader>,
    questions: mpsc::UnboundedSender<OpenQuestion<K>>,
    driver: AbortHandle,
    /// The questions that are being asked.
    tasks: Tasks,
    /// Last, so that it goes last.
    runtime: Arc<Runtime>,
}

type Tasks = Arc<tokio::sync::Mutex<JoinSet<()>>>;

struct DispatcherState<K: RemoteKind> {
    kind: Arc<K>,
    link: ServiceLink<K::Parsed>,
    /// Who waits for the reply to each question that is out: batches, and the question's number in
    /// each.
    out: Mutex<OpenReplies<K::Answer>>,
    /// Why the run ends, once the service refuses everybody or asks for more time than there is:
    /// no other question is asked then.
    over: OnceLock<StepError>,
    /// The lane of the service, once it has been asked.
    lane: OnceLock<LaneHandle>,
    watches: Mutex<LaneWatches>,
}

type OpenReplies<A> = DigestMap<Vec<ReplySlot<A>>>;
type ReplySlot<A> = (Arc<Replies<A>>, usize);

/// A question without a reply. Whoever waits for it is told even if its task ends on a fault.
struct OpenQuestion<K: RemoteKind> {
    shared: Arc<DispatcherState<K>>,
    key: CacheKey,
    /// Boxed, because a question is moved often.
    request: Box<Request>,
    batch: Option<BatchSpan>,
    ended: bool,
}

impl<K: RemoteKind> Dispatcher<K> {
    /// What hides the secrets of this service.
    pub(super) fn redactor(&self) -> &Redactor {
        &self.shared.link.exchange.redactor
    }

    pub(super) fn new(
        kind: Arc<K>,
        link: ServiceLink<K::Parsed>,
        cached: Option<cache::CacheReader>,
        runtime: Arc<Runtime>,
    ) -> Dispatcher<K> {
        let shared = Arc::new(DispatcherState {
            kind,
            link,
            out: Mutex::default(),
            over: OnceLock::new(),
            lane: OnceLock::new(),
            watches: Mutex::default(),
        });
        // As many as the window of records admits, so it needs no bound of its own.
        let (questions, incoming) = mpsc::unbounded_channel();
        let tasks = Tasks::default();
        let intake = Intake::new(incoming, shared.link.in_flight_max);
        let driver = runtime.spawn(drive(intake, tasks.clone())).abort_handle();
        Dispatcher { shared, cached, questions, driver, tasks, runtime }
    }

    /// Asks what is not known: each of these questions is another. Their replies are in their order.
    pub(super) fn ask(
        &self,
        questions: Vec<(CacheKey, Box<Request>)>,
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

    /// The reply that the response cache has: an answer that is young enough, or whatever this very
    /// run got. An answer that can no longer be read is asked for again.
    fn known(&self, key: &CacheKey) -> Result<Option<Settled<K::Answer>>, StepError> {
        let Some(cached) = &self.cached else { return Ok(None) };
        let link = &self.shared.link;
        let Some(stored) = cached.get(key).map_err(|e| StepError::Broken(e.to_string()))? else {
            return Ok(None);
        };
        let age = link.exchange.lanes.clock().wall().millis().saturating_sub(stored.at_ms);
        let is_young = u128::try_from(age).is_ok_and(|age| age <= link.cache_max_age.as_millis());
        let is_ours = link.run != 0 && stored.job == link.run;
        if !(is_ours || is_young && !stored.failed) {
            return Ok(None);
        }
        Ok(CachedReply::from_bytes(&stored.answer).and_then(|reply| match reply {
            CachedReply::Response { status, content_type, body } => {
                let reply = self.shared.kind.read(status, &content_type, &body, None);
                if reply.is_ok() {
                    link.refusals.answered_before();
                }
                reply.is_ok().then(|| Settled::known(reply))
            }
            CachedReply::Failure { code, message, history } => {
                Some(Settled { history, ..Settled::known(Err(Problem::new(code, message))) })
            }
        }))
    }

    /// How the service is asked.
    pub(super) fn link(&self) -> &ServiceLink<K::Parsed> {
        &self.shared.link
    }
}

impl<K: RemoteKind> Drop for Dispatcher<K> {
    /// Calls that are out come home, because they are paid for: their answers are in the response
    /// cache before this ends. Nothing new is sent.
    fn drop(&mut self) {
        self.driver.abort();
        if let Some(lane) = self.shared.lane.get().filter(|_| !self.shared.out().is_empty()) {
            let _ = self.shared.over.set(StepError::Cancelled);
            lane.close();
            self.runtime.block_on(async {
                while lane.snapshot().in_flight > 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                // From giving back its permit to handing its answer to the cache a task does not
                // wait, and only where it waits can it be ended.
                self.tasks.lock().await.shutdown().await;
            });
        }
        if let Some(cache) = &self.shared.link.cache {
            cache.close();
        }
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

    /// The next question, if there is one at once, and a place for it: the one that is free again,
    /// or another.
    fn next_at_once(
        &self,
        free: Option<OwnedSemaphorePermit>,
    ) -> Option<(OpenQuestion<K>, OwnedSemaphorePermit)> {
        let place = free.or_else(|| self.places.clone().try_acquire_owned().ok())?;
        let question = self.questions.try_lock().ok()?.try_recv().ok()?;
        Some((question, place))
    }
}

/// Lets questions into their lane as they come: as many tasks as there can be calls out, besides
/// those that back off.
async fn drive<K: RemoteKind>(intake: Arc<Intake<K>>, tasks: Tasks) {
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
        let mut tasks = tasks.lock().await;
        // The future is large, and spawning copies it several times unless it is boxed.
        tasks.spawn(Box::pin(work(intake.clone(), question, place)));
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
        let free = question.call(&lane, place).await;
        // Whoever waits has the turn of this one: more would only wait with them.
        if lane.is_crowded() {
            return;
        }
        let Some(next) = intake.next_at_once(free) else { return };
        (question, place) = next;
    }
}

impl<K: RemoteKind> OpenQuestion<K> {
    fn lane(&self) -> LaneHandle {
        let (shared, request) = (&self.shared, &*self.request);
        let exchange = &shared.link.exchange;
        // All questions of a service have one lane, and to look it up costs more than to compare.
        if let Some(lane) = shared.lane.get().filter(|lane| exchange.is_lane(lane, request)) {
            return lane.clone();
        }
        let lane = exchange.lane(request);
        shared.watch(&lane);
        shared.lane.get_or_init(|| lane.clone());
        lane
    }

    /// Asks until there is an end to it. Returns the place, unless it is free only when the answer
    /// is durable.
    async fn call(self, lane: &LaneHandle, place: OwnedSemaphorePermit) -> Option<OwnedSemaphorePermit> {
        let link = &self.shared.link;
        let seed = self.key.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        let ask = |number| {
            let question = &self;
            async move {
                let chance = Rng::fork(seed, u64::from(number));
                let calling = link.exchange.call_in(lane, &question.request, chance);
                let outcome = match question.batch {
                    None => calling.await,
                    // Boxed, because only a trace needs it and it would be copied with every call.
                    Some(batch) => Box::pin(batch.within(calling)).await,
                };
                link.line.calls.call(outcome.history());
                if let Some(act) = link.caller.act(&outcome)
                    && let Some((replies, at)) = question.first()
                {
                    replies.note(at, act);
                }
                Ok(outcome)
            }
        };
        if let Some(why) = self.shared.over.get().cloned() {
            self.end(Err(why));
            return Some(place);
        }
        let mut outcome = match call::unwatched(lane, link.patience, ask).await {
            Ok(outcome) => outcome,
            Err(later) => {
                let why = link.later(later);
                self.end_all(why);
                return Some(place);
            }
        };
        // What was accepted is paid for, whatever ends the run meanwhile.
        if let Some(why) = self.shared.over.get().filter(|_| !outcome.is_accepted()).cloned() {
            self.end(Err(why));
            return Some(place);
        }
        match (self.shared.read(&mut outcome, lane), link.cache.clone()) {
            (Ok((settled, Some(cached))), Some(cache)) => {
                let at_ms = link.exchange.lanes.clock().wall().millis();
                let failed = settled.reply.is_err();
                let stored = CachedAnswer { at_ms, job: link.run, failed, answer: cached.to_bytes() };
                cache.put(self.key, stored, move |durable| {
                    self.end(durable.map(|()| settled).map_err(|e| StepError::Broken(e.to_string())));
                    drop(place);
                });
                return None;
            }
            (Ok((settled, _)), _) => self.end(Ok(settled)),
            (Err(why), _) => self.end_all(why),
        }
        Some(place)
    }

    /// Ends this question and all others.
    fn end_all(self, why: StepError) {
        self.shared.over.get_or_init(|| why.clone());
        // Nothing new is sent; calls that are out come home.
        if let Some(lane) = self.shared.lane.get() {
            lane.close();
        }
        self.end(Err(why));
    }

    /// Who asked first.
    fn first(&self) -> Option<ReplySlot<K::Answer>> {
        self.shared.out().get(&self.key).and_then(|waiters| waiters.first().cloned())
    }

    fn end(mut self, reply: Result<Settled<K::Answer>, StepError>) {
        self.settle(reply);
    }

    fn settle(&mut self, reply: Result<Settled<K::Answer>, StepError>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut waiters = self.shared.out().remove(&self.key).unwrap_or_default().into_iter();
        let first = waiters.next();
        for (replies, at) in waiters {
            replies.put(at, reply.as_ref().map(Settled::shared).map_err(StepError::clone));
        }
        if let Some((replies, at)) = first {
            replies.put(at, reply);
        }
    }
}

impl<K: RemoteKind> Drop for OpenQuestion<K> {
    fn drop(&mut self) {
        let fault = "internal error in a call to a service; please report this bug";
        self.settle(Err(StepError::Broken(fault.into())));
    }
}

impl<K: RemoteKind> DispatcherState<K> {
    fn out(&self) -> MutexGuard<'_, OpenReplies<K::Answer>> {
        lock(&self.out)
    }

    /// Begins to watch a lane, unless it is watched.
    fn watch(self: &Arc<Self>, lane: &LaneHandle) {
        let shared = Arc::downgrade(self);
        lock(&self.watches).watch(lane, self.link.patience, move |lane, later| {
            shared.upgrade().is_none_or(|shared| shared.give_up(lane, later))
        });
    }

    /// A lane is shut, or fails, for longer than our patience: ends the run, if anybody waits.
    fn give_up(&self, lane: &LaneHandle, later: Later) -> bool {
        let out = self.out();
        if out.is_empty() {
            return false;
        }
        let why = self.over.get_or_init(|| self.link.later(later));
        // Nothing new is sent; calls that are out come home.
        lane.close();
        for (replies, at) in out.values().flatten() {
            replies.put(*at, Err(why.clone()));
        }
        true
    }

    /// What an outcome means for the record, and what of it goes into the response cache.
    #[allow(clippy::type_complexity, reason = "read where it is made")]
    fn read(
        &self,
        outcome: &mut CallOutcome<Answered<K::Parsed>>,
        lane: &LaneHandle,
    ) -> Result<(Settled<K::Answer>, Option<CachedReply>), StepError> {
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
        let (attempts, elapsed) = (outcome.attempts(), outcome.elapsed);
        let settled =
            |reply| Settled { reply, attempts, elapsed, cached: false, history: CallHistory::default() };
        let is_accepted = outcome.is_accepted();
        match outcome.value.take() {
            Some(Ok(answer)) if is_accepted => {
                let response = &answer.response;
                let body = redactor.bytes(&response.body);
                // A service may repeat the request, and the key with it: then what was read holds it.
                let parsed = matches!(body, Cow::Borrowed(_)).then_some(answer.read);
                let status = response.status.as_u16();
                let content_type = response.content_type().unwrap_or_default();
                let reply = self.kind.read(status, content_type, &body, parsed);
                let is_cached = self.link.cache.is_some() && body.len() <= CACHED_MAX && reply.is_ok();
                let cached = is_cached.then(|| CachedReply::Response {
                    status,
                    content_type: content_type.to_owned(),
                    body: body.into_owned(),
                });
                Ok((settled(reply), cached))
            }
            Some(Ok(answer)) if not_found => {
                Ok((settled(self.kind.read(answer.response.status.as_u16(), "", &[], None)), None))
            }
            value => {
                outcome.value = value;
                let problem = self.problem(outcome);
                let history = self.history(outcome);
                let cached = self.is_of_record(&outcome.verdict).then(|| CachedReply::Failure {
                    code: problem.code,
                    message: problem.message.clone(),
                    history: history.clone(),
                });
                Ok((Settled { history, ..settled(Err(problem)) }, cached))
            }
        }
    }

    /// Why a record is given up.
    fn problem(&self, outcome: &CallOutcome<Answered<K::Parsed>>) -> Problem {
        let redactor = &self.link.exchange.redactor;
        let code = match outcome.verdict.kind {
            VerdictKind::Done | VerdictKind::NoMatch => Code::UNEXPECTED_BODY,
            _ => outcome.verdict.code,
        };
        let times = if outcome.attempts() == 1 { "attempt" } else { "attempts" };
        let mut message = format!("{} after {} {times}", outcome.word(), outcome.attempts());
        match &outcome.value {
            Some(Err(failure)) => message.push_str(&format!(": {failure}")),
            Some(Ok(answer)) => {
                let said = answer.response.excerpt(200, redactor);
                if !said.is_empty() {
                    message.push_str(&format!(": the service said {}", quote::said(&said)));
                }
            }
            None => {}
        }
        Problem::new(code, redactor.text(&message).into_owned())
    }

    /// Whether a failure is one of the record, and not one of the key, the quota or the whole run:
    /// those are no reason to give the record up when the run is resumed.
    fn is_of_record(&self, verdict: &Verdict) -> bool {
        let is_ours = match RefusalClass::of(verdict) {
            Some(RefusalClass::Credential | RefusalClass::Quota) => true,
            Some(_) => self.link.refusals.is_open(),
            None => false,
        };
        self.link.run != 0 && self.link.cache.is_some() && !is_ours
    }

    /// The attempts as a dead letter lists them.
    fn history(&self, outcome: &CallOutcome<Answered<K::Parsed>>) -> CallHistory {
        let clock = self.link.exchange.lanes.clock();
        let (mono, wall) = (clock.mono(), clock.wall().millis());
        let not_before = outcome.verdict.until().filter(|until| *until > mono);
        let mut delay = Duration::ZERO;
        let attempt = |attempt: &tidegate_core::call::Attempt| letter::LetterAttempt {
            at_ms: wall - mono.since(attempt.sent).as_millis() as i64,
            verdict: attempt.verdict.code.to_string(),
            status: attempt.verdict.status,
            delay_ms: std::mem::replace(&mut delay, attempt.delay).as_millis() as u64,
            took_ms: attempt.settled.since(attempt.sent).as_millis() as u64,
            hint_ms: attempt.verdict.until().map(|until| until.since(attempt.settled).as_millis() as u64),
        };
        CallHistory {
            attempts: outcome.history().iter().map(attempt).collect(),
            not_before_ms: not_before.map(|until| clock.wall_of(until).millis()),
        }
    }
}
