//! One record's attempts through a lane.
//!
//! A call counts its attempts, keeps its deadline and its history, and after every verdict says
//! what to do with the record: accept the answer, retry at a time, park it until a time, or give
//! it up with a reason. The rules, in the order in which they are asked:
//!
//! 1. An answer is accepted; a permanent failure costs one attempt and ends the record.
//! 2. A spent quota parks the record until the server's date.
//! 3. A repeat must be safe, and within the bound of attempts.
//! 4. Never earlier than the server asked. A hint beyond the deadline or the cap of the backoff
//!    does not become an early retry: the record is parked until then. Jitter comes after the
//!    hint, never before it. A hint of zero is floored at half the base delay.
//! 5. The retry budget of the lane pays, or the retry waits for it, or the record is given up.
//!
//! Throttles in a lane that learns are special: the lane itself decides when the next call may
//! go, so a throttled record waits for the lane and not for a backoff of its own
//! ([`ThrottleWait::Lane`]). Otherwise the tail of every drain would be one backoff long. A refusal that a
//! limit explains (the lane has learned it, or the server says until when) costs no attempt, whether it is a
//! throttle or a failure (nginx says 503): it is about the calls of all, and the server did no work for it.
//! That ends after [`LIMITED_FREE`] refusals, or with the deadline: then it is about the record. The deadline does
//! not come nearer while a throttled record waits for its lane without a time that the server named: until it is
//! sent again, it is as one that was never sent. A throttle that nothing explains
//! waits for the record's own backoff, and counts. So are failures of an outage that do not count ([`CallPolicy::outages_free`]): the breaker decides when
//! the service is asked again, and the record that was the last probe must not sleep for minutes
//! when it is back. Neither makes the record's own backoff longer.

mod policy;

pub use policy::{CallPolicy, LIMITED_FREE, LongWait, ThrottleWait, WhileOpen};

use crate::chance::Chance;
use crate::retry::budget::{Budget, Grant};
use crate::taxonomy::Code;
use crate::time::Mono;
use crate::verdict::{Verdict, VerdictKind};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

/// One attempt as it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The time of sending.
    pub sent: Mono,
    /// The time at which its verdict was known.
    pub settled: Mono,
    /// Its verdict.
    pub verdict: Verdict,
    /// The backoff delay after it.
    pub delay: Duration,
}

/// Why a record was parked or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUpReason {
    /// The failure cannot heal.
    Permanent,
    /// All attempts are used.
    Exhausted,
    /// The deadline is over, or the next attempt would start after it.
    Deadline,
    /// The server asked for a longer wait than the policy allows.
    HintTooFar,
    /// The quota is spent.
    QuotaSpent,
    /// The retry budget of the lane is empty.
    BudgetEmpty,
    /// The breaker is open.
    CircuitOpen,
    /// A repeat could do the work twice.
    NotRepeatable,
    /// The run was interrupted.
    Cancelled,
}

/// What to do with the record now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Take the answer.
    Accept,
    /// Try again, not before this time.
    RetryAt(Mono),
    /// Put it aside, not before this time.
    Park(Mono, GiveUpReason),
    /// It is a dead letter.
    GiveUp(GiveUpReason),
}

/// One record's attempts. 48 bytes, so that a driver with a million of them in the air finds one
/// and what it keeps beside it in a single line of the cache.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// Attempts sent so far.
    attempts: u32,
    /// Attempts that were throttled, and no limit explains it.
    throttles: u16,
    /// Attempts that failed in an outage of the service.
    outages: u16,
    /// Attempts that were refused by a limit which explains it.
    limits: u16,
    /// Attempts after which it waited for its lane, and not for a backoff of its own.
    paced: u16,
    /// A repeat is not safe.
    once: bool,
    /// Whether `started` means anything.
    begun: bool,
    /// What its lane knows of the last failure.
    cause: FailureCause,
    waits_for: WaitsFor,
    /// When the first attempt was sent, later by the time in which it stood still.
    started: Mono,
    /// When the last attempt was sent.
    sent: Mono,
    /// The last backoff delay, in nanoseconds.
    previous: u64,
    history: Option<Box<History>>,
}

