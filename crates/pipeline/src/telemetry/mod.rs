//! The metrics of a run: one registry for `geocode`, `fetch` and `run`, read by the progress line,
//! the summary, the report, the alerts, Prometheus and OTLP.
//!
//! | file | holds |
//! |---|---|
//! | `records` | the counters: atomics, no locks, no allocation |
//! | `flow` | records the progress of a pipeline |
//! | [`places`] | the coordinates of records, for a map |
//! | [`rasters`] | the rasters that records name, for their pictures |
//! | `reading` | the input of the alerts |
//! | `summary` | everything as one value |
//!
//! The table of metrics, the counters of calls, spans and OTLP are in
//! [`tidegate_client::telemetry`].
//!
//! Labels are few and fixed: a status, an attempt number, an outcome, a host, a gate. A label never
//! contains a URL or a coordinate.

mod flow;
pub mod places;
pub mod rasters;
mod reading;
mod records;
mod summary;

pub use flow::{CommittedBatch, Teller};
pub use places::{PlaceKind, Places};
pub use rasters::{Rasters, SeenRaster};
pub use records::{RecordEnd, RecordMetrics};
pub use summary::{AttemptSummary, LimitSummary, Summary};
pub use tidegate_client::telemetry::{
    Calls, Histogram, HostState, Sample, SampleValue, ServiceMetrics, together,
};
pub use tidegate_client::telemetry::{metric, otlp, sample, trace};

use crate::gate::{GateTally, Reading as GateReading};
use crate::letter::now_ms;
use crate::letter::store::Health;
use crate::lock::lock;
use metric as m;
use service_metrics::share;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use tidegate_client::telemetry::{add, calls, get, histogram, service_metrics};

/// Records rejected for the same reason at the same stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectGroup {
    /// The code of the reason.
    pub code: String,
    /// The stage; empty if there is only one.
    pub stage: String,
    /// The number of records.
    pub count: u64,
    /// The message of the first of them.
    pub example: String,
}

/// The registry of one run.
#[derive(Default)]
pub struct Telemetry {
    pipeline: String,
    /// Time of the start, in milliseconds since 1970.
    started_ms: i64,
    /// The outcomes of the records.
    pub records: RecordMetrics,
    /// Their coordinates.
    pub places: Places,
    /// The rasters that they name.
    pub rasters: Rasters,
    services: Mutex<Vec<ServiceMetrics>>,
    gates: Mutex<Vec<GateReading>>,
    groups: Mutex<BTreeMap<(String, String), RejectGroup>>,
    letters: Mutex<Option<Health>>,
    alerts: Mutex<Vec<(&'static str, bool)>>,
    tasks: Mutex<Vec<Sample>>,
    spans_dropped: AtomicU64,
}

impl Telemetry {
    /// The registry of a run of this pipeline, which starts now.
    #[must_use]
    pub fn new(pipeline: &str) -> Telemetry {
        Telemetry { pipeline: pipeline.to_owned(), started_ms: now_ms(), ..Telemetry::default() }
    }

    /// The name of the pipeline.
    #[must_use]
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }

    /// Adds a service that is called.
    pub fn adopt(&self, service: ServiceMetrics) {
        lock(&self.services).push(service);
    }

    /// The services that are called.
    #[must_use]
    pub fn services(&self) -> Vec<ServiceMetrics> {
        lock(&self.services).clone()
    }

    /// Sets the state of the gates.
    pub fn gates(&self, readings: Vec<GateReading>) {
        *lock(&self.gates) = readings;
    }

    /// Updates the counts of the gates.
    pub fn tallies(&self, tallies: &[GateTally]) {
        for gate in &mut *lock(&self.gates) {
            if let Some(tally) = tallies.iter().find(|tally| tally.gate == gate.tally.gate) {
                gate.tally.clone_from(tally);
            }
        }
    }

