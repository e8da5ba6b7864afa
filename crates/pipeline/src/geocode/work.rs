//! The middle of a run: questions to answers.

use super::answer::{Finished, Kept};
use super::hand::{self, Taker};
use super::known::{Known, Questions};
use super::order::Credit;
use super::sink::{CREDIT, Out, Sink};
use super::source::{Item, Source, Step};
use super::{By, End, Job, JobError, Prepared, Run, reconcile};
use crate::cache::{self, CacheKey, CacheWriter, CachedAnswer};
use crate::call::{self, CallOutcome, Later, RefusalCounter, SettingsOf};
use crate::http::{Answered, Exchange, ParsedResponse, Request};
use crate::lock::lock;
use crate::profile::Sniffed;
use crate::telemetry::Ended;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidegate_core::patience::{After, Patience};
use tidegate_core::refusal::{RefusalClass, RepeatedRefusal};
use tidegate_core::{Code, Rng, VerdictKind};
use tidegate_geo::format::csv::CsvRow;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Rows read ahead of the work. What is on its way should fit into a core's cache.
const READ_AHEAD: usize = 256;
/// Calls waiting or out, for each that may be out. More than one, so that rows that back off do
/// not keep the lane idle.
const WINDOW_PER_CALL: u32 = 16;
/// Calls waiting for the lane, at least, before no more are made: as many as a fast lane gives
/// permits at once.
const WAITING: usize = 64;
/// Refusals that are kept for later, at most.
const DEFERRED_MAX: usize = 1024;
/// The largest body that the cache keeps.
const KEPT_MAX: usize = 256 * 1024;

/// Milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
}

/// The same job has the same number: its input, its question, its service.
pub(super) fn job_id(job: &Job) -> u64 {
    let by = match &job.by {
        By::Address(columns) => columns.join("\u{1}"),
        By::Place { lon, lat } => format!("{lon}\u{2}{lat}"),
    };
    let input = std::path::absolute(&job.input).unwrap_or_else(|_| job.input.clone());
    let mut hash = Sha256::new();
    for part in [input.to_string_lossy().as_bytes(), by.as_bytes(), job.profile.name().as_bytes()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let bytes: [u8; 32] = hash.finalize().into();
    bytes.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b))
}

/// A row that must be asked.
struct Question {
    row: CsvRow,
    request: Box<Request>,
    key: CacheKey,
}

/// What all rows of a run share.
struct Shop {
    job: Arc<Job>,
    /// Those that have been read and not been taken on.
    rows: tokio::sync::Mutex<Taker>,
    /// How many rows may be on their way.
    places: Arc<Semaphore>,
    /// How many of them wait for the lane, before no more are taken on.
    waiting: usize,
    /// Tasks that were made and have not begun.
    coming: AtomicU32,
    exchange: Exchange<Sniffed>,
    run: Arc<Run>,
    cache: Option<CacheWriter>,
    id: u64,
    questions: Mutex<Questions<CsvRow>>,
    out: Sender<(u64, Out)>,
    refusals: RefusalCounter,
    /// Refusals from before the first accepted answer: kept if the run does not end because of them.
    deferred: Mutex<Vec<(CacheKey, CachedAnswer)>>,
    stopped_by: Mutex<Option<End>>,
    broken: Mutex<Option<JobError>>,
}

