//! The audit: what was done, by whom, when; in the transaction of the act.
//!
//! Each entry is hashed together with the hash of the one before, so that an entry that is changed,
//! taken out or put in between shows. Whoever keeps the last hash elsewhere also sees a cut end.

use super::{Db, Result, Store, Val, Vals};
use crate::letter::LetterError;
use sha2::{Digest, Sha256};
use tidegate_core::letter::Id;

/// What is to be entered.
#[derive(Clone, Debug)]
pub struct Audit {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// What: `capture`, `fix`, `edit`, `replay`, `archive`, `purge`, `reveal`, …
    pub act: &'static str,
    /// About which letter, if about one.
    pub letter: Option<Id>,
    /// The rest.
    pub detail: serde_json::Value,
}

/// What was entered.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its number, from 1.
    pub n: i64,
    /// When.
    pub at_ms: i64,
    /// By whom.
    pub who: String,
    /// What.
    pub act: String,
    /// About which letter.
    pub letter: Option<Id>,
    /// The rest, as JSON.
    pub detail: String,
    /// The hash over this entry and the one before, in hex.
    pub hash: String,
}

pub(in crate::letter) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

fn link(before: &[u8], n: i64, at_ms: i64, texts: [&str; 3], letter: Option<&[u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"tidegate-audit-1\n");
    hash.update(before);
    hash.update(n.to_le_bytes());
    hash.update(at_ms.to_le_bytes());
    for part in texts.map(str::as_bytes).into_iter().chain([letter.unwrap_or_default()]) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Enters acts, inside of their transaction.
pub(super) fn append(db: &mut dyn Db, who: &str, acts: impl IntoIterator<Item = Audit>) -> Result<()> {
    let mut last: Option<(i64, Vec<u8>)> = None;
    for act in acts {
        let (n, before) = match last.take() {
            Some(last) => last,
            None => {
                db.lock_audit()?;
                let rows = db.query("SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1", &[])?;
                rows.first().map_or((0, Vec::new()), |row| (row.int(0), row.blob(1)))
            }
        };
        let n = n + 1;
        let detail = act.detail.to_string();
        let letter = act.letter.map(Id::to_bytes);
        let letter = letter.as_ref().map(<[u8; 16]>::as_slice);
        let hash = link(&before, n, act.at_ms, [who, act.act, &detail], letter);
        db.exec(
            "INSERT INTO audit (n, at_ms, who, act, letter, detail, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            &[
                n.into(),
                act.at_ms.into(),
                who.into(),
                act.act.into(),
                letter.map_or(Val::Null, Val::from),
                detail.as_str().into(),
                hash.as_slice().into(),
            ],
        )?;
        last = Some((n, hash.to_vec()));
    }
    Ok(())
}

fn entry(row: &Vals) -> Entry {
    Entry {
        n: row.int(0),
        at_ms: row.int(1),
        who: row.text(2),
        act: row.text(3),
        letter: row.maybe_blob(4).and_then(|bytes| Id::from_bytes(&bytes)),
        detail: row.text(5),
        hash: hex(&row.blob(6)),
    }
}

const COLUMNS: &str = "n, at_ms, who, act, letter, detail, hash";

impl Store {
    /// Enters an act that changes nothing else, such as showing what is hidden.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn enter(&mut self, audit: Audit) -> Result<()> {
        self.tx(|db, who| append(db, who, [audit]))
    }

    /// The entries about a letter, or the last `limit` of all.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn audit(&mut self, letter: Option<Id>, limit: u32) -> Result<Vec<Entry>> {
        let rows = match letter {
            Some(id) => self.db.query(
                &format!("SELECT {COLUMNS} FROM audit WHERE letter = ?1 ORDER BY n"),
                &[id.to_bytes().as_slice().into()],
            ),
            None => self.db.query(
                &format!("SELECT {COLUMNS} FROM audit ORDER BY n DESC LIMIT ?1"),
                &[i64::from(limit).into()],
            ),
        }?;
        let mut entries: Vec<Entry> = rows.iter().map(entry).collect();
        entries.sort_by_key(|entry| entry.n);
        Ok(entries)
    }

    /// Whether the chain of entries is whole: how many there are, and the last hash.
    ///
    /// # Errors
    /// The first entry that does not fit; when the store cannot be read.
    pub fn audit_verify(&mut self) -> Result<(i64, String)> {
        let (mut n, mut before) = (0, Vec::new());
        loop {
            let sql = format!("SELECT {COLUMNS} FROM audit WHERE n > ?1 ORDER BY n LIMIT 1000");
            let rows = self.db.query(&sql, &[n.into()])?;
            if rows.is_empty() {
                return Ok((n, hex(&before)));
            }
            for row in &rows {
                let letter = row.maybe_blob(4);
                let texts = [row.text(2), row.text(3), row.text(5)];
                let [who, act, detail] = texts.each_ref().map(String::as_str);
                let hash = link(&before, n + 1, row.int(1), [who, act, detail], letter.as_deref());
                if row.int(0) != n + 1 || hash.as_slice() != row.blob(6) {
                    return Err(LetterError::Refused(format!(
                        "the audit was changed: entry {} does not follow from entry {n}",
                        row.int(0)
                    )));
                }
                (n, before) = (n + 1, hash.to_vec());
            }
        }
    }
}
