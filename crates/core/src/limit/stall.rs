//! Stalls: the server or the lane stands still, and what waited meanwhile is looked at within one instant.
//!
//! A bucket of one token then refuses all but one of the calls that waited, though each went on time. Nothing of
//! that says anything about the rate: neither the refusals, nor when the accepted ones were sent. A stall shows
//! by its answers: calls are out, and none comes back for some round trips. Whatever was sent before the first
//! answer after that teaches nothing, and the lane goes on with what it knew.

use super::{Limiter, Ticket};
use crate::time::{Mono, seconds};

/// The last stall.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stall {
    /// Calls sent before this one were out when it ended.
    before: u64,
    /// When it began, as far as the lane could see: the first call that went after the last answer.
    from: Mono,
    /// How long it was, in seconds.
    length: f64,
    /// Calls sent in it that were accepted.
    accepted: u64,
    /// One that waited was refused: the server had not saved enough for all.
    refused: bool,
}

impl Stall {
    pub(super) const NONE: Stall =
        Stall { before: 0, from: Mono::ZERO, length: 0.0, accepted: 0, refused: false };
}

impl Limiter {
    /// The first call came back after `silence` seconds without an answer, longer than usual.
    pub(super) fn stall_ended(&mut self, now: Mono, silence: f64) {
        self.stall = Stall {
            before: self.seq,
            from: now.saturating_sub(seconds(silence)),
            length: silence,
            ..Stall::NONE
        };
    }

    /// Whether the call was out when the last stall ended.
    pub(super) const fn was_stalled(&self, ticket: &Ticket) -> bool {
        ticket.seq < self.stall.before
    }

    /// A call that was out in the last stall was accepted.
    pub(super) fn accepted_after_stall(&mut self, ticket: &Ticket) {
        if ticket.sent < self.stall.from {
            return;
        }
        self.stall.accepted += 1;
        if self.stall.refused {
            self.estimate.cut_out(self.stall.before, 0.0, 1);
        }
    }

    /// A call that was out in the last stall was refused.
    pub(super) fn refused_after_stall(&mut self, now: Mono) {
        if !core::mem::replace(&mut self.stall.refused, true) {
            self.estimate.cut_out(self.stall.before, self.stall.length, self.stall.accepted);
            self.nothing_saved(now, true);
            self.pace.delay(now, 1.0);
        }
        if self.probing {
            self.probe_closed(now);
        }
    }
}
