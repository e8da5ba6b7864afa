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
//! slowly at first and then ever faster, until a refusal comes. A server that has been seen shut
//! for long counts in long windows and answers late: there the growth takes its time.

use crate::time::{Mono, seconds};

/// The share of calls above the estimate, and so the share that is refused.
const EXCESS: f64 = 0.0035;
/// Openings remembered.
const MARKS: usize = 8;
/// A refusal is overdue after this many times the calls after which it was expected.
const OVERDUE: f64 = 1.15;
/// Calls that a measurement must rest on to be believed against the last one.
const BELIEVED: f64 = 8.0;

/// An opening: when the first accepted call after a refusal was sent, and what had been accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mark {
    at: Mono,
    seq: u64,
    accepted: u64,
    /// It may have opened so many seconds earlier or later.
    slack: f64,
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
    /// While the server is shut: the newest refused call, when the first was sent, and the last.
    shut: Option<(u64, Mono, Mono)>,
    /// When it began, and what had been accepted before.
    first: Option<Mono>,
    had: u64,
    /// How long the server has been seen shut, in seconds.
    closed: f64,
    /// Refusals since the server was last open, each sent after the one before was known.
    run: u32,
    /// When a longer limit was last seen to open, and what had been accepted.
    long: Option<Mark>,
    /// It was refusing then, and was not seen to open since.
    unopened: bool,
    /// How long after the opening before that was.
    lap: f64,
    laps: u32,
}

impl Track {
    pub(super) const NEW: Track = Track {
        marks: [Mark { at: Mono::ZERO, seq: 0, accepted: 0, slack: 0.0 }; MARKS],
        len: 0,
        base: f64::INFINITY,
        calls: 0.0,
        gain: 0.0,
        clean: 0.0,
        shut: None,
        first: None,
        had: 0,
        closed: 0.0,
        run: 0,
        long: None,
        unopened: false,
        lap: 0.0,
        laps: 0,
    };

    /// Begins to learn now, after so many calls and so many accepted, from a rate that others told.
    pub(super) fn from(now: Mono, seq: u64, accepted: u64, rate: Option<f64>) -> Track {
        let start = Mark { at: now, seq, accepted, slack: 0.0 };
        let calls = if rate.is_some() { BELIEVED } else { 0.0 };
        let base = rate.unwrap_or(f64::INFINITY);
        Track { first: Some(now), had: accepted, long: Some(start), base, calls, ..Track::NEW }
    }

    /// So many calls were accepted since the start.
    pub(super) fn so_far(&self, now: Mono, accepted: u64) -> Option<f64> {
        let span = self.first.map_or(0.0, |first| secs(first, now));
        (span > 0.0 && accepted > 0).then(|| accepted as f64 / span)
    }

    /// Whether a rate is known.
    pub(super) fn known(&self) -> bool {
        self.base.is_finite()
    }

    /// Whether it rests on a few calls only.
    pub(super) fn is_guess(&self) -> bool {
        self.calls < BELIEVED
    }

    /// Whether it rests on the first opening, bursts included: the rate is far lower.
    fn is_first(&self) -> bool {
        self.known() && self.len == 1 && self.long.is_none()
    }

    /// Fresh refusals since the server was last open.
    pub(super) const fn run(&self) -> u32 {
        self.run
    }

    /// Whether the server refuses more than the pace explains.
    pub(super) fn starves(&self) -> bool {
        self.run
            > if self.is_first() {
                0
            } else if self.known() {
                2
            } else {
                1
            }
    }

    /// Until when to leave alone a server that is shut, not less than `least` seconds: half as long
    /// again as it has been shut, longer at first, and more so when nothing is known (`blind`). A window
    /// that was seen to open will open one lap later.
    pub(super) fn hold(&self, now: Mono, least: f64, blind: bool) -> Mono {
        let from = self.shut.map_or(now, |shut| shut.1);
        let next = self.long.map_or(Mono::ZERO, |mark| mark.at + seconds(0.97 * self.lap - mark.slack));
        let due = next > from && secs(from, next) <= 1.2 * self.closed;
        if due && now < next {
            return next;
        }
        let shut = secs(from, now);
        let asked = match () {
            () if due => (0.5 * secs(next, now)).max(0.025 * self.lap),
            () if blind && shut < 0.05 => 2.0 * shut,
            () if shut < 0.25 => shut,
            () => 0.5 * shut,
        };
        now + seconds(asked.max(least).min(60.0))
    }

