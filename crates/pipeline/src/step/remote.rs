//! A step that asks a service about each record: the part that geocode and http share.
//!
//! It works in two halves. `begin` admits a batch into the window and sends its questions on their
//! way; the batch can be left alone then, and others begun, while the lane lets out as many calls
//! as the service takes, and waits, retries and gives up by the manifest's policy. `collect` waits
//! until every record of the batch has its end: an answer, nothing found, or a dead letter.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_core::Code;
use tidegate_geo::{Batch, Problem};

use super::asker::ServiceQuestion;
use super::digest_map::DigestMap;
use super::dispatch::Dispatcher;
use super::window::{Admission, CallHistory, RecordWindow, Replies, Reply};
use super::{Aside, BegunBatch, FailedCall, RemoteStep, Step, StepError};
use crate::http::Request;
use crate::manifest::MissingAnswer;
use crate::telemetry::trace::BatchSpan;
use crate::traffic::Caller;

/// What one kind of remote step asks, and what it makes of the answers.
pub(super) trait RemoteKind: Send + Sync + 'static {
    /// What the service's dialect read in a response already.
    type Parsed: Send + 'static;
    /// What is kept of a response until its batch is complete.
    type Answer: Clone + Send + Sync + 'static;

    /// Whether 404 says that there is nothing about a record, and not that the address is wrong.
    fn not_found_is_answer(&self) -> bool {
        false
    }

    /// The question of a row.
    fn question(&self, batch: &Batch, row: usize) -> Result<Request, Problem>;

    /// What a response says.
    fn read(
        &self,
        status: u16,
        content_type: &str,
        body: &[u8],
        parsed: Option<Self::Parsed>,
    ) -> Reply<Self::Answer>;

    /// The largest body that makes sense, in bytes.
    fn body_bytes_max(&self) -> Option<u64> {
        None
    }

    /// The batch with what became of its rows.
    fn fill(&self, batch: Batch, rows: &[AskedRow<'_, Self::Answer>]) -> Result<Batch, StepError>;
}

/// What became of one row.
#[derive(Debug)]
pub(super) struct AskedRow<'a, A> {
    pub(super) answer: Option<&'a A>,
    /// Why it failed; nothing found is no failure.
    pub(super) failure: Option<&'a Problem>,
    /// Attempts made for it by this run.
    pub(super) attempts: u32,
    /// From the first attempt to the end.
    pub(super) elapsed: Duration,
    /// It cost no call of its own in this run.
    pub(super) cached: bool,
    /// The service that its end is from, by its name in the manifest; `None` if none was asked.
    pub(super) provider: Option<&'a str>,
}

/// What happens to records without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnMissing {
    /// The service has nothing for it.
    pub(super) no_match: MissingAnswer,
    /// It could not be asked, or the service failed.
    pub(super) failure: MissingAnswer,
}

impl OnMissing {
    /// Failures are rejected.
    pub(super) fn reject(no_match: MissingAnswer) -> OnMissing {
        OnMissing { no_match, failure: MissingAnswer::Reject }
    }
}

/// A step that asks a service.
pub(super) struct Remote<K: RemoteKind> {
    /// The service that the step names.
    pub(super) first: RemoteProvider<K>,
    /// Its fallbacks, in the order in which they are asked.
    pub(super) fallbacks: Vec<RemoteProvider<K>>,
    pub(super) window: Arc<RecordWindow>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) on: OnMissing,
}

/// A service that a step asks.
pub(super) struct RemoteProvider<K: RemoteKind> {
    /// Its name in the manifest.
    pub(super) name: String,
    pub(super) kind: Arc<K>,
    pub(super) dispatcher: Dispatcher<K>,
}

impl<K: RemoteKind> RemoteProvider<K> {
    fn label(&self) -> ServiceLabel {
        let link = self.dispatcher.link();
        ServiceLabel {
            service: self.name.clone(),
            host: link.line.host.clone(),
            driver: link.driver.clone(),
            url: link.base.clone(),
        }
    }
}

impl<K: RemoteKind> Remote<K> {
    fn providers(&self) -> impl Iterator<Item = &RemoteProvider<K>> {
        std::iter::once(&self.first).chain(&self.fallbacks)
    }

    /// The question about a row, for the service and its fallbacks.
    fn question(&self, batch: &Batch, row: usize) -> Result<ServiceQuestion, Problem> {
        let mut question = ServiceQuestion::new(self.first.kind.question(batch, row)?);
        for next in &self.fallbacks {
            // One that cannot be asked about this record ends the row of fallbacks.
            let Ok(request) = next.kind.question(batch, row) else { break };
            question.then(request);
        }
        Ok(question)
    }
}

/// A batch whose questions are out.
struct QuestionedBatch<K: RemoteKind> {
    kind: Arc<K>,
    batch: Option<Batch>,
    /// The question of each row, or why nothing can be asked of it.
    questions: Vec<Result<usize, Problem>>,
    replies: Arc<Replies<K::Answer>>,
    on: OnMissing,
    stop: Arc<AtomicBool>,
    caller: Caller,
    /// The services that may have been asked.
    services: Vec<ServiceLabel>,
    _admission: Admission,
}

/// Whom a failed call was for, as a dead letter names it.
#[derive(Clone)]
struct ServiceLabel {
    /// The name in the manifest.
    service: String,
    host: String,
    driver: String,
    url: String,
}