/// Rows are asked by tasks of the runtime, so that calls use the cores there are. A task that has
/// asked goes on with the next row that waits: to make one for each row is a tenth of the work.
pub(super) async fn go(prepared: Prepared) -> Result<End, JobError> {
    let Prepared { job, exchange, run } = prepared;
    let (source, size) = Source::open(&job)?;
    run.bytes.1.store(size, Ordering::Relaxed);
    let (cache, reader) = match &job.state {
        Some(dir) => cache::open(dir).map(|(w, r)| (Some(w), Some(r))),
        None => Ok((None, None)),
    }
    .map_err(|e| JobError::Setup(e.to_string()))?;
    let sink = Sink::open(&job, source.header())?;

    let credit = Arc::new(Credit::new(CREDIT));
    // As many rows as there are credits, so it needs no bound of its own.
    let (out, outs) = channel();
    let (items, rows) = hand::way(READ_AHEAD);
    let reading = thread("source", {
        let (job, run, credit) = (Arc::clone(&job), Arc::clone(&run), Arc::clone(&credit));
        move || source.read(&job, &run, &credit, reader.as_ref(), items)
    })?;
    let sinking = thread("sink", {
        let (run, credit) = (Arc::clone(&run), Arc::clone(&credit));
        move || {
            let done = sink.take(&outs, &credit, &run);
            if done.is_err() {
                run.stop();
                credit.close();
            }
            done
        }
    })?;

    let id = job_id(&job);
    let window = job.lane.limit.in_flight_max.saturating_mul(WINDOW_PER_CALL).clamp(64, 4096) as usize;
    let waiting = WAITING.max(job.lane.limit.in_flight_max as usize);
    let refusals = RefusalCounter::new(job.keep_going);
    let shop = Arc::new(Shop {
        job,
        rows: rows.into(),
        places: Arc::new(Semaphore::new(window)),
        waiting,
        coming: AtomicU32::new(0),
        exchange,
        run: Arc::clone(&run),
        cache,
        id,
        questions: Mutex::default(),
        out,
        refusals,
        deferred: Mutex::default(),
        stopped_by: Mutex::new(None),
        broken: Mutex::new(None),
    });
    let mut tasks = JoinSet::new();
    let watching = tokio::spawn(watch_lane(Arc::clone(&shop)));
    while let Some((question, place)) = shop.next().await {
        shop.coming.fetch_add(1, Ordering::Relaxed);
        tasks.spawn(Arc::clone(&shop).work(question, place));
        while tasks.try_join_next().is_some() {}
    }
    home(&run, &mut tasks).await;
    if !run.is_refused() {
        shop.keep_deferred();
    }
    shop.rows.lock().await.close();
    watching.abort();
    // The shop that it held is dropped with it.
    let _ = watching.await;
    credit.close();
    let cache = shop.cache.clone();
    let (stopped_by, broken) = (lock(&shop.stopped_by).take(), lock(&shop.broken).take());
    // The last sender of rows goes with the shop and what the cache still has to tell.
    drop(shop);
    let ended = tokio::task::spawn_blocking(move || {
        if let Some(cache) = cache {
            cache.close();
        }
        (join(reading), join(sinking))
    })
    .await
    .map_err(|e| JobError::Broken(e.to_string()))?;
    ended.0?;
    let (sink, written) = ended.1?;
    if let Some(broken) = broken {
        return Err(broken);
    }
    if run.is_stopping() {
        return Ok(stopped_by.unwrap_or(End::Cancelled));
    }
    reconcile(&run, written)?;
    sink.finish()?;
    Ok(End::Done)
}

/// Waits until every row has been answered or, when the run is stopping, until every call that is
/// out has come back. Rows that wait for their lane or their backoff are then let go.
async fn home(run: &Run, tasks: &mut JoinSet<()>) {
    loop {
        tokio::select! {
            ended = tasks.join_next() => if ended.is_none() { return },
            () = run.stopped() => break,
        }
    }
    run.lane.close();
    while run.lane.snapshot().in_flight > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // From giving back its permit to handing its answer to the cache a task does not wait, and only
    // where it waits can it be ended: no answer is dropped here.
    tasks.shutdown().await;
}

/// A service that has been failing, or asks for a wait, for longer than our patience: try later.
async fn watch_lane(shop: Arc<Shop>) {
    let later = call::given_up(&shop.run.lane, shop.job.patience).await;
    shop.later(later);
}

impl Shop {
    /// The next row that must be asked, and its place; none when there are no more, or the run is
    /// stopping.
    async fn next(&self) -> Option<(Question, OwnedSemaphorePermit)> {
        let next = async {
            let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
            // Places are for rows that back off. When enough wait, another would only wait with them.
            match self.cache {
                Some(_) => self.run.lane.wants(self.waiting).await,
                // A task goes on with the next row by itself: as many as can be out will do.
                None => self.run.lane.has_room(&self.coming).await,
            }
            let mut rows = self.rows.lock().await;
            loop {
                let row = rows.next().await?;
                if let Some(question) = self.take(row) {
                    return Some((question, place));
                }
            }
        };
        tokio::select! {
            biased;
            () = self.run.stopped() => None,
            next = next => next,
        }
    }

    /// The next row that must be asked, if there is one at once.
    fn next_at_once(&self) -> Option<Question> {
        let mut rows = self.rows.try_lock().ok()?;
        while !self.run.is_stopping() {
            if let Some(question) = self.take(rows.next_at_once()?) {
                return Some(question);
            }
        }
        None
    }

    /// Takes one row on: its question, if it must be asked.
    fn take(&self, item: Item) -> Option<Question> {
        let Item { row, step } = item;
        match step {
            Step::Ready(finished) => {
                if finished.cached {
                    self.run.calls.cached();
                }
                self.end(row, Arc::new(finished));
            }
            Step::Ask(request, key) => {
                let known = lock(&self.questions).come(key, row);
                match known {
                    Known::Joined => self.run.calls.shared(),
                    Known::Answered(row, finished) => {
                        self.run.calls.shared();
                        self.end(row, shared(&finished));
                    }
                    Known::Ask(row) => return Some(Question { row, request, key }),
                }
            }
        }
        None
    }

