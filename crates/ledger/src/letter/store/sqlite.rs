//! SQLite: one file in WAL mode, every commit flushed to disk.
//!
//! `synchronous=FULL`, because the source is acknowledged after the commit: with NORMAL a power
//! failure could lose letters that the source will not send again.

use super::schema::{self, VERSION};
use super::{Db, Packed, Result, SqlDialect, Val, Vals, broken};
use crate::letter::LetterError;
use crate::sql::{SQLITE, Sql};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params};
use std::path::Path;
use std::time::Duration;
use tidegate_client::durable;
use tidegate_client::sqlite::write_ahead;

pub(super) struct Sqlite {
    connection: Connection,
}

const OWN: &str = "
CREATE VIRTUAL TABLE IF NOT EXISTS place USING rtree (seq, x0, x1, y0, y1);
CREATE VIRTUAL TABLE IF NOT EXISTS said USING fts5 (
    words, content='', contentless_delete=1, detail='none', tokenize='unicode61 remove_diacritics 0'
);
";

/// A store has tables only. A view or a trigger in the file was put there by somebody, and is not executed.
fn harden(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false).map(|_| ())
}

impl Sqlite {
    pub(super) fn open(path: &Path) -> Result<Sqlite> {
        let at = |e: &dyn std::fmt::Display| LetterError::Store(format!("{}: {e}", path.display()));
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            durable::make_dir(dir).map_err(|e| at(&e))?;
        }
        // Only the owner may read letters.
        durable::private(path).map_err(|e| at(&e))?;
        let connection = Connection::open(path).map_err(|e| at(&e))?;
        harden(&connection).map_err(|e| at(&e))?;
        let mut db = Sqlite { connection };
        db.prepare().map_err(|e| at(&e))?;
        Ok(db)
    }

    /// Opens a file read-only, without creating or changing it or files beside it.
    pub(super) fn look(path: &Path) -> Result<Sqlite> {
        let at = |e: &dyn std::fmt::Display| LetterError::Store(format!("{}: {e}", path.display()));
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let connection = if Path::new(&log).exists() {
            Connection::open_with_flags(path, flags)
        } else {
            // No WAL file, so no process has it open. Open it as immutable, or SQLite would create
            // files beside it.
            let absolute = std::path::absolute(path).map_err(|e| at(&e))?;
            let mut url = url::Url::from_file_path(absolute).map_err(|()| at(&"not a file path"))?;
            url.set_query(Some("immutable=1"));
            Connection::open_with_flags(url.as_str(), flags)
        };
        let connection = connection.map_err(|e| at(&e))?;
        connection.busy_timeout(Duration::from_secs(30)).map_err(|e| at(&e))?;
        harden(&connection).map_err(|e| at(&e))?;
        Ok(Sqlite { connection })
    }

    fn prepare(&mut self) -> Result<()> {
        let c = &self.connection;
        write_ahead(c, Duration::from_secs(30)).map_err(broken)?;
        for (name, value) in [("synchronous", "full"), ("cache_size", "-32768"), ("temp_store", "memory")] {
            c.pragma_update(None, name, value).map_err(broken)?;
        }
        c.pragma_update(None, "wal_autocheckpoint", 8000).map_err(broken)?;
        c.pragma_update(None, "secure_delete", "on").map_err(broken)?;
        c.set_prepared_statement_cache_capacity(128);
        let found = || -> rusqlite::Result<Option<String>> {
            let tables: i64 =
                c.query_row("SELECT count(*) FROM sqlite_master WHERE name = 'meta'", [], |row| row.get(0))?;
            if tables == 0 {
                return Ok(None);
            }
            c.query_row("SELECT value FROM meta WHERE name = 'version'", [], |row| row.get(0)).map(Some)
        };
        match found().map_err(broken)? {
            Some(version) if version == VERSION => Ok(()),
            Some(_) => self.upgrade(),
            None => {
                let tables = schema::tables(&SQLITE, "");
                let sql = format!(
                    "BEGIN IMMEDIATE; {tables} {OWN} \
                     INSERT INTO meta VALUES ('version', '{VERSION}') ON CONFLICT DO NOTHING; COMMIT;"
                );
                c.execute_batch(&sql).map_err(broken)
            }
        }
    }
}

impl Sqlite {
    /// Migrates tables of an older version, unless another process already did.
    fn upgrade(&self) -> Result<()> {
        let c = &self.connection;
        c.execute_batch("BEGIN IMMEDIATE").map_err(broken)?;
        let found = c.query_row("SELECT value FROM meta WHERE name = 'version'", [], |row| row.get(0));
        let done = found.map_err(broken).and_then(|version: String| {
            let sql = schema::upgrade(&version, &SQLITE).ok_or_else(|| schema::unknown(&version))?;
            c.execute_batch(&format!("{sql} COMMIT")).map_err(broken)
        });
        done.inspect_err(|_| {
            let _ = c.execute_batch("ROLLBACK");
        })
    }
}

