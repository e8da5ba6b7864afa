//! The rate of a server whose refusals silence the lane.
//!
//! A server that answers a refusal with Retry-After in whole seconds makes each one dear: the lane
//! keeps silent for the second, however small the bucket. So refusals are not sought; few of them
//! must tell all. Between two silences lies a run (`probe_run`). The first goes as fast as it can and tells
//! the burst; the second climbs from below and tells the rate, because two runs of different shapes
//! agree on the burst for one rate only.
//!
//! From then on the pace stays below the rate by what that may be off, and grows only after a time in
//! proportion to what a refusal would cost. Each further run is solved in the same way. How much of
//! the burst it had spent is learned: a bucket's whole burst comes back in a silence, but a window
//! forgets at the pace at which it was filled. A window is known by its runs, which are as long in calls
//! whatever the time. Where runs are far too short the limit has fallen, and the lane climbs anew.

use super::probe_run::Run;
use super::rate_estimate::secs;
use crate::time::Mono;

/// A wait up to this may be any shorter wait rounded up to a whole second.
const ROUNDED: f64 = 1.5;
/// A climb doubles its pace in this share of a silence, and grows by so much from one call to the
/// next at most; from one remembered point to the next it grows by so much.
const RAMP: f64 = 0.3;
const STRIDE: f64 = 1.35;
const STEP: f64 = 1.25;
/// A gain below which a run counts as even.
const EVEN: f64 = 0.02;
/// How far the rate may be off, at least and at most.
const DOUBT: (f64, f64) = (0.05, 0.4);
/// The share of its burst that a window is taken to have got back.
const FORGOT: f64 = 0.25;
/// Probes after one that was too bold, before the next bold one.
const FIRM: u32 = 3;
/// Windows that servers usually count in, in seconds.
const USUAL: [f64; 16] =
    [0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0];

/// A run whose pace grows all the time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Climb {
    pace: f64,
    /// When it last grew, in seconds since the run began.
    at: f64,
    /// The pace at the last remembered point.
    noted: f64,
}

impl Climb {
    const fn from(pace: f64) -> Climb {
        Climb { pace, at: 0.0, noted: pace }
    }

    /// A call goes at that time into the run, whose pace doubles in `double` seconds. True if the pace has
    /// grown: one that held nothing back does not.
    fn grow(&mut self, time: f64, double: f64, paced: bool) -> bool {
        if !paced {
            self.at = time;
            return false;
        }
        let grown = libm::exp2((time - self.at) / double).min(STRIDE);
        if grown < 1.01 {
            return false;
        }
        (self.pace, self.at) = (self.pace * grown, time);
        true
    }
}

/// How a run ended.
struct End {
    run: Run,
    gain: f64,
    climbed: bool,
    /// The silence before it.
    before: f64,
    /// How long a call takes.
    rtt: f64,
}

impl End {
    const fn is_even(&self) -> bool {
        !self.climbed && self.gain < EVEN
    }
}

/// Runs between silences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pauses {
    /// When the run began, and what had been accepted before.
    began: Option<(Mono, u64)>,
    run: Run,
    climb: Option<Climb>,
    /// The run that tells the burst, because it was short.
    brief: Run,
    /// The last run, in seconds and calls, and the call whose refusal ended it.
    last: (f64, f64),
    end: u64,
    runs: u32,
    rate: f64,
    /// How far below the rate the pace stays, and how far off the rate may be.
    margin: f64,
    doubt: f64,
    /// The share of the burst that a run is taken to have spent, and for how many probes that stands.
    share: f64,
    firm: u32,
    /// Whether calls may go at once after a silence.
    credit: bool,
    /// The last silence and the longest, in seconds.
    silence: f64,
    longest: f64,
    /// After how long the pace begins to grow, and in how long the gain doubles, in seconds.
    growth: (f64, f64),
    gain: f64,
    /// The gain, or at first the calls, at the last remembered point.
    noted: f64,
    /// Runs in a row that were far too short.
    short: u32,
    /// The last probe found what was known.
    calm: bool,
    /// Runs were as long in calls whatever the time.
    window: bool,
}

