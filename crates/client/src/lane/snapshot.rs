//! What a lane can tell about itself, for progress, metrics and reports.

use super::LaneKey;
use tidegate_core::breaker::BreakerState;
use tidegate_core::hint::Hints;
use tidegate_core::{Code, Mono, Verdict, VerdictKind};

/// Counted since the lane was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that came for the first time.
    pub started: u64,
    /// Calls sent.
    pub sent: u64,
    /// Calls that came back.
    pub settled: u64,
    /// Calls abandoned before an answer.
    pub released: u64,
    /// Calls that found the lane busy and had to wait for it.
    pub waited: u64,
    /// Answers that asked for fewer calls.
    pub throttled: u64,
    /// Answers that carried any rate-limit header.
    pub hinted: u64,
    /// Rate-limit headers that could not be read.
    pub malformed: u64,
    /// Answers per HTTP status; 0 counts the calls that got none.
    pub statuses: Vec<(u16, u64)>,
}

impl Counts {
    /// Calls that came back with an answer.
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
    /// Not before.
    pub at: Mono,
    /// `CIRCUIT_OPEN` or `QUOTA_EXHAUSTED`; `None` for pace or a wait that the server asked for.
    pub shut: Option<Code>,
}

/// A lane at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Which lane.
    pub key: LaneKey,
    /// When this was taken.
    pub now: Mono,
    /// Calls per second that the lane has learned or was given; `None` while it knows none.
    pub rate: Option<f64>,
    /// Calls out.
    pub in_flight: u32,
    /// Calls that may be out at once.
    pub cap: u32,
    /// The server asked for no call before this; in the past when it asks for nothing.
    pub gate: Mono,
    /// Calls that wait for the lane.
    pub waiting: usize,
    /// What the waiting ones wait for; `None` when they wait for a call to come back.
    pub due: Option<Due>,
    /// The breaker.
    pub breaker: BreakerState,
    /// How often the breaker has changed its state.
    pub breaker_changes: u32,
    /// Since the start.
    pub counts: Counts,
}
