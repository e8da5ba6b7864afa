//! Appends audit entries in the transaction of the actions that they record.

use std::cell::Cell;
use std::path::Path;

use super::chain::{self, Hash};
use super::copy::Copies;
use super::register::Registration;
use super::seal::{self, Checkpoint};
use super::sign::{PublicKey, Signer};
use super::{AuditError, AuditEvent, AuditRow};
use crate::sql::{Sql, Val};
use tidegate_core::hex::hex;

/// The number of entries after which a checkpoint is due.
const ENTRIES: i64 = 1000;
/// The age of the last checkpoint, in milliseconds, after which a new one is due.
const AGE_MS: i64 = 1000;

/// Writes an audit log: the user, the name of the log, the signing key and the copies.
#[derive(Debug)]
pub struct AuditWriter {
    /// The user who acts.
    pub who: String,
    /// The name of the log; part of every signed message.
    pub log: String,
    /// The command that verifies the log, for messages.
    pub check: String,
    signer: Option<Signer>,
    copies: Option<Copies>,
    registration: Option<Registration>,
    /// Whether the signed head and the copies were already checked.
    trusted: Cell<bool>,
    /// Whether this writer appended entries after the last checkpoint.
    open: Cell<bool>,
    /// Whether a checkpoint may not be copied yet.
    fresh: Cell<bool>,
}

impl AuditWriter {
    /// A writer for the log of this name.
    #[must_use]
    pub fn new(log: &str, signer: Option<Signer>, copies: Option<Copies>) -> AuditWriter {
        AuditWriter {
            who: user(),
            log: log.to_owned(),
            check: "tidegate audit verify".to_owned(),
            signer,
            copies,
            registration: None,
            trusted: Cell::new(false),
            open: Cell::new(false),
            fresh: Cell::new(true),
        }
    }

    /// Keeps the register of a state directory up to date with this log, which is the file `file`
    /// there.
    #[must_use]
    pub fn registered(mut self, dir: &Path, file: &str) -> AuditWriter {
        self.registration = Some(Registration { dir: dir.to_owned(), file: file.to_owned() });
        self
    }

    /// A commitment to a sensitive value, for the detail of an event.
    #[must_use]
    pub fn commit(&self, value: &str) -> serde_json::Value {
        match self.signer.as_ref().map(|signer| signer.commit(value)) {
            Some(Ok(sealed)) => serde_json::json!({ "commitment": sealed }),
            // Without a key, record nothing: an unkeyed hash could be guessed by anybody.
            _ => serde_json::json!({ "withheld": true }),
        }
    }

    /// The public half of the signing key.
    #[must_use]
    pub fn public(&self) -> Option<PublicKey> {
        self.signer.as_ref().map(Signer::public)
    }

    /// Whether this writer appended entries after the last checkpoint.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.get()
    }

    /// Copies the checkpoints that are not copied yet. Call it after the transaction: a copy must
    /// not outlive a rollback.
    pub(crate) fn copy<S: Sql + ?Sized>(&self, sql: &mut S) -> Result<(), AuditError> {
        if let (Some(copies), true) = (&self.copies, self.fresh.get()) {
            copies.write(sql)?;
        }
        if let (Some(registration), Some(signer), true) = (&self.registration, &self.signer, self.fresh.get())
        {
            let heads = sql.query("SELECT n, hash FROM audit_head", &[])?;
            if let Some(head) = heads.first() {
                let head = (head.int(0), hex(&head.blob(1)));
                registration.note(signer, head, |n| hash_at(sql, n))?;
                mark_registered(sql)?;
            }
        }
        self.fresh.set(false);
        Ok(())
    }
}

/// The hash of an entry, in hex.
pub(crate) fn hash_at<S: Sql + ?Sized>(sql: &mut S, n: i64) -> Result<Option<String>, AuditError> {
    let rows = sql.query("SELECT hash FROM audit WHERE n = ?1", &[n.into()])?;
    Ok(rows.first().map(|row| hex(&row.blob(0))))
}

/// The application id of a SQLite file whose log is in a register: `TGAR`.
const REGISTERED: i64 = 0x5447_4152;

