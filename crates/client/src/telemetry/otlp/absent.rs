//! Stands in for the export of telemetry in a build without it: where an endpoint is set, a warning says
//! that nothing is exported.
//!
//! An [`OtlpConfig`] has no values here, so code that uses one still compiles and never runs.

use crate::http::CertificateError;
use crate::telemetry::sample::Of;
use crate::telemetry::trace::{TraceSpan, Tracer};
use std::convert::Infallible;
use std::fmt;
use std::time::Duration;
use tidegate_core::part::{MissingPart, OptionalPart};
use tracing::warn;

/// The configuration of the OTLP exporter; it has no values.
#[derive(Clone, Debug)]
pub struct OtlpConfig {
    /// The endpoint of spans.
    pub traces: Option<Infallible>,
    /// The export interval of metrics.
    pub interval: Duration,
    /// The export interval of spans.
    pub span_delay: Duration,
    /// The capacity of the span queue, in spans.
    pub span_queue: usize,
    never: Infallible,
}

/// An invalid environment variable; it has no values.
#[derive(Clone, Debug)]
pub enum OtlpEnvError {}

impl fmt::Display for OtlpEnvError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// Why an export failed; it has no values.
#[derive(Debug)]
pub enum PushError {}

impl fmt::Display for PushError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// Exports metrics and spans; it has no values.
pub struct Pusher(OtlpConfig);

impl OtlpConfig {
    /// Nothing is exported.
    ///
    /// # Errors
    /// Never.
    pub fn from_env(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<OtlpConfig>, OtlpEnvError> {
        let is_set = |name: &str| get(name).is_some_and(|value| !value.trim().is_empty());
        let endpoint = ["", "METRICS_", "TRACES_"]
            .map(|signal| format!("OTEL_EXPORTER_OTLP_{signal}ENDPOINT"))
            .into_iter()
            .find(|name| is_set(name));
        if let Some(name) = endpoint {
            let why = MissingPart(OptionalPart::Otlp);
            warn!(target: "tidegate::otlp", "{name} is set, but nothing is exported: {why}");
        }
        Ok(None)
    }
}

impl Pusher {
    /// An exporter.
    ///
    /// # Errors
    /// Never.
    pub fn new(config: OtlpConfig) -> Result<Pusher, CertificateError> {
        match config.never {}
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &OtlpConfig {
        match self.0.never {}
    }

    /// Exports these samples.
    ///
    /// # Errors
    /// Never.
    pub async fn readings(&self, _: &[Of<'_>]) -> Result<(), PushError> {
        match self.0.never {}
    }

    /// Exports the finished spans of a pipeline.
    ///
    /// # Errors
    /// Never.
    pub async fn spans(&self, _: &Tracer, _: &str, _: &[TraceSpan]) -> Result<(), PushError> {
        match self.0.never {}
    }
}
