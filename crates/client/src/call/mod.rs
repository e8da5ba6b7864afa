//! One record through its lane: wait for a permit, send, settle, and do what the core says next.
//!
//! A call is one future. While it backs off or waits for its lane it holds a place in the window
//! of its driver and nothing else: no permit, no connection, no task. So a driver runs thousands
//! of them at once, in a window that is larger than what the lane lets out, and a slow or
//! throttled record never stands in the way of the others:
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
#[cfg(test)]
mod tests;

pub use outcome::CallOutcome;
pub use patient::{Later, given_up, patient};
pub use refusals::{RefusalCounter, SettingsOf, advice, refused};

use crate::lane::{LaneHandle, LanePermit, Refused};
use std::time::Duration;
use tidegate_core::call::{Call, CallPolicy, GiveUpReason, Next};
use tidegate_core::hint::Hints;
use tidegate_core::verdict::VerdictKind;
use tidegate_core::{Chance, Code, Mono, Verdict, lane as core};

/// The attempt that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try {
    /// 1 for the first.
    pub number: u32,
    /// 0, or how many redirects this attempt has followed.
    pub hop: u32,
    /// When it must be answered. The call sees to that by itself.
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

/// What a send came back with.
pub enum Sent<T> {
    /// The end of the attempt.
    Reply(AttemptOutcome<T>),
    /// An answer that says to ask elsewhere: the same attempt goes on through this lane. A hop is
    /// a call like any other for the server that gets it, so it needs a permit of its own.
    Hop {
        /// Where to.
        lane: LaneHandle,
        /// The status that said so.
        status: u16,
        /// What its headers said.
        hints: Hints,
    },
}

impl<T> From<AttemptOutcome<T>> for Sent<T> {
    fn from(reply: AttemptOutcome<T>) -> Sent<T> {
        Sent::Reply(reply)
    }
}

/// Sends the attempts of one record. A closure that returns a future is one; a type of its own
/// can keep state from hop to hop.
pub trait Sender {
    /// What an answer brings.
    type Value;

    /// Sends once. The future may be dropped at any await: that is what a timeout does.
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

/// No answer in time.
pub const TIMED_OUT: Verdict =
    Verdict { kind: VerdictKind::Transient { until: None }, code: Code::TIMEOUT, status: None };

/// Takes one record through its lane until it is accepted, parked or given up.
///
/// `sender` is asked once per attempt, and once more for each hop.
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
    // The clock is looked at where time passes and nowhere else.
    let mut asked = began;
    let (verdict, next, value, ended) = loop {
        let turn = lane.acquire(call.deadline(policy)).await;
        let sent = clock.mono();
        spans.queued += sent.since(asked);
        let permit = match turn {
            Ok(permit) => permit,
            Err(refused) => {
                let (verdict, next) = refusal(&call, policy, refused);
                if let Next::RetryAt(at) = next {
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
        asked = settled;
        if at > settled {
            clock.sleep_until(at).await;
            asked = clock.mono();
            spans.backoff += asked.since(settled);
        }
    };
    CallOutcome { verdict, next, value, call, elapsed: ended.since(began), spans }
}

/// Where the time of a record went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// Waiting for the lane.
    pub queued: Duration,
    /// In calls.
    pub called: Duration,
    /// Waiting on purpose between attempts.
    pub backoff: Duration,
}

/// One attempt with its hops. The permit that comes back is that of the last hop; none, if the
/// lane there would not send in time.
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

/// What a refusal of the lane means for the record.
fn refusal(call: &Call, policy: &CallPolicy, refused: Refused) -> (Verdict, Next) {
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
        Refused::Late(until) => (
            verdict(VerdictKind::Transient { until: Some(until) }, Code::DEADLINE_EXCEEDED),
            Next::Park(until, GiveUpReason::Deadline),
        ),
    }
}
