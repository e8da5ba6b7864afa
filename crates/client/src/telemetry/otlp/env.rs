//! The standard variables `OTEL_*` of the OpenTelemetry specification.
//!
//! Nothing is exported unless an endpoint is set. The specification defaults to localhost; a
//! command that a person runs should not connect to ports that nobody configured.

use super::Attributes;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;
use std::time::Duration;
use tidegate_core::hex::unhex_byte;
use url::Url;

/// The configuration of the OTLP exporter.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpConfig {
    /// The endpoint of metrics.
    pub metrics: Option<Target>,
    /// The endpoint of spans.
    pub traces: Option<Target>,
    /// The resource attributes of this process.
    pub attributes: Attributes,
    /// The export interval of metrics.
    pub interval: Duration,
    /// The export interval of spans.
    pub span_delay: Duration,
    /// The capacity of the span queue, in spans.
    pub span_queue: usize,
    /// The most spans in one export.
    pub span_batch: usize,
    /// Whether bodies are compressed with gzip.
    pub gzip: bool,
    /// The timeout of one export.
    pub timeout: Duration,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its URL.
    pub url: Url,
    /// The headers of each export, such as a key.
    pub headers: HeaderMap,
}

/// An invalid environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpEnvError {
    /// The name of the variable.
    pub variable: String,
    /// What is wrong with its value. A value that may contain a key is not quoted.
    pub reason: String,
}

impl OtlpEnvError {
    fn new(variable: &str, reason: impl Into<String>) -> OtlpEnvError {
        OtlpEnvError { variable: variable.to_owned(), reason: reason.into() }
    }
}

impl fmt::Display for OtlpEnvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.variable, self.reason)
    }
}

impl std::error::Error for OtlpEnvError {}

