//! Stores on the network: where they are, and who we are there.
//!
//! | cloud | credentials that are given | and found in the environment |
//! |---|---|---|
//! | S3 | access key, secret key, session token | `AWS_ACCESS_KEY_ID` …, else `AWS_WEB_IDENTITY_TOKEN_FILE` |
//! | Azure | account key or SAS token | `AZURE_STORAGE_KEY`, `AZURE_STORAGE_SAS_TOKEN`, else a service principal |
//! | Google | the JSON of a service account | `GOOGLE_APPLICATION_CREDENTIALS` |
//!
//! Credentials are references to the environment or to files. Those that expire are fetched and
//! renewed by [`renew`]. Without any, requests are not signed, as for public buckets. The metadata
//! services of containers and instances are queried only if they are named: on another machine their
//! addresses may belong to anybody.

mod azure;
mod gcs;
mod identity;
mod jwt;
pub(super) mod renew;
mod s3;
mod service;

pub use service::{CloudFault, CloudRequest, CloudService, ErrorReader, NO_ANSWER};

use super::Backend;
use super::wire::StoreTransport;
use crate::http::address::Addresses;
use crate::http::{Allow, Client, ClientConfig};
use crate::lane::Clock;
use crate::profile::Profile;
use crate::secret::{Secret, SecretRef};
use crate::store::{CloudSettings, OpenError};
use object_store::RetryConfig;
use renew::CredentialWatch;
use std::sync::Arc;
use tidegate_core::bucket::{Cloud, CredentialSource};
use url::{Host, Url};

/// What every kind of store is built from.
struct Site<'a> {
    settings: &'a CloudSettings,
    profile: &'a Profile,
    clock: Clock,
}

impl Site<'_> {
    /// The endpoint, or the one of the cloud.
    fn endpoint(&self, default: &str) -> Result<Url, OpenError> {
        let endpoint = match &self.settings.endpoint {
            Some(url) => url.clone(),
            None => Url::parse(default).map_err(|_| wrong(format!("{default} is not a URL")))?,
        };
        if !endpoint.username().is_empty() || endpoint.password().is_some() || endpoint.query().is_some() {
            return Err(wrong(
                "the endpoint must not contain credentials or a query; pass keys as env:NAME or file:PATH",
            ));
        }
        Ok(endpoint)
    }

    /// The transport to an endpoint; `watch` follows credentials that can be renewed.
    fn transport(
        &self,
        endpoint: &Url,
        watch: Option<Arc<CredentialWatch>>,
    ) -> Result<StoreTransport, OpenError> {
        Ok(StoreTransport {
            client: client(endpoint, self.settings.private)?,
            profile: Arc::new(self.profile.clone()),
            hints: self.profile.hints(),
            clock: self.clock,
            watch,
        })
    }

    /// The credential services that this cloud has.
    fn refuse(&self, cloud: &str) -> OpenError {
        wrong(format!("{cloud} has no credentials of the kind `{}`", self.settings.credentials))
    }
}

/// The bucket of an address.
pub(super) fn bucket(
    cloud: Cloud,
    name: &str,
    settings: &CloudSettings,
    profile: &Profile,
    clock: Clock,
) -> Result<Backend, OpenError> {
    if !is_name(name) {
        return Err(wrong("a bucket can contain only letters, digits, `-`, `.`, `_` and `$`"));
    }
    let s3 = settings.secret_key.is_some() || settings.session_token.is_some() || settings.region.is_some();
    for (given, option, of) in [
        (s3, "a secret key, a session token or a region", Cloud::S3),
        (
            settings.account.is_some() || settings.sas_token.is_some(),
            "an account or a SAS token",
            Cloud::Azure,
        ),
        (settings.service_account.is_some(), "a service account", Cloud::Gcs),
    ] {
        if given && of != cloud {
            return Err(wrong(format!("{option} is for {}://, not for {}://", of.scheme(), cloud.scheme())));
        }
    }
    let site = Site { settings, profile, clock };
    match cloud {
        Cloud::S3 => s3::backend(&site, name),
        Cloud::Azure => azure::backend(&site, name),
        Cloud::Gcs => gcs::backend(&site, name),
    }
}

fn wrong(why: impl Into<String>) -> OpenError {
    OpenError::Setting(why.into())
}

fn is_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'$');
    !text.is_empty() && text.bytes().all(plain)
}

/// The library's retries are off: ours decide.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn fetched(from: Option<&SecretRef>) -> Result<Option<Secret>, OpenError> {
    Ok(from.map(SecretRef::fetch).transpose()?)
}

/// A variable of the environment that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A reference to the first of these variables that is set.
fn secret_variable(names: &[&str]) -> Option<SecretRef> {
    names.iter().find(|name| variable(name).is_some()).map(|name| SecretRef::Env((*name).to_owned()))
}

/// A variable that a credential source needs.
fn needed(name: &str, source: CredentialSource) -> Result<String, OpenError> {
    variable(name)
        .ok_or_else(|| wrong(format!("credentials `{source}` need the environment variable {name}")))
}

/// A client that may request only this endpoint.
fn client(endpoint: &Url, private: bool) -> Result<Client, OpenError> {
    let host = endpoint.host().ok_or_else(|| wrong("the endpoint has no host"))?;
    let (private, exact) = match host {
        Host::Ipv4(v4) => (private, vec![v4.into()]),
        Host::Ipv6(v6) => (private, vec![v6.into()]),
        Host::Domain(name) => (private || name == "localhost", Vec::new()),
    };
    let name = endpoint.host_str().unwrap_or_default().trim_end_matches('.').to_owned();
    let port = endpoint.port_or_known_default().unwrap_or_default();
    let allow = Allow { hosts: vec![format!("{name}:{port}")], addresses: Addresses { private, exact } };
    allow.url(endpoint).map_err(|why| wrong(why.to_string()))?;
    let config = ClientConfig { allow, ..ClientConfig::default() };
    Client::new(config, [endpoint]).map_err(|e| wrong(e.to_string()))
}
