//! Snapshots of a lane, for progress, metrics and reports.

use super::{LaneKey, LaneRole};
use tidegate_core::breaker::BreakerState;
use tidegate_core::hint::Hints;
use tidegate_core::limit::LimitBelief;
use tidegate_core::{Code, Mono, Verdict, VerdictKind};

/// Counters since the lane was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls begun, counted at their first attempt.
    pub started: u64,
    /// Calls sent.
    pub sent: u64,
    /// Calls whose verdict is known.
    pub settled: u64,
    /// Calls abandoned before an answer.
    pub released: u64,
    /// Calls that had to wait for a permit.
    pub waited: u64,
    /// Throttled answers.
    pub throttled: u64,
    /// Answers with any rate-limit header.
    pub hinted: u64,
    /// Rate-limit headers that are malformed.
    pub malformed: u64,
    /// How often the lane changed its mind about the kind of limit.
    pub belief_changes: u64,
    /// How often the owner of the lane was replaced.
    pub owner_changes: u64,
    /// Answers per HTTP status; 0 counts the calls that got none.
    pub statuses: Vec<(u16, u64)>,
}

impl Counts {
    /// The number of calls that got a response.
    #[must_use]
    pub fn responses(&self) -> u64 {
        self.statuses.iter().filter(|(status, _)| *status > 0).map(|(_, n)| n).sum()
    }

    pub(super) fn settle(&mut self, verdict: &Verdict, hints: &Hints) {
        self.settled += 1;
        let hinted = hints.retry_after.is_some() || hints.quotas.iter().any(Option::is_some);
        self.hinted += u64::from(hinted);
        self.malformed += u64::from(hints.malformed);
        self.throttled += u64::from(matches!(verdict.kind, VerdictKind::Throttled { .. }));
        let status = verdict.status.unwrap_or(0);
        match self.statuses.iter_mut().find(|(s, _)| *s == status) {
            Some((_, n)) => *n += 1,
            None => self.statuses.push((status, 1)),
        }
    }
}

/// The next time at which a lane sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The earliest time of the next permit.
    pub at: Mono,
    /// `CIRCUIT_OPEN` or `QUOTA_EXHAUSTED`; `None` for pace or a wait that the server asked for.
    pub shut: Option<Code>,
}

/// A lane at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The key of the lane.
    pub key: LaneKey,
    /// The time of the snapshot.
    pub now: Mono,
    /// The rate, learned or configured, in calls per second; `None` while it is unknown.
    pub rate: Option<f64>,
    /// Calls in flight.
    pub in_flight: u32,
    /// The most calls in flight.
    pub cap: u32,
    /// The earliest time of the next call that the server asked for; in the past when it asks for nothing.
    pub gate: Mono,
    /// Calls that wait for a permit.
    pub waiting: usize,
    /// The next permit of the waiting calls; `None` when they wait for a call in flight to end.
    pub due: Option<Due>,
    /// The state of the breaker.
    pub breaker: BreakerState,
    /// The number of state changes of the breaker.
    pub breaker_changes: u32,
    /// What the lane believes of its server's limit.
    pub belief: LimitBelief,
    /// What this process is to the lane.
    pub role: LaneRole,
    /// Whether the server at which the lane is shared cannot be reached.
    pub unreachable: bool,
    /// The counters since the start.
    pub counts: Counts,
}
