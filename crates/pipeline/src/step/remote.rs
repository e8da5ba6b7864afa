//! A step that asks a service about each record: the part that geocode and http share.
//!
//! It works in two halves. `begin` admits a batch into the window and sends its questions on their
//! way; the batch can be left alone then, and others begun, while the lane lets out as many calls
//! as the service takes, and waits, retries and gives up by the manifest's policy. `collect` waits
//! until every record of the batch has its end: an answer, nothing found, or a dead letter.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::Code;
use tidegate_geo::{Batch, Problem};

use super::dispatch::Dispatcher;
use super::window::{Admission, RecordWindow, Replies, Reply};
use super::{Aside, BegunBatch, RemoteStep, Step, StepError};
use crate::cache::CacheKey;
use crate::http::Request;
use crate::manifest::Missing;
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

    /// The batch with the answers to its rows.
    fn fill(&self, batch: Batch, answers: &[Option<&Self::Answer>]) -> Result<Batch, StepError>;
}

/// A step that asks a service.
pub(super) struct Remote<K: RemoteKind> {
    pub(super) kind: Arc<K>,
    pub(super) dispatcher: Dispatcher<K>,
    pub(super) window: Arc<RecordWindow>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) no_match: Missing,
}

/// A batch whose questions are out.
struct QuestionedBatch<K: RemoteKind> {
    kind: Arc<K>,
    batch: Option<Batch>,
    /// The question of each row; none if nothing can be asked of it.
    questions: Vec<Option<usize>>,
    replies: Arc<Replies<K::Answer>>,
    refused: Vec<(usize, Problem)>,
    no_match: Missing,
    stop: Arc<AtomicBool>,
    caller: Caller,
    _admission: Admission,
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
        let mut open: Vec<(CacheKey, Request)> = Vec::with_capacity(batch.len());
        let mut numbers: HashMap<CacheKey, usize> = HashMap::with_capacity(batch.len());
        let mut refused = Vec::new();
        let mut questions = Vec::with_capacity(batch.len());
        for row in 0..batch.len() {
            questions.push(match self.kind.question(&batch, row) {
                Ok(request) => {
                    let key = request.idempotency_key.unwrap_or_else(|| request.key_bytes());
                    let number = *numbers.entry(key).or_insert(open.len());
                    if number == open.len() {
                        open.push((key, request));
                    } else {
                        self.dispatcher.repeated();
                    }
                    Some(number)
                }
                Err(problem) => {
                    refused.push((row, problem));
                    None
                }
            });
        }
        Ok(Box::new(QuestionedBatch {
            kind: self.kind.clone(),
            batch: Some(batch),
            questions,
            replies: self.dispatcher.ask(open, span)?,
            refused,
            no_match: self.no_match,
            stop: self.stop.clone(),
            caller: self.dispatcher.caller().clone(),
            _admission: admission,
        }))
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
        let mut refused = std::mem::take(&mut self.refused);
        let Some(batch) = self.batch.take() else { return Err(StepError::Cancelled) };
        aside.attempts.extend(acts);
        let mut answers = Vec::with_capacity(batch.len());
        for (row, question) in self.questions.iter().enumerate() {
            let reply = question.and_then(|number| replies.get(number));
            answers.push(match reply {
                Some(Ok(Some(answer))) => Some(answer),
                Some(Ok(None)) if self.no_match == Missing::Reject => {
                    let what = "the service has nothing for this record";
                    refused.push((row, Problem::new(Code::NO_MATCH, what)));
                    None
                }
                Some(Ok(None)) => {
                    aside.missed.push(batch.record(row));
                    None
                }
                Some(Err(problem)) => {
                    refused.push((row, problem.clone()));
                    None
                }
                None => None,
            });
        }
        let batch = self.kind.fill(batch, &answers)?;
        refused.sort_by_key(|(row, _)| *row);
        Ok(aside.set_aside(batch, refused))
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
            if let (Some(number), Some(batch)) = (number, &self.batch) {
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
