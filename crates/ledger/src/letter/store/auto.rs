//! What rules did unasked: counted from the replay plans, which a purge leaves alone.

use super::{LetterStore, Result};

/// The replays of one rule of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleReplays {
    /// The name of the pipeline.
    pub pipeline: String,
    /// The code of the letters; `parked` for those whose time had come.
    pub code: String,
    /// The remedy; empty if letters were replayed as they were.
    pub remedy: String,
    /// Letters whose records are in the sink.
    pub resolved: u64,
    /// Letters that failed again.
    pub failed: u64,
}

/// The note of a plan that a rule made.
#[must_use]
pub fn rule_spec(code: &str, remedy: &str) -> String {
    serde_json::json!({ "auto": code, "remedy": remedy }).to_string()
}

impl LetterStore {
    /// What each rule has replayed.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn rule_replays(&mut self) -> Result<Vec<RuleReplays>> {
        let rows = self.db.query(
            "SELECT p.pipeline, p.spec, m.ended, count(*) FROM plan p JOIN member m ON m.plan = p.plan
             WHERE p.spec LIKE '{\"auto\":%' AND m.ended IN ('resolved', 'dead')
             GROUP BY p.pipeline, p.spec, m.ended ORDER BY p.pipeline, p.spec",
            &[],
        )?;
        let mut all: Vec<RuleReplays> = Vec::new();
        for row in &rows {
            let spec: serde_json::Value = serde_json::from_str(&row.text(1)).unwrap_or_default();
            let word = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
            let (pipeline, code, remedy) = (row.text(0), word("auto"), word("remedy"));
            let same = |known: &&mut RuleReplays| {
                (&known.pipeline, &known.code, &known.remedy) == (&pipeline, &code, &remedy)
            };
            let at = match all.iter_mut().find(same) {
                Some(known) => known,
                None => {
                    all.push(RuleReplays { pipeline, code, remedy, resolved: 0, failed: 0 });
                    let Some(last) = all.last_mut() else { continue };
                    last
                }
            };
            let count = row.int(3) as u64;
            if row.text(2) == "resolved" { at.resolved += count } else { at.failed += count }
        }
        Ok(all)
    }

    /// How many letters of a pipeline a rule has replayed since then.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn rule_replayed_since(&mut self, pipeline: &str, spec: &str, since_ms: i64) -> Result<u64> {
        let rows = self.db.query(
            "SELECT count(*) FROM plan p JOIN member m ON m.plan = p.plan
             WHERE p.pipeline = ?1 AND p.spec = ?2 AND p.made_ms > ?3",
            &[pipeline.into(), spec.into(), since_ms.into()],
        )?;
        Ok(rows.first().map_or(0, |row| row.int(0)) as u64)
    }
}
