//! The state shared by all calls to one thing that can be overloaded.
//!
//! A lane joins a limiter, a breaker and a retry budget for one key: a host and a credential, or
//! one prefix of an object store. It is a plain value behind three questions, asked by the
//! simulator, the engine and Python alike:
//!
//! ```
//! use tidegate_core::{lane::{Admit, Lane, LaneConfig}, hint::Hints, Mono, Verdict};
//!
//! let mut lane = Lane::new(&LaneConfig::default());
//! let now = Mono::ZERO;
//! match lane.admit(now) {
//!     Admit::Go(permit) => lane.settle(permit, &Verdict::DONE, &Hints::default(), now),
//!     Admit::Wait(until) => println!("not before {until:?}"),
//!     Admit::Full => println!("ask again after a call has settled"),
//!     Admit::Shut(until, why) => println!("{why} until {until:?}"),
//! }
//! ```
//!
//! One hint is one wait for the whole lane: what the server told one call, all obey. The breaker
//! is asked first, so that an open lane spends neither tokens nor attempts. A permit must come
//! back, by [`Lane::settle`] or, when its call was abandoned, by [`Lane::release`]; drivers hold
//! it in a guard that does so on drop.

pub mod fleet;
mod follow;
mod spread;
pub mod state;

pub use follow::LimitFindings;
pub use state::{HintState, LaneState};

use crate::breaker::{Breaker, BreakerConfig, BreakerPermit, BreakerReady, BreakerState, CallHealth};
use crate::call::{Call, CallPolicy, Next, ThrottleWait};
use crate::chance::Chance;
use crate::hint::{Hints, WAIT_MAX};
use crate::limit::{self, Feedback, LimitConfig, Limiter, Ticket};
use crate::retry::budget::{Budget, BudgetConfig};
use crate::taxonomy::Code;
use crate::time::Mono;
use crate::verdict::{Verdict, VerdictKind};
use core::time::Duration;

/// The time without calls after a spent quota whose end is not known: quotas end by the hour or the day.
const QUOTA_WAIT: Duration = Duration::from_secs(3600);

/// The settings of a [`Lane`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneConfig {
    /// Rate limit and calls in flight.
    pub limit: LimitConfig,
    /// Circuit breaker.
    pub breaker: BreakerConfig,
    /// Retry budget.
    pub budget: BudgetConfig,
    /// The time without calls after a spent quota when the server did not say until when.
    pub quota_wait: Duration,
    /// The longest wait that the server is obeyed for; a longer one is cut to it. It bounds what the lane is
    /// told by answers, by other processes and by what an earlier process has left ([`WAIT_MAX`]).
    pub wait_max: Duration,
}

impl Default for LaneConfig {
    fn default() -> LaneConfig {
        LaneConfig {
            limit: LimitConfig::default(),
            breaker: BreakerConfig::default(),
            budget: BudgetConfig::default(),
            quota_wait: QUOTA_WAIT,
            wait_max: WAIT_MAX,
        }
    }
}

/// The right to make one call. Give it back with [`Lane::settle`] or [`Lane::release`].
#[must_use]
#[derive(Debug, PartialEq)]
pub struct Permit {
    ticket: Ticket,
    pass: BreakerPermit,
    /// When the call was let through.
    sent: Mono,
}

/// The answer to a call that asks.
#[derive(Debug, PartialEq)]
pub enum Admit {
    /// Go.
    Go(Permit),
    /// Not before this time: pace, or a wait that the server asked for.
    Wait(Mono),
    /// As many calls or probes as may be are out: ask again after one has come back.
    Full,
    /// The breaker is open or the quota is spent: not before this time.
    Shut(Mono, Code),
}

/// The lane.
#[derive(Clone, Debug)]
pub struct Lane {
    limiter: Limiter,
    breaker: Breaker,
    budget: Budget,
    /// Cooldown after a spent quota without a hint.
    quota_wait: Duration,
    /// The longest wait that is obeyed.
    wait_max: Duration,
    /// The quota is spent until this time.
    quota_until: Mono,
    /// The same, as far as the server said it: a quota without an end is shut for a time of our own.
    quota_told: Mono,
    /// The latest wait that the server asked for.
    hint: Option<state::Hint>,
    /// The end of that wait, and when the lane comes back.
    spread: spread::SpreadReturn,
    /// What another lane has found out, if this one follows it.
    followed: Option<LimitFindings>,
}

