//! Patience: how long a run waits for a service.
//!
//! A call ends when its attempts, its deadline or its retry budget are exhausted ([`crate::call`]).
//! A wait may be longer than the call: a Retry-After of an hour, a quota that is exhausted until
//! midnight, a service that fails continuously. Then the run either waits and makes a new call, or
//! it ends and reports when to try again (exit code 75). Every driver uses this module, so the same
//! response has the same consequence for a row, a page, an object and a step.
//!
//! There are two checks:
//!
//! | check | when | by |
//! |---|---|---|
//! | [`Patience::after`] | a call was parked | the driver of one record |
//! | [`LaneWatch::look`] | before the first call, then every [`LaneWatch::interval`] | the driver of a lane |
//!
//! The second is needed because records that have not been sent yet wait for the lane without a
//! deadline, and because each cooldown of a breaker is short even if the outage is long.

use crate::breaker::BreakerState;
use crate::call::{GiveUpReason, Next};
use crate::taxonomy::Code;
use crate::time::Mono;
use crate::verdict::Verdict;
use core::time::Duration;

/// The default patience of a run.
pub const DEFAULT: Duration = Duration::from_secs(900);

/// The wait exceeds the patience: end the run and try again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryLater {
    /// `QUOTA_EXHAUSTED`, `CIRCUIT_OPEN`, or the code of the answer that asked for the wait.
    pub code: Code,
    /// The earliest time of the next call.
    pub until: Mono,
}

/// What to do with a record after its call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Take the result of the call: an answer, or a failure of the record.
    Settle,
    /// Wait until this time and make a new call.
    Wait(Mono),
    /// End the run.
    TryLater(TryLater),
}

/// The patience for one record, over all of its calls.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The maximum sum of the waits.
    limit: Duration,
    /// The sum of the waits so far.
    waited: Duration,
}

impl Patience {
    /// Accepts waits of up to `limit` in total.
    #[must_use]
    pub const fn new(limit: Duration) -> Patience {
        Patience { limit, waited: Duration::ZERO }
    }

    /// Decides what to do after a call that ended with `verdict` and `next`. The limit applies to the
    /// sum of all waits, because many short waits delay a run as much as a long one.
    pub fn after(&mut self, verdict: &Verdict, next: &Next, now: Mono) -> After {
        let Next::Park(until, why) = *next else { return After::Settle };
        // Neither the server nor the breaker asked for this wait: the deadline of the record is over.
        if verdict.code == Code::DEADLINE_EXCEEDED {
            return After::Settle;
        }
        self.waited = self.waited.saturating_add(until.since(now));
        if self.waited > self.limit {
            let code = match why {
                GiveUpReason::QuotaSpent => Code::QUOTA_EXHAUSTED,
                GiveUpReason::CircuitOpen => Code::CIRCUIT_OPEN,
                _ => verdict.code,
            };
            return After::TryLater(TryLater { code, until });
        }
        After::Wait(until)
    }
}

/// The state of a lane that patience depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneReading {
    /// The state of the breaker.
    pub breaker: BreakerState,
    /// The earliest time of the next call that the server asked for; in the past if it asked for none.
    pub hint_until: Mono,
    /// The code of the answer that asked for the wait.
    pub hint_code: Code,
    /// The time when an exhausted quota is restored; in the past if it is not exhausted.
    pub quota_until: Mono,
}

/// The patience for one lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneWatch {
    /// The maximum length of a wait or an outage.
    limit: Duration,
    /// The start of the current outage; `None` while the breaker is closed.
    failing_since: Option<Mono>,
}

impl LaneWatch {
    /// Accepts waits and outages of up to `limit`.
    #[must_use]
    pub const fn new(limit: Duration) -> LaneWatch {
        LaneWatch { limit, failing_since: None }
    }

    /// The time between two checks, short enough to notice the end of patience in time.
    #[must_use]
    pub fn interval(&self) -> Duration {
        (self.limit / 8).clamp(Duration::from_millis(100), Duration::from_secs(1))
    }

