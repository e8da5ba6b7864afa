//! A request, and its canonical key.

use crate::secret::{Secret, is_secret_header};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use tidegate_core::hex::{unhex_byte, write_hex};
use url::{Position, Url};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Where a credential goes in a request: a header or a query parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialLocation {
    /// A header; the value follows a prefix such as `Bearer `, or none.
    Header(HeaderName, String),
    /// A query parameter.
    Query(String),
}

/// A secret, its location in a request, and a name that can be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// A name for lanes and logs, such as `env:GEO_KEY`.
    pub name: String,
    /// The header or query parameter that carries it.
    pub place: CredentialLocation,
    /// The secret value.
    pub secret: Secret,
}

/// A request to a service. Credentials are kept separate, so that they can be dropped when a
/// redirect leaves their origin.
#[derive(Clone, Debug)]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// The URL without credentials.
    pub url: Url,
    /// The headers, without credentials.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The credentials; sent only to the origin of `url`.
    pub credentials: Vec<Credential>,
    /// The idempotency key, which makes a repeat safe: see [`Request::key_bytes`].
    pub idempotency_key: Option<[u8; 32]>,
    /// The header that carries the key; `Idempotency-Key` unless the service has another.
    pub idempotency_header: HeaderName,
}

impl Request {
    /// A GET.
    #[must_use]
    pub fn get(url: Url) -> Request {
        Request::new(Method::GET, url, Bytes::new())
    }

    /// Any method.
    #[must_use]
    pub fn new(method: Method, url: Url, body: Bytes) -> Request {
        Request {
            method,
            url,
            headers: HeaderMap::new(),
            body,
            credentials: Vec::new(),
            idempotency_key: None,
            idempotency_header: IDEMPOTENCY_KEY,
        }
    }

    /// Whether the request may be retried: an idempotent method, or an idempotency key, which may be
    /// one of the caller's own among the headers.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        self.idempotency_key.is_some()
            || self.method.is_idempotent()
            || self.headers.contains_key(&self.idempotency_header)
    }

    /// Makes a repeat safe: the key of the request is sent in this header.
    pub fn identify(&mut self, header: &HeaderName) {
        self.idempotency_key = Some(self.key_bytes());
        self.idempotency_header = header.clone();
    }

    /// The names of its credentials, for the key of its lane.
    #[must_use]
    pub fn credential_name(&self) -> Cow<'_, str> {
        match self.credentials.as_slice() {
            [] => Cow::Borrowed(""),
            [one] => Cow::Borrowed(&one.name),
            many => many.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join("+").into(),
        }
    }

    /// The key of this request: SHA-256 of the method, the canonical URL and the body. The
    /// canonical URL is normalized as in browsers, without user, fragment and credentials, with
    /// parameters sorted by name and equal names in their original order. So another API key or
    /// another order of parameters gives the same cache entry.
    #[must_use]
    pub fn key_bytes(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        part(self.method.as_str().as_bytes());
        part(origin(&self.url).as_bytes());
        part(self.url.path().as_bytes());
        let is_credential = |name: &str| {
            self.credentials.iter().any(|c| matches!(&c.place, CredentialLocation::Query(n) if n == name))
        };
        let mut pairs: Vec<_> = pairs(&self.url).filter(|(name, _)| !is_credential(name)).collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        part(&(pairs.len() as u64).to_be_bytes());
        for (name, value) in &pairs {
            part(name.as_bytes());
            part(value.as_bytes());
        }
        part(&self.body);
        hash.finalize().into()
    }

    /// The headers for the origin of the request.
    pub(super) fn sent_headers(&self, user_agent: &HeaderValue) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.entry(header::USER_AGENT).or_insert_with(|| user_agent.clone());
        headers.entry(header::ACCEPT_ENCODING).or_insert(HeaderValue::from_static("gzip"));
        if let Some(key) = self.idempotency_key {
            let mut digits = [0; 64];
            write_hex(&key, &mut digits);
            if let Ok(key) = HeaderValue::from_bytes(&digits) {
                headers.insert(self.idempotency_header.clone(), key);
            }
        }
        headers
    }
}

/// The query parameters as [`Url::query_pairs`] returns them, in half the time.
fn pairs(url: &Url) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let all = url.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    all.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name), decode(value)))
}

