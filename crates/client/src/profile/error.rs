//! Why a profile cannot be used, and why it makes no request of a query.

use super::{ProfileProblem, Refusal};
use std::fmt;
use tidegate_core::suggest::question;

/// Why a profile cannot be used.
#[derive(Debug)]
pub enum ProfileError {
    /// A value, or a combination of values, that a profile cannot have.
    Invalid(String),
    /// There is no profile of this name.
    Unknown {
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// A file of profiles cannot be read or is wrong.
    File(ProfileProblem),
    /// The profile cannot be written as JSON.
    Json(serde_json::Error),
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileError::Invalid(reason) => f.write_str(reason),
            ProfileError::Unknown { name, known } => {
                let names: Vec<&str> = known.iter().map(String::as_str).collect();
                let guess = question(name, &names);
                write!(f, "there is no profile `{name}`{guess}; there are {}", known.join(", "))
            }
            ProfileError::File(problem) => problem.fmt(f),
            ProfileError::Json(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for ProfileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ProfileError::Invalid(_) | ProfileError::Unknown { .. } => None,
            ProfileError::File(problem) => Some(problem),
            ProfileError::Json(e) => Some(e),
        }
    }
}

impl From<ProfileProblem> for ProfileError {
    fn from(problem: ProfileProblem) -> ProfileError {
        ProfileError::File(problem)
    }
}

/// Why a profile and a key make no request of a query.
#[derive(Clone, Debug, PartialEq)]
pub enum ProfileRequestError {
    /// The query cannot be asked.
    Refused(Refusal),
    /// The address of the profile is no URL.
    BaseUrl {
        /// The address.
        text: String,
        /// Why it is no URL.
        source: url::ParseError,
    },
    /// The address of the request is no URL. It is not quoted: it may hold the key.
    RequestUrl(url::ParseError),
    /// The name of the header that takes the key cannot be sent.
    KeyHeader {
        /// The name.
        name: String,
        /// Why it cannot be sent.
        reason: String,
    },
    /// The profile says neither a query parameter nor a header for the key.
    KeyLocation {
        /// The name of the profile.
        profile: String,
    },
    /// The name of a header cannot be sent.
    HeaderName(String),
    /// The value of the header of this name cannot be sent.
    HeaderValue(String),
}

impl fmt::Display for ProfileRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileRequestError::Refused(refusal) => refusal.fmt(f),
            ProfileRequestError::BaseUrl { text, source } => write!(f, "{text}: {source}"),
            ProfileRequestError::RequestUrl(e) => write!(f, "the request has no valid address: {e}"),
            ProfileRequestError::KeyHeader { name, reason } => write!(f, "{name}: {reason}"),
            ProfileRequestError::KeyLocation { profile } => {
                write!(f, "profile {profile}: its key has no place")
            }
            ProfileRequestError::HeaderName(name) => write!(f, "{name} is not a header"),
            ProfileRequestError::HeaderValue(name) => write!(f, "{name} cannot be sent"),
        }
    }
}

impl std::error::Error for ProfileRequestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ProfileRequestError::Refused(refusal) => Some(refusal),
            ProfileRequestError::BaseUrl { source: e, .. } | ProfileRequestError::RequestUrl(e) => Some(e),
            ProfileRequestError::KeyHeader { .. }
            | ProfileRequestError::KeyLocation { .. }
            | ProfileRequestError::HeaderName(_)
            | ProfileRequestError::HeaderValue(_) => None,
        }
    }
}

impl From<Refusal> for ProfileRequestError {
    fn from(refusal: Refusal) -> ProfileRequestError {
        ProfileRequestError::Refused(refusal)
    }
}
