//! The location of a letter store.

use std::path::PathBuf;
use std::str::FromStr;

use tidegate_client::secret::{Given, GivenError, Secret, SecretRef, mask};
use tidegate_core::quote::scheme;

use crate::letter::LetterError;

/// The location of a letter store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterStoreLocation {
    /// A SQLite file.
    File(PathBuf),
    /// `postgres://…`; `?schema=NAME` selects a schema other than `tidegate`.
    Url(StoreUrl),
}

/// The URL of a store. It prints as the reference that it came from, or without its credentials.
#[derive(Clone)]
pub struct StoreUrl {
    url: Secret,
    from: Option<SecretRef>,
}

impl StoreUrl {
    /// The URL, for the code that connects.
    #[must_use]
    pub fn reveal(&self) -> &str {
        self.url.reveal()
    }
}

impl PartialEq for StoreUrl {
    /// Two references to one store are one store.
    fn eq(&self, other: &StoreUrl) -> bool {
        self.url == other.url
    }
}

impl Eq for StoreUrl {}

impl std::fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.from {
            Some(from) => from.fmt(f),
            None => f.write_str(&mask(self.url.reveal())),
        }
    }
}

impl std::fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

impl LetterStoreLocation {
    /// What a person gave; a reference is fetched now.
    ///
    /// # Errors
    /// When a reference cannot be fetched, or for a scheme that is not built in. It would otherwise become
    /// a file of that name.
    pub fn of(given: &Given) -> Result<LetterStoreLocation, LetterError> {
        let url = given.fetch().map_err(|e| LetterError::Refused(e.to_string()))?;
        let of = given.reference().map(|from| format!("{from}: ")).unwrap_or_default();
        let is_another = match url.reveal().parse::<Given>() {
            Ok(held) => held.reference().is_some(),
            Err(why) => why == GivenError::NotARef,
        };
        if !of.is_empty() && is_another {
            return Err(LetterError::Refused(format!(
                "{of}this holds another reference; it must hold a file name or a URL"
            )));
        }
        let text = url.reveal().trim();
        // Never a file whose name is a URL with its password, such as one in quotes or without its slashes.
        let is_database = ["postgres:", "postgresql:", "password="].iter().any(|word| text.contains(word));
        if scheme(text).is_none() && (text != url.reveal() || text.starts_with(['"', '\'']) || is_database) {
            return Err(LetterError::Refused(format!(
                "{of}this is neither a file name nor a URL; write postgres://user@host/db?schema=NAME, without quotes or spaces around it"
            )));
        }
        match scheme(url.reveal()) {
            None => Ok(LetterStoreLocation::File(url.reveal().into())),
            Some("postgres" | "postgresql") => {
                Ok(LetterStoreLocation::Url(StoreUrl { url, from: given.reference().cloned() }))
            }
            // The rest of the location may hold a password.
            Some(other) => Err(LetterError::Refused(format!(
                "{of}{other}:// cannot hold dead letters; use a file, or postgres://user@host/db?schema=NAME"
            ))),
        }
    }
}

impl FromStr for LetterStoreLocation {
    type Err = LetterError;

    /// Reads what a person gave, as [`LetterStoreLocation::of`] does.
    fn from_str(text: &str) -> Result<LetterStoreLocation, LetterError> {
        let given: Given = text.parse().map_err(|e: GivenError| LetterError::Refused(e.to_string()))?;
        LetterStoreLocation::of(&given)
    }
}

impl std::fmt::Display for LetterStoreLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LetterStoreLocation::File(path) => write!(f, "{}", path.display()),
            LetterStoreLocation::Url(url) => url.fmt(f),
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
        let place = url.parse::<LetterStoreLocation>().unwrap();
        assert!(matches!(&place, LetterStoreLocation::Url(at) if at.reveal() == url));
        assert_eq!(place.to_string(), url);
        for other in [
            "redis://u:secret@h/0",
            "s3://b/letters",
            "gs://b",
            "sqlite://x.db",
            "Postgres+tls://h",
            "postgres://u:secret@h/db",
            "env:NO SUCH",
            "ENV:LETTERS",
            "file:",
            "'postgres://u:secret@h/db'",
            "\"postgres://u:secret@h/db\"",
            "postgres:/u:secret@h/db",
            "postgres:u:secret@h/db",
            "jdbc:postgresql:h?password=secret",
            "host=h password=secret",
            "postgres://u:it's secret@h/db",
            "postgres://u:{secret}@h/db",
        ] {
            let why = other.parse::<LetterStoreLocation>().unwrap_err();
            assert!(matches!(why, LetterError::Refused(_)), "{other}");
            assert!(!why.to_string().contains("secret"), "{why}");
        }
    }

    #[test]
    fn a_reference_prints_as_itself() {
        let dir = tempfile::tempdir().unwrap();
        let held = dir.path().join("url");
        let given = format!("file:{}", held.display());
        std::fs::write(&held, "postgres://u:hunter22@h/db?schema=a\n").unwrap();
        let place = given.parse::<LetterStoreLocation>().unwrap();
        assert_eq!(place.to_string(), given);
        assert!(!format!("{place:?}").contains("hunter22"));
        std::fs::write(&held, "env:OTHER").unwrap();
        assert!(given.parse::<LetterStoreLocation>().is_err());
        std::fs::write(&held, "letters.db").unwrap();
        assert_eq!(
            given.parse::<LetterStoreLocation>().unwrap(),
            LetterStoreLocation::File("letters.db".into())
        );
    }
}
