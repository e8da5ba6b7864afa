//! What the tables say beside the letters, and the signed audit vouches for: the definitions of
//! pipelines, and settings.
//!
//! A definition is what a run had when its letters were made: its manifest, its directories and the
//! fields of its source. Whoever can write letters can write it too, so it is for people and for
//! comparison. The audit holds the SHA-256 of what was stored last, so that a change is found, and a
//! definition that nobody signed.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tidegate_core::hex::hex;

use super::{AuditEvent, LetterStore, Result, audit};
use crate::letter::now_ms;

/// The act of the entry about a definition; its key is the pipeline.
const DEFINE: &str = "define";
/// The act of the entry about a setting.
const SET: &str = "set";
/// The settings that are only set with an entry.
const SETTINGS: [&str; 2] = ["capacity", "recipient"];

/// The last entry about something, and the SHA-256 that it names. Entries of older versions about
/// settings name none.
struct Vouched {
    n: i64,
    sha256: Option<String>,
}

/// The SHA-256 of a text, in hex.
pub(super) fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

impl LetterStore {
    /// Stores the definition of a pipeline, as JSON, with an entry in the audit.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn define(&mut self, pipeline: &str, definition: &str) -> Result<()> {
        let detail = json!({ "sha256": sha256(definition) });
        let act = AuditEvent::new(now_ms(), DEFINE, detail).key(pipeline).to("definitions");
        self.tx(|db, writer| {
            db.exec(
                "INSERT INTO pipeline (pipeline, spec) VALUES (?1, ?2)
                 ON CONFLICT (pipeline) DO UPDATE SET spec = excluded.spec",
                &[pipeline.into(), definition.into()],
            )?;
            audit::append(db, writer, [act])
        })
    }

    /// The definition of a pipeline, as JSON. It is data: what is done with letters comes from a
    /// manifest that a person named.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn definition(&mut self, pipeline: &str) -> Result<Option<String>> {
        let rows = self.db.query("SELECT spec FROM pipeline WHERE pipeline = ?1", &[pipeline.into()])?;
        Ok(rows.first().map(|row| row.text(0)))
    }

    /// The names of the pipelines whose definitions are stored.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn pipelines(&mut self) -> Result<Vec<String>> {
        let rows = self.db.query("SELECT pipeline FROM pipeline ORDER BY pipeline", &[])?;
        Ok(rows.iter().map(|row| row.text(0)).collect())
    }

    /// Why the definition of a pipeline is not the one that was signed last, in one sentence; `None` if
    /// it is.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn check_definition(&mut self, pipeline: &str) -> Result<Option<String>> {
        let rows = self.db.query("SELECT spec FROM pipeline WHERE pipeline = ?1", &[pipeline.into()])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let last = self.vouched(DEFINE)?.remove(pipeline);
        Ok(differs(&format!("the definition of {pipeline}"), last, &row.text(0)))
    }

    /// Compares definitions and settings with the audit, which has to be verified too. Returns what is
    /// not as it was signed, one sentence each.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn check_signed(&mut self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut vouched = self.vouched(DEFINE)?;
        for row in self.db.query("SELECT pipeline, spec FROM pipeline ORDER BY pipeline", &[])? {
            let name = row.text(0);
            let what = format!("the definition of {name}");
            found.extend(differs(&what, vouched.remove(&name), &row.text(1)));
        }
        found.extend(vouched.iter().map(|(name, last)| gone(&format!("the definition of {name}"), last)));
        let mut vouched = self.vouched(SET)?;
        for row in self.db.query("SELECT name, value FROM meta ORDER BY name", &[])? {
            let name = row.text(0);
            let last = vouched.remove(&name);
            if last.is_some() || SETTINGS.contains(&name.as_str()) {
                found.extend(differs(&format!("the setting {name}"), last, &row.text(1)));
            }
        }
        found.extend(vouched.iter().map(|(name, last)| gone(&format!("the setting {name}"), last)));
        Ok(found)
    }

    /// What the audit knows last of each thing that entries of this act are about.
    fn vouched(&mut self, act: &str) -> Result<BTreeMap<String, Vouched>> {
        let rows =
            self.db.query("SELECT n, key, detail FROM audit WHERE act = ?1 ORDER BY n", &[act.into()])?;
        let mut all = BTreeMap::new();
        for row in &rows {
            let detail: Value = serde_json::from_str(&row.text(2)).unwrap_or_default();
            let text = |name: &str| detail.get(name).and_then(Value::as_str).map(str::to_owned);
            if let Some(name) = row.maybe_text(1).or_else(|| text("setting")) {
                all.insert(name, Vouched { n: row.int(0), sha256: text("sha256") });
            }
        }
        Ok(all)
    }
}

fn differs(what: &str, last: Option<Vouched>, now: &str) -> Option<String> {
    match last {
        None => Some(format!("{what} was signed by nobody: no entry is about it")),
        Some(Vouched { n, sha256: Some(signed) }) if signed != sha256(now) => {
            Some(format!("{what} was changed after it was signed with entry {n}"))
        }
        Some(_) => None,
    }
}

fn gone(what: &str, last: &Vouched) -> String {
    format!("{what}, which was signed with entry {}, is missing", last.n)
}
