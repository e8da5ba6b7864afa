//! The registry as one value, for the summary, the report and JSON.

use super::prometheus::share;
use super::{ATTEMPTS, Ended, Meter, get};
use crate::lane::Counts;
use serde::Serialize;
use std::collections::BTreeMap;

/// Attempts of one number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttemptSummary {
    /// 1 for the first.
    pub attempt: usize,
    /// How many were sent.
    pub sent: u64,
    /// Which share of them was answered.
    pub success_rate: f64,
}

/// Everything that was counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Records that ended.
    pub records: u64,
    /// With an answer.
    pub matched: u64,
    /// With an empty answer.
    pub no_match: u64,
    /// As dead letters.
    pub failed: u64,
    /// Answered from the cache.
    pub cache_hits: u64,
    /// Answered together with an equal record.
    pub shared: u64,
    /// Attempts sent.
    pub calls: u64,
    /// Attempts answered "too many".
    pub throttled: u64,
    /// Retries decided.
    pub retry_count_total: u64,
    /// Retries of a call, at most, for half of all calls.
    pub retries_per_call_p50: f64,
    /// Retries of a call, at most, for 99 of 100 calls.
    pub retries_per_call_p99: f64,
    /// Success by attempt number.
    pub by_attempt: Vec<AttemptSummary>,
    /// Responses by status; `none` is a network failure.
    pub statuses: BTreeMap<String, u64>,
    /// Time waited on purpose.
    pub seconds_in_backoff: f64,
    /// Time in calls.
    pub seconds_in_calls: f64,
    /// Share of responses that carried a rate-limit header.
    pub rate_limit_header_present: f64,
    /// Rate-limit headers that nobody can read.
    pub malformed_headers: u64,
    /// Share of ended records whose feature is written.
    pub spatial_write_success_rate: f64,
}

impl Meter {
    /// Everything that was counted so far, here and by the lane.
    #[must_use]
    pub fn summary(&self, lane: &Counts) -> Summary {
        let (cache_hits, shared) = self.reused();
        let by_attempt = (0..ATTEMPTS)
            .filter(|&i| i == 0 || get(&self.sent[i]) > 0)
            .map(|i| {
                let sent = get(&self.sent[i]);
                AttemptSummary { attempt: i + 1, sent, success_rate: share(get(&self.succeeded[i]), sent) }
            })
            .collect();
        let mut statuses: BTreeMap<String, u64> = self
            .statuses
            .iter()
            .enumerate()
            .map(|(status, count)| (status.to_string(), get(count)))
            .filter(|(_, count)| *count > 0)
            .collect();
        if get(&self.no_status) > 0 {
            statuses.insert("none".into(), get(&self.no_status));
        }
        Summary {
            records: self.records(),
            matched: self.ended_so(Ended::Matched),
            no_match: self.ended_so(Ended::NoMatch),
            failed: self.ended_so(Ended::Failed),
            cache_hits,
            shared,
            calls: self.attempts(),
            throttled: self.throttled(),
            retry_count_total: get(&self.retries),
            retries_per_call_p50: self.retries_per_call.quantile(0.5),
            retries_per_call_p99: self.retries_per_call.quantile(0.99),
            by_attempt,
            statuses,
            seconds_in_backoff: self.backoff_seconds.sum(),
            seconds_in_calls: self.in_calls().as_secs_f64(),
            rate_limit_header_present: share(lane.hinted, lane.responses()),
            malformed_headers: lane.malformed,
            spatial_write_success_rate: share(get(&self.written), self.records()),
        }
    }
}
