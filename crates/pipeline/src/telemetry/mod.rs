//! What happened, in numbers: one registry for `geocode`, `fetch` and `run`, read by the progress
//! line, the summary, the report, the alerts, Prometheus and OTLP.
//!
//! | file | holds |
//! |---|---|
//! | `records` | the counters: atomics, no lock, no allocation |
//! | `flow` | what a pipeline tells |
//! | [`places`] | where records ended, for a map |
//! | `reading` | what alerts are decided from |
//! | `summary` | everything as one value |
//!
//! The table of metrics, the counters of calls, spans and OTLP are [`tidegate_client::telemetry`].
//!
//! Labels are few and fixed: a status, an attempt number, an outcome, a host, a gate. No URL and
//! no coordinate is ever one.

mod flow;
pub mod places;
mod reading;
mod records;
mod summary;

pub use flow::{CommittedBatch, Teller};
pub use places::{PlaceKind, Places};
pub use records::{RecordEnd, RecordMetrics};
pub use summary::{AttemptSummary, Summary};
pub use tidegate_client::telemetry::{
    Calls, Histogram, HostState, Sample, SampleValue, ServiceMetrics, together,
};
pub use tidegate_client::telemetry::{metric, otlp, sample, trace};

use crate::gate::{GateTally, Reading as GateReading};
use crate::letter::now_ms;
use crate::letter::store::Health;
use crate::lock::lock;
use line::share;
use metric as m;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use tidegate_client::telemetry::{add, calls, get, histogram, line};

/// Records that were given up for the same reason, at the same stage of their way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectGroup {
    /// The code of the reason.
    pub code: String,
    /// Where on its way; empty where there is only one.
    pub stage: String,
    /// How many.
    pub count: u64,
    /// What was said of the first of them.
    pub example: String,
}

/// The registry of one run.
#[derive(Default)]
pub struct Telemetry {
    pipeline: String,
    started_ms: i64,
    /// What became of the records.
    pub records: RecordMetrics,
    /// Where they ended.
    pub places: Places,
    lines: Mutex<Vec<ServiceMetrics>>,
    gates: Mutex<Vec<GateReading>>,
    groups: Mutex<BTreeMap<(String, String), RejectGroup>>,
    letters: Mutex<Option<Health>>,
    alerts: Mutex<Vec<(&'static str, bool)>>,
    spans_dropped: AtomicU64,
}

impl Telemetry {
    /// The registry of a run of this pipeline, which begins now.
    #[must_use]
    pub fn new(pipeline: &str) -> Telemetry {
        Telemetry { pipeline: pipeline.to_owned(), started_ms: now_ms(), ..Telemetry::default() }
    }

    /// The pipeline.
    #[must_use]
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }

    /// A service is asked.
    pub fn adopt(&self, line: ServiceMetrics) {
        lock(&self.lines).push(line);
    }

    /// The services that are asked.
    #[must_use]
    pub fn lines(&self) -> Vec<ServiceMetrics> {
        lock(&self.lines).clone()
    }

    /// The gates as they stand now.
    pub fn gates(&self, readings: Vec<GateReading>) {
        *lock(&self.gates) = readings;
    }

    /// What the gates have counted since.
    pub fn tallies(&self, tallies: &[GateTally]) {
        for gate in &mut *lock(&self.gates) {
            if let Some(tally) = tallies.iter().find(|tally| tally.gate == gate.tally.gate) {
                gate.tally.clone_from(tally);
            }
        }
    }

    /// The gates as they stood last.
    #[must_use]
    pub fn gate_readings(&self) -> Vec<GateReading> {
        lock(&self.gates).clone()
    }

    /// A record was given up.
    pub fn dead(&self, code: &str, stage: &str, example: impl FnOnce() -> String) {
        let mut groups = lock(&self.groups);
        match groups.get_mut(&(code.to_owned(), stage.to_owned())) {
            Some(group) => group.count += 1,
            None => {
                let group =
                    RejectGroup { code: code.into(), stage: stage.into(), count: 1, example: example() };
                groups.insert((code.to_owned(), stage.to_owned()), group);
            }
        }
    }

    /// Why records were given up, the commonest first.
    #[must_use]
    pub fn groups(&self) -> Vec<RejectGroup> {
        let mut all: Vec<RejectGroup> = lock(&self.groups).values().cloned().collect();
        all.sort_by_key(|group| std::cmp::Reverse(group.count));
        all
    }

    /// The store of dead letters as it is now.
    pub fn letters(&self, health: Health) {
        *lock(&self.letters) = Some(health);
    }