impl Pauses {
    pub(super) const NEW: Pauses = Pauses {
        began: None,
        run: Run::NEW,
        climb: None,
        brief: Run::ENDLESS,
        last: (0.0, 0.0),
        end: 0,
        runs: 0,
        rate: f64::INFINITY,
        margin: DOUBT.0,
        doubt: DOUBT.0,
        share: 1.0,
        firm: 0,
        credit: true,
        silence: 0.0,
        longest: 0.0,
        growth: (0.0, 1.0),
        gain: 0.0,
        noted: 0.0,
        short: 0,
        calm: false,
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
        self.climb.map_or(self.rate * (1.0 - self.margin + self.gain), |climb| climb.pace)
    }

    /// Calls that may go at once after a silence.
    pub(super) fn credit(&self) -> f64 {
        // A short window that has let calls go at once lets the fewer go after them.
        let spent = self.window && self.silence <= ROUNDED;
        if self.climb.is_some() || self.runs < 3 || !self.credit || spent {
            return 1.0;
        }
        (0.5 * self.brief.spent(self.rate).min(self.rate * self.silence)).max(1.0)
    }

    /// A call goes out after so many were accepted. True if the pace has changed.
    pub(super) fn sent(&mut self, now: Mono, accepted: u64, paced: bool) -> bool {
        let (began, had) = *self.began.get_or_insert((now, accepted));
        let (time, calls) = (secs(began, now), accepted.saturating_sub(had) as f64);
        if !self.known() {
            if calls > 1.15 * self.noted + 1.0 {
                self.noted = calls;
                self.run.note(time, calls);
            }
            return false;
        }
        if let Some(climb) = &mut self.climb {
            let grown = climb.grow(time, RAMP * self.longest, paced);
            if climb.pace > STEP * climb.noted {
                climb.noted = climb.pace;
                self.run.note(time, calls);
            }
            return grown;
        }
        let (quiet, double) = self.growth;
        if time <= quiet {
            return false;
        }
        let gain = (0.1 * self.doubt).max(0.005) * libm::exp2(((time - quiet) / double).min(12.0));
        if gain <= self.gain * 1.02 {
            return false;
        }
        self.gain = gain;
        if gain > 1.5 * self.noted {
            self.noted = gain;
            self.run.note(time, calls);
        }
        true
    }

    /// The run was ended by something else than the rate.
    pub(super) fn again(&mut self) {
        self.began = None;
        (self.run, self.gain, self.noted) = (Run::NEW, 0.0, 0.0);
        self.climb = self.climb.map(|climb| Climb::from(self.rate.max(0.35 * climb.pace)));
    }

    /// A call was refused that had gone before the one that ended the run: it accepted one less.
    pub(super) fn stale(&mut self, seq: u64) {
        if self.began.is_some() || seq >= self.end || self.last.1 < 2.0 {
            return;
        }
        if (self.brief.time, self.brief.calls) == self.last {
            self.brief.calls -= 1.0;
        }
        self.last.1 -= 1.0;
    }

    /// Call `seq`, sent then after so many accepted, was refused, and the server wants silence until the
    /// gate.
    pub(super) fn refused(&mut self, seq: u64, sent: Mono, accepted: u64, now: Mono, gate: Mono, rtt: f64) {
        let Some((began, had)) = self.began.take() else { return };
        let pace = self.pace();
        let mut run = core::mem::replace(&mut self.run, Run::NEW);
        run.time = secs(began, sent).max(1e-4);
        (run.calls, run.pace) = ((accepted.saturating_sub(had) as f64).max(1.0), pace);
        let before = core::mem::replace(&mut self.silence, secs(now, gate));
        self.longest = (self.longest * 0.9).max(self.silence);
        let (gain, climb) = (core::mem::take(&mut self.gain), self.climb.take());
        (self.end, self.noted) = (seq, 0.0);
        if climb.is_some() && run.calls <= 2.0 && run.time < rtt && self.short < 2 {
            // It was still shut.
            (self.climb, self.short) = (climb, self.short + 1);
            return;
        }
        self.runs = self.runs.saturating_add(1);
        self.ended(&End { run, gain, climbed: climb.is_some(), before, rtt });
        self.growth = self.grows();
    }

