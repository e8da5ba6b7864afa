use super::*;
use alloc::string::ToString;
use alloc::vec;

fn calm(calls: u64) -> AlertReading {
    let mut by_retries = [0; BUCKETS];
    by_retries[0] = calls;
    AlertReading {
        attempts: calls,
        first_sent: calls,
        first_answered: calls,
        by_retries,
        bound_bucket: Some(4),
        call_seconds: calls as f64 * 0.1,
        responses: calls,
        letters_full: Some(0.1),
        letter_age: Some(Duration::from_secs(60)),
        null_share: Some(0.2),
        ..AlertReading::default()
    }
}

fn at(seconds: u64) -> Mono {
    Mono::from_millis(seconds * 1000)
}

/// The default limits, in force at once.
const AT_ONCE: AlertLimits = AlertLimits { time_min: Duration::ZERO, ..AlertLimits::DEFAULT };

fn begun(reading: AlertReading) -> Vec<&'static str> {
    let mut alerts = Alerts::new(AT_ONCE);
    alerts.look(at(1), reading).into_iter().map(|c| c.alert.name()).collect()
}

#[test]
fn each_condition_begins_at_its_limit_and_not_before() {
    assert_eq!(begun(calm(1000)), Vec::<&str>::new());
    let cases: Vec<(AlertReading, &str)> = vec![
        (AlertReading { retries: 151, ..calm(1000) }, "retry_ratio"),
        (AlertReading { first_answered: 949, ..calm(1000) }, "first_attempt_success"),
        (AlertReading { backoff_seconds: 11.2, ..calm(1000) }, "backoff_share"),
        (AlertReading { letters_full: Some(0.7), ..calm(1000) }, "letters_full"),
        (AlertReading { letter_age: Some(Duration::from_secs(86_401)), ..calm(1000) }, "letter_age"),
        (AlertReading { breaker_open: true, ..calm(1000) }, "breaker_open"),
        (AlertReading { null_share: Some(0.8), ..calm(1000) }, "null_rate"),
        (AlertReading { status_503: 50, status_504: 16, ..calm(1000) }, "spike_503"),
    ];
    for (reading, name) in cases {
        assert_eq!(begun(reading), [name]);
    }
    let mut used_up = calm(1000);
    used_up.by_retries[4] = 11;
    assert_eq!(begun(used_up), ["retries_at_bound"]);
    let quiet = [
        AlertReading { retries: 150, ..calm(1000) },
        AlertReading { first_answered: 950, ..calm(1000) },
        AlertReading { backoff_seconds: 11.0, ..calm(1000) },
        AlertReading { letters_full: Some(0.69), ..calm(1000) },
        AlertReading { letter_age: Some(Duration::from_secs(86_400)), ..calm(1000) },
        AlertReading { null_share: Some(0.79), ..calm(1000) },
        AlertReading { status_503: 49, ..calm(1000) },
        AlertReading { status_503: 60, status_504: 20, ..calm(1000) },
    ];
    for reading in quiet {
        assert_eq!(begun(reading), Vec::<&str>::new(), "{reading:?}");
    }
}

#[test]
fn few_calls_prove_nothing() {
    let bad =
        AlertReading { retries: 19, first_answered: 0, status_503: 19, backoff_seconds: 50.0, ..calm(19) };
    assert_eq!(begun(bad), Vec::<&str>::new());
}

#[test]
fn what_is_past_is_forgotten_after_a_window() {
    let mut alerts = Alerts::new(AT_ONCE);
    let bad = AlertReading { retries: 500, ..calm(1000) };
    let began = alerts.look(at(1), bad);
    assert_eq!(began.len(), 1);
    assert_eq!(began[0].said, "50.0 % of the calls are retries, the limit is 15.0 %".to_string());
    // Then two calls per second without a retry: the share stays above the limit for a window.
    let mut changes = Vec::new();
    for second in 2..=400 {
        let more = calm(1000 + second * 2);
        changes.extend(
            alerts
                .look(at(second), AlertReading { retries: 500, ..more })
                .into_iter()
                .map(|c| (second, c.firing)),
        );
    }
    // One window after the retries, none of them is in the window.
    assert_eq!(changes.len(), 1);
    assert!((300..=312).contains(&changes[0].0) && !changes[0].1, "{changes:?}");
    assert!(alerts.firing().all(|(_, firing)| !firing));
}

#[test]
fn an_alert_is_told_once_until_it_has_ended() {
    let mut alerts = Alerts::new(AlertLimits::default());
    let open = AlertReading { breaker_open: true, ..calm(100) };
    let told = |changes: Vec<AlertChange>| changes.into_iter().map(|c| c.firing).collect::<Vec<_>>();
    assert_eq!(told(alerts.look(at(1), open)), [true]);
    assert_eq!(told(alerts.look(at(2), open)), Vec::<bool>::new());
    assert_eq!(told(alerts.look(at(3), calm(101))), [false]);
    assert_eq!(told(alerts.look(at(4), open)), [true]);
}

#[test]
fn a_condition_about_calls_must_last() {
    let mut alerts = Alerts::new(AlertLimits::default());
    let bad = |n: u64| AlertReading { retries: n / 2, ..calm(n) };
    let mut told = Vec::new();
    let mut look = |second: u64, reading| {
        told.extend(alerts.look(at(second), reading).into_iter().map(|c| (second, c.alert.name(), c.firing)));
    };
    look(1, bad(100));
    look(59, bad(159));
    // It was over for a moment, so the minute begins again.
    look(60, AlertReading { retries: 0, ..calm(160) });
    (61..=125).for_each(|second| look(second, bad(second * 10)));
    look(126, AlertReading { retries: 0, ..calm(5000) });
    assert_eq!(told, [(121, "retry_ratio", true), (126, "retry_ratio", false)]);
    assert_eq!(
        Alerts::new(AlertLimits::default())
            .look(at(1), AlertReading { null_share: Some(0.9), ..calm(1) })
            .len(),
        1,
        "a gate that is about to halt the run does not wait"
    );
}

#[test]
fn a_share_and_its_limit_are_told_apart() {
    let said = |answered| {
        let reading = AlertReading { first_answered: answered, ..calm(100_000) };
        Alerts::new(AT_ONCE).look(at(1), reading).remove(0).said
    };
    assert_eq!(said(94_999), "94.999 % of the calls succeed at the first attempt, the target is 95.000 %");
    assert_eq!(said(90_000), "90.0 % of the calls succeed at the first attempt, the target is 95.0 %");
}
