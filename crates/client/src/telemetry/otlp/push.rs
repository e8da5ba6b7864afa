//! Sends exports to the collector.
//!
//! A collector that is down must neither delay a run nor fill its memory: an export has a deadline,
//! and a failed one is reported once and dropped. Metrics are cumulative, so the next export
//! includes everything.

use super::env::{OtlpConfig, Target};
use super::{Attributes, metrics, spans};
use crate::http::{Allow, CertificateError, Client, ClientConfig, Exchange, Request, ServiceDialect, Trace};
use crate::lane::{Clock, Lanes};
use crate::secret::Redactor;
use crate::telemetry::sample::Of;
use crate::telemetry::trace::{TraceSpan, Tracer, now_nanos};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, Method, header};
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use tidegate_core::Rng;
use tidegate_core::call::CallPolicy;
use tidegate_core::lane::LaneConfig;
use url::Url;

/// Why an export failed.
#[derive(Debug)]
pub enum PushError {
    /// The body cannot be compressed.
    Compress(io::Error),
    /// The collector cannot be reached, or did not accept the body.
    Refused {
        /// The host of the collector.
        host: String,
        /// How the call ended.
        reason: String,
    },
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PushError::Compress(e) => e.fmt(f),
            PushError::Refused { host, reason } => write!(f, "{host}: {reason}"),
        }
    }
}

impl std::error::Error for PushError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PushError::Compress(e) => Some(e),
            PushError::Refused { .. } => None,
        }
    }
}

/// Exports metrics and spans.
pub struct Pusher {
    config: OtlpConfig,
    /// One for both, because they usually go to the same collector and then share a connection.
    exchange: Exchange,
    /// Time of the start, in nanoseconds since 1970.
    start: u64,
}

impl Pusher {
    /// An exporter. It does not connect yet.
    ///
    /// # Errors
    /// When the certificates of the operating system cannot be used.
    pub fn new(config: OtlpConfig) -> Result<Pusher, CertificateError> {
        Ok(Pusher { exchange: exchange(&config)?, start: now_nanos(), config })
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &OtlpConfig {
        &self.config
    }

    /// Exports these samples, if metrics are enabled.
    ///
    /// # Errors
    /// Why the export failed.
    pub async fn readings(&self, all: &[Of<'_>]) -> Result<(), PushError> {
        let Some(target) = &self.config.metrics else { return Ok(()) };
        let body = metrics::encode(self.attributes(), all, self.start, now_nanos());
        self.post(target, body).await
    }

    /// Exports the finished spans of a pipeline, if traces are enabled.
    ///
    /// # Errors
    /// Why the export failed.
    pub async fn spans(&self, tracer: &Tracer, pipeline: &str, spans: &[TraceSpan]) -> Result<(), PushError> {
        let Some(target) = &self.config.traces else { return Ok(()) };
        for part in parts(spans, self.config.span_batch) {
            let body = spans::encode(self.attributes(), pipeline, tracer, part);
            self.post(target, body).await?;
        }
        Ok(())
    }

    fn attributes(&self) -> &Attributes {
        &self.config.attributes
    }

    async fn post(&self, target: &Target, body: Vec<u8>) -> Result<(), PushError> {
        let mut headers = target.headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let body = if self.config.gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(&body).and_then(|()| packed.finish()).map_err(PushError::Compress)?
        } else {
            body
        };
        let mut request = Request::new(Method::POST, target.url.clone(), body.into());
        request.headers = headers;
        // Exporting the same values twice has no further effect.
        request.idempotency_key = Some(request.key_bytes());
        let outcome = self.exchange.call(&request, Rng::new(now_nanos())).await;
        if outcome.is_accepted() {
            Ok(())
        } else {
            Err(PushError::Refused { host: host(&target.url), reason: outcome.word() })
        }
    }
}

fn host(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}

/// Splits spans into exports of half of `most`: a call is at least two spans, itself and an attempt.
fn parts(spans: &[TraceSpan], most: usize) -> impl Iterator<Item = &[TraceSpan]> {
    spans.chunks(most.div_ceil(2))
}

fn exchange(config: &OtlpConfig) -> Result<Exchange, CertificateError> {
    // The configured hosts are allowed at any address, but redirects to others are not.
    let targets = || [&config.metrics, &config.traces].into_iter().flatten();
    let meant = targets().map(|target| Allow::meant(&target.url, true, &[]));
    let both = |mut a: Allow, b: Allow| {
        a.hosts.extend(b.hosts);
        a.addresses.exact.extend(b.addresses.exact);
        a
    };
    // Without a target no request is sent.
    let allow = meant.reduce(both).unwrap_or_else(Allow::public);
    let client = ClientConfig { allow, redirects_max: 0, ..ClientConfig::default() };
    let client = Client::new(client, targets().map(|target| &target.url))?;
    let policy = CallPolicy {
        attempts_max: 3,
        deadline: config.timeout,
        attempt_timeout: config.timeout,
        ..CallPolicy::default()
    };
    Ok(Exchange {
        client,
        lanes: Lanes::new(&LaneConfig::default(), Clock::system()),
        dialect: ServiceDialect::default(),
        policy,
        redactor: Arc::new(Redactor::new()),
        trace: Trace::Off,
    })
}
