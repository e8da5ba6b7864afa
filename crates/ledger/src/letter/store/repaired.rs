//! Records that were repaired and replayed, so that the next run does not give them up once more.
//!
//! The key of a letter is the content of its record. If a run gives up the record of a letter that
//! was repaired and resolved, with the same failure at the same stage, then the source has not
//! changed and the repaired record is the answer to it. A letter that was resolved without a change
//! of its payload is no such answer: the service failed once more.

use super::put::once;
use super::{LetterStore, Result, broken};
use crate::letter::envelope::Letter;
use std::collections::HashMap;
use tidegate_core::letter::LetterState;

/// The repaired records of a pipeline.
#[derive(Clone, Debug, Default)]
pub struct RepairedRecords {
    /// By the key under which the store knows the first failure: its code, and the row of the letter
    /// that resolved it.
    letters: HashMap<[u8; 16], (String, i64)>,
}

impl LetterStore {
    /// The records of a pipeline whose letters are resolved.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn repaired(&mut self, pipeline: &str) -> Result<RepairedRecords> {
        // A letter whose first replay failed is resolved by one of its children.
        let rows = self.db.query(
            "SELECT r.once, rg.code, l.seq FROM letter l JOIN grp g ON g.grp = l.grp
             JOIN letter r ON r.id = l.root JOIN grp rg ON rg.grp = r.grp
             WHERE g.pipeline = ?1 AND (l.state = ?2 OR l.state = ?3)
               AND EXISTS (SELECT 1 FROM member m WHERE m.seq = l.seq AND m.ended = 'resolved')
             ORDER BY l.seq",
            &[pipeline.into(), (LetterState::Resolved as i64).into(), (LetterState::Archived as i64).into()],
        )?;
        let letter = |row: &super::Vals| Some((row.blob(0).try_into().ok()?, (row.text(1), row.int(2))));
        Ok(RepairedRecords { letters: rows.iter().filter_map(letter).collect() })
    }

    /// Whether the record of a new letter was repaired and replayed before.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn is_repaired(&mut self, known: &RepairedRecords, letter: &Letter) -> Result<bool> {
        let key = once(&letter.pipeline, &letter.stage, &letter.idempotency_key);
        let Some((code, seq)) = known.letters.get(&key) else { return Ok(false) };
        if code != letter.failure.code.as_str() {
            return Ok(false);
        }
        // It may have been purged since.
        let rows = self.db.query("SELECT envelope FROM body WHERE seq = ?1", &[(*seq).into()])?;
        let Some(row) = rows.first() else { return Ok(false) };
        let resolved: Letter = serde_json::from_str(&row.text(0)).map_err(broken)?;
        Ok(resolved.idempotency_key != resolved.lineage.root_key)
    }
}

impl RepairedRecords {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }
}
