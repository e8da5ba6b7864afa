//! Azure Blob Storage, with the key of the account, a SAS token, or as an identity of Entra.

use super::identity::{CredentialService, IssuedToken};
use super::renew::{Issued, RenewingCredential};
use super::{CredentialSource, Site, fetched, needed, no_retries, secret_variable, variable, wrong};
use crate::secret::{Secret, issued};
use crate::store::OpenError;
use crate::store::client::Backend;
use http::Method;
use object_store::ClientOptions;
use object_store::azure::{AzureCredential, MicrosoftAzureBuilder};
use std::sync::Arc;
use url::Url;
use url::form_urlencoded::{Serializer, parse};

/// What tokens are asked for.
const RESOURCE: &str = "https://storage.azure.com/";
/// The metadata service of instances.
const INSTANCE: &str = "http://169.254.169.254/metadata/identity/oauth2/token";

type AzureIdentity = RenewingCredential<AzureCredential>;

pub(super) fn backend(site: &Site<'_>, container: &str) -> Result<Backend, OpenError> {
    let settings = site.settings;
    let usual = settings.credentials == CredentialSource::Environment;
    let account = settings.account.clone().or_else(|| {
        let named = || variable("AZURE_STORAGE_ACCOUNT").or_else(|| variable("AZURE_STORAGE_ACCOUNT_NAME"));
        (settings.credentials != CredentialSource::Given).then(named).flatten()
    });
    let Some(account) = account else {
        return Err(wrong("az:// needs the name of the storage account: account, or AZURE_STORAGE_ACCOUNT"));
    };
    if !account.bytes().all(|b| b.is_ascii_alphanumeric()) || account.is_empty() {
        return Err(wrong("a storage account has only letters and digits"));
    }
    let endpoint = site.endpoint(&format!("https://{account}.blob.core.windows.net"))?;
    let own = settings.access_key.is_some() || settings.sas_token.is_some();
    let find = |given: &Option<_>, names: &[&str]| {
        given.clone().or_else(|| (usual && !own).then(|| secret_variable(names)).flatten())
    };
    let key =
        fetched(find(&settings.access_key, &["AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"]).as_ref())?;
    let sas = match &key {
        Some(_) if settings.sas_token.is_some() => {
            return Err(wrong("give an account key or a SAS token, not both"));
        }
        Some(_) => None,
        None => fetched(find(&settings.sas_token, &["AZURE_STORAGE_SAS_TOKEN"]).as_ref())?,
    };
    let identity = match settings.credentials {
        _ if key.is_some() || sas.is_some() => None,
        CredentialSource::Given => None,
        CredentialSource::Environment if variable("AZURE_CLIENT_SECRET").is_some() => Some(principal(site)?),
        CredentialSource::Environment if variable("AZURE_FEDERATED_TOKEN_FILE").is_none() => None,
        CredentialSource::Environment | CredentialSource::WebIdentity => Some(federated(site)?),
        CredentialSource::Instance => Some(instance(site)?),
        CredentialSource::Container => return Err(site.refuse("az://")),
    };
    let builder = MicrosoftAzureBuilder::new()
        .with_account(&account)
        .with_container_name(container)
        .with_endpoint(endpoint.as_str().trim_end_matches('/').to_owned())
        .with_allow_http(endpoint.scheme() == "http")
        .with_client_options(ClientOptions::new())
        .with_retry(no_retries())
        .with_http_connector(site.transport(&endpoint, identity.as_ref().map(AzureIdentity::watch))?);
    let builder = match (key.as_ref().map(Secret::reveal), sas.as_ref().map(Secret::reveal), identity) {
        (Some(key), ..) => builder.with_credential_type("access_key").with_access_key(key),
        (None, Some(sas), _) => {
            let pairs: Vec<(String, String)> =
                parse(sas.trim_start_matches('?').as_bytes()).into_owned().collect();
            if !pairs.iter().any(|(name, _)| name == "sig") {
                return Err(wrong("the SAS token has no `sig`; expected the query of a signed URL"));
            }
            builder.with_credential_type("sas_token").with_sas_authorization(pairs)
        }
        (None, None, Some(identity)) => builder.with_credentials(Arc::new(identity)),
        (None, None, None) => builder
            .with_skip_signature(true)
            .with_bearer_token_authorization("")
            .with_credential_type("bearer_token"),
    };
    let azure = builder
        .build()
        .map_err(|_| wrong("the container cannot be addressed, or the account key is not base64"))?;
    let azure = Arc::new(azure);
    Ok(Backend {
        objects: azure.clone(),
        parts: Some(azure.clone()),
        pages: Some(azure),
        renames: false,
        suffixes: false,
    })
}

