//! The registry as one value, for the summary, the report and JSON.

use super::calls::RETRIES;
use super::histogram::quantile;
use super::service_metrics::{LearnedLimit, ServiceMetrics, learned, share, together};
use super::{RecordEnd, Telemetry};
use serde::Serialize;
use std::collections::BTreeMap;

/// The most lanes whose limit is reported; an object store may have thousands of lanes.
const LIMITS_MAX: usize = 8;

/// The attempts with one number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttemptSummary {
    /// The number of the attempt, from 1.
    pub attempt: usize,
    /// The number of attempts sent.
    pub sent: u64,
    /// The share of them that succeeded, from 0 to 1.
    pub success_rate: f64,
}

/// What a lane learned of the limit of its server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitSummary {
    /// The host of the lane.
    pub host: String,
    /// The kind of limit.
    pub kind: &'static str,
    /// Calls per second, if the limit is one of them.
    pub rate: Option<f64>,
    /// Calls that the server takes at once after a pause.
    pub burst: Option<f64>,
    /// The length of the window.
    pub window_seconds: Option<f64>,
    /// Calls at once, if the limit is one of them.
    pub in_flight: Option<u32>,
    /// Why the lane believes so.
    pub reason: &'static str,
    /// How often it changed its mind about the kind.
    pub changes: u64,
}

impl LimitSummary {
    fn of(learned: &LearnedLimit) -> LimitSummary {
        let LearnedLimit { host, belief, changes } = learned;
        LimitSummary {
            host: host.clone(),
            kind: belief.kind.as_str(),
            rate: belief.rate,
            burst: belief.burst,
            window_seconds: belief.window.map(|window| window.as_secs_f64()),
            in_flight: belief.in_flight,
            reason: belief.reason,
            changes: *changes,
        }
    }
}

/// Everything that was counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The number of records with an outcome.
    pub records: u64,
    /// Records with a match.
    pub matched: u64,
    /// Records without a match.
    pub no_match: u64,
    /// Records rejected.
    pub failed: u64,
    /// Records answered from the cache.
    pub cache_hits: u64,
    /// Records that shared the answer of an equal record.
    pub shared: u64,
    /// Attempts sent.
    pub calls: u64,
    /// Attempts throttled.
    pub throttled: u64,
    /// The number of retries.
    pub retry_count_total: u64,
    /// The median number of retries per call (upper bucket limit).
    pub retries_per_call_p50: f64,
    /// The 99th percentile of retries per call (upper bucket limit).
    pub retries_per_call_p99: f64,
    /// The number of calls per bucket of retries.
    pub retries_per_call: Vec<(String, u64)>,
    /// Attempts by their number.
    pub by_attempt: Vec<AttemptSummary>,
    /// Responses by status; `none` is a network failure.
    pub statuses: BTreeMap<String, u64>,
    /// The time spent waiting between attempts, in seconds.
    pub seconds_in_backoff: f64,
    /// The time spent in attempts, in seconds.
    pub seconds_in_calls: f64,
    /// What the lanes learned about the limits of their servers, the most used lane first, at most eight.
    pub limits: Vec<LimitSummary>,
    /// The share of responses with a rate-limit header, from 0 to 1.
    pub rate_limit_header_present: f64,
    /// Rate-limit headers that cannot be parsed.
    pub malformed_headers: u64,
    /// The share of ended records whose feature is written, from 0 to 1.
    pub spatial_write_success_rate: f64,
}

impl Telemetry {
    /// A summary over all services.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let services = self.services();
        let lanes = together(&services);
        let r = &self.records;
        let counts = retries(&services);
        let sum = |of: fn(&ServiceMetrics) -> u64| services.iter().map(of).sum::<u64>();
        Summary {
            records: r.all(),
            matched: r.ended_so(RecordEnd::Matched),
            no_match: r.ended_so(RecordEnd::NoMatch),
            failed: r.ended_so(RecordEnd::Failed),
            cache_hits: sum(|service| service.calls.reused().0),
            shared: sum(|service| service.calls.reused().1),
            calls: sum(|service| service.calls.attempts()),
            throttled: sum(|service| service.calls.throttled()),
            retry_count_total: sum(|service| service.calls.retries()),
            retries_per_call_p50: quantile(RETRIES, &counts, 0.5),
            retries_per_call_p99: quantile(RETRIES, &counts, 0.99),
            retries_per_call: named(&counts),
            by_attempt: by_attempt(&services),
            statuses: statuses(&services),
            seconds_in_backoff: services.iter().map(|service| service.calls.in_backoff()).sum(),
            seconds_in_calls: services.iter().map(|service| service.calls.in_calls().as_secs_f64()).sum(),
            limits: learned(&services).iter().take(LIMITS_MAX).map(LimitSummary::of).collect(),
            rate_limit_header_present: share(lanes.hinted, lanes.responses),
            malformed_headers: lanes.malformed,
            spatial_write_success_rate: r.write_success(),
        }
    }
}

/// Calls by their number of retries, over all services: one bucket per limit in [`RETRIES`], and
/// one more.
pub(super) fn retries(services: &[ServiceMetrics]) -> Vec<u64> {
    let mut all = vec![0; RETRIES.len() + 1];
    for service in services {
        for (sum, n) in all.iter_mut().zip(service.calls.retries_per_call.counts()) {
            *sum += n;
        }
    }
    all
}

/// The buckets with their names: `0`, `6–8`, `22+`.
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

fn by_attempt(services: &[ServiceMetrics]) -> Vec<AttemptSummary> {
    let mut all: BTreeMap<usize, (u64, u64)> = BTreeMap::from([(1, (0, 0))]);
    for (number, sent, answered) in services.iter().flat_map(|service| service.calls.by_attempt()) {
        let sum = all.entry(number).or_default();
        *sum = (sum.0 + sent, sum.1 + answered);
    }
    let row =
        |(attempt, (sent, answered))| AttemptSummary { attempt, sent, success_rate: share(answered, sent) };
    all.into_iter().map(row).collect()
}

fn statuses(services: &[ServiceMetrics]) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (status, n) in services.iter().flat_map(|service| service.calls.statuses()).filter(|(_, n)| *n > 0) {
        let name = if status == 0 { "none".to_owned() } else { status.to_string() };
        *all.entry(name).or_default() += n;
    }
    all
}
