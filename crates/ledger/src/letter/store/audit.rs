//! The audit of the letter store: who changed what and when, in the transaction of the change.
//!
//! Format, chain, signatures and verification are those of [`crate::audit`]. A store in a file is
//! signed with the key in its directory, and its checkpoints are copied to a file beside it. A
//! store on a server is signed and copied if `TIDEGATE_AUDIT_KEY` and `TIDEGATE_AUDIT_COPY` are
//! set.

use super::{
    AuditEvent, AuditWriter, Db, LetterStore, LetterStoreLocation, Result, SqlDialect, Val, Vals, broken,
};
use crate::audit::{
    self, AuditEntry, AuditError, AuditFilter, Copies, PUBLIC_FILE, PublicKey, RepairedCopy, Signer,
    TamperFinding, TrustAnchors, VerifiedLog,
};
use crate::letter::{LetterError, now_ms};
use std::path::{Path, PathBuf};
use tidegate_client::secret::SecretRef;
use tidegate_core::letter::LetterId;
use tidegate_core::quote::shell;

/// The log name in the signatures of letter stores.
const LOG: &str = "letters";

impl crate::sql::Sql for dyn Db + '_ {
    fn exec(&mut self, sql: &str, args: &[Val]) -> std::result::Result<u64, AuditError> {
        Db::exec(self, sql, args).map_err(AuditError::database)
    }

    fn query(&mut self, sql: &str, args: &[Val]) -> std::result::Result<Vec<Vals>, AuditError> {
        Db::query(self, sql, args).map_err(AuditError::database)
    }

    fn hold(&mut self) -> std::result::Result<(), AuditError> {
        self.lock_audit().map_err(AuditError::database)
    }
}

/// The directory of a store that is a file.
fn dir(place: &LetterStoreLocation) -> Option<&Path> {
    match place {
        LetterStoreLocation::File(path) => {
            Some(path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))
        }
        LetterStoreLocation::Url(_) => None,
    }
}

/// The file that the checkpoints of a store are copied to.
fn copies(place: &LetterStoreLocation) -> Option<Copies> {
    let path = match (std::env::var_os("TIDEGATE_AUDIT_COPY"), place) {
        (Some(path), _) => PathBuf::from(path),
        (None, LetterStoreLocation::File(path)) => {
            let mut name = path.as_os_str().to_owned();
            name.push(".checkpoints");
            name.into()
        }
        (None, LetterStoreLocation::Url(_)) => return None,
    };
    Some(Copies::new(&path, LOG))
}

fn signer(place: &LetterStoreLocation) -> Result<Option<Signer>> {
    if let Ok(from) = std::env::var("TIDEGATE_AUDIT_KEY") {
        let from = from.parse::<SecretRef>().map_err(|e| broken(format!("TIDEGATE_AUDIT_KEY: {e}")))?;
        let text = from.fetch().map_err(broken)?;
        return Signer::from_text(text.reveal()).map(Some).map_err(|e| broken(format!("{from}: {e}")));
    }
    dir(place).map(Signer::of_dir).transpose().map_err(broken)
}

pub(super) fn writer(place: &LetterStoreLocation) -> Result<AuditWriter> {
    let mut writer = AuditWriter::new(LOG, signer(place)?, copies(place));
    if let (Some(dir), LetterStoreLocation::File(path)) = (dir(place), place)
        && let Some(name) = path.file_name().and_then(|name| name.to_str())
    {
        writer = writer.registered(dir, name);
    }
    writer.check = format!("tidegate audit verify --store {}", shell(&place.to_string()));
    Ok(writer)
}

/// The error of a log in a letter store. What the store said is passed on: a server that is down is
/// not a damaged log.
pub(super) fn failed(error: AuditError) -> LetterError {
    match error {
        AuditError::Database(source) => match source.downcast::<LetterError>() {
            Ok(known) => *known,
            Err(other) => broken(other),
        },
        other => broken(other),
    }
}

/// Appends entries inside the caller's transaction.
pub(super) fn append(
    db: &mut dyn Db,
    writer: &AuditWriter,
    acts: impl IntoIterator<Item = AuditEvent>,
) -> Result<()> {
    audit::append(db, writer, acts).map_err(failed)
}