    /// Asks one row after another, as long as there is one at once and the place is free for it.
    async fn work(self: Arc<Self>, mut question: Question, mut place: OwnedSemaphorePermit) {
        self.coming.fetch_sub(1, Ordering::Relaxed);
        while let Some(free) = self.ask(question, place).await {
            // Whoever waits has the turn of this one: more would only wait with them.
            if self.run.lane.is_crowded() {
                return;
            }
            let Some(next) = self.next_at_once() else { return };
            (question, place) = (next, free);
        }
    }

    /// Asks until there is an end to it. The place, if it is free again.
    async fn ask(
        self: &Arc<Self>,
        question: Question,
        place: OwnedSemaphorePermit,
    ) -> Option<OwnedSemaphorePermit> {
        let Question { row, request, key } = question;
        let clock = self.exchange.lanes.clock();
        let mut rng = Rng::fork(self.job.seed, row.number);
        let mut patience = Patience::new(self.job.patience);
        loop {
            let mut outcome = self.exchange.call_in(&self.run.lane, &request, &mut rng).await;
            self.run.calls.call(outcome.history());
            if self.run.is_stopping() && !outcome.is_accepted() {
                return None;
            }
            match patience.after(&outcome.verdict, &outcome.next, clock.mono()) {
                After::Settle => {
                    if let Some(why) = self.refusals.count(&outcome.verdict) {
                        self.refused(why, &outcome);
                        return None;
                    }
                    return self.settle(row, key, &mut outcome, place);
                }
                After::Wait(until) => clock.sleep_until(until).await,
                After::TryLater(later) => {
                    self.later(Later::of(&self.run.lane, later));
                    return None;
                }
            }
        }
    }

    /// The service refuses row after row.
    fn refused(&self, why: RepeatedRefusal, outcome: &CallOutcome<Answered<Sniffed>>) {
        let said = match &outcome.value {
            Some(Ok(answer)) => answer.response.excerpt(200, &self.exchange.redactor),
            Some(Err(_)) | None => String::new(),
        };
        let said = call::refused(&why, &self.run.lane.key().host(), &said, &SettingsOf::Options);
        let said = self.exchange.redactor.text(&said).into_owned();
        lock(&self.stopped_by).get_or_insert(End::Refused { why, said });
        self.run.refused.store(true, Ordering::Relaxed);
        self.run.stop();
    }

    /// The other side wants more time than there is.
    fn later(&self, Later { code, until, said }: Later) {
        lock(&self.stopped_by).get_or_insert(End::TryLater { code, until, said });
        self.run.stop();
    }

    /// A row has its answer: keep it, then let it go. `place` is free when the answer is durable: at
    /// once if it comes back.
    fn settle(
        self: &Arc<Self>,
        row: CsvRow,
        key: CacheKey,
        outcome: &mut CallOutcome<Answered<Sniffed>>,
        place: OwnedSemaphorePermit,
    ) -> Option<OwnedSemaphorePermit> {
        let refused = RefusalClass::of(&outcome.verdict).is_some();
        let (kept, finished) = self.read(outcome);
        let finished = Arc::new(finished);
        let shop = Arc::clone(self);
        let done = {
            let finished = Arc::clone(&finished);
            move |stored: Result<(), cache::CacheError>| {
                if let Err(e) = stored {
                    shop.broke(&e);
                    return;
                }
                let (joined, _forgotten) = lock(&shop.questions).answer(key, &finished);
                shop.end(row, Arc::clone(&finished));
                for row in joined {
                    shop.end(row, shared(&finished));
                }
            }
        };
        match (&self.cache, kept) {
            (Some(cache), Some(kept)) => {
                let failed = finished.ended == Ended::Failed;
                let stored = CachedAnswer { at_ms: now_ms(), job: self.id, failed, answer: kept.to_bytes() };
                if refused && self.refusals.is_open() {
                    self.defer(key, stored);
                    done(Ok(()));
                    return Some(place);
                }
                cache.put(key, stored, move |stored| {
                    done(stored);
                    drop(place);
                });
                None
            }
            _ => {
                done(Ok(()));
                Some(place)
            }
        }
    }

    /// Keeps a refusal for later: it may be the run's and not the row's.
    fn defer(self: &Arc<Self>, key: CacheKey, stored: CachedAnswer) {
        let full = {
            let mut deferred = lock(&self.deferred);
            deferred.push((key, stored));
            deferred.len() >= DEFERRED_MAX
        };
        if full {
            self.keep_deferred();
        }
    }

    /// Keeps the refusals that turned out to be about their rows.
    fn keep_deferred(self: &Arc<Self>) {
        let Some(cache) = &self.cache else { return };
        for (key, stored) in std::mem::take(&mut *lock(&self.deferred)) {
            let shop = Arc::clone(self);
            cache.put(key, stored, move |stored| {
                if let Err(e) = stored {
                    shop.broke(&e);
                }
            });
        }
    }

