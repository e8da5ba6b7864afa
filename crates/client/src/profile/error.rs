//! Errors of profiles and of building their requests.

use super::{ProfileProblem, Refusal};
use std::fmt;
use tidegate_core::suggest::question;

/// Why a profile cannot be used.
#[derive(Debug)]
pub enum ProfileError {
    /// A value, or a combination of values, is not allowed in a profile.
    Invalid(String),
    /// There is no profile of this name.
    Unknown {
        /// The name.
        name: String,
        /// The known names.
        known: Vec<String>,
    },
    /// A profile file cannot be read or is invalid.
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
                write!(f, "unknown profile `{name}`{guess}; expected one of {}", known.join(", "))
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

/// Why no request can be built from a profile, a key and a query.
#[derive(Clone, Debug, PartialEq)]
pub enum ProfileRequestError {
    /// The query is refused.
    Refused(Refusal),
    /// The URL of the profile is invalid.
    BaseUrl {
        /// The URL as written.
        text: String,
        /// The parse error.
        source: url::ParseError,
    },
    /// The URL of the request is invalid. It is not quoted, because it may contain the key.
    RequestUrl(url::ParseError),
    /// The name of the header for the key is not a valid header name.
    KeyHeader {
        /// The name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The profile defines neither a query parameter nor a header for the key.
    KeyLocation {
        /// The name of the profile.
        profile: String,
    },
    /// This header name is invalid.
    HeaderName(String),
    /// The value of this header is invalid.
    HeaderValue(String),
}

impl fmt::Display for ProfileRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileRequestError::Refused(refusal) => refusal.fmt(f),
            ProfileRequestError::BaseUrl { text, source } => write!(f, "{text}: {source}"),
            ProfileRequestError::RequestUrl(e) => write!(f, "the request URL is invalid: {e}"),
            ProfileRequestError::KeyHeader { name, reason } => write!(f, "{name}: {reason}"),
            ProfileRequestError::KeyLocation { profile } => {
                write!(f, "profile {profile}: `auth` has neither `query` nor `header`")
            }
            ProfileRequestError::HeaderName(name) => write!(f, "invalid header name {name}"),
            ProfileRequestError::HeaderValue(name) => write!(f, "invalid value for the header {name}"),
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
