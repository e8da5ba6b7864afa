//! The server's rate, learned from its refusals.
//!
//! A refusal is a measurement. Whenever a server that limits calls per time opens again after a
//! refusal, it has just been empty; between two such openings it let through exactly what it
//! earned. So `n` calls accepted in `Δ` seconds between two openings mean a rate between
//! `(n − 1) / Δ` and `(n + 1) / Δ`. That holds for a bucket, which opens one token after it was
//! empty, and for a window, which opens at its boundary. Older openings give longer and so
//! tighter intervals; they are intersected from the newest to the oldest, and where the
//! intersection becomes empty the limit has changed and everything older is dropped.
//!
//! Why openings and not refusals: a window refuses from the moment it is spent to its boundary,
//! so the time of the first refusal says more about us than about the server.
//!
//! The pace is then a little above the estimate ([`EXCESS`]). The server is never idle, the share
//! of refused calls is the excess whatever the kind of limit, and each refusal sharpens the
//! estimate. Where no refusal comes although one is overdue, the limit has risen: the pace grows,
//! slowly at first and then ever faster, until a refusal comes.

use crate::time::Mono;

/// The share of calls above the estimate, and so the share that is refused.
pub(super) const EXCESS: f64 = 0.0045;
/// Openings remembered.
const MARKS: usize = 8;
/// A refusal is overdue after this many times the calls after which it was expected.
const OVERDUE: f64 = 1.25;

/// An opening: when the first accepted call after a refusal was sent, and what had been accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mark {
    at: Mono,
    seq: u64,
    accepted: u64,
}

/// What is known about the server's rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Track {
    marks: [Mark; MARKS],
    len: usize,
    /// Calls per second; infinite while nothing is known.
    base: f64,
    /// The calls that the estimate rests on.
    calls: f64,
    gain: f64,
    /// Calls that the pace held back since the last refusal.
    clean: f64,
    /// The newest refused call, while the server has not yet opened after it.
    shut: Option<u64>,
    first: Option<Mono>,
    /// Refusals are dear: each costs this many seconds of silence.
    cost: f64,
    /// Calls accepted between the last two openings: windows refuse once in so many.
    cycle: f64,
    /// Refusals since the server was last open.
    run: u32,
    /// The server takes many calls and then none for a while.
    windows: bool,
    /// Refusals after one or two accepted calls: a bucket of one token, which refuses whatever comes
    /// a hair too early. There the pace must stay below the limit.
    early: u32,
    tight: bool,
    told: bool,
    /// When a longer limit was last seen to open, and what had been accepted.
    long: Option<(Mono, u64)>,
}

impl Track {
    pub(super) const NEW: Track = Track {
        marks: [Mark { at: Mono::ZERO, seq: 0, accepted: 0 }; MARKS],
        len: 0,
        base: f64::INFINITY,
        calls: 0.0,
        gain: 0.0,
        clean: 0.0,
        shut: None,
        first: None,
        cost: 0.0,
        cycle: 0.0,
        run: 0,
        windows: false,
        early: 0,
        tight: false,
        told: false,
        long: None,
    };

    /// Whether a rate is known.
    pub(super) fn known(&self) -> bool {
        self.base.is_finite()
    }

    /// Whether the server refused and has not accepted since.
    pub(super) const fn is_shut(&self) -> bool {
        self.shut.is_some()
    }

    /// Whether more calls were refused since the server was last open than the pace explains, with
    /// `lag` calls out at any time.
    pub(super) fn starves(&mut self, lag: f64, accepted: u64) -> bool {
        let explained = if self.known() { 2.0 + 4.0 * EXCESS * lag } else { 1.0 };
        let starves = f64::from(self.run) > explained;
        if starves && self.len > 0 {
            let since = accepted.saturating_sub(self.marks[self.len - 1].accepted);
            self.windows |= since >= 8;
        }
        starves
    }

    /// The estimate.
    pub(super) const fn estimate(&self) -> f64 {
        self.base
    }

    /// The pace to send at.
    pub(super) fn rate(&self) -> f64 {
        let doubt = 1.0 / self.calls.max(4.0);
        let over = if self.told {
            -0.003
        } else if self.cost > 0.0 {
            self.excess() - doubt.min(0.1)
        } else if self.tight {
            -(0.5 * doubt + 0.002)
        } else {
            doubt.max(EXCESS)
        };
        self.base * (1.0 + over + self.gain)
    }

    /// Whether the server refuses whatever comes a hair too early.
    pub(super) const fn is_tight(&self) -> bool {
        self.tight
    }

    /// How far above the estimate it is worth to go: a refusal that silences the lane for seconds
    /// may cost one call in fifty.
    fn excess(&self) -> f64 {
        if self.cost > 0.0 { EXCESS.min(1.0 / (50.0 * self.cost * self.base).max(1.0)) } else { EXCESS }
    }

    /// Whether the pace had been raised before the refusal that comes now.
    pub(super) fn raised(&self) -> bool {
        self.gain > 0.05
    }

    /// A refusal silenced the lane for so many seconds.
    pub(super) fn costs(&mut self, seconds: f64) {
        self.cost = self.cost.max(seconds);
    }

