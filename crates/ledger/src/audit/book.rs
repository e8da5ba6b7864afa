//! The audit log of runs, in a SQLite file of its own.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::copy::Copies;
use super::sign::Signer;
use super::{
    AuditEntry, AuditError, AuditEvent, AuditFilter, AuditWriter, RepairedCopy, TABLES, TamperFinding,
    TrustAnchors, VerifiedLog, append, close, hash_at, is_registered, read, verify,
};
use crate::sql;
use tidegate_client::durable;
use tidegate_client::sqlite::write_ahead;

/// The schema version, stored in `user_version`.
const VERSION: i64 = 1;

/// An audit log in a SQLite file.
#[derive(Debug)]
pub struct AuditLog {
    db: Connection,
    /// The writer of its entries.
    pub writer: AuditWriter,
}

impl AuditLog {
    /// Opens a log for writing and creates it if it does not exist.
    ///
    /// # Errors
    /// When it cannot be created or opened.
    pub fn open(
        path: &Path,
        log: &str,
        signer: Option<Signer>,
        copies: &Path,
    ) -> Result<AuditLog, AuditError> {
        let at = |e: AuditError| AuditError::Log { path: Some(path.to_owned()), source: Box::new(e) };
        durable::private(path).map_err(|e| at(AuditError::database(e)))?;
        let db = Connection::open(path).map_err(|e| at(AuditError::database(e)))?;
        let prepare = || -> rusqlite::Result<i64> {
            write_ahead(&db, Duration::from_secs(30))?;
            db.pragma_update(None, "synchronous", "full")?;
            let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
            if version == 0 {
                let tables = sql::SQLITE.spell(TABLES);
                db.execute_batch(&format!(
                    "BEGIN IMMEDIATE; {tables} PRAGMA user_version = {VERSION}; COMMIT;"
                ))?;
            }
            Ok(version)
        };
        match prepare().map_err(|e| at(AuditError::database(e)))? {
            0 | VERSION => {
                Ok(AuditLog { db, writer: AuditWriter::new(log, signer, Some(Copies::new(copies, log))) })
            }
            version => Err(at(AuditError::Version { found: version, written: VERSION })),
        }
    }

    /// Opens a log read-only.
    ///
    /// # Errors
    /// When it does not exist or cannot be read.
    pub fn look(path: &Path, log: &str) -> Result<AuditLog, AuditError> {
        let at = |e: rusqlite::Error| AuditError::Log {
            path: Some(path.to_owned()),
            source: Box::new(AuditError::database(e)),
        };
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(at)?;
        db.busy_timeout(Duration::from_secs(30)).map_err(at)?;
        Ok(AuditLog { db, writer: AuditWriter::new(log, None, None) })
    }

    fn tx(
        &mut self,
        work: impl FnOnce(&mut Connection, &AuditWriter) -> Result<(), AuditError>,
    ) -> Result<(), AuditError> {
        let broken = |e: AuditError| AuditError::Log { path: None, source: Box::new(e) };
        self.db.execute_batch("BEGIN IMMEDIATE").map_err(|e| broken(AuditError::database(e)))?;
        let done = work(&mut self.db, &self.writer)
            .and_then(|()| self.db.execute_batch("COMMIT").map_err(AuditError::database));
        if done.is_err() {
            // The rollback can only fail after an error that was already reported.
            let _ = self.db.execute_batch("ROLLBACK");
        }
        done.and_then(|()| self.writer.copy(&mut self.db)).map_err(broken)
    }

    /// Appends entries durably.
    ///
    /// # Errors
    /// When they cannot be written. Then the actions that they record must not proceed.
    pub fn enter(&mut self, acts: Vec<AuditEvent>) -> Result<(), AuditError> {
        self.tx(|db, writer| append(db, writer, acts))
    }

    /// Writes a checkpoint that covers the entries since the previous one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn close(&mut self, at_ms: i64) -> Result<(), AuditError> {
        self.tx(|db, writer| close(db, writer, at_ms))
    }

    /// The entries that match a filter, oldest first.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn read(&mut self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, AuditError> {
        read(&mut self.db, filter)
    }

    /// Verifies the log against trusted keys and copied checkpoints.
    ///
    /// # Errors
    /// When the log cannot be read. Tampering is a finding, not an error.
    pub fn verify(&mut self, trust: &TrustAnchors) -> Result<Result<VerifiedLog, TamperFinding>, AuditError> {
        // One read snapshot for all queries, because other processes may be writing.
        self.db.execute_batch("BEGIN").map_err(AuditError::database)?;
        let done = verify(&mut self.db, &self.writer.log, trust);
        let _ = self.db.execute_batch("ROLLBACK");
        done
    }

    /// The hash of an entry, in hex.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn hash_at(&mut self, n: i64) -> Result<Option<String>, AuditError> {
        hash_at(&mut self.db, n)
    }

    /// Whether a register knows this log.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn is_registered(&mut self) -> Result<bool, AuditError> {
        is_registered(&mut self.db)
    }

    /// Writes a damaged file of copies anew. Verify the log first.
    ///
    /// # Errors
    /// When it cannot be written, or holds more than the log.
    pub fn repair(&mut self, copies: &Copies) -> Result<RepairedCopy, AuditError> {
        copies.repair(&mut self.db)
    }
}
