//! From a profile to what the HTTP driver takes: its requests and its service.

use super::form::Method;
use super::template;
use super::{Ask, Profile, Refusal, Sniffed};
use crate::http::{Credential, Dialect, Place, Request, Response};
use crate::secret::Secret;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use std::sync::Arc;
use url::Url;

/// Makes requests of one profile with one key. The credential is kept apart from the request, so
/// that no redirect can carry it off.
#[derive(Clone, Debug)]
pub struct Asker {
    bare: Profile,
    credentials: Vec<Credential>,
    /// The key itself, only where a template has it in the URL.
    in_url: Option<Secret>,
    idempotent: bool,
}

impl Profile {
    /// The address of its forward endpoint, or else of its reverse one.
    ///
    /// # Errors
    /// It has none: one must be given.
    pub fn base_url(&self) -> Result<Url, String> {
        let endpoint = self.form.forward.as_ref().or(self.form.reverse.as_ref());
        let url = endpoint.and_then(|e| e.url.as_ref()).or(self.form.url.as_ref());
        let text = url.ok_or_else(|| Refusal::NoUrl(self.name().into()).to_string())?;
        Url::parse(text.as_str()).map_err(|e| format!("{}: {e}", text.as_str()))
    }

    /// This key, at the place where the service wants it.
    ///
    /// # Errors
    /// The service needs a key and there is none, or its header cannot be sent.
    pub fn credentials(&self, key: Option<&(String, Secret)>) -> Result<Vec<Credential>, String> {
        let Some(auth) = &self.form.auth else { return Ok(Vec::new()) };
        let Some((name, secret)) = key else {
            let needed = Refusal::NoKey(self.name().into()).to_string();
            return if auth.optional { Ok(Vec::new()) } else { Err(needed) };
        };
        let place = match (&auth.query, &auth.header) {
            (Some(query), _) => Place::Query(query.as_str().to_owned()),
            (None, Some(header)) => {
                let header: HeaderName =
                    header.as_str().parse().map_err(|e| format!("{}: {e}", header.as_str()))?;
                let prefix = auth.scheme.as_ref().map_or(String::new(), |s| format!("{} ", s.as_str()));
                Place::Header(header, prefix)
            }
            (None, None) => return Err(format!("profile {}: its key has no place", self.name())),
        };
        Ok(vec![Credential { name: name.clone(), place, secret: secret.clone() }])
    }

    /// An asker with this key: the name of its origin, such as `env:GEO_KEY`, and its value.
    ///
    /// # Errors
    /// The service needs a key and there is none, or its header cannot be sent.
    pub fn asker(&self, key: Option<&(String, Secret)>) -> Result<Asker, String> {
        let mut bare = self.clone();
        bare.form.auth = None;
        let templated = [&self.form.forward, &self.form.reverse].into_iter().flatten().any(|endpoint| {
            let query = endpoint.query.iter().chain(endpoint.form.iter()).flat_map(|(_, t)| t.places());
            endpoint.path.places().chain(query).any(|place| place == template::Place::Key)
        });
        let credentials = self.credentials(key)?;
        let in_url = templated.then(|| key.map(|(_, secret)| secret.clone())).flatten();
        let idempotent = bare.form.idempotency_header.take().is_some();
        Ok(Asker { bare, credentials, in_url, idempotent })
    }
}

impl Asker {
    /// The request that asks this.
    ///
    /// # Errors
    /// Says why it cannot be asked.
    pub fn request(&self, ask: &Ask<'_>) -> Result<Request, String> {
        let key = self.in_url.as_ref().map(Secret::reveal);
        let made = self.bare.request(&Ask { key, ..*ask }).map_err(|e| e.to_string())?;
        let url = Url::parse(&made.url).map_err(|e| format!("the request has no valid address: {e}"))?;
        let method = match made.method {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
        };
        let mut request = Request::new(method, url, made.body.map_or_else(Bytes::new, Bytes::from));
        for header in made.headers {
            let name: HeaderName =
                header.name.parse().map_err(|_| format!("{} is no header", header.name))?;
            let value = HeaderValue::from_str(&header.value).map_err(|_| format!("{name} cannot be sent"))?;
            request.headers.insert(name, value);
        }
        request.credentials.clone_from(&self.credentials);
        request.idempotency_key = self.idempotent.then(|| request.key_bytes());
        Ok(request)
    }
}

impl Profile {
    /// How the service speaks: statuses, headers and bodies.
    #[must_use]
    pub fn dialect(&self) -> Dialect<Sniffed> {
        let profile = self.clone();
        Dialect {
            classifier: self.classifier(),
            hints: self.hints(),
            read: Arc::new(move |response: &Response| {
                let read = profile.read(response.status.as_u16(), response.content_type(), &response.body);
                (read.finding, read)
            }),
        }
    }
}
