//! Builds HTTP requests and the service dialect from a profile.

use super::form::RequestMethod;
use super::template;
use super::{GeocodeQuery, Profile, ProfileRequestError, Refusal, Sniffed};
use crate::http::{Credential, CredentialLocation, Request, Response, ServiceDialect};
use crate::secret::{NamedSecret, Secret};
use bytes::Bytes;
use http::header::InvalidHeaderName;
use http::{HeaderName, HeaderValue};
use std::sync::Arc;
use url::Url;

/// Builds the requests of one profile with one key. The credential is kept separate, so that no
/// redirect receives it.
#[derive(Clone, Debug)]
pub struct ProfileRequestBuilder {
    bare: Profile,
    credentials: Vec<Credential>,
    /// The key, if a template has it in the URL.
    in_url: Option<Secret>,
    /// The header for the idempotency key, if the service takes one.
    idempotent: Option<HeaderName>,
    /// Parsed base URLs without the query: parsing one for every query would dominate the cost of a
    /// request.
    read: Vec<Url>,
}

impl Profile {
    /// The base URL of the forward endpoint, else of the reverse endpoint.
    ///
    /// # Errors
    /// When it has none, so that one must be given.
    pub fn base_url(&self) -> Result<Url, ProfileRequestError> {
        let endpoint = self.form.forward.as_ref().or(self.form.reverse.as_ref());
        let url = endpoint.and_then(|e| e.url.as_ref()).or(self.form.url.as_ref());
        let text = url.ok_or_else(|| Refusal::NoUrl(self.name().into()))?.as_str();
        Url::parse(text).map_err(|source| ProfileRequestError::BaseUrl { text: text.to_owned(), source })
    }

    /// The credential for this key, where the service expects it.
    ///
    /// # Errors
    /// When the service requires a key and there is none, or its header name is invalid.
    pub fn credentials(&self, key: Option<&NamedSecret>) -> Result<Vec<Credential>, ProfileRequestError> {
        let Some(auth) = &self.form.auth else { return Ok(Vec::new()) };
        let Some(NamedSecret { name, secret }) = key else {
            let needed = Refusal::NoKey(self.name().into());
            return if auth.optional { Ok(Vec::new()) } else { Err(needed.into()) };
        };
        let place = match (&auth.query, &auth.header) {
            (Some(query), _) => CredentialLocation::Query(query.as_str().to_owned()),
            (None, Some(header)) => {
                let header: HeaderName = header.as_str().parse().map_err(|e: InvalidHeaderName| {
                    ProfileRequestError::KeyHeader { name: header.to_string(), reason: e.to_string() }
                })?;
                let prefix = auth.scheme.as_ref().map_or(String::new(), |s| format!("{} ", s.as_str()));
                CredentialLocation::Header(header, prefix)
            }
            (None, None) => {
                return Err(ProfileRequestError::KeyLocation { profile: self.name().to_owned() });
            }
        };
        Ok(vec![Credential { name: name.clone(), place, secret: secret.clone() }])
    }

    /// The header in which the service takes an idempotency key, if it does.
    #[must_use]
    pub fn idempotency_header(&self) -> Option<HeaderName> {
        // The profile was checked when it was read.
        self.form.idempotency_header.as_ref().and_then(|header| header.as_str().parse().ok())
    }

    /// A request builder with this key.
    ///
    /// # Errors
    /// When the service requires a key and there is none, or its header name is invalid.
    pub fn asker(&self, key: Option<&NamedSecret>) -> Result<ProfileRequestBuilder, ProfileRequestError> {
        let mut bare = self.clone();
        bare.form.auth = None;
        let templated = [&self.form.forward, &self.form.reverse].into_iter().flatten().any(|endpoint| {
            let query = endpoint.query.iter().chain(endpoint.form.iter()).flat_map(|(_, t)| t.places());
            endpoint.path.places().chain(query).any(|place| place == template::Placeholder::Key)
        });
        let credentials = self.credentials(key)?;
        let in_url = templated.then(|| key.map(|key| key.secret.clone())).flatten();
        bare.form.idempotency_header = None;
        let idempotent = self.idempotency_header();
        let fixed = [&self.form.forward, &self.form.reverse].into_iter().flatten().filter_map(|endpoint| {
            Url::parse(&format!("{}{}", self.base(endpoint).ok()?, endpoint.path.as_str())).ok()
        });
        let read = fixed.filter(|url| url.query().is_none() && url.fragment().is_none()).collect();
        Ok(ProfileRequestBuilder { bare, credentials, in_url, idempotent, read })
    }
}