    /// The last state of the gates.
    #[must_use]
    pub fn gate_readings(&self) -> Vec<GateReading> {
        lock(&self.gates).clone()
    }

    /// Counts a rejected record.
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

    /// The reasons of rejected records, most frequent first.
    #[must_use]
    pub fn groups(&self) -> Vec<RejectGroup> {
        let mut all: Vec<RejectGroup> = lock(&self.groups).values().cloned().collect();
        all.sort_by_key(|group| std::cmp::Reverse(group.count));
        all
    }

    /// Sets the state of the dead-letter store.
    pub fn letters(&self, health: Health) {
        *lock(&self.letters) = Some(health);
    }

    /// The last state of the dead-letter store.
    #[must_use]
    pub fn letter_health(&self) -> Option<Health> {
        lock(&self.letters).clone()
    }

    /// Sets which of the evaluated alerts fire.
    pub fn alerts(&self, firing: Vec<(&'static str, bool)>) {
        *lock(&self.alerts) = firing;
    }

    /// Which of the evaluated alerts fired last.
    #[must_use]
    pub fn alert_states(&self) -> Vec<(&'static str, bool)> {
        lock(&self.alerts).clone()
    }

    /// Sets the samples of a queue and its tasks.
    pub fn tasks(&self, samples: Vec<Sample>) {
        *lock(&self.tasks) = samples;
    }

    /// Counts dropped spans.
    pub fn spans_dropped(&self, n: u64) {
        add(&self.spans_dropped, n);
    }

    /// The current value of every metric.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        let mut out = Vec::with_capacity(128);
        let number = |metric, value: f64| Sample::number(metric, value);
        let r = &self.records;
        out.push(number(&m::WRITE_SUCCESS, r.write_success()));
        out.push(number(&m::READ, r.offered() as f64));
        out.push(number(&m::LAG, r.offered().saturating_sub(r.all()) as f64));
        for how in RecordEnd::ALL {
            out.push(Sample::of(&m::RECORDS, &[how.outcome()], r.ended_so(how) as f64));
        }
        out.push(number(&m::DELETED, r.deleted() as f64));
        out.push(Sample { metric: &m::COMMIT, labels: Vec::new(), value: r.commit.value() });
        out.push(number(&m::LAST_COMMIT, r.last_commit()));
        out.push(number(&m::STARTED, self.started_ms as f64 / 1e3));
        service_metrics::samples(&self.services(), &mut out);
        gate_samples(&self.gate_readings(), &mut out);
        if let Some(health) = &*lock(&self.letters) {
            out.extend(letter_samples(health, now_ms()));
        }
        out.extend(lock(&self.tasks).iter().cloned());
        for (alert, firing) in &*lock(&self.alerts) {
            out.push(Sample::of(&m::ALERT, &[alert], f64::from(u8::from(*firing))));
        }
        out.push(number(&m::SPANS_DROPPED, get(&self.spans_dropped) as f64));
        out.push(Sample::of(&m::BUILD, &[env!("CARGO_PKG_VERSION")], 1.0));
        sample::merged(out)
    }

    /// The metrics in the Prometheus text format.
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

/// The samples of a dead-letter store.
#[must_use]
pub fn letter_samples(h: &Health, now_ms: i64) -> Vec<Sample> {
    let age = h.oldest_ms.map_or(0, |ms| (now_ms - ms).max(0));
    let mut out = [
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
    .to_vec();
    let mut rules: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for rule in &h.rules {
        let counts = rules.entry((&rule.code, &rule.remedy)).or_default();
        (counts.0, counts.1) = (counts.0 + rule.resolved, counts.1 + rule.failed);
    }
    for ((code, remedy), (resolved, failed)) in rules {
        for (outcome, count) in [("resolved", resolved), ("failed", failed)] {
            out.push(Sample::of(&m::REMEDY_LETTERS, &[code, remedy, outcome], count as f64));
        }
    }
    out
}

#[cfg(test)]
mod tests;
