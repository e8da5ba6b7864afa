//! The statistics of the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

const STATUSES: usize = 600;

/// The counters; [`Stats`] describes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    Requests,
    Executed,
    Duplicates,
    Redone,
    Replayed,
    Lost,
    Throttled,
    Down,
    Early,
    EarlySame,
    Resets,
    Hangs,
    Cuts,
    Slow,
    Errors200,
    BadRows,
    NoMatch,
    Garbage,
    Connections,
}

const COUNTS: usize = Counter::Connections as usize + 1;

/// The live counters.
pub(crate) struct Counters {
    counts: [AtomicU64; COUNTS],
    by_status: [AtomicU64; STATUSES],
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
    /// Time of the first request, in nanoseconds since the start.
    first: AtomicU64,
    /// Time of the last response, in nanoseconds since the start.
    last: AtomicU64,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            counts: [const { AtomicU64::new(0) }; COUNTS],
            by_status: [const { AtomicU64::new(0) }; STATUSES],
            in_flight: AtomicU64::new(0),
            in_flight_max: AtomicU64::new(0),
            first: AtomicU64::new(u64::MAX),
            last: AtomicU64::new(0),
        }
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counters {
    /// Increments a counter and returns its new value.
    pub(crate) fn count(&self, what: Counter) -> u64 {
        self.counts.get(what as usize).map_or(0, |counter| counter.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn get(&self, what: Counter) -> u64 {
        self.counts.get(what as usize).map_or(0, get)
    }

    /// Counts a complete response with this status.
    pub(crate) fn answered(&self, status: u16) {
        if let Some(counter) = self.by_status.get(usize::from(status)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a request; returns the number in flight, including it.
    pub(crate) fn enter(&self, now: u64) -> u64 {
        self.first.fetch_min(now, Ordering::Relaxed);
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.in_flight_max.fetch_max(in_flight, Ordering::Relaxed);
        in_flight
    }

    /// Counts a request as done.
    pub(crate) fn leave(&self, now: u64) {
        self.last.fetch_max(now, Ordering::Relaxed);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Resets all counters except those in flight.
    pub(crate) fn clear(&self) {
        for counter in self.counts.iter().chain(&self.by_status) {
            counter.store(0, Ordering::Relaxed);
        }
        self.in_flight_max.store(get(&self.in_flight), Ordering::Relaxed);
        self.first.store(u64::MAX, Ordering::Relaxed);
        self.last.store(0, Ordering::Relaxed);
    }

    /// A snapshot of the counters, with the values of the judge.
    pub(crate) fn snapshot(&self, collapses: u64, earliest: u64) -> Stats {
        let requests = self.get(Counter::Requests);
        let wasted = self.get(Counter::Throttled) + self.get(Counter::Down);
        let elapsed = get(&self.last).saturating_sub(get(&self.first)) as f64 / 1e9;
        let earliest = earliest as f64 / 1e9;
        Stats {
            requests,
            by_status: (0u16..)
                .zip(&self.by_status)
                .map(|(status, n)| (status, get(n)))
                .filter(|(_, n)| *n > 0)
                .collect(),
            executed: self.get(Counter::Executed),
            duplicates_executed: self.get(Counter::Duplicates),
            redone_after_loss: self.get(Counter::Redone),
            replayed: self.get(Counter::Replayed),
            answers_lost: self.get(Counter::Lost),
            wasted_calls: wasted,
            wasted_percent: 100.0 * wasted as f64 / requests.max(1) as f64,
            throttled: self.get(Counter::Throttled),
            refused_while_down: self.get(Counter::Down),
            collapses,
            retry_after_violations: self.get(Counter::Early),
            retry_after_violations_same_request: self.get(Counter::EarlySame),
            resets: self.get(Counter::Resets),
            hangs: self.get(Counter::Hangs),
            cuts: self.get(Counter::Cuts),
            slow: self.get(Counter::Slow),
            errors_in_200: self.get(Counter::Errors200),
            bad_rows: self.get(Counter::BadRows),
            no_match: self.get(Counter::NoMatch),
            garbage_hints: self.get(Counter::Garbage),
            connections: self.get(Counter::Connections),
            in_flight: get(&self.in_flight),
            in_flight_max: get(&self.in_flight_max),
            elapsed_seconds: elapsed,
            earliest_finish_seconds: earliest,
            times_earliest: if earliest > 0.0 { elapsed / earliest } else { 0.0 },
        }
    }
}

/// The content of `/__stats`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Requests received, without those to `/__…`.
    pub requests: u64,
    /// Complete responses by status.
    pub by_status: BTreeMap<u16, u64>,
    /// Successes executed, whether delivered or not; a no match is a success.
    pub executed: u64,
    /// Successes delivered for a request that had been delivered before.
    pub duplicates_executed: u64,
    /// Successes executed again because the first response was lost.
    pub redone_after_loss: u64,
    /// Successes answered again under their idempotency key: neither executed nor billed again.
    pub replayed: u64,
    /// Successes whose response was lost: reset, truncated or never sent.
    pub answers_lost: u64,
    /// Calls throttled, or refused while down.
    pub wasted_calls: u64,
    /// Wasted calls as a percentage of the requests.
    pub wasted_percent: f64,
    /// Calls refused by the throttle.
    pub throttled: u64,
    /// Calls refused in an outage or collapse.
    pub refused_while_down: u64,
    /// Collapses after an outage.
    pub collapses: u64,
    /// Requests that came earlier than the lane or the request was told.
    pub retry_after_violations: u64,
    /// Those of them where the same request was told.
    pub retry_after_violations_same_request: u64,
    /// Connections reset.
    pub resets: u64,
    /// Requests left without an answer.
    pub hangs: u64,
    /// Truncated bodies.
    pub cuts: u64,
    /// Bodies sent slowly.
    pub slow: u64,
    /// Errors with status 200.
    pub errors_in_200: u64,
    /// Calls for an invalid row.
    pub bad_rows: u64,
    /// Calls for a row without a match.
    pub no_match: u64,
    /// Malformed hints sent.
    pub garbage_hints: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// The most requests in flight.
    pub in_flight_max: u64,
    /// Time from the first arrival to the last answer, in seconds.
    pub elapsed_seconds: f64,
    /// Time from the first request to the earliest possible completion of the accepted calls, in
    /// seconds.
    pub earliest_finish_seconds: f64,
    /// `elapsed_seconds` divided by `earliest_finish_seconds`.
    pub times_earliest: f64,
}
