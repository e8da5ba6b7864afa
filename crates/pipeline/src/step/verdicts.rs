//! What the end of a call means for its record: an answer, nothing found, or a dead letter with its
//! attempts.

use std::borrow::Cow;
use std::time::Duration;

use tidegate_core::quote;
use tidegate_core::refusal::RefusalClass;
use tidegate_core::{Code, Verdict, VerdictKind};
use tidegate_geo::Problem;

use super::StepError;
use super::cached::CachedReply;
use super::dispatch::DispatcherState;
use super::remote::RemoteKind;
use super::window::{CallHistory, Settled};
use crate::call::CallOutcome;
use crate::http::Answered;
use crate::lane::{Clock, LaneHandle};
use crate::letter;

/// The largest body that the response cache takes.
const CACHED_MAX: usize = 256 * 1024;

impl<K: RemoteKind> DispatcherState<K> {
    /// What an outcome means for the record, and what of it goes into the response cache.
    #[allow(clippy::type_complexity, reason = "read where it is made")]
    pub(super) fn read(
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
        let settled = |reply| Settled {
            reply,
            attempts,
            elapsed,
            cached: false,
            provider: self.link.provider,
            history: CallHistory::default(),
        };
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
        let (attempts, not_before_ms) = call_history(outcome, self.link.exchange.lanes.clock());
        CallHistory { attempts, not_before_ms }
    }
}

/// The attempts as a dead letter lists them, and the time that the service named for the next call, in
/// milliseconds since 1970.
pub(crate) fn call_history<T>(
    outcome: &CallOutcome<T>,
    clock: Clock,
) -> (Vec<letter::LetterAttempt>, Option<i64>) {
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
    let attempts = outcome.history().iter().map(attempt).collect();
    (attempts, not_before.map(|until| clock.wall_of(until).millis()))
}
