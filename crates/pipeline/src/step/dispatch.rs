//! The questions of a remote step that are out: from a batch into the lane, and back to whoever
//! waits for the answer.
//!
//! Questions are asked by tasks of the runtime. While one waits for its lane or backs off it holds
//! a place and nothing else, so the questions behind it go past it. A task that has asked goes on
//! with the next question: to make one for each is a tenth of the work. An answer is durable in the
//! response cache before its record has its end, so that a run that is cut off pays for nothing
//! twice. Equal questions are asked once: those of a batch, those that are out, and those whose
//! answer is in the cache.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tidegate_core::fallback::FallbackOn;
use tidegate_core::refusal::RepeatedRefusal;
use tidegate_core::{Rng, VerdictKind, Wall};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tracing::warn;

use super::StepError;
use super::asker::{Asker, ServiceQuestion};
use super::digest_map::DigestMap;
use super::lane_watch::LaneWatches;
use super::remote::RemoteKind;
use super::window::{Replies, Settled};
use crate::cache::{self, CachedAnswer};
use crate::call::{self, CallOutcome, Later, RefusalCounter};
use crate::http::{Answered, Exchange};
use crate::lane::LaneHandle;
use crate::lock::lock;
use crate::secret::Redactor;
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
    /// How old an answer of the response cache may be.
    pub(super) cache_max_age: Duration,
    /// The number of the run, under which failures are cached; 0 caches none.
    pub(super) run: u64,
    /// How the service is spoken to: the name of its profile.
    pub(super) driver: String,
    /// Its address, without a key.
    pub(super) base: String,
    /// Its place among the services that the step asks: 0, or that of a fallback.
    pub(super) provider: u8,
}

impl<T> ServiceLink<T> {
    /// The service refuses record after record: why the run stops.
    pub(super) fn refused(
        &self,
        why: &RepeatedRefusal,
        host: &str,
        outcome: &CallOutcome<Answered<T>>,
    ) -> StepError {
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
    asker: Asker<K>,
    driver: AbortHandle,
    /// The questions that are being asked.
    tasks: Tasks,
    /// Last, so that it goes last.
    runtime: Arc<Runtime>,
}

type Tasks = Arc<tokio::sync::Mutex<JoinSet<()>>>;

pub(super) struct DispatcherState<K: RemoteKind> {
    pub(super) kind: Arc<K>,
    pub(super) link: ServiceLink<K::Parsed>,
    /// The service that is asked instead, and when.
    pub(super) next: Option<(Asker<K>, FallbackOn)>,
    /// Who waits for the reply to each question that is out: batches, and the question's number in
    /// each.
    out: Mutex<OpenReplies<K::Answer>>,
    /// Why the run ends, once the service refuses everybody or asks for more time than there is:
    /// no other question is asked then.
    over: OnceLock<StepError>,
    /// The lane of the service, once it has been asked.
    lane: OnceLock<LaneHandle>,
    watches: Mutex<LaneWatches>,
    /// Whether a record was passed on to the fallback; the first one is logged.
    has_passed_on: AtomicBool,
}

type OpenReplies<A> = DigestMap<Vec<ReplySlot<A>>>;
pub(super) type ReplySlot<A> = (Arc<Replies<A>>, usize);

/// A question without a reply. Whoever waits for it is told even if its task ends on a fault.
pub(super) struct OpenQuestion<K: RemoteKind> {
    shared: Arc<DispatcherState<K>>,
    question: ServiceQuestion,
    batch: Option<BatchSpan>,
    ended: bool,
}

impl<K: RemoteKind> Dispatcher<K> {
    /// What hides the secrets of this service.
    pub(super) fn redactor(&self) -> &Redactor {
        &self.asker.shared.link.exchange.redactor
    }

    pub(super) fn new(
        kind: Arc<K>,
        link: ServiceLink<K::Parsed>,
        cached: Option<cache::CacheReader>,
        next: Option<(Asker<K>, FallbackOn)>,
        runtime: Arc<Runtime>,
    ) -> Dispatcher<K> {
        let shared = Arc::new(DispatcherState {
            kind,
            link,
            next,
            out: Mutex::default(),
            over: OnceLock::new(),
            lane: OnceLock::new(),
            watches: Mutex::default(),
            has_passed_on: AtomicBool::new(false),
        });
        // As many as the window of records admits, so it needs no bound of its own.
        let (questions, incoming) = mpsc::unbounded_channel();
        let tasks = Tasks::default();
        let intake = Intake::new(incoming, shared.link.in_flight_max);
        let driver = runtime.spawn(drive(intake, tasks.clone())).abort_handle();
        let cached = cached.map(|cached| Arc::new(Mutex::new(cached)));
        Dispatcher { asker: Asker { shared, cached, questions }, driver, tasks, runtime }
    }

    /// Asks what is not known: each of these questions is another. Their replies are in their order.
    pub(super) fn ask(
        &self,
        questions: Vec<ServiceQuestion>,
        batch: Option<BatchSpan>,
    ) -> Result<Arc<Replies<K::Answer>>, StepError> {
        let replies = Arc::new(Replies::new(questions.len()));
        for (at, question) in questions.into_iter().enumerate() {
            self.asker.ask(question, vec![(replies.clone(), at)], batch)?;
        }
        Ok(replies)
    }

    /// Who asks, for the service that this one is the fallback of.
    pub(super) fn asker(&self) -> Asker<K> {
        self.asker.clone()
    }

    /// Who enters calls in the audit that no committed batch holds.
    pub(super) fn caller(&self) -> &Caller {
        &self.asker.shared.link.caller
    }

