//! Manifests made of the options of a command: `geocode` and `fetch` are pipelines like any other.
//!
//! A preset is the JSON of a manifest with the keys that its options set and no others, so that
//! `--print-manifest` shows what a person would have written.

mod geocode;
mod yaml;

pub use geocode::{GeocodeOptions, Question, geocode};
pub use yaml::to_yaml;

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tidegate_core::call::{CallPolicy, ThrottleWait};
use tidegate_core::hex::hex;
use tidegate_core::lane::LaneConfig;

use crate::error::SetupError;
use crate::manifest::Manifest;

/// A manifest made of options.
#[derive(Clone, Debug)]
pub struct PresetManifest {
    /// The keys that the options set.
    pub keys: Value,
    /// The manifest that they make.
    pub manifest: Manifest,
}

impl PresetManifest {
    /// From the keys of a manifest.
    ///
    /// # Errors
    /// If they make none, in a sentence.
    pub fn new(keys: Value) -> Result<PresetManifest, SetupError> {
        let manifest = serde_json::from_value(keys.clone())
            .map_err(|e| format!("cannot build a manifest from the options: {e}"))?;
        Ok(PresetManifest { keys, manifest })
    }
}

/// The id of the pipeline that a verb makes: its stem for people, and a hash of what tells it from
/// others.
#[must_use]
pub fn id(verb: &str, stem: &str, of: &Value) -> String {
    let stem: String = stem.chars().filter(|c| !c.is_control()).take(100).collect();
    let hash: [u8; 32] = Sha256::digest(of.to_string().as_bytes()).into();
    format!("{verb}:{stem}-{}", hex(&hash[..4]))
}

/// How calls are made, as options of a command say it.
#[derive(Clone, Copy, Debug)]
pub struct CallOptions {
    /// Attempts per record, at most; throttles and outages do not count.
    pub attempts: u32,
    /// Time for one attempt.
    pub timeout: Duration,
    /// Time for one record, from its first attempt.
    pub deadline: Duration,
    /// Calls under way at once, at most, if that is to be said.
    pub in_flight_max: Option<u32>,
}

impl CallOptions {
    /// The sections of a manifest that hold this: `retry_policy`, `circuit_breaker`, `rate_limit`.
    #[must_use]
    pub fn sections(&self) -> Vec<(&'static str, Value)> {
        let (call, lane) = (policy(), lane());
        let retry = json!({
            "max_attempts": self.attempts,
            "base_delay_seconds": call.backoff.base().as_secs_f64(),
            "deadline_seconds": self.deadline.as_secs_f64(),
            "attempt_timeout_seconds": self.timeout.as_secs_f64(),
            "throttles_free": call.throttles_free,
            "outages_free": call.outages_free,
        });
        let breaker = json!({
            "cooldown_seconds": lane.breaker.cooldown.as_secs_f64(),
            "cooldown_factor": lane.breaker.cooldown_factor,
            "cooldown_max_seconds": lane.breaker.cooldown_max.as_secs_f64(),
            "probes": lane.breaker.probes,
        });
        let limit = self.in_flight_max.map(|max| ("rate_limit", json!({ "max_in_flight": max })));
        [("retry_policy", retry), ("circuit_breaker", breaker)].into_iter().chain(limit).collect()
    }
}

/// The settings with which rows are tried, unless told otherwise: 5 attempts, throttles and
/// outages free of them up to 20, five minutes in all.
#[must_use]
pub fn policy() -> CallPolicy {
    CallPolicy {
        throttles_free: 20,
        outages_free: 20,
        deadline: Duration::from_secs(300),
        attempt_timeout: Duration::from_secs(30),
        throttle_wait: ThrottleWait::Lane,
        ..CallPolicy::default()
    }
}

/// The lane's settings, unless told otherwise. The breaker of a batch probes sooner than that of
/// a service with users: nobody is hurt by two probes a second, and an outage of five seconds
/// should not cost thirty. Each wait is a twentieth longer than the one before, so an outage is
/// noticed to be over after about a twentieth of its length and 0.3 s.
#[must_use]
pub fn lane() -> LaneConfig {
    let mut lane = LaneConfig::default();
    lane.breaker.cooldown = Duration::from_millis(300);
    lane.breaker.cooldown_factor = 1.05;
    lane.breaker.cooldown_max = Duration::from_secs(30);
    lane.breaker.probes = 1;
    lane
}
