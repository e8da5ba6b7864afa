//! Credentials: where they come from, and how they stay out of everything that becomes text.
//!
//! A manifest never holds a secret, only where to find it: `env:NAME` or `file:PATH`. The value
//! lives in [`Secret`], which no format string can print and which is wiped when dropped. Text
//! about requests (logs, dead letters, the audit, reports, errors) goes through one
//! [`Redactor`], which knows the names under which credentials travel and the values that this
//! process holds.

mod redact;
#[cfg(test)]
mod tests;

pub use redact::{MASK, Redactor, is_secret_header, is_secret_query};

use crate::lock::lock;
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{LazyLock, Mutex, MutexGuard};
use zeroize::Zeroizing;

/// The longest secret that is read from a file.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// A credential. It prints as `***` and is wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the value in.
    #[must_use]
    pub fn new(value: String) -> Secret {
        Secret(Zeroizing::new(value))
    }

    /// The value, for the one place that sends it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

/// A secret and where it was found.
#[derive(Clone, Debug)]
pub struct NamedSecret {
    /// The reference, such as `env:GEO_KEY`.
    pub name: String,
    /// The value.
    pub secret: Secret,
}

/// The secrets that this process has fetched, for its log.
static KNOWN: LazyLock<Mutex<Redactor>> = LazyLock::new(Mutex::default);

fn redactor() -> MutexGuard<'static, Redactor> {
    lock(&KNOWN)
}

/// A line of a log, with every secret masked that this process has fetched: the last net under
/// those who mask what they say themselves.
#[must_use]
pub fn mask(text: &str) -> Cow<'_, str> {
    redactor().text(text)
}

/// Where a secret is to be found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SecretRef {
    /// `env:NAME`, an environment variable.
    Env(String),
    /// `file:PATH`, a file; a line break at its end does not count.
    File(PathBuf),
}

/// What is wrong with a reference or with what it names. Never quotes a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretError {
    /// The text is no reference.
    NotARef,
    /// The variable is not set, or not text.
    Env(String),
    /// The file cannot be read.
    File(PathBuf, String),
    /// There is nothing in it.
    Empty(SecretRef),
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The text is not quoted: it may be the secret itself, put in the wrong place.
            SecretError::NotARef => {
                f.write_str("a secret is named as env:NAME or file:PATH, never written out")
            }
            SecretError::Env(name) => write!(f, "the environment variable {name} is not set"),
            SecretError::File(path, why) => {
                write!(f, "the secret file {} cannot be read: {why}", path.display())
            }
            SecretError::Empty(from) => write!(f, "the secret {from} is empty"),
        }
    }
}

impl std::error::Error for SecretError {}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretRef::Env(name) => write!(f, "env:{name}"),
            SecretRef::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl FromStr for SecretRef {
    type Err = SecretError;
    fn from_str(text: &str) -> Result<SecretRef, SecretError> {
        match text.split_once(':') {
            Some(("env", name)) if is_variable(name) => Ok(SecretRef::Env(name.into())),
            Some(("file", path)) if !path.is_empty() => Ok(SecretRef::File(path.into())),
            _ => Err(SecretError::NotARef),
        }
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl SecretRef {
    /// Fetches the secret.
    ///
    /// # Errors
    /// The variable is not set, the file cannot be read, is too long or is no text, or it is empty.
    pub fn fetch(&self) -> Result<Secret, SecretError> {
        let mut value = match self {
            SecretRef::Env(name) => {
                Zeroizing::new(std::env::var(name).map_err(|_| SecretError::Env(name.clone()))?)
            }
            SecretRef::File(path) => {
                let fail = |why: String| SecretError::File(path.clone(), why);
                let length = std::fs::metadata(path).map_err(|e| fail(e.to_string()))?.len();
                if length > FILE_BYTES_MAX {
                    return Err(fail(format!("it has {length} bytes, more than {FILE_BYTES_MAX}")));
                }
                Zeroizing::new(std::fs::read_to_string(path).map_err(|e| fail(e.to_string()))?)
            }
        };
        let length = value.trim_end_matches(['\r', '\n']).len();
        value.truncate(length);
        if value.is_empty() {
            return Err(SecretError::Empty(self.clone()));
        }
        let secret = Secret(value);
        redactor().add(&secret);
        Ok(secret)
    }
}
