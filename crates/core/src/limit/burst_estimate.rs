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

/// The burst of a server whose rate is learned from refusals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BurstEstimate {
    /// Seconds and accepted calls of the first run, until its refusal.
    first: Option<(f64, f64)>,
    /// The burst in calls, once a catch-up has told it.
    tried: Option<f64>,
    /// The most calls that could have gone at once in the catch-up under way; 0 if there is none.
    catch_up: f64,
    /// Seconds for which the pace was not what held calls back, as far as they were looked at.
    idle: f64,
    /// Seconds of stalls for which nothing was saved.
    lost: f64,
}

impl BurstEstimate {
    pub(super) const NEW: BurstEstimate =
        BurstEstimate { first: None, tried: None, catch_up: 0.0, idle: 0.0, lost: 0.0 };

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

    /// A call goes when so many could. True if a catch-up is over, and was accepted as far as is known.
    pub(super) fn sent(&mut self, tokens: f64, rate: f64) -> bool {
        if self.catch_up == 0.0 || tokens >= CATCH_UP_MIN {
            return false;
        }
        let all = core::mem::take(&mut self.catch_up);
        let burst = self.burst(rate);
        if all + 1.0 >= burst {
            self.tried = Some(GROWTH * burst);
        }
        true
    }

    /// A call was refused when so many could still have gone.
    pub(super) fn refused(&mut self, tokens: f64) {
        let all = core::mem::take(&mut self.catch_up);
        if all > 0.0 {
            self.tried = Some((REFUSED_SHARE * (all - tokens.max(0.0))).max(1.0));
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
