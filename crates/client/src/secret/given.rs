//! What a person gives for the address of a store, a queue, a database or a fleet: the address, or a
//! reference to it.
//!
//! One type for every option and every key of a manifest, so that `env:NAME` means the same
//! everywhere. What looks like a reference and is none is refused instead of becoming the name of a
//! file, and so is a URL with a credential in it: it would be in the list of processes, in the
//! history of the shell and in version control. Neither is quoted, because it may be the secret.

use super::{Secret, SecretError, SecretInUrl, SecretRef, secret_in_url};
use std::fmt;
use std::str::FromStr;

/// An address, or a reference to one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Given {
    /// The address itself, without a credential.
    Plain(String),
    /// Where it is.
    Reference(SecretRef),
}

/// Why a text is no [`Given`]. It does not quote the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenError {
    /// It begins like a reference and is none.
    NotARef,
    /// It is a URL with a credential.
    HasSecret(SecretInUrl),
}

/// Whether a text begins like a reference, in any spelling.
#[must_use]
pub fn looks_like_reference(text: &str) -> bool {
    let scheme = text.trim_start().split_once(':').map_or("", |(scheme, _)| scheme.trim_end());
    scheme.eq_ignore_ascii_case("env") || scheme.eq_ignore_ascii_case("file")
}

impl fmt::Display for GivenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GivenError::NotARef => f.write_str(
                "this begins like a reference and is none; write env:NAME with the name of an environment variable (letters, digits and _), or file:PATH, in small letters",
            ),
            GivenError::HasSecret(what) => write!(
                f,
                "the URL holds {what}; put the whole URL into an environment variable or a file, and write env:NAME or file:PATH"
            ),
        }
    }
}

impl std::error::Error for GivenError {}

impl FromStr for Given {
    type Err = GivenError;

    fn from_str(text: &str) -> Result<Given, GivenError> {
        if looks_like_reference(text) {
            return text.parse().map(Given::Reference).map_err(|_| GivenError::NotARef);
        }
        match secret_in_url(text) {
            Some(what) => Err(GivenError::HasSecret(what)),
            None => Ok(Given::Plain(text.to_owned())),
        }
    }
}

impl fmt::Display for Given {
    /// As it was given: there is no secret in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Given::Plain(text) => f.write_str(text),
            Given::Reference(from) => from.fmt(f),
        }
    }
}

impl Given {
    /// The address, for the code that opens it. From a reference it is fetched now.
    ///
    /// # Errors
    /// When the reference cannot be fetched.
    pub fn fetch(&self) -> Result<Secret, SecretError> {
        match self {
            Given::Plain(text) => Ok(Secret::new(text.clone())),
            Given::Reference(from) => from.fetch(),
        }
    }

    /// The reference, if it is one.
    #[must_use]
    pub fn reference(&self) -> Option<&SecretRef> {
        match self {
            Given::Plain(_) => None,
            Given::Reference(from) => Some(from),
        }
    }
}

/// The address that a text of a manifest, a variable or a setting gives.
///
/// # Errors
/// When it looks like a reference and is none, holds a credential, or cannot be fetched. The text is not
/// quoted.
pub fn fetch_given(text: &str) -> Result<Secret, String> {
    let given: Given = text.parse().map_err(|e: GivenError| e.to_string())?;
    given.fetch().map_err(|e| e.to_string())
}
