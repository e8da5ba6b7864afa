//! Counters over a sliding window, computed from cumulative counters.
//!
//! About [`STEPS`] readings are stored per window, so memory does not depend on how often readings
//! are taken.

use super::{AlertReading, BUCKETS};
use crate::time::Mono;
use alloc::collections::VecDeque;
use core::time::Duration;

/// The number of readings stored per window.
const STEPS: u32 = 30;

#[derive(Clone, Debug)]
pub(super) struct ReadingWindow {
    /// The length of the window.
    span: Duration,
    /// Readings with their times, oldest first.
    readings: VecDeque<(Mono, AlertReading)>,
}

impl ReadingWindow {
    pub(super) fn new(span: Duration) -> ReadingWindow {
        ReadingWindow { span, readings: VecDeque::new() }
    }

    /// Adds a reading and returns the counts within the window before it. While the run is shorter
    /// than the window, these are the counts since the start.
    pub(super) fn push(&mut self, now: Mono, reading: AlertReading) -> AlertReading {
        // Keep the newest reading that is at least a window old: the difference starts there.
        let old = now.saturating_sub(self.span);
        if now.nanos() > crate::time::nanos(self.span) {
            while self.readings.get(1).is_some_and(|(at, _)| *at <= old) {
                self.readings.pop_front();
            }
        }
        let from = match self.readings.front() {
            Some((at, first)) if *at <= old && *at > Mono::ZERO => *first,
            _ => AlertReading::default(),
        };
        let step = self.span / STEPS;
        if self.readings.back().is_none_or(|(at, _)| now.since(*at) >= step) {
            self.readings.push_back((now, reading));
        }
        difference(&reading, &from)
    }
}

/// The counts between two readings.
fn difference(to: &AlertReading, from: &AlertReading) -> AlertReading {
    let mut by_retries = [0; BUCKETS];
    for (out, (a, b)) in by_retries.iter_mut().zip(to.by_retries.iter().zip(&from.by_retries)) {
        *out = a.saturating_sub(*b);
    }
    AlertReading {
        attempts: to.attempts.saturating_sub(from.attempts),
        first_sent: to.first_sent.saturating_sub(from.first_sent),
        first_answered: to.first_answered.saturating_sub(from.first_answered),
        retries: to.retries.saturating_sub(from.retries),
        by_retries,
        call_seconds: (to.call_seconds - from.call_seconds).max(0.0),
        backoff_seconds: (to.backoff_seconds - from.backoff_seconds).max(0.0),
        responses: to.responses.saturating_sub(from.responses),
        status_503: to.status_503.saturating_sub(from.status_503),
        status_504: to.status_504.saturating_sub(from.status_504),
        ..*to
    }
}
