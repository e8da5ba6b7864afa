//! Checks the remote services of a manifest, with one request for each URL.

use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::bucket::{BucketAddress, Cloud};
use tidegate_core::call::CallPolicy;
use tidegate_core::hint::{self, HintProfile, Hints};
use tidegate_core::lane::LaneConfig;
use tidegate_core::signal::Network;
use tidegate_core::{Rng, VerdictKind};
use url::Url;

use super::{Diagnosis, HealthLevel};
use crate::http::{
    Allow, Client, ClientConfig, Exchange, HttpFailure, Request, Response, ServiceDialect, Trace,
};
use crate::lane::{Clock, Lanes};
use crate::manifest::{Bucket, Manifest, ServiceSpec};
use crate::profile::{Profile, Profiles};
use crate::secret::Redactor;

/// The clock difference, in milliseconds, above which dates in headers are misleading.
const SKEW_MS: i64 = 2_000;
/// The share of a quota, from 0 to 1, below which the rest is reported as low.
const LEFT: f64 = 0.1;

/// A request to make.
struct ProbeTarget {
    /// Its label: `service geo`, `source`, `sink bucket`.
    label: String,
    /// Whether it is the source.
    source: bool,
    /// Whether its address may be private.
    private: bool,
    /// The URL, and how its rate-limit headers are read.
    at: Result<(Url, HintProfile), String>,
    /// The HTTP method: a file is not downloaded to see whether it exists.
    method: http::Method,
}

/// Checks all remote services of a manifest; returns also whether its source answers.
pub(super) fn services(manifest: &Manifest) -> (Vec<Diagnosis>, bool) {
    let (mut found, mut answers) = (Vec::new(), true);
    for place in places(manifest) {
        let check = |what: &str| format!("{}: {what}", place.label);
        let own = match &place.at {
            Ok((url, hints)) => ask(&check, url, (place.private, &place.method), hints.clone()),
            Err(e) => vec![Diagnosis::fail(check("profile"), e, "see `tidegate profiles ls`")],
        };
        answers &= !place.source || own.iter().all(|finding| finding.health != HealthLevel::Fail);
        found.extend(own);
    }
    (found, answers)
}

fn places(manifest: &Manifest) -> Vec<ProbeTarget> {
    let pipeline = &manifest.pipeline;
    let source = pipeline.source.as_ref();
    let of_source = |name: &String| source.is_some_and(|source| source.service.as_ref() == Some(name));
    let mut all: Vec<ProbeTarget> = pipeline
        .services
        .iter()
        .map(|(name, service)| ProbeTarget {
            label: format!("service {name}"),
            source: of_source(name),
            private: service.allow_private,
            at: address(service, of_source(name)),
            method: http::Method::GET,
        })
        .collect();
    let file = source.filter(|source| source.service.is_none()).and_then(|source| source.file.as_deref());
    if let Some(url) = file.filter(|file| file.starts_with("http")).and_then(|file| Url::parse(file).ok()) {
        let profile = crate::source::file::profile().map_err(|e| e.message);
        let at = profile.map(|profile| (url, profile.hints()));
        let label = "source".to_owned();
        all.push(ProbeTarget { label, source: true, private: false, at, method: http::Method::HEAD });
    }
    let none = Bucket::default();
    let buckets = [
        ("source", source.and_then(|source| Some((source.file.as_ref()?, source.store.as_ref())))),
        ("sink", pipeline.sink.as_ref().and_then(|sink| Some((sink.file.as_ref()?, sink.store.as_ref())))),
    ];
    for (name, bucket) in buckets {
        let Some((file, store)) = bucket else { continue };
        let Some(at) = BucketAddress::parse(file) else { continue };
        let store = store.unwrap_or(&none);
        let home = match at.cloud {
            Cloud::S3 => {
                format!("https://s3.{}.amazonaws.com", store.region.as_deref().unwrap_or("us-east-1"))
            }
            Cloud::Azure => {
                format!("https://{}.blob.core.windows.net", store.account.as_deref().unwrap_or("azure"))
            }
            Cloud::Gcs => "https://storage.googleapis.com".to_owned(),
        };
        let url = Url::parse(store.endpoint.as_deref().unwrap_or(&home)).map_err(|e| e.to_string());
        let hints =
            Profiles::embedded_one(at.cloud.profile()).and_then(Result::ok).map(|profile| profile.hints());
        all.push(ProbeTarget {
            label: format!("{name} bucket"),
            source: name == "source",
            private: store.allow_private,
            at: url.map(|url| (url, hints.unwrap_or_default())),
            method: http::Method::HEAD,
        });
    }
    all
}

