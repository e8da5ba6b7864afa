//! The registry as one value, for the summary, the report and JSON.

use super::calls::RETRIES;
use super::histogram::quantile;
use super::line::{ServiceMetrics, share, together};
use super::{RecordEnd, Telemetry};
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
    /// Calls with at most so many retries as the end says, and not as the end before; the last has
    /// more.
    pub retries_per_call: Vec<(String, u64)>,
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
    /// Rate-limit headers that cannot be parsed.
    pub malformed_headers: u64,
    /// Share of ended records whose feature is written.
    pub spatial_write_success_rate: f64,
}

impl Telemetry {
    /// Everything that was counted so far, over all services.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let lines = self.lines();
        let lanes = together(&lines);
        let r = &self.records;
        let counts = retries(&lines);
        let sum = |of: fn(&ServiceMetrics) -> u64| lines.iter().map(of).sum::<u64>();
        let aside = r.ended_so(RecordEnd::Filtered) + r.ended_so(RecordEnd::Deduped);
        Summary {
            records: r.all(),
            matched: r.ended_so(RecordEnd::Matched),
            no_match: r.ended_so(RecordEnd::NoMatch),
            failed: r.ended_so(RecordEnd::Failed),
            cache_hits: sum(|line| line.calls.reused().0),
            shared: sum(|line| line.calls.reused().1),
            calls: sum(|line| line.calls.attempts()),
            throttled: sum(|line| line.calls.throttled()),
            retry_count_total: sum(|line| line.calls.retries()),
            retries_per_call_p50: quantile(RETRIES, &counts, 0.5),
            retries_per_call_p99: quantile(RETRIES, &counts, 0.99),
            retries_per_call: named(&counts),
            by_attempt: by_attempt(&lines),
            statuses: statuses(&lines),
            seconds_in_backoff: lines.iter().map(|line| line.calls.in_backoff()).sum(),
            seconds_in_calls: lines.iter().map(|line| line.calls.in_calls().as_secs_f64()).sum(),
            rate_limit_header_present: share(lanes.hinted, lanes.responses),
            malformed_headers: lanes.malformed,
            spatial_write_success_rate: share(r.written(), r.all().saturating_sub(aside)),
        }
    }
}

/// Calls by their retries, over all services: as many as [`RETRIES`] has ends, and one more.
pub(super) fn retries(lines: &[ServiceMetrics]) -> Vec<u64> {
    let mut all = vec![0; RETRIES.len() + 1];
    for line in lines {
        for (sum, n) in all.iter_mut().zip(line.calls.retries_per_call.counts()) {
            *sum += n;
        }
    }
    all
}

/// The buckets by the retries that they hold: `0`, `6–8`, `22+`.
fn named(counts: &[u64]) -> Vec<(String, u64)> {
    let mut from = 0;
    let mut all = Vec::new();
    for (end, n) in RETRIES.iter().map(|end| *end as u64).zip(counts) {
        let name = if from == end { end.to_string() } else { format!("{from}–{end}") };
        all.push((name, *n));
        from = end + 1;
    }
    all.push((format!("{from}+"), counts.last().copied().unwrap_or(0)));
    let used = all.iter().rposition(|(_, n)| *n > 0).map_or(0, |at| at + 1);
    all.truncate(used);
    all
}

fn by_attempt(lines: &[ServiceMetrics]) -> Vec<AttemptSummary> {
    let mut all: BTreeMap<usize, (u64, u64)> = BTreeMap::from([(1, (0, 0))]);
    for (number, sent, answered) in lines.iter().flat_map(|line| line.calls.by_attempt()) {
        let sum = all.entry(number).or_default();
        *sum = (sum.0 + sent, sum.1 + answered);
    }
    let row =
        |(attempt, (sent, answered))| AttemptSummary { attempt, sent, success_rate: share(answered, sent) };
    all.into_iter().map(row).collect()
}

fn statuses(lines: &[ServiceMetrics]) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (status, n) in lines.iter().flat_map(|line| line.calls.statuses()).filter(|(_, n)| *n > 0) {
        let name = if status == 0 { "none".to_owned() } else { status.to_string() };
        *all.entry(name).or_default() += n;
    }
    all
}
