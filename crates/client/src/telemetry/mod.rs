//! Metrics and traces of calls, and their export.
//!
//! | file | holds |
//! |---|---|
//! | [`metric`] | the table of all metrics, including those of a pipeline |
//! | [`calls`], [`histogram`] | the counters: atomics, no locks, no allocation |
//! | [`service_metrics`] | the metrics of a service: its calls and its lanes |
//! | [`sample`] | current values, and the Prometheus text format |
//! | [`trace`] | spans of run, batch, call and attempt |
//! | [`otlp`] | export of both to a collector, with the feature `otlp` |
//!
//! Labels are few and fixed: a status, an attempt number, an outcome, a host, a gate. A label never
//! contains a URL or a coordinate.

pub mod calls;
pub mod histogram;

pub mod metric;
#[cfg(not(feature = "otlp"))]
#[path = "otlp/absent.rs"]
pub mod otlp;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod sample;
pub mod service_metrics;
pub mod trace;

pub use calls::Calls;
pub use histogram::Histogram;
pub use sample::{Sample, SampleValue};
pub use service_metrics::{HostState, LearnedLimit, ServiceMetrics, learned, together};

use std::sync::atomic::{AtomicU64, Ordering};

/// Adds to a counter.
pub fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Reads a counter.
#[must_use]
pub fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