impl Lane {
    /// A lane that knows nothing yet.
    #[must_use]
    pub fn new(config: &LaneConfig) -> Lane {
        Lane {
            limiter: Limiter::new(&config.limit),
            breaker: Breaker::new(&config.breaker),
            budget: Budget::new(&config.budget),
            quota_wait: config.quota_wait,
            wait_max: config.wait_max,
            quota_until: Mono::ZERO,
            quota_told: Mono::ZERO,
            hint: None,
            spread: spread::SpreadReturn::default(),
            followed: None,
        }
    }

    /// May a call go out now?
    pub fn admit(&mut self, now: Mono) -> Admit {
        if now < self.quota_until {
            return Admit::Shut(self.quota_until, Code::QUOTA_EXHAUSTED);
        }
        // The breaker is looked at first and taken last: an open lane uses up no pace, and a probe
        // goes out only when the pace allows it.
        match self.breaker.ready(now) {
            BreakerReady::Yes => {}
            BreakerReady::Probing => return Admit::Full,
            BreakerReady::Shut(until) => return Admit::Shut(until, Code::CIRCUIT_OPEN),
        }
        match self.limiter.admit(now) {
            limit::LimiterAdmit::Go(ticket) => {
                Admit::Go(Permit { ticket, pass: self.breaker.pass(now), sent: now })
            }
            limit::LimiterAdmit::At(until) => Admit::Wait(until),
            limit::LimiterAdmit::Full => Admit::Full,
        }
    }

    /// When to ask again after [`Admit::Full`], if no call has come back before; `None` if that is enough.
    #[must_use]
    pub fn full_until(&self, now: Mono) -> Option<Mono> {
        self.limiter.full_until(now)
    }

    /// A call came back.
    pub fn settle(&mut self, permit: Permit, verdict: &Verdict, hints: &Hints, now: Mono) {
        let Permit { ticket, pass, sent } = permit;
        let (verdict, cut) = (&verdict.within(now, self.wait_max), hints.exceed(self.wait_max));
        // Seldom, and too large to be copied each time.
        let cut = if cut { Some(hints.within(self.wait_max)) } else { None };
        let hints = cut.as_ref().unwrap_or(hints);
        let (seen, health) = match verdict.kind {
            VerdictKind::Done | VerdictKind::NoMatch | VerdictKind::Permanent => {
                (Feedback::Accepted, CallHealth::Good)
            }
            VerdictKind::Throttled { until } => (Feedback::Throttled { until }, CallHealth::Neutral),
            VerdictKind::Transient { until } => (Feedback::Failed { until }, CallHealth::Bad),
            VerdictKind::QuotaSpent { until } => (Feedback::Throttled { until }, CallHealth::Neutral),
        };
        self.note_asked(verdict, hints, now);
        self.limiter.settle(ticket, now, seen, hints);
        // A failure that comes and goes with our pace is no sign of ill health.
        let limited = health == CallHealth::Bad && !self.findings(now).failures_are_health;
        let health = if limited { CallHealth::Neutral } else { health };
        self.breaker.settle(pass, health, now.since(sent), now);
    }

    /// A call was abandoned: nothing is learned, its places are free again.
    pub fn release(&mut self, permit: Permit, now: Mono) {
        let Permit { ticket, pass, sent } = permit;
        self.limiter.release(ticket, now);
        self.breaker.settle(pass, CallHealth::Neutral, now.since(sent), now);
    }

    /// A new call was started: the budget earns its share.
    pub fn start(&mut self, now: Mono) {
        self.budget.earn(now);
    }