    /// The store of dead letters as it was last.
    #[must_use]
    pub fn letter_health(&self) -> Option<Health> {
        lock(&self.letters).clone()
    }

    /// Which alerts fire, of all that are watched.
    pub fn alerts(&self, firing: Vec<(&'static str, bool)>) {
        *lock(&self.alerts) = firing;
    }

    /// Which alerts fired last, of all that are watched.
    #[must_use]
    pub fn alert_states(&self) -> Vec<(&'static str, bool)> {
        lock(&self.alerts).clone()
    }

    /// Spans were left out.
    pub fn spans_dropped(&self, n: u64) {
        add(&self.spans_dropped, n);
    }

    /// What every metric reads now.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        let mut out = Vec::with_capacity(128);
        let number = |metric, value: f64| Sample::number(metric, value);
        let r = &self.records;
        let aside = r.ended_so(RecordEnd::Filtered) + r.ended_so(RecordEnd::Deduped);
        out.push(number(&m::WRITE_SUCCESS, share(r.written(), r.all().saturating_sub(aside))));
        out.push(number(&m::READ, r.offered() as f64));
        out.push(number(&m::LAG, r.offered().saturating_sub(r.all()) as f64));
        for how in RecordEnd::ALL {
            out.push(Sample::of(&m::RECORDS, &[how.outcome()], r.ended_so(how) as f64));
        }
        out.push(Sample { metric: &m::COMMIT, labels: Vec::new(), value: r.commit.value() });
        out.push(number(&m::LAST_COMMIT, r.last_commit()));
        out.push(number(&m::STARTED, self.started_ms as f64 / 1e3));
        line::samples(&self.lines(), &mut out);
        gate_samples(&self.gate_readings(), &mut out);
        if let Some(health) = &*lock(&self.letters) {
            out.extend(letter_samples(health, now_ms()));
        }
        for (alert, firing) in &*lock(&self.alerts) {
            out.push(Sample::of(&m::ALERT, &[alert], f64::from(u8::from(*firing))));
        }
        out.push(number(&m::SPANS_DROPPED, get(&self.spans_dropped) as f64));
        out.push(Sample::of(&m::BUILD, &[env!("CARGO_PKG_VERSION")], 1.0));
        sample::merged(out)
    }

    /// The text form for Prometheus.
    #[must_use]
    pub fn prometheus(&self) -> String {
        sample::prometheus(&[(Some(&self.pipeline), &self.samples())])
    }
}

fn gate_samples(gates: &[GateReading], out: &mut Vec<Sample>) {
    let (mut looked, mut failed) = (0, 0);
    for gate in gates {
        let name = [gate.tally.gate.as_str()];
        out.push(Sample::of(&m::GATE_CHECKED, &name, gate.tally.looked as f64));
        out.push(Sample::of(&m::GATE_FAILED, &name, gate.tally.failed as f64));
        out.push(Sample::of(&m::GATE_HALTED, &name, f64::from(u8::from(gate.halted))));
        if gate.nulls {
            out.push(Sample::of(&m::NULL_RATE, &name, gate.tally.rate()));
            out.push(Sample::of(&m::NULL_LIMIT, &name, gate.limit));
        }
        if gate.spatial {
            looked += gate.tally.looked;
            failed += gate.tally.failed;
        }
    }
    if looked > 0 {
        out.push(Sample::number(&m::VALIDATION_FAILURES, share(failed, looked)));
    }
}

/// What a store of dead letters reads.
#[must_use]
pub fn letter_samples(h: &Health, now_ms: i64) -> Vec<Sample> {
    let age = h.oldest_ms.map_or(0, |ms| (now_ms - ms).max(0));
    [
        (&m::LETTERS, h.letters as f64),
        (&m::LETTERS_OPEN, h.open as f64),
        (&m::LETTER_OLDEST, age as f64 / 1e3),
        (&m::LETTER_BYTES, h.bytes as f64),
        (&m::LETTER_CAPACITY, h.capacity as f64),
        (&m::LETTER_FULL, share(h.letters, h.capacity)),
        (&m::LETTER_ARRIVED, h.arrived_hour as f64),
        (&m::LETTER_DRAINED, h.resolved as f64),
        (&m::REPLAY_SUCCESS, share(h.resolved, h.resolved + h.died_again)),
        (&m::LETTER_SPATIAL, share(h.spatial, h.open)),
    ]
    .map(|(metric, value)| Sample::number(metric, value))
    .to_vec()
}

#[cfg(test)]
mod tests;
