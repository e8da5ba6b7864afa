//! The rate of a server whose refusals silence the lane.
//!
//! A server that answers a refusal with Retry-After in whole seconds makes each one dear: the lane
//! keeps silent for the second, however small the bucket. So refusals are not sought; few of them
//! must tell all. Between two silences lies a run. After a silence a bucket holds what it can hold,
//! and a run of `t` seconds then accepts `n = B + r·t` calls: two runs of different lengths give
//! both rate and burst, so the second run goes at an eighth of the speed of the first. A window
//! accepts the same `n` in every run; its rate is `n` over the time from one beginning to the next.
//! Both `(n − B) / t` and `n` over run and silence are lower bounds, so the larger of them is kept.
//!
//! From then on the pace stays a hair below, and grows only after a time in proportion to what a
//! refusal would cost: nothing where the burst covers the silence.

use super::learn::secs;
use crate::time::Mono;

/// A wait up to this may be any shorter wait rounded up to a whole second.
const ROUNDED: f64 = 1.5;

/// Runs between silences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pauses {
    /// When the run began, and what was accepted in it.
    began: Option<Mono>,
    accepted: f64,
    /// The first run: seconds and calls.
    first: Option<(f64, f64)>,
    runs: u32,
    rate: f64,
    /// Calls that the rate rests on.
    calls: f64,
    burst: f64,
    /// The length of a silence.
    silence: f64,
    gain: f64,
}

impl Pauses {
    pub(super) const NEW: Pauses = Pauses {
        began: None,
        accepted: 0.0,
        first: None,
        runs: 0,
        rate: f64::INFINITY,
        calls: 0.0,
        burst: 0.0,
        silence: 0.0,
        gain: 0.0,
    };

    /// Whether refusals are dear and a rate is known.
    pub(super) const fn known(&self) -> bool {
        self.runs > 0
    }

    /// The estimate.
    pub(super) const fn estimate(&self) -> f64 {
        self.rate
    }

    /// The pace.
    pub(super) fn pace(&self) -> f64 {
        let doubt = (0.5 / self.calls.max(1.0)).clamp(0.002, 0.05);
        self.rate * (1.0 - doubt + self.gain)
    }

    /// Calls that may go at once after a silence.
    pub(super) fn credit(&self) -> f64 {
        if self.runs < 2 { 1.0 } else { (0.6 * self.burst.min(self.rate * self.silence)).max(1.0) }
    }

    /// A call goes out. True if the pace has changed.
    pub(super) fn sent(&mut self, now: Mono) -> bool {
        let began = *self.began.get_or_insert(now);
        if !self.known() {
            return false;
        }
        // What a refusal costs, in seconds of the server's work.
        let cost = (self.silence - self.burst / self.rate).max(0.0);
        let (quiet, double) = if self.runs < 2 {
            (self.silence, 0.5 * self.silence)
        } else {
            (3.0 * self.silence + 30.0 * cost, self.silence + 2.0 * cost)
        };
        let over = secs(began, now) - quiet;
        if over <= 0.0 {
            return false;
        }
        let gain = 0.005 * libm::exp2((over / double).min(12.0));
        let changed = gain > self.gain * 1.02;
        self.gain = if changed { gain } else { self.gain };
        changed
    }

    /// A call was accepted.
    pub(super) fn accepted(&mut self) {
        self.accepted += 1.0;
    }

    /// A call sent then was refused, and the server wants silence until the gate.
    pub(super) fn refused(&mut self, sent: Mono, now: Mono, gate: Mono) {
        let Some(began) = self.began.take() else { return };
        let run = secs(began, sent).max(1e-6);
        let whole = secs(began, gate).max(1e-6);
        let n = core::mem::take(&mut self.accepted).max(1.0);
        self.silence = secs(now, gate);
        let gain = core::mem::take(&mut self.gain);
        self.runs += 1;
        let by_run = n / whole;
        let rounded = self.silence <= ROUNDED;
        let Some((t0, n0)) = self.first else {
            self.first = Some((run, n));
            (self.burst, self.calls) = (n, 1.0);
            self.rate = if rounded { (n / run / 8.0).max(by_run) } else { by_run };
            return;
        };
        if gain > 0.02 {
            // The end of the run was above the limit, its beginning below.
            self.rate = (self.rate * (1.0 + 0.4 * gain)).max(by_run);
            self.calls = 20.0;
            return;
        }
        let (more, longer) = (n - n0, run - t0);
        if self.runs == 2 && more >= 3.0 + 0.03 * n && longer > 0.3 * t0 {
            self.rate = (more / longer).max(by_run);
            self.burst = (n0 - self.rate * t0).max(1.0);
            self.calls = more;
        } else if self.runs == 2 && rounded && run < 0.1 * self.silence {
            // Still faster than anything that could be measured.
            (self.first, self.runs) = (Some((run, n)), 1);
            self.rate = (n / run / 8.0).max(by_run);
        } else {
            if self.runs == 2 {
                self.burst = n;
            }
            self.rate = ((n - self.burst) / run).max(by_run);
            self.calls = n;
        }
    }
}
