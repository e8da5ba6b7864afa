//! The state that the mutex of a lane guards, and what it says when it is asked.

use super::permit::HeldPermit;
use super::queue::{Refused, WaitQueue};
use super::share::{LaneRole, ShareMode, ToOwner};
use super::{Counts, Due, FULL_RECHECK, STUCK_RECHECK};
use tidegate_core::breaker::BreakerState;
use tidegate_core::lane::fleet::PermitWays;
use tidegate_core::lane::{self as core, Admit, LaneConfig};
use tidegate_core::limit::{BelievedKind, LimitBelief};
use tidegate_core::{Code, Mono, Now};

/// The state that the mutex of a lane guards.
pub(super) struct LockedLane {
    pub(super) core: core::Lane,
    pub(super) queue: WaitQueue,
    pub(super) due: Option<Due>,
    /// The number of calls in flight.
    pub(super) in_flight: u32,
    /// The number of calls of members in flight.
    pub(super) foreign: u32,
    /// How the lane is shared.
    pub(super) mode: ShareMode,
    /// Those who share the lane, this process included; 0 while it is not known.
    pub(super) processes: u32,
    /// The server at which the lane is shared cannot be reached.
    pub(super) unreachable: bool,
    /// How long permits travel to members.
    pub(super) ways: PermitWays<u64>,
    /// How often the lane of the core was replaced.
    pub(super) generation: u32,
    /// The lane of the core has just said that as many calls are out as may be.
    pub(super) is_full: bool,
    /// The calls in flight that the user allows.
    pub(super) most: u32,
    /// Permits that a member with a rate of its own asks for at once.
    pub(super) burst_max: Option<u32>,
    /// The deadline of the timer; `None` before it was started.
    pub(super) armed: Option<Mono>,
    pub(super) counts: Counts,
    pub(super) closed: bool,
    /// Whether calls are refused, and do not wait, while the breaker is open.
    pub(super) refuses_open: bool,
    /// The number of free slots at which the driver is notified.
    pub(super) slack: u32,
    /// The kind of limit that the lane last believed in.
    pub(super) believed: BelievedKind,
    /// The lane state last passed to `states`.
    pub(super) told: core::LaneState,
    /// It was said that a wait was cut.
    pub(super) said_cut: bool,
}

/// The result of asking the core for one permit.
pub(super) enum Asked {
    Go(core::Permit),
    /// A call in flight must settle first.
    Full,
    Due(Due),
}

impl LockedLane {
    /// Asks the core for one permit.
    pub(super) fn ask(&mut self, now: Mono) -> Asked {
        // Calls that a lane before let out are still out.
        if self.in_flight.saturating_add(self.foreign) >= self.most.max(1) {
            return Asked::Full;
        }
        let (at, shut) = match self.core.admit(now) {
            Admit::Go(permit) => {
                self.due = None;
                return Asked::Go(permit);
            }
            Admit::Full => return Asked::Full,
            Admit::Wait(at) => (at, None),
            Admit::Shut(at, code) => (at, Some(code)),
        };
        // Do not spin if the core refuses a permit at the time that it named.
        Asked::Due(Due { at: if at > now { at } else { now + STUCK_RECHECK }, shut })
    }

    /// Whether a refusal concerns a call with the deadline `by`.
    pub(super) fn concerns(&self, refusal: Refused, by: Option<Mono>) -> bool {
        refusal.holds(by) || (self.refuses_open && matches!(refusal, Refused::Shut(..)))
    }

    /// As many calls are out as may be.
    pub(super) fn full(&mut self, now: Mono) {
        self.is_full = true;
        let idle = (self.in_flight + self.foreign == 0).then_some(now + FULL_RECHECK);
        self.due = idle.or_else(|| self.core.full_until(now)).map(|at| Due { at, shut: None });
    }

    /// Begins with a new lane of the core, which keeps what the server asked for.
    pub(super) fn renew(&mut self, config: &LaneConfig, now: Now) {
        let (promises, quota) = (self.core.state(now), self.core.reading(now.mono).quota_until);
        self.core = core::Lane::new(config);
        self.core.restore(&promises, now);
        self.core.shut_quota(quota, now.mono);
        self.generation = self.generation.wrapping_add(1);
        self.is_full = false;
        self.burst_max = config.limit.rate_max.map(|_| config.limit.burst.unwrap_or(1.0) as u32);
    }

    /// Whether this process may ask its own lane: it is its owner, or the owner has granted a permit.
    pub(super) fn has_grant(&mut self, now: Mono) -> bool {
        match &mut self.mode {
            ShareMode::Alone | ShareMode::Apart => true,
            ShareMode::Owner(owner) => owner.is_held(),
            ShareMode::Unjoined | ShareMode::Joining => false,
            ShareMode::Member(membership) => membership.has_permit(now),
        }
    }

    /// A permit goes out.
    pub(super) fn hold(&mut self, core: core::Permit, foreign: bool) -> HeldPermit {
        if foreign {
            self.foreign += 1;
        } else {
            self.in_flight += 1;
            self.counts.sent += 1;
        }
        let grant = match &mut self.mode {
            ShareMode::Member(membership) => membership.take(),
            _ => None,
        };
        HeldPermit { core, generation: self.generation, grant, foreign }
    }

    pub(super) fn count_returned(&mut self, foreign: bool) {
        let count = if foreign { &mut self.foreign } else { &mut self.in_flight };
        *count = count.saturating_sub(1);
    }

    /// A permit was not used, or its call was abandoned.
    pub(super) fn give_up(&mut self, held: HeldPermit, now: Mono) {
        if held.generation != self.generation {
            return;
        }
        if let (Some((grant, _)), ShareMode::Member(membership)) = (held.grant, &self.mode) {
            membership.say(ToOwner::Release(grant));
        }
        if held.foreign {
            self.core.withdraw(held.core, now);
        } else {
            self.core.release(held.core, now);
        }
    }

    pub(super) fn role(&self) -> LaneRole {
        match &self.mode {
            ShareMode::Alone | ShareMode::Unjoined | ShareMode::Joining | ShareMode::Apart => LaneRole::Alone,
            ShareMode::Owner(owner) => LaneRole::Owner { members: owner.members },
            ShareMode::Member(_) => LaneRole::Member,
        }
    }

    pub(super) fn rate(&self) -> Option<f64> {
        match &self.mode {
            ShareMode::Member(membership) => membership.rate(),
            _ => self.core.limiter().rate(),
        }
    }

    pub(super) fn cap(&self) -> u32 {
        match &self.mode {
            ShareMode::Member(membership) => membership.cap().min(self.core.limiter().cap()),
            _ => self.core.limiter().cap(),
        }
    }

    pub(super) fn belief(&self, now: Mono) -> LimitBelief {
        match &self.mode {
            ShareMode::Member(membership) => membership.belief(now),
            _ => self.core.limiter().belief(),
        }
    }
}

/// The next time at which a lane may send by what its server asked for.
pub(super) fn promised(lane: &core::Lane, now: Mono) -> Option<Due> {
    let reading = lane.reading(now);
    let due = match reading.breaker {
        _ if reading.quota_until > now => Due { at: reading.quota_until, shut: Some(Code::QUOTA_EXHAUSTED) },
        BreakerState::Open(until) if until > now => Due { at: until, shut: Some(Code::CIRCUIT_OPEN) },
        _ => Due { at: reading.hint_until, shut: None },
    };
    (due.at > now).then_some(due)
}
