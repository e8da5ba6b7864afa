//! Credentials: where they come from, and how they are kept out of all text.
//!
//! A manifest never contains a secret, only a reference: `env:NAME` or `file:PATH`. So does a command line:
//! [`Given`] is what a person may write for an address. The value is
//! held in [`Secret`], which no format string can print and which is wiped on drop. Text about
//! requests (logs, dead letters, the audit, reports, errors) passes through one [`Redactor`], which
//! knows the names of secret headers and parameters and the secret values of this process.

mod given;
mod in_url;
mod redact;
#[cfg(test)]
mod tests;

pub use given::{Given, GivenError, fetch_given, looks_like_reference};
pub use in_url::{SecretInUrl, secret_in_url, secrets_in};
pub use redact::{MASK, Redactor, is_secret_header, is_secret_query};

use crate::lock::lock;
use std::borrow::Cow;
use std::fmt;
use std::io::Read;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{LazyLock, Mutex, MutexGuard};
use zeroize::Zeroizing;

/// The longest secret that is read from a file, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// The shortest path of a URL that is masked with it, in bytes: a shorter one holds no credential.
const PATH_BYTES_MIN: usize = 16;

/// A credential. It prints as `***` and is wiped on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a value.
    #[must_use]
    pub fn new(value: String) -> Secret {
        Secret(Zeroizing::new(value))
    }

    /// The value, for the code that sends it.
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

/// A secret and its reference.
#[derive(Clone, Debug)]
pub struct NamedSecret {
    /// The reference, such as `env:GEO_KEY`.
    pub name: String,
    /// The value.
    pub secret: Secret,
}

/// The secrets that this process has fetched, to mask them in the log.
static KNOWN: LazyLock<Mutex<Redactor>> = LazyLock::new(Mutex::default);

fn redactor() -> MutexGuard<'static, Redactor> {
    lock(&KNOWN)
}

/// A line for people with all secrets masked that this process has fetched, and the credentials of its
/// URLs. A last safeguard: messages should already be masked.
#[must_use]
pub fn mask(text: &str) -> Cow<'_, str> {
    match in_url::masked(text, MASK) {
        Cow::Borrowed(text) => redactor().text(text),
        Cow::Owned(text) => Cow::Owned(redactor().text(&text).into_owned()),
    }
}

/// Masks a secret from now on: the value, and if it is a URL, the credentials in it, as they are and as a
/// header of HTTP spells them.
fn know(secret: &Secret) {
    let mut known = redactor();
    known.add(secret);
    let value = secret.reveal();
    let all = in_url::find(value);
    // A web address that is a secret and holds no other one: the path of a webhook is its credential.
    if all.is_empty()
        && let Ok(url) = url::Url::parse(value)
        && matches!(url.scheme(), "http" | "https")
        && url.path().len() >= PATH_BYTES_MIN
    {
        known.add(&Secret::new(url.path().to_owned()));
    }
    for found in all {
        let part = value.get(found.place.clone()).unwrap_or_default();
        let plain = in_url::decoded(part);
        if found.what == SecretInUrl::Password {
            let before = value.get(..found.place.start).unwrap_or_default().trim_end_matches(':');
            let user = in_url::decoded(before.rsplit('/').next().unwrap_or_default());
            let basic = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, format!("{user}:{plain}"));
            known.add(&Secret::new(basic));
            // `postgres:postgres@` is a name, too, that would be masked in every line.
            if plain == user {
                continue;
            }
        }
        known.add(&Secret::new(part.to_owned()));
        known.add(&Secret::new(plain));
    }
}

/// A secret that a service issued; from now on it is masked in the log.
#[cfg(feature = "object-store")]
pub(crate) fn issued(value: String) -> Secret {
    let secret = Secret::new(value);
    redactor().add(&secret);
    secret
}

/// A reference to a secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SecretRef {
    /// `env:NAME`, an environment variable.
    Env(String),
    /// `file:PATH`, a file; a trailing line break is ignored.
    File(PathBuf),
}

/// Why a secret cannot be fetched. The value is never quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretError {
    /// The text is not a reference.
    NotARef,
    /// The variable is not set, or is not UTF-8.
    Env(String),
    /// The file cannot be read.
    File(PathBuf, String),
    /// The value is empty.
    Empty(SecretRef),
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The text is not quoted: it may be the secret itself, put here by mistake.
            SecretError::NotARef => f.write_str("a secret must be given as env:NAME or file:PATH"),
            SecretError::Env(name) => write!(f, "environment variable {name} is not set"),
            SecretError::File(path, why) => {
                write!(f, "cannot read the secret file {}: {why}", path.display())
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
    /// When the variable is not set, the file cannot be read, is too long or is not text, or the
    /// value is empty.
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
                // A device says that it is empty, and never ends.
                let mut text = Zeroizing::new(String::new());
                let file = std::fs::File::open(path).map_err(|e| fail(e.to_string()))?;
                file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|e| fail(e.to_string()))?;
                if text.len() as u64 > FILE_BYTES_MAX {
                    return Err(fail(format!("it has more than {FILE_BYTES_MAX} bytes")));
                }
                text
            }
        };
        let length = value.trim_end_matches(['\r', '\n']).len();
        value.truncate(length);
        if value.is_empty() {
            return Err(SecretError::Empty(self.clone()));
        }
        let secret = Secret(value);
        know(&secret);
        Ok(secret)
    }
}
