use super::histogram::quantile;
use super::*;
use crate::gate::GateTally;
use crate::lane::{Clock, LaneKey, Lanes};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::call::{Attempt, CallPolicy};
use tidegate_core::lane::LaneConfig;
use tidegate_core::{Code, Mono, Verdict, VerdictKind};

fn attempt(kind: VerdictKind, status: Option<u16>, delay_ms: u64) -> Attempt {
    Attempt {
        sent: Mono::from_millis(0),
        settled: Mono::from_millis(20),
        verdict: Verdict { kind, code: Code::UNKNOWN, status },
        delay: Duration::from_millis(delay_ms),
    }
}

fn service(telemetry: &Telemetry, host: &str, attempts_max: u32) -> Arc<Calls> {
    let key = LaneKey::of_prefix(host, "");
    let lanes = Lanes::new(&LaneConfig::default(), Clock::system());
    let _ = lanes.get(&key);
    let service = ServiceMetrics::new(&key, &lanes, &CallPolicy { attempts_max, ..CallPolicy::default() });
    let calls = Arc::clone(&service.calls);
    telemetry.adopt(service);
    calls
}

fn filled() -> Telemetry {
    let telemetry = Telemetry::new("parcels \"north\"\\");
    let calls = service(&telemetry, "geo.example", 5);
    let throttled = VerdictKind::Throttled { until: None };
    let failed = VerdictKind::Transient { until: None };
    calls.call(&[attempt(VerdictKind::Done, Some(200), 0)]);
    calls.call(&[
        attempt(throttled, Some(429), 300),
        attempt(failed, None, 40),
        attempt(VerdictKind::Done, Some(200), 0),
    ]);
    calls.call(&[attempt(VerdictKind::Permanent, Some(400), 0)]);
    let records = &telemetry.records;
    records.read(4);
    records.ended(RecordEnd::Matched);
    records.ended(RecordEnd::Matched);
    records.ended(RecordEnd::Failed);
    records.committed(2, Duration::from_millis(30), 1_000_500);
    records.set_writes(2, 1);
    calls.cached();
    let tally =
        |gate: &str, looked, failed| GateTally { gate: gate.into(), looked, failed, ..GateTally::default() };
    telemetry.gates(vec![
        GateReading { tally: tally("valid", 10, 1), limit: 1.0, nulls: false, spatial: true, halted: false },
        GateReading { tally: tally("nulls", 40, 2), limit: 0.1, nulls: true, spatial: false, halted: true },
    ]);
    telemetry.letters(Health { letters: 35, capacity: 50, resolved: 3, died_again: 1, ..Health::default() });
    telemetry
}

#[test]
fn the_summary_says_what_was_recorded() {
    let s = filled().summary();
    assert_eq!((s.records, s.matched, s.no_match, s.failed), (3, 2, 0, 1));
    assert_eq!((s.calls, s.throttled, s.retry_count_total, s.cache_hits), (5, 1, 2, 1));
    assert_eq!((s.retries_per_call_p50, s.retries_per_call_p99), (0.0, 2.0));
    assert_eq!(s.retries_per_call, [("0".to_owned(), 2), ("1".to_owned(), 0), ("2".to_owned(), 1)]);
    let by: Vec<(usize, u64, f64)> =
        s.by_attempt.iter().map(|a| (a.attempt, a.sent, a.success_rate)).collect();
    assert_eq!(by, [(1, 3, 1.0 / 3.0), (2, 1, 0.0), (3, 1, 1.0)]);
    assert_eq!(s.statuses["200"], 2);
    assert_eq!(s.statuses["none"], 1);
    assert!((s.seconds_in_backoff - 0.34).abs() < 1e-9);
    assert!((s.seconds_in_calls - 0.1).abs() < 1e-9);
    assert!((s.spatial_write_success_rate - 2.0 / 3.0).abs() < 1e-9);
}

