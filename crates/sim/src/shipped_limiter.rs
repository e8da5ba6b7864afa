//! The shipped limiter, alone and in its lane, as a client of the drain world.

use tidegate_core::Mono;
use tidegate_core::hint::Hints;
use tidegate_core::lane::{Admit, Lane, Permit};
use tidegate_core::limit::{Feedback, Limiter, LimiterAdmit, Ticket};
use tidegate_core::taxonomy::Code;
use tidegate_core::verdict::{Verdict, VerdictKind};

use crate::drain::{Decision, DrainClient};

impl DrainClient for Limiter {
    type Ticket = Ticket;

    fn admit(&mut self, now: Mono) -> Decision<Ticket> {
        match Limiter::admit(self, now) {
            LimiterAdmit::Go(ticket) => Decision::Go(ticket),
            LimiterAdmit::At(t) => Decision::At(t),
            LimiterAdmit::Full => self.full_until(now).map_or(Decision::Full, Decision::At),
        }
    }

    fn settle(&mut self, ticket: Ticket, now: Mono, seen: Feedback, hints: &Hints) {
        Limiter::settle(self, ticket, now, seen, hints);
    }
}

/// With its breaker: what looks like an outage closes the lane for a time.
impl DrainClient for Lane {
    type Ticket = Permit;

    fn admit(&mut self, now: Mono) -> Decision<Permit> {
        match Lane::admit(self, now) {
            Admit::Go(permit) => Decision::Go(permit),
            Admit::Wait(t) | Admit::Shut(t, _) => Decision::At(t),
            Admit::Full => self.full_until(now).map_or(Decision::Full, Decision::At),
        }
    }

    fn settle(&mut self, permit: Permit, now: Mono, seen: Feedback, hints: &Hints) {
        let verdict = match seen {
            Feedback::Accepted => Verdict::DONE,
            Feedback::Throttled { until } => {
                Verdict { kind: VerdictKind::Throttled { until }, code: Code::RATE_LIMITED, status: None }
            }
            Feedback::Failed { until } => Verdict {
                kind: VerdictKind::Transient { until },
                code: Code::SERVICE_UNAVAILABLE,
                status: None,
            },
        };
        Lane::settle(self, permit, &verdict, hints, now);
    }
}
