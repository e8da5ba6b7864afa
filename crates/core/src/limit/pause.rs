//! The rate of a server whose refusals silence the lane.
//!
//! A server that answers a refusal with Retry-After in whole seconds makes each one dear: the lane
//! keeps silent for the second, however small the bucket. So refusals are not sought; few of them
//! must tell all. Between two silences lies a run. After a silence a bucket holds what it can hold,
//! and a run of `t` seconds then accepts `n = B + r·t` calls: two runs of different lengths give
//! both rate and burst. So the second run climbs (`climb`): where it crossed the rate follows from
//! when it had spent the burst. It does so again when three runs on end were far too short, because
//! then the limit has fallen. A window accepts the same `n` in every run; its rate is `n` over the
//! time from one beginning to the next. Both `(n − B) / t` and `n` over run and silence are lower
//! bounds, so the larger of them is kept.
//!
//! From then on the pace stays a hair below, and grows only after a time in proportion to what a
//! refusal would cost: nothing where the burst covers the silence.

use super::climb::{Climb, RAMP};
use super::learn::secs;
use crate::time::Mono;

/// A wait up to this may be any shorter wait rounded up to a whole second.
const ROUNDED: f64 = 1.5;

/// Calls after which a rate is known well.
const SURE: f64 = 50.0;

/// Runs between silences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pauses {
    /// When the run began, and what had been accepted before.
    began: Option<(Mono, u64)>,
    /// The run climbs.
    climb: Option<Climb>,
    /// The longest run at an even pace: seconds and calls.
    even: Option<(f64, f64)>,
    runs: u32,
    rate: f64,
    /// Calls that the rate rests on.
    calls: f64,
    /// Calls that may go at once after a silence, where that has been measured.
    burst: Option<f64>,
    /// The last silence and the longest, in seconds.
    silence: f64,
    longest: f64,
    gain: f64,
    /// Short runs in a row.
    short: u32,
    /// Runs were as long whatever the time.
    window: bool,
}

impl Pauses {
    pub(super) const NEW: Pauses = Pauses {
        began: None,
        climb: None,
        even: None,
        runs: 0,
        rate: f64::INFINITY,
        calls: 0.0,
        burst: None,
        silence: 0.0,
        longest: 0.0,
        gain: 0.0,
        short: 0,
        window: false,
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
        if let Some(climb) = &self.climb {
            return climb.pace;
        }
        let doubt = (0.5 / self.calls.max(1.0)).clamp(0.001, 0.05);
        self.rate * (1.0 - doubt + self.gain)
    }

    /// Calls that may go at once after a silence.
    pub(super) fn credit(&self) -> f64 {
        // A short window that has let calls go at once lets the fewer go after them.
        self.burst
            .filter(|_| self.runs > 2 && !(self.window && self.silence <= ROUNDED))
            .map_or(1.0, |b| (0.8 * b.min(self.rate * self.silence)).max(1.0))
    }

    /// A call goes out after so many were accepted. True if the pace has changed.
    pub(super) fn sent(&mut self, now: Mono, accepted: u64, paced: bool) -> bool {
        let (began, had) = *self.began.get_or_insert((now, accepted));
        if !self.known() {
            return false;
        }
        if let Some(climb) = &mut self.climb {
            return climb.sent(
                secs(began, now),
                accepted.saturating_sub(had) as f64,
                RAMP * self.longest,
                paced,
            );
        }
        let (quiet, double) = self.growth();
        let over = secs(began, now) - quiet;
        if over <= 0.0 {
            return false;
        }
        let grown = libm::exp2((over / double).min(12.0));
        let gain = 0.005 * grown;
        let changed = gain > self.gain * 1.02;
        self.gain = if changed { gain } else { self.gain };
        changed
    }

    /// After how long the pace begins to grow, and in how long the growth doubles, in seconds.
    fn growth(&self) -> (f64, f64) {
        // What a refusal costs, in seconds of the server's work.
        let cost = (self.silence - self.burst.unwrap_or(0.0) / self.rate).max(0.0);
        if self.runs < 2 {
            (self.longest, 0.4 * self.longest)
        } else {
            (3.0 * self.longest + 20.0 * cost, self.longest + cost)
        }
    }

    /// Where the growing pace crossed the limit: from there on it spent the burst.
    fn crossing(&self, gain: f64, burst: f64) -> f64 {
        let (_, double) = self.growth();
        let spent =
            |g: f64| self.rate * double * ((gain - g) / core::f64::consts::LN_2 - g * libm::log2(gain / g));
        let (mut low, mut high) = (1e-3 * gain, gain);
        for _ in 0..30 {
            let mid = 0.5 * (low + high);
            if spent(mid) > burst { low = mid } else { high = mid }
        }
        self.rate * (1.0 + low)
    }

