use super::*;
use crate::lane::{Clock, Counts, Lane, LaneKey, Snapshot};
use tidegate_core::lane::LaneConfig;
use tidegate_core::{Code, Mono, Verdict};

fn attempt(kind: Kind, status: Option<u16>, delay_ms: u64) -> Attempt {
    Attempt {
        sent: Mono::from_millis(0),
        settled: Mono::from_millis(20),
        verdict: Verdict { kind, code: Code::UNKNOWN, status },
        delay: Duration::from_millis(delay_ms),
    }
}

fn filled() -> Meter {
    let meter = Meter::default();
    let throttled = Kind::Throttled { until: None };
    let failed = Kind::Transient { until: None };
    meter.call(&[attempt(Kind::Done, Some(200), 0)]);
    meter.call(&[
        attempt(throttled, Some(429), 300),
        attempt(failed, None, 40),
        attempt(Kind::Done, Some(200), 0),
    ]);
    meter.call(&[attempt(Kind::Permanent, Some(400), 0)]);
    meter.ended(Ended::Matched);
    meter.ended(Ended::Matched);
    meter.ended(Ended::Failed);
    meter.written(2);
    meter.cached();
    meter
}

fn seen() -> Counts {
    Counts { hinted: 1, malformed: 2, statuses: vec![(0, 1), (200, 2)], ..Counts::default() }
}

#[test]
fn the_summary_says_what_was_recorded() {
    let s = filled().summary(&seen());
    assert_eq!((s.records, s.matched, s.no_match, s.failed), (3, 2, 0, 1));
    assert_eq!((s.calls, s.throttled, s.retry_count_total, s.cache_hits), (5, 1, 2, 1));
    assert_eq!((s.retries_per_call_p50, s.retries_per_call_p99), (0.0, 2.0));
    let by: Vec<(usize, u64, f64)> =
        s.by_attempt.iter().map(|a| (a.attempt, a.sent, a.success_rate)).collect();
    assert_eq!(by, [(1, 3, 1.0 / 3.0), (2, 1, 0.0), (3, 1, 1.0)]);
    assert_eq!(s.statuses["200"], 2);
    assert_eq!(s.statuses["none"], 1);
    assert!((s.seconds_in_backoff - 0.34).abs() < 1e-9);
    assert!((s.seconds_in_calls - 0.1).abs() < 1e-9);
    assert_eq!((s.rate_limit_header_present, s.malformed_headers), (0.5, 2));
    assert!((s.spatial_write_success_rate - 2.0 / 3.0).abs() < 1e-9);
}

#[test]
fn prometheus_reads_it() {
    let key = LaneKey::of_prefix("geo.example\"\\", "");
    let lane = Lane::new(key, &LaneConfig::default(), Clock::system());
    let text = filled().prometheus(&Snapshot { counts: seen(), ..lane.snapshot() });
    for line in [
        "retry_count_total{host=\"geo.example\\\"\\\\\"} 2",
        "# TYPE backoff_delay_seconds histogram",
        "backoff_delay_seconds_bucket{host=\"geo.example\\\"\\\\\",le=\"0.05\"} 1",
        "backoff_delay_seconds_bucket{host=\"geo.example\\\"\\\\\",le=\"+Inf\"} 2",
        "tidegate_responses_total{host=\"geo.example\\\"\\\\\",status=\"429\"} 1",
        "tidegate_breaker_state{host=\"geo.example\\\"\\\\\",state=\"closed\"} 1",
        "rate_limit_header_present{host=\"geo.example\\\"\\\\\"} 0.5",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    // Every sample belongs to a described metric.
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let name = line.split('{').next().unwrap();
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name);
        assert!(text.contains(&format!("# TYPE {base} ")), "{name}");
    }
}

#[test]
fn quantiles_are_upper_ends() {
    let h = Histogram::new(&[1.0, 2.0, 5.0]);
    assert_eq!(h.quantile(0.99), 0.0);
    for v in [0.5, 1.5, 1.6, 9.0] {
        h.observe(v);
    }
    assert_eq!((h.quantile(0.25), h.quantile(0.5), h.quantile(1.0)), (1.0, 2.0, 5.0));
    assert_eq!(h.count(), 4);
}