impl Db for Sqlite {
    fn dialect(&self) -> SqlDialect {
        SqlDialect::Sqlite
    }

    fn begin(&mut self) -> Result<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(broken)
    }

    fn commit(&mut self) -> Result<()> {
        self.connection.execute_batch("COMMIT").map_err(|e| {
            // A failed commit must not leave the transaction open.
            let _ = self.connection.execute_batch("ROLLBACK");
            broken(e)
        })
    }

    fn rollback(&mut self) {
        // The rollback can only fail after an error that was already reported.
        let _ = self.connection.execute_batch("ROLLBACK");
    }

    fn exec(&mut self, sql: &str, args: &[Val]) -> Result<u64> {
        Sql::exec(&mut self.connection, sql, args).map_err(broken)
    }

    fn query(&mut self, sql: &str, args: &[Val]) -> Result<Vec<Vals>> {
        Sql::query(&mut self.connection, sql, args).map_err(broken)
    }

    fn add(&mut self, rows: &[&Packed], groups: &[i64]) -> Result<Vec<bool>> {
        add(&self.connection, rows, groups).map_err(broken)
    }

    fn index(&mut self, seq: i64, bbox: Option<[f64; 4]>, words: Option<&str>) -> Result<()> {
        self.exec("DELETE FROM place WHERE seq = ?1", &[seq.into()])?;
        self.exec("DELETE FROM said WHERE rowid = ?1", &[seq.into()])?;
        if let Some([w, s, e, n]) = bbox {
            let args = [Val::Int(seq), Val::Real(w), Val::Real(e), Val::Real(s), Val::Real(n)];
            self.exec("INSERT INTO place VALUES (?1, ?2, ?3, ?4, ?5)", &args)?;
        }
        if let Some(words) = words {
            self.exec("INSERT INTO said (rowid, words) VALUES (?1, ?2)", &[seq.into(), words.into()])?;
        }
        Ok(())
    }

    fn bytes(&mut self) -> Result<i64> {
        let rows = self.query(
            "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
            &[],
        )?;
        Ok(rows.first().map_or(0, |row| row.int(0)))
    }

    fn lock_audit(&mut self) -> Result<()> {
        // `BEGIN IMMEDIATE` already locks out other writers.
        Ok(())
    }
}

fn add(c: &Connection, rows: &[&Packed], groups: &[i64]) -> rusqlite::Result<Vec<bool>> {
    let mut letter = c.prepare_cached(
        "INSERT INTO letter (id, once, root, parent, generation, grp, state, first_ms, failed_ms,
             not_before_ms, retain_ms, hold, crs, last_ms, run)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?9, ?14) ON CONFLICT DO NOTHING",
    )?;
    let mut body = c.prepare_cached(
        "INSERT INTO body (seq, envelope, received, received_blob, current, current_blob, wrap, key_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let mut blob =
        c.prepare_cached("INSERT INTO blob (sha, bytes) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?;
    let mut place = c.prepare_cached("INSERT INTO place VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let mut said = c.prepare_cached("INSERT INTO said (rowid, words) VALUES (?1, ?2)")?;
    let mut new = Vec::with_capacity(rows.len());
    for (row, group) in rows.iter().zip(groups) {
        let added = letter.execute(params![
            row.id.to_bytes(),
            row.once,
            row.root.to_bytes(),
            row.parent.map(tidegate_core::letter::LetterId::to_bytes),
            i64::from(row.generation),
            group,
            row.state as i64,
            row.first_ms,
            row.failed_ms,
            row.not_before_ms,
            row.retain_ms,
            row.hold,
            row.crs,
            row.run,
        ])?;
        new.push(added == 1);
        if added == 0 {
            continue;
        }
        let seq = c.last_insert_rowid();
        let (received, current) = (&row.received, &row.current);
        body.execute(params![
            seq,
            row.envelope,
            received.inline(),
            received.sha(),
            current.as_ref().and_then(|c| c.inline()),
            current.as_ref().and_then(|c| c.sha()),
            row.wrap,
            row.key_id,
        ])?;
        for part in [Some(received), current.as_ref()].into_iter().flatten() {
            if let Some(sha) = part.sha() {
                blob.execute(params![sha, part.bytes])?;
            }
        }
        if let Some([w, s, e, n]) = row.bbox {
            place.execute(params![seq, w, e, s, n])?;
        }
        said.execute(params![seq, row.words])?;
    }
    Ok(new)
}
