//! What a server asked of a lane, as a value that outlives the process.
//!
//! A lane learns two kinds of things. How fast a server is, is found out again in seconds. What the
//! server *asked for* is a promise: no call before a time, by Retry-After, by a spent quota, or
//! because it failed so often that the breaker is open. A restart must not break it. So these facts
//! can be taken out of a lane and put into another, in wall-clock times, because the monotonic clock
//! of a process ends with it. The value is plain: a driver keeps it in a file, a fleet may share it.
//!
//! Two who know something of the same lane merge by the later time ([`LaneState::merge`]); merging is
//! commutative, associative and idempotent, so it does not matter who writes first or how often.

use super::Lane;
use crate::breaker::BreakerState;
use crate::hint::Hints;
use crate::patience::LaneReading;
use crate::taxonomy::Code;
use crate::time::{Mono, Now, Wall};
use crate::verdict::{Verdict, VerdictKind};
use core::time::Duration;

/// Milliseconds of a second.
const MILLIS: u128 = 1000;

/// A wait that the server asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintState {
    /// The earliest time of the next call.
    pub until: Wall,
    /// The wait as the server sent it, in seconds.
    pub asked_seconds: u64,
    /// The code of the answer that asked for it.
    pub code: Code,
    /// Whether it was sent as Retry-After or its kin, and not as the reset of a quota.
    pub retry_after: bool,
}

/// What a server asked of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneState {
    /// The latest wait that the server asked for.
    pub hint: Option<HintState>,
    /// The end of a spent quota, as the server sent it. A quota without an end is not kept: how long to
    /// wait for it is our guess, and a person may just have paid.
    pub quota_until: Option<Wall>,
    /// The end of the cooldown of an open breaker.
    pub breaker_until: Option<Wall>,
}

impl LaneState {
    /// No call before this; `None` if nothing was asked for.
    #[must_use]
    pub fn not_before(&self) -> Option<Wall> {
        self.hint.map(|hint| hint.until).max(self.quota_until).max(self.breaker_until)
    }

    /// What is still to come at `wall`.
    #[must_use]
    pub fn after(&self, wall: Wall) -> LaneState {
        LaneState {
            hint: self.hint.filter(|hint| hint.until > wall),
            quota_until: self.quota_until.filter(|until| *until > wall),
            breaker_until: self.breaker_until.filter(|until| *until > wall),
        }
    }

    /// With no wait that ends later than `max` after `wall`: what was written down by an older version, or by
    /// somebody else, is believed no more than what a server says. What the server asked for stays.
    #[must_use]
    pub fn within(&self, wall: Wall, max: Duration) -> LaneState {
        let ms = i64::try_from(max.as_millis()).unwrap_or(i64::MAX);
        let last = Wall::from_millis(wall.millis().saturating_add(ms));
        LaneState {
            hint: self.hint.map(|hint| HintState { until: hint.until.min(last), ..hint }),
            quota_until: self.quota_until.map(|until| until.min(last)),
            breaker_until: self.breaker_until.map(|until| until.min(last)),
        }
    }

    /// Of both, the later of each.
    #[must_use]
    pub fn merge(&self, other: &LaneState) -> LaneState {
        let rank = |hint: &HintState| (hint.until, hint.asked_seconds, hint.code, hint.retry_after);
        LaneState {
            hint: match (self.hint, other.hint) {
                (Some(a), Some(b)) => Some(if rank(&a) >= rank(&b) { a } else { b }),
                (a, b) => a.or(b),
            },
            quota_until: self.quota_until.max(other.quota_until),
            breaker_until: self.breaker_until.max(other.breaker_until),
        }
    }

    /// Whether this asks for more than `other`, by more than `slack` in any of its times. The same
    /// promise read twice differs by what the clocks differ.
    #[must_use]
    pub fn exceeds(&self, other: &LaneState, slack: Duration) -> bool {
        let slack = i64::try_from(slack.as_millis()).unwrap_or(i64::MAX);
        let later = |a: Option<Wall>, b: Option<Wall>| match (a, b) {
            (Some(a), Some(b)) => a.millis_since(b) > slack,
            (a, _) => a.is_some(),
        };
        let hint = |state: &LaneState| state.hint.map(|hint| hint.until);
        later(hint(self), hint(other))
            || later(self.quota_until, other.quota_until)
            || later(self.breaker_until, other.breaker_until)
    }
}

