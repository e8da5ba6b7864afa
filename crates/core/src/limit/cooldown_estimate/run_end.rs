//! What the end of a probe run says: a window, a second limit, a pace that began too high, or the rate for which
//! two runs agree on the burst.

use super::*;

/// How a run ended.
pub(super) struct RunEnd {
    pub(super) run: ProbeRun,
    /// Raise of the pace above the estimate, as a share.
    pub(super) raise: f64,
    /// It was a ramp.
    pub(super) ramped: bool,
    /// The cooldown before it, in seconds.
    pub(super) cooldown_before: f64,
    /// Round trip, in seconds.
    pub(super) round_trip: f64,
}

impl RunEnd {
    const fn is_even(&self) -> bool {
        !self.ramped && self.raise < EVEN_RAISE_MAX
    }
}

impl CooldownEstimate {
    /// Learns from the end of a run.
    pub(super) fn ended(&mut self, end: &RunEnd) {
        let run = &end.run;
        let last = core::mem::replace(&mut self.last, (run.time, run.calls));
        let burst_run = self.burst_run;
        if run.calls < burst_run.calls || run.time < burst_run.time {
            self.burst_run = *run;
        }
        let whole = run.time + self.cooldown;
        let by_run = run.calls / (whole - ROUNDED_LATE).max(ROUNDED_SHARE_MIN * whole);
        // Never less than what was earned since the last refusal.
        let earned = run.calls / (run.time + end.cooldown_before.max(self.cooldown));
        // A run of one call may have had none accepted.
        let proven = if run.calls > RUN_CALLS_MIN { earned } else { 0.0 };
        let rounded = self.cooldown <= ROUNDED_MAX;
        let long = end.cooldown_before.min(self.cooldown) > ROUNDED_MAX;
        if self.runs > 1 && end.raise < EVEN_RAISE_MAX && is_window(run, last, long) {
            self.set_window(run, whole);
            return;
        }
        if self.runs > 1 && self.rate.is_infinite() {
            // It was as fast as the first run, and no window: what that gave in its whole time is the rate.
            self.set(self.first_rate.max(proven), 0.0, 0.0);
            self.short_runs = 0;
            return;
        }
        if !rounded {
            self.ended_long(end, by_run, proven);
            return;
        }
        let few = run.time < SHORT_RUN_SHARE * end.cooldown_before
            || run.calls < SHORT_RUN_CALLS && self.short_runs == 0;
        let short = self.runs > 1 && end.is_even() && few && earned < SHORT_RUN_EARNED * self.rate;
        if short && self.short_runs == 0 {
            // A little too fast, or the calls that went at once too many.
            (self.short_runs, self.burst_allowed) = (1, false);
            self.rate *= SHORT_RUN_FALL;
            return;
        }
        // A ramp that was refused at once tells nothing but that it began too high.
        let high = end.ramped
            && run.time < RAMP_TOO_HIGH * end.cooldown_before
            && self.short_runs < RAMP_REFUSED_MAX;
        if high || short || self.runs == 1 {
            self.short_runs = if high { self.short_runs + 1 } else { 0 };
            self.ramp_anew(
                run,
                if high { earned } else { ramp_start(run, end.round_trip, by_run, self.cooldown) },
            );
            return;
        }
        let alike = burst_run.time > ALIKE * run.time && run.time > ALIKE * burst_run.time;
        if end.is_even() && (self.is_window || alike) {
            self.slow_down(end, whole);
            return;
        }
        self.short_runs = 0;
        self.solve(end, &burst_run, earned);
    }

    /// The server counts in windows, of the longest common length that fits.
    pub(super) fn set_window(&mut self, run: &ProbeRun, whole: f64) {
        let window = COMMON_WINDOWS.iter().rev().find(|w| **w <= whole).map_or(whole, |w| w.max(run.time));
        self.set((run.calls / window).min(run.pace), 0.0, WINDOW_UNCERTAIN / whole);
        (self.burst_run, self.is_window, self.short_runs) = (*run, true, 0);
        self.burst_share = self.burst_share.min(WINDOW_BURST_SHARE);
    }

    /// A long cooldown is that of a window, or of a second limit behind the rate.
    pub(super) fn ended_long(&mut self, end: &RunEnd, by_run: f64, proven: f64) {
        let (run, first) = (&end.run, self.runs == 1);
        if first {
            // What it gave at once it may give again: the second run is as fast as the first.
            (self.rate, self.first_rate, self.short_runs) = (f64::INFINITY, by_run, 0);
            (self.is_window, self.burst_share) = (true, WINDOW_BURST_SHARE);
            return;
        }
        let rate = match () {
            () if end.ramped => run.pace.min(run.calls / run.time),
            () => self.rate.max(proven),
        };
        self.set(rate, 0.0, 0.0);
        self.short_runs = 0;
    }

