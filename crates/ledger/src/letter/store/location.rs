//! The location of a letter store.

use std::path::PathBuf;
use std::str::FromStr;

use tidegate_core::quote::scheme;

use crate::letter::LetterError;

/// The location of a letter store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterStoreLocation {
    /// A SQLite file.
    File(PathBuf),
    /// `postgres://…`; `?schema=NAME` selects a schema other than `tidegate`.
    Url(String),
}

impl FromStr for LetterStoreLocation {
    type Err = LetterError;

    /// # Errors
    /// A scheme that is not built in. It would otherwise become a file of that name.
    fn from_str(text: &str) -> Result<LetterStoreLocation, LetterError> {
        match scheme(text) {
            None => Ok(LetterStoreLocation::File(text.into())),
            Some("postgres" | "postgresql") => Ok(LetterStoreLocation::Url(text.to_owned())),
            // The rest of the location may hold a password.
            Some(other) => Err(LetterError::Refused(format!(
                "{other}:// cannot hold dead letters; use a file, or postgres://user@host/db?schema=NAME"
            ))),
        }
    }
}

impl std::fmt::Display for LetterStoreLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LetterStoreLocation::File(path) => write!(f, "{}", path.display()),
            // Redact the password.
            LetterStoreLocation::Url(url) => match url::Url::parse(url) {
                Ok(mut url) => {
                    let _ = url.set_password(None);
                    write!(f, "{url}")
                }
                Err(_) => f.write_str("postgres://…"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_built_in_is_a_location() {
        for file in ["letters.db", "./a:b/letters.db", "C:\\letters.db", "://x", "1x://y", "a/b://c"] {
            assert_eq!(file.parse::<LetterStoreLocation>().unwrap(), LetterStoreLocation::File(file.into()));
        }
        let url = "postgres://u@h/db";
        assert_eq!(url.parse::<LetterStoreLocation>().unwrap(), LetterStoreLocation::Url(url.into()));
        for other in ["redis://u:secret@h/0", "s3://b/letters", "gs://b", "sqlite://x.db", "Postgres+tls://h"]
        {
            let why = other.parse::<LetterStoreLocation>().unwrap_err();
            assert!(matches!(why, LetterError::Refused(_)), "{other}");
            assert!(!why.to_string().contains("secret"), "{why}");
        }
    }
}
