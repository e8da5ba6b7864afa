//! The key of a lane.

use std::fmt;
use url::{Position, Url};

/// The key of a lane. It is safe to print: it contains the name of a credential, never its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LaneKey {
    /// One host with one credential, because servers apply limits per credential.
    Host {
        /// Scheme, host and port.
        origin: String,
        /// The name of the credential; empty without one.
        credential: String,
    },
    /// One prefix of an object store.
    Prefix {
        /// The store, such as `s3://bucket`.
        store: String,
        /// The prefix within it.
        prefix: String,
    },
}

impl LaneKey {
    /// The lane of a URL, used with the credential of this name.
    #[must_use]
    pub fn of_url(url: &Url, credential: &str) -> LaneKey {
        LaneKey::Host { origin: url.origin().ascii_serialization(), credential: credential.into() }
    }

    /// Whether this is [`LaneKey::of_url`] of a URL without a user. It allocates nothing, for
    /// callers that ask for every record.
    #[must_use]
    pub fn is_of_url(&self, url: &Url, credential: &str) -> bool {
        match self {
            LaneKey::Host { origin, credential: name } => {
                name == credential && *origin == url[..Position::BeforePath]
            }
            LaneKey::Prefix { .. } => false,
        }
    }

    /// The lane of a prefix of an object store.
    #[must_use]
    pub fn of_prefix(store: &str, prefix: &str) -> LaneKey {
        LaneKey::Prefix { store: store.into(), prefix: prefix.into() }
    }

    /// The host or store, for a metric's label: no path, no credential.
    #[must_use]
    pub fn host(&self) -> String {
        match self {
            LaneKey::Host { origin, .. } => {
                origin.split_once("://").map_or(origin.as_str(), |(_, host)| host).to_string()
            }
            LaneKey::Prefix { store, .. } => store.to_string(),
        }
    }
}

impl fmt::Display for LaneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaneKey::Host { origin, credential } if credential.is_empty() => f.write_str(origin),
            LaneKey::Host { origin, credential } => write!(f, "{origin} as {credential}"),
            LaneKey::Prefix { store, prefix } => write!(f, "{store}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_recognises_the_urls_that_it_was_made_of() {
        let url = |text: &str| Url::parse(text).unwrap();
        let key = LaneKey::of_url(&url("https://A.test:443/search?q=1"), "env:A");
        assert!(key.is_of_url(&url("https://a.test/other"), "env:A"));
        for (other, credential) in [
            ("https://a.test/", "env:B"),
            ("http://a.test/", "env:A"),
            ("https://a.test:8443/", "env:A"),
            ("https://a.test.evil.test/", "env:A"),
        ] {
            assert!(!key.is_of_url(&url(other), credential), "{other} {credential}");
        }
        let ip = url("http://[::1]:8080/x");
        assert!(LaneKey::of_url(&ip, "").is_of_url(&ip, ""));
        assert!(!LaneKey::of_prefix("s3://a", "").is_of_url(&ip, ""));
    }
}