/// The last wait that a server asked a lane for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hint {
    pub(super) until: Mono,
    pub(super) asked: Duration,
    pub(super) code: Code,
    pub(super) retry_after: bool,
}

impl Lane {
    /// Notes what an answer asks for: the end of a spent quota, and a wait.
    pub(super) fn note_asked(&mut self, verdict: &Verdict, hints: &Hints, now: Mono) {
        if let VerdictKind::QuotaSpent { until } = verdict.kind {
            self.quota_until = self.quota_until.max(until.unwrap_or(now + self.quota_wait));
            self.quota_told = self.quota_told.max(until.unwrap_or(Mono::ZERO));
        }
        if let Some(until) = verdict.until() {
            self.note_hint(until, verdict.code, hints, now);
        }
    }

    /// A wait was decided on. It is noted if the server asked for it: a name that does not resolve
    /// waits too, by our own rule.
    fn note_hint(&mut self, until: Mono, code: Code, hints: &Hints, now: Mono) {
        let asked_for = hints.throttle_wait().is_some();
        if asked_for && until > now && self.hint.is_none_or(|hint| until >= hint.until) {
            let retry_after = hints.retry_after.is_some();
            let asked = hints.asked.unwrap_or(until.since(now));
            self.hint = Some(Hint { until, asked, code, retry_after });
        }
    }

    /// Whether calls are let out, for [`LaneWatch`](crate::patience::LaneWatch).
    #[must_use]
    pub fn reading(&self, now: Mono) -> LaneReading {
        LaneReading {
            breaker: self.breaker.state(now),
            hint_until: self.told_until().max(self.limiter.metered_until(now)),
            hint_code: self.hint.map_or(Code::RATE_LIMITED, |hint| hint.code),
            quota_until: self.quota_until,
        }
    }

