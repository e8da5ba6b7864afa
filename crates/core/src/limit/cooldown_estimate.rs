//! The rate of a server whose refusals come with a cooldown.
//!
//! A server that answers a refusal with Retry-After in whole seconds makes each one costly: the lane
//! sends nothing for that second, however small the bucket. So refusals are not sought; few of them
//! must tell all. Between two cooldowns lies a probe run (`probe_run`). The first goes as fast as it can
//! and tells the burst; the second ramps up from below and tells the rate, because two runs of different
//! shapes agree on the burst for one rate only.
//!
//! From then on the pace stays below the rate by its uncertainty, and is raised only after a time in
//! proportion to what a refusal would cost. Each further run is solved in the same way. How much of
//! the burst it had spent is learned: a bucket's whole burst is restored in a cooldown, but a window
//! forgets at the pace at which it was filled. A window is known by its runs, which have as many calls
//! whatever the time. Where runs are far too short the limit has fallen, and the lane ramps up anew.

mod run_end;

use super::first_window::COMMON_WINDOWS;
use super::probe_run::ProbeRun;
use super::rate_estimate::secs;
use crate::time::Mono;
use run_end::RunEnd;

/// A cooldown up to this many seconds may be any shorter wait rounded up to a whole second.
const ROUNDED_MAX: f64 = 1.5;
/// By how many seconds a wait in whole seconds ends late on average,
const ROUNDED_LATE: f64 = 0.5;
/// and the least share of the time that is left without them.
const ROUNDED_SHARE_MIN: f64 = 0.75;
/// Decay of the longest cooldown with each new one.
const COOLDOWN_DECAY: f64 = 0.9;
/// Shortest run, in seconds.
const RUN_TIME_MIN: f64 = 1e-4;
/// Fewest calls of a run.
const RUN_CALLS_MIN: f64 = 1.0;

/// A ramp doubles its pace in this share of a cooldown.
const RAMP_DOUBLING: f64 = 0.3;
/// Largest growth of a ramp from one call to the next.
const RAMP_STEP_MAX: f64 = 1.35;
/// Smallest growth of a ramp that is worth a change of the pace.
const RAMP_STEP_MIN: f64 = 1.01;
/// Growth of a ramp from one remembered point to the next.
const RAMP_POINT: f64 = 1.25;
/// Share of its pace from which a ramp goes on that was ended by something else.
const RAMP_RESUME: f64 = 0.35;
/// A ramp that was refused in less than this share of the cooldown before began too high.
const RAMP_TOO_HIGH: f64 = 0.1;
/// Most calls of a run against a server that was still closed.
const STILL_CLOSED_CALLS: f64 = 2.0;
/// How often a ramp may be refused at once before that counts as a run.
const RAMP_REFUSED_MAX: u32 = 2;
/// Fewest calls of a first run whose shape says something.
const RAMP_START_CALLS: f64 = 10.0;
/// A ramp begins slower than the run before by the cooldown over its time, within these bounds,
const RAMP_START_SLOWER: (f64, f64) = (1.3, 80.0);
/// from this many times its rate,
const RAMP_START_FACTOR: f64 = 2.0;
/// and at most at this many times what the run says.
const RAMP_START_MAX: f64 = 8.0;

/// Growth, and calls beyond, from one remembered point of the first run to the next.
const FIRST_RUN_POINT: (f64, f64) = (1.15, 1.0);
/// Growth of the raise from one remembered point to the next.
const RAISE_POINT: f64 = 1.5;
/// Smallest growth of the raise that is worth a change of the pace.
const RAISE_STEP_MIN: f64 = 1.02;
/// The first raise, as a share of the uncertainty,
const RAISE_FIRST: f64 = 0.1;
/// and at least, as a share of the rate.
const RAISE_FIRST_MIN: f64 = 0.005;
/// Doublings of the raise at most.
const RAISE_DOUBLINGS_MAX: f64 = 12.0;
/// A run whose raise stayed below this share counts as even.
const EVEN_RAISE_MAX: f64 = 0.02;
/// After the first run: share of the cooldown in which the raise doubles.
const RAISE_DOUBLING_FIRST: f64 = 0.4;
/// Cooldowns during which the pace is never raised.
const RAISE_WAIT_COOLDOWNS: f64 = 3.0;
/// Least cost of a refusal, as a share of its cooldown.
const COST_MIN: f64 = 0.3;
/// Factor of the wait before the next raise when the last probe confirmed the rate.
const CONFIRMED_WAIT: f64 = 2.0;
/// A probe confirms the rate if it changes it by less than this share.
const CONFIRMED_CHANGE: f64 = 0.1;