    /// After how long the pace begins to grow, and in how long the gain doubles, in seconds.
    fn grows(&self) -> (f64, f64) {
        if self.runs < 2 {
            return (self.longest, 0.4 * self.longest);
        }
        // What a refusal costs, in seconds of the server's work.
        let cost = (self.silence - self.credit() / self.rate).max(0.3 * self.silence);
        let calm = if self.calm { 2.0 } else { 1.0 };
        (3.0 * self.longest + calm * cost / self.doubt, self.longest + cost)
    }

    /// What the run tells.
    fn ended(&mut self, end: &End) {
        let run = &end.run;
        let last = core::mem::replace(&mut self.last, (run.time, run.calls));
        let brief = self.brief;
        if run.calls < brief.calls || run.time < brief.time {
            self.brief = *run;
        }
        let whole = run.time + self.silence;
        // A wait in whole seconds ends half a second late on average.
        let by_run = run.calls / (whole - 0.5).max(0.75 * whole);
        // Never less than what was earned since the last refusal.
        let least = run.calls / (run.time + end.before.max(self.silence));
        let rounded = self.silence <= ROUNDED;
        let long = end.before.min(self.silence) > ROUNDED;
        if self.runs > 1 && end.gain < EVEN && is_window(run, last, long) {
            self.count_in_windows(run, whole);
            return;
        }
        if !rounded {
            self.wait_long(end, by_run);
            return;
        }
        let few = run.time < 0.3 * end.before || run.calls < 20.0 && self.short == 0;
        let short = self.runs > 1 && end.is_even() && few && least < 0.9 * self.rate;
        if short && self.short == 0 {
            // A hair too fast, or the calls that went at once too many.
            (self.short, self.credit) = (1, false);
            self.rate *= 0.97;
            return;
        }
        // A climb that was refused at once tells nothing but that it began too high.
        let high = end.climbed && run.time < 0.1 * end.before && self.short < 2;
        if high || short || self.runs == 1 {
            self.short = if high { self.short + 1 } else { 0 };
            self.climb_anew(run, if high { least } else { start(run, end.rtt, by_run, self.silence) });
            return;
        }
        let alike = brief.time > 0.5 * run.time && run.time > 0.5 * brief.time;
        if end.is_even() && (self.window || alike) {
            self.slow_down(end, whole);
            return;
        }
        self.short = 0;
        self.solve(end, &brief, least);
    }

    /// The server counts in windows, of the longest usual length that fits.
    fn count_in_windows(&mut self, run: &Run, whole: f64) {
        let window = USUAL.iter().rev().find(|w| **w <= whole).map_or(whole, |w| w.max(run.time));
        self.set((run.calls / window).min(run.pace), 0.0, 0.5 / whole);
        (self.brief, self.window, self.short) = (*run, true, 0);
        self.share = self.share.min(FORGOT);
    }

    /// A long wait is that of a window, or of a second limit behind the rate.
    fn wait_long(&mut self, end: &End, by_run: f64) {
        let (run, first) = (&end.run, self.runs == 1);
        let rate = match () {
            () if first => by_run,
            () if end.climbed => run.pace.min(run.calls / run.time),
            () => self.rate,
        };
        self.set(rate, 0.0, 0.0);
        if first {
            (self.window, self.share) = (true, FORGOT);
        }
        self.short = 0;
    }

    /// Nothing is known but the burst that this run tells.
    fn climb_anew(&mut self, run: &Run, from: f64) {
        (self.climb, self.rate, self.brief) = (Some(Climb::from(from)), from, *run);
        (self.share, self.firm, self.calm) = (1.0, 0, false);
        (self.credit, self.window) = (true, false);
    }