impl LetterStore {
    /// Records an action that changes nothing, such as decrypting a payload.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn enter(&mut self, act: AuditEvent) -> Result<()> {
        self.tx(|db, writer| append(db, writer, [act]))
    }

    /// The entries about a letter, or the last `limit` of all.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn audit(&mut self, letter: Option<LetterId>, limit: u32) -> Result<Vec<AuditEntry>> {
        let limit = if letter.is_some() { u32::MAX } else { limit };
        self.audit_read(&AuditFilter { letter, limit, ..AuditFilter::default() })
    }

    /// The entries that match a filter, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn audit_read(&mut self, filter: &AuditFilter) -> Result<Vec<AuditEntry>> {
        audit::read(self.db.as_mut(), filter).map_err(failed)
    }

    /// The public keys and copied checkpoints beside the store, to verify its audit with.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn audit_trust(&self) -> Result<TrustAnchors> {
        let mut keys = Vec::new();
        if let Some(text) =
            dir(&self.place).and_then(|dir| std::fs::read_to_string(dir.join(PUBLIC_FILE)).ok())
        {
            keys = PublicKey::all_from_text(&text).map_err(broken)?;
        }
        keys.extend(self.writer.public().filter(|own| !keys.contains(own)));
        let copies = copies(&self.place).map(|copies| copies.read()).transpose().map_err(broken)?;
        Ok(TrustAnchors { keys, copies: copies.unwrap_or_default().checkpoints })
    }

    /// The hash of an entry of the audit, in hex.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn audit_hash_at(&mut self, n: i64) -> Result<Option<String>> {
        audit::hash_at(self.db.as_mut(), n).map_err(failed)
    }

    /// Whether a register knows the audit of this store.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn audit_is_registered(&mut self) -> Result<bool> {
        match self.db.dialect() {
            SqlDialect::Sqlite => audit::is_registered(self.db.as_mut()).map_err(failed),
            SqlDialect::Postgres => Ok(false),
        }
    }

    /// The file that its checkpoints are copied to, if there is one.
    #[must_use]
    pub fn audit_copies(&self) -> Option<Copies> {
        copies(&self.place)
    }

    /// Writes a damaged file of copies anew. Verify the audit first.
    ///
    /// # Errors
    /// When it cannot be written, or holds more than the audit.
    pub fn audit_repair(&mut self, copies: &Copies) -> Result<RepairedCopy> {
        copies.repair(self.db.as_mut()).map_err(failed)
    }

    /// Verifies the audit and finds the first entry that was tampered with.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn audit_check(
        &mut self,
        trust: &TrustAnchors,
    ) -> Result<std::result::Result<VerifiedLog, TamperFinding>> {
        // One read snapshot for all queries, because other processes may be writing.
        let begin = match self.db.dialect() {
            SqlDialect::Sqlite => "BEGIN",
            SqlDialect::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        };
        self.db.exec(begin, &[])?;
        let done = audit::verify(self.db.as_mut(), LOG, trust).map_err(failed);
        self.db.rollback();
        done
    }

    /// Verifies the audit with the keys and copies beside the store; returns the number of entries
    /// and the last hash.
    ///
    /// # Errors
    /// The first entry that was tampered with, or when the store cannot be read.
    pub fn audit_verify(&mut self) -> Result<(i64, String)> {
        let trust = self.audit_trust()?;
        match self.audit_check(&trust)? {
            Ok(whole) => Ok((whole.entries, whole.hash)),
            Err(finding) => Err(LetterError::Refused(format!("the audit was modified: {finding}"))),
        }
    }

    /// Signs, once, the entries of a store that is older than signatures.
    pub(super) fn sign_what_was_not(&mut self) -> Result<()> {
        let unsigned = "SELECT value FROM meta WHERE name = 'audit' AND value = 'unsigned'";
        if self.db.query(unsigned, &[])?.is_empty() {
            return Ok(());
        }
        let act = AuditEvent::new(now_ms(), "upgrade", serde_json::json!({ "version": 2 })).to("settings");
        self.tx(|db, writer| {
            db.exec("DELETE FROM meta WHERE name = 'audit'", &[])?;
            append(db, writer, [act])
        })
    }

    /// Writes a checkpoint over the entries since the previous one.
    fn audit_close(&mut self) -> Result<()> {
        self.tx(|db, writer| audit::close(db, writer, now_ms()).map_err(failed))
    }
}

impl Drop for LetterStore {
    fn drop(&mut self) {
        // If this fails, the signed head still covers the entries, and the next checkpoint includes
        // them.
        if self.writer.is_open() {
            let _ = self.audit_close();
        }
    }
}
