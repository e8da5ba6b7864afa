//! Timers that are late: a lane that was told to ask again at a time often asks some milliseconds later.
//!
//! A pacer that begins a new interval with each late call would lose the time by which the timer was late, at a
//! thousand calls a second half of its rate. So a lane is answered as of the time that it was told, call by call until the present:
//! several calls may go at once, and the average rate is exact. A call is noted when it goes. A server that saves
//! nothing is the exception: the call after a late one would come too soon, and what is lost is lost.

use super::{Limiter, LimiterAdmit};
use crate::time::Mono;
use core::time::Duration;

/// The longest time by which a call that could not ask when it was due is caught up with.
pub const LATE_MAX: Duration = Duration::from_millis(5);

impl Limiter {
    /// May a call go out now? Asked later than it was told to, it answers as of then: a timer that is late costs
    /// no calls.
    pub fn admit(&mut self, now: Mono) -> LimiterAdmit {
        let mut at = self.due.map_or(now, |due| due.max(now.saturating_sub(LATE_MAX)).min(now));
        loop {
            self.due = None;
            match self.admit_as_of(at, now) {
                LimiterAdmit::Go(ticket) => {
                    if at < now {
                        // A server that saves nothing counts from the call that was late.
                        if self.single_token.is_some() {
                            self.pace.delay(now, 1.0);
                        } else {
                            self.due = Some(at);
                        }
                    }
                    return LimiterAdmit::Go(ticket);
                }
                LimiterAdmit::Full => return LimiterAdmit::Full,
                LimiterAdmit::At(due) if due <= now && at < now => {
                    at = if due > at { due } else { now };
                }
                LimiterAdmit::At(due) => {
                    self.due = Some(due);
                    return LimiterAdmit::At(due);
                }
            }
        }
    }
}