impl ProfileRequestBuilder {
    /// The request for a query.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub fn request(&self, ask: &GeocodeQuery<'_>) -> Result<Request, ProfileRequestError> {
        let key = self.in_url.as_ref().map(Secret::reveal);
        let made = self.bare.request(&GeocodeQuery { key, ..*ask })?;
        let url = self.url(&made.url).map_err(ProfileRequestError::RequestUrl)?;
        let method = match made.method {
            RequestMethod::Get => http::Method::GET,
            RequestMethod::Post => http::Method::POST,
        };
        let mut request = Request::new(method, url, made.body.map_or_else(Bytes::new, Bytes::from));
        for header in made.headers {
            let name: HeaderName =
                header.name.parse().map_err(|_| ProfileRequestError::HeaderName(header.name.clone()))?;
            let value = HeaderValue::from_str(&header.value)
                .map_err(|_| ProfileRequestError::HeaderValue(name.to_string()))?;
            request.headers.insert(name, value);
        }
        request.credentials.clone_from(&self.credentials);
        if let Some(header) = &self.idempotent {
            request.identify(header);
        }
        Ok(request)
    }

    fn url(&self, text: &str) -> Result<Url, url::ParseError> {
        if let Some((before, query)) = text.split_once('?')
            && !query.contains('#')
            && let Some(known) = self.read.iter().find(|url| url.as_str() == before)
        {
            let mut url = known.clone();
            url.set_query(Some(query));
            return Ok(url);
        }
        Url::parse(text)
    }
}

impl Profile {
    /// The dialect for requests whose answers the profile does not parse: statuses, headers, and
    /// failures in bodies.
    #[must_use]
    pub fn plain_dialect(&self) -> ServiceDialect {
        let profile = self.clone();
        ServiceDialect {
            classifier: self.classifier(),
            hints: self.hints(),
            read: Arc::new(move |response: &Response| {
                (profile.sniff(response.status.as_u16(), response.content_type(), &response.body), ())
            }),
        }
    }

    /// The dialect: statuses, headers and bodies.
    #[must_use]
    pub fn dialect(&self) -> ServiceDialect<Sniffed> {
        let profile = self.clone();
        ServiceDialect {
            classifier: self.classifier(),
            hints: self.hints(),
            read: Arc::new(move |response: &Response| {
                let read = profile.read(response.status.as_u16(), response.content_type(), &response.body);
                (read.finding, read)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{GeocodeInput, Profiles};

    #[test]
    fn an_address_that_is_known_is_read_as_any_other() {
        let profiles = Profiles::embedded().unwrap();
        let generic = profiles.get("generic").unwrap();
        for base in ["http://127.0.0.1:8080", "https://EXAMPLE.test:443/a/../b/", "http://h.test/x?y"] {
            let Ok(profile) = generic.at(base) else { continue };
            let asker = profile.asker(None).unwrap();
            for address in ["1 Main Street", "a/b?c&d=e#f+g h\u{e9}", "'%27\t"] {
                let request = asker.request(&GeocodeQuery::new(GeocodeInput::Forward(address))).unwrap();
                let made = asker.bare.request(&GeocodeQuery::new(GeocodeInput::Forward(address))).unwrap();
                assert_eq!(request.url, Url::parse(&made.url).unwrap(), "{base} {address}");
            }
        }
        let known = generic.at("http://127.0.0.1:8080").unwrap().asker(None).unwrap();
        for text in ["http://127.0.0.1:8080/geocode?a'b<c>\"#d?e", "http://127.0.0.1:8080/geocode?"] {
            assert_eq!(known.url(text), Url::parse(text), "{text}");
        }
    }
}