/// Share of the burst that may go at once after a cooldown,
const BURST_AFTER_COOLDOWN: f64 = 0.5;
/// from this number of runs on.
const BURST_RUNS_MIN: u32 = 3;
/// Runs from which on two were compared: before, what a refusal costs is not known.
const RUNS_COMPARED: u32 = 2;
/// Share of its burst that a window is taken to have restored.
const WINDOW_BURST_SHARE: f64 = 0.25;
/// Factor by which the share of the burst that a run is taken to have spent changes,
const BURST_SHARE_STEP: f64 = 2.0;
/// and its lower bound.
const BURST_SHARE_MIN: f64 = 0.01;
/// Relative uncertainty of that share, to either side.
const BURST_SHARE_SPREAD: (f64, f64) = (0.9, 1.1);
/// Probes after one that was too high, before the share falls again.
const FIRM_PROBES: u32 = 3;

/// Uncertainty of the rate, as a share: least and most.
const UNCERTAINTY: (f64, f64) = (0.05, 0.4);
/// Uncertainty per margin.
const UNCERTAINTY_PER_MARGIN: f64 = 3.0;
/// Margin by which the pace stays below the rate, as a share: least and most.
const MARGIN: (f64, f64) = (0.01, 0.2);
/// Uncertainty per spread of a solved rate: to either side.
const SPREAD_UNCERTAIN: f64 = 0.5;
/// Margin per uncertainty of a solved rate.
const MARGIN_FACTOR: f64 = 0.7;

/// An even run shorter than this share of the cooldown before it was too short,
const SHORT_RUN_SHARE: f64 = 0.3;
/// and so is one of fewer calls than this,
const SHORT_RUN_CALLS: f64 = 20.0;
/// if it earned less than this share of the rate.
const SHORT_RUN_EARNED: f64 = 0.9;
/// Share of the rate that is left after a run that was too short.
const SHORT_RUN_FALL: f64 = 0.97;
/// Share of the rate that is left after the first, the second and every further even run in a row.
const EVEN_RUN_FALL: [f64; 3] = [0.97, 0.94, 0.9];
/// Two runs are alike if neither is shorter than this share of the other.
const ALIKE: f64 = 0.5;

/// Fewest calls of a window's run.
const WINDOW_CALLS_MIN: f64 = 4.0;
/// Difference in calls of two runs of one window: one, and this share.
const WINDOW_CALLS_SPREAD: f64 = 0.03;
/// The times of two runs of a window differ by this many times that difference, at the pace,
const WINDOW_TIME_FACTOR: f64 = 2.0;
/// and their calls by less than this share of what the times explain.
const WINDOW_EXPLAINED: f64 = 0.5;
/// A run of this many times the calls of the last is no second run of a window.
const NO_WINDOW_CALLS: f64 = 2.0;
/// Uncertainty of a window's rate: this many seconds of its run.
const WINDOW_UNCERTAIN: f64 = 0.5;

/// A run whose pace grows all the time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ramp {
    /// Calls per second.
    pace: f64,
    /// When it last grew, in seconds since the run began.
    at: f64,
    /// The pace at the last remembered point.
    noted: f64,
}

impl Ramp {
    const fn from(pace: f64) -> Ramp {
        Ramp { pace, at: 0.0, noted: pace }
    }

    /// A call goes `time` seconds into the run, whose pace doubles in `doubling` seconds. True if the pace
    /// has grown: one that held nothing back does not.
    fn grow(&mut self, time: f64, doubling: f64, paced: bool) -> bool {
        if !paced {
            self.at = time;
            return false;
        }
        let grown = libm::exp2((time - self.at) / doubling).min(RAMP_STEP_MAX);
        if grown < RAMP_STEP_MIN {
            return false;
        }
        (self.pace, self.at) = (self.pace * grown, time);
        true
    }
}

