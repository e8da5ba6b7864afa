//! What the queues of clouds share: the parameters of their URLs, and what a failure means.

use std::collections::BTreeMap;

use tidegate_client::store::{CloudFault, CloudSettings};
use tidegate_client::tidegate_core::bucket::CredentialSource;
use url::Url;

use crate::error::QueueError;

/// The parameters of a URL: those about credentials, and the others by name.
pub(crate) struct CloudParameters {
    pub(crate) settings: CloudSettings,
    pub(crate) others: BTreeMap<String, String>,
}

/// Reads the parameters of a URL; `known` are the names of the others. A secret is given as a
/// reference: `env:NAME` or `file:PATH`.
pub(crate) fn parameters(url: &Url, known: &[&str]) -> Result<CloudParameters, QueueError> {
    let refused = |what: String| QueueError::Refused(what);
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused(
            "the URL of the queue must not contain credentials; use the environment, or references such as \
             secret_key=file:PATH"
                .into(),
        ));
    }
    let mut settings =
        CloudSettings { credentials: CredentialSource::Environment, ..CloudSettings::default() };
    let mut others = BTreeMap::new();
    for (name, value) in url.query_pairs() {
        let secret = || value.parse().map(Some).map_err(|e| refused(format!("{name}: {e}")));
        match name.as_ref() {
            "access_key" => settings.access_key = secret()?,
            "secret_key" => settings.secret_key = secret()?,
            "session_token" => settings.session_token = secret()?,
            "service_account" => settings.service_account = secret()?,
            "credentials" => settings.credentials = value.parse().map_err(refused)?,
            "private" => settings.private = value == "true",
            name if known.contains(&name) => {
                others.insert(name.to_owned(), value.into_owned());
            }
            other => return Err(refused(format!("unknown parameter {other:?} in the URL of the queue"))),
        }
    }
    Ok(CloudParameters { settings, others })
}

/// What a failed request means. `explain` turns the error code of the service into a sentence.
pub(crate) fn failed(fault: &CloudFault, explain: impl FnOnce(&CloudFault) -> Option<String>) -> QueueError {
    if fault.is_later() {
        return QueueError::Unreachable(fault.to_string());
    }
    QueueError::Refused(explain(fault).unwrap_or_else(|| fault.to_string()))
}

/// The error code of a service, if it is one: it is quoted, so it must be a plain word.
pub(crate) fn word(text: &str) -> String {
    let plain =
        text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_'));
    if plain { text.to_owned() } else { String::new() }
}