    /// The estimate.
    pub(super) const fn estimate(&self) -> f64 {
        self.base
    }

    /// The pace to send at.
    pub(super) fn rate(&self) -> f64 {
        self.base * (1.0 + self.excess() + self.gain)
    }

    fn excess(&self) -> f64 {
        (1.0 / self.calls.max(4.0)).max(EXCESS)
    }

    /// A call goes out; `paced` says that the pace held it back; `lag` calls are out when an answer
    /// comes. True if the pace has changed.
    pub(super) fn sent(&mut self, now: Mono, paced: bool, lag: f64) -> bool {
        self.first.get_or_insert(now);
        if !paced || !self.known() {
            return false;
        }
        self.clean += 1.0;
        let window = self.closed * self.base;
        if self.clean <= OVERDUE * (1.0 / self.excess()).max(window) + lag {
            return false;
        }
        // What rests on a few calls may be far off.
        let step = (1.5 * lag + self.calls.clamp(2.0, 8.0)).max(window);
        self.gain = if self.gain == 0.0 { 0.5 * self.excess() } else { self.gain * (1.0 + 0.7 / step) };
        if self.gain > 3.0 {
            // So far off was the estimate that it is none, nor is what it rests on.
            (self.base, self.gain, self.calls) = (0.5 * self.base * (1.0 + self.gain), 1.0, 4.0);
            (self.len, self.long, self.laps) = (0, None, 0);
        }
        true
    }

    /// A call was refused that was sent then, after so many accepted; `fresh` if it was sent after the
    /// last refusal was known.
    pub(super) fn refused(&mut self, seq: u64, sent: Mono, accepted: u64, fresh: bool) {
        for mark in self.marks.iter_mut().take(self.len).filter(|m| m.seq > seq) {
            mark.accepted = mark.accepted.saturating_sub(1);
        }
        if self.gain > 4.0 * EXCESS {
            self.risen(Mark { at: sent, seq, accepted, slack: 0.0 });
        }
        self.run += u32::from(fresh);
        self.gain = 0.0;
        self.clean = 0.0;
        self.shut =
            Some(self.shut.map_or((seq, sent, sent), |(s, a, b)| (s.max(seq), a.min(sent), b.max(sent))));
    }

    /// The pace had grown when this was refused. If more was accepted since the last opening than the
    /// estimate explains, the limit is higher.
    fn risen(&mut self, refused: Mark) {
        let last = self.len.checked_sub(1).map(|i| self.marks[i]);
        let seen = last
            .map(|m| (refused.accepted.saturating_sub(m.accepted) as f64, secs(m.at, refused.at).max(1e-9)));
        match seen {
            Some((n, span)) if n <= self.base * span * 1.01 + 2.0 => return,
            // A little: what was accepted says how much.
            Some((n, span)) if self.gain < 0.5 && n >= BELIEVED => {
                (self.base, self.calls) = (n / span, n.min(50.0));
            }
            // Much: what was measured before says nothing about the limit as it is now. That lies between
            // what was accepted and the pace, which grows past it before a burst is spent.
            _ => {
                let pace = self.base * (1.0 + 0.9 * self.gain);
                let sure = seen.filter(|s| s.0 >= BELIEVED).map_or(pace, |(n, span)| (n / span).min(pace));
                (self.base, self.calls) = (sure + 0.25 * (pace - sure), 4.0);
                (self.long, self.laps, self.unopened) = (Some(refused), 0, true);
            }
        }
        self.len = 0;
    }

