//! Builds the request for a geocoding query.
//!
//! A request is a value; nothing is sent here. The position of the credential is recorded, so that
//! everything which prints a request ([`RequestTemplate::public_url`], `Debug`) can omit it, and so
//! that two runs with different keys share cache entries.

use super::form::{Endpoint, RequestMethod};
use super::template::{Placeholder, PlaceholderValues, Template, percent};
use super::value::{Pairs, Url};
use super::{Profile, ProfileError, Refusal};
use crate::http::path;
use std::fmt;
use std::ops::Range;

/// The input of a geocoding query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GeocodeInput<'a> {
    /// Forward geocoding: the address to be found.
    Forward(&'a str),
    /// Reverse geocoding: the coordinate to be named.
    Reverse {
        /// Longitude in degrees.
        lon: f64,
        /// Latitude in degrees.
        lat: f64,
    },
}

/// A geocoding query with its parameters.
#[derive(Clone, Copy)]
pub struct GeocodeQuery<'a> {
    /// The address or the coordinate.
    pub what: GeocodeInput<'a>,
    /// The credential.
    pub key: Option<&'a str>,
    /// The language of the answer.
    pub language: Option<&'a str>,
    /// The country to search in.
    pub country: Option<&'a str>,
    /// The most candidates in the answer.
    pub limit: Option<u32>,
    /// The User-Agent.
    pub user_agent: Option<&'a str>,
    /// The idempotency key of the request, for services that take one.
    pub idempotency_key: Option<&'a str>,
}

impl<'a> GeocodeQuery<'a> {
    /// A query without optional parameters.
    #[must_use]
    pub const fn new(what: GeocodeInput<'a>) -> GeocodeQuery<'a> {
        GeocodeQuery {
            what,
            key: None,
            language: None,
            country: None,
            limit: None,
            user_agent: None,
            idempotency_key: None,
        }
    }
}

/// A header to be sent.
#[derive(Clone, PartialEq, Eq)]
pub struct SendHeader {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Whether it holds the credential.
    pub secret: bool,
}

/// A request to be sent.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestTemplate {
    /// The HTTP method.
    pub method: RequestMethod,
    /// The URL, credential included.
    pub url: String,
    /// The headers.
    pub headers: Vec<SendHeader>,
    /// The body.
    pub body: Option<String>,
    secret: Vec<Range<usize>>,
}

impl RequestTemplate {
    /// The URL with `***` in place of the credential.
    #[must_use]
    pub fn public_url(&self) -> String {
        let mut out = String::with_capacity(self.url.len());
        let mut from = 0;
        for range in &self.secret {
            out.push_str(self.url.get(from..range.start).unwrap_or_default());
            out.push_str("***");
            from = range.end;
        }
        out.push_str(self.url.get(from..).unwrap_or_default());
        out
    }
}

impl fmt::Debug for RequestTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown =
            |h: &SendHeader| (h.name.clone(), if h.secret { "***".to_owned() } else { h.value.clone() });
        f.debug_struct("RequestTemplate")
            .field("method", &self.method)
            .field("url", &self.public_url())
            .field("headers", &self.headers.iter().map(shown).collect::<Vec<_>>())
            .field("body", &self.body)
            .finish()
    }
}

/// The capacity reserved for path and query, in bytes; enough for most requests.
const URL_BYTES: usize = 160;

/// The default User-Agent prefixes of HTTP libraries.
const STOCK: [&str; 10] =
    ["curl", "wget", "python", "reqwest", "go-http-client", "java", "okhttp", "axios", "node", "mozilla"];

impl Profile {
    /// The request for a query.
    pub fn request(&self, ask: &GeocodeQuery<'_>) -> Result<RequestTemplate, Refusal> {
        let mut values = PlaceholderValues {
            key: ask.key,
            language: ask.language,
            country: ask.country,
            limit: ask.limit,
            ..Default::default()
        };
        let endpoint = match ask.what {
            GeocodeInput::Forward(address) => {
                if address.trim().is_empty() {
                    return Err(Refusal::Blank);
                }
                values.address = Some(address);
                &self.form.forward
            }
            GeocodeInput::Reverse { lon, lat } => {
                if !(lon.is_finite() && lon.abs() <= 180.0 && lat.is_finite() && lat.abs() <= 90.0) {
                    return Err(Refusal::OffTheGlobe { lon, lat });
                }
                (values.lon, values.lat) = (Some(lon), Some(lat));
                &self.form.reverse
            }
        };
        let forward = matches!(ask.what, GeocodeInput::Forward(_));
        let endpoint =
            endpoint.as_ref().ok_or_else(|| Refusal::NoEndpoint { profile: self.name().into(), forward })?;
        let mut request = self.address(endpoint, &values)?;
        self.headers(ask, &mut request)?;
        if !endpoint.form.is_empty() {
            let (mut body, mut secret) = (String::new(), Vec::new());
            put_pairs(&endpoint.form, &values, &mut body, &mut secret, "");
            request.body = Some(body);
            request.headers.push(header("Content-Type", "application/x-www-form-urlencoded", false)?);
        }
        Ok(request)
    }

    /// The base URL of an endpoint, to which its path is appended.
    pub(super) fn base<'a>(&'a self, endpoint: &'a Endpoint) -> Result<&'a str, Refusal> {
        let base = endpoint.url.as_ref().or(self.form.url.as_ref());
        let base = base.ok_or_else(|| Refusal::NoUrl(self.name().into()))?;
        Ok(base.as_str().trim_end_matches('/'))
    }