    /// A call goes out; `paced` says that the pace held it back; `lag` calls are out when an answer
    /// comes. True if the pace has changed.
    pub(super) fn sent(&mut self, now: Mono, paced: bool, lag: f64) -> bool {
        self.first.get_or_insert(now);
        if !paced || !self.known() || self.told {
            return false;
        }
        self.clean += 1.0;
        let doubt = 1.0 / self.calls.max(4.0);
        let expected = OVERDUE * (1.0 / self.excess().max(doubt)).max(self.cycle) + lag;
        if self.clean <= expected {
            return false;
        }
        let slow = if self.windows || self.cost > 0.0 { 0.5 * self.cycle } else { 0.0 };
        let step = (1.5 * lag + 12.0).max(slow);
        self.gain = if self.gain == 0.0 { 0.5 * EXCESS } else { self.gain * (1.0 + 0.7 / step) };
        true
    }

    /// A call was refused.
    pub(super) fn refused(&mut self, seq: u64) {
        for mark in self.marks.iter_mut().take(self.len).filter(|m| m.seq > seq) {
            mark.accepted = mark.accepted.saturating_sub(1);
        }
        if self.gain > 4.0 * EXCESS && !self.told {
            // The limit has risen: what was measured before says nothing about it. In a tight
            // bucket the refusal itself says where it is.
            self.len = 0;
            self.base *= 1.0 + self.gain;
            self.calls = 8.0;
            if self.tight {
                self.base *= 0.998;
                self.calls = 200.0;
            }
        }
        self.run += 1;
        self.gain = 0.0;
        self.clean = 0.0;
        self.shut = Some(self.shut.map_or(seq, |s| s.max(seq)));
    }

    /// A call was accepted; `before` calls sent before it were. True if the estimate has changed.
    pub(super) fn accepted(&mut self, seq: u64, sent: Mono, before: u64) -> bool {
        if self.shut.is_none_or(|refused| seq < refused) {
            return false;
        }
        let long = f64::from(self.run) > 8.0;
        self.shut = None;
        self.run = 0;
        if self.cost > 0.0 || self.told {
            return true;
        }
        if long
            && self.known()
            && self.len > 0
            && before.saturating_sub(self.marks[self.len - 1].accepted) < 8
        {
            self.reopened(sent, seq, before);
            return true;
        }
        let since = |mark: Mark| before.saturating_sub(mark.accepted);
        if self.len > 0 && self.calls >= 4.0 {
            self.early = if since(self.marks[self.len - 1]) <= 2 { self.early + 1 } else { 0 };
            self.tight |= self.early >= 5;
        }
        // In a tight bucket openings are close together: a longer baseline needs sparser marks.
        if self.tight && self.len >= 2 && since(self.marks[self.len - 1]) * 4 < since(self.marks[0]) {
            self.len -= 1;
        }
        if self.len == MARKS {
            self.marks.rotate_left(1);
            self.len -= 1;
        }
        self.marks[self.len] = Mark { at: sent, seq, accepted: before };
        self.len += 1;
        self.measure();
        true
    }

    /// A second, longer limit was spent and has opened again: what was accepted since it opened last,
    /// or since the start, is what it allows.
    fn reopened(&mut self, at: Mono, seq: u64, accepted: u64) {
        let (from, had) = self.long.unwrap_or((self.first.unwrap_or(at), 0));
        let span = at.since(from).as_nanos() as f64 * 1e-9;
        let calls = accepted.saturating_sub(had) as f64;
        if span > 0.0 && calls >= 8.0 {
            self.base = self.base.min(calls / span);
            self.calls = calls;
        }
        self.long = Some((at, accepted));
        self.marks[0] = Mark { at, seq, accepted };
        self.len = 1;
        self.windows = true;
        self.cycle = calls;
    }

    /// Whether this rate is the one that was told.
    pub(super) fn is_told(&self, rate: f64) -> bool {
        self.told && (self.base - rate).abs() <= 1e-9 * rate
    }

    /// The server told its rate: it is kept, a hair below, and not tried.
    pub(super) fn told(&mut self, rate: f64) {
        self.base = rate;
        self.told = true;
        self.gain = 0.0;
    }

    /// The rate was measured elsewhere.
    pub(super) fn set(&mut self, rate: f64, calls: f64, cycle: f64) {
        self.cycle = cycle;
        self.base = rate;
        self.calls = calls;
        self.gain = 0.0;
    }

    fn measure(&mut self) {
        let last = self.marks[self.len - 1];
        let (mut low, mut high, mut calls, mut keep) = (0.0f64, f64::INFINITY, 0.0f64, 0);
        for (i, mark) in self.marks.iter().enumerate().take(self.len - 1).rev() {
            let span = last.at.since(mark.at).as_nanos() as f64 * 1e-9;
            let n = last.accepted.saturating_sub(mark.accepted) as f64;
            if span <= 0.0 {
                continue;
            }
            let (l, h) = ((n - 1.0) / span, (n + 1.0) / span);
            if l > high * 1.002 || h < low * 0.998 {
                keep = i + 1;
                break;
            }
            (low, high, calls) = (low.max(l), high.min(h), calls.max(n));
        }
        if keep > 0 {
            self.marks.rotate_left(keep);
            self.len -= keep;
        }
        self.cycle = match self.len {
            0 | 1 => last.accepted as f64,
            n => last.accepted.saturating_sub(self.marks[n - 2].accepted) as f64,
        };
        if high.is_finite() {
            self.base = f64::midpoint(low.max(0.0), high);
            self.calls = calls.max(1.0);
        } else if !self.known() {
            // One opening only: all that was accepted since the start, bursts included.
            let span = self.first.map_or(0.0, |f| last.at.since(f).as_nanos() as f64 * 1e-9);
            if span > 0.0 {
                self.base = (last.accepted as f64).max(1.0) / span;
                self.calls = 4.0;
            }
        }
    }
}
