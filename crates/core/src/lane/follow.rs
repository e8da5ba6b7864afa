//! A lane that follows the pace of another.
//!
//! Processes that call one server share its limit: one of them, the owner, runs the limiter, and the
//! others ask it before each call. A follower keeps its own breaker, budget and promises, because they
//! decide about its records. Its own limiter learns nothing, since it would see only its own calls. What the
//! owner's limiter has found out about failures and refusals it is told.

use super::{Lane, Permit};
use crate::breaker::CallHealth;
use crate::hint::Hints;
use crate::limit::LimitBelief;
use crate::time::Mono;
use crate::verdict::Verdict;

/// What the limiter of a lane makes of failures and refusals now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitFindings {
    /// A failure is the refusal of a limit.
    pub failures_are_limit: bool,
    /// A failure says something about the health of the server.
    pub failures_are_health: bool,
    /// The server fails whatever is sent, and is probed.
    pub probes_failures: bool,
    /// The lane knows when to send after a refusal.
    pub explains_refusal: bool,
}

impl Lane {
    /// What its limiter has found out, or that of the lane which it follows.
    #[must_use]
    pub fn findings(&self, now: Mono) -> LimitFindings {
        self.followed.unwrap_or_else(|| LimitFindings {
            failures_are_limit: self.limiter.failures_are_limit(),
            failures_are_health: self.limiter.failures_are_health(),
            probes_failures: self.limiter.probes_failures(),
            explains_refusal: self.limiter.explains_refusal(now),
        })
    }

    /// Takes over what the limiter of another lane has found out.
    pub const fn follow(&mut self, findings: LimitFindings) {
        self.followed = Some(findings);
    }

    /// Takes over the answer to a call that another lane let out: what the server asked for, and nothing else.
    pub fn note_answer(&mut self, verdict: &Verdict, hints: &Hints, now: Mono) {
        let (verdict, hints) = (&verdict.within(now, self.wait_max), &hints.within(self.wait_max));
        self.note_asked(verdict, hints, now);
        if let Some(until) = verdict.until() {
            self.limiter.hold_until(until);
        }
    }

    /// Takes back the permit of a call of another process that was not made, or whose process is gone: nothing is
    /// learned, and that it did not come back says nothing about the server.
    pub fn withdraw(&mut self, permit: Permit, now: Mono) {
        let Permit { ticket, pass, sent } = permit;
        self.limiter.withdraw(&ticket, now);
        self.breaker.settle(pass, CallHealth::Neutral, now.since(sent), now);
    }

    /// The quota is spent until then, as another lane to the same server knows.
    pub fn shut_quota(&mut self, until: Mono, now: Mono) {
        self.quota_until = self.quota_until.max(until.min(now + self.wait_max));
    }

    /// Begins without the burst of the user's own rate: another lane to the same server has just used it.
    pub fn spend_burst(&mut self, now: Mono) {
        self.limiter.spend_burst(now);
    }

