//! The input of the alerts.

use super::calls::RETRIES;
use super::service_metrics::together;
use super::summary::retries;
use super::{Telemetry, lock};
use crate::letter::now_ms;
use std::time::Duration;
use tidegate_core::alert::{AlertReading, BUCKETS};

impl Telemetry {
    /// The counts so far, over all services, gates and letters.
    #[must_use]
    pub fn reading(&self) -> AlertReading {
        let services = self.services();
        let mut r =
            AlertReading { breaker_open: together(&services).breaker == 2, ..AlertReading::default() };
        for service in &services {
            let calls = &service.calls;
            for (number, sent, answered) in calls.by_attempt() {
                r.attempts += sent;
                if number == 1 {
                    r.first_sent += sent;
                    r.first_answered += answered;
                }
            }
            for (status, n) in calls.statuses() {
                r.responses += if status > 0 { n } else { 0 };
                match status {
                    503 => r.status_503 += n,
                    504 => r.status_504 += n,
                    _ => {}
                }
            }
            r.retries += calls.retries();
            r.call_seconds += calls.in_calls().as_secs_f64();
            r.backoff_seconds += calls.in_backoff();
        }
        for (bucket, n) in r.by_retries.iter_mut().zip(retries(&services)) {
            *bucket = n;
        }
        let bound =
            services.iter().map(|service| f64::from(service.attempts_max.saturating_sub(1))).reduce(f64::max);
        // A call without retries cannot reach the limit.
        r.bound_bucket = bound
            .filter(|bound| *bound > 0.0)
            .map(|bound| RETRIES.iter().position(|end| *end >= bound).unwrap_or(RETRIES.len()).min(BUCKETS));
        let nulls = |gate: &crate::gate::Reading| {
            (gate.nulls && gate.limit > 0.0).then(|| gate.tally.rate() / gate.limit)
        };
        r.null_share = lock(&self.gates).iter().filter_map(nulls).reduce(f64::max);
        if let Some(health) = &*lock(&self.letters) {
            r.letters_full = Some(health.letters as f64 / health.capacity.max(1) as f64);
            let age = |ms: i64| Duration::from_millis((now_ms() - ms).max(0) as u64);
            r.letter_age = health.oldest_ms.map(age);
        }
        r
    }
}
