//! The nine alerts as rules for Prometheus, with the thresholds of the core.

use std::fmt::Write;

use tidegate_core::alert::{Alert, AlertLimits};
use tidegate_pipeline::telemetry::metric as m;

/// The file of rules.
pub(super) fn rules() -> String {
    let limits = AlertLimits::default();
    let mut out = String::from(
        "# Written by `tidegate deploy`. The thresholds are the defaults of the manifest's `alerts`.\n\
         groups:\n  - name: tidegate\n    rules:\n",
    );
    for alert in Alert::ALL {
        // What is read at once needs no patience of Prometheus; shares are smoothed by their window.
        let patience = if alert == Alert::BreakerOpen { "0s" } else { "1m" };
        let severity = match alert {
            Alert::LettersFull | Alert::BreakerOpen | Alert::RetriesAtBound => "critical",
            _ => "warning",
        };
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "      - alert: {}\n        expr: {}\n        for: {patience}\n        labels:\n          \
             severity: {severity}\n          alert: {}\n        annotations:\n          summary: {}\n          \
             description: {}\n",
            title(alert),
            quoted(&expression(alert, &limits)),
            alert.name(),
            quoted(summary(alert)),
            quoted(alert.advice()),
        );
    }
    out
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// `TidegateRetryRatio`.
fn title(alert: Alert) -> String {
    let words = alert.name().split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    format!("Tidegate{}", words.collect::<String>())
}

fn summary(alert: Alert) -> &'static str {
    match alert {
        Alert::RetryRatio => {
            "{{ $labels.pipeline }}: {{ $value | humanizePercentage }} of the calls to {{ $labels.host }} are retries"
        }
        Alert::FirstAttemptSuccess => {
            "{{ $labels.pipeline }}: only {{ $value | humanizePercentage }} of the calls to {{ $labels.host }} are answered at the first attempt"
        }
        Alert::RetriesAtBound => "{{ $labels.pipeline }}: calls to {{ $labels.host }} use up their retries",
        Alert::BackoffShare => {
            "{{ $labels.pipeline }}: {{ $value | humanizePercentage }} of the time with {{ $labels.host }} is spent in backoff"
        }
        Alert::LettersFull => {
            "{{ $labels.pipeline }}: the store of dead letters is {{ $value | humanizePercentage }} full"
        }
        Alert::LetterAge => {
            "{{ $labels.pipeline }}: the oldest open dead letter is {{ $value | humanizeDuration }} old"
        }
        Alert::BreakerOpen => "{{ $labels.pipeline }}: the circuit breaker of {{ $labels.host }} is open",
        Alert::NullRate => {
            "{{ $labels.pipeline }}: nulls are at {{ $value | humanizePercentage }} of what {{ $labels.gate }} allows"
        }
        Alert::Spike503 => {
            "{{ $labels.pipeline }}: {{ $value | humanizePercentage }} of the responses of {{ $labels.host }} are 503"
        }
    }
}

/// When the alert fires, in PromQL.
fn expression(alert: Alert, limits: &AlertLimits) -> String {
    let window = format!("{}s", limits.window.as_secs());
    let by = "sum by (pipeline, host)";
    let rate = |metric: &m::Metric, labels: &str| format!("{by} (rate({}{labels}[{window}]))", metric.name);
    let enough = format!("and {by} (increase({}[{window}])) >= {}", m::ATTEMPTS.name, limits.calls_min);
    match alert {
        Alert::RetryRatio => {
            let (retries, attempts) = (rate(&m::RETRIES, ""), rate(&m::ATTEMPTS, ""));
            format!("{retries} / {attempts} > {} {enough}", limits.retry_ratio)
        }
        Alert::FirstAttemptSuccess => {
            let first = "{attempt=\"1\"}";
            let (answered, sent) = (rate(&m::ATTEMPTS_SUCCEEDED, first), rate(&m::ATTEMPTS, first));
            format!("{answered} / {sent} < {} {enough}", limits.first_attempt_success)
        }
        Alert::RetriesAtBound => {
            // A quantile lies within its bucket: above the end of the bucket before is in that of the bound.
            let p99 = format!(
                "histogram_quantile(0.99, sum by (pipeline, host, le) (rate({}_bucket[{window}])))",
                m::RETRIES_PER_CALL.name
            );
            let bound = format!("max by (pipeline, host) ({0} > 0)", m::RETRIES_BOUND.name);
            format!("{p99} > {bound} - 1 {enough}")
        }
        Alert::BackoffShare => {
            let (backoff, calls) = (rate(&m::BACKOFF_SECONDS, ""), rate(&m::CALL_SECONDS, ""));
            format!("{backoff} / ({backoff} + {calls}) > {} {enough}", limits.backoff_share)
        }
        Alert::LettersFull => format!("{} >= {}", m::LETTER_FULL.name, limits.letters_full),
        Alert::LetterAge => format!("{} > {}", m::LETTER_OLDEST.name, limits.letter_age.as_secs()),
        Alert::BreakerOpen => format!("{}{{state=\"open\"}} == 1", m::BREAKER.name),
        Alert::NullRate => {
            format!("{} / ({} > 0) >= {}", m::NULL_RATE.name, m::NULL_LIMIT.name, limits.null_rate)
        }
        Alert::Spike503 => {
            let of = |labels| rate(&m::RESPONSES, labels);
            let (refused, all) = (of("{status=\"503\"}"), of("{status!=\"none\"}"));
            let behind = of("{status=\"504\"}");
            format!(
                "{refused} / {all} >= {} and {refused} > {} * ({behind} or 0 * {refused}) {enough}",
                limits.spike_503, limits.spike_factor
            )
        }
    }
}
