//! The options of `store`, `fetch` and `dlq archive` for reaching a bucket.

use clap::ValueEnum;
use serde_json::{Map, Value};
use tidegate_client::store::CloudSettings;
use tidegate_core::bucket::CredentialSource;

use crate::given::{Reference, ServiceUrl};

/// Options for reaching a bucket.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct CloudArgs {
    /// URL of the service of a bucket, such as one that speaks S3 [default: that of the cloud]
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) endpoint: Option<ServiceUrl>,
    /// Region of an S3 bucket
    #[arg(long, global = true)]
    region: Option<String>,
    /// Storage account of an Azure container [default: AZURE_STORAGE_ACCOUNT]
    #[arg(long, value_name = "NAME", global = true)]
    account: Option<String>,
    /// Source of the credentials of a bucket; container and instance query a metadata service
    #[arg(long, value_enum, default_value_t = CredentialsArg::Environment, global = true)]
    credentials: CredentialsArg,
    /// Reference to the access key of S3 or the account key of Azure: env:NAME or file:PATH
    #[arg(long, value_name = "REF", global = true)]
    access_key: Option<Reference>,
    /// Reference to the secret key of S3
    #[arg(long, value_name = "REF", global = true)]
    secret_key: Option<Reference>,
    /// Reference to a session token of S3
    #[arg(long, value_name = "REF", global = true)]
    session_token: Option<Reference>,
    /// Reference to a shared access signature of Azure
    #[arg(long, value_name = "REF", global = true)]
    sas_token: Option<Reference>,
    /// Reference to the JSON of a Google service account
    #[arg(long, value_name = "REF", global = true)]
    service_account: Option<Reference>,
    /// Send unsigned requests, for public buckets
    #[arg(long, global = true, conflicts_with_all = ["access_key", "secret_key", "session_token", "sas_token", "service_account"])]
    anonymous: bool,
}

/// A source of credentials.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CredentialsArg {
    /// The usual variables of the cloud; without them requests are not signed
    Environment,
    /// The token file of a role
    WebIdentity,
    /// The credential service of the container
    Container,
    /// The metadata service of the instance
    Instance,
}

impl CloudArgs {
    fn source(&self) -> CredentialSource {
        match self.credentials {
            _ if self.anonymous => CredentialSource::Given,
            CredentialsArg::Environment => CredentialSource::Environment,
            CredentialsArg::WebIdentity => CredentialSource::WebIdentity,
            CredentialsArg::Container => CredentialSource::Container,
            CredentialsArg::Instance => CredentialSource::Instance,
        }
    }

    /// The settings; `private` allows endpoints at private addresses.
    pub(crate) fn settings(&self, private: bool) -> CloudSettings {
        CloudSettings {
            endpoint: self.endpoint.as_ref().map(|url| (**url).clone()),
            region: self.region.clone(),
            account: self.account.clone(),
            access_key: self.access_key.as_ref().map(|from| (**from).clone()),
            secret_key: self.secret_key.as_ref().map(|from| (**from).clone()),
            session_token: self.session_token.as_ref().map(|from| (**from).clone()),
            sas_token: self.sas_token.as_ref().map(|from| (**from).clone()),
            service_account: self.service_account.as_ref().map(|from| (**from).clone()),
            credentials: self.source(),
            private,
        }
    }

    /// The section `store` of a manifest.
    pub(crate) fn section(&self, private: bool) -> Map<String, Value> {
        let text = |secret: &Option<Reference>| secret.as_ref().map(|secret| secret.to_string().into());
        let source = Some(self.source()).filter(|source| *source != CredentialSource::Given);
        let all = [
            ("endpoint", self.endpoint.as_ref().map(|endpoint| endpoint.as_str().into())),
            ("region", self.region.as_deref().map(Value::from)),
            ("account", self.account.as_deref().map(Value::from)),
            ("credentials", source.map(|source| source.to_string().into())),
            ("access_key", text(&self.access_key)),
            ("secret_key", text(&self.secret_key)),
            ("session_token", text(&self.session_token)),
            ("sas_token", text(&self.sas_token)),
            ("service_account", text(&self.service_account)),
            ("allow_private", private.then_some(true.into())),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}
