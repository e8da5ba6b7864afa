//! What is asked, and the key by which the same question is known again.

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
    /// In a header, after a prefix such as `Bearer ` or none.
    Header(HeaderName, String),
    /// In a parameter of the query.
    Query(String),
}

/// A secret, its place in a request, and the name under which it may be spoken of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// A name for lanes and logs, such as `env:GEO_KEY`.
    pub name: String,
    /// The header or query parameter that carries it.
    pub place: CredentialLocation,
    /// The secret value.
    pub secret: Secret,
}

/// One question to a service. Credentials are kept apart from the rest, so that they can be left
/// behind when a redirect leaves the host that they are for.
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
    /// The credentials: sent to the origin of `url` and to no other.
    pub credentials: Vec<Credential>,
    /// The idempotency key, which makes a repeat safe, sent as `Idempotency-Key`: see
    /// [`Request::key_bytes`].
    pub idempotency_key: Option<[u8; 32]>,
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
        }
    }

    /// Whether asking twice does no more than asking once.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        self.idempotency_key.is_some() || self.method.is_idempotent()
    }

    /// The names of its credentials, for the key of its lane.
    #[must_use]
    pub fn credential_name(&self) -> String {
        match self.credentials.as_slice() {
            [] => String::new(),
            [one] => one.name.clone(),
            many => many.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join("+"),
        }
    }

    /// The key of this request: SHA-256 of the method, the canonical URL and the
    /// body. Canonical is: as browsers normalise it, without user, fragment and credentials, the
    /// parameters sorted by name with equal names left in their order. So a new API key or another
    /// order of parameters asks the same question, and the cache knows it.
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

    /// The headers as sent to the origin that the request is for.
    pub(super) fn sent_headers(&self, user_agent: &HeaderValue) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.entry(header::USER_AGENT).or_insert_with(|| user_agent.clone());
        headers.entry(header::ACCEPT_ENCODING).or_insert(HeaderValue::from_static("gzip"));
        if let Some(key) = self.idempotency_key {
            let mut digits = [0; 64];
            write_hex(&key, &mut digits);
            if let Ok(key) = HeaderValue::from_bytes(&digits) {
                headers.insert(IDEMPOTENCY_KEY, key);
            }
        }
        headers
    }
}

/// The parameters of a URL, as [`Url::query_pairs`] has them, in half the time.
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

/// The origin of a URL, as browsers write it: the URL names no port that goes without saying.
fn origin(url: &Url) -> Cow<'_, str> {
    if url.username().is_empty() && url.password().is_none() {
        return Cow::Borrowed(&url[..Position::BeforePath]);
    }
    Cow::Owned(url.origin().ascii_serialization())
}

/// Puts the credentials into a request.
pub(super) fn attach(credentials: &[Credential], url: &mut Url, headers: &mut HeaderMap) {
    for credential in credentials {
        match &credential.place {
            CredentialLocation::Query(name) => {
                url.query_pairs_mut().append_pair(name, credential.secret.reveal());
            }
            CredentialLocation::Header(name, prefix) => {
                // A secret that no header can hold is left out; the service will say "unauthorized".
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

/// Takes out of `headers` what must not leave its origin.
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
        request.idempotency_key = Some(request.key_bytes());
        assert!(request.is_repeatable());
    }
}
