//! The audit of the letters: what was done, by whom, when; in the transaction of the act.
//!
//! The form, the chain, the signatures and the check of them are those of [`crate::audit`]. A store
//! in a file is signed with the key of its directory and copies its checkpoints beside itself; a
//! store on a server is signed and copied by whoever sets `TIDEGATE_AUDIT_KEY` and
//! `TIDEGATE_AUDIT_COPY`.

use super::{
    AuditEvent, AuditWriter, Db, LetterStore, LetterStoreLocation, Result, SqlDialect, Val, Vals, broken,
};
use crate::audit::{
    self, AuditEntry, AuditError, AuditFilter, Copies, PUBLIC_FILE, PublicKey, Signer, TamperFinding,
    TrustAnchors, VerifiedLog,
};
use crate::letter::{LetterError, now_ms};
use std::path::{Path, PathBuf};
use tidegate_client::secret::SecretRef;
use tidegate_core::letter::LetterId;

/// The name under which the logs of letters are signed.
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

/// The directory of a store in a file.
fn dir(place: &LetterStoreLocation) -> Option<&Path> {
    match place {
        LetterStoreLocation::File(path) => {
            Some(path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))
        }
        LetterStoreLocation::Url(_) => None,
    }
}

/// Where the checkpoints of a store are copied to.
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
    Ok(AuditWriter::new(LOG, signer(place)?, copies(place)))
}

/// Enters acts, inside of their transaction.
pub(super) fn append(
    db: &mut dyn Db,
    writer: &AuditWriter,
    acts: impl IntoIterator<Item = AuditEvent>,
) -> Result<()> {
    audit::append(db, writer, acts).map_err(broken)
}

impl LetterStore {
    /// Enters an act that changes nothing else, such as showing what is hidden.
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

    /// The entries of a filter, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn audit_read(&mut self, filter: &AuditFilter) -> Result<Vec<AuditEntry>> {
        audit::read(self.db.as_mut(), filter).map_err(broken)
    }

    /// What lies beside the store to verify its audit with: public keys and copies of checkpoints.
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
        let copies = copies(&self.place).map(|copies| copies.all()).transpose().map_err(broken)?;
        Ok(TrustAnchors { keys, copies: copies.unwrap_or_default() })
    }

    /// Whether the audit is what it was, and if not, which entry is the first that is not.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn audit_check(
        &mut self,
        trust: &TrustAnchors,
    ) -> Result<std::result::Result<VerifiedLog, TamperFinding>> {
        // One moment for all questions, while others may be writing.
        let begin = match self.db.dialect() {
            SqlDialect::Sqlite => "BEGIN",
            SqlDialect::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        };
        self.db.exec(begin, &[])?;
        let done = audit::verify(self.db.as_mut(), LOG, trust).map_err(broken);
        self.db.rollback();
        done
    }

    /// Whether the audit is whole, by what lies beside the store: how many entries there are, and
    /// the last hash.
    ///
    /// # Errors
    /// The first entry that is not what it was; when the store cannot be read.
    pub fn audit_verify(&mut self) -> Result<(i64, String)> {
        let trust = self.audit_trust()?;
        match self.audit_check(&trust)? {
            Ok(whole) => Ok((whole.entries, whole.hash)),
            Err(finding) => Err(LetterError::Refused(format!("the audit was changed: {finding}"))),
        }
    }

    /// Signs the entries of a store that is older than signatures, once.
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

    /// Puts a checkpoint behind what was entered.
    fn audit_close(&mut self) -> Result<()> {
        self.tx(|db, writer| audit::close(db, writer, now_ms()).map_err(broken))
    }
}

impl Drop for LetterStore {
    fn drop(&mut self) {
        // What cannot be written now is signed by the head all the same, and is part of the next
        // checkpoint.
        if self.writer.is_open() {
            let _ = self.audit_close();
        }
    }
}
