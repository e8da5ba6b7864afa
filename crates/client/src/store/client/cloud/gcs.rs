//! Google Cloud Storage, as a service account or as the instance.

use super::identity::CredentialService;
use super::renew::{Issued, RenewingCredential};
use super::{CredentialSource, Site, fetched, no_retries, variable, wrong};
use crate::lane::Clock;
use crate::secret::{SecretRef, issued};
use crate::store::OpenError;
use crate::store::client::Backend;
use http::Method;
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use object_store::{ClientOptions, StaticCredentialProvider};
use std::sync::Arc;
use url::Url;

pub(super) const VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

pub(super) type GcsIdentity = RenewingCredential<GcpCredential>;

pub(super) fn backend(site: &Site<'_>, bucket: &str) -> Result<Backend, OpenError> {
    let settings = site.settings;
    if settings.access_key.is_some() {
        return Err(wrong(
            "gs:// takes a service account; for HMAC keys use s3:// with the endpoint https://storage.googleapis.com",
        ));
    }
    let endpoint = site.endpoint("https://storage.googleapis.com")?;
    let usual = || variable(VARIABLE).map(|path| SecretRef::File(path.into()));
    let environment = settings.credentials == CredentialSource::Environment;
    let from = settings.service_account.clone().or_else(|| environment.then(usual).flatten());
    let account = fetched(from.as_ref())?;
    let identity = match settings.credentials {
        _ if account.is_some() => None,
        CredentialSource::Given | CredentialSource::Environment => None,
        CredentialSource::Instance => Some(instance(site.clock)?),
        CredentialSource::WebIdentity | CredentialSource::Container => return Err(site.refuse("gs://")),
    };
    let builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name(bucket)
        .with_base_url(endpoint.as_str().trim_end_matches('/'))
        .with_client_options(ClientOptions::new().with_allow_http(endpoint.scheme() == "http"))
        .with_retry(no_retries())
        .with_http_connector(site.transport(&endpoint, identity.as_ref().map(GcsIdentity::watch))?);
    let builder = match (account, identity) {
        (Some(account), _) => {
            let what = from.map(|from| from.to_string()).unwrap_or_default();
            service_account(account.reveal(), &what)?;
            builder.with_service_account_key(account.reveal())
        }
        (None, Some(identity)) => builder.with_credentials(Arc::new(identity)),
        // An empty credential, so that the library looks for none.
        (None, None) => {
            let none = StaticCredentialProvider::new(GcpCredential { bearer: String::new() });
            builder.with_skip_signature(true).with_credentials(Arc::new(none))
        }
    };
    let gcs = builder.build().map_err(|_| {
        wrong("the bucket cannot be addressed, or the private key of the service account cannot be used")
    })?;
    let gcs = Arc::new(gcs);
    Ok(Backend {
        objects: gcs.clone(),
        parts: Some(gcs.clone()),
        pages: Some(gcs),
        renames: false,
        suffixes: true,
    })
}

/// Checks that a file of credentials is one of a service account. Its content is not quoted.
pub(super) fn service_account(text: &str, from: &str) -> Result<(), OpenError> {
    let json: serde_json::Value = serde_json::from_str(text)
        .map_err(|_| wrong(format!("{from} is not the JSON of a service account")))?;
    match json.get("type").and_then(serde_json::Value::as_str) {
        Some("service_account") => Ok(()),
        Some(other) if other.len() < 40 => Err(wrong(format!(
            "{from} holds credentials of the type {other:?}; only service_account is supported"
        ))),
        _ => Err(wrong(format!("{from} is not the JSON of a service account"))),
    }
}

/// The service account of the instance on which this runs.
pub(super) fn instance(clock: Clock) -> Result<GcsIdentity, OpenError> {
    let host = variable("GCE_METADATA_HOST").unwrap_or_else(|| "169.254.169.254".to_owned());
    let at = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token");
    let url = Url::parse(&at).map_err(|e| wrong(format!("GCE_METADATA_HOST: {e}")))?;
    let service = CredentialService::new(url, "the instance", clock)?;
    Ok(RenewingCredential::new(clock, move || {
        let service = service.clone();
        async move {
            let headers = [("metadata-flavor", "Google")];
            let answer = service.ask(Method::GET, &service.url, &headers, String::new()).await?;
            let token: super::identity::IssuedToken = service.read(&answer)?;
            let expires = token.expires(service.clock.wall());
            let bearer = issued(token.access_token).reveal().to_owned();
            let shown = format!("Bearer {bearer}");
            Ok(Issued { credential: GcpCredential { bearer }, shown, expires })
        }
    }))
}
