//! The letter store: one set of tables, in SQLite or in PostgreSQL.
//!
//! All logic on rows is written once, in SQL that both understand ([`LetterStore`]). A driver
//! (`Db`) runs statements, inserts letters in bulk, and implements the few things that differ:
//! bounding-box search, full-text search, and skipping locked rows. The conformance suite in
//! `tests/suite/letter` runs against both.
//!
//! | table | holds |
//! |---|---|
//! | `letter` | a narrow row per letter: what filters use and what changes |
//! | `body` | the envelope as JSON, the payload, the wrapped key |
//! | `blob` | payloads over 64 KiB, by hash |
//! | `grp` | a row per group: fingerprint, code, class, service, pipeline, stage |
//! | `place`, `said` | the R*Tree and the full-text index (columns of `letter` in PostgreSQL) |
//! | `audit`, `audit_head`, `audit_checkpoint` | the audit log ([`crate::audit`]) |
//! | `tombstone` | ids of purged letters, with time and reason |
//! | `plan`, `member` | replay plans and their letters |
//! | `incident`, `pipeline`, `meta` | suspended pipelines; definitions of pipelines; settings |
//!
//! Why the rows of `letter` are narrow: listing a million letters reads about 100 MB of them and no
//! payloads.

mod act;
mod audit;
mod auto;
mod checksum;
mod incident;
mod location;
mod plan;
#[cfg(not(feature = "postgres"))]
#[path = "no_postgres.rs"]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres;
mod put;
mod read;
mod repaired;
mod schema;
mod signed;
mod sqlite;

pub use act::{Amend, ArchivePlace, Purged};
pub use auto::{RuleReplays, rule_spec};
pub use incident::Incident;
pub use location::{LetterStoreLocation, StoreUrl};
pub use plan::{FinishedReplay, Leased, ReplayOutcome, ReplayPlan};
pub(super) use put::Packed;
pub use put::Put;
pub use read::{By, Health, LetterGroup, LetterPage, PayloadReference, PayloadReferences, StoredLetter};
pub use repaired::RepairedRecords;

use super::error::{LetterError, Result};
use crate::audit::{AuditEvent, AuditWriter};
pub use crate::sql::{Val, Vals};
use tidegate_core::letter::LetterId;

/// The SQL dialect of a letter store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlDialect {
    /// SQLite: one file on this machine.
    Sqlite,
    /// PostgreSQL: a server, for fleets.
    Postgres,
}

impl SqlDialect {
    /// The condition for rows that intersect a bounding box.
    pub(super) fn meets(self, w: &str, s: &str, e: &str, n: &str) -> String {
        match self {
            SqlDialect::Sqlite => format!(
                "l.seq IN (SELECT seq FROM place WHERE x1 >= {w} AND y1 >= {s} AND x0 <= {e} AND y0 <= {n})"
            ),
            SqlDialect::Postgres => format!("l.place && box(point({w}, {s}), point({e}, {n}))"),
        }
    }

    /// The condition for rows whose message contains all words.
    pub(super) fn says(self, words: &str) -> String {
        match self {
            SqlDialect::Sqlite => format!("l.seq IN (SELECT rowid FROM said WHERE said MATCH {words})"),
            SqlDialect::Postgres => format!("l.said @@ plainto_tsquery('simple', {words})"),
        }
    }

    /// The words of a text in the query syntax of the full-text index.
    pub(super) fn words(self, text: &str) -> String {
        let words = words(text);
        match self {
            SqlDialect::Sqlite if words.trim().is_empty() => "\"\"".into(),
            SqlDialect::Sqlite => {
                words.split_whitespace().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" ")
            }
            SqlDialect::Postgres => words,
        }
    }

    /// The clause that skips rows locked by another worker.
    fn skip_locked(self) -> &'static str {
        match self {
            SqlDialect::Sqlite => "",
            SqlDialect::Postgres => " FOR UPDATE SKIP LOCKED",
        }
    }
}

/// The words of a text: every character but letters and digits becomes a space. Both full-text
/// indexes get only this, so that they agree on what a word is.
pub(super) fn words(text: &str) -> String {
    text.chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect()
}

/// A database connection.
pub(super) trait Db: Send {
    fn dialect(&self) -> SqlDialect;
    fn begin(&mut self) -> Result<()>;
    fn commit(&mut self) -> Result<()>;
    fn rollback(&mut self);
    /// Runs a statement with the arguments `?1`, `?2` …; returns the number of changed rows.
    fn exec(&mut self, sql: &str, args: &[Val]) -> Result<u64>;
    fn query(&mut self, sql: &str, args: &[Val]) -> Result<Vec<Vals>>;
    /// Inserts letters with the numbers of their groups; returns which of them are new.
    fn add(&mut self, rows: &[&Packed], groups: &[i64]) -> Result<Vec<bool>>;
    /// Sets the bounding box and the words of a row in the indexes; `None` removes them.
    fn index(&mut self, seq: i64, bbox: Option<[f64; 4]>, words: Option<&str>) -> Result<()>;
    /// The size of the store in bytes.
    fn bytes(&mut self) -> Result<i64>;
    /// Locks the end of the audit log until the transaction ends.
    fn lock_audit(&mut self) -> Result<()>;
}

