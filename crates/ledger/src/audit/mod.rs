//! The audit log: the append-only, tamper-evident record of what was decided.
//!
//! All entries have one format: a number, a time, a user, an action and, where they apply, the id
//! of the letter, the key of the record, a code of the taxonomy, a destination, and further fields
//! as JSON. Entries are written in the transaction of the action that they record: those about
//! letters in the letter store ([`crate::letter::store`]), those of a run in an [`AuditLog`] of its
//! own, together with the checkpoint of the sink.
//!
//! Four mechanisms detect tampering:
//!
//! - **The chain** (`chain`): each entry is hashed with the previous one.
//! - **The head**: the number and hash of the last entry, signed in every transaction. Nobody
//!   without the key can add an entry, not even at the end.
//! - **Checkpoints** (`seal`): after a thousand entries, after a second, and at the end of a
//!   command. Each holds a Merkle root over the entries since the previous checkpoint, the first
//!   eight bytes of each entry's hash, the hash of the previous checkpoint, and a signature. Nobody
//!   without the key can recompute the chain.
//! - **Copies** (`copy`): each checkpoint also goes to a file outside the database, possibly on
//!   another disk. Nobody can truncate the log or restore an older one unnoticed.
//!
//! That a log is gone, or that its key is another, is seen in the register of its directory
//! (`register`).
//!
//! `verify` checks all four and names the first entry that was tampered with.

mod attempt;
mod book;
mod chain;
mod copy;
mod error;
mod log;
mod read;
mod register;
mod seal;
mod sign;
mod verify;

pub use attempt::attempt;
pub use book::AuditLog;
pub use copy::{Copies, CopyContents, RepairedCopy};
pub use error::AuditError;
pub use log::{AuditWriter, user};
pub(crate) use log::{append, close, hash_at, is_registered};
pub(crate) use read::read;
pub use read::{AuditEntry, AuditFilter};
pub use register::{Acceptance, LogHead, REGISTER_FILE, Register};
pub use seal::Checkpoint;
pub use sign::{KEY_FILE, PUBLIC_FILE, PublicKey, Signer};
pub(crate) use verify::verify;
pub use verify::{TamperFinding, TamperKind, TrustAnchors, VerifiedLog};

use tidegate_core::letter::LetterId;

use crate::sql::Vals;

/// The audit tables; [`crate::sql::Spelling`] translates the column types.
pub(crate) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS audit (
    n NUMBER PRIMARY KEY, at_ms BIGINT NOT NULL, who TEXT NOT NULL, act TEXT NOT NULL,
    letter BYTES, detail TEXT NOT NULL, hash BYTES NOT NULL, key TEXT, code TEXT, dest TEXT
);
CREATE INDEX IF NOT EXISTS audit_letter ON audit (letter) WHERE letter IS NOT NULL;
CREATE TABLE IF NOT EXISTS audit_head (
    one NUMBER PRIMARY KEY, n BIGINT NOT NULL, hash BYTES NOT NULL, key_id TEXT, signature BYTES
);
CREATE TABLE IF NOT EXISTS audit_checkpoint (
    k NUMBER PRIMARY KEY, first_n BIGINT NOT NULL, last_n BIGINT NOT NULL, at_ms BIGINT NOT NULL,
    root BYTES NOT NULL, head BYTES NOT NULL, marks BYTES NOT NULL, before BYTES NOT NULL,
    key_id TEXT, signature BYTES
);
";

/// The columns that tables of format 1 lack.
pub(crate) const COLUMNS_SINCE_2: [&str; 3] = ["key", "code", "dest"];

/// An event to append to the audit log.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct AuditEvent {
    /// Time in milliseconds since 1970.
    pub at_ms: i64,
    /// The action: `run`, `commit`, `route`, `gate`, `halt`, `capture`, `fix`, `replay`, `reveal`, …
    pub act: String,
    /// The id of the letter, if the event is about one.
    #[serde(skip)]
    pub letter: Option<LetterId>,
    /// The key of the record or batch, if the event is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The code of the taxonomy, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The destination, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dest: Option<String>,
    /// Further fields, as JSON.
    pub detail: serde_json::Value,
}

impl AuditEvent {
    /// An event with an action and its detail.
    #[must_use]
    pub fn new(at_ms: i64, act: &str, detail: serde_json::Value) -> AuditEvent {
        AuditEvent { at_ms, act: act.to_owned(), letter: None, key: None, code: None, dest: None, detail }
    }

    /// Sets the letter that the event is about.
    #[must_use]
    pub fn letter(mut self, letter: impl Into<Option<LetterId>>) -> AuditEvent {
        self.letter = letter.into();
        self
    }

    /// Sets the key of the record or batch.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> AuditEvent {
        self.key = Some(key.into());
        self
    }

    /// Sets the code of the taxonomy.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> AuditEvent {
        self.code = Some(code.into());
        self
    }

    /// Sets the destination.
    #[must_use]
    pub fn to(mut self, dest: impl Into<String>) -> AuditEvent {
        self.dest = Some(dest.into());
        self
    }
}

/// A row of the table `audit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AuditRow {
    /// The number of the entry, from 1.
    n: i64,
    /// Time in milliseconds since 1970.
    at_ms: i64,
    who: String,
    act: String,
    letter: Option<Vec<u8>>,
    detail: String,
    hash: Vec<u8>,
    key: Option<String>,
    code: Option<String>,
    dest: Option<String>,
}

const COLUMNS: &str = "n, at_ms, who, act, letter, detail, hash, key, code, dest";

impl From<Vals> for AuditRow {
    fn from(mut row: Vals) -> AuditRow {
        AuditRow {
            n: row.int(0),
            at_ms: row.int(1),
            who: row.take_text(2).unwrap_or_default(),
            act: row.take_text(3).unwrap_or_default(),
            letter: row.take_blob(4),
            detail: row.take_text(5).unwrap_or_default(),
            hash: row.take_blob(6).unwrap_or_default(),
            key: row.take_text(7),
            code: row.take_text(8),
            dest: row.take_text(9),
        }
    }
}
