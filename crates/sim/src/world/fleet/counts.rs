//! What is measured of a fleet.

use std::collections::VecDeque;

use crate::outcome::MetricTallies;
use crate::server::Throttle;
use crate::world::World;
use crate::world::limit::ServerLimitSpec;

const SECOND: u64 = 1_000_000_000;

/// Counters of one run of a fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetCounts {
    /// The number of requests answered.
    pub done: u64,
    /// The number of requests given up or parked.
    pub dead: u64,
    /// The number of calls that arrived at the server.
    pub calls: u64,
    /// The number of calls refused.
    pub refused: u64,
    /// The number of calls accepted in the measured time.
    pub accepted: u64,
    /// The number of calls that a client which knows the limit would have got accepted in the measured time.
    pub possible: u64,
    /// The number of calls that a process sent before the time that it had been asked to wait for.
    pub early: u64,
    /// The most arrivals in any second of the measured time.
    pub peak: usize,
    /// The most arrivals in any second after the owner changed.
    pub peak_after: Option<usize>,
    /// Calls per second that the server allows, if it has such a limit.
    pub rate: Option<f64>,
    /// The measured time, in nanoseconds from the start.
    measure: [u64; 2],
    /// Arrivals of the last second.
    last_second: VecDeque<u64>,
    /// Arrivals of the last second, but none before the owner changed.
    last_after: VecDeque<u64>,
    members: Vec<MemberCounts>,
}

/// The counters of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct MemberCounts {
    /// Requests that it had.
    offered: u64,
    /// Calls accepted.
    accepted: u64,
    /// Whether it had as many requests as it could send.
    is_insatiable: bool,
    /// Whether something happened to it, so that its share is not judged.
    is_excused: bool,
}

impl FleetCounts {
    pub(super) fn new(world: &World) -> FleetCounts {
        let measure = [world.measure[0], world.measure[1].min(world.end)];
        let rate = world.server.limit.as_ref().and_then(rate);
        let members = vec![MemberCounts::default(); world.clients as usize];
        FleetCounts { measure, rate, members, possible: possible(world, measure), ..FleetCounts::default() }
    }

    pub(super) fn insatiable(&mut self, member: u32) {
        self.members[member as usize].is_insatiable = true;
    }

    pub(super) fn offered(&mut self, member: u32) {
        self.members[member as usize].offered += 1;
    }

    pub(super) fn excuse(&mut self, member: u32) {
        self.members[member as usize].is_excused = true;
    }

    pub(super) fn owner_changes(&mut self) {
        self.last_after.clear();
        self.peak_after = self.peak_after.or(Some(0));
    }

    pub(super) fn arrival(&mut self, member: u32, accepted: bool, now: u64) {
        self.calls += 1;
        self.refused += u64::from(!accepted);
        self.members[member as usize].accepted += u64::from(accepted);
        if (self.measure[0]..self.measure[1]).contains(&now) {
            self.accepted += u64::from(accepted);
            let within = in_last_second(&mut self.last_second, now);
            self.peak = self.peak.max(within);
        }
        if let Some(peak) = self.peak_after {
            self.peak_after = Some(peak.max(in_last_second(&mut self.last_after, now)));
        }
    }

    /// Adds the metrics of one trial.
    pub(crate) fn enter(&self, ledger: &mut MetricTallies) {
        let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        ledger.add("utilisation", percent(self.accepted, self.possible));
        ledger.add("refused", percent(self.refused, self.calls));
        ledger.add("share_error", self.share_error());
        if let Some(rate) = self.rate {
            ledger.add("peak_rate", self.peak as f64 / rate);
        }
        if let (Some(rate), Some(peak)) = (self.rate, self.peak_after) {
            ledger.add("peak_after", peak as f64 / rate);
        }
        ledger.add("early", self.early as f64);
        ledger.add("done", self.done as f64);
        ledger.add("dead", self.dead as f64);
        ledger.add("calls", self.calls as f64);
    }

    /// The largest difference between what a member got and its share, in per cent of the share. The share is what
    /// it wants, or an equal part of what the others leave (max-min fairness).
    #[must_use]
    pub fn share_error(&self) -> f64 {
        let judged = || self.members.iter().filter(|member| !member.is_excused);
        let mut left = judged().map(|member| member.accepted).sum::<u64>() as f64;
        let want =
            |member: &MemberCounts| if member.is_insatiable { f64::INFINITY } else { member.offered as f64 };
        let mut wants: Vec<(f64, f64)> =
            judged().map(|member| (want(member), member.accepted as f64)).collect();
        wants.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut worst = 0.0_f64;
        for index in 0..wants.len() {
            let (want, got) = wants[index];
            let share = want.min(left / (wants.len() - index) as f64);
            left -= share;
            if share > 0.0 {
                worst = worst.max(100.0 * (got - share).abs() / share);
            }
        }
        worst
    }
}

/// Notes an arrival. Returns the number of arrivals in the second that ends with it.
fn in_last_second(times: &mut VecDeque<u64>, now: u64) -> usize {
    times.push_back(now);
    while times.front().is_some_and(|first| first + SECOND <= now) {
        times.pop_front();
    }
    times.len()
}

/// Calls per second that a limit allows.
fn rate(limit: &ServerLimitSpec) -> Option<f64> {
    match *limit {
        ServerLimitSpec::TokenBucket { rate, .. } | ServerLimitSpec::LeakyBucket { rate, .. } => Some(rate),
        ServerLimitSpec::FixedWindow { limit, window, .. }
        | ServerLimitSpec::SlidingWindow { limit, window }
        | ServerLimitSpec::SlidingCounter { limit, window, .. }
        | ServerLimitSpec::StickTable { limit, window } => Some(limit as f64 / window),
        _ => None,
    }
}

/// The calls that a client which knows the limit gets accepted in the measured time.
fn possible(world: &World, [from, to]: [u64; 2]) -> u64 {
    let Some(limit) = &world.server.limit else { return 0 };
    let mut throttle = Throttle::new(&limit.limit());
    let service = (world.server.service.base_seconds * 1e9) as u64;
    let (mut at, mut accepted) = (0, 0);
    loop {
        at += throttle.wait(at);
        if at >= to {
            return accepted;
        }
        let _ = throttle.offer(at, service);
        accepted += u64::from(at >= from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_what_is_wanted_or_an_equal_part_of_the_rest() {
        let member = |offered, accepted, is_insatiable, is_excused| MemberCounts {
            offered,
            accepted,
            is_insatiable,
            is_excused,
        };
        let counts = |members: Vec<MemberCounts>| FleetCounts { members, ..FleetCounts::default() };
        let fair = counts(vec![
            member(10, 10, false, false),
            member(0, 45, true, false),
            member(0, 45, true, false),
        ]);
        assert_eq!(fair.share_error(), 0.0);
        let greedy =
            counts(vec![member(0, 60, true, false), member(0, 40, true, false), member(0, 1, true, true)]);
        assert_eq!(greedy.share_error(), 20.0);
    }

    #[test]
    fn the_fullest_second_is_found() {
        let mut times = VecDeque::new();
        let peaks = [0, 1, 2, SECOND, SECOND + 1].map(|at| in_last_second(&mut times, at));
        assert_eq!(peaks, [1, 2, 3, 3, 3]);
    }
}
