//! What a run tells while it goes on and afterwards: metrics, spans, logs, alerts, the report.

mod alert;
mod bench;
mod log;
mod metrics;
mod push;
mod report;
mod serve;
