//! The audit log in a file of its own: what runs enter.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::copy::Copies;
use super::sign::Signer;
use super::{
    AuditEntry, AuditError, AuditEvent, AuditFilter, AuditWriter, TABLES, TamperFinding, TrustAnchors,
    VerifiedLog, append, close, read, verify,
};
use crate::sql;

/// The version of its tables.
const VERSION: i64 = 1;

/// An audit log in a SQLite file.
#[derive(Debug)]
pub struct AuditLog {
    db: Connection,
    /// The writer of its entries.
    pub writer: AuditWriter,
}

impl AuditLog {
    /// Opens a log to enter acts, making it if it is not there.
    ///
    /// # Errors
    /// When it cannot be made or used.
    pub fn open(
        path: &Path,
        log: &str,
        signer: Option<Signer>,
        copies: &Path,
    ) -> Result<AuditLog, AuditError> {
        let at = |e: AuditError| AuditError::Log { path: Some(path.to_owned()), source: Box::new(e) };
        let db = Connection::open(path).map_err(|e| at(AuditError::database(e)))?;
        let prepare = || -> rusqlite::Result<i64> {
            db.busy_timeout(Duration::from_secs(30))?;
            db.pragma_update(None, "journal_mode", "wal")?;
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

    /// Opens a log to look at it; nothing is changed.
    ///
    /// # Errors
    /// When it is not there or cannot be read.
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
            // A disk that fails here has failed before, and that is said.
            let _ = self.db.execute_batch("ROLLBACK");
        }
        done.and_then(|()| self.writer.copy(&mut self.db)).map_err(broken)
    }

    /// Enters acts, durably.
    ///
    /// # Errors
    /// When they cannot be written: what they record must not go on.
    pub fn enter(&mut self, acts: Vec<AuditEvent>) -> Result<(), AuditError> {
        self.tx(|db, writer| append(db, writer, acts))
    }

    /// Puts a checkpoint behind the last entry.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn close(&mut self, at_ms: i64) -> Result<(), AuditError> {
        self.tx(|db, writer| close(db, writer, at_ms))
    }

    /// The entries of a filter, oldest first.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&mut self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, AuditError> {
        read(&mut self.db, filter)
    }

    /// Whether the log is what it was.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn verify(&mut self, trust: &TrustAnchors) -> Result<Result<VerifiedLog, TamperFinding>, AuditError> {
        // One moment for all questions, while others may be writing.
        self.db.execute_batch("BEGIN").map_err(AuditError::database)?;
        let done = verify(&mut self.db, &self.writer.log, trust);
        let _ = self.db.execute_batch("ROLLBACK");
        done
    }
}
