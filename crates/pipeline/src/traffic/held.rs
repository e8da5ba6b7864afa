//! The limits of each lane of a manifest.
//!
//! They are determined before the first call, because the first user of a lane creates it: a source
//! that may make ten calls per second must not create it for a step on the same service that may
//! make two.

use std::collections::BTreeSet;
use std::path::Path;

use tidegate_core::lane::LaneConfig;
use tidegate_core::limit::LimitConfig;
use url::Url;

use crate::lane::LaneKey;
use crate::manifest::{Manifest, Policy, ServiceSpec};
use crate::profile::form::Repeat;
use crate::profile::{Profile, Profiles};
use crate::source::{ServiceKind, file};

/// The lane of a service that is a source: its pages are large, and its profile says how many it
/// can produce concurrently, unless the source says so.
pub(crate) fn of_source(
    policy: &Policy,
    form: &ServiceSpec,
    profile: &Profile,
    at_once: Option<u32>,
) -> LaneConfig {
    let mut lane = told(policy, form);
    let most = at_once.unwrap_or(profile.in_flight());
    lane.limit.in_flight_max = lane.limit.in_flight_max.min(most).max(1);
    lane
}

/// The lane of a service that a step calls. The rate of a profile is that of its public service;
/// for another URL the lane learns the rate.
pub(crate) fn of_step(policy: &Policy, form: &ServiceSpec, profile: Option<&Profile>) -> LaneConfig {
    let mut lane = told(policy, form);
    if let (None, Some(profile)) = (&form.url, profile) {
        let own = form.requests_per_second.is_none();
        lane.limit = lane.limit.and(LimitConfig {
            rate_max: own.then(|| profile.rate_per_second()),
            burst: own.then(|| f64::from(profile.burst())),
            in_flight_max: profile.in_flight(),
            learn: false,
        });
    }
    lane
}

fn told(policy: &Policy, form: &ServiceSpec) -> LaneConfig {
    let mut lane = policy.lane;
    lane.limit.rate_max = form.requests_per_second.or(lane.limit.rate_max);
    lane
}

/// A use of a lane.
pub(crate) struct Use {
    /// The name of the service, or the host of a file.
    pub(crate) service: String,
    /// Whether the source uses it, not a step.
    pub(crate) source: bool,
    /// The service that it is the fallback of.
    pub(crate) fallback_of: Option<String>,
    /// The key of the lane.
    pub(crate) key: LaneKey,
    /// The limits of this use.
    pub(crate) lane: LaneConfig,
    /// The policy of its calls.
    pub(crate) policy: Policy,
    /// The profile of the service.
    pub(crate) profile: Option<Profile>,
}

/// The uses of lanes by source and steps of a manifest. Errors are skipped here and reported where
/// the service is used.
pub(crate) fn uses(manifest: &Manifest) -> Vec<Use> {
    let pipeline = &manifest.pipeline;
    let mut all: Vec<Use> = source(manifest).into_iter().collect();
    for step in &pipeline.steps {
        let asks = step.geocode.as_ref().map(|geocode| (&geocode.service, true));
        let asks = asks.or(step.http.as_ref().map(|http| (&http.service, false)));
        let Some((called, geocodes)) = asks else { continue };
        let fallbacks = pipeline.services.get(called).map(|form| form.fallback.as_slice());
        let names = std::iter::once(called).chain(fallbacks.unwrap_or_default());
        let found = names.filter_map(|name| Some((name, pipeline.services.get(name)?)));
        all.extend(found.filter_map(|(name, form)| {
            let fallback_of = (name != called).then(|| called.clone());
            of_called(manifest, (name, form), geocodes, fallback_of)
        }));
    }
    all
}

/// The use of a service by a step.
fn of_called(
    manifest: &Manifest,
    (name, form): (&str, &ServiceSpec),
    geocodes: bool,
    fallback_of: Option<String>,
) -> Option<Use> {
    let profile = named(form);
    let url = match (&form.url, &profile) {
        (Some(url), _) => Url::parse(url).ok()?,
        (None, Some(profile)) => profile.base_url().ok()?,
        (None, None) => return None,
    };
    let has_auth = profile.as_ref().is_none_or(|profile| profile.form().auth.is_some());
    // An `http` step sends a key even if the profile of the service does not mention one.
    let keyed = has_auth || !geocodes;
    let policy = Policy::of_service(manifest, form);
    let (key, lane) = (key(&url, form, keyed), of_step(&policy, form, profile.as_ref()));
    Some(Use { service: name.to_owned(), source: false, fallback_of, key, lane, policy, profile })
}