/// The URL of a service, and how its rate-limit headers are read.
fn address(service: &ServiceSpec, source: bool) -> Result<(Url, HintProfile), String> {
    let profile = match &service.profile {
        Some(name) => Some(
            Profiles::one(name, service.profiles.as_deref().map(std::path::Path::new))
                .map_err(|e| e.to_string())?,
        ),
        None => None,
    };
    let hints = profile.as_ref().map(Profile::hints).unwrap_or_default();
    let url = match (&service.url, &profile) {
        // A layer has its own URL; the profile of a source has none.
        (Some(url), _) if source => Url::parse(url).map_err(|e| format!("{url}: {e}"))?,
        (Some(url), Some(profile)) => {
            profile.at(url).map_err(|e| e.to_string())?.base_url().map_err(|e| e.to_string())?
        }
        (Some(url), None) => Url::parse(url).map_err(|e| format!("{url}: {e}"))?,
        (None, Some(profile)) => profile.base_url().map_err(|e| e.to_string())?,
        (None, None) => return Err("it has neither `profile` nor `url`".into()),
    };
    Ok((url, hints))
}

fn ask(
    check: &dyn Fn(&str) -> String,
    url: &Url,
    (private, method): (bool, &http::Method),
    hints: HintProfile,
) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    let host = url.host_str().unwrap_or_default().to_owned();
    let port = url.port_or_known_default().unwrap_or(443);
    match (host.trim_matches(['[', ']']), port).to_socket_addrs() {
        Ok(all) => {
            let all: Vec<String> = all.map(|address| address.ip().to_string()).collect();
            found.push(Diagnosis::ok(check("name"), format!("{host} resolves to {}", all.join(", "))));
        }
        Err(e) => {
            let next = "check the spelling of the host name and the DNS settings of this machine";
            found
                .push(Diagnosis::fail(check("name"), format!("{host} does not resolve: {e}"), next).theirs());
            return found;
        }
    }
    match once(url, (private, method), hints) {
        Ok((response, hints, kind)) => {
            let secure = if url.scheme() == "https" { "trusted certificate" } else { "no encryption" };
            let status = response.status.as_u16();
            let said = format!("{} responds with {status}, {secure}", url.origin().ascii_serialization());
            found.push(match kind {
                VerdictKind::Throttled { .. } | VerdictKind::QuotaSpent { .. } => {
                    let wait =
                        hints.throttle_wait().map_or_else(String::new, |w| format!(" for {} s", w.as_secs()));
                    Diagnosis::fail(
                        check("answer"),
                        format!("{said}: it asks to wait{wait}"),
                        "try again later",
                    )
                    .theirs()
                }
                _ if status >= 500 => {
                    Diagnosis::warn(check("answer"), said, "the service may be down; a run waits and retries")
                        .theirs()
                }
                _ if url.scheme() != "https" && !is_loopback(url) => Diagnosis::warn(
                    check("answer"),
                    said,
                    "use https if the service supports it: keys are sent unencrypted",
                ),
                _ => Diagnosis::ok(check("answer"), said),
            });
            found.push(clock(check, &hints));
            found.push(quota(check, &hints));
        }
        Err(failure) => {
            let next = match &failure {
                HttpFailure::Forbidden(_) => {
                    "if this address is intended, set `allow_private: true` on the service"
                }
                HttpFailure::Network(Network::Tls, _) => {
                    "check the clock of this machine and the certificate issuer"
                }
                HttpFailure::Network(..) => {
                    "check that the service is running and that no firewall or proxy blocks it"
                }
                _ => "check the URL of the service",
            };
            let own = matches!(failure, HttpFailure::Forbidden(_));
            let finding = Diagnosis::fail(check("answer"), format!("{url}: {failure}"), next);
            found.push(if own { finding } else { finding.theirs() });
        }
    }
    found
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn clock(check: &dyn Fn(&str) -> String, hints: &Hints) -> Diagnosis {
    match hints.clock_offset_ms {
        Some(ms) if ms.abs() > SKEW_MS => Diagnosis::warn(
            check("clock"),
            format!(
                "its clock is {} s {} this machine",
                ms.abs() / 1000,
                if ms > 0 { "ahead of" } else { "behind" }
            ),
            "synchronize the clock of this machine with NTP; if it is correct, the clock of the service is wrong, and waits given as dates are too",
        ),
        // A date in whole seconds is not more precise.
        Some(_) => Diagnosis::ok(check("clock"), "agrees with this machine within 2 s"),
        None => Diagnosis::ok(check("clock"), "the service sends no Date header"),
    }
}

