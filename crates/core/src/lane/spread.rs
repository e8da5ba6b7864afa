//! The return of many processes after one hint.
//!
//! A server that tells everybody "in 30 seconds" is asked by everybody in 30 seconds. Within one
//! lane the pace spreads the calls; between processes nothing does. So a lane comes back a little
//! later than it was told, by chance, and never earlier. One hint is one draw: the calls of one
//! flight are all told nearly the same time.

use super::Lane;
use crate::call::CallPolicy;
use crate::chance::Chance;
use crate::retry::backoff::Jitter;
use crate::time::Mono;
use crate::verdict::Verdict;
use core::time::Duration;

/// A lane comes back later by at most the wait divided by this.
const WAIT_DIVISOR: u32 = 4;

/// A lane that took over a wait of an earlier process comes back later by at most this: there is no
/// policy yet that says more.
const RESTORED_MAX: Duration = Duration::from_secs(1);

/// A return that was put off.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpreadReturn {
    /// When the server wants the next call at the earliest.
    told: Mono,
    /// When the lane comes back.
    at: Mono,
}

impl Lane {
    /// No call before this, as far as the server asked for it: without what chance added.
    pub(super) fn told_until(&self) -> Mono {
        let until = self.limiter.not_before();
        if until == self.spread.at { self.spread.told } else { until }
    }

    /// Holds the lane a little beyond the wait that the server asked for: up to a quarter of the
    /// wait, and no longer than the base delay of the policy. Without jitter it is not held.
    pub(super) fn spread_return<C: Chance>(
        &mut self,
        policy: &CallPolicy,
        verdict: &Verdict,
        now: Mono,
        chance: &mut C,
    ) {
        let Some(until) = verdict.until().filter(|until| *until > now) else { return };
        if policy.backoff.jitter() == Jitter::None || until <= self.spread.at {
            return;
        }
        self.spread_until(until, policy.backoff.base(), now, chance);
    }

    /// The same for a wait that an earlier process was told ([`Lane::restore`]): all who read it from
    /// one file would come back at one moment.
    pub fn spread_restored<C: Chance>(&mut self, now: Mono, chance: &mut C) {
        let until = self.told_until();
        if until > now {
            self.spread_until(until, RESTORED_MAX, now, chance);
        }
    }

    fn spread_until<C: Chance>(&mut self, until: Mono, max: Duration, now: Mono, chance: &mut C) {
        let most = (until.since(now) / WAIT_DIVISOR).min(max);
        self.spread = SpreadReturn { told: until, at: until + most.mul_f64(chance.unit()) };
        self.limiter.hold_until(self.spread.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::chance::Rng;
    use crate::hint::Hints;
    use crate::lane::{Admit, LaneConfig};
    use crate::taxonomy::Code;
    use crate::verdict::VerdictKind;
    use alloc::vec::Vec;
    use core::time::Duration;

    /// When a lane lets the next call out after one hint for every call of a flight.
    fn returns(seed: u64, wait: f64, policy: &CallPolicy) -> Mono {
        let (mut lane, mut rng) = (Lane::new(&LaneConfig::default()), Rng::new(seed));
        let permits: Vec<_> = (0..3).map(|_| lane.admit(Mono::ZERO)).collect();
        for (n, permit) in permits.into_iter().enumerate() {
            let Admit::Go(permit) = permit else { panic!() };
            let now = Mono::from_millis(n as u64);
            let until = Some(now + Duration::from_secs_f64(wait));
            let kind = VerdictKind::Throttled { until };
            let verdict = Verdict { kind, code: Code::RATE_LIMITED, status: Some(429) };
            lane.settle(permit, &verdict, &Hints::default(), now);
            let mut call = Call::new();
            call.send(policy, now);
            let _ = lane.next(&mut call, policy, &verdict, now, &mut rng);
        }
        let told = Mono::from_millis(2) + Duration::from_secs_f64(wait);
        assert!(lane.reading(Mono::from_millis(3)).hint_until <= told);
        match lane.admit(Mono::from_millis(3)) {
            Admit::Wait(at) => at,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn twenty_processes_come_back_one_after_the_other_and_none_too_early() {
        let policy = CallPolicy::default();
        let mut back: Vec<Mono> = (0..20).map(|seed| returns(seed, 2.0, &policy)).collect();
        back.sort();
        let told = Mono::from_millis(2002);
        assert!(back[0] >= told && back[19] <= told + Duration::from_millis(501), "{back:?}");
        assert!(back[19].since(back[0]) > Duration::from_millis(300), "{back:?}");
        // No longer than the base delay, however long the wait.
        let long = (0..20).map(|seed| returns(seed, 60.0, &policy)).max().unwrap();
        assert!(long <= Mono::from_millis(61_002), "{long:?}");
    }

    #[test]
    fn without_jitter_the_return_is_exact() {
        use crate::retry::backoff::Backoff;
        let (base, cap) = (Duration::from_secs(1), Duration::from_secs(60));
        let policy =
            CallPolicy { backoff: Backoff::new(base, 2.0, cap, Jitter::None), ..CallPolicy::default() };
        assert_eq!(returns(1, 2.0, &policy), Mono::from_millis(2002));
    }
}