    /// The run says only that the pace was a hair too fast.
    fn slow_down(&mut self, end: &End, whole: f64) {
        let run = &end.run;
        let most = if run.time > end.before { run.calls / run.time } else { run.pace };
        let slower = [0.97, 0.94, 0.9][self.short.min(2) as usize];
        self.short = self.short.saturating_add(1);
        let rate = (slower * self.rate).max(run.calls / whole).min(most).min(run.pace);
        (self.rate, self.margin, self.credit) = (rate, 0.01, false);
        self.share_more();
    }

    /// The rate for which this run and the brief one agree.
    fn solve(&mut self, end: &End, brief: &Run, least: f64) {
        let run = &end.run;
        let share = if end.climbed { 1.0 } else { self.share };
        // What was held for long is not too much.
        let held = if end.gain > 0.0 { self.rate * (1.0 - self.margin) } else { 0.0 };
        // In a short silence the burst has not come back whole.
        let back = if end.gain >= EVEN { f64::INFINITY } else { end.before };
        let burst = |rate: f64| brief.spent(rate).max(1.0).min(rate * back);
        let found = |share: f64| run.crossed(least.max(held), |rate| share * burst(rate));
        let (rate, most, fewest) = (found(share), found(0.9 * share), found(1.1 * share));
        // Where the pace grew much from one call to the next, the crossing lies somewhere between.
        let double = run.pace * RAMP * self.longest;
        let stride = if end.climbed { libm::exp2(1.0 / double).min(STRIDE) - 1.0 } else { 0.0 };
        let was = self.rate;
        self.set(rate, 0.7 * (0.5 * (most - fewest) / rate + stride + 1.0 / run.calls), 0.0);
        if end.climbed {
            return;
        }
        if end.gain < EVEN {
            self.share_more();
            self.firm = FIRM;
        } else if self.firm > 0 {
            self.firm -= 1;
        } else {
            // It may have spent less than that, and the rate be higher.
            self.share = (0.5 * self.share).max(0.01);
        }
        self.calm = (rate / was - 1.0).abs() < 0.1;
    }

    /// The run has spent more of its burst than was thought.
    const fn share_more(&mut self) {
        let most = if self.window { FORGOT } else { 1.0 };
        self.share = (2.0 * self.share).min(most);
    }

    /// The rate is this; the pace must stay so far below, and it may be so far off.
    fn set(&mut self, rate: f64, margin: f64, doubt: f64) {
        (self.rate, self.margin) = (rate, margin.clamp(0.01, 0.2));
        self.doubt = (3.0 * self.margin).max(doubt).clamp(DOUBT.0, DOUBT.1);
    }
}

/// As many calls as in another run, though it took another time, or both ended in a long silence.
fn is_window(run: &Run, last: (f64, f64), long: bool) -> bool {
    let grain = 1.0 + 0.03 * run.calls;
    let more = (run.calls - last.1).abs();
    let due = run.pace.min(run.calls / run.time) * (run.time - last.0).abs();
    run.calls > 4.0 && more <= grain && (long || due > 2.0 * grain && more < 0.5 * due)
}

/// The pace that a climb begins with: slow enough to last, so that it says something else than the run
/// before it.
fn start(run: &Run, rtt: f64, by_run: f64, silence: f64) -> f64 {
    if run.calls < 10.0 {
        return by_run;
    }
    let time = run.time.max(rtt);
    let slower = (silence / time).clamp(1.3, 80.0);
    (2.0 * run.calls / time / slower).clamp(by_run, 8.0 * by_run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_that_held_nothing_back_does_not_grow() {
        let mut climb = Climb::from(2.0);
        assert!(!climb.grow(5.0, 0.4, false));
        assert_eq!(climb.pace, 2.0);
        // Not even after a long time by more than a stride.
        assert!(climb.grow(9.0, 0.4, true));
        assert_eq!(climb.pace, 2.0 * STRIDE);
    }
}
