//! Which ends of a call are a reason to ask another service.
//!
//! A fallback is for a service that cannot answer now, not for a record that it refuses: a spent
//! quota, an open breaker, and, if that is wanted, no match. A failure of the record itself would
//! be the same at the next service, or should be seen.
//!
//! While the breaker of a service with a fallback is open its records do not wait for it
//! ([`crate::call::WhileOpen::Park`]): the next service is asked at once. When its cooldown is over,
//! a record probes the service as usual.

use crate::breaker::BreakerState;
use crate::call::{GiveUpReason, Next};
use crate::taxonomy::Code;
use crate::verdict::{Verdict, VerdictKind};

/// The ends of a call that pass a record on to the next service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FallbackOn {
    /// The quota of the service is spent.
    pub quota_spent: bool,
    /// The breaker of the service is open.
    pub circuit_open: bool,
    /// The service has nothing for the record.
    pub no_match: bool,
}

impl Default for FallbackOn {
    /// The service cannot answer. No match is an answer.
    fn default() -> FallbackOn {
        FallbackOn { quota_spent: true, circuit_open: true, no_match: false }
    }
}

impl FallbackOn {
    /// Whether a call that ended so passes its record on. `breaker` is that of the service's lane.
    #[must_use]
    pub fn applies(&self, verdict: &Verdict, next: &Next, breaker: BreakerState) -> bool {
        if matches!(next, Next::RetryAt(_) | Next::GiveUp(GiveUpReason::Cancelled)) {
            return false;
        }
        match verdict.kind {
            VerdictKind::NoMatch => self.no_match,
            VerdictKind::QuotaSpent { .. } => self.quota_spent,
            // Attempts that are used up while the breaker is open were those of the service.
            VerdictKind::Transient { .. } => {
                self.circuit_open && (verdict.code == Code::CIRCUIT_OPEN || breaker != BreakerState::Closed)
            }
            VerdictKind::Done | VerdictKind::Throttled { .. } | VerdictKind::Permanent => false,
        }
    }

    /// Whether a lane that is shut for this reason is no reason to end the run: its records are
    /// passed on.
    #[must_use]
    pub fn covers(&self, code: Code) -> bool {
        (code == Code::QUOTA_EXHAUSTED && self.quota_spent)
            || (code == Code::CIRCUIT_OPEN && self.circuit_open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Mono;

    const CLOSED: BreakerState = BreakerState::Closed;
    const OPEN: BreakerState = BreakerState::Open(Mono::from_millis(9));

    fn verdict(kind: VerdictKind, code: Code) -> Verdict {
        Verdict { kind, code, status: None }
    }

    #[test]
    fn a_service_that_cannot_answer_is_passed_over_and_a_record_that_is_refused_is_not() {
        let until = Mono::from_millis(5);
        let quota = verdict(VerdictKind::QuotaSpent { until: None }, Code::QUOTA_EXHAUSTED);
        let open = verdict(VerdictKind::Transient { until: Some(until) }, Code::CIRCUIT_OPEN);
        let down = verdict(VerdictKind::Transient { until: None }, Code::SERVICE_UNAVAILABLE);
        let none = verdict(VerdictKind::NoMatch, Code::NO_MATCH);
        let refused = verdict(VerdictKind::Permanent, Code::BAD_REQUEST);
        let spent = Next::GiveUp(GiveUpReason::Exhausted);
        let on = FallbackOn::default();
        for (of, next, breaker, passed) in [
            (quota, Next::Park(until, GiveUpReason::QuotaSpent), CLOSED, true),
            (open, Next::Park(until, GiveUpReason::CircuitOpen), OPEN, true),
            (down, spent, OPEN, true),
            (down, spent, CLOSED, false),
            (down, Next::RetryAt(until), OPEN, false),
            (down, Next::GiveUp(GiveUpReason::Cancelled), OPEN, false),
            (none, Next::Accept, CLOSED, false),
            (Verdict::DONE, Next::Accept, OPEN, false),
            (refused, Next::GiveUp(GiveUpReason::Permanent), OPEN, false),
        ] {
            assert_eq!(on.applies(&of, &next, breaker), passed, "{of:?} {next:?} {breaker:?}");
        }
        let only = FallbackOn { quota_spent: false, circuit_open: false, no_match: true };
        assert!(only.applies(&none, &Next::Accept, CLOSED));
        assert!(!only.applies(&quota, &Next::Park(until, GiveUpReason::QuotaSpent), CLOSED));
        assert!(on.covers(Code::QUOTA_EXHAUSTED) && on.covers(Code::CIRCUIT_OPEN));
        assert!(!on.covers(Code::RATE_LIMITED) && !only.covers(Code::CIRCUIT_OPEN));
    }
}
