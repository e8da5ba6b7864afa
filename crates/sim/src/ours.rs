//! The shipped limiter as a client of the drain world.

use tidegate_core::Mono;
use tidegate_core::hint::Hints;
use tidegate_core::limit::{Admit, Limiter, Seen, Ticket};

use crate::drain::{Client, Decision};

impl Client for Limiter {
    type Ticket = Ticket;

    fn admit(&mut self, now: Mono) -> Decision<Ticket> {
        match Limiter::admit(self, now) {
            Admit::Go(ticket) => Decision::Go(ticket),
            Admit::At(t) => Decision::At(t),
            Admit::Full => Decision::Full,
        }
    }

    fn settle(&mut self, ticket: Ticket, now: Mono, seen: Seen, hints: &Hints) {
        Limiter::settle(self, ticket, now, seen, hints);
    }
}