impl<K: RemoteKind> RemoteStep for Remote<K> {
    fn begin(
        &mut self,
        batch: Batch,
        span: Option<BatchSpan>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Box<dyn BegunBatch>, StepError> {
        let is_over = || self.stop.load(Ordering::Relaxed) || is_over();
        let admission = self.window.admit(&batch, &is_over).ok_or(StepError::Cancelled)?;
        let mut open: Vec<ServiceQuestion> = Vec::with_capacity(batch.len());
        let mut numbers: DigestMap<usize> =
            DigestMap::with_capacity_and_hasher(batch.len(), Default::default());
        let mut questions = Vec::with_capacity(batch.len());
        for row in 0..batch.len() {
            questions.push(self.question(&batch, row).map(|question| {
                let number = *numbers.entry(question.key).or_insert(open.len());
                if number == open.len() {
                    open.push(question);
                } else {
                    self.first.dispatcher.repeated();
                }
                number
            }));
        }
        Ok(Box::new(QuestionedBatch {
            kind: self.first.kind.clone(),
            batch: Some(batch),
            questions,
            replies: self.first.dispatcher.ask(open, span)?,
            on: self.on,
            stop: self.stop.clone(),
            caller: self.first.dispatcher.caller().clone(),
            services: self.providers().map(RemoteProvider::label).collect(),
            _admission: admission,
        }))
    }

    fn preview(&self, batch: &Batch, row: usize) -> Result<String, Problem> {
        let RemoteProvider { kind, dispatcher, .. } = &self.first;
        kind.question(batch, row).map(|request| dispatcher.redactor().request(&request))
    }
}

impl<K: RemoteKind> Step for Remote<K> {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        self.begin(batch, None, &|| false)?.collect(aside, &|| false)
    }

    fn as_remote(&mut self) -> Option<&mut dyn RemoteStep> {
        Some(self)
    }
}

impl<K: RemoteKind> BegunBatch for QuestionedBatch<K> {
    fn collect(
        mut self: Box<Self>,
        aside: &mut Aside,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Batch, StepError> {
        let replies = self.replies.wait(&|| self.stop.load(Ordering::Relaxed) || is_over())?;
        let acts = self.acts();
        let Some(batch) = self.batch.take() else { return Err(StepError::Cancelled) };
        aside.attempts.extend(acts);
        let nothing = Problem::new(Code::NO_MATCH, "the service has nothing for this record");
        let mut asked: Vec<bool> = vec![false; replies.len()];
        let mut rows = Vec::with_capacity(batch.len());
        let mut calls: HashMap<u64, FailedCall> = HashMap::new();
        let mut refused = Vec::new();
        for (row, question) in self.questions.iter().enumerate() {
            let record = batch.record(row);
            let settled = match question {
                Ok(number) => replies.get(*number),
                Err(_) => None,
            };
            // The first row that asked is the one that cost something.
            let first = question.as_ref().ok().and_then(|number| asked.get_mut(*number));
            let is_first = first.is_some_and(|asked| !std::mem::replace(asked, true));
            let (answer, failure) = match (question, settled.map(|settled| &settled.reply)) {
                (Err(problem), _) => (None, Some(problem)),
                (Ok(_), Some(Ok(Some(answer)))) => (Some(answer), None),
                (Ok(_), Some(Ok(None))) if self.on.no_match == MissingAnswer::Reject => {
                    refused.push((row, nothing.clone()));
                    (None, None)
                }
                (Ok(_), Some(Ok(None))) => {
                    aside.missed.push(record);
                    (None, None)
                }
                (Ok(_), Some(Err(problem))) => (None, Some(problem)),
                (Ok(_), None) => (None, None),
            };
            if let Some(problem) = failure {
                if let Some(settled) = settled.filter(|settled| !settled.history.attempts.is_empty())
                    && let Some(service) = self.services.get(usize::from(settled.provider))
                {
                    calls.insert(record, service.failed(settled.history.clone()));
                }
                match self.on.failure {
                    MissingAnswer::Reject => refused.push((row, problem.clone())),
                    MissingAnswer::Keep => aside.note(&batch, row, problem.clone()),
                }
            }
            rows.push(AskedRow {
                answer,
                failure,
                attempts: settled.filter(|_| is_first).map_or(0, |settled| settled.attempts),
                elapsed: settled.map_or(Duration::ZERO, |settled| settled.elapsed),
                cached: settled.is_some_and(|settled| settled.cached || !is_first),
                provider: settled
                    .and_then(|settled| self.services.get(usize::from(settled.provider)))
                    .map(|service| service.service.as_str()),
            });
        }
        let keep = aside.refuse(&batch, refused);
        let batch = self.kind.fill(batch, &rows)?.filter(&keep);
        aside.name_calls(calls);
        Ok(batch)
    }
}

impl ServiceLabel {
    fn failed(&self, CallHistory { attempts, not_before_ms }: CallHistory) -> FailedCall {
        let ServiceLabel { service, host, driver, url } = self.clone();
        FailedCall { service: host, name: service, driver, url, attempts, not_before_ms }
    }
}

impl<K: RemoteKind> QuestionedBatch<K> {
    /// The calls that were made, each under the first record that asked.
    fn acts(&self) -> Vec<crate::audit::AuditEvent> {
        let noted = self.replies.acts();
        if noted.is_empty() {
            return Vec::new();
        }
        let mut records = HashMap::new();
        for (row, number) in self.questions.iter().enumerate() {
            if let (Ok(number), Some(batch)) = (number, &self.batch) {
                records.entry(*number).or_insert_with(|| batch.record(row));
            }
        }
        let name = |number| records.get(&number).map_or_else(String::new, |n: &u64| format!("record {n}"));
        noted.into_iter().map(|(number, act)| act.key(name(number))).collect()
    }
}

impl<K: RemoteKind> Drop for QuestionedBatch<K> {
    /// Calls that were made for a batch that is not committed are entered in the audit all the same.
    fn drop(&mut self) {
        self.caller.leave(self.acts());
    }
}