/// The estimate from probe runs between cooldowns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CooldownEstimate {
    /// When the run began, and how many calls had been accepted before.
    started: Option<(Mono, u64)>,
    run: ProbeRun,
    ramp: Option<Ramp>,
    /// The run that tells the burst, because it was short.
    burst_run: ProbeRun,
    /// The last run, in seconds and calls.
    last: (f64, f64),
    /// The call whose refusal ended it.
    last_refused: u64,
    /// Runs so far.
    runs: u32,
    /// Calls per second; infinite while nothing is known.
    rate: f64,
    /// What the first run gave in its whole time, in calls per second, if a long cooldown followed.
    first_rate: f64,
    /// Share of the rate by which the pace stays below it.
    margin: f64,
    /// Share of the rate by which it may be off.
    uncertainty: f64,
    /// Share of the burst that a run is taken to have spent.
    burst_share: f64,
    /// Probes for which that share stands.
    firm: u32,
    /// Whether calls may go at once after a cooldown.
    burst_allowed: bool,
    /// The last cooldown and the longest, in seconds; the longest decays.
    cooldown: f64,
    cooldown_max: f64,
    /// Seconds into a run after which the pace is raised, and in which the raise doubles.
    raise_after: f64,
    raise_doubling: f64,
    /// Raise of the pace above the estimate, as a share of the rate.
    raise: f64,
    /// The raise, or in the first run the calls, at the last remembered point.
    noted: f64,
    /// Runs in a row that were far too short.
    short_runs: u32,
    /// The last probe found the rate that was known.
    confirmed: bool,
    /// The server counts in windows: runs have as many calls whatever the time.
    is_window: bool,
}

impl CooldownEstimate {
    pub(super) const NEW: CooldownEstimate = CooldownEstimate {
        started: None,
        run: ProbeRun::NEW,
        ramp: None,
        burst_run: ProbeRun::ENDLESS,
        last: (0.0, 0.0),
        last_refused: 0,
        runs: 0,
        rate: f64::INFINITY,
        first_rate: f64::INFINITY,
        margin: UNCERTAINTY.0,
        uncertainty: UNCERTAINTY.0,
        burst_share: 1.0,
        firm: 0,
        burst_allowed: true,
        cooldown: 0.0,
        cooldown_max: 0.0,
        raise_after: 0.0,
        raise_doubling: 1.0,
        raise: 0.0,
        noted: 0.0,
        short_runs: 0,
        confirmed: false,
        is_window: false,
    };

    /// Whether refusals come with a cooldown and a rate is known.
    pub(super) const fn is_known(&self) -> bool {
        self.runs > 0
    }

    /// Whether the server counts in windows.
    pub(super) const fn is_window(&self) -> bool {
        self.is_window
    }

    /// Whether the next run is as fast as the first, because the wait was long.
    pub(super) fn repeats_first(&self) -> bool {
        self.runs == 1 && self.rate.is_infinite()
    }

    /// Whether a run of so many calls cannot be that of a window that ended the last run.
    pub(super) const fn is_no_window(&self, calls: u64) -> bool {
        calls as f64 > NO_WINDOW_CALLS * self.last.1
    }

    /// The estimate, in calls per second.
    pub(super) const fn estimate(&self) -> f64 {
        self.rate
    }

    /// The pace, in calls per second.
    pub(super) fn pace(&self) -> f64 {
        self.ramp.map_or(self.rate * (1.0 - self.margin + self.raise), |ramp| ramp.pace)
    }

    /// Calls that may go at once after a cooldown.
    pub(super) fn burst(&self) -> f64 {
        // After a burst, a short window allows the fewer calls.
        let spent = self.is_window && self.cooldown <= ROUNDED_MAX;
        if self.ramp.is_some() || self.runs < BURST_RUNS_MIN || !self.burst_allowed || spent {
            return 1.0;
        }
        let earned = self.rate * self.cooldown;
        (BURST_AFTER_COOLDOWN * self.burst_run.burst_spent(self.rate).min(earned)).max(1.0)
    }

