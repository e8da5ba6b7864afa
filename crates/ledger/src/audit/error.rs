//! Errors of the audit log.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why the audit log cannot be read, written or signed.
#[derive(Debug)]
pub enum AuditError {
    /// The database cannot be read or written.
    Database(Box<dyn Error + Send + Sync>),
    /// A file cannot be read or written, or does not hold what it should.
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The log cannot be opened or written.
    Log {
        /// The file of the log, if it could not be opened.
        path: Option<PathBuf>,
        /// Why.
        source: Box<AuditError>,
    },
    /// This program does not support the schema version of the log.
    Version {
        /// The schema version found.
        found: i64,
        /// The schema version that this program writes.
        written: i64,
    },
    /// The log was changed from outside: the evidence, and what to do.
    Changed(String),
    /// A copied checkpoint is no longer in the database.
    Truncated {
        /// The number of the checkpoint, from 1.
        checkpoint: i64,
        /// The number of the last entry that it covers, from 1.
        entry: i64,
        /// The command that verifies the log.
        check: String,
    },
    /// A text is not a signing key. The message does not quote it.
    NotASigningKey,
    /// A text is not a public key.
    NotAPublicKey,
    /// The cryptographic library rejects the signing key.
    BadKey(ring::error::KeyRejected),
    /// The operating system provides no random bytes.
    NoRandomness(getrandom::Error),
}

impl AuditError {
    pub(crate) fn database(source: impl Error + Send + Sync + 'static) -> AuditError {
        AuditError::Database(Box::new(source))
    }

    pub(super) fn file(path: &Path, source: impl Into<Box<dyn Error + Send + Sync>>) -> AuditError {
        AuditError::File { path: path.to_owned(), source: source.into() }
    }
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuditError::Database(e) => e.fmt(f),
            AuditError::File { path, source } => write!(f, "{}: {source}", path.display()),
            AuditError::Log { path: Some(path), source } => {
                write!(f, "the audit {}: {source}", path.display())
            }
            AuditError::Log { path: None, source } => write!(f, "the audit: {source}"),
            AuditError::Version { found, written } => {
                write!(f, "its tables have version {found}, expected {written}")
            }
            AuditError::Changed(what) => write!(f, "the audit was modified by another program: {what}"),
            AuditError::Truncated { checkpoint, entry, check } => write!(
                f,
                "the audit was truncated or restored: its checkpoint {checkpoint}, up to entry {entry}, is no longer in \
                 the database; no more entries are written, check with `{check}`"
            ),
            AuditError::NotASigningKey => {
                f.write_str("not an audit key; expected tidegate-audit-key-1 ID HEX")
            }
            AuditError::NotAPublicKey => {
                f.write_str("not a public audit key; expected tidegate-audit-public-1 ID HEX")
            }
            AuditError::BadKey(e) => write!(f, "invalid audit key: {e}"),
            AuditError::NoRandomness(e) => write!(f, "cannot get random numbers from the system: {e}"),
        }
    }
}

impl Error for AuditError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            AuditError::Database(e) | AuditError::File { source: e, .. } => Some(e.as_ref()),
            AuditError::Log { source, .. } => Some(source.as_ref()),
            AuditError::NoRandomness(e) => Some(e),
            // `KeyRejected` implements `Error` only with a feature of its crate; the message
            // includes it.
            AuditError::BadKey(_)
            | AuditError::Version { .. }
            | AuditError::Changed(_)
            | AuditError::Truncated { .. }
            | AuditError::NotASigningKey
            | AuditError::NotAPublicKey => None,
        }
    }
}
