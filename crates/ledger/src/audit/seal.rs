//! Checkpoints: signed digests of the log.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::AuditError;
use crate::sql::{Sql, Val, Vals};
use tidegate_core::hex::{hex, unhex_all};

/// The number of bytes of each entry's hash that a checkpoint keeps. With them a replaced entry can
/// be named, not only the thousand entries that it is among.
pub(super) const MARK: usize = 8;

/// A signed digest of the log up to an entry. Hashes are in hex.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The name of the log.
    pub log: String,
    /// The number of the checkpoint, from 1.
    pub k: i64,
    /// The number of the first entry it covers.
    pub first: i64,
    /// The number of the last entry it covers.
    pub last: i64,
    /// Time in milliseconds since 1970.
    pub at_ms: i64,
    /// The Merkle root over the hashes of its entries.
    pub root: String,
    /// The hash of its last entry.
    pub head: String,
    /// The first eight bytes of the hash of each entry it covers, concatenated.
    pub marks: String,
    /// The digest of the previous checkpoint; empty for the first.
    pub before: String,
    /// The id of the key that signed it.
    pub key: Option<String>,
    /// The signature.
    pub signature: Option<String>,
}

const COLUMNS: &str = "k, first_n, last_n, at_ms, root, head, marks, before, key_id, signature";

impl Checkpoint {
    /// The bytes that are signed.
    pub(super) fn message(&self) -> Vec<u8> {
        let mut out = b"tidegate-audit-checkpoint-1\n".to_vec();
        for number in [self.k, self.first, self.last, self.at_ms] {
            out.extend(number.to_le_bytes());
        }
        for text in [&self.log, &self.root, &self.head, &self.marks, &self.before] {
            out.extend((text.len() as u64).to_le_bytes());
            out.extend(text.as_bytes());
        }
        out
    }

    /// The hash of the checkpoint, in hex; the next checkpoint contains it.
    pub(super) fn digest(&self) -> String {
        hex(&Sha256::digest(self.message()))
    }

    /// The first eight bytes of the hash of entry `n`, if the checkpoint covers it.
    pub(super) fn mark(&self, n: i64) -> Option<&str> {
        let at = usize::try_from(n.checked_sub(self.first)?).ok()?.checked_mul(2 * MARK)?;
        self.marks.get(at..at.checked_add(2 * MARK)?)
    }

    pub(super) fn insert<S: Sql + ?Sized>(&self, sql: &mut S) -> Result<(), AuditError> {
        let bytes = |text: &str| Val::Blob(unhex_all(text).unwrap_or_default());
        sql.exec(
            &format!(
                "INSERT INTO audit_checkpoint ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
            ),
            &[
                self.k.into(),
                self.first.into(),
                self.last.into(),
                self.at_ms.into(),
                bytes(&self.root),
                bytes(&self.head),
                bytes(&self.marks),
                bytes(&self.before),
                self.key.as_deref().into(),
                self.signature.as_deref().map_or(Val::Null, bytes),
            ],
        )
        .map(drop)
    }

    fn from_row(row: &Vals, log: &str) -> Checkpoint {
        Checkpoint {
            log: log.to_owned(),
            k: row.int(0),
            first: row.int(1),
            last: row.int(2),
            at_ms: row.int(3),
            root: hex(&row.blob(4)),
            head: hex(&row.blob(5)),
            marks: hex(&row.blob(6)),
            before: hex(&row.blob(7)),
            key: row.maybe_text(8),
            signature: row.maybe_blob(9).map(|bytes| hex(&bytes)),
        }
    }
}

/// The last checkpoint of a log.
pub(super) fn last<S: Sql + ?Sized>(sql: &mut S, log: &str) -> Result<Option<Checkpoint>, AuditError> {
    let rows = sql.query(&format!("SELECT {COLUMNS} FROM audit_checkpoint ORDER BY k DESC LIMIT 1"), &[])?;
    Ok(rows.first().map(|row| Checkpoint::from_row(row, log)))
}

/// Up to a thousand checkpoints after number `k`.
pub(super) fn after<S: Sql + ?Sized>(sql: &mut S, log: &str, k: i64) -> Result<Vec<Checkpoint>, AuditError> {
    let question = format!("SELECT {COLUMNS} FROM audit_checkpoint WHERE k > ?1 ORDER BY k LIMIT 1000");
    Ok(sql.query(&question, &[k.into()])?.iter().map(|row| Checkpoint::from_row(row, log)).collect())
}