/// The store of dead letters.
pub struct LetterStore {
    db: Box<dyn Db>,
    groups: std::collections::HashMap<i64, i64>,
    place: LetterStoreLocation,
    writer: AuditWriter,
    /// The letters that were read and are damaged, and how.
    damaged: std::collections::BTreeMap<LetterId, &'static str>,
}

impl std::fmt::Debug for LetterStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LetterStore").field("dialect", &self.db.dialect()).finish_non_exhaustive()
    }
}

impl LetterStore {
    /// Opens a store and creates it if it does not exist.
    ///
    /// # Errors
    /// When it cannot be created, reached or verified.
    pub fn open(place: &LetterStoreLocation) -> Result<LetterStore> {
        let db: Box<dyn Db> = match place {
            LetterStoreLocation::File(path) => Box::new(sqlite::Sqlite::open(path)?),
            LetterStoreLocation::Url(url) => postgres::open(url.reveal())?,
        };
        let mut store = LetterStore {
            db,
            groups: Default::default(),
            place: place.clone(),
            writer: audit::writer(place)?,
            damaged: Default::default(),
        };
        store.sign_what_was_not()?;
        store.rekey()?;
        Ok(store)
    }

    /// Opens an existing store read-only: nothing is created, migrated or signed. `None` if there
    /// is none.
    ///
    /// # Errors
    /// When it cannot be reached, or this program does not support its version.
    pub fn look(place: &LetterStoreLocation) -> Result<Option<LetterStore>> {
        let db: Box<dyn Db> = match place {
            LetterStoreLocation::File(path) if !path.exists() => return Ok(None),
            LetterStoreLocation::File(path) => Box::new(sqlite::Sqlite::look(path)?),
            LetterStoreLocation::Url(url) => match postgres::look(url.reveal())? {
                Some(db) => db,
                None => return Ok(None),
            },
        };
        let writer = AuditWriter::new("", None, None);
        let (groups, damaged) = Default::default();
        let mut store = LetterStore { db, groups, place: place.clone(), writer, damaged };
        match store.setting("version")?.as_deref() {
            Some("1" | "2" | schema::VERSION) => Ok(Some(store)),
            found => Err(schema::unknown(found.unwrap_or("?"))),
        }
    }

    /// The user who acts, for the audit.
    #[must_use]
    pub fn who(&self) -> &str {
        &self.writer.who
    }

    /// Its location.
    #[must_use]
    pub fn place(&self) -> &LetterStoreLocation {
        &self.place
    }

    /// Its SQL dialect.
    #[must_use]
    pub fn dialect(&self) -> SqlDialect {
        self.db.dialect()
    }

    /// The value of a setting.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn setting(&mut self, name: &str) -> Result<Option<String>> {
        let rows = self.db.query("SELECT value FROM meta WHERE name = ?1", &[name.into()])?;
        Ok(rows.first().and_then(|row| row.maybe_text(0)))
    }

    /// An id that distinguishes this store from another at the same location. It is created on
    /// first use.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub fn identity(&mut self) -> Result<String> {
        if let Some(known) = self.setting("identity")? {
            return Ok(known);
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(broken)?;
        let new = format!("{:016x}", u64::from_le_bytes(random));
        self.tx(|db, _| {
            db.exec(
                "INSERT INTO meta (name, value) VALUES ('identity', ?1) ON CONFLICT (name) DO NOTHING",
                &[new.as_str().into()],
            )
        })?;
        // Another process may have created it first.
        Ok(self.setting("identity")?.unwrap_or_default())
    }

    /// Sets a setting.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn set(&mut self, name: &str, value: &str, now_ms: i64) -> Result<()> {
        let detail = serde_json::json!({ "setting": name, "sha256": signed::sha256(value) });
        let act = AuditEvent::new(now_ms, "set", detail).to("settings");
        self.tx(|db, writer| {
            db.exec(
                "INSERT INTO meta (name, value) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                &[name.into(), value.into()],
            )?;
            audit::append(db, writer, [act])
        })
    }

    /// Runs `work` in one transaction.
    fn tx<T>(&mut self, work: impl FnOnce(&mut dyn Db, &AuditWriter) -> Result<T>) -> Result<T> {
        self.db.begin()?;
        match work(self.db.as_mut(), &self.writer) {
            Ok(done) => {
                self.db.commit()?;
                self.writer.copy(self.db.as_mut()).map_err(audit::failed)?;
                Ok(done)
            }
            Err(why) => {
                self.db.rollback();
                // The cache may hold a group that the rollback removed.
                self.groups.clear();
                Err(why)
            }
        }
    }
}

fn broken(what: impl std::fmt::Display) -> LetterError {
    LetterError::Store(what.to_string())
}