impl OtlpConfig {
    /// Reads the variables; `None` if nothing is exported.
    ///
    /// # Errors
    /// The first invalid variable.
    pub fn from_env(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<OtlpConfig>, OtlpEnvError> {
        // An empty variable counts as unset.
        let get = |name: &str| get(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        if get("OTEL_SDK_DISABLED").is_some_and(|v| v.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let metrics = target(&get, "METRICS", "v1/metrics")?;
        let mut traces = target(&get, "TRACES", "v1/traces")?;
        if !sampled(&get)? {
            traces = None;
        }
        if metrics.is_none() && traces.is_none() {
            return Ok(None);
        }
        let ms = |name: &str, default: u64| number(&get, name, default).map(Duration::from_millis);
        let gzip = match get("OTEL_EXPORTER_OTLP_COMPRESSION").as_deref() {
            None | Some("none") => false,
            Some("gzip") => true,
            Some(other) => {
                let reason = format!("unknown value {other:?}; expected gzip or none");
                return Err(OtlpEnvError::new("OTEL_EXPORTER_OTLP_COMPRESSION", reason));
            }
        };
        Ok(Some(OtlpConfig {
            metrics,
            traces,
            attributes: attributes(&get)?,
            interval: ms("OTEL_METRIC_EXPORT_INTERVAL", 60_000)?.max(Duration::from_millis(100)),
            span_delay: ms("OTEL_BSP_SCHEDULE_DELAY", 5_000)?.max(Duration::from_millis(100)),
            span_queue: number(&get, "OTEL_BSP_MAX_QUEUE_SIZE", 2_048)? as usize,
            span_batch: (number(&get, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)? as usize).max(1),
            gzip,
            timeout: ms("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000)?,
        }))
    }
}

type Get<'a> = &'a dyn Fn(&str) -> Option<String>;

fn target(get: Get<'_>, signal: &str, path: &str) -> Result<Option<Target>, OtlpEnvError> {
    let exporter = format!("OTEL_{signal}_EXPORTER");
    match get(&exporter).as_deref() {
        None | Some("otlp") => {}
        Some("none") => return Ok(None),
        Some(other) => {
            let reason = format!("unknown value {other:?}; expected otlp or none");
            return Err(OtlpEnvError::new(&exporter, reason));
        }
    }
    let own = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
    let shared = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let parse = |name: &str, text: &str| {
        let url =
            Url::parse(text).map_err(|e| OtlpEnvError::new(name, format!("invalid URL {text:?}: {e}")))?;
        match url.scheme() {
            "http" | "https" => Ok(url),
            _ => Err(OtlpEnvError::new(name, format!("{text:?} is not an http or https URL"))),
        }
    };
    let url = match (get(&own), get(shared)) {
        // An endpoint for one signal is used unchanged; the path of the signal is appended to the
        // common one.
        (Some(text), _) => parse(&own, &text)?,
        (None, Some(text)) => {
            let mut base = parse(shared, &text)?;
            let joined = format!("{}/{path}", base.path().trim_end_matches('/'));
            base.set_path(&joined);
            base
        }
        (None, None) => return Ok(None),
    };
    for name in [format!("OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"), "OTEL_EXPORTER_OTLP_PROTOCOL".to_owned()] {
        match get(&name).as_deref() {
            None => continue,
            Some("http/protobuf") => break,
            Some(other) => {
                let reason = format!("unsupported protocol {other:?}; expected http/protobuf");
                return Err(OtlpEnvError::new(&name, reason));
            }
        }
    }
    let mut headers = HeaderMap::new();
    for name in ["OTEL_EXPORTER_OTLP_HEADERS".to_owned(), format!("OTEL_EXPORTER_OTLP_{signal}_HEADERS")] {
        for (key, value) in pairs(&name, get(&name).as_deref().unwrap_or_default())? {
            // The value is not quoted, because it may contain a key.
            let header: HeaderName =
                key.parse().map_err(|_| OtlpEnvError::new(&name, format!("invalid header name {key:?}")))?;
            let unsendable = |_| OtlpEnvError::new(&name, format!("invalid value for the header {key}"));
            let mut value: HeaderValue = value.parse().map_err(unsendable)?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
    }
    Ok(Some(Target { url, headers }))
}

/// Whether this trace is sampled. A process has one trace, so the ratio is applied once.
fn sampled(get: Get<'_>) -> Result<bool, OtlpEnvError> {
    let name = get("OTEL_TRACES_SAMPLER").unwrap_or_else(|| "parentbased_always_on".to_owned());
    let parent = get("TRACEPARENT");
    let parent_says = parent
        .as_deref()
        .and_then(|p| p.rsplit('-').next())
        .map(|flags| flags.ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f']));
    let (based, kind) = match name.strip_prefix("parentbased_") {
        Some(kind) => (true, kind),
        None => (false, name.as_str()),
    };
    let own = match kind {
        "always_on" => true,
        "always_off" => false,
        "traceidratio" => {
            let ratio = match get("OTEL_TRACES_SAMPLER_ARG") {
                None => 1.0,
                Some(text) => {
                    text.parse::<f64>().ok().filter(|r| (0.0..=1.0).contains(r)).ok_or_else(|| {
                        let reason = format!("{text:?} is not a number from 0 to 1");
                        OtlpEnvError::new("OTEL_TRACES_SAMPLER_ARG", reason)
                    })?
                }
            };
            let mut bytes = [0; 8];
            // Without random bytes every trace is sampled.
            ratio >= 1.0
                || getrandom::fill(&mut bytes).is_err()
                || (u64::from_le_bytes(bytes) as f64) < ratio * 2f64.powi(64)
        }
        _ => {
            let reason = format!(
                "unknown sampler {name:?}; expected always_on, always_off, traceidratio, or one of these after parentbased_"
            );
            return Err(OtlpEnvError::new("OTEL_TRACES_SAMPLER", reason));
        }
    };
    Ok(if based { parent_says.unwrap_or(own) } else { own })
}

fn attributes(get: Get<'_>) -> Result<Attributes, OtlpEnvError> {
    let name = "OTEL_RESOURCE_ATTRIBUTES";
    let mut all = pairs(name, &get(name).unwrap_or_default())?;
    let mut set = |key: &str, value: &str, over: bool| {
        match all.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) if over => value.clone_into(old),
            Some(_) => {}
            None => all.push((key.to_owned(), value.to_owned())),
        };
    };
    match get("OTEL_SERVICE_NAME") {
        Some(service) => set("service.name", &service, true),
        None => set("service.name", "tidegate", false),
    }
    set("service.version", env!("CARGO_PKG_VERSION"), false);
    set("telemetry.sdk.name", "tidegate", true);
    set("telemetry.sdk.language", "rust", true);
    Ok(all)
}

/// Parses `key=value,key=value`, percent-encoded.
fn pairs(name: &str, text: &str) -> Result<Attributes, OtlpEnvError> {
    let decode = |part: &str| {
        let mut out = Vec::new();
        let mut bytes = part.trim().as_bytes().iter();
        while let Some(&byte) = bytes.next() {
            let pair = (byte == b'%').then(|| {
                let pair = bytes.as_slice().first_chunk::<2>();
                pair.and_then(|[high, low]| unhex_byte(*high, *low))
            });
            match pair.flatten() {
                Some(value) => {
                    out.push(value);
                    bytes.nth(1);
                }
                None => out.push(byte),
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    };
    let mut all = Vec::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| OtlpEnvError::new(name, "expected key=value pairs separated by commas"))?;
        all.push((decode(key), decode(value)));
    }
    Ok(all)
}

fn number(get: Get<'_>, name: &str, default: u64) -> Result<u64, OtlpEnvError> {
    match get(name) {
        None => Ok(default),
        Some(text) => {
            text.parse().map_err(|_| OtlpEnvError::new(name, format!("{text:?} is not an integer")))
        }
    }
}