/// What the lane knows of the last failure of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FailureCause {
    /// Nothing but its verdict.
    #[default]
    Verdict,
    /// The service is down.
    Outage,
    /// A limit that the lane has learned, or for which the server says until when.
    Limit,
    /// A throttle that no limit explains.
    Unexplained,
}

/// What a call waits for after a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WaitsFor {
    /// Its own backoff, or the time that the server named.
    #[default]
    Itself,
    /// Its lane, which is refused: it waits as one that was never sent, and its time stands still.
    Lane,
    /// The breaker.
    Breaker,
}

#[derive(Clone, Debug, Default)]
struct History(Vec<Attempt>);

const _: () = assert!(size_of::<Call>() == 48);

/// How many attempts were repeated although the server may have executed them: no answer came in
/// time, or the connection was lost. An attempt that found no connection may be among them.
#[must_use]
pub fn maybe_twice(history: &[Attempt]) -> u64 {
    let unknown = [Code::TIMEOUT, Code::CONNECTION_RESET, Code::TRUNCATED_BODY];
    let repeated = history.split_last().map_or(&[][..], |(_, repeated)| repeated);
    repeated.iter().filter(|attempt| unknown.contains(&attempt.verdict.code)).count() as u64
}

impl Call {
    /// A call whose repeat is safe: an idempotent method, or an idempotency key sent along.
    #[must_use]
    pub fn new() -> Call {
        Call::default()
    }

    /// A call that must not be repeated once it may have been executed.
    #[must_use]
    pub fn once() -> Call {
        Call { once: true, ..Call::default() }
    }

    /// A call that goes on after a restart: its earlier attempts count.
    #[must_use]
    pub fn resumed(attempts: u32) -> Call {
        Call { attempts, ..Call::default() }
    }

    /// An attempt is sent. Returns the time by which it must be answered.
    pub fn send(&mut self, policy: &CallPolicy, now: Mono) -> Mono {
        self.attempts = self.attempts.saturating_add(1);
        if !self.begun {
            (self.begun, self.started) = (true, now);
        } else if self.waits_for == WaitsFor::Lane {
            self.started += now.since(self.sent);
        }
        (self.sent, self.waits_for) = (now, WaitsFor::Itself);
        (now + policy.attempt_timeout).min(self.started + policy.deadline)
    }

    /// The last attempt failed and the breaker is open: the failure was the service's. To be told
    /// before [`Call::next`] is asked.
    pub(crate) fn outage(&mut self) {
        self.outages = self.outages.saturating_add(1);
        self.cause = FailureCause::Outage;
    }

    /// The last attempt was refused by a limit that the lane has learned, or for which the server says until
    /// when. To be told before [`Call::next`].
    pub(crate) fn limited(&mut self) {
        self.limits = self.limits.saturating_add(1);
        self.cause = FailureCause::Limit;
    }

    /// The last attempt was throttled, and no limit explains it. To be told before [`Call::next`].
    pub(crate) fn unexplained(&mut self) {
        self.cause = FailureCause::Unexplained;
    }

    /// Attempts sent.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The attempts as they went, if the policy keeps them.
    #[must_use]
    pub fn history(&self) -> &[Attempt] {
        self.history.as_ref().map_or(&[], |history| &history.0)
    }

    /// When the record must be finished; `None` before its first attempt. Never, while it waits for a lane that
    /// is refused.
    #[must_use]
    pub fn deadline(&self, policy: &CallPolicy) -> Option<Mono> {
        self.end(policy).map(|end| if self.waits_for == WaitsFor::Lane { Mono::FAR } else { end })
    }

    /// The same as if its time went on.
    fn end(&self, policy: &CallPolicy) -> Option<Mono> {
        self.begun.then(|| self.started + policy.deadline)
    }

    /// A verdict came for the last attempt: what now?
    pub fn next<C: Chance>(
        &mut self,
        policy: &CallPolicy,
        verdict: &Verdict,
        now: Mono,
        chance: &mut C,
        budget: &mut Budget,
    ) -> Next {
        let next = self.decide(policy, verdict, now, chance, budget);
        if policy.history {
            let delay = match next {
                Next::RetryAt(t) | Next::Park(t, _) => t.since(now),
                Next::Accept | Next::GiveUp(_) => Duration::ZERO,
            };
            let attempt = Attempt { sent: self.sent, settled: now, verdict: *verdict, delay };
            self.history.get_or_insert_default().0.push(attempt);
        }
        next
    }