    /// A verdict came for the last attempt of `call`: what now? To be asked after the attempt was
    /// settled. The lane pays the retry, and a failure while its breaker is open, or its limiter probes a
    /// service that fails whatever is sent, is the service's and not the record's. Nor is the refusal of a limit
    /// that the lane knows or that the server told. A throttle that neither explains waits for the record's own
    /// backoff.
    pub fn next<C: Chance>(
        &mut self,
        call: &mut Call,
        policy: &CallPolicy,
        verdict: &Verdict,
        now: Mono,
        chance: &mut C,
    ) -> Next {
        let verdict = &verdict.within(now, self.wait_max);
        let failed = matches!(verdict.kind, VerdictKind::Transient { .. });
        let findings = self.findings(now);
        if failed && (self.breaker.state(now) != BreakerState::Closed || findings.probes_failures) {
            call.outage();
        } else if failed && findings.failures_are_limit {
            call.limited();
        }
        if let VerdictKind::Throttled { until } = verdict.kind {
            let learns = policy.throttle_wait == ThrottleWait::Lane;
            let told = until.is_some_and(|until| until > now);
            match () {
                () if learns && (told || findings.explains_refusal) => call.limited(),
                () if !findings.explains_refusal => call.unexplained(),
                () => {}
            }
        }
        self.spread_return(policy, verdict, now, chance);
        call.next(policy, verdict, now, chance, &mut self.budget)
    }