    /// A call goes out after `accepted` accepted ones. True if the pace has changed.
    pub(super) fn sent(&mut self, now: Mono, accepted: u64, paced: bool) -> bool {
        let (started, accepted_before) = *self.started.get_or_insert((now, accepted));
        let (time, calls) = (secs(started, now), accepted.saturating_sub(accepted_before) as f64);
        if !self.is_known() {
            if calls > FIRST_RUN_POINT.0 * self.noted + FIRST_RUN_POINT.1 {
                self.noted = calls;
                self.run.note(time, calls);
            }
            return false;
        }
        if let Some(ramp) = &mut self.ramp {
            let grown = ramp.grow(time, RAMP_DOUBLING * self.cooldown_max, paced);
            if ramp.pace > RAMP_POINT * ramp.noted {
                ramp.noted = ramp.pace;
                self.run.note(time, calls);
            }
            return grown;
        }
        if time <= self.raise_after {
            return false;
        }
        let doublings = ((time - self.raise_after) / self.raise_doubling).min(RAISE_DOUBLINGS_MAX);
        let raise = (RAISE_FIRST * self.uncertainty).max(RAISE_FIRST_MIN) * libm::exp2(doublings);
        if raise <= self.raise * RAISE_STEP_MIN {
            return false;
        }
        self.raise = raise;
        if raise > RAISE_POINT * self.noted {
            self.noted = raise;
            self.run.note(time, calls);
        }
        true
    }

    /// The run was ended by something else than the rate.
    pub(super) fn discard_run(&mut self) {
        self.started = None;
        (self.run, self.raise, self.noted) = (ProbeRun::NEW, 0.0, 0.0);
        self.ramp = self.ramp.map(|ramp| Ramp::from(self.rate.max(RAMP_RESUME * ramp.pace)));
    }

    /// A call was refused that had gone before the one that ended the run: the run has one call less.
    pub(super) fn refused_late(&mut self, seq: u64) {
        if self.started.is_some() || seq >= self.last_refused || self.last.1 < RUN_CALLS_MIN + 1.0 {
            return;
        }
        if (self.burst_run.time, self.burst_run.calls) == self.last {
            self.burst_run.calls -= 1.0;
        }
        self.last.1 -= 1.0;
    }

    /// Call `seq`, sent at `sent` after `accepted` accepted ones, was refused, with a cooldown `until`;
    /// the round trip is in seconds.
    pub(super) fn refused(
        &mut self,
        seq: u64,
        sent: Mono,
        accepted: u64,
        now: Mono,
        until: Mono,
        round_trip: f64,
    ) {
        let Some((started, accepted_before)) = self.started.take() else { return };
        let pace = self.pace();
        let mut run = core::mem::replace(&mut self.run, ProbeRun::NEW);
        run.time = secs(started, sent).max(RUN_TIME_MIN);
        (run.calls, run.pace) = ((accepted.saturating_sub(accepted_before) as f64).max(RUN_CALLS_MIN), pace);
        let cooldown_before = core::mem::replace(&mut self.cooldown, secs(now, until));
        self.cooldown_max = (self.cooldown_max * COOLDOWN_DECAY).max(self.cooldown);
        let (raise, ramp) = (core::mem::take(&mut self.raise), self.ramp.take());
        (self.last_refused, self.noted) = (seq, 0.0);
        let still_closed = run.calls <= STILL_CLOSED_CALLS && run.time < round_trip;
        if ramp.is_some() && still_closed && self.short_runs < RAMP_REFUSED_MAX {
            (self.ramp, self.short_runs) = (ramp, self.short_runs + 1);
            return;
        }
        self.runs = self.runs.saturating_add(1);
        self.ended(&RunEnd { run, raise, ramped: ramp.is_some(), cooldown_before, round_trip });
        (self.raise_after, self.raise_doubling) = self.raise_timing();
    }

    /// Seconds into a run after which the pace is raised, and in which the raise doubles.
    fn raise_timing(&self) -> (f64, f64) {
        if self.runs < RUNS_COMPARED {
            return (self.cooldown_max, RAISE_DOUBLING_FIRST * self.cooldown_max);
        }
        // What a refusal costs, in seconds of the server's work.
        let cost = (self.cooldown - self.burst() / self.rate).max(COST_MIN * self.cooldown);
        let patience = if self.confirmed { CONFIRMED_WAIT } else { 1.0 };
        let wait = RAISE_WAIT_COOLDOWNS * self.cooldown_max + patience * cost / self.uncertainty;
        (wait, self.cooldown_max + cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_that_held_nothing_back_does_not_grow() {
        let mut ramp = Ramp::from(2.0);
        assert!(!ramp.grow(5.0, 0.4, false));
        assert_eq!(ramp.pace, 2.0);
        // Not even after a long time by more than a step.
        assert!(ramp.grow(9.0, 0.4, true));
        assert_eq!(ramp.pace, 2.0 * RAMP_STEP_MAX);
    }
}
