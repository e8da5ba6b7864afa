//! The table of all metrics: name, type, unit, labels and description.
//!
//! Code that measures refers to a row of this table, and everything that reads metrics (Prometheus,
//! OTLP, the dashboard and rules of `tidegate deploy`, the documentation) is generated from it. So
//! a panel cannot query a metric that does not exist. Names follow the Prometheus conventions: base
//! units, and the suffix `_total` for counters. Labels and their values are few; a label never
//! contains a URL, an address or a coordinate. All metrics have the label `pipeline`, which is not
//! repeated here.

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
    /// The name of the type in Prometheus.
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
    /// Its unit in UCUM notation: `s`, `By`, `1` for a fraction, `{record}` for a count.
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
        /// All metrics, in the order in which they are shown.
        pub static ALL: &[&Metric] = &[$(&$id),*];
    };
}

metrics! {
    RETRIES = Counter "retry_count_total" ["host"] "{retry}" "Retries decided.";
    BACKOFF_DELAY = Histogram "backoff_delay_seconds" ["host"] "s" "Waits between attempts.";
    HEADER_PRESENT = Gauge "rate_limit_header_present" ["host"] "1" "Share of responses that carry a rate-limit header.";
    WRITE_SUCCESS = Gauge "spatial_write_success_rate" [] "1" "Share of the records to be written that were written.";
    VALIDATION_FAILURES = Gauge "spatial_validation_failure_ratio" [] "1" "Share of the checked geometries that failed a spatial gate.";

    READ = Counter "tidegate_records_read_total" [] "{record}" "Records read from the source.";
    RECORDS = Counter "tidegate_records_total" ["outcome"] "{record}" "Records ended, by outcome.";
    LAG = Gauge "tidegate_lag_records" [] "{record}" "Records read and not finished yet.";
    REUSED = Counter "tidegate_reused_total" ["host", "from"] "{record}" "Records answered without a call: from the cache, or by the response for an identical record.";
    DELETED = Counter "tidegate_rows_deleted_total" [] "{row}" "Rows deleted or marked because the source no longer has their records.";
    COMMIT = Histogram "tidegate_commit_seconds" [] "s" "Time to commit a batch.";
    LAST_COMMIT = Gauge "tidegate_last_commit_timestamp_seconds" [] "s" "When the last batch was committed; 0 before the first.";
    STARTED = Gauge "tidegate_start_timestamp_seconds" [] "s" "When the run started.";

    ATTEMPTS = Counter "tidegate_attempts_total" ["host", "attempt"] "{attempt}" "Attempts sent, by their number in the call.";
    ATTEMPTS_SUCCEEDED = Counter "tidegate_attempts_succeeded_total" ["host", "attempt"] "{attempt}" "Attempts answered, by their number in the call.";
    RETRIES_PER_CALL = Histogram "tidegate_retries_per_call" ["host"] "{retry}" "Retries of one call.";
    RETRIES_BOUND = Gauge "tidegate_retries_per_call_limit" ["host"] "{retry}" "Retries that the policy allows a call, the free ones included.";
    CALL_SECONDS = Counter "tidegate_call_seconds_total" ["host"] "s" "Time in calls.";
    BACKOFF_SECONDS = Counter "tidegate_backoff_seconds_total" ["host"] "s" "Time in backoff between attempts.";
    RESPONSES = Counter "tidegate_responses_total" ["host", "status"] "{response}" "Responses, by status; none is a network failure.";
    MALFORMED = Counter "tidegate_malformed_headers_total" ["host"] "{header}" "Rate-limit headers that cannot be parsed.";

    LANE_RATE = Gauge "tidegate_lane_rate" ["host"] "{call}/s" "Calls per second that the lane has learned or was given; 0 if unknown.";
    LANE_IN_FLIGHT = Gauge "tidegate_lane_in_flight" ["host"] "{call}" "Calls in flight.";
    LANE_CAP = Gauge "tidegate_lane_in_flight_limit" ["host"] "{call}" "Maximum calls in flight.";
    LANE_LIMIT = Gauge "tidegate_lane_limit" ["host", "kind"] "{lane}" "Lanes that believe in this kind of limit.";
    LANE_BURST = Gauge "tidegate_lane_burst" ["host"] "{call}" "Calls that the server is believed to take at once after a pause; 0 if unknown.";
    LANE_WINDOW = Gauge "tidegate_lane_window_seconds" ["host"] "s" "Length of the window of the limit; 0 if it is unknown or there is none.";
    LANE_LIMIT_CHANGES = Counter "tidegate_lane_limit_changes_total" ["host"] "{change}" "How often lanes changed their mind about the kind of limit.";
    LANE_ROLE = Gauge "tidegate_lane_role" ["host", "role"] "{lane}" "Lanes that this process has alone, owns, or is a member of.";
    LANE_OWNER_CHANGES = Counter "tidegate_lane_owner_changes_total" ["host"] "{change}" "How often the owner of a shared lane was replaced.";
    LANE_UNREACHABLE = Gauge "tidegate_lane_server_unreachable" ["host"] "{lane}" "Lanes that are shared at a server which cannot be reached.";
    LANE_WAITING = Gauge "tidegate_lane_waiting" ["host"] "{call}" "Calls that wait for the lane.";
    LANE_WAIT = Gauge "tidegate_lane_wait_seconds" ["host"] "s" "Time until the server accepts the next call.";
    BREAKER = Gauge "tidegate_breaker_state" ["host", "state"] "1" "1 for the current state of the breaker.";
    BREAKER_CHANGES = Counter "tidegate_breaker_changes_total" ["host"] "{change}" "State changes of the breaker.";

    GATE_CHECKED = Counter "tidegate_gate_checked_total" ["gate"] "{check}" "Records or values checked by a gate.";
    GATE_FAILED = Counter "tidegate_gate_failed_total" ["gate"] "{check}" "Of those, how many failed.";
    GATE_HALTED = Gauge "tidegate_gate_halted" ["gate"] "1" "1 for the gate that halted the run.";
    NULL_RATE = Gauge "tidegate_null_rate" ["gate"] "1" "Share of values that are null.";
    NULL_LIMIT = Gauge "tidegate_null_rate_limit" ["gate"] "1" "Share of values that may be null.";

    LETTERS = Gauge "tidegate_letter_letters" [] "{letter}" "Dead letters in the store.";
    LETTERS_OPEN = Gauge "tidegate_letter_open" [] "{letter}" "Open letters.";
    LETTER_OLDEST = Gauge "tidegate_letter_oldest_seconds" [] "s" "Age of the oldest open letter.";
    LETTER_BYTES = Gauge "tidegate_letter_bytes" [] "By" "Size of the store in bytes.";
    LETTER_CAPACITY = Gauge "tidegate_letter_capacity" [] "{letter}" "Capacity of the store in letters.";
    LETTER_FULL = Gauge "tidegate_letter_full_ratio" [] "1" "Share of the capacity that is used.";
    LETTER_ARRIVED = Gauge "tidegate_letter_arrived_last_hour" [] "{letter}" "Letters that failed in the last hour.";
    LETTER_DRAINED = Counter "tidegate_letter_drained_total" [] "{letter}" "Letters resolved by replays.";
    REPLAY_SUCCESS = Gauge "tidegate_letter_replay_success_ratio" [] "1" "Share of replayed letters that did not fail again.";
    REMEDY_LETTERS = Counter "tidegate_remedy_letters_total" ["code", "remedy", "outcome"] "{letter}" "Letters replayed unasked, by rule and outcome.";
    LETTER_SPATIAL = Gauge "tidegate_letter_spatial_ratio" [] "1" "Share of open letters that failed a spatial check.";

    LETTER_PURGED = Counter "tidegate_letter_purged_total" [] "{letter}" "Letters past their retention period that `serve` purged.";
    LETTER_INCIDENTS = Gauge "tidegate_letter_incidents" [] "{incident}" "Open incidents: pipelines that are suspended.";
    LETTER_READABLE = Gauge "tidegate_letter_readable" [] "1" "1 while the store can be read.";

    LAST_RUN = Gauge "tidegate_last_run_timestamp_seconds" [] "s" "When the last run ended, or started if it has not ended.";
    LAST_RUN_TOOK = Gauge "tidegate_last_run_seconds" [] "s" "How long the last run took.";
    LAST_RUN_STATUS = Gauge "tidegate_last_run_status" ["status"] "1" "1 for the status of the last run; running may also mean killed.";
    LAST_RUN_READ = Gauge "tidegate_last_run_records_read" [] "{record}" "Records read by the last run.";
    LAST_RUN_RECORDS = Gauge "tidegate_last_run_records" ["outcome"] "{record}" "Records of the last run, by outcome.";

    QUEUE_MESSAGES = Gauge "tidegate_queue_messages" ["state"] "{message}" "Messages in the queue, as the broker says: ready, leased, waiting.";
    QUEUE_OLDEST = Gauge "tidegate_queue_oldest_seconds" [] "s" "Age of the oldest message that can be delivered.";
    TASKS = Counter "tidegate_tasks_total" ["outcome"] "{task}" "Tasks of this worker: done, dead, repeated (done before), taken_over by another worker, requeued.";
    TASKS_RECEIVED = Counter "tidegate_tasks_received_total" [] "{task}" "Tasks that this worker has received.";
    TASKS_REDELIVERED = Counter "tidegate_tasks_redelivered_total" [] "{task}" "Of those, tasks that were delivered before.";

    ALERT = Gauge "tidegate_alert_firing" ["alert"] "1" "1 while the alert fires.";
    SPANS_DROPPED = Counter "tidegate_spans_dropped_total" [] "{span}" "Spans of ordinary calls that were dropped because there were too many.";
    BUILD = Gauge "tidegate_build_info" ["version"] "1" "1 for the running version.";
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

    /// With `TIDEGATE_BLESS` set, the test writes the table into the documentation.
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
