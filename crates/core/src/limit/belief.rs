//! What a lane believes of its server's limit, and why it changed its mind: a plain value for people, to be
//! logged, counted and reported. A lane decides by it only when it takes over from another one.

use super::Limiter;
use super::failure_kind::FailureKind;
use super::limit_kind::LimitKind;
use super::quota_meter::QuotaMeter;
use crate::time::{Mono, seconds};
use core::fmt;
use core::time::Duration;

/// A kind of limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BelievedKind {
    /// None was met so far.
    #[default]
    None,
    /// Calls per time.
    Rate,
    /// Calls per time, and nothing saved: one call per interval.
    Interval,
    /// Calls per window of time.
    Window,
    /// Calls at once.
    Concurrency,
    /// A quota that the server's headers tell.
    Quota,
    /// Refusals or failures that have nothing to do with our calls.
    Random,
    /// The server is down.
    Outage,
}

impl BelievedKind {
    /// All kinds.
    pub const ALL: [BelievedKind; 8] = [
        BelievedKind::None,
        BelievedKind::Rate,
        BelievedKind::Interval,
        BelievedKind::Window,
        BelievedKind::Concurrency,
        BelievedKind::Quota,
        BelievedKind::Random,
        BelievedKind::Outage,
    ];

    /// Its name in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            BelievedKind::None => "none",
            BelievedKind::Rate => "rate",
            BelievedKind::Interval => "interval",
            BelievedKind::Window => "window",
            BelievedKind::Concurrency => "concurrency",
            BelievedKind::Quota => "quota",
            BelievedKind::Random => "random",
            BelievedKind::Outage => "outage",
        }
    }

    /// What makes a lane believe in it.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            BelievedKind::None => "",
            BelievedKind::Rate => "calls were refused though few were in flight",
            BelievedKind::Interval => {
                "no two calls were accepted as close together as some that were refused"
            }
            BelievedKind::Window => "the server refused everything for a time, then accepted many calls",
            BelievedKind::Concurrency => "calls were refused while many were in flight",
            BelievedKind::Quota => "the headers tell how many calls are left",
            BelievedKind::Random => "as many calls are refused at a lower pace",
            BelievedKind::Outage => "calls sent alone fail, one after the other",
        }
    }
}

/// What a lane believes of its server's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LimitBelief {
    /// The kind of limit.
    pub kind: BelievedKind,
    /// Calls per second.
    pub rate: Option<f64>,
    /// Calls that the server takes at once after a pause.
    pub burst: Option<f64>,
    /// The length of the window.
    pub window: Option<Duration>,
    /// Calls at once.
    pub in_flight: Option<u32>,
    /// Whether failures, such as 503, are taken for refusals.
    pub by_failures: bool,
    /// Why the kind is what it is.
    pub reason: &'static str,
    /// When the kind last changed.
    pub since: Mono,
    /// How often the kind has changed.
    pub changes: u32,
}

impl fmt::Display for LimitBelief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        if let Some(rate) = self.rate {
            write!(f, ", {rate:.1} calls/s")?;
        }
        if let Some(burst) = self.burst {
            write!(f, ", burst {burst:.0}")?;
        }
        if let Some(window) = self.window {
            write!(f, ", window {:.1} s", window.as_secs_f64())?;
        }
        if let Some(calls) = self.in_flight {
            write!(f, ", {calls} calls at once")?;
        }
        if self.by_failures {
            f.write_str(", said by failures")?;
        }
        if !self.reason.is_empty() {
            write!(f, ": {}", self.reason)?;
        }
        Ok(())
    }
}

/// The kind that was believed last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BeliefChange {
    kind: BelievedKind,
    since: Mono,
    changes: u32,
}

impl Limiter {
    /// What the lane believes of its server's limit.
    #[must_use]
    pub fn belief(&self) -> LimitBelief {
        let BeliefChange { kind, since, changes } = self.believed;
        let by_rate = matches!(kind, BelievedKind::Rate | BelievedKind::Interval | BelievedKind::Window);
        let rate = self.rate().filter(|rate| rate.is_finite() && (by_rate || kind == BelievedKind::Quota));
        let window = match kind {
            BelievedKind::Window => self.tables.period().or_else(|| self.estimate.window()).map(seconds),
            BelievedKind::Quota => self.meters.iter().flatten().find_map(QuotaMeter::window).map(seconds),
            _ => None,
        };
        LimitBelief {
            kind,
            rate,
            burst: rate.filter(|_| by_rate && !self.cooldowns.is_known()).map(|rate| self.burst.burst(rate)),
            window,
            in_flight: (kind == BelievedKind::Concurrency).then(|| self.cap()),
            by_failures: self.failures.is_tried(),
            reason: if changes == 0 { "" } else { kind.reason() },
            since,
            changes,
        }
    }

    /// Notes when the kind changes.
    pub(super) fn note_belief(&mut self, now: Mono) {
        let kind = self.believed_kind();
        if kind != self.believed.kind {
            let changes = self.believed.changes.saturating_add(1);
            self.believed = BeliefChange { kind, since: now, changes };
        }
    }

    fn believed_kind(&self) -> BelievedKind {
        match () {
            () if self.failures.kind() == FailureKind::Outage || self.slow_start.is_down() => {
                BelievedKind::Outage
            }
            () if self.is_metered() => BelievedKind::Quota,
            () if self.random.is_known()
                || self.flights.is_random()
                || self.failures.kind() == FailureKind::Random =>
            {
                BelievedKind::Random
            }
            () if self.tables.rate().is_some() => BelievedKind::Window,
            () if self.kind == LimitKind::Concurrency => BelievedKind::Concurrency,
            () if self.kind == LimitKind::Unknown => BelievedKind::None,
            () if self.cooldowns.is_window() => BelievedKind::Window,
            () if self.cooldowns.is_known() => BelievedKind::Rate,
            () if self.single_token.is_some() => BelievedKind::Interval,
            () if self.estimate.window().is_some() => BelievedKind::Window,
            () => BelievedKind::Rate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_belief_in_words() {
        let belief = LimitBelief {
            kind: BelievedKind::Window,
            rate: Some(99.96),
            burst: Some(20.0),
            window: Some(Duration::from_millis(10_000)),
            by_failures: true,
            reason: BelievedKind::Window.reason(),
            ..LimitBelief::default()
        };
        assert_eq!(
            belief.to_string(),
            "window, 100.0 calls/s, burst 20, window 10.0 s, said by failures: \
             the server refused everything for a time, then accepted many calls"
        );
        assert_eq!(LimitBelief::default().to_string(), "none");
    }
}
