//! The audit: the append-only, tamper-evident list of what was decided.
//!
//! One form for everything: an entry has a number, a time, who acted, the act, and as far as they
//! apply the letter, the key of the record, a code of the taxonomy, a destination, and the rest as
//! JSON. Entries are written in the transaction of what they record: those of letters in the
//! letter store ([`crate::letter::store`]), those of a run in a [`AuditLog`] of its own, to which they
//! travel with the checkpoint of the sink.
//!
//! Against tampering, in the order in which they bite:
//!
//! - **The chain** (`chain`): each entry is hashed with the one before.
//! - **The head**: number and hash of the last entry, signed in every transaction. So nobody
//!   without the key can add an entry, not even at the end.
//! - **Checkpoints** (`seal`): every thousand entries, every second, and when a command ends: a
//!   Merkle root over the entries since the last, the first eight bytes of each entry's hash, the
//!   hash of the checkpoint before, and a signature. So nobody can compute the chain anew.
//! - **Copies** (`copy`): each checkpoint also goes to a file outside of the database, which may
//!   lie elsewhere. So nobody can cut off the end, or put an older state back.
//!
//! `verify` goes through all of them and names the first entry that is not what it was.

mod attempt;
mod book;
mod chain;
mod copy;
mod error;
mod log;
mod read;
mod seal;
mod sign;
mod verify;

pub use attempt::attempt;
pub use book::AuditLog;
pub use copy::Copies;
pub use error::AuditError;
pub use log::{AuditWriter, user};
pub(crate) use log::{append, close};
pub(crate) use read::read;
pub use read::{AuditEntry, AuditFilter};
pub use seal::Checkpoint;
pub use sign::{KEY_FILE, PUBLIC_FILE, PublicKey, Signer};
pub(crate) use verify::verify;
pub use verify::{TamperFinding, TamperKind, TrustAnchors, VerifiedLog};

use tidegate_core::letter::LetterId;

use crate::sql::Vals;

/// The tables, as [`crate::sql::Spelling`] spells them.
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

/// What tables of the first form lack.
pub(crate) const COLUMNS_SINCE_2: [&str; 3] = ["key", "code", "dest"];

/// An event to be entered into the audit log.
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
    /// An act and its detail.
    #[must_use]
    pub fn new(at_ms: i64, act: &str, detail: serde_json::Value) -> AuditEvent {
        AuditEvent { at_ms, act: act.to_owned(), letter: None, key: None, code: None, dest: None, detail }
    }

    /// About this letter.
    #[must_use]
    pub fn letter(mut self, letter: impl Into<Option<LetterId>>) -> AuditEvent {
        self.letter = letter.into();
        self
    }

    /// About this record or batch.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> AuditEvent {
        self.key = Some(key.into());
        self
    }

    /// With this code.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> AuditEvent {
        self.code = Some(code.into());
        self
    }

    /// To this destination.
    #[must_use]
    pub fn to(mut self, dest: impl Into<String>) -> AuditEvent {
        self.dest = Some(dest.into());
        self
    }
}

/// A row of the table `audit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AuditRow {
    n: i64,
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