#[test]
fn prometheus_reads_it() {
    let text = filled().prometheus();
    let pipeline = "pipeline=\"parcels \\\"north\\\"\\\\\"";
    for line in [
        "retry_count_total{P,host=\"geo.example\"} 2",
        "backoff_delay_seconds_bucket{P,host=\"geo.example\",le=\"0.05\"} 1",
        "backoff_delay_seconds_bucket{P,host=\"geo.example\",le=\"+Inf\"} 2",
        "tidegate_responses_total{P,host=\"geo.example\",status=\"429\"} 1",
        "tidegate_breaker_state{P,host=\"geo.example\",state=\"closed\"} 1",
        "tidegate_records_total{P,outcome=\"committed\"} 2",
        "tidegate_records_total{P,outcome=\"dead\"} 1",
        "tidegate_lag_records{P} 1",
        "tidegate_commit_seconds_bucket{P,le=\"0.05\"} 1",
        "tidegate_last_commit_timestamp_seconds{P} 1000.5",
        "tidegate_retries_per_call_limit{P,host=\"geo.example\"} 4",
        "spatial_validation_failure_ratio{P} 0.1",
        "tidegate_null_rate{P,gate=\"nulls\"} 0.05",
        "tidegate_null_rate_limit{P,gate=\"nulls\"} 0.1",
        "tidegate_gate_halted{P,gate=\"nulls\"} 1",
        "tidegate_letter_full_ratio{P} 0.7",
        "tidegate_letter_replay_success_ratio{P} 0.75",
    ] {
        let line = line.replace('P', pipeline);
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    assert!(text.contains("# TYPE backoff_delay_seconds histogram\n"));
    // Every sample belongs to a described metric, and no series is there twice.
    let mut seen = std::collections::BTreeSet::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let name = line.split('{').next().unwrap();
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name);
        assert!(text.contains(&format!("# TYPE {base} ")), "{name}");
        assert!(seen.insert(line.rsplit_once(' ').unwrap().0), "{line}");
    }
}

#[test]
fn two_steps_that_ask_one_host_share_its_series() {
    let telemetry = Telemetry::new("p");
    let (one, two) = (service(&telemetry, "a", 3), service(&telemetry, "a", 5));
    one.call(&[attempt(VerdictKind::Done, Some(200), 0)]);
    two.call(&[attempt(VerdictKind::Done, Some(200), 0)]);
    let text = telemetry.prometheus();
    assert!(text.contains("tidegate_attempts_total{pipeline=\"p\",host=\"a\",attempt=\"1\"} 2\n"), "{text}");
    assert_eq!(text.matches("tidegate_lane_in_flight{").count(), 1);
    assert!(text.contains("tidegate_retries_per_call_limit{pipeline=\"p\",host=\"a\"} 4\n"));
}

#[test]
fn quantiles_are_upper_ends() {
    let ends = [1.0, 2.0, 5.0];
    assert_eq!(quantile(&ends, &[0, 0, 0, 0], 0.99), 0.0);
    let counts = [1, 2, 0, 1];
    let at = |share| quantile(&ends, &counts, share);
    assert_eq!((at(0.25), at(0.5), at(1.0)), (1.0, 2.0, 5.0));
    let h = Histogram::new(&[1.0, 2.0, 5.0]);
    for v in [0.5, 1.5, 1.6, 9.0] {
        h.observe(v);
    }
    assert_eq!((h.counts().collect::<Vec<_>>(), h.count()), (counts.to_vec(), 4));
}

#[test]
fn the_rate_of_writes_is_right_at_every_moment() {
    let records = RecordMetrics::default();
    assert_eq!(records.write_success(), 1.0, "nothing was to be written yet");
    records.refused(10);
    assert_eq!(records.write_success(), 0.0, "the sink did not take the first batch");
    records.set_writes(8, 2);
    assert_eq!(records.write_success(), 0.8, "it did after all");
    records.refused(10);
    assert_eq!(records.write_success(), 0.4);
    records.set_writes(18, 2);
    records.resolved(1);
    assert_eq!(records.write_success(), 0.95, "a replay wrote one of the dead");
    records.resolved(7);
    assert_eq!(records.write_success(), 1.0);
}
