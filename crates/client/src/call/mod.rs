//! Drives one call through its lane: waits for a permit, sends an attempt, settles the permit, and
//! does what the core decides next.
//!
//! A call is one future. While it backs off or waits for its lane it holds a slot in the window of
//! its driver and nothing else: no permit, no connection, no task. So a driver can run thousands at
//! once, in a window larger than the concurrency of the lane, and a slow or throttled record does
//! not block the others:
//!
//! ```
//! # use tidegate_core::{call::{Call, CallPolicy}, hint::Hints, lane::LaneConfig, Rng, Verdict};
//! # use tidegate_client::{call::{self, AttemptOutcome}, lane::{Clock, LaneHandle, LaneKey}};
//! use futures_util::{StreamExt, stream};
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let lane = LaneHandle::new(LaneKey::of_prefix("mem:", ""), &LaneConfig::default(), Clock::system());
//! let policy = CallPolicy::default();
//! let done = stream::iter(0..10_000u64)
//!     .map(|n| {
//!         let (lane, policy) = (&lane, &policy);
//!         call::run(lane, policy, Call::new(), Rng::fork(7, n), move |_| async move {
//!             AttemptOutcome { verdict: Verdict::DONE, hints: Hints::default(), value: Some(n) }.into()
//!         })
//!     })
//!     .buffer_unordered(1_000)
//!     .filter(|outcome| std::future::ready(outcome.is_accepted()))
//!     .count()
//!     .await;
//! assert_eq!(done, 10_000);
//! # });
//! ```

mod outcome;
mod patient;
mod refusals;
mod steps;
#[cfg(test)]
mod tests;

pub use outcome::CallOutcome;
pub use patient::{Later, given_up, patient, unwatched};
pub use refusals::{RefusalCounter, SettingsOf, advice, refused};
pub use steps::{CallSteps, StepsEnd, StepsNext};

use crate::lane::{LaneHandle, LanePermit, Refused};
use std::time::Duration;
use tidegate_core::call::{Call, CallPolicy, GiveUpReason, Next};
use tidegate_core::hint::Hints;
use tidegate_core::verdict::VerdictKind;
use tidegate_core::{Chance, Code, Mono, Verdict, lane as core};
use tracing::{info, warn};

/// The attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try {
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The number of redirects followed in this attempt.
    pub hop: u32,
    /// The deadline of the attempt. The call enforces it.
    pub by: Mono,
}

/// The outcome of one attempt.
#[derive(Clone, Debug)]
pub struct AttemptOutcome<T> {
    /// The verdict of the classifier.
    pub verdict: Verdict,
    /// The hints in the response headers.
    pub hints: Hints,
    /// The parsed response, if there is one.
    pub value: Option<T>,
}

/// The result of sending an attempt.
pub enum Sent<T> {
    /// The attempt has ended.
    Reply(AttemptOutcome<T>),
    /// The response is a redirect: the same attempt continues through this lane. To the target
    /// server a redirect is a call like any other, so it needs a permit of its own.
    Hop {
        /// The lane of the target.
        lane: LaneHandle,
        /// The HTTP status of the redirect.
        status: u16,
        /// The hints in its headers.
        hints: Hints,
    },
}

impl<T> From<AttemptOutcome<T>> for Sent<T> {
    fn from(reply: AttemptOutcome<T>) -> Sent<T> {
        Sent::Reply(reply)
    }
}

/// Sends the attempts of one call. A closure that returns a future implements it; a type can keep
/// state between redirects.
pub trait Sender {
    /// The parsed response.
    type Value;

    /// Sends once. The future may be dropped at any await point, which is how a timeout ends it.
    fn send(&mut self, attempt: Try) -> impl Future<Output = Sent<Self::Value>> + Send;
}

impl<F, Fut, T> Sender for F
where
    F: FnMut(Try) -> Fut,
    Fut: Future<Output = Sent<T>> + Send,
{
    type Value = T;

    fn send(&mut self, attempt: Try) -> impl Future<Output = Sent<T>> + Send {
        self(attempt)
    }
}

/// The verdict of an attempt that timed out.
pub const TIMED_OUT: Verdict =
    Verdict { kind: VerdictKind::Transient { until: None }, code: Code::TIMEOUT, status: None };

