//! How many calls a server takes at once after a pause: the burst that it has saved.
//!
//! A machine stalls, a network stalls, a batch is late. Meanwhile the server's bucket fills, and a lane
//! that goes on at its pace has lost what was saved. So the pace may catch up by as many calls as the
//! server is believed to hold. The first run of a lane says how many: it went as fast as the lane opens,
//! and what was accepted beyond the rate was the burst. Later it is tried: a catch-up that was accepted
//! as a whole says that there is more, one that was refused says where it ended.

/// Growth of the burst after a catch-up that was accepted as a whole.
const GROWTH: f64 = 1.25;
/// Share of a refused catch-up that the burst is taken for.
const REFUSED_SHARE: f64 = 0.7;
/// Calls that may go at once from which on it is a catch-up.
const CATCH_UP_MIN: f64 = 2.0;
/// A lane that could not send for this many seconds has stalled; timers alone are late by less.
const STALL_MIN: f64 = 0.03;

/// Calls that went at once after a stall.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CatchUp {
    /// How many, and the last of them.
    calls: f64,
    last: u64,
    /// The burst in calls, if all of them are accepted.
    burst: Option<f64>,
}

/// The burst of a server whose rate is learned from refusals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BurstEstimate {
    /// Seconds and accepted calls of the first run, until its refusal.
    first: Option<(f64, f64)>,
    /// The burst in calls, once a catch-up has told it.
    tried: Option<f64>,
    /// The most calls that could have gone at once in the catch-up under way; 0 if there is none.
    catch_up: f64,
    /// The catch-up that is over, until its last call is back.
    over: Option<CatchUp>,
    /// Seconds for which the pace was not what held calls back, as far as they were looked at.
    idle: f64,
    /// Seconds of stalls for which nothing was saved.
    lost: f64,
}

impl BurstEstimate {
    pub(super) const NEW: BurstEstimate =
        BurstEstimate { first: None, tried: None, catch_up: 0.0, over: None, idle: 0.0, lost: 0.0 };

    /// The burst in calls if the server's rate is this, in calls per second; at least one.
    pub(super) fn burst(&self, rate: f64) -> f64 {
        let first = self.first.map_or(1.0, |(time, calls)| calls - rate * time);
        self.tried.unwrap_or(first).max(1.0)
    }

    /// Seconds of stalls for which nothing was saved.
    pub(super) const fn lost(&self) -> f64 {
        self.lost
    }

    /// Whether calls go at once after a stall.
    pub(super) fn is_catching_up(&self) -> bool {
        self.catch_up > 0.0
    }

    /// The first run ended by a refusal after this many seconds and accepted calls.
    pub(super) fn first_run(&mut self, time: f64, calls: f64) {
        self.first.get_or_insert((time, calls));
    }

    /// The pace has not been what held calls back for `idle` seconds so far: the calls that a server of this
    /// rate has saved since the last look, if that was a stall.
    pub(super) fn stalled(&mut self, idle: f64, rate: f64) -> Option<f64> {
        let stall = idle - core::mem::replace(&mut self.idle, idle);
        if stall < STALL_MIN {
            return None;
        }
        let saved = (rate * stall).min(self.burst(rate) - 1.0);
        self.lost += stall - saved / rate;
        (saved >= 1.0).then(|| {
            self.catch_up = self.catch_up.max(1.0 + saved);
            saved
        })
    }

    /// Call `seq` goes when so many could. True if a catch-up is over with it.
    pub(super) fn sent(&mut self, seq: u64, tokens: f64, rate: f64) -> bool {
        if self.catch_up == 0.0 || tokens >= CATCH_UP_MIN {
            return false;
        }
        let calls = core::mem::take(&mut self.catch_up);
        let burst = self.burst(rate);
        let burst = (calls + 1.0 >= burst).then_some(GROWTH * burst);
        self.over = Some(CatchUp { calls, last: seq, burst });
        true
    }

    /// Call `seq` was accepted.
    pub(super) fn accepted(&mut self, seq: u64) {
        if let Some(over) = self.over.filter(|over| seq >= over.last) {
            self.over = None;
            self.tried = over.burst.or(self.tried);
        }
    }

    /// Call `seq` was refused when so many could still have gone.
    pub(super) fn refused(&mut self, seq: u64, tokens: f64) {
        // Those before the first of its refused calls were accepted; others may have been.
        let before = |over: &CatchUp| over.calls - 1.0 - over.last.saturating_sub(seq) as f64;
        let over = self.over.take_if(|over| before(over) >= 0.0).filter(|over| seq <= over.last);
        let under_way = core::mem::take(&mut self.catch_up);
        let accepted = over.as_ref().map_or(under_way - tokens.max(0.0), before);
        if under_way > 0.0 || over.is_some() {
            self.tried = Some((REFUSED_SHARE * accepted).max(1.0));
        }
    }

    /// The server has nothing saved, and the pace has been idle for `idle` seconds so far: in a stall, or else
    /// because the server was closed.
    pub(super) fn spent(&mut self, idle: f64, stalled: bool) {
        let stall = idle - core::mem::replace(&mut self.idle, idle);
        if stalled && stall >= STALL_MIN {
            self.lost += stall;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lane at 10 calls a second that has stalled for a second: what it believes that the server holds, three at
    /// first, when four calls have gone at once and the last of them is call 13.
    fn caught_up() -> BurstEstimate {
        let mut burst = BurstEstimate::NEW;
        burst.first_run(1.0, 13.0);
        assert_eq!((burst.stalled(1.0, 10.0), burst.burst(10.0)), (Some(2.0), 3.0));
        assert!(!burst.sent(11, 3.0, 10.0) && !burst.sent(12, 2.0, 10.0) && burst.sent(13, 1.0, 10.0));
        assert!(!burst.is_catching_up());
        burst
    }

    #[test]
    fn a_burst_grows_when_the_last_call_of_a_catch_up_was_accepted() {
        let mut burst = caught_up();
        burst.accepted(12);
        assert_eq!(burst.burst(10.0), 3.0, "the last one is out");
        burst.accepted(13);
        assert_eq!(burst.burst(10.0), 3.0 * GROWTH);
        burst.refused(14, 0.0);
        assert_eq!(burst.burst(10.0), 3.0 * GROWTH, "that is no part of it");
    }

    /// All calls of a catch-up are sent before the first of them is back.
    #[test]
    fn a_catch_up_that_is_refused_after_its_last_call_was_sent_says_where_the_burst_ends() {
        let mut burst = caught_up();
        burst.refused(12, 0.0);
        assert_eq!(burst.burst(10.0), 1.0);
        burst.accepted(13);
        assert_eq!(burst.burst(10.0), 1.0);
        let mut burst = caught_up();
        burst.refused(10, 0.0);
        assert_eq!(burst.burst(10.0), 3.0, "it went before the catch-up");
    }
}
