//! The shipped limiter as a client of the drain world.

use tidegate_core::Mono;
use tidegate_core::hint::Hints;
use tidegate_core::limit::{Feedback, Limiter, LimiterAdmit, Ticket};

use crate::drain::{Decision, DrainClient};

impl DrainClient for Limiter {
    type Ticket = Ticket;

    fn admit(&mut self, now: Mono) -> Decision<Ticket> {
        match Limiter::admit(self, now) {
            LimiterAdmit::Go(ticket) => Decision::Go(ticket),
            LimiterAdmit::At(t) => Decision::At(t),
            LimiterAdmit::Full => Decision::Full,
        }
    }

    fn settle(&mut self, ticket: Ticket, now: Mono, seen: Feedback, hints: &Hints) {
        Limiter::settle(self, ticket, now, seen, hints);
    }
}
