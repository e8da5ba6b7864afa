//! Masks credentials in everything that turns a request into text.
//!
//! It masks by name and by value. By name, because a credential can come from anywhere, also from a
//! server's redirect: everything under a name in the lists below is masked. By value, because a
//! server may quote our key in an error body: the secrets of this process are masked wherever they
//! appear, however they are escaped: in URLs (`%2F`, `%2f`, `+`), in JSON (`\/`, `\u002f`), or a
//! mixture.

use super::Secret;
use crate::http::{CredentialLocation, Request};
use http::HeaderName;
use std::borrow::Cow;
use tidegate_core::hex::unhex_byte;
use url::Url;

/// The replacement for a secret.
pub const MASK: &str = "***";
/// The most characters of a body in the line of a request.
const BODY_CHARS_SHOWN: usize = 200;

/// The shortest value that is masked by value, in bytes: a shorter one would match innocent text.
const VALUE_BYTES_MIN: usize = 6;

const HEADERS: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "www-authenticate",
    "cookie",
    "set-cookie",
    "x-api-key",
    "api-key",
    "apikey",
    "x-auth-token",
    "x-access-token",
    "x-goog-api-key",
    "x-esri-authorization",
    "x-amz-security-token",
    "ocp-apim-subscription-key",
    "x-subscription-key",
];

const QUERY: &[&str] = &[
    "key",
    "api_key",
    "apikey",
    "api-key",
    "app_id",
    "app_code",
    "appid",
    "app_key",
    "token",
    "access_token",
    "auth",
    "auth_token",
    "authkey",
    "client_secret",
    "sig",
    "signature",
    "secret",
    "password",
    "passwd",
    "pwd",
    "pass",
    "accesskey",
    "accesskeyid",
    "access_key",
    "account_key",
    "license_key",
    "user_key",
    "subscription-key",
    "map_key",
    "sessionid",
    "credential",
];

/// Whether a header of this name carries a credential.
#[must_use]
pub fn is_secret_header(name: &HeaderName) -> bool {
    let name = name.as_str();
    HEADERS.contains(&name)
        || ["token", "secret", "api-key", "apikey", "password"].iter().any(|w| name.contains(w))
}

/// Whether a query parameter of this name carries a credential.
#[must_use]
pub fn is_secret_query(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    QUERY.contains(&name.as_str())
        || name.starts_with("x-amz-")
        || name.starts_with("x-goog-")
        || ["token", "secret", "api_key", "api-key", "apikey", "signature", "password"]
            .iter()
            .any(|word| name.contains(word))
}

/// Masks credentials by name and by value.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    /// The values, longest first.
    values: Vec<Secret>,
    /// Query parameters that a profile or manifest declares secret, in lower case.
    names: Vec<String>,
}

impl Redactor {
    /// A redactor that masks by name only.
    #[must_use]
    pub fn new() -> Redactor {
        Redactor::default()
    }

    /// Also masks this value, wherever it appears.
    pub fn add(&mut self, secret: &Secret) {
        let value = secret.reveal();
        if value.len() < VALUE_BYTES_MIN {
            return;
        }
        if !self.values.contains(secret) {
            self.values.push(secret.clone());
        }
        // Longest first, so that no part of a longer value remains.
        self.values.sort_by_key(|v| std::cmp::Reverse(v.reveal().len()));
    }

    /// Also masks query parameters of this name.
    pub fn add_name(&mut self, name: &str) {
        self.names.push(name.to_ascii_lowercase());
    }

    /// A text with the known values masked.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // Replacing whole characters of UTF-8 leaves UTF-8.
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// Bytes with the known values masked.
    #[must_use]
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut out = Cow::Borrowed(bytes);
        for value in &self.values {
            if let Some(masked) = masked(&out, value.reveal().as_bytes()) {
                out = Cow::Owned(masked);
            }
        }
        out
    }

    /// A URL without its user, its secret parameters and the known values.
    #[must_use]
    pub fn url(&self, url: &Url) -> String {
        let mut out = url.clone();
        // Fails only for a URL without a host, which has no user.
        let _ = out.set_username("");
        let _ = out.set_password(None);
        out.set_fragment(None);
        if url.query().is_some() {
            let pairs: Vec<(String, String)> = url
                .query_pairs()
                .map(|(k, v)| {
                    let v = if self.is_secret(&k) { MASK.into() } else { v.into_owned() };
                    (k.into_owned(), v)
                })
                .collect();
            out.query_pairs_mut().clear().extend_pairs(pairs);
        }
        self.text(out.as_str()).into_owned()
    }

    /// A request in one line: method, URL, where its credentials go, and the start of its body.
    #[must_use]
    pub fn request(&self, request: &Request) -> String {
        let mut url = self.url(&request.url);
        let mut headers = String::new();
        for credential in &request.credentials {
            match &credential.place {
                CredentialLocation::Query(name) => {
                    url.push(if url.contains('?') { '&' } else { '?' });
                    url.push_str(&format!("{name}={MASK}"));
                }
                CredentialLocation::Header(name, prefix) => {
                    headers.push_str(&format!(" [{name}: {prefix}{MASK}]"));
                }
            }
        }
        let body = String::from_utf8_lossy(&request.body);
        let body: String = self.text(&body).chars().take(BODY_CHARS_SHOWN).collect();
        format!("{} {url}{headers} {body}", request.method).trim_end().to_owned()
    }

    /// The value of a header, masked if its name or value is secret.
    #[must_use]
    pub fn header(&self, name: &HeaderName, value: &http::HeaderValue) -> String {
        if value.is_sensitive() || is_secret_header(name) {
            return MASK.into();
        }
        self.text(&String::from_utf8_lossy(value.as_bytes())).into_owned()
    }

    /// Whether a query parameter of this name is masked.
    #[must_use]
    pub fn is_secret(&self, name: &str) -> bool {
        is_secret_query(name) || self.names.contains(&name.to_ascii_lowercase())
    }
}

/// The text with every escaped form of `secret` masked; `None` if there is none.
fn masked(text: &[u8], secret: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut kept, mut at) = (Vec::new(), 0, 0);
    while at < text.len() {
        match spelled(text.get(at..)?, secret) {
            Some(length) => {
                out.extend_from_slice(text.get(kept..at)?);
                out.extend_from_slice(MASK.as_bytes());
                at += length;
                kept = at;
            }
            None => at += 1,
        }
    }
    if kept == 0 {
        return None;
    }
    out.extend_from_slice(text.get(kept..)?);
    Some(out)
}

/// The length of the escaped form of `secret` at the start of `text`, in bytes.
fn spelled(text: &[u8], secret: &[u8]) -> Option<usize> {
    let mut at = 0;
    for &wanted in secret {
        let rest = text.get(at..)?;
        at += match *rest {
            [b'%', high, low, ..] if unhex_byte(high, low) == Some(wanted) => 3,
            [b'\\', b'u', b'0', b'0', high, low, ..] if unhex_byte(high, low) == Some(wanted) => 6,
            [b'\\', escaped, ..] if escaped == wanted && matches!(wanted, b'"' | b'\\' | b'/') => 2,
            [b'+', ..] if wanted == b' ' => 1,
            [plain, ..] if plain == wanted => 1,
            _ => return None,
        };
    }
    Some(at)
}