/// Leaves a mark in a SQLite file that a register knows its log, so that a missing register is
/// noticed.
fn mark_registered<S: Sql + ?Sized>(sql: &mut S) -> Result<(), AuditError> {
    if !is_registered(sql)? {
        sql.exec(&format!("PRAGMA application_id = {REGISTERED}"), &[])?;
    }
    Ok(())
}

/// Whether a register knows the log of this SQLite file.
pub(crate) fn is_registered<S: Sql + ?Sized>(sql: &mut S) -> Result<bool, AuditError> {
    let rows = sql.query("PRAGMA application_id", &[])?;
    Ok(rows.first().is_some_and(|row| row.int(0) == REGISTERED))
}

/// The user who acts: the account name from the environment, or the number of the user, such as
/// `uid 1000`, where a service or a container has no name for it.
#[must_use]
pub fn user() -> String {
    ["TIDEGATE_USER", "USER", "LOGNAME", "USERNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()))
        .unwrap_or_else(number)
}

#[cfg(unix)]
fn number() -> String {
    format!("uid {}", nix::unistd::getuid())
}

#[cfg(not(unix))]
fn number() -> String {
    "unknown".into()
}

/// The number and hash of the last entry in the database.
struct LogEnd {
    /// The number of the last entry; 0 for an empty log.
    n: i64,
    hash: Vec<u8>,
}

/// The message signed as the head: the log, and the number and hash of the last entry.
pub(super) fn head_message(log: &str, n: i64, hash: &[u8]) -> Vec<u8> {
    let mut out = b"tidegate-audit-head-1\n".to_vec();
    out.extend((log.len() as u64).to_le_bytes());
    out.extend(log.as_bytes());
    out.extend(n.to_le_bytes());
    out.extend(hash);
    out
}

fn end<S: Sql + ?Sized>(sql: &mut S, writer: &AuditWriter) -> Result<LogEnd, AuditError> {
    let rows = sql.query("SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1", &[])?;
    let end = rows
        .first()
        .map_or(LogEnd { n: 0, hash: Vec::new() }, |row| LogEnd { n: row.int(0), hash: row.blob(1) });
    let heads = sql.query("SELECT n, hash, key_id, signature FROM audit_head", &[])?;
    // Never sign on top of entries that somebody else added without the key.
    let changed = |what: String| {
        let advice = format!("no more entries are written, check with `{}`", writer.check);
        Err(AuditError::Changed(format!("{what}; {advice}")))
    };
    if let Some(head) = heads.first() {
        if (head.int(0), head.blob(1)) != (end.n, end.hash.clone()) {
            return changed(format!(
                "it ends with entry {}, but the last entry written was {}",
                end.n,
                head.int(0)
            ));
        }
        let ours =
            writer.signer.as_ref().filter(|signer| head.maybe_text(2).as_ref() == Some(&signer.key_id));
        if let (Some(signer), false) = (ours, writer.trusted.get())
            && !signer.public().verifies(&head_message(&writer.log, end.n, &end.hash), &head.blob(3))
        {
            return changed(format!("the signature of entry {} is wrong", end.n));
        }
    } else if !sql.query("SELECT k FROM audit_checkpoint LIMIT 1", &[])?.is_empty() {
        return changed("its head is missing".into());
    }
    if let (Some(copies), false) = (&writer.copies, writer.trusted.get()) {
        copies.check(sql, &writer.check)?;
    }
    writer.trusted.set(true);
    Ok(end)
}

/// Appends entries inside the caller's transaction.
///
/// # Errors
/// When they cannot be written, or the log was changed from outside. Then roll the transaction
/// back.
pub(crate) fn append<S: Sql + ?Sized>(
    sql: &mut S,
    writer: &AuditWriter,
    acts: impl IntoIterator<Item = AuditEvent>,
) -> Result<(), AuditError> {
    let mut acts = acts.into_iter().peekable();
    if acts.peek().is_none() {
        return Ok(());
    }
    sql.hold()?;
    let LogEnd { mut n, mut hash } = end(sql, writer)?;
    let mut at_ms = 0;
    for act in acts {
        n += 1;
        at_ms = act.at_ms;
        let row = AuditRow {
            n,
            at_ms,
            who: writer.who.clone(),
            act: act.act,
            letter: act.letter.map(|id| id.to_bytes().to_vec()),
            detail: act.detail.to_string(),
            hash: Vec::new(),
            key: act.key,
            code: act.code,
            dest: act.dest,
        };
        hash = chain::link(&hash, n, &row).to_vec();
        sql.exec(
            "INSERT INTO audit (n, at_ms, who, act, letter, detail, hash, key, code, dest)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            &[
                n.into(),
                at_ms.into(),
                row.who.as_str().into(),
                row.act.as_str().into(),
                row.letter.as_deref().map_or(Val::Null, Val::from),
                row.detail.as_str().into(),
                hash.as_slice().into(),
                row.key.as_deref().into(),
                row.code.as_deref().into(),
                row.dest.as_deref().into(),
            ],
        )?;
    }
    let signature = writer.signer.as_ref().map(|signer| signer.sign(&head_message(&writer.log, n, &hash)));
    sql.exec(
        "INSERT INTO audit_head (one, n, hash, key_id, signature) VALUES (1, ?1, ?2, ?3, ?4)
         ON CONFLICT (one) DO UPDATE SET n = excluded.n, hash = excluded.hash, key_id = excluded.key_id,
             signature = excluded.signature",
        &[
            n.into(),
            hash.as_slice().into(),
            writer.signer.as_ref().map(|signer| signer.key_id.as_str()).into(),
            signature.as_deref().map_or(Val::Null, Val::from),
        ],
    )?;
    writer.open.set(true);
    let last = seal::last(sql, &writer.log)?;
    let (sealed, since) = last.as_ref().map_or((0, 0), |last| (last.last, last.at_ms));
    if n - sealed >= ENTRIES || at_ms - since >= AGE_MS {
        checkpoint(sql, writer, last, at_ms)?;
    }
    Ok(())
}