/// Drives one call until it is accepted, parked or given up.
///
/// `sender` is called once per attempt, and once more per redirect.
pub async fn run<S: Sender, C: Chance>(
    lane: &LaneHandle,
    policy: &CallPolicy,
    mut call: Call,
    mut chance: C,
    mut sender: S,
) -> CallOutcome<S::Value> {
    let clock = lane.clock();
    let began = clock.mono();
    let mut spans = Spans::default();
    // The clock is read only where time passes.
    let mut asked = began;
    let (verdict, next, value, ended) = loop {
        let turn = lane.acquire(call.deadline(policy)).await;
        let sent = clock.mono();
        spans.queued += sent.since(asked);
        let permit = match turn {
            Ok(permit) => permit,
            Err(refused) => {
                let (verdict, next) = refusal(&call, policy, refused, lane);
                if let Next::RetryAt(at) = next {
                    note_retry(lane, &call, &verdict, (at.since(sent), "lane"));
                    clock.sleep_until(at).await;
                    asked = clock.mono();
                    continue;
                }
                break (verdict, next, None, sent);
            }
        };
        let by = call.send(policy, sent);
        let (permit, reply) = attempt(permit, call.attempts(), by, &mut sender).await;
        let mut settled = sent;
        let decide = |core: &mut core::Lane, now| {
            settled = now;
            core.next(&mut call, policy, &reply.verdict, now, &mut chance)
        };
        let next = match permit {
            Some(permit) => permit.settle(&reply.verdict, &reply.hints, decide),
            None => lane.with_core(decide),
        };
        spans.called += settled.since(sent);
        let Next::RetryAt(at) = next else { break (reply.verdict, next, reply.value, settled) };
        let by = if server_asked(&reply.verdict) { "server" } else { "backoff" };
        note_retry(lane, &call, &reply.verdict, (at.since(settled), by));
        asked = settled;
        if at > settled {
            clock.sleep_until(at).await;
            asked = clock.mono();
            spans.backoff += asked.since(settled);
        }
    };
    let outcome = CallOutcome { verdict, next, value, call, elapsed: ended.since(began), spans };
    if let Next::GiveUp(_) = outcome.next {
        warn!(
            target: "tidegate::call",
            host = lane.key().host(),
            code = outcome.verdict.code.as_str(),
            status = outcome.verdict.status,
            attempts = outcome.attempts(),
            "gave up: {}",
            outcome.word()
        );
    }
    outcome
}

/// Logs a retry: after which attempt, why, how long it waits, and who asked for that.
fn note_retry(lane: &LaneHandle, call: &Call, verdict: &Verdict, (wait, asked_by): (Duration, &str)) {
    info!(
        target: "tidegate::call",
        host = lane.key().host(),
        attempt = call.attempts(),
        code = verdict.code.as_str(),
        status = verdict.status,
        wait_ms = wait.as_millis() as u64,
        asked_by,
        "retry"
    );
}

/// Whether a server said when the next call may come.
const fn server_asked(verdict: &Verdict) -> bool {
    matches!(
        verdict.kind,
        VerdictKind::Throttled { until: Some(_) }
            | VerdictKind::Transient { until: Some(_) }
            | VerdictKind::QuotaSpent { until: Some(_) }
    )
}

/// The time of a call by activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// The time spent waiting for a permit of the lane.
    pub queued: Duration,
    /// The time spent in attempts.
    pub called: Duration,
    /// The time spent waiting between attempts.
    pub backoff: Duration,
}

/// Sends one attempt with its redirects. Returns the permit of the last hop; `None` if the lane of
/// a target did not send in time.
async fn attempt<S: Sender>(
    first: LanePermit,
    number: u32,
    by: Mono,
    sender: &mut S,
) -> (Option<LanePermit>, AttemptOutcome<S::Value>) {
    let clock = first.lane().clock();
    let mut permit = first;
    let mut hop = 0;
    loop {
        let sending = sender.send(Try { number, hop, by });
        let sent = match clock.instant(by) {
            Some(instant) => tokio::time::timeout_at(instant, sending).await.ok(),
            None => Some(sending.await),
        };
        let (lane, status, hints) = match sent {
            Some(Sent::Reply(reply)) => return (Some(permit), reply),
            Some(Sent::Hop { lane, status, hints }) => (lane, status, hints),
            None => {
                let reply = AttemptOutcome { verdict: TIMED_OUT, hints: Hints::default(), value: None };
                return (Some(permit), reply);
            }
        };
        permit.settle(&Verdict { status: Some(status), ..Verdict::DONE }, &hints, |_, _| ());
        hop += 1;
        match lane.acquire(Some(by)).await {
            Ok(next) => permit = next,
            Err(_) => {
                let reply = AttemptOutcome { verdict: TIMED_OUT, hints: Hints::default(), value: None };
                return (None, reply);
            }
        }
    }
}

/// The verdict and decision for a call that the lane refused.
fn refusal(call: &Call, policy: &CallPolicy, refused: Refused, lane: &LaneHandle) -> (Verdict, Next) {
    let verdict = |kind, code| Verdict { kind, code, status: None };
    match refused {
        Refused::Shut(until, Code::QUOTA_EXHAUSTED) => (
            verdict(VerdictKind::QuotaSpent { until: Some(until) }, Code::QUOTA_EXHAUSTED),
            Next::Park(until, GiveUpReason::QuotaSpent),
        ),
        Refused::Shut(until, code) => {
            (verdict(VerdictKind::Transient { until: Some(until) }, code), call.shut(policy, until))
        }
        Refused::Closed => (
            verdict(VerdictKind::Transient { until: None }, Code::CANCELLED),
            Next::GiveUp(GiveUpReason::Cancelled),
        ),
        Refused::Late(until) => {
            // The lane is late because its server asked for it, or because of its pace.
            let asked = lane.with_core(|core, now| core.reading(now));
            if call.deadline(policy).is_some_and(|end| asked.hint_until >= end) {
                let until = asked.hint_until;
                let kind = VerdictKind::Transient { until: Some(until) };
                return (verdict(kind, asked.hint_code), call.held(policy, until));
            }
            // The record ends as it would if its last answer had left no time for another attempt.
            if let Some(last) = call.history().last() {
                return (last.verdict, call.late(until));
            }
            (
                verdict(VerdictKind::Transient { until: Some(until) }, Code::DEADLINE_EXCEEDED),
                Next::Park(until, GiveUpReason::Deadline),
            )
        }
    }
}
