//! Every metric that there is, in one table: its name, its kind, its unit, its labels and what it
//! says.
//!
//! Whoever measures names a row of this table, and whoever reads (Prometheus, OTLP, the dashboard
//! and the rules that `tidegate deploy` writes, the docs page) is written from it. So a panel
//! cannot ask for a name that nobody measures. The names follow Prometheus: base units, `_total`
//! at the end of what only grows. Labels are few and their values fewer; no URL, no address and no
//! coordinate is ever one. The label `pipeline` stands on all and is not repeated here.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts per bucket.
    Histogram,
}

impl MetricKind {
    /// The word of Prometheus.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its kind: counter, gauge or histogram.
    pub kind: MetricKind,
    /// Its unit, as UCUM writes it: `s`, `By`, `1` for a share, `{record}` for things counted.
    pub unit: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Its description.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $unit:literal $help:literal;)*) => {
        $(#[doc = $help] pub static $id: Metric =
            Metric { name: $name, kind: MetricKind::$kind, unit: $unit, labels: &[$($label),*], help: $help };)*
        /// All of them, in the order in which they are shown.
        pub static ALL: &[&Metric] = &[$(&$id),*];
    };
}

metrics! {
    RETRIES = Counter "retry_count_total" ["host"] "{retry}" "Retries decided.";
    BACKOFF_DELAY = Histogram "backoff_delay_seconds" ["host"] "s" "Waits between attempts.";
    HEADER_PRESENT = Gauge "rate_limit_header_present" ["host"] "1" "Share of responses that carry a rate-limit header.";
    WRITE_SUCCESS = Gauge "spatial_write_success_rate" [] "1" "Share of the records that should be written and are.";
    VALIDATION_FAILURES = Gauge "spatial_validation_failure_ratio" [] "1" "Share of the geometries judged that failed a spatial gate.";

    READ = Counter "tidegate_records_read_total" [] "{record}" "Records that the source offered.";
    RECORDS = Counter "tidegate_records_total" ["outcome"] "{record}" "Records ended, by outcome.";
    LAG = Gauge "tidegate_lag_records" [] "{record}" "Records read that have no end yet.";
    REUSED = Counter "tidegate_reused_total" ["host", "from"] "{record}" "Records answered without a call of their own: from the cache, or with an equal record.";
    COMMIT = Histogram "tidegate_commit_seconds" [] "s" "Time to commit a batch.";
    LAST_COMMIT = Gauge "tidegate_last_commit_timestamp_seconds" [] "s" "When the last batch was committed; 0 before the first.";
    STARTED = Gauge "tidegate_start_timestamp_seconds" [] "s" "When the run began.";

    ATTEMPTS = Counter "tidegate_attempts_total" ["host", "attempt"] "{attempt}" "Attempts sent, by their number in the call.";
    ATTEMPTS_SUCCEEDED = Counter "tidegate_attempts_succeeded_total" ["host", "attempt"] "{attempt}" "Attempts answered, by their number in the call.";
    RETRIES_PER_CALL = Histogram "tidegate_retries_per_call" ["host"] "{retry}" "Retries of one call.";
    RETRIES_BOUND = Gauge "tidegate_retries_per_call_limit" ["host"] "{retry}" "Retries that the policy allows a call, the free ones included.";
    CALL_SECONDS = Counter "tidegate_call_seconds_total" ["host"] "s" "Time in calls.";
    BACKOFF_SECONDS = Counter "tidegate_backoff_seconds_total" ["host"] "s" "Time waited on purpose between attempts.";
    RESPONSES = Counter "tidegate_responses_total" ["host", "status"] "{response}" "Responses, by status; none is a network failure.";
    MALFORMED = Counter "tidegate_malformed_headers_total" ["host"] "{header}" "Rate-limit headers that nobody can read.";

    LANE_RATE = Gauge "tidegate_lane_rate" ["host"] "{call}/s" "Calls per second that the lane has learned or was given; 0 knows none.";
    LANE_IN_FLIGHT = Gauge "tidegate_lane_in_flight" ["host"] "{call}" "Calls under way.";
    LANE_CAP = Gauge "tidegate_lane_in_flight_limit" ["host"] "{call}" "Calls that may be under way.";
    LANE_WAITING = Gauge "tidegate_lane_waiting" ["host"] "{call}" "Calls that wait for the lane.";
    LANE_WAIT = Gauge "tidegate_lane_wait_seconds" ["host"] "s" "Until the server wants the next call.";
    BREAKER = Gauge "tidegate_breaker_state" ["host", "state"] "1" "1 for the state that the breaker is in.";
    BREAKER_CHANGES = Counter "tidegate_breaker_changes_total" ["host"] "{change}" "Changes of the breaker's state.";

    GATE_CHECKED = Counter "tidegate_gate_checked_total" ["gate"] "{check}" "Records or values that a gate looked at.";
    GATE_FAILED = Counter "tidegate_gate_failed_total" ["gate"] "{check}" "Of those, how many failed.";
    GATE_HALTED = Gauge "tidegate_gate_halted" ["gate"] "1" "1 for the gate that halted the run.";
    NULL_RATE = Gauge "tidegate_null_rate" ["gate"] "1" "Share of values that are null.";
    NULL_LIMIT = Gauge "tidegate_null_rate_limit" ["gate"] "1" "Share of values that may be null.";

    LETTERS = Gauge "tidegate_letter_letters" [] "{letter}" "Dead letters in the store.";
    LETTERS_OPEN = Gauge "tidegate_letter_open" [] "{letter}" "Letters about which something has to be done.";
    LETTER_OLDEST = Gauge "tidegate_letter_oldest_seconds" [] "s" "Age of the oldest open letter.";
    LETTER_BYTES = Gauge "tidegate_letter_bytes" [] "By" "Bytes that the store takes.";
    LETTER_CAPACITY = Gauge "tidegate_letter_capacity" [] "{letter}" "Letters that the store may hold.";
    LETTER_FULL = Gauge "tidegate_letter_full_ratio" [] "1" "Share of the capacity that is used.";
    LETTER_ARRIVED = Gauge "tidegate_letter_arrived_last_hour" [] "{letter}" "Letters that failed in the last hour.";
    LETTER_DRAINED = Counter "tidegate_letter_drained_total" [] "{letter}" "Letters that replays brought to their sink.";
    REPLAY_SUCCESS = Gauge "tidegate_letter_replay_success_ratio" [] "1" "Share of replayed letters that did not die again.";
    LETTER_SPATIAL = Gauge "tidegate_letter_spatial_ratio" [] "1" "Share of open letters that failed a spatial check.";

    LETTER_PURGED = Counter "tidegate_letter_purged_total" [] "{letter}" "Letters that `serve` purged because they were kept long enough.";
    LETTER_INCIDENTS = Gauge "tidegate_letter_incidents" [] "{incident}" "Open incidents: pipelines that are suspended.";
    LETTER_READABLE = Gauge "tidegate_letter_readable" [] "1" "1 while the store can be read.";

    LAST_RUN = Gauge "tidegate_last_run_timestamp_seconds" [] "s" "When the last run ended, or began if it has not ended.";
    LAST_RUN_TOOK = Gauge "tidegate_last_run_seconds" [] "s" "How long the last run took.";
    LAST_RUN_STATUS = Gauge "tidegate_last_run_status" ["status"] "1" "1 for how the last run ended; running may also be killed.";
    LAST_RUN_READ = Gauge "tidegate_last_run_records_read" [] "{record}" "Records that the last run was offered.";
    LAST_RUN_RECORDS = Gauge "tidegate_last_run_records" ["outcome"] "{record}" "Records of the last run, by outcome.";

    ALERT = Gauge "tidegate_alert_firing" ["alert"] "1" "1 while the alert fires.";
    SPANS_DROPPED = Counter "tidegate_spans_dropped_total" [] "{span}" "Spans of unremarkable calls that were left out because there were too many.";
    BUILD = Gauge "tidegate_build_info" ["version"] "1" "1 for the version that runs.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_follow_the_rules() {
        for (i, m) in ALL.iter().enumerate() {
            let word =
                |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            assert!(word(m.name) && m.labels.iter().all(|l| word(l)), "{}", m.name);
            assert_eq!(m.name.ends_with("_total"), m.kind == MetricKind::Counter, "{}", m.name);
            assert!(m.help.ends_with('.') && !m.unit.is_empty(), "{}", m.name);
            assert_eq!(m.unit == "s", m.name.contains("seconds"), "{}: the unit is in the name", m.name);
            assert!(ALL[..i].iter().all(|other| other.name != m.name), "{} is there twice", m.name);
            for free in ["url", "path", "address", "lon", "lat", "record", "key"] {
                assert!(!m.labels.contains(&free), "{}: {free} is not a label", m.name);
            }
        }
    }

    /// The table in the docs is written from the one here when `TIDEGATE_BLESS` is set.
    #[test]
    fn the_docs_have_the_table() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/telemetry.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once("<!-- metrics -->\n").unwrap();
        let (found, after) = rest.split_once("<!-- end of metrics -->").unwrap();
        let mut table = String::from("| metric | kind | labels | what it says |\n|---|---|---|---|\n");
        for m in ALL {
            let labels: Vec<String> = m.labels.iter().map(|label| format!("`{label}`")).collect();
            let row = [format!("`{}`", m.name), m.kind.word().into(), labels.join(", "), m.help.into()];
            table.push_str(&format!("| {} |\n", row.join(" | ")));
        }
        if std::env::var_os("TIDEGATE_BLESS").is_some() {
            let page = format!("{before}<!-- metrics -->\n{table}<!-- end of metrics -->{after}");
            std::fs::write(&path, page).unwrap();
            return;
        }
        assert_eq!(found, table, "run the tests with TIDEGATE_BLESS=1");
    }
}
