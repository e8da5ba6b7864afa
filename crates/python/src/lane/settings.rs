//! The arguments of a lane, checked before anything is sent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value, json};
use tidegate_client::duration;
use tidegate_client::http::{Allow, ClientConfig, Credential};
use tidegate_client::lane::LaneKey;
use tidegate_client::profile::{Profile, Profiles};
use tidegate_client::secret::{NamedSecret, SecretRef, is_secret_header};
use tidegate_core::classify::Classifier;
use tidegate_core::hint::HintProfile;
use tidegate_core::lane::LaneConfig;
use tidegate_core::limit::LimitConfig;
use tidegate_pipeline::manifest::{self, Policy};
use tidegate_pipeline::preset::{CallOptions, to_yaml};
use url::Url;

use super::home::{LaneHome, check_state};
use crate::errors;

/// The sections of a manifest that make up a policy.
const SECTIONS: [&str; 4] = ["retry_policy", "rate_limit", "circuit_breaker", "retry_budget"];
/// The timeout of an attempt without a profile.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The deadline of a call.
const DEADLINE: Duration = Duration::from_secs(300);
/// The attempts of a call.
const ATTEMPTS: u32 = 5;

/// What a lane is made of.
pub(crate) struct LaneSettings {
    /// The base of relative URLs; `None` for the lane of a function.
    pub(crate) url: Option<Url>,
    pub(crate) key: LaneKey,
    pub(crate) profile: Option<Profile>,
    pub(crate) policy: Policy,
    pub(crate) lane: LaneConfig,
    pub(crate) classifier: Classifier,
    pub(crate) hints: HintProfile,
    pub(crate) client: ClientConfig,
    pub(crate) credentials: Vec<Credential>,
    pub(crate) secret: Option<NamedSecret>,
    pub(crate) headers: HeaderMap,
    pub(crate) patience: Duration,
    pub(crate) sharing: LaneHome,
}

/// The arguments as they come.
pub(crate) struct LaneArguments<'a, 'py> {
    pub(crate) profile: Option<&'a str>,
    pub(crate) profiles: Option<PathBuf>,
    pub(crate) policy: Option<&'a Bound<'py, PyAny>>,
    pub(crate) key: Option<&'a str>,
    pub(crate) headers: Option<&'a Bound<'py, PyAny>>,
    pub(crate) user_agent: Option<&'a str>,
    pub(crate) patience: Option<&'a Bound<'py, PyAny>>,
    pub(crate) shared: Option<String>,
    pub(crate) state: Option<PathBuf>,
    pub(crate) allow_private: bool,
    pub(crate) allow_hosts: Vec<String>,
}

impl LaneSettings {
    /// The settings of the lane of a service; without a URL, that of the profile.
    pub(crate) fn of_service(
        py: Python<'_>,
        url: Option<&str>,
        from: LaneArguments<'_, '_>,
    ) -> PyResult<LaneSettings> {
        let bad = |why: String| errors::invalid(py, why);
        let profile = from.profile.map(|name| Profiles::one(name, from.profiles.as_deref()));
        let profile = profile.transpose().map_err(|why| bad(why.to_string()))?;
        let base = match (url, &profile) {
            (Some(text), _) => Url::parse(text).map_err(|why| bad(format!("invalid URL {text:?}: {why}")))?,
            (None, Some(profile)) => profile.base_url().map_err(|why| bad(why.to_string()))?,
            (None, None) => return Err(bad("a lane needs a url or a profile".into())),
        };
        let allow = Allow::meant(&base, from.allow_private, &from.allow_hosts);
        allow.url(&base).map_err(|why| {
            bad(format!("{base}: {why}; if you trust it, pass allow_private=True or allow_hosts=[…]"))
        })?;
        let mut client = ClientConfig { allow, ..ClientConfig::default() };
        if let Some(agent) = from.user_agent {
            client.user_agent = agent
                .parse()
                .map_err(|_| bad(format!("user_agent: {agent:?} is not a valid header value")))?;
        }
        if let Some(profile) = &profile {
            client.body.bytes_max = profile.body_bytes_max();
        }
        let secret = from.key.map(secret).transpose().map_err(bad)?;
        let credentials = match &profile {
            Some(profile) => profile.credentials(secret.as_ref()).map_err(|why| bad(why.to_string()))?,
            None if secret.is_some() => {
                return Err(bad(
                    "`key` needs a profile, which says where the key goes; else pass it in `headers`".into(),
                ));
            }
            None => Vec::new(),
        };
        let credential = secret.as_ref().map_or("", |secret| secret.name.as_str());
        let key = LaneKey::of_url(&base, credential);
        let mut settings = LaneSettings::of_key(py, key, profile, &from)?;
        // The rate of a profile is that of its public service.
        if let (None, Some(profile)) = (url, &settings.profile) {
            settings.lane.limit = settings.lane.limit.and(LimitConfig {
                rate_max: Some(profile.rate_per_second()),
                burst: Some(f64::from(profile.burst())),
                in_flight_max: profile.in_flight(),
                learn: false,
            });
            settings.classifier = settings.classifier.for_lane(&settings.lane);
        }
        settings.url = Some(base);
        settings.client = client;
        settings.credentials = credentials;
        settings.secret = secret;
        Ok(settings)
    }