    /// The breaker is shut until `until`: wait for it, or park if that is beyond the deadline.
    /// Spends no attempt.
    #[must_use]
    pub fn shut(&self, policy: &CallPolicy, until: Mono) -> Next {
        match self.end(policy) {
            _ if policy.while_open == WhileOpen::Park => Next::Park(until, GiveUpReason::CircuitOpen),
            Some(end) if until >= end => Next::Park(until, GiveUpReason::CircuitOpen),
            _ => Next::RetryAt(until),
        }
    }

    /// The server asked the whole lane to wait until `until`, because of another record: the same
    /// as if it had been asked for this one. Spends no attempt.
    #[must_use]
    pub fn held(&self, policy: &CallPolicy, until: Mono) -> Next {
        match self.end(policy) {
            Some(end) if until >= end => policy.long_wait.next(until, GiveUpReason::Deadline),
            _ => Next::RetryAt(until),
        }
    }

    /// Its deadline has passed while it waited for its lane. If that was for a service which was down, and is
    /// asked with few calls, it is put aside as while the breaker is open. Spends no attempt.
    #[must_use]
    pub fn late(&self, now: Mono) -> Next {
        match self.waits_for {
            WaitsFor::Breaker => Next::Park(now, GiveUpReason::CircuitOpen),
            WaitsFor::Lane | WaitsFor::Itself => Next::GiveUp(GiveUpReason::Deadline),
        }
    }

    fn decide<C: Chance>(
        &mut self,
        policy: &CallPolicy,
        verdict: &Verdict,
        now: Mono,
        chance: &mut C,
        budget: &mut Budget,
    ) -> Next {
        let (until, throttled) = match verdict.kind {
            VerdictKind::Done | VerdictKind::NoMatch => return Next::Accept,
            VerdictKind::Permanent => return Next::GiveUp(GiveUpReason::Permanent),
            VerdictKind::QuotaSpent { until } => {
                return Next::Park(
                    until.unwrap_or(now + policy.quota_wait).max(now),
                    GiveUpReason::QuotaSpent,
                );
            }
            VerdictKind::Throttled { until } => (until, true),
            VerdictKind::Transient { until } => (until, false),
        };
        let limited = self.cause == FailureCause::Limit;
        if throttled {
            self.throttles = self.throttles.saturating_add(u16::from(!limited));
        } else if self.once && verdict.code != Code::CONNECTION_REFUSED && verdict.code != Code::DNS_FAILURE {
            return Next::GiveUp(GiveUpReason::NotRepeatable);
        }
        let cause = core::mem::take(&mut self.cause);
        let outage = cause == FailureCause::Outage && u32::from(self.outages) <= policy.outages_free;
        if self.counted(policy, policy.refusals_free()) >= policy.attempts_max.max(1) {
            return Next::GiveUp(GiveUpReason::Exhausted);
        }
        let by_lane = throttled && policy.throttle_wait == ThrottleWait::Lane;
        // Without a hint, only a lane that knows the limit knows when to ask again.
        let unexplained = cause == FailureCause::Unexplained && until.is_none();
        let paced = by_lane && !unexplained || limited;
        let at = if paced || outage {
            self.paced = self.paced.saturating_add(1);
            until.unwrap_or(now).max(now)
        } else {
            self.wait(policy, until, now, chance)
        };
        let end = self.end(policy).unwrap_or(now + policy.deadline);
        if let Some(hint) = until {
            let far = hint.since(now) > policy.backoff.cap();
            if far || hint >= end {
                let why = if far { GiveUpReason::HintTooFar } else { GiveUpReason::Deadline };
                // Its time is up: now the refusals that a limit explains count too. Else a record that is
                // always refused would be put aside for ever.
                if !far && self.counted(policy, policy.throttles_free) >= policy.attempts_max.max(1) {
                    return Next::GiveUp(why);
                }
                return policy.long_wait.next(hint, why);
            }
        }
        if at >= end {
            return Next::GiveUp(GiveUpReason::Deadline);
        }
        self.waits_for = match cause {
            FailureCause::Limit | FailureCause::Unexplained if until.is_none() => WaitsFor::Lane,
            FailureCause::Outage => WaitsFor::Breaker,
            _ => WaitsFor::Itself,
        };
        // A throttle that the lane paces adds no load: the server refused it without work.
        if paced || by_lane {
            return Next::RetryAt(at);
        }
        match budget.pay(now) {
            Grant::From(paid) if paid < end => Next::RetryAt(at.max(paid)),
            Grant::From(_) => {
                budget.refund();
                Next::GiveUp(GiveUpReason::BudgetEmpty)
            }
            Grant::Refused => Next::GiveUp(GiveUpReason::BudgetEmpty),
        }
    }

