//! What calls count, and how it is told: the counters, Prometheus' text, spans and OTLP.
//!
//! | file | holds |
//! |---|---|
//! | [`metric`] | the table of all metrics, those of a pipeline too |
//! | [`calls`], [`histogram`] | the counters: atomics, no lock, no allocation |
//! | [`mod@line`] | a service: its calls and its lanes |
//! | [`sample`] | what a metric reads now, and Prometheus' text |
//! | [`trace`] | spans of run, batch, call and attempt |
//! | [`otlp`] | pushing both to a collector |
//!
//! Labels are few and fixed: a status, an attempt number, an outcome, a host, a gate. No URL and
//! no coordinate is ever one.

pub mod calls;
pub mod histogram;
pub mod line;
pub mod metric;
pub mod otlp;
pub mod sample;
pub mod trace;

pub use calls::Calls;
pub use histogram::Histogram;
pub use line::{HostState, ServiceMetrics, together};
pub use sample::{Sample, SampleValue};

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