    /// Checks whether the lane is shut, or has been failing, for longer than the limit.
    pub fn look(&mut self, lane: &LaneReading, now: Mono) -> Option<TryLater> {
        let too_far = |until: Mono| until.since(now) > self.limit;
        if too_far(lane.quota_until) {
            return Some(TryLater { code: Code::QUOTA_EXHAUSTED, until: lane.quota_until });
        }
        if too_far(lane.hint_until) {
            return Some(TryLater { code: lane.hint_code, until: lane.hint_until });
        }
        let open_until = match lane.breaker {
            BreakerState::Closed => {
                self.failing_since = None;
                return None;
            }
            BreakerState::Open(until) => until,
            BreakerState::HalfOpen => now,
        };
        let since = *self.failing_since.get_or_insert(now);
        if too_far(open_until) {
            return Some(TryLater { code: Code::CIRCUIT_OPEN, until: open_until });
        }
        // The estimate for an outage that exceeds the limit: it lasts about as long again.
        (now.since(since) > self.limit)
            .then(|| TryLater { code: Code::CIRCUIT_OPEN, until: open_until.max(now + self.limit) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::VerdictKind;

    fn at(s: u64) -> Mono {
        Mono::from_millis(s * 1000)
    }

    fn verdict(kind: VerdictKind, code: Code) -> Verdict {
        Verdict { kind, code, status: None }
    }

    const SERVER: Code = Code::SERVICE_UNAVAILABLE;

    #[test]
    fn what_is_no_wait_is_the_end_of_the_record() {
        let mut patience = Patience::new(Duration::from_secs(10));
        let failed = verdict(VerdictKind::Transient { until: None }, SERVER);
        for next in
            [Next::Accept, Next::GiveUp(GiveUpReason::Exhausted), Next::GiveUp(GiveUpReason::HintTooFar)]
        {
            assert_eq!(patience.after(&failed, &next, at(0)), After::Settle, "{next:?}");
        }
        let late = verdict(VerdictKind::Transient { until: Some(at(5)) }, Code::DEADLINE_EXCEEDED);
        assert_eq!(patience.after(&late, &Next::Park(at(5), GiveUpReason::Deadline), at(0)), After::Settle);
    }

    #[test]
    fn waits_add_up_until_patience_is_over() {
        let mut patience = Patience::new(Duration::from_secs(10));
        let busy = verdict(VerdictKind::Transient { until: Some(at(6)) }, SERVER);
        let park = |s| Next::Park(at(s), GiveUpReason::HintTooFar);
        assert_eq!(patience.after(&busy, &park(6), at(0)), After::Wait(at(6)));
        assert_eq!(patience.after(&busy, &park(10), at(6)), After::Wait(at(10)), "exactly the limit");
        let later = TryLater { code: SERVER, until: at(11) };
        assert_eq!(patience.after(&busy, &park(11), at(10)), After::TryLater(later));
    }

    #[test]
    fn the_reason_of_the_wait_names_the_end() {
        let busy = verdict(VerdictKind::Transient { until: None }, SERVER);
        let cases = [
            (GiveUpReason::QuotaSpent, Code::QUOTA_EXHAUSTED),
            (GiveUpReason::CircuitOpen, Code::CIRCUIT_OPEN),
            (GiveUpReason::HintTooFar, SERVER),
            (GiveUpReason::Deadline, SERVER),
        ];
        for (why, code) in cases {
            let after = Patience::new(Duration::ZERO).after(&busy, &Next::Park(at(1), why), at(0));
            assert_eq!(after, After::TryLater(TryLater { code, until: at(1) }), "{why:?}");
        }
    }

    #[test]
    fn absurd_waits_do_not_wrap_round() {
        let mut patience = Patience::new(Duration::from_secs(10));
        let spent = verdict(VerdictKind::QuotaSpent { until: Some(Mono::FAR) }, Code::QUOTA_EXHAUSTED);
        for _ in 0..3 {
            let after = patience.after(&spent, &Next::Park(Mono::FAR, GiveUpReason::QuotaSpent), at(0));
            assert!(matches!(after, After::TryLater(_)), "{after:?}");
        }
    }

    const OPEN: LaneReading = LaneReading {
        breaker: BreakerState::Closed,
        hint_until: Mono::ZERO,
        hint_code: Code::RATE_LIMITED,
        quota_until: Mono::ZERO,
    };

    #[test]
    fn a_lane_that_is_shut_for_too_long_ends_the_run_at_the_first_look() {
        let mut watch = LaneWatch::new(Duration::from_secs(60));
        assert_eq!(watch.look(&OPEN, at(0)), None);
        assert_eq!(watch.look(&LaneReading { hint_until: at(60), ..OPEN }, at(0)), None, "it waits");
        for (lane, code) in [
            (LaneReading { hint_until: at(61), ..OPEN }, Code::RATE_LIMITED),
            (LaneReading { quota_until: at(61), ..OPEN }, Code::QUOTA_EXHAUSTED),
            (LaneReading { breaker: BreakerState::Open(at(61)), ..OPEN }, Code::CIRCUIT_OPEN),
        ] {
            assert_eq!(watch.look(&lane, at(0)), Some(TryLater { code, until: at(61) }));
        }
        assert_eq!(watch.look(&LaneReading { hint_until: at(61), ..OPEN }, at(1)), None, "time passes");
    }

    #[test]
    fn an_outage_ends_the_run_when_it_lasted_longer_than_patience() {
        let mut watch = LaneWatch::new(Duration::from_secs(60));
        let open = |s| LaneReading { breaker: BreakerState::Open(at(s)), ..OPEN };
        let probing = LaneReading { breaker: BreakerState::HalfOpen, ..OPEN };
        assert_eq!(watch.look(&open(5), at(0)), None);
        assert_eq!(watch.look(&probing, at(30)), None);
        assert_eq!(watch.look(&open(65), at(60)), None);
        let later = TryLater { code: Code::CIRCUIT_OPEN, until: at(121) };
        assert_eq!(watch.look(&open(65), at(61)), Some(later));
        assert_eq!(watch.look(&OPEN, at(62)), None);
        assert_eq!(watch.look(&open(90), at(63)), None, "another outage begins anew");
    }

    #[test]
    fn looks_are_as_frequent_as_patience_is_short() {
        for (limit, interval) in [(0, 100), (800, 100), (4_000, 500), (900_000, 1_000)] {
            let watch = LaneWatch::new(Duration::from_millis(limit));
            assert_eq!(watch.interval(), Duration::from_millis(interval));
        }
    }
}
