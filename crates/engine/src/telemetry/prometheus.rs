//! The registry in the text form that Prometheus reads.

use super::{Ended, Histogram, Meter, get};
use crate::lane::Snapshot;
use std::fmt::Write;
use tidegate_core::breaker::State;

impl Meter {
    /// The text form, with the state of the lane. Its host is the only free label.
    #[must_use]
    pub fn prometheus(&self, lane: &Snapshot) -> String {
        let mut out = Text { out: String::with_capacity(4096), host: escape(&lane.key.host()) };
        out.head("retry_count_total", "counter", "Retries decided.");
        out.line("retry_count_total", "", get(&self.retries) as f64);
        out.histogram("backoff_delay_seconds", "Waits between attempts.", &self.backoff_seconds);
        out.head("rate_limit_header_present", "gauge", "Share of responses that carry a rate-limit header.");
        out.line("rate_limit_header_present", "", share(lane.counts.hinted, lane.counts.responses()));
        out.head("spatial_write_success_rate", "gauge", "Share of ended records whose feature is written.");
        out.line("spatial_write_success_rate", "", share(get(&self.written), self.records()));

        out.head("tidegate_records_total", "counter", "Records ended, by outcome.");
        for how in [Ended::Matched, Ended::NoMatch, Ended::Failed] {
            let label = format!("outcome=\"{}\"", how.word());
            out.line("tidegate_records_total", &label, self.ended_so(how) as f64);
        }
        out.head("tidegate_reused_total", "counter", "Records answered without a call.");
        let (cached, shared) = self.reused();
        out.line("tidegate_reused_total", "from=\"cache\"", cached as f64);
        out.line("tidegate_reused_total", "from=\"equal_record\"", shared as f64);

        out.head("tidegate_attempts_total", "counter", "Attempts sent, by their number in the call.");
        out.by_attempt("tidegate_attempts_total", &self.sent);
        out.head("tidegate_attempts_succeeded_total", "counter", "Attempts answered, by their number.");
        out.by_attempt("tidegate_attempts_succeeded_total", &self.succeeded);
        out.histogram("tidegate_retries_per_call", "Retries of one call.", &self.retries_per_call);
        out.head("tidegate_call_seconds_total", "counter", "Time in calls.");
        out.line("tidegate_call_seconds_total", "", self.in_calls().as_secs_f64());
        out.head("tidegate_backoff_seconds_total", "counter", "Time waited on purpose between attempts.");
        out.line("tidegate_backoff_seconds_total", "", self.backoff_seconds.sum());

        out.head("tidegate_responses_total", "counter", "Responses, by status; none is a network failure.");
        for (status, count) in self.statuses.iter().enumerate() {
            let count = get(count);
            if count > 0 {
                out.line("tidegate_responses_total", &format!("status=\"{status}\""), count as f64);
            }
        }
        out.line("tidegate_responses_total", "status=\"none\"", get(&self.no_status) as f64);
        out.head("tidegate_malformed_headers_total", "counter", "Rate-limit headers that nobody can read.");
        out.line("tidegate_malformed_headers_total", "", lane.counts.malformed as f64);
        out.lane(lane);
        out.out
    }
}

pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct Text {
    out: String,
    host: String,
}

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, label: &str, value: f64) {
        let comma = if label.is_empty() { "" } else { "," };
        let _ = writeln!(self.out, "{name}{{host=\"{}\"{comma}{label}}} {value}", self.host);
    }

    fn lane(&mut self, lane: &Snapshot) {
        self.head("tidegate_lane_rate", "gauge", "Calls per second that the lane allows; 0 knows none.");
        self.line("tidegate_lane_rate", "", lane.rate.unwrap_or(0.0));
        self.head("tidegate_lane_in_flight", "gauge", "Calls under way.");
        self.line("tidegate_lane_in_flight", "", f64::from(lane.in_flight));
        self.head("tidegate_lane_in_flight_limit", "gauge", "Calls that may be under way.");
        self.line("tidegate_lane_in_flight_limit", "", f64::from(lane.cap));
        self.head("tidegate_lane_waiting", "gauge", "Calls that wait for the lane.");
        self.line("tidegate_lane_waiting", "", lane.waiting as f64);
        self.head("tidegate_lane_wait_seconds", "gauge", "Until the server wants the next call.");
        self.line("tidegate_lane_wait_seconds", "", lane.gate.since(lane.now).as_secs_f64());
        self.head("tidegate_breaker_state", "gauge", "1 for the state that the breaker is in.");
        let now = match lane.breaker {
            State::Closed => "closed",
            State::HalfOpen => "half_open",
            State::Open(_) => "open",
        };
        for word in ["closed", "half_open", "open"] {
            let label = format!("state=\"{word}\"");
            self.line("tidegate_breaker_state", &label, f64::from(u8::from(word == now)));
        }
        self.head("tidegate_breaker_changes_total", "counter", "Changes of the breaker's state.");
        self.line("tidegate_breaker_changes_total", "", f64::from(lane.breaker_changes));
    }

    fn by_attempt(&mut self, name: &str, counters: &[std::sync::atomic::AtomicU64]) {
        for (i, counter) in counters.iter().enumerate() {
            let count = get(counter);
            if count > 0 || i == 0 {
                self.line(name, &format!("attempt=\"{}\"", i + 1), count as f64);
            }
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        for (end, count) in histogram.cumulative() {
            let end = if end.is_infinite() { "+Inf".to_string() } else { end.to_string() };
            self.line(&format!("{name}_bucket"), &format!("le=\"{end}\""), count as f64);
        }
        self.line(&format!("{name}_sum"), "", histogram.sum());
        self.line(&format!("{name}_count"), "", histogram.count() as f64);
    }
}