fn decode(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|b| matches!(b, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let escaped = behind.first_chunk::<2>().and_then(|[high, low]| unhex_byte(*high, *low));
        let (decoded, behind) = match (byte, escaped) {
            (b'%', Some(value)) => (value, behind.get(2..).unwrap_or_default()),
            (b'+', _) => (b' ', behind),
            _ => (byte, behind),
        };
        out.push(decoded);
        rest = behind;
    }
    Cow::Owned(String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// The origin of a URL as in browsers: the default port is omitted.
fn origin(url: &Url) -> Cow<'_, str> {
    if url.username().is_empty() && url.password().is_none() {
        return Cow::Borrowed(&url[..Position::BeforePath]);
    }
    Cow::Owned(url.origin().ascii_serialization())
}

/// Adds the credentials to a request.
pub(super) fn attach(credentials: &[Credential], url: &mut Url, headers: &mut HeaderMap) {
    for credential in credentials {
        match &credential.place {
            CredentialLocation::Query(name) => {
                url.query_pairs_mut().append_pair(name, credential.secret.reveal());
            }
            CredentialLocation::Header(name, prefix) => {
                // A secret that is not a valid header value is omitted; the service will answer
                // 401.
                if let Ok(mut value) =
                    HeaderValue::from_str(&format!("{prefix}{}", credential.secret.reveal()))
                {
                    value.set_sensitive(true);
                    headers.insert(name.clone(), value);
                }
            }
        }
    }
}

/// Removes the headers that must not be sent to another origin.
pub(super) fn detach(headers: &mut HeaderMap) {
    let secret: Vec<HeaderName> = headers
        .iter()
        .filter(|(name, value)| value.is_sensitive() || is_secret_header(name))
        .map(|(name, _)| name.clone())
        .collect();
    for name in secret {
        headers.remove(name);
    }
    headers.remove(header::HOST);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::hex::hex;

    fn get(url: &str) -> Request {
        Request::get(Url::parse(url).unwrap())
    }

    #[test]
    fn the_key_is_the_question() {
        let key = get("https://a.test/search?q=Bern&limit=1").key_bytes();
        assert_eq!(hex(&key), "dd7f901a0dca274b62e0bcdd5a6e93a5eec5948148bd3f55241b2d24d185ef7a");
        let same =
            ["https://A.test:443/search?limit=1&q=Bern#f", "https://u:p@a.test/search?q=B%65rn&limit=1"];
        for url in same {
            assert_eq!(get(url).key_bytes(), key, "{url}");
        }
        let mut with_key = get("https://a.test/search?q=Bern&limit=1&app=OLD");
        let place = CredentialLocation::Query("app".into());
        with_key.credentials.push(Credential { name: "x".into(), place, secret: Secret::new("NEW".into()) });
        assert_eq!(with_key.key_bytes(), key, "a credential is not part of the question");
        for other in [
            "https://a.test/search?q=Bern&limit=2",
            "http://a.test/search?q=Bern&limit=1",
            "https://a.test/search?q=Bern&limit=1&limit=1",
            "https://a.test/search?q=Bernlimit=1",
            "https://a.test/search/?q=Bern&limit=1",
        ] {
            assert_ne!(get(other).key_bytes(), key, "{other}");
        }
        let post = |body: &'static str| Request::new(Method::POST, get("https://a.test/").url, body.into());
        assert_ne!(post("a").key_bytes(), post("b").key_bytes());
        assert_ne!(post("").key_bytes(), get("https://a.test/").key_bytes());
        assert_ne!(get("https://a.test/?a=1&a=2").key_bytes(), get("https://a.test/?a=2&a=1").key_bytes());
    }

    proptest::proptest! {
        #[test]
        fn parameters_are_read_as_everywhere(query in "[a-c=&%+0-9A-F\u{e9}#]{0,30}") {
            let url = Url::parse(&format!("http://a.test/?{query}")).unwrap();
            proptest::prop_assert!(pairs(&url).eq(url.query_pairs()), "{}", url);
        }
    }

    #[test]
    fn a_repeat_is_safe_or_not() {
        let mut request = get("https://a.test/");
        assert!(request.is_repeatable());
        request.method = Method::POST;
        assert!(!request.is_repeatable());
        let mut own = request.clone();
        own.headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static("7"));
        assert!(own.is_repeatable());
        request.idempotency_key = Some(request.key_bytes());
        assert!(request.is_repeatable());
    }
}
