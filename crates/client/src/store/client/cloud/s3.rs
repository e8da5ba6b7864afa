//! S3, with static keys, or as the role of a web identity, a container or an instance.

use super::identity::CredentialService;
use super::renew::{CredentialFault, CredentialWatch, Issued, RenewingCredential};
use super::{
    CloudSettings, CredentialSource, Site, fetched, is_name, needed, no_retries, secret_variable, variable,
    wrong,
};
use crate::lane::Clock;
use crate::secret::{Secret, issued};
use crate::store::OpenError;
use crate::store::client::Backend;
use http::Method;
use object_store::aws::{AmazonS3Builder, AwsCredential, AwsCredentialProvider, Checksum, S3CopyIfNotExists};
use object_store::{ClientOptions, StaticCredentialProvider};
use serde::Deserialize;
use std::sync::Arc;
use url::Url;

/// The credential service of containers.
const CONTAINER: &str = "http://169.254.170.2";
/// The metadata service of instances.
const INSTANCE: &str = "http://169.254.169.254";

type AwsRole = RenewingCredential<AwsCredential>;

/// The credentials of AWS: none, static, or those of a role.
pub(super) struct AwsIdentity {
    pub(super) provider: Option<AwsCredentialProvider>,
    /// Set if they can be renewed.
    pub(super) watch: Option<Arc<CredentialWatch>>,
}

/// The region: given, or found in the environment.
pub(super) fn region(settings: &CloudSettings) -> Result<Option<String>, OpenError> {
    let region = settings.region.clone().or_else(|| {
        let named = || variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        (settings.credentials != CredentialSource::Given).then(named).flatten()
    });
    match &region {
        Some(name) if !is_name(name) => {
            Err(wrong("a region can contain only letters, digits, `-`, `.` and `_`"))
        }
        _ => Ok(region),
    }
}

/// The credentials that are given, or those that the named source has.
pub(super) fn identity(
    settings: &CloudSettings,
    region: &str,
    clock: Clock,
) -> Result<AwsIdentity, OpenError> {
    let usual = settings.credentials == CredentialSource::Environment;
    let own = settings.access_key.is_some() || settings.secret_key.is_some();
    let find = |given: &Option<_>, name: &str| {
        given.clone().or_else(|| (usual && !own).then(|| secret_variable(&[name])).flatten())
    };
    let access = fetched(find(&settings.access_key, "AWS_ACCESS_KEY_ID").as_ref())?;
    let secret = fetched(find(&settings.secret_key, "AWS_SECRET_ACCESS_KEY").as_ref())?;
    let token = fetched(find(&settings.session_token, "AWS_SESSION_TOKEN").as_ref())?;
    let role = match (&access, settings.credentials) {
        (Some(_), _) | (None, CredentialSource::Given) => None,
        (None, CredentialSource::Environment) if variable("AWS_WEB_IDENTITY_TOKEN_FILE").is_none() => None,
        (None, CredentialSource::Environment | CredentialSource::WebIdentity) => {
            Some(web_identity(clock, region)?)
        }
        (None, CredentialSource::Container) => Some(container(clock)?),
        (None, CredentialSource::Instance) => Some(instance(clock)?),
    };
    let watch = role.as_ref().map(AwsRole::watch);
    let provider: Option<AwsCredentialProvider> = match (access, secret, role) {
        (Some(access), Some(secret), _) => {
            let reveal = |secret: &Secret| secret.reveal().to_owned();
            Some(Arc::new(StaticCredentialProvider::new(AwsCredential {
                key_id: reveal(&access),
                secret_key: reveal(&secret),
                token: token.as_ref().map(reveal),
            })))
        }
        (None, None, Some(role)) => Some(Arc::new(role)),
        (None, None, None) => None,
        _ => return Err(wrong("the access key and the secret key must be given together")),
    };
    Ok(AwsIdentity { provider, watch })
}

pub(super) fn backend(site: &Site<'_>, bucket: &str) -> Result<Backend, OpenError> {
    let region = region(site.settings)?;
    let region = region.as_deref().unwrap_or("us-east-1");
    let endpoint = site.endpoint(&format!("https://s3.{region}.amazonaws.com"))?;
    let identity = identity(site.settings, region, site.clock)?;
    let builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(region)
        .with_endpoint(endpoint.as_str().trim_end_matches('/'))
        .with_allow_http(endpoint.scheme() == "http")
        .with_client_options(ClientOptions::new())
        .with_retry(no_retries())
        .with_disable_bulk_delete(true)
        .with_copy_if_not_exists(S3CopyIfNotExists::Multipart)
        .with_http_connector(site.transport(&endpoint, identity.watch)?);
    let builder = match identity.provider {
        // The signature covers the SHA-256 of each body, and the store verifies it.
        Some(provider) => builder.with_credentials(provider),
        // Without a signature the checksum is sent separately.
        None => builder.with_skip_signature(true).with_checksum_algorithm(Checksum::SHA256),
    };
    let s3 = Arc::new(builder.build().map_err(|_| wrong("the bucket cannot be addressed"))?);
    Ok(Backend {
        objects: s3.clone(),
        parts: Some(s3.clone()),
        pages: Some(s3),
        renames: false,
        suffixes: true,
    })
}

fn url(text: &str, variable: &str) -> Result<Url, OpenError> {
    Url::parse(text).map_err(|e| wrong(format!("{variable}: {e}")))
}

/// The answer of a container's or an instance's service.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleCredential {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: String,
}