    /// Begins where another lane to the same server has ended: a little below its rate and without a
    /// burst, because what it had sent last is not known.
    pub fn succeed(&mut self, belief: &LimitBelief, now: Mono) {
        self.limiter.succeed(belief, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Call, CallPolicy, Next, ThrottleWait};
    use crate::chance::Rng;
    use crate::lane::{Admit, LaneConfig};
    use crate::limit::{BelievedKind, LimitConfig};
    use crate::taxonomy::Code;
    use crate::verdict::VerdictKind;

    const LIMITED: LimitFindings = LimitFindings {
        failures_are_limit: true,
        failures_are_health: false,
        probes_failures: false,
        explains_refusal: true,
    };

    #[test]
    fn a_follower_takes_failures_for_what_its_owner_found_them_to_be() {
        let limit = LimitConfig { learn: false, ..LimitConfig::default() };
        let policy = CallPolicy { attempts_max: 2, ..CallPolicy::default() };
        let failed =
            Verdict { kind: VerdictKind::Transient { until: None }, code: Code::UNKNOWN, status: Some(503) };
        let (mut lane, mut rng) = (Lane::new(&LaneConfig { limit, ..LaneConfig::default() }), Rng::new(1));
        let mut ask = |lane: &mut Lane, call: &mut Call, now: Mono| {
            let Admit::Go(permit) = lane.admit(now) else { panic!() };
            call.send(&policy, now);
            lane.settle(permit, &failed, &Hints::default(), now);
            lane.next(call, &policy, &failed, now, &mut rng)
        };
        let mut call = Call::new();
        lane.follow(LIMITED);
        for n in 0..20 {
            let now = Mono::from_millis(n);
            assert_eq!(ask(&mut lane, &mut call, now), Next::RetryAt(now), "no attempt is spent");
        }
    }

    #[test]
    fn what_an_answer_to_another_lane_asks_for_holds() {
        let mut lane = Lane::new(&LaneConfig::default());
        let (now, until) = (Mono::from_millis(1_000), Mono::from_millis(61_000));
        let kind = VerdictKind::Throttled { until: Some(until) };
        let verdict = Verdict { kind, code: Code::RATE_LIMITED, status: Some(429) };
        lane.note_answer(&verdict, &Hints::default(), now);
        assert_eq!(lane.admit(now), Admit::Wait(until));
        let spent = Verdict { kind: VerdictKind::QuotaSpent { until: None }, ..verdict };
        lane.note_answer(&spent, &Hints::default(), now);
        assert_eq!(lane.admit(now), Admit::Shut(Mono::from_millis(3_601_000), Code::QUOTA_EXHAUSTED));
    }

    #[test]
    fn a_successor_begins_below_the_known_rate_with_one_call() {
        let mut lane = Lane::new(&LaneConfig::default());
        let belief = LimitBelief { kind: BelievedKind::Rate, rate: Some(100.0), ..LimitBelief::default() };
        let start = Mono::from_millis(5_000);
        lane.succeed(&belief, start);
        let (mut now, mut sent) = (start, 0);
        while now < Mono::from_millis(6_000) {
            match lane.admit(now) {
                Admit::Go(permit) => {
                    sent += 1;
                    lane.settle(permit, &Verdict::DONE, &Hints::default(), now);
                }
                Admit::Wait(until) => now = until,
                other => panic!("{other:?}"),
            }
        }
        assert!((80..=110).contains(&sent), "{sent}");
    }

    /// Calls of the other processes may still be out, so the first of a successor may be refused. That costs no
    /// attempt and no backoff: the limit is known.
    #[test]
    fn a_successor_knows_what_refusals_mean() {
        let belief = |by_failures| LimitBelief {
            kind: BelievedKind::Concurrency,
            in_flight: Some(8),
            by_failures,
            ..LimitBelief::default()
        };
        let policy = CallPolicy { throttle_wait: ThrottleWait::Lane, ..CallPolicy::default() };
        let now = Mono::from_millis(5_000);
        let limited = VerdictKind::Throttled { until: None };
        for (status, kind) in [(429, limited), (503, VerdictKind::Transient { until: None })] {
            let (mut lane, mut rng) = (Lane::new(&LaneConfig::default()), Rng::new(1));
            lane.succeed(&belief(status == 503), now);
            assert_eq!(lane.limiter().belief().kind, BelievedKind::Concurrency);
            let Admit::Go(permit) = lane.admit(now) else { panic!() };
            let mut call = Call::new();
            call.send(&policy, now);
            let refused = Verdict { kind, code: Code::UNKNOWN, status: Some(status) };
            lane.settle(permit, &refused, &Hints::default(), now);
            assert_eq!(
                lane.next(&mut call, &policy, &refused, now, &mut rng),
                Next::RetryAt(now),
                "{status}"
            );
        }
    }
}