    /// The settings of a lane that sends nothing itself.
    pub(crate) fn of_key(
        py: Python<'_>,
        key: LaneKey,
        profile: Option<Profile>,
        from: &LaneArguments<'_, '_>,
    ) -> PyResult<LaneSettings> {
        let timeout = profile.as_ref().map_or(TIMEOUT, Profile::timeout);
        let policy = policy(py, from.policy, timeout)?;
        let patience = match from.patience {
            Some(given) => span(py, "patience", given)?,
            None => policy.call.deadline,
        };
        if let Some(dir) = &from.state {
            check_state(dir).map_err(|why| errors::invalid(py, why))?;
        }
        // The policy's lists of statuses are authoritative; the profile says what bodies mean.
        let classifier = match &profile {
            Some(profile) if !policy.lists_statuses => profile.classifier(),
            _ => policy.classifier,
        };
        Ok(LaneSettings {
            url: None,
            key,
            hints: profile.as_ref().map(Profile::hints).unwrap_or_default(),
            profile,
            lane: policy.lane,
            classifier: classifier.for_lane(&policy.lane),
            policy,
            client: ClientConfig::default(),
            credentials: Vec::new(),
            secret: None,
            headers: from.headers.map(|given| headers(py, given)).transpose()?.unwrap_or_default(),
            patience,
            sharing: LaneHome { shared: from.shared.clone(), state: from.state.clone() },
        })
    }
}

/// A secret by its reference.
fn secret(name: &str) -> Result<NamedSecret, String> {
    let from: SecretRef =
        name.parse().map_err(|why: tidegate_client::secret::SecretError| why.to_string())?;
    let secret = from.fetch().map_err(|why| why.to_string())?;
    Ok(NamedSecret { name: from.to_string(), secret })
}

/// A duration: seconds, or a text such as `1m30s`.
pub(crate) fn span(py: Python<'_>, name: &str, given: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds = match given.extract::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => given.extract::<String>().ok().and_then(|text| duration::parse(&text)),
    };
    seconds.ok_or_else(|| {
        let said = given.repr().map(|text| text.to_string()).unwrap_or_default();
        errors::invalid(
            py,
            format!("{name}: {said} is not a duration; give seconds, or a text such as \"1m30s\""),
        )
    })
}

/// Headers out of a mapping or pairs. Those that carry secrets are marked, so that no other host gets them.
pub(crate) fn headers(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<HeaderMap> {
    let mut all = HeaderMap::new();
    let pairs = if given.hasattr("items")? { given.call_method0("items")? } else { given.clone() };
    for pair in pairs.try_iter()? {
        let (name, value): (String, String) = pair?.extract()?;
        let header: HeaderName =
            name.parse().map_err(|_| errors::invalid(py, format!("{name:?} is not a valid header name")))?;
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| errors::invalid(py, format!("the value of the header {name} is not valid")))?;
        value.set_sensitive(is_secret_header(&header));
        all.append(header, value);
    }
    Ok(all)
}

/// The policy: that of a file, or the usual one with what `given` says.
pub(crate) fn policy(
    py: Python<'_>,
    given: Option<&Bound<'_, PyAny>>,
    timeout: Duration,
) -> PyResult<Policy> {
    let reject = |why: manifest::Rejection| errors::invalid(py, why.render(false));
    if let Some(given) = given
        && !given.is_instance_of::<PyDict>()
    {
        let path: PathBuf = given.extract().map_err(|_| {
            errors::invalid(py, "`policy` takes a dict, or the path of a manifest or a policy file")
        })?;
        return manifest::load_policy(Path::new(&path)).map_err(reject);
    }
    let options = CallOptions { attempts: ATTEMPTS, timeout, deadline: DEADLINE, in_flight_max: None };
    let mut sections: Map<String, Value> =
        options.sections().into_iter().map(|(name, section)| (name.to_owned(), section)).collect();
    if let Some(given) = given {
        merge(&mut sections, json_of(py, given)?);
    }
    let mut pipeline = Map::new();
    pipeline.insert("id".into(), "policy".into());
    pipeline.insert("tolerance".into(), json!({ "max_null_rate": 0, "halt_on_geometry_invalid": true }));
    pipeline.extend(sections);
    let text = to_yaml(&json!({ "pipeline": pipeline }));
    manifest::from_bytes("policy", text.as_bytes()).map(|manifest| Policy::from(&manifest)).map_err(reject)
}

/// A Python value as JSON.
fn json_of(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<Map<String, Value>> {
    let bad = |why: String| errors::invalid(py, format!("policy: {why}"));
    let text = py.import("json")?.call_method1("dumps", (given,)).map_err(|why| bad(why.to_string()))?;
    serde_json::from_str(&text.extract::<String>()?).map_err(|why| bad(why.to_string()))
}

/// Puts the user's settings over the usual ones. Without the name of a section they are a `retry_policy`.
fn merge(sections: &mut Map<String, Value>, given: Map<String, Value>) {
    let named = given.keys().any(|key| SECTIONS.contains(&key.as_str()));
    let given =
        if named { given } else { Map::from_iter([("retry_policy".to_owned(), Value::Object(given))]) };
    for (name, section) in given {
        match (sections.get_mut(&name), section) {
            (Some(Value::Object(usual)), Value::Object(section)) => {
                for (key, value) in section {
                    // A duration has two spellings, of which one may be given.
                    let plain = key.strip_suffix("_seconds").unwrap_or(&key).to_owned();
                    usual.remove(&format!("{plain}_seconds"));
                    usual.insert(key, value);
                }
            }
            (_, section) => {
                sections.insert(name, section);
            }
        }
    }
}
