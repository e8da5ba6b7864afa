//! Presets: how well-known providers behave, as far as it is known from outside, and how the proxies
//! behave that people put before their services.
//!
//! A preset is a set of options that the command line can still override. The figures are those
//! that providers document or are known to enforce; they are for trying a client out, not a
//! promise about any provider.

use std::time::Duration;

use super::config::Config;
use super::quota_headers::Dialect;
use super::spec::{self, SpecError};

/// A preset: its name, what it stands for, and its options.
pub struct Preset {
    /// The name on the command line.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    throttle: &'static str,
    headers: Dialect,
    throttle_status: u16,
    /// The time before a refusal, in seconds.
    throttle_after: u64,
    service_ms: &'static str,
}

/// All presets.
pub const PRESETS: [Preset; 16] = [
    Preset {
        name: "nominatim",
        about: "one request a second, no hints",
        throttle: "bucket:1/s,burst=1",
        headers: Dialect::None,
        throttle_status: 429,
        throttle_after: 0,
        service_ms: "20..80",
    },
    Preset {
        name: "google",
        about: "50 a second, refusals inside a 200",
        throttle: "bucket:50/s,burst=50",
        headers: Dialect::None,
        throttle_status: 200,
        throttle_after: 0,
        service_ms: "20..60",
    },
    Preset {
        name: "mapbox",
        about: "1,000 a minute in fixed windows, X-Rate-Limit headers",
        throttle: "fixed:1000/1m",
        headers: Dialect::Mapbox,
        throttle_status: 429,
        throttle_after: 0,
        service_ms: "10..40",
    },
    Preset {
        name: "here",
        about: "5 a second, Retry-After",
        throttle: "sliding:5/1s",
        headers: Dialect::RetryAfter,
        throttle_status: 429,
        throttle_after: 0,
        service_ms: "20..60",
    },
    Preset {
        name: "opencage",
        about: "1 a second, X-RateLimit headers with an epoch",
        throttle: "bucket:1/s,burst=1",
        headers: Dialect::XRatelimitEpoch,
        throttle_status: 429,
        throttle_after: 0,
        service_ms: "20..60",
    },
    Preset {
        name: "pelias",
        about: "10 a second in fixed windows, what is left per second",
        throttle: "fixed:10/1s",
        headers: Dialect::Pelias,
        throttle_status: 429,
        throttle_after: 0,
        service_ms: "10..40",
    },
    Preset {
        name: "geoserver",
        about: "six calls at once and 30 a second, as its control flow",
        throttle: "concurrency:6+fixed:30/1s",
        headers: Dialect::Geoserver,
        throttle_status: 429,
        throttle_after: 0,
        service_ms: "30..120",
    },
    Preset {
        name: "arcgis",
        about: "bursts refused with 403, usage per minute told",
        throttle: "sliding:100/10s",
        headers: Dialect::Esri,
        throttle_status: 403,
        throttle_after: 0,
        service_ms: "30..120",
    },
    Preset {
        name: "sentinel-hub",
        about: "Retry-After in milliseconds",
        throttle: "bucket:300/1m,burst=20",
        headers: Dialect::SentinelHub,
        throttle_status: 429,
        throttle_after: 0,
        service_ms: "50..200",
    },
    Preset {
        name: "s3",
        about: "a hot prefix: 5 PUTs per 100 ms and prefix, 503 SlowDown",
        throttle: "fixed:5/100ms",
        headers: Dialect::None,
        throttle_status: 503,
        throttle_after: 0,
        service_ms: "5..15",
    },
    Preset {
        name: "nginx-503",
        about: "limit_req of nginx, 100 a second, burst 20 at once; 503 as by default",
        throttle: "leaky:100/s,burst=20",
        headers: Dialect::None,
        throttle_status: 503,
        throttle_after: 0,
        service_ms: "20",
    },
    Preset {
        name: "nginx-delay",
        about: "the same, but the burst is held until its turn",
        throttle: "leaky:100/s,burst=20,delay=0",
        headers: Dialect::None,
        throttle_status: 503,
        throttle_after: 0,
        service_ms: "20",
    },
    Preset {
        name: "nginx-strict",
        about: "the same without a burst: one call every 10 ms",
        throttle: "leaky:100/s,burst=0",
        headers: Dialect::None,
        throttle_status: 503,
        throttle_after: 0,
        service_ms: "20",
    },
    Preset {
        name: "nginx-conn",
        about: "limit_conn of nginx: eight calls at once; 503 as by default",
        throttle: "concurrency:8",
        headers: Dialect::None,
        throttle_status: 503,
        throttle_after: 0,
        service_ms: "20",
    },
    Preset {
        name: "haproxy-sliding",
        about: "a stick table of HAProxy, 1,000 per 10 s; refused calls count too",
        throttle: "stick:1000/10s",
        headers: Dialect::None,
        throttle_status: 429,
        throttle_after: 0,
        service_ms: "20",
    },
    Preset {
        name: "tarpit",
        about: "HAProxy, 100 a second; what is above gets 500 after 3 s",
        throttle: "stick:100/1s",
        headers: Dialect::None,
        throttle_status: 500,
        throttle_after: 3,
        service_ms: "20",
    },
];

/// The configuration of the preset with this name.
///
/// # Errors
/// When there is none; the message lists the names.
pub fn find(name: &str) -> Result<Config, SpecError> {
    let unknown = || SpecError::UnknownPreset { name: name.to_owned() };
    let preset = PRESETS.iter().find(|preset| preset.name == name).ok_or_else(unknown)?;
    let scope = if preset.name == "s3" { super::Scope::Prefix } else { super::Scope::Server };
    Ok(Config {
        limit: spec::throttle(preset.throttle)?,
        headers: preset.headers,
        throttle_status: preset.throttle_status,
        throttle_after: Duration::from_secs(preset.throttle_after),
        service: spec::service_ms(preset.service_ms)?,
        scope,
        ..Config::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_reads() {
        for preset in &PRESETS {
            assert!(find(preset.name).unwrap().refusal().is_none(), "{}", preset.name);
        }
        assert!(find("nobody").unwrap_err().to_string().contains("nominatim"));
    }
}