    /// The breaker, for metrics.
    #[must_use]
    pub const fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// The limiter, for metrics.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        &self.limiter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: f64) -> Mono {
        Mono::from_secs_f64(s)
    }

    fn go(lane: &mut Lane, now: Mono) -> Permit {
        match lane.admit(now) {
            Admit::Go(permit) => permit,
            other => panic!("{other:?}"),
        }
    }

    fn verdict(kind: VerdictKind) -> Verdict {
        Verdict { kind, code: Code::UNKNOWN, status: None }
    }

    #[test]
    fn one_hint_is_one_wait_for_all() {
        let mut lane = Lane::new(&LaneConfig::default());
        let (a, b) = (go(&mut lane, at(0.0)), go(&mut lane, at(0.0)));
        let throttled = verdict(VerdictKind::Throttled { until: Some(at(7.0)) });
        lane.settle(a, &throttled, &Hints::default(), at(0.1));
        lane.settle(b, &Verdict::DONE, &Hints::default(), at(0.2));
        match lane.admit(at(6.9)) {
            Admit::Wait(t) => assert!(t >= at(7.0)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_spent_quota_shuts_the_lane() {
        let mut lane = Lane::new(&LaneConfig::default());
        let permit = go(&mut lane, at(0.0));
        let spent = verdict(VerdictKind::QuotaSpent { until: None });
        lane.settle(permit, &spent, &Hints::default(), at(1.0));
        assert_eq!(lane.admit(at(2.0)), Admit::Shut(at(3601.0), Code::QUOTA_EXHAUSTED));
    }

    #[test]
    fn what_fails_while_the_breaker_is_open_waits_for_it_and_not_for_itself() {
        let mut config = LaneConfig::default();
        config.breaker.calls_min = 2;
        let mut lane = Lane::new(&config);
        let policy =
            CallPolicy { outages_free: 1, deadline: Duration::from_secs(900), ..CallPolicy::default() };
        let (mut call, mut chance) = (Call::new(), crate::chance::Rng::new(3));
        let failed = verdict(VerdictKind::Transient { until: None });
        let mut ask = |lane: &mut Lane, now: Mono| {
            let permit = go(lane, now);
            call.send(&policy, now);
            lane.settle(permit, &failed, &Hints::default(), now);
            lane.next(&mut call, &policy, &failed, now, &mut chance)
        };
        let Next::RetryAt(own) = ask(&mut lane, at(0.0)) else { panic!() };
        assert!(at(0.0) < own && own <= at(1.0), "{own:?}: the breaker is shut, the backoff its own");
        assert_eq!(ask(&mut lane, at(1.0)), Next::RetryAt(at(1.0)), "now the breaker says when");
        assert_eq!(lane.admit(at(1.0)), Admit::Shut(at(31.0), Code::CIRCUIT_OPEN));
        let Next::RetryAt(own) = ask(&mut lane, at(31.0)) else { panic!() };
        assert!(at(31.0) < own && own <= at(33.0), "{own:?}: no more is free");
    }

    #[test]
    fn failures_open_the_breaker_and_probes_are_few() {
        let mut config = LaneConfig::default();
        config.breaker.probes = 1;
        let mut lane = Lane::new(&config);
        let mut now = at(0.0);
        let failed = verdict(VerdictKind::Transient { until: None });
        let until = loop {
            match lane.admit(now) {
                Admit::Go(permit) => lane.settle(permit, &failed, &Hints::default(), now),
                Admit::Wait(t) => now = t,
                Admit::Shut(until, code) => {
                    assert_eq!(code, Code::CIRCUIT_OPEN);
                    break until;
                }
                Admit::Full => panic!("nothing is in flight"),
            }
        };
        let mut now = until;
        let probe = loop {
            match lane.admit(now) {
                Admit::Go(permit) => break permit,
                Admit::Wait(t) => now = t,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(lane.admit(now), Admit::Full);
        lane.release(probe, now);
        let Admit::Go(probe) = lane.admit(now + Duration::from_secs(60)) else { panic!() };
        lane.settle(probe, &Verdict::DONE, &Hints::default(), now + Duration::from_secs(60));
        assert_eq!(lane.breaker().state(now), BreakerState::Closed);
    }

    #[test]
    fn a_throttle_that_nothing_explains_waits_for_the_backoff_of_the_record() {
        use crate::retry::{Backoff, Jitter};
        let mut lane = Lane::new(&LaneConfig::default());
        let (base, cap) = (Duration::from_secs(1), Duration::from_secs(60));
        let policy = CallPolicy {
            throttle_wait: ThrottleWait::Lane,
            backoff: Backoff::new(base, 2.0, cap, Jitter::None),
            ..CallPolicy::default()
        };
        let throttled = verdict(VerdictKind::Throttled { until: None });
        let (mut call, mut chance, mut now) = (Call::new(), crate::chance::Rng::new(3), at(0.0));
        for wait in [1.0, 2.0, 4.0] {
            let permit = go(&mut lane, now);
            call.send(&policy, now);
            lane.settle(permit, &throttled, &Hints::default(), now);
            let next = lane.next(&mut call, &policy, &throttled, now, &mut chance);
            assert_eq!(next, Next::RetryAt(now + crate::time::seconds(wait)));
            now += crate::time::seconds(wait);
        }
    }

    /// A lane that has learned a rate is refused: the record waits for the lane, and 20 refusals are free.
    #[test]
    fn a_throttle_that_a_limit_or_a_hint_explains_costs_no_attempt() {
        let policy = CallPolicy {
            attempts_max: 1,
            throttle_wait: ThrottleWait::Lane,
            deadline: Duration::from_secs(900),
            ..CallPolicy::default()
        };
        for told in [None, Some(1.0)] {
            let (mut lane, mut chance) = (Lane::new(&LaneConfig::default()), crate::chance::Rng::new(3));
            let permit = go(&mut lane, at(0.0));
            lane.settle(permit, &Verdict::DONE, &Hints::default(), at(0.1));
            let (mut call, mut now, mut refused) = (Call::new(), at(0.2), 0);
            let end = loop {
                let permit = loop {
                    match lane.admit(now) {
                        Admit::Go(permit) => break permit,
                        Admit::Wait(until) => now = until,
                        other => panic!("{other:?}"),
                    }
                };
                call.send(&policy, now);
                let until = told.map(|wait| now + crate::time::seconds(wait));
                let throttled = verdict(VerdictKind::Throttled { until });
                lane.settle(permit, &throttled, &Hints::default(), now);
                refused += 1;
                match lane.next(&mut call, &policy, &throttled, now, &mut chance) {
                    Next::RetryAt(at) => assert!(at >= until.unwrap_or(now)),
                    end => break end,
                }
                // Another record is served in between: the limit is not a closed door.
                let permit = loop {
                    match lane.admit(now) {
                        Admit::Go(permit) => break permit,
                        Admit::Wait(until) => now = until,
                        other => panic!("{other:?}"),
                    }
                };
                lane.settle(permit, &Verdict::DONE, &Hints::default(), now);
            };
            assert_eq!((end, refused), (Next::GiveUp(crate::call::GiveUpReason::Exhausted), 21), "{told:?}");
        }
    }
}
