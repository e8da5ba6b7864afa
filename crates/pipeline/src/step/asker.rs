//! Where a question goes: to what is known already, to the service, or past it to its fallback.
//!
//! A service with a fallback passes on what it cannot answer ([`tidegate_core::fallback`]). The
//! question for the next service was made together with the first one, because the record is with
//! its batch by then. Whoever waits for the answer does not notice: the reply says which service
//! it is from. An answer that this very run got from a fallback is used before the first service is
//! asked, so that a resumed run pays for no record twice.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tidegate_geo::Problem;
use tokio::sync::mpsc;

use super::StepError;
use super::cached::CachedReply;
use super::dispatch::{DispatcherState, OpenQuestion, ReplySlot};
use super::remote::RemoteKind;
use super::window::Settled;
use crate::cache::{self, CacheKey, CachedAnswer};
use crate::http::Request;
use crate::lock::lock;
use crate::telemetry::trace::BatchSpan;

/// What is asked about one record: of the service, and of each fallback.
pub(super) struct ServiceQuestion {
    pub(super) key: CacheKey,
    /// Boxed, because a question is moved often.
    pub(super) request: Box<Request>,
    /// The questions for the services after this one.
    rest: VecDeque<(CacheKey, Box<Request>)>,
    /// Attempts that services before this one cost.
    pub(super) spent: u32,
}

fn keyed(request: Request) -> (CacheKey, Box<Request>) {
    (request.idempotency_key.unwrap_or_else(|| request.key_bytes()), Box::new(request))
}

impl ServiceQuestion {
    pub(super) fn new(request: Request) -> ServiceQuestion {
        let (key, request) = keyed(request);
        ServiceQuestion { key, request, rest: VecDeque::new(), spent: 0 }
    }

    /// Adds the question for the next fallback.
    pub(super) fn then(&mut self, request: Request) {
        self.rest.push_back(keyed(request));
    }

    /// Whether there is another service to ask.
    pub(super) fn has_next(&self) -> bool {
        !self.rest.is_empty()
    }

    /// The question for the next service; this one has none then.
    pub(super) fn next(&mut self) -> Option<ServiceQuestion> {
        let (key, request) = self.rest.pop_front()?;
        Some(ServiceQuestion { key, request, rest: std::mem::take(&mut self.rest), spent: self.spent })
    }
}

/// Asks one service, and knows what it said before.
pub(super) struct Asker<K: RemoteKind> {
    pub(super) shared: Arc<DispatcherState<K>>,
    pub(super) cached: Option<Arc<Mutex<cache::CacheReader>>>,
    pub(super) questions: mpsc::UnboundedSender<OpenQuestion<K>>,
}

impl<K: RemoteKind> Clone for Asker<K> {
    fn clone(&self) -> Asker<K> {
        Asker { shared: self.shared.clone(), cached: self.cached.clone(), questions: self.questions.clone() }
    }
}

impl<K: RemoteKind> Asker<K> {
    /// Asks a question, unless the answer is known or on its way. `waiters` get the reply.
    pub(super) fn ask(
        &self,
        mut question: ServiceQuestion,
        waiters: Vec<ReplySlot<K::Answer>>,
        batch: Option<BatchSpan>,
    ) -> Result<(), StepError> {
        let line = &self.shared.link.line;
        // First those that are out, then the cache: a question leaves the one when it is in the
        // other, and nobody else adds to them.
        if let Some(known) = self.shared.out().get_mut(&question.key) {
            waiters.iter().for_each(|_| line.calls.shared());
            known.extend(waiters);
            return Ok(());
        }
        let known = self.known(&question.key)?;
        let passes = match &known {
            Some(Settled { reply: Ok(None), .. }) => self.shared.passes_no_match(),
            Some(_) => false,
            None => self.is_answered_next(&question)?,
        };
        if passes
            && let Some((next, _)) = &self.shared.next
            && let Some(question) = question.next()
        {
            return next.ask(question, waiters, batch);
        }
        if let Some(reply) = known {
            for (replies, at) in waiters {
                line.calls.cached();
                replies.put(at, Ok(reply.clone()));
            }
            return Ok(());
        }
        self.shared.out().insert(question.key, waiters);
        let shared = self.shared.clone();
        // A driver that has gone drops the question, and that is told.
        let _ = self.questions.send(OpenQuestion::new(shared, question, batch));
        Ok(())
    }
}

impl<K: RemoteKind> Asker<K> {
    /// The reply that the response cache has: an answer that is young enough, or whatever this very
    /// run got. An answer that can no longer be read is asked for again.
    fn known(&self, key: &CacheKey) -> Result<Option<Settled<K::Answer>>, StepError> {
        let link = &self.shared.link;
        let Some(stored) = self.stored(key)? else { return Ok(None) };
        let age = link.exchange.lanes.clock().wall().millis().saturating_sub(stored.at_ms);
        let is_young = u128::try_from(age).is_ok_and(|age| age <= link.cache_max_age.as_millis());
        if !(self.is_ours(&stored) || is_young && !stored.failed) {
            return Ok(None);
        }
        let settled = |reply| Settled { provider: link.provider, ..Settled::known(reply) };
        Ok(CachedReply::from_bytes(&stored.answer).and_then(|reply| match reply {
            CachedReply::Response { status, content_type, body } => {
                let reply = self.shared.kind.read(status, &content_type, &body, None);
                if reply.is_ok() {
                    link.refusals.answered_before();
                }
                reply.is_ok().then(|| settled(reply))
            }
            CachedReply::Failure { code, message, history } => {
                Some(Settled { history, ..settled(Err(Problem::new(code, message))) })
            }
        }))
    }

    /// Whether a service after this one answered the question in this very run.
    fn is_answered_next(&self, question: &ServiceQuestion) -> Result<bool, StepError> {
        let mut next = self.shared.next.as_ref();
        for (key, _) in &question.rest {
            let Some((asker, _)) = next else { break };
            if asker.stored(key)?.is_some_and(|stored| asker.is_ours(&stored) && !stored.failed) {
                return Ok(true);
            }
            next = asker.shared.next.as_ref();
        }
        Ok(false)
    }

    fn stored(&self, key: &CacheKey) -> Result<Option<CachedAnswer>, StepError> {
        let Some(cached) = &self.cached else { return Ok(None) };
        lock(cached).get(key).map_err(|e| StepError::Broken(e.to_string()))
    }

    /// Whether this very run got an answer.
    fn is_ours(&self, stored: &CachedAnswer) -> bool {
        self.shared.link.run != 0 && stored.job == self.shared.link.run
    }
}