    /// Nothing is known but the burst that this run tells: ramps up from a pace.
    pub(super) fn ramp_anew(&mut self, run: &ProbeRun, from: f64) {
        (self.ramp, self.rate, self.burst_run) = (Some(Ramp::from(from)), from, *run);
        (self.burst_share, self.firm, self.confirmed) = (1.0, 0, false);
        (self.burst_allowed, self.is_window) = (true, false);
    }

    /// The run says only that the pace was a little too fast.
    pub(super) fn slow_down(&mut self, end: &RunEnd, whole: f64) {
        let run = &end.run;
        let most = if run.time > end.cooldown_before { run.calls / run.time } else { run.pace };
        let slower = EVEN_RUN_FALL[(self.short_runs as usize).min(EVEN_RUN_FALL.len() - 1)];
        self.short_runs = self.short_runs.saturating_add(1);
        let rate = (slower * self.rate).max(run.calls / whole).min(most).min(run.pace);
        (self.rate, self.margin, self.burst_allowed) = (rate, MARGIN.0, false);
        self.raise_burst_share();
    }

    /// The rate for which this run and the one that tells the burst agree.
    pub(super) fn solve(&mut self, end: &RunEnd, burst_run: &ProbeRun, earned: f64) {
        let run = &end.run;
        let share = if end.ramped { 1.0 } else { self.burst_share };
        // What was held for long is not too much.
        let held = if end.raise > 0.0 { self.rate * (1.0 - self.margin) } else { 0.0 };
        // In a short cooldown the burst is not restored as a whole.
        let restored = if end.raise >= EVEN_RAISE_MAX { f64::INFINITY } else { end.cooldown_before };
        let burst = |rate: f64| burst_run.burst_spent(rate).max(1.0).min(rate * restored);
        let found = |share: f64| run.rate_for_burst(earned.max(held), |rate| share * burst(rate));
        let (rate, most, least) =
            (found(share), found(BURST_SHARE_SPREAD.0 * share), found(BURST_SHARE_SPREAD.1 * share));
        // Where the pace grew much from one call to the next, the rate lies somewhere between.
        let doubling_calls = run.pace * RAMP_DOUBLING * self.cooldown_max;
        let step = if end.ramped { libm::exp2(1.0 / doubling_calls).min(RAMP_STEP_MAX) - 1.0 } else { 0.0 };
        let was = self.rate;
        let uncertain = SPREAD_UNCERTAIN * (most - least) / rate + step + 1.0 / run.calls;
        self.set(rate, MARGIN_FACTOR * uncertain, 0.0);
        if end.ramped {
            return;
        }
        if end.raise < EVEN_RAISE_MAX {
            self.raise_burst_share();
            self.firm = FIRM_PROBES;
        } else if self.firm > 0 {
            self.firm -= 1;
        } else {
            // It may have spent less than that, and the rate be higher.
            self.burst_share = (self.burst_share / BURST_SHARE_STEP).max(BURST_SHARE_MIN);
        }
        self.confirmed = (rate / was - 1.0).abs() < CONFIRMED_CHANGE;
    }

    /// The run has spent more of its burst than was thought.
    pub(super) const fn raise_burst_share(&mut self) {
        let most = if self.is_window { WINDOW_BURST_SHARE } else { 1.0 };
        self.burst_share = (BURST_SHARE_STEP * self.burst_share).min(most);
    }

    /// The rate is this, in calls per second; the margin and the least uncertainty are shares of it.
    pub(super) fn set(&mut self, rate: f64, margin: f64, uncertainty: f64) {
        (self.rate, self.margin) = (rate, margin.clamp(MARGIN.0, MARGIN.1));
        self.uncertainty =
            (UNCERTAINTY_PER_MARGIN * self.margin).max(uncertainty).clamp(UNCERTAINTY.0, UNCERTAINTY.1);
    }
}

/// Whether a run has as many calls as the last, though it took another time, or both ended in a long
/// cooldown.
fn is_window(run: &ProbeRun, last: (f64, f64), long: bool) -> bool {
    let spread = 1.0 + WINDOW_CALLS_SPREAD * run.calls;
    let more = (run.calls - last.1).abs();
    let explained = run.pace.min(run.calls / run.time) * (run.time - last.0).abs();
    run.calls > WINDOW_CALLS_MIN
        && more <= spread
        && (long || explained > WINDOW_TIME_FACTOR * spread && more < WINDOW_EXPLAINED * explained)
}

/// The pace that a ramp begins with, in calls per second: slow enough to last, so that it says something
/// else than the run before it.
fn ramp_start(run: &ProbeRun, round_trip: f64, by_run: f64, cooldown: f64) -> f64 {
    if run.calls < RAMP_START_CALLS {
        return by_run;
    }
    let time = run.time.max(round_trip);
    let slower = (cooldown / time).clamp(RAMP_START_SLOWER.0, RAMP_START_SLOWER.1);
    (RAMP_START_FACTOR * run.calls / time / slower).clamp(by_run, RAMP_START_MAX * by_run)
}