impl RoleCredential {
    fn issue(self, service: &CredentialService) -> Issued<AwsCredential> {
        let secret = issued(self.secret_access_key).reveal().to_owned();
        let token = issued(self.token).reveal().to_owned();
        let expires = service.date(&self.expiration);
        let credential =
            AwsCredential { key_id: self.access_key_id, secret_key: secret, token: Some(token.clone()) };
        Issued { credential, shown: token, expires }
    }
}

/// A role of AWS, assumed with the token in a file.
fn web_identity(clock: Clock, region: &str) -> Result<AwsRole, OpenError> {
    let need = |name| needed(name, CredentialSource::WebIdentity);
    let file = need("AWS_WEB_IDENTITY_TOKEN_FILE")?;
    let role = need("AWS_ROLE_ARN")?;
    let session = variable("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "tidegate".to_owned());
    let at =
        variable("AWS_ENDPOINT_URL_STS").unwrap_or_else(|| format!("https://sts.{region}.amazonaws.com"));
    let service = CredentialService::new(url(&at, "AWS_ENDPOINT_URL_STS")?, "the role", clock)?;
    Ok(RenewingCredential::new(clock, move || {
        let (service, file, role, session) = (service.clone(), file.clone(), role.clone(), session.clone());
        async move {
            let token = service.token_file(&file)?;
            let body = url::form_urlencoded::Serializer::new(String::new())
                .append_pair("Action", "AssumeRoleWithWebIdentity")
                .append_pair("Version", "2011-06-15")
                .append_pair("RoleArn", &role)
                .append_pair("RoleSessionName", &session)
                .append_pair("WebIdentityToken", &token)
                .finish();
            let answer = service.ask(Method::POST, &service.url, &[], body).await?;
            let answer = String::from_utf8_lossy(&answer);
            let found =
                assumed(&answer).ok_or_else(|| service.permanent("the answer has no credential".into()));
            Ok(found?.issue(&service))
        }
    }))
}

/// The credential in the answer to AssumeRoleWithWebIdentity.
fn assumed(answer: &str) -> Option<RoleCredential> {
    let (_, answer) = answer.split_once("<Credentials>")?;
    let element = |name: &str| {
        let (_, rest) = answer.split_once(&format!("<{name}>"))?;
        let (text, _) = rest.split_once(&format!("</{name}>"))?;
        quick_xml::escape::unescape(text.trim()).ok().map(std::borrow::Cow::into_owned)
    };
    Some(RoleCredential {
        access_key_id: element("AccessKeyId")?,
        secret_access_key: element("SecretAccessKey")?,
        token: element("SessionToken")?,
        expiration: element("Expiration")?,
    })
}

/// The role of the container in which this runs.
fn container(clock: Clock) -> Result<AwsRole, OpenError> {
    const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    const RELATIVE: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
    let at = match (variable(RELATIVE), variable(FULL)) {
        (Some(path), _) => format!("{CONTAINER}/{}", path.trim_start_matches('/')),
        (None, Some(url)) => url,
        (None, None) => return Err(wrong(format!("credentials `container` need {RELATIVE} or {FULL}"))),
    };
    let service = CredentialService::new(url(&at, FULL)?, "the container", clock)?;
    let file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    let token = fetched(secret_variable(&["AWS_CONTAINER_AUTHORIZATION_TOKEN"]).as_ref())?;
    Ok(RenewingCredential::new(clock, move || {
        let (service, file, token) = (service.clone(), file.clone(), token.clone());
        async move {
            let token = match (&file, &token) {
                (Some(file), _) => Some(service.token_file(file)?),
                (None, token) => token.as_ref().map(|token| token.reveal().to_owned()),
            };
            let header = token.as_deref().map(|token| ("authorization", token));
            let answer = service.ask(Method::GET, &service.url, header.as_slice(), String::new()).await?;
            Ok(service.read::<RoleCredential>(&answer)?.issue(&service))
        }
    }))
}

/// The role of the instance on which this runs, by version 2 of its metadata service.
fn instance(clock: Clock) -> Result<AwsRole, OpenError> {
    const VARIABLE: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
    let at = variable(VARIABLE).unwrap_or_else(|| INSTANCE.to_owned());
    let service = CredentialService::new(url(&at, VARIABLE)?, "the instance", clock)?;
    Ok(RenewingCredential::new(clock, move || {
        let service = service.clone();
        async move { instance_role(&service).await }
    }))
}

async fn instance_role(service: &CredentialService) -> Result<Issued<AwsCredential>, CredentialFault> {
    const ROLES: &str = "latest/meta-data/iam/security-credentials/";
    let at = |path: &str| {
        let base = service.url.as_str().trim_end_matches('/');
        Url::parse(&format!("{base}/{path}")).map_err(|e| service.permanent(e.to_string()))
    };
    let seconds = [("x-aws-ec2-metadata-token-ttl-seconds", "300")];
    let session = service.ask(Method::PUT, &at("latest/api/token")?, &seconds, String::new()).await?;
    let session = issued(String::from_utf8_lossy(&session).trim().to_owned());
    let session = [("x-aws-ec2-metadata-token", session.reveal())];
    let roles = service.ask(Method::GET, &at(ROLES)?, &session, String::new()).await?;
    let roles = String::from_utf8_lossy(&roles);
    let Some(role) = roles.lines().map(str::trim).find(|role| !role.is_empty()) else {
        return Err(service.permanent("the instance has no role".to_owned()));
    };
    let answer = service.ask(Method::GET, &at(&format!("{ROLES}{role}"))?, &session, String::new()).await?;
    Ok(service.read::<RoleCredential>(&answer)?.issue(service))
}