/// The services that bill each call: by their profile, or because the manifest has a price.
pub(super) fn billed(manifest: &Manifest) -> BTreeSet<String> {
    let bills = |form: &ServiceSpec| {
        let by_profile = || named(form).is_some_and(|profile| profile.form().repeat == Some(Repeat::Billed));
        form.price_per_thousand.is_some_and(|price| price > 0.0) || by_profile()
    };
    let services = manifest.pipeline.services.iter();
    services.filter(|(_, form)| bills(form)).map(|(name, _)| name.clone()).collect()
}

fn source(manifest: &Manifest) -> Option<Use> {
    let pipeline = &manifest.pipeline;
    let source = pipeline.source.as_ref()?;
    let none = ServiceSpec::default();
    let form = source.service.as_ref().and_then(|name| pipeline.services.get(name)).unwrap_or(&none);
    let url = Url::parse(source.file.as_ref().or(form.url.as_ref())?).ok()?;
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    let profile = match &source.file {
        Some(_) => file::profile().ok()?,
        None => of(form, &url)?,
    };
    let service = source.service.as_deref().or(url.host_str()).unwrap_or_default().to_owned();
    let at_once = source.paging.as_ref().and_then(|paging| paging.at_once);
    let policy = Policy::of_service(manifest, form);
    let lane = of_source(&policy, form, &profile, at_once);
    let key = key(&url, form, profile.form().auth.is_some());
    Some(Use { service, source: true, fallback_of: None, key, lane, policy, profile: Some(profile) })
}

fn key(url: &Url, form: &ServiceSpec, keyed: bool) -> LaneKey {
    LaneKey::of_url(url, form.key.as_deref().filter(|_| keyed).unwrap_or_default())
}

fn named(form: &ServiceSpec) -> Option<Profile> {
    let own = form.profiles.as_deref().map(Path::new);
    form.profile.as_ref().and_then(|name| Profiles::one(name, own).ok())
}

fn of(form: &ServiceSpec, url: &Url) -> Option<Profile> {
    named(form).or_else(|| ServiceKind::of_url(url)?.profile().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(parts: &str) -> Manifest {
        let text = format!(
            "pipeline:\n  id: x\n  retry_policy: {{ max_attempts: 3, base_delay: 1s, retryable_status_codes: [429] }}\n  \
             tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: false }}\n{parts}"
        );
        crate::manifest::from_bytes("test", text.as_bytes()).unwrap_or_else(|e| panic!("{}", e.render(false)))
    }

    #[test]
    fn source_and_steps_on_one_host_and_key_have_one_lane() {
        let manifest = manifest(
            "  services:
    far: { url: \"https://a.test/wfs\", profile: geoserver-wfs, key: env:K, requests_per_second: 9 }
    near: { url: \"https://a.test/items\", key: env:K, requests_per_second: 4 }
    else: { url: \"https://a.test/items\", key: env:L }
  source: { service: far }
  steps:
    - http: { service: near, path: \"/1\", take: { a: /a } }
    - http: { service: else, path: \"/1\", take: { b: /b } }
  sink: { file: a.gpkg }
",
        );
        let uses = uses(&manifest);
        let rates: Vec<_> = uses.iter().map(|of| (of.key.to_string(), of.lane.limit.rate_max)).collect();
        assert_eq!(
            rates,
            [
                ("https://a.test as env:K".to_owned(), Some(9.0)),
                ("https://a.test as env:K".to_owned(), Some(4.0)),
                ("https://a.test as env:L".to_owned(), None),
            ]
        );
    }

    #[test]
    fn a_public_service_is_asked_no_faster_than_its_profile_says() {
        let of = |service: &str| {
            let manifest = manifest(&format!(
                "  services: {{ g: {{ profile: nominatim, user_agent: x{service} }} }}\n  source: {{ file: a.csv }}\n  \
                 steps:\n    - geocode: {{ service: g, address: [a] }}\n  sink: {{ file: a.gpkg }}\n"
            ));
            uses(&manifest)[0].lane.limit
        };
        assert_eq!((of("").rate_max, of("").burst), (Some(1.0), Some(1.0)));
        assert_eq!(of(", requests_per_second: 0.5").rate_max, Some(0.5));
        // The rate of another server is learned.
        assert_eq!(of(", url: \"http://127.0.0.1:9\"").rate_max, None);
    }
}