    fn address(
        &self,
        endpoint: &Endpoint,
        values: &PlaceholderValues<'_>,
    ) -> Result<RequestTemplate, Refusal> {
        let base = self.base(endpoint)?;
        let mut url = String::with_capacity(base.len() + URL_BYTES);
        url.push_str(base);
        let mut secret = Vec::new();
        if !endpoint.path.is_full(values) {
            return Err(Refusal::NoKey(self.name().into()));
        }
        if let Some(value) = values.address.filter(|_| endpoint.path.has(Placeholder::Address)) {
            // The only placeholder of a path whose value comes from a record.
            path::check_value(value).and_then(|()| path::check(&endpoint.path.plain(value)))?;
        }
        endpoint.path.put_url(values, &mut url, &mut secret);
        let before = put_pairs(&endpoint.query, values, &mut url, &mut secret, "?");
        if let Some(auth) = &self.form.auth {
            match (values.key, &auth.query) {
                (Some(key), Some(name)) => {
                    url.push_str(before);
                    url.push_str(name.as_str());
                    url.push('=');
                    let start = url.len();
                    percent(&mut url, key);
                    secret.push(start..url.len());
                }
                (None, _) if !auth.optional => return Err(Refusal::NoKey(self.name().into())),
                _ => {}
            }
        }
        Ok(RequestTemplate { method: endpoint.method, url, headers: Vec::new(), body: None, secret })
    }

    fn headers(&self, ask: &GeocodeQuery<'_>, request: &mut RequestTemplate) -> Result<(), Refusal> {
        if let Some(rule) = self.form.user_agent.as_ref().filter(|rule| rule.required) {
            let named = ask.user_agent.is_some_and(|agent| {
                let agent = agent.trim().to_ascii_lowercase();
                agent.len() >= 3 && !STOCK.iter().any(|stock| agent.starts_with(stock))
            });
            if !named {
                return Err(Refusal::UserAgent { profile: self.name().into(), say: rule.say.clone() });
            }
        }
        if let Some(agent) = ask.user_agent {
            request.headers.push(header("User-Agent", agent, false)?);
        }
        if let Some(auth) = &self.form.auth
            && let (Some(name), Some(key)) = (&auth.header, ask.key)
        {
            let value = match &auth.scheme {
                Some(scheme) => format!("{scheme} {key}"),
                None => key.to_owned(),
            };
            request.headers.push(header(name.as_str(), &value, true)?);
        }
        if let (Some(name), Some(key)) = (&self.form.idempotency_header, ask.idempotency_key) {
            request.headers.push(header(name.as_str(), key, false)?);
        }
        Ok(())
    }

    /// This profile with another URL: a base such as `http://127.0.0.1:8080`, or a complete
    /// template such as `https://host/find?q={address}&token={key}`, which replaces path, query and
    /// credential parameter of the endpoints whose placeholders it contains.
    ///
    /// # Errors
    /// When it is neither.
    pub fn at(&self, url: &str) -> Result<Profile, ProfileError> {
        let mut form = self.form.clone();
        if !url.contains(['{', '?']) {
            form.url = Some(Url::try_from(url.to_owned())?);
            for endpoint in [&mut form.forward, &mut form.reverse].into_iter().flatten() {
                endpoint.url = None;
            }
            return Ok(Profile { form, ..self.clone() });
        }
        let scheme = url.find("://").map_or(0, |i| i + 3);
        let split =
            url.get(scheme..).and_then(|rest| rest.find(['/', '?'])).map_or(url.len(), |i| i + scheme);
        let (base, rest) = url.split_at(split);
        form.url = Some(Url::try_from(base.to_owned())?);
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut pairs = Pairs::default();
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Template::try_from(name.to_owned())?;
            pairs.push(name.to_owned(), Template::try_from(value.to_owned())?);
        }
        let endpoint = Endpoint {
            method: RequestMethod::Get,
            url: None,
            path: Template::try_from(path.to_owned())?,
            query: pairs,
            form: Pairs::default(),
        };
        let places: Vec<Placeholder> =
            endpoint.path.places().chain(endpoint.query.iter().flat_map(|(_, t)| t.places())).collect();
        let has = |place| places.contains(&place);
        if has(Placeholder::Key) {
            form.auth = None;
        }
        match (has(Placeholder::Address), has(Placeholder::Lat) && has(Placeholder::Lon)) {
            (true, false) => form.forward = Some(endpoint),
            (false, true) => form.reverse = Some(endpoint),
            _ => {
                let reason = format!("`{url}` requires either {{address}}, or {{lat}} and {{lon}}");
                return Err(ProfileError::Invalid(reason));
            }
        }
        Ok(Profile { form, ..self.clone() })
    }
}

/// Writes the parameters whose placeholders all have values; returns the separator before the next
/// one.
fn put_pairs<'s>(
    pairs: &Pairs,
    values: &PlaceholderValues<'_>,
    out: &mut String,
    secret: &mut Vec<Range<usize>>,
    first: &'s str,
) -> &'s str {
    let mut before = first;
    for (name, template) in pairs.iter().filter(|(_, t)| t.is_full(values)) {
        out.push_str(before);
        out.push_str(name);
        out.push('=');
        template.put_url(values, out, secret);
        before = "&";
    }
    before
}

fn header(name: &str, value: &str, secret: bool) -> Result<SendHeader, Refusal> {
    if value.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
        Ok(SendHeader { name: name.to_owned(), value: value.to_owned(), secret })
    } else {
        Err(Refusal::Header(name.to_owned()))
    }
}
