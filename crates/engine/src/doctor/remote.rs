//! The services that a manifest names: each is asked once, for its address and nothing behind it.

use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::call::CallPolicy;
use tidegate_core::hint::{self, HintProfile, Hints};
use tidegate_core::lane::LaneConfig;
use tidegate_core::signal::Network;
use tidegate_core::{Kind, Rng};
use url::Url;

use super::Finding;
use crate::http::{Allow, Client, ClientConfig, Dialect, Exchange, Failure, Request, Response, Trace};
use crate::lane::{Clock, Lanes};
use crate::manifest::{Manifest, Service};
use crate::profile::{Profile, Profiles};
use crate::secret::Redactor;

/// A clock that is further off than this makes dates in headers mean something else.
const SKEW_MS: i64 = 2_000;
/// A quota with less than this share left is worth a word.
const LEFT: f64 = 0.1;

/// Looks at every service of a manifest.
pub(super) fn services(manifest: &Manifest) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, service) in &manifest.pipeline.services {
        let check = |what: &str| format!("service {name}: {what}");
        match address(service) {
            Ok((url, hints)) => found.extend(ask(&check, &url, service.allow_private, hints)),
            Err(e) => found.push(Finding::fail(check("profile"), e, "see `tidegate profiles ls`")),
        }
    }
    found
}

/// Where a service is, and how it speaks in headers.
fn address(service: &Service) -> Result<(Url, HintProfile), String> {
    let profile = match &service.profile {
        Some(name) => Some(Profiles::embedded().map_err(|e| e.to_string())?.get(name)?.clone()),
        None => None,
    };
    let hints = profile.as_ref().map(Profile::hints).unwrap_or_default();
    let url = match (&service.url, &profile) {
        (Some(url), Some(profile)) => profile.at(url)?.base_url()?,
        (Some(url), None) => Url::parse(url).map_err(|e| format!("{url}: {e}"))?,
        (None, Some(profile)) => profile.base_url()?,
        (None, None) => return Err("it names neither `profile` nor `url`".into()),
    };
    Ok((url, hints))
}

fn ask(check: &dyn Fn(&str) -> String, url: &Url, private: bool, hints: HintProfile) -> Vec<Finding> {
    let mut found = Vec::new();
    let host = url.host_str().unwrap_or_default().to_owned();
    let port = url.port_or_known_default().unwrap_or(443);
    match (host.trim_matches(['[', ']']), port).to_socket_addrs() {
        Ok(all) => {
            let all: Vec<String> = all.map(|address| address.ip().to_string()).collect();
            found.push(Finding::ok(check("name"), format!("{host} is {}", all.join(", "))));
        }
        Err(e) => {
            let next = "is the name spelt right, and does this machine reach its name server?";
            found.push(Finding::fail(check("name"), format!("{host} does not resolve: {e}"), next).theirs());
            return found;
        }
    }
    match once(url, private, hints) {
        Ok((response, hints, kind)) => {
            let secure = if url.scheme() == "https" { "a trusted certificate" } else { "no encryption" };
            let status = response.status.as_u16();
            let said = format!("{} answers {status}, {secure}", url.origin().ascii_serialization());
            found.push(match kind {
                Kind::Throttled { .. } | Kind::QuotaSpent { .. } => {
                    let wait =
                        hints.throttle_wait().map_or_else(String::new, |w| format!(" for {} s", w.as_secs()));
                    Finding::fail(check("answer"), format!("{said}: it wants no calls{wait}"), "try later")
                        .theirs()
                }
                _ if status >= 500 => Finding::warn(
                    check("answer"),
                    said,
                    "the service may be down; a run waits and tries again",
                )
                .theirs(),
                _ if url.scheme() != "https" && !is_loopback(url) => Finding::warn(
                    check("answer"),
                    said,
                    "use https if the service has it: keys travel in the clear",
                ),
                _ => Finding::ok(check("answer"), said),
            });
            found.push(clock(check, &hints));
            found.push(quota(check, &hints));
        }
        Err(failure) => {
            let next = match &failure {
                Failure::Forbidden(_) => "set `allow_private: true` on the service if that address is meant",
                Failure::Network(Network::Tls, _) => {
                    "is the clock of this machine right, and does it trust the issuer of the certificate?"
                }
                Failure::Network(..) => "is the service up, and does a firewall or proxy stand in between?",
                _ => "is that the address of the service?",
            };
            let own = matches!(failure, Failure::Forbidden(_));
            let finding = Finding::fail(check("answer"), format!("{url}: {failure}"), next);
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

fn clock(check: &dyn Fn(&str) -> String, hints: &Hints) -> Finding {
    match hints.clock_offset_ms {
        Some(ms) if ms.abs() > SKEW_MS => Finding::warn(
            check("clock"),
            format!("its clock is {} s {} ours", ms.abs() / 1000, if ms > 0 { "ahead of" } else { "behind" }),
            "set the clock of this machine by NTP; if it is right, theirs is not, and waits are taken from their dates",
        ),
        // A date in whole seconds says no more than this.
        Some(_) => Finding::ok(check("clock"), "agrees with ours within 2 s"),
        None => Finding::ok(check("clock"), "it sends no date"),
    }
}

fn quota(check: &dyn Fn(&str) -> String, hints: &Hints) -> Finding {
    let Some(quota) = hints.quotas.iter().flatten().next() else {
        return Finding::ok(check("quota"), "its headers tell none; the pace will be learned");
    };
    let number = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let window = quota.window.map_or_else(String::new, |w| format!(" in {} s", w.as_secs_f64()));
    let reset = quota.reset.map_or_else(String::new, |r| format!(", whole again in {} s", r.as_secs()));
    let said = format!("{} of {} calls left{window}{reset}", number(quota.remaining), number(quota.limit));
    let low =
        quota.remaining.zip(quota.limit).is_some_and(|(left, limit)| (left as f64) < limit as f64 * LEFT);
    match quota.remaining {
        Some(0) => {
            Finding::warn(check("quota"), said, "a run waits until then; start it later to spare the wait")
                .theirs()
        }
        _ if low => Finding::warn(
            check("quota"),
            said,
            "a run paces itself by that; `tidegate plan` says how long it takes",
        ),
        _ => Finding::ok(check("quota"), said),
    }
}

/// One call, without a second one.
fn once(url: &Url, private: bool, hints: HintProfile) -> Result<(Response, Hints, Kind), Failure> {
    let broken = |e: &dyn std::fmt::Display| Failure::Malformed(e.to_string());
    let allow = Allow::meant(url, private, &[]);
    allow.url(url)?;
    let client = Client::new(ClientConfig { allow, ..ClientConfig::default() }).map_err(|e| {
        Failure::Network(Network::Tls, format!("the system's certificates cannot be used: {e}"))
    })?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| broken(&e))?;
    let dialect: Dialect<()> = Dialect { hints: hints.clone(), ..Dialect::default() };
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
    let outcome = runtime.block_on(exchange.call(&Request::get(url.clone()), Rng::new(1)));
    match outcome.value {
        Some(Ok(answer)) => {
            let hints = hint::read(&answer.response.headers, clock.wall(), &hints);
            Ok((answer.response, hints, outcome.verdict.kind))
        }
        Some(Err(failure)) => Err(failure),
        None => Err(Failure::Network(Network::Timeout, format!("no answer: {}", outcome.verdict.code))),
    }
}