    /// The cache cannot be written.
    fn broke(&self, e: &cache::CacheError) {
        lock(&self.broken).get_or_insert(JobError::Broken(format!(
            "{e}. Nothing was lost; free the disk and run the same command with --resume"
        )));
        self.run.stop();
    }

    /// What an outcome means for the row, and what of it is kept.
    fn read(&self, outcome: &mut CallOutcome<Answered<Sniffed>>) -> (Option<Kept>, Finished) {
        let (attempts, elapsed) = (outcome.attempts(), outcome.elapsed);
        let redactor = &self.exchange.redactor;
        if let (true, Some(Ok(ParsedResponse { response, read }))) =
            (outcome.is_accepted(), &mut outcome.value)
            && let Some(mut finished) = Finished::of(std::mem::take(read))
        {
            // A service may repeat the request, and the key with it.
            if let Some(label) = finished.answer.as_mut().and_then(|a| a.label.as_mut())
                && let Cow::Owned(masked) = redactor.text(label)
            {
                *label = masked;
            }
            let kept = (self.cache.is_some() && response.body.len() <= KEPT_MAX).then(|| Kept::Response {
                status: response.status.as_u16(),
                content_type: response.content_type().unwrap_or_default().to_string(),
                body: redactor.bytes(&response.body).into_owned(),
            });
            return (kept, Finished { attempts, elapsed, ..finished });
        }
        let code = match outcome.verdict.kind {
            VerdictKind::Done | VerdictKind::NoMatch => Code::UNEXPECTED_BODY,
            _ => outcome.verdict.code,
        };
        // No number of a row: equal rows share it, and a later run may find it elsewhere.
        let mut message = match outcome.history().last() {
            Some(last) if code == Code::DEADLINE_EXCEEDED => {
                format!("its time is over; the last attempt: {}", last.verdict.code)
            }
            _ => outcome.word(),
        };
        if let Some(Err(failure)) = &outcome.value {
            message.push_str(&format!(": {failure}"));
        } else if let Some(Ok(answer)) = &outcome.value {
            let said = answer.response.excerpt(200, redactor);
            if !said.is_empty() {
                message.push_str(&format!(": the service said {said:?}"));
            }
        }
        let message = redactor.text(&message).into_owned();
        // What was refused because of the key is not the row's fault: with another key it is asked again.
        let ours = matches!(
            RefusalClass::of(&outcome.verdict),
            Some(RefusalClass::Credential | RefusalClass::Quota)
        );
        let kept = (!ours).then(|| Kept::Failure { code, message: message.clone() });
        let tried = self.tried(outcome);
        (kept, Finished { attempts, elapsed, tried, ..Finished::failed(code, message) })
    }

    /// The attempts as a dead letter tells them.
    fn tried(&self, outcome: &CallOutcome<Answered<Sniffed>>) -> Vec<crate::letter::LetterAttempt> {
        let clock = self.exchange.lanes.clock();
        let (mono, wall) = (clock.mono(), clock.wall().millis());
        let mut delay = Duration::ZERO;
        let tell = |attempt: &tidegate_core::call::Attempt| crate::letter::LetterAttempt {
            at_ms: wall - mono.since(attempt.sent).as_millis() as i64,
            verdict: attempt.verdict.code.to_string(),
            status: attempt.verdict.status,
            delay_ms: std::mem::replace(&mut delay, attempt.delay).as_millis() as u64,
        };
        outcome.history().iter().map(tell).collect()
    }

    /// A row has ended. It is counted here and not in the sink, where it may wait for its turn.
    fn end(&self, row: CsvRow, finished: Arc<Finished>) {
        self.run.telemetry.records.ended(finished.ended);
        if finished.ended == Ended::Failed {
            let code = finished.code.as_str();
            self.run.telemetry.dead(code, "", || finished.message.clone());
        }
        // A sink that has gone has said why.
        let _ = self.out.send((row.number, Out { row, finished }));
    }
}

/// The answer of an equal row: it cost this one nothing.
fn shared(finished: &Finished) -> Arc<Finished> {
    Arc::new(Finished { attempts: 0, cached: true, ..finished.clone() })
}

type Thread<T> = std::thread::JoinHandle<Result<T, JobError>>;

fn thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
) -> Result<Thread<T>, JobError> {
    std::thread::Builder::new().name(name.into()).spawn(work).map_err(|e| JobError::Setup(e.to_string()))
}

fn join<T>(thread: Thread<T>) -> Result<T, JobError> {
    thread
        .join()
        .unwrap_or_else(|_| Err(JobError::Broken("a part of the run failed on a fault of its own".into())))
}