    /// The pace was too fast, by a hair or, if that happens again, by more.
    fn shorten(&mut self) {
        self.rate *= [0.995, 0.97, 0.92][self.short.min(2) as usize];
        self.short += 1;
    }

    /// The run was ended by something else than the rate.
    pub(super) const fn again(&mut self) {
        self.began = None;
    }

    /// A call sent then, after so many accepted, was refused, and the server wants silence until the
    /// gate.
    pub(super) fn refused(&mut self, sent: Mono, accepted: u64, now: Mono, gate: Mono, rtt: f64) {
        let Some((began, had)) = self.began.take() else { return };
        let run = secs(began, sent).max(rtt).max(1e-4);
        let whole = secs(began, gate).max(1e-6);
        let n = (accepted.saturating_sub(had) as f64).max(1.0);
        self.silence = secs(now, gate);
        self.longest = (self.longest * 0.9).max(self.silence);
        let gain = core::mem::take(&mut self.gain);
        self.runs += 1;
        // A wait in whole seconds ends half a second late on average.
        let by_run = n / (whole - 0.5).max(0.75 * whole);
        let rounded = self.silence <= ROUNDED;
        if let Some(climb) = self.climb.take() {
            if (n - climb.calls).abs() <= 1.0 + 0.03 * n && n > 4.0 {
                // As many whatever the time: a window.
                (self.rate, self.calls, self.burst, self.even) = (by_run, n, Some(n), Some((run, n)));
                self.window = true;
                return;
            }
            self.window = false;
            let rate = climb.crossed(run, n, RAMP * self.longest);
            self.rate = (0.955 * rate).max(by_run);
            self.burst = Some(climb.burst(self.rate));
            self.calls = (0.2 * n).clamp(16.0, SURE - 1.0);
            return;
        }
        let tiny = n <= 1.0 && run <= rtt.max(1e-4);
        if tiny && self.calls >= 16.0 && self.short < 3 {
            // The calls that went at once were too many.
            self.shorten();
            self.burst = Some(1.0);
            return;
        }
        // Three short runs on end: the limit has fallen.
        let few = n < 4.0 * self.burst.unwrap_or(1.0) + 4.0 || run < 0.1 * self.silence;
        let fell = self.short >= 3 && n < self.calls && few;
        if fell {
            (self.short, self.even) = (0, None);
        }
        if rounded && (self.runs == 1 || tiny || fell) {
            // Slow enough to last, so that the next run says something else than this one.
            let slower = (self.silence / run).clamp(1.3, 80.0);
            let from = if n < 10.0 { by_run } else { (n / run / slower).clamp(by_run, 8.0 * by_run) };
            self.climb = Some(Climb::new(run, n, from));
            (self.rate, self.calls) = (from, 1.0);
            self.burst = Some((n - from * run).max(1.0));
            return;
        }
        if self.runs == 1 {
            (self.rate, self.calls) = (by_run, 1.0);
            self.burst = Some((n - self.rate * run).max(1.0));
            return;
        }
        if tiny {
            // Hardly anything was accepted: much slower.
            self.rate = self.rate.min(by_run);
            self.burst.get_or_insert(1.0);
            return;
        }
        let burst = *self.burst.get_or_insert(1.0);
        if gain > 0.02 {
            // The beginning of the run was below the limit, its end above.
            self.rate = (0.97 * self.crossing(gain, 0.25 * burst)).max(by_run);
            self.calls = n.min(SURE - 1.0);
            self.short = 0;
            return;
        }
        if self.calls >= 16.0 && n < self.calls && self.short < 3 {
            // A short run says little against a long one: the pace was a hair too fast, or the calls
            // that went at once too many.
            self.shorten();
            self.burst = Some((0.7 * burst.min(n)).max(1.0));
            return;
        }
        self.short = 0;
        match self.even {
            None if rounded && run < 0.02 * self.silence => {
                // Faster than anything that could be measured.
                self.rate = (n / run / 8.0).min(0.5 * self.rate).max(by_run);
                return;
            }
            Some((_, m)) if (n - m).abs() <= 1.0 + 0.03 * n => {
                // As many whatever the time: a window.
                self.burst = Some(n);
                (self.rate, self.calls, self.window) = (by_run, n, true);
            }
            Some((t, m)) if (run - t).abs() > 0.2 * run.max(t) && (n - m) * (run - t) > 0.0 => {
                self.rate = ((n - m) / (run - t)).max(by_run);
                self.burst = Some((n - self.rate * run).max(1.0));
                self.calls = (n - m).abs();
            }
            _ => {
                self.rate = (0.93 * n / run).max(by_run);
                self.calls = 8.0;
            }
        }
        if self.even.is_none_or(|(t, _)| run > t) {
            self.even = Some((run, n));
        }
    }
}