    /// A call was accepted; `before` calls sent before it were. True if the server has opened by it.
    pub(super) fn accepted(&mut self, seq: u64, sent: Mono, before: u64) -> bool {
        let Some((_, from, last)) = self.shut.filter(|shut| seq > shut.0) else { return false };
        let spent = before.saturating_sub(self.long.map_or(0, |mark| mark.accepted)) as f64 >= BELIEVED;
        let shut = self.run > 2;
        let long = spent && shut && (self.calls < BELIEVED || secs(from, sent) * self.base > 8.0);
        if shut {
            self.closed = self.closed.max(secs(from, sent));
        } else {
            self.closed *= 0.95;
        }
        (self.shut, self.run) = (None, 0);
        // It opened somewhere between the last refusal and this; of that, one interval is usual.
        let gap = secs(last, sent);
        let usual = if self.known() { 1.5 / self.base } else { 0.0 };
        let slack = if gap > usual { 0.5 * gap } else { 0.0 };
        let mark = Mark { at: sent.back(seconds(slack)), seq, accepted: before, slack };
        // A window is measured from where it opened, not from where it was spent.
        if core::mem::take(&mut self.unopened) && shut && !long {
            self.long = Some(mark);
        }
        if long {
            self.reopened(mark);
            return true;
        }
        if self.len == MARKS {
            self.marks.rotate_left(1);
            self.len -= 1;
        }
        self.marks[self.len] = mark;
        self.len += 1;
        self.measure();
        true
    }

    /// A window, perhaps of a second and longer limit, was spent and has opened again: what was accepted
    /// since it opened last, or since the start, is what it allows.
    fn reopened(&mut self, mark: Mark) {
        let start = Mark { at: self.first.unwrap_or(mark.at), seq: 0, accepted: 0, slack: 0.0 };
        let from = self.long.unwrap_or(start);
        let (span, n) = (secs(from.at, mark.at), mark.accepted.saturating_sub(from.accepted) as f64);
        if span > 0.0 {
            self.base = n / span;
            let sure = span / (mark.slack + from.slack).max(1e-9);
            self.calls = if self.long.is_some() { n.min(sure) } else { 4.0 };
        }
        // The first lap began somewhere in a window, later ones may be several.
        self.lap = if self.laps < 2 { span } else { self.lap.min(span) };
        self.laps += 1;
        self.long = Some(mark);
        (self.marks[0], self.len) = (mark, 1);
    }

    /// Starts anew from a rate that was found otherwise.
    pub(super) fn set(&mut self, rate: f64) {
        *self = Track {
            base: rate,
            calls: BELIEVED,
            first: self.first,
            had: self.had,
            closed: self.closed,
            ..Track::NEW
        };
    }

    fn measure(&mut self) {
        let last = self.marks[self.len - 1];
        let (mut low, mut high, mut calls, mut keep) = (0.0f64, f64::INFINITY, 0.0f64, 0);
        for (i, mark) in self.marks.iter().enumerate().take(self.len - 1).rev() {
            let span = secs(mark.at, last.at);
            let n = last.accepted.saturating_sub(mark.accepted) as f64;
            if span <= 0.0 {
                continue;
            }
            let slack = mark.slack + last.slack;
            if span <= 1.5 * slack {
                continue;
            }
            let (l, h) = ((n - 1.0) / (span + slack), (n + 1.0) / (span - slack).max(1e-9));
            if l > high * 1.002 || h < low * 0.998 {
                keep = i + 1;
                break;
            }
            (low, high, calls) = (low.max(l), high.min(h), calls.max(n.min(span / slack.max(1e-9))));
        }
        if keep > 0 {
            self.marks.rotate_left(keep);
            self.len -= keep;
        }
        if high.is_finite() {
            let found = f64::midpoint(low.max(0.0), high);
            let old = self.base;
            // A few calls are no proof of a much lower limit against many.
            let proof = calls >= BELIEVED || self.calls < BELIEVED;
            self.base = if self.known() && !proof { found.max(0.9 * old) } else { found };
            self.calls = if proof { calls.max(1.0) } else { BELIEVED };
        } else if !self.known() {
            // One opening only: all that was accepted since the start, bursts included.
            let span = self.first.map_or(0.0, |from| secs(from, last.at));
            if span > 0.0 {
                self.base = (last.accepted.saturating_sub(self.had) as f64).max(1.0) / span;
                self.calls = 4.0;
            }
        }
    }
}

/// Seconds from one time to another.
pub(super) fn secs(from: Mono, to: Mono) -> f64 {
    to.since(from).as_nanos() as f64 * 1e-9
}