/// The token service of a tenant.
fn tokens(site: &Site<'_>, source: CredentialSource) -> Result<CredentialService, OpenError> {
    let tenant = needed("AZURE_TENANT_ID", source)?;
    let home =
        variable("AZURE_AUTHORITY_HOST").unwrap_or_else(|| "https://login.microsoftonline.com".to_owned());
    let at = format!("{}/{tenant}/oauth2/v2.0/token", home.trim_end_matches('/'));
    let url = Url::parse(&at).map_err(|e| wrong(format!("AZURE_AUTHORITY_HOST: {e}")))?;
    CredentialService::new(url, "the identity", site.clock)
}

fn issue(service: &CredentialService, token: IssuedToken) -> Issued<AzureCredential> {
    let expires = token.expires(service.clock.wall());
    let secret = issued(token.access_token).reveal().to_owned();
    let shown = format!("Bearer {secret}");
    Issued { credential: AzureCredential::BearerToken(secret), shown, expires }
}

/// A service principal with a secret.
fn principal(site: &Site<'_>) -> Result<AzureIdentity, OpenError> {
    let id = needed("AZURE_CLIENT_ID", CredentialSource::Environment)?;
    let Some(secret) = fetched(secret_variable(&["AZURE_CLIENT_SECRET"]).as_ref())? else {
        return Err(wrong("AZURE_CLIENT_SECRET is not set"));
    };
    let service = tokens(site, CredentialSource::Environment)?;
    Ok(RenewingCredential::new(site.clock, move || {
        let (service, id, secret) = (service.clone(), id.clone(), secret.clone());
        async move {
            let body = Serializer::new(String::new())
                .append_pair("grant_type", "client_credentials")
                .append_pair("client_id", &id)
                .append_pair("client_secret", secret.reveal())
                .append_pair("scope", &format!("{RESOURCE}.default"))
                .finish();
            let answer = service.ask(Method::POST, &service.url, &[], body).await?;
            Ok(issue(&service, service.read(&answer)?))
        }
    }))
}

/// An identity that shows the token in a file, as in Kubernetes.
fn federated(site: &Site<'_>) -> Result<AzureIdentity, OpenError> {
    let need = |name| needed(name, CredentialSource::WebIdentity);
    let (id, file) = (need("AZURE_CLIENT_ID")?, need("AZURE_FEDERATED_TOKEN_FILE")?);
    let service = tokens(site, CredentialSource::WebIdentity)?;
    Ok(RenewingCredential::new(site.clock, move || {
        let (service, id, file) = (service.clone(), id.clone(), file.clone());
        async move {
            let token = service.token_file(&file)?;
            let body = Serializer::new(String::new())
                .append_pair("grant_type", "client_credentials")
                .append_pair("client_id", &id)
                .append_pair(
                    "client_assertion_type",
                    "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                )
                .append_pair("client_assertion", &token)
                .append_pair("scope", &format!("{RESOURCE}.default"))
                .finish();
            let answer = service.ask(Method::POST, &service.url, &[], body).await?;
            Ok(issue(&service, service.read(&answer)?))
        }
    }))
}

/// The managed identity of the instance on which this runs.
fn instance(site: &Site<'_>) -> Result<AzureIdentity, OpenError> {
    let at = variable("AZURE_POD_IDENTITY_AUTHORITY_HOST").map_or_else(
        || INSTANCE.to_owned(),
        |host| format!("{}/metadata/identity/oauth2/token", host.trim_end_matches('/')),
    );
    let mut url = Url::parse(&at).map_err(|e| wrong(format!("AZURE_POD_IDENTITY_AUTHORITY_HOST: {e}")))?;
    url.query_pairs_mut().append_pair("api-version", "2018-02-01").append_pair("resource", RESOURCE);
    if let Some(id) = variable("AZURE_CLIENT_ID") {
        url.query_pairs_mut().append_pair("client_id", &id);
    }
    let service = CredentialService::new(url, "the instance", site.clock)?;
    Ok(RenewingCredential::new(site.clock, move || {
        let service = service.clone();
        async move {
            let answer =
                service.ask(Method::GET, &service.url, &[("metadata", "true")], String::new()).await?;
            Ok(issue(&service, service.read(&answer)?))
        }
    }))
}