    /// The attempts that count if so many refusals do not.
    fn counted(&self, policy: &CallPolicy, refusals_free: u32) -> u32 {
        // What no limit explains is only free as far as the policy says.
        let limits = u32::from(self.limits);
        let throttles = u32::from(self.throttles).min(policy.throttles_free);
        let free = throttles.saturating_add(limits).min(refusals_free);
        self.attempts.saturating_sub(free.saturating_add(u32::from(self.outages).min(policy.outages_free)))
    }

    /// The backoff, or the hint plus one base delay of jitter.
    fn wait<C: Chance>(
        &mut self,
        policy: &CallPolicy,
        until: Option<Mono>,
        now: Mono,
        chance: &mut C,
    ) -> Mono {
        let backoff = &policy.backoff;
        // What waited for the lane is no reason to wait longer now.
        let retry = self.attempts.saturating_sub(u32::from(self.paced).saturating_add(1));
        self.previous = backoff.delay_nanos(retry, self.previous, chance);
        let delay = Duration::from_nanos(self.previous);
        match until {
            None => now + delay,
            Some(hint) if hint > now => hint + backoff.delay(0, Duration::ZERO, chance),
            Some(_) => now + delay.max((backoff.base() / 2).min(backoff.cap())),
        }
    }
}

/// The outcome as a caller would log it: `done`, `permanent_400`, `transient_503_exhausted`,
/// `network_timeout_exhausted`, `circuit_open`.
#[must_use]
pub fn outcome(verdict: &Verdict, next: &Next) -> String {
    let why = match next {
        Next::Accept if verdict.kind == VerdictKind::NoMatch => return "no_match".into(),
        Next::Accept => return "done".into(),
        Next::RetryAt(_) => return "retry".into(),
        Next::Park(_, why) | Next::GiveUp(why) => why,
    };
    let what = match (verdict.status, verdict.kind) {
        (Some(status), VerdictKind::Permanent) => format!("permanent_{status}"),
        (Some(status), VerdictKind::Throttled { .. }) => format!("throttled_{status}"),
        (Some(status), _) => format!("transient_{status}"),
        (None, VerdictKind::Permanent) => format!("permanent_{}", verdict.code.as_str().to_ascii_lowercase()),
        (None, _) => match verdict.code {
            Code::TIMEOUT => "network_timeout".to_string(),
            Code::CONNECTION_REFUSED => "network_refused".to_string(),
            Code::CONNECTION_RESET => "network_reset".to_string(),
            Code::DNS_FAILURE => "network_dns".to_string(),
            Code::TRUNCATED_BODY => "network_truncated".to_string(),
            code => format!("transient_{}", code.as_str().to_ascii_lowercase()),
        },
    };
    match why {
        GiveUpReason::Permanent => what,
        GiveUpReason::Exhausted => format!("{what}_exhausted"),
        GiveUpReason::Deadline => format!("{what}_deadline"),
        GiveUpReason::HintTooFar => format!("{what}_hint_too_far"),
        GiveUpReason::BudgetEmpty => format!("{what}_budget_empty"),
        GiveUpReason::NotRepeatable => format!("{what}_not_repeatable"),
        GiveUpReason::QuotaSpent => "quota_spent".into(),
        GiveUpReason::CircuitOpen => "circuit_open".into(),
        GiveUpReason::Cancelled => "cancelled".into(),
    }
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
