//! What calls have in common when they share a lane.

use std::fmt;
use url::Url;

/// The name of a lane. It is safe to print: a credential appears by its name, never by its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LaneKey {
    /// One host as one user of it: limits are kept per credential.
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