fn quota(check: &dyn Fn(&str) -> String, hints: &Hints) -> Diagnosis {
    let Some(quota) = hints.quotas.iter().flatten().next() else {
        return Diagnosis::ok(check("quota"), "no rate limit headers; the limit will be learned");
    };
    let number = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let window = quota.window.map_or_else(String::new, |w| format!(" in {} s", w.as_secs_f64()));
    let reset = quota.reset.map_or_else(String::new, |r| format!(", resets in {} s", r.as_secs()));
    let said = format!("{} of {} calls left{window}{reset}", number(quota.remaining), number(quota.limit));
    let low =
        quota.remaining.zip(quota.limit).is_some_and(|(left, limit)| (left as f64) < limit as f64 * LEFT);
    match quota.remaining {
        Some(0) => {
            Diagnosis::warn(check("quota"), said, "a run would wait until then; start it later").theirs()
        }
        _ if low => {
            Diagnosis::warn(check("quota"), said, "a run adapts to this; its plan shows how long it takes")
        }
        _ => Diagnosis::ok(check("quota"), said),
    }
}

/// Makes one call, without retries.
fn once(
    url: &Url,
    (private, method): (bool, &http::Method),
    hints: HintProfile,
) -> Result<(Response, Hints, VerdictKind), HttpFailure> {
    let broken = |e: &dyn std::fmt::Display| HttpFailure::Malformed(e.to_string());
    let allow = Allow::meant(url, private, &[]);
    allow.url(url)?;
    let client = Client::new(ClientConfig { allow, ..ClientConfig::default() }, [url])
        .map_err(|why| HttpFailure::Network(Network::Tls, why.to_string()))?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| broken(&e))?;
    let dialect: ServiceDialect<()> = ServiceDialect { hints: hints.clone(), ..ServiceDialect::default() };
    let policy = CallPolicy {
        attempts_max: 1,
        deadline: Duration::from_secs(10),
        attempt_timeout: Duration::from_secs(10),
        ..CallPolicy::default()
    };
    let clock = Clock::system();
    let exchange = Exchange {
        client,
        lanes: Lanes::new(&LaneConfig::default(), clock),
        dialect,
        policy,
        redactor: Arc::new(Redactor::new()),
        trace: Trace::Off,
    };
    let request = Request::new(method.clone(), url.clone(), Bytes::new());
    let outcome = runtime.block_on(exchange.call(&request, Rng::new(1)));
    match outcome.value {
        Some(Ok(answer)) => {
            let hints = hint::read(&answer.response.headers, clock.wall(), &hints);
            Ok((answer.response, hints, outcome.verdict.kind))
        }
        Some(Err(failure)) => Err(failure),
        None => Err(HttpFailure::Network(Network::Timeout, format!("no response: {}", outcome.verdict.code))),
    }
}