    /// What the server asked for and is still to come.
    #[must_use]
    pub fn state(&self, now: Now) -> LaneState {
        let wall = |until: Mono| {
            (until > now.mono).then(|| {
                let ahead = until.since(now.mono);
                // Rounded up: never earlier than asked.
                let ms = i64::try_from(ahead.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
                Wall::from_millis(now.wall.millis().saturating_add(ms))
            })
        };
        let hint = self.hint.and_then(|hint| {
            let asked_seconds = hint.asked.as_millis().div_ceil(MILLIS);
            Some(HintState {
                until: wall(hint.until)?,
                asked_seconds: u64::try_from(asked_seconds).unwrap_or(u64::MAX),
                code: hint.code,
                retry_after: hint.retry_after,
            })
        });
        let breaker_until = match self.breaker.state(now.mono) {
            BreakerState::Open(until) => wall(until),
            BreakerState::Closed | BreakerState::HalfOpen => None,
        };
        LaneState { hint, quota_until: wall(self.quota_told), breaker_until }
    }

    /// Takes over what a server asked of this lane before. What has passed is left out, and
    /// nothing that the lane knows already becomes earlier.
    pub fn restore(&mut self, state: &LaneState, now: Now) {
        let state = state.after(now.wall).within(now.wall, self.wait_max);
        let mono = |until: Wall| {
            let ms = u64::try_from(until.millis_since(now.wall)).unwrap_or(0);
            now.mono + Duration::from_millis(ms)
        };
        if let Some(hint) = state.hint {
            let until = mono(hint.until);
            self.limiter.hold_until(until);
            if self.hint.is_none_or(|known| until > known.until) {
                let asked = Duration::from_secs(hint.asked_seconds);
                let HintState { code, retry_after, .. } = hint;
                self.hint = Some(Hint { until, asked, code, retry_after });
            }
        }
        if let Some(until) = state.quota_until {
            self.quota_told = self.quota_told.max(mono(until));
            self.quota_until = self.quota_until.max(self.quota_told);
        }
        if let Some(until) = state.breaker_until {
            self.breaker.open_until(mono(until));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Rng;
    use crate::lane::{Admit, LaneConfig};

    fn now(s: i64) -> Now {
        Now { mono: Mono::from_millis(s as u64 * 1000), wall: Wall::from_secs(1_000_000 + s) }
    }

    /// Another process: its monotonic clock begins anew.
    fn restarted(s: i64) -> Now {
        Now { mono: Mono::ZERO, wall: Wall::from_secs(1_000_000 + s) }
    }

    fn settle(lane: &mut Lane, kind: VerdictKind, code: Code, at: Now) {
        let Admit::Go(permit) = lane.admit(at.mono) else { panic!("{:?}", lane.admit(at.mono)) };
        let verdict = Verdict { kind, code, status: None };
        let retry_after = verdict.until().map(|until| until.since(at.mono));
        lane.settle(permit, &verdict, &Hints { retry_after, ..Hints::default() }, at.mono);
    }

    fn lane() -> Lane {
        Lane::new(&LaneConfig::default())
    }

    #[test]
    fn a_hint_outlives_the_process() {
        let mut first = lane();
        let until = now(100).mono;
        settle(&mut first, VerdictKind::Throttled { until: Some(until) }, Code::RATE_LIMITED, now(0));
        let state = first.state(now(10));
        let hint = state.hint.unwrap();
        assert_eq!((hint.until, hint.asked_seconds, hint.code), (now(100).wall, 100, Code::RATE_LIMITED));
        assert_eq!((state.quota_until, state.breaker_until), (None, None));
        assert_eq!(state.not_before(), Some(now(100).wall));

        let mut second = lane();
        second.restore(&state, restarted(40));
        assert_eq!(second.admit(Mono::from_millis(59_999)), Admit::Wait(Mono::from_millis(60_000)));
        assert_eq!(second.reading(Mono::ZERO).hint_until, Mono::from_millis(60_000));
        assert!(matches!(second.admit(Mono::from_millis(60_000)), Admit::Go(_)));
        // And the one after it.
        assert_eq!(
            second.state(Now { mono: Mono::from_millis(1), ..restarted(40) }).hint.unwrap().asked_seconds,
            100
        );
    }

    #[test]
    fn processes_that_restore_one_wait_come_back_one_after_the_other() {
        let mut first = lane();
        let until = now(100).mono;
        settle(&mut first, VerdictKind::Throttled { until: Some(until) }, Code::RATE_LIMITED, now(0));
        let state = first.state(now(10));
        let returns = [1, 2, 3].map(|seed| {
            let mut lane = lane();
            lane.restore(&state, restarted(40));
            lane.spread_restored(Mono::ZERO, &mut Rng::new(seed));
            // What is saved for the next is what the server said.
            assert_eq!(lane.state(restarted(40)).hint.map(|hint| hint.until), Some(now(100).wall));
            let Admit::Wait(at) = lane.admit(Mono::ZERO) else { panic!() };
            at
        });
        let told = Mono::from_millis(60_000);
        assert!(returns.iter().all(|at| (told..=told + Duration::from_secs(1)).contains(at)), "{returns:?}");
        assert!(returns[0] != returns[1] && returns[1] != returns[2], "{returns:?}");
    }

    #[test]
    fn a_spent_quota_outlives_the_process() {
        let mut first = lane();
        let until = Some(now(3600).mono);
        settle(&mut first, VerdictKind::QuotaSpent { until }, Code::QUOTA_EXHAUSTED, now(0));
        let state = first.state(now(0));
        assert_eq!(state.quota_until, Some(now(3600).wall));
        let mut second = lane();
        second.restore(&state, restarted(600));
        let shut = Admit::Shut(Mono::from_millis(3_000_000), Code::QUOTA_EXHAUSTED);
        assert_eq!(second.admit(Mono::ZERO), shut);
    }

    #[test]
    fn a_quota_without_an_end_is_our_guess_and_not_kept() {
        let mut lane = lane();
        settle(&mut lane, VerdictKind::QuotaSpent { until: None }, Code::QUOTA_EXHAUSTED, now(0));
        assert_eq!(lane.state(now(0)), LaneState::default());
        assert_eq!(lane.admit(now(1).mono), Admit::Shut(now(3600).mono, Code::QUOTA_EXHAUSTED));
    }

    #[test]
    fn an_open_breaker_outlives_the_process() {
        let mut config = LaneConfig::default();
        config.breaker.calls_min = 1;
        config.breaker.probes = 1;
        let mut first = Lane::new(&config);
        settle(&mut first, VerdictKind::Transient { until: None }, Code::TIMEOUT, now(0));
        let state = first.state(now(0));
        assert_eq!(state.breaker_until, Some(now(30).wall));
        let mut second = Lane::new(&config);
        second.restore(&state, restarted(20));
        assert_eq!(second.admit(Mono::ZERO), Admit::Shut(Mono::from_millis(10_000), Code::CIRCUIT_OPEN));
        let late = Mono::from_millis(10_000);
        let Admit::Go(probe) = second.admit(late) else { panic!() };
        second.settle(probe, &Verdict::DONE, &Hints::default(), late);
        assert_eq!(second.breaker().state(late), BreakerState::Closed, "a probe closes it as ever");
    }

    #[test]
    fn a_wait_is_bounded_where_it_is_told_and_where_it_is_restored() {
        let (day, century) = (86_400, 100 * 365 * 86_400);
        let mut lane = lane();
        let until = Some(now(century).mono);
        settle(&mut lane, VerdictKind::QuotaSpent { until }, Code::QUOTA_EXHAUSTED, now(0));
        let state = lane.state(now(0));
        assert_eq!(state.not_before(), Some(now(day).wall));
        assert_eq!(state.hint.unwrap().asked_seconds, century as u64, "what was asked for is known");
        assert_eq!(lane.reading(now(0).mono).quota_until, now(day).mono);

        // A file of an older version, or of somebody else.
        let far = Wall::from_secs(1_000_000 + century);
        let hint = HintState { until: far, asked_seconds: 5, code: Code::RATE_LIMITED, retry_after: true };
        let old = LaneState { hint: Some(hint), quota_until: Some(far), breaker_until: Some(far) };
        let mut second = Lane::new(&LaneConfig::default());
        second.restore(&old, restarted(0));
        let state = second.state(restarted(0));
        let last = Some(now(day).wall);
        assert_eq!(
            (state.hint.map(|hint| hint.until), state.quota_until, state.breaker_until),
            (last, last, last)
        );
        second.note_answer(
            &Verdict {
                kind: VerdictKind::Throttled { until: Some(Mono::FAR) },
                code: Code::RATE_LIMITED,
                status: None,
            },
            &Hints { retry_after: Some(Duration::MAX), ..Hints::default() },
            restarted(7).mono,
        );
        second.shut_quota(Mono::FAR, restarted(7).mono);
        assert_eq!(second.state(restarted(0)).not_before(), last);
        // Who sets it may have it.
        let mut patient = Lane::new(&LaneConfig { wait_max: Duration::MAX, ..LaneConfig::default() });
        patient.restore(&old, restarted(0));
        assert_eq!(patient.state(restarted(0)).quota_until, Some(far));
    }

    #[test]
    fn what_has_passed_is_forgotten() {
        let mut first = lane();
        settle(&mut first, VerdictKind::Throttled { until: Some(now(5).mono) }, Code::RATE_LIMITED, now(0));
        assert_eq!(first.state(now(5)), LaneState::default());
        let state = first.state(now(0));
        assert_eq!(state.after(now(4).wall), state);
        assert_eq!(state.after(now(5).wall), LaneState::default());
        let mut second = lane();
        second.restore(&state, restarted(5));
        assert!(matches!(second.admit(Mono::ZERO), Admit::Go(_)));
    }

    #[test]
    fn a_restored_lane_is_never_earlier() {
        let mut lane = lane();
        settle(
            &mut lane,
            VerdictKind::QuotaSpent { until: Some(now(900).mono) },
            Code::QUOTA_EXHAUSTED,
            now(0),
        );
        let before = lane.state(now(1));
        let earlier = LaneState { quota_until: Some(now(100).wall), ..LaneState::default() };
        lane.restore(&earlier, now(1));
        assert_eq!(lane.state(now(1)), before);
    }

    #[test]
    fn merging_keeps_the_later_of_each() {
        let hint = |s, asked_seconds| {
            Some(HintState { until: now(s).wall, asked_seconds, code: Code::RATE_LIMITED, retry_after: true })
        };
        let a = LaneState { hint: hint(10, 10), quota_until: Some(now(50).wall), breaker_until: None };
        let b = LaneState {
            hint: hint(20, 5),
            quota_until: Some(now(40).wall),
            breaker_until: Some(now(1).wall),
        };
        let merged = LaneState {
            hint: hint(20, 5),
            quota_until: Some(now(50).wall),
            breaker_until: Some(now(1).wall),
        };
        assert_eq!((a.merge(&b), b.merge(&a), merged.merge(&a)), (merged, merged, merged));
        assert_eq!(a.merge(&LaneState::default()), a);
        assert_eq!(merged.not_before(), Some(now(50).wall));
        let slack = Duration::from_millis(50);
        assert!(merged.exceeds(&a, slack) && !a.exceeds(&merged, slack) && !a.exceeds(&a, slack));
        assert!(a.exceeds(&LaneState::default(), slack));
    }
}