/// Writes a checkpoint if this writer appended entries after the last one.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn close<S: Sql + ?Sized>(
    sql: &mut S,
    writer: &AuditWriter,
    at_ms: i64,
) -> Result<(), AuditError> {
    if !writer.open.get() {
        return Ok(());
    }
    sql.hold()?;
    end(sql, writer)?;
    let last = seal::last(sql, &writer.log)?;
    checkpoint(sql, writer, last, at_ms)
}

/// The most entries that one checkpoint covers.
const ENTRIES_MAX: i64 = 10_000;

fn checkpoint<S: Sql + ?Sized>(
    sql: &mut S,
    writer: &AuditWriter,
    mut last: Option<Checkpoint>,
    at_ms: i64,
) -> Result<(), AuditError> {
    loop {
        let (k, done) = last.as_ref().map_or((0, 0), |last| (last.k, last.last));
        let rows = sql.query(
            "SELECT n, hash FROM audit WHERE n > ?1 ORDER BY n LIMIT ?2",
            &[done.into(), ENTRIES_MAX.into()],
        )?;
        let Some(end) = rows.last() else {
            writer.open.set(false);
            return Ok(());
        };
        let leaves: Vec<Hash> = rows.iter().filter_map(|row| row.blob(1).try_into().ok()).collect();
        if end.int(0) - done != leaves.len() as i64 {
            return Err(AuditError::Changed(format!("entries are missing; check with `{}`", writer.check)));
        }
        let mut next = Checkpoint {
            log: writer.log.clone(),
            k: k + 1,
            first: done + 1,
            last: end.int(0),
            at_ms,
            root: hex(&chain::root(&leaves)),
            head: hex(&end.blob(1)),
            marks: hex(&leaves
                .iter()
                .flat_map(|leaf| leaf.iter().take(seal::MARK))
                .copied()
                .collect::<Vec<u8>>()),
            before: last.as_ref().map(Checkpoint::digest).unwrap_or_default(),
            key: None,
            signature: None,
        };
        if let Some(signer) = &writer.signer {
            next.key = Some(signer.key_id.clone());
            next.signature = Some(hex(&signer.sign(&next.message())));
        }
        next.insert(sql)?;
        writer.fresh.set(true);
        last = Some(next);
    }
}
