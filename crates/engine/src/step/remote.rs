//! What a service knows, through its lane: the part that geocode and http share.
//!
//! All records of a batch are asked at once; the lane lets out as many as the service takes, and
//! waits, retries and gives up by the manifest's policy. The batch goes on when every record has
//! its end: an answer, nothing found, or a dead letter. An answer is kept in the response cache
//! before its record goes on, so that a run that is cut off pays for nothing twice. Equal
//! questions of a batch are asked once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tidegate_core::refusal::RepeatedRefusal;
use tidegate_core::{Code, Kind, Rng, Verdict, Wall};
use tidegate_geo::{Batch, Problem};
use tokio::runtime::Runtime;

use super::{Aside, StepError};
use crate::audit::Attempts;
use crate::cache::{self, Stored};
use crate::call::{self, Later, Outcome, Refusals, SettingsOf};
use crate::http::{Answered, Exchange, Request};
use crate::telemetry::Line;
use crate::traffic::Caller;

/// One service, ready to be asked.
pub(super) struct Remote<T> {
    pub(super) runtime: Arc<Runtime>,
    pub(super) exchange: Exchange<T>,
    pub(super) cache: Option<(cache::Writer, cache::Reader)>,
    pub(super) window: usize,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) line: Line,
    pub(super) attempts: Attempts,
    /// A longer wait than this ends the run: try later.
    pub(super) patience: Duration,
    /// As whom in the traffic of the run.
    pub(super) caller: Caller,
    pub(super) refusals: Refusals,
    /// 404 says that there is nothing about a record, and not that the address is wrong.
    pub(super) not_found_is_answer: bool,
}

/// What a service said to a question: status, content type and body, or why there is nothing.
pub(super) type Said = Result<(u16, String, Vec<u8>), Problem>;

impl<T: Send + 'static> Remote<T> {
    /// Asks all questions; `None` asks nothing. The answers are in the order of the questions.
    /// Calls are noted for the audit, under the first record that asked.
    pub(super) fn ask(
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
            let next = tokio::time::timeout(Duration::from_millis(200), answers.next()).await;
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
        let lane = self.exchange.lane(request);
        let ask = |number| {
            let lane = &lane;
            async move {
                let chance = Rng::fork(seed, u64::from(number));
                let outcome = self.exchange.call_in(lane, request, chance).await;
                self.line.calls.call(outcome.history());
                self.attempts.note(key, &outcome, lane.clock().wall().millis());
                outcome
            }
        };
        let outcome = call::patient(&lane, self.patience, ask).await.map_err(|later| self.later(later))?;
        let not_found = matches!(outcome.verdict.kind, Kind::NoMatch)
            || (self.not_found_is_answer && outcome.verdict.code == Code::NOT_FOUND);
        let verdict =
            if not_found { Verdict { kind: Kind::NoMatch, ..outcome.verdict } } else { outcome.verdict };
        if let Some(why) = self.refusals.count(&verdict) {
            return Err(self.refused(&why, &lane.key().host(), &outcome));
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

    /// The service refuses record after record: why the run stops.
    fn refused(&self, why: &RepeatedRefusal, host: &str, outcome: &Outcome<Answered<T>>) -> StepError {
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

/// A question for each row, and the rows of which nothing can be asked.
pub(super) fn questions(
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