    /// Counts a question that was equal to another of its batch.
    pub(super) fn repeated(&self) {
        self.asker.shared.link.line.calls.shared();
    }

    /// How the service is asked.
    pub(super) fn link(&self) -> &ServiceLink<K::Parsed> {
        &self.asker.shared.link
    }
}

impl<K: RemoteKind> Drop for Dispatcher<K> {
    /// Calls that are out come home, because they are paid for: their answers are in the response
    /// cache before this ends. Nothing new is sent.
    fn drop(&mut self) {
        self.driver.abort();
        if let Some(lane) = self.asker.shared.lane.get().filter(|_| !self.asker.shared.out().is_empty()) {
            let _ = self.asker.shared.over.set(StepError::Cancelled);
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
        if let Some(cache) = &self.asker.shared.link.cache {
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
    pub(super) fn new(
        shared: Arc<DispatcherState<K>>,
        question: ServiceQuestion,
        batch: Option<BatchSpan>,
    ) -> OpenQuestion<K> {
        OpenQuestion { shared, question, batch, ended: false }
    }

    fn lane(&self) -> LaneHandle {
        let (shared, request) = (&self.shared, &*self.question.request);
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
        let seed = self.question.key.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        let ask = |number| {
            let question = &self;
            async move {
                let chance = Rng::fork(seed, u64::from(number));
                let calling = link.exchange.call_in(lane, &question.question.request, chance);
                let outcome = match question.batch {
                    None => calling.await,
                    // Boxed, because only a trace needs it and it would be copied with every call.
                    Some(batch) => Box::pin(batch.within(calling)).await,
                };
                link.line.calls.call(outcome.history());
                if question.question.request.idempotency_key.is_none() {
                    link.line.calls.unkeyed(outcome.history());
                }
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
        let falls = |outcome: &CallOutcome<_>| self.question.has_next() && self.shared.falls(outcome, lane);
        let mut outcome = match call::unwatched(lane, link.patience, ask, falls).await {
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
        // Nothing found is an answer, and is cached as one before it is passed on.
        if falls(&outcome) && outcome.verdict.kind != VerdictKind::NoMatch {
            self.pass_on(outcome.attempts());
            return Some(place);
        }
        let spent = self.question.spent;
        let read = self.shared.read(&mut outcome, lane).map(|(mut settled, cached)| {
            settled.attempts += spent;
            (settled, cached)
        });
        match (read, link.cache.clone()) {
            (Ok((settled, Some(cached))), Some(cache)) => {
                let at_ms = link.exchange.lanes.clock().wall().millis();
                let failed = settled.reply.is_err();
                let stored = CachedAnswer { at_ms, job: link.run, failed, answer: cached.to_bytes() };
                cache.put(self.question.key, stored, move |durable| {
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
        self.shared.out().get(&self.question.key).and_then(|waiters| waiters.first().cloned())
    }

    fn end(mut self, reply: Result<Settled<K::Answer>, StepError>) {
        if let Ok(Settled { reply: Ok(None), attempts, .. }) = reply
            && self.question.has_next()
            && self.shared.passes_no_match()
        {
            self.question.spent = 0;
            return self.pass_on(attempts);
        }
        self.settle(reply);
    }

    /// Asks the next service, for all who wait. `attempts` is what this service cost.
    fn pass_on(mut self, attempts: u32) {
        let Some(((next, _), mut question)) = self.shared.next.as_ref().zip(self.question.next()) else {
            return;
        };
        question.spent = self.question.spent.saturating_add(attempts);
        if !self.shared.has_passed_on.swap(true, Ordering::Relaxed) {
            warn!(target: "tidegate::call", host = self.shared.link.line.host, "a record is passed on to the fallback");
        }
        self.ended = true;
        let waiters = self.shared.out().remove(&self.question.key).unwrap_or_default();
        if let Err(why) = next.ask(question, waiters.clone(), self.batch) {
            for (replies, at) in waiters {
                replies.put(at, Err(why.clone()));
            }
        }
    }

    fn settle(&mut self, reply: Result<Settled<K::Answer>, StepError>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut waiters = self.shared.out().remove(&self.question.key).unwrap_or_default().into_iter();
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
    pub(super) fn out(&self) -> MutexGuard<'_, OpenReplies<K::Answer>> {
        lock(&self.out)
    }

    /// Whether a call that ended so is passed on to the next service.
    fn falls(&self, outcome: &CallOutcome<Answered<K::Parsed>>, lane: &LaneHandle) -> bool {
        self.next.as_ref().is_some_and(|(_, on)| {
            let breaker = lane.with_core(|core, now| core.breaker().state(now));
            on.applies(&outcome.verdict, &outcome.next, breaker)
        })
    }

    /// Whether a record for which the service has nothing is passed on.
    pub(super) fn passes_no_match(&self) -> bool {
        self.next.as_ref().is_some_and(|(_, on)| on.no_match)
    }

    /// Begins to watch a lane, unless it is watched.
    fn watch(self: &Arc<Self>, lane: &LaneHandle) {
        if self.next.as_ref().is_some_and(|(_, on)| on.circuit_open) {
            lane.refuse_while_open();
        }
        let shared = Arc::downgrade(self);
        lock(&self.watches).watch(lane, self.link.patience, move |lane, later| {
            shared.upgrade().is_none_or(|shared| shared.give_up(lane, later))
        });
    }

    /// A lane is shut, or fails, for longer than our patience: ends the run, if anybody waits.
    fn give_up(&self, lane: &LaneHandle, later: Later) -> bool {
        let out = self.out();
        let is_passed_on = self.next.as_ref().is_some_and(|(_, on)| on.covers(later.code));
        if out.is_empty() || is_passed_on {
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
}
