//! http: values out of what a service answers to an address made of the record's fields.

use std::path::Path;
use std::sync::Arc;

use ::http::HeaderName;
use tidegate_core::Code;
use tidegate_geo::batch::Pick;
use tidegate_geo::column::Column;
use tidegate_geo::{Batch, Kind, Problem, Schema, Value};
use url::Url;

use super::http_url::UrlTemplate;
use super::remote::{AskedRow, OnMissing, RemoteKind};
use super::services::{ProviderParts, Services, secret};
use super::window::Reply;
use super::{Flow, Step, StepError};
use crate::http::{Credential, CredentialLocation, Request, ServiceDialect, Trace, error_in};
use crate::manifest::HttpSpec;
use crate::profile::{Profile, Profiles};
use crate::secret::NamedSecret;
use crate::traffic;

struct HttpValues {
    base: Url,
    template: UrlTemplate,
    credentials: Vec<Credential>,
    /// The header for the idempotency key, if the service takes one.
    idempotent: Option<HeaderName>,
    pointers: Vec<String>,
    /// Whether the service that answered goes into a field of its own, after the values.
    names_provider: bool,
    schema: Arc<Schema>,
}

pub(super) fn build(form: &HttpSpec, flow: &mut Flow, services: &Services) -> Result<Box<dyn Step>, String> {
    let template = UrlTemplate::parse(&form.path, flow)?;
    let mut fields = flow.fields();
    for name in form.take.keys().chain(&form.provider) {
        if fields.iter().any(|(other, _)| other == name) {
            return Err(format!("the records already have a field `{name}`; rename it first"));
        }
        fields.push((name.clone(), Kind::Text));
    }
    flow.with(fields);
    let provider = |name: &str| {
        let (service, policy) = services.get(name)?;
        let profile = match &service.profile {
            Some(name) => {
                let profiles = service.profiles.as_deref().map(Path::new);
                Some(Profiles::one(name, profiles).map_err(|e| e.to_string())?)
            }
            None => None,
        };
        let base = match (&service.url, &profile) {
            (Some(url), _) => Url::parse(url).map_err(|e| format!("{url}: {e}"))?,
            (None, Some(profile)) => profile.base_url().map_err(|e| e.to_string())?,
            (None, None) => return Err(format!("service `{name}` has no `url`")),
        };
        let key = secret(service)?;
        let credentials = match &profile {
            Some(profile) if profile.form().auth.is_some() => {
                profile.credentials(key.as_ref()).map_err(|e| e.to_string())?
            }
            _ => key.map(bearer).into_iter().collect(),
        };
        let kind = HttpValues {
            base: base.clone(),
            template: template.clone(),
            credentials,
            idempotent: profile.as_ref().and_then(Profile::idempotency_header),
            pointers: form.take.values().cloned().collect(),
            names_provider: form.provider.is_some(),
            schema: flow.schema.clone(),
        };
        Ok(ProviderParts {
            kind,
            base,
            dialect: profile.as_ref().map_or_else(ServiceDialect::default, Profile::plain_dialect),
            lane: traffic::of_step(policy, service, profile.as_ref()),
            trace: Trace::Spans,
        })
    };
    Ok(Box::new(services.open(&form.service, provider, OnMissing::reject(form.no_match))?))
}

/// The key as most services take it.
fn bearer(key: NamedSecret) -> Credential {
    Credential {
        name: key.name,
        place: CredentialLocation::Header(::http::header::AUTHORIZATION, "Bearer ".to_owned()),
        secret: key.secret,
    }
}

impl RemoteKind for HttpValues {
    type Parsed = ();
    /// The values, by pointer.
    type Answer = Vec<Option<String>>;

    fn not_found_is_answer(&self) -> bool {
        true
    }

    fn question(&self, batch: &Batch, row: usize) -> Result<Request, Problem> {
        let mut request = Request::get(self.template.url(&self.base, batch, row)?);
        request.credentials.clone_from(&self.credentials);
        if let Some(header) = &self.idempotent {
            request.identify(header);
        }
        Ok(request)
    }

    fn read(&self, status: u16, _: &str, body: &[u8], _: Option<()>) -> Reply<Self::Answer> {
        if !(200..300).contains(&status) {
            return Ok(None);
        }
        let json: serde_json::Value = serde_json::from_slice(body)
            .map_err(|e| Problem::new(Code::UNEXPECTED_BODY, format!("the response is not JSON: {e}")))?;
        let value = |pointer: &String| match json.pointer(pointer) {
            None | Some(serde_json::Value::Null) => None,
            Some(serde_json::Value::String(text)) => Some(text.clone()),
            Some(other) => Some(other.to_string()),
        };
        let found: Vec<Option<String>> = self.pointers.iter().map(value).collect();
        if found.iter().any(Option::is_some) {
            return Ok(Some(found));
        }
        // None of the values, and an error in their place: not an answer, whatever the status.
        match error_in(&json) {
            Some(said) => {
                let said: String = said.chars().take(200).collect();
                let message = format!("the answer holds an error and none of the values: {said}");
                Err(Problem::new(Code::SERVICE_EXCEPTION, message))
            }
            None => Ok(None),
        }
    }

    fn fill(&self, batch: Batch, rows: &[AskedRow<'_, Self::Answer>]) -> Result<Batch, StepError> {
        let mut picks: Vec<Pick> = (0..batch.columns().len()).map(Pick::Old).collect();
        for at in 0..self.pointers.len() {
            let mut column = Column::new(Kind::Text);
            for row in rows {
                let value = row.answer.and_then(|values| values.get(at)?.as_deref());
                column
                    .push(value.map_or(Value::Null, Value::Text))
                    .map_err(|problem| StepError::Broken(problem.to_string()))?;
            }
            picks.push(Pick::New(column));
        }
        if self.names_provider {
            let mut column = Column::new(Kind::Text);
            for row in rows {
                let name = row.provider.filter(|_| row.failure.is_none());
                column
                    .push(name.map_or(Value::Null, Value::Text))
                    .map_err(|problem| StepError::Broken(problem.to_string()))?;
            }
            picks.push(Pick::New(column));
        }
        Ok(batch.with_columns(self.schema.clone(), picks))
    }
}
