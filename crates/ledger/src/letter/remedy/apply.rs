//! Applies repair rules to letters and records the result in the audit.

use super::RepairRule;
use super::rules::{RuleDecision, say};
use crate::letter::envelope::{Letter, Remedied};
use crate::letter::error::{LetterError, Result};
use crate::letter::feature::{FeaturePayload, PayloadError};
use crate::letter::filter::LetterFilter;
use crate::letter::seal::Keyring;
use crate::letter::store::{Amend, LetterPage, LetterStore, StoredLetter};
use sha2::{Digest, Sha256};
use tidegate_core::hex::hex;
use tidegate_core::letter::lineage::{Replayed, replay_key};
use tidegate_core::letter::{LetterState, blur};

/// The counts of a fix, or of its dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RemedyCounts {
    /// Letters that the rule was applied to.
    pub seen: u64,
    /// Letters repaired and accepted by the gates, ready to be replayed.
    pub validated: u64,
    /// Letters to be replayed later.
    pub scheduled: u64,
    /// Letters for a person: the rule was refused, or its result did not pass the gates.
    pub review: u64,
    /// Letters that cannot be repaired.
    pub unrecoverable: u64,
    /// Letters that the rule leaves as they are.
    pub untouched: u64,
}

/// Applies rules to letters.
#[derive(Debug)]
pub struct Fixer<'a> {
    /// The store of the letters.
    pub store: &'a mut LetterStore,
    /// The keys of sealed payloads.
    pub keys: &'a Keyring,
    /// Whether to count only and write nothing.
    pub dry_run: bool,
}

/// Checks whether a payload may be replayed: it is of its media type, and its geometry is valid and
/// lies on the earth.
///
/// # Errors
/// The reason why not.
pub fn gate(content_type: &str, payload: &[u8], letter: &Letter) -> std::result::Result<(), PayloadError> {
    if !content_type.contains("json") {
        return Ok(());
    }
    let feature = FeaturePayload::parse(payload)?;
    if feature.geometry().is_none() {
        return Ok(());
    }
    let wkb = feature.wkb()?;
    if let Some(flaw) = tidegate_geo::validity::first_flaw(&wkb) {
        return Err(PayloadError::Invalid(flaw));
    }
    let crs = letter.spatial.as_ref().map(|s| s.source_crs.as_str()).filter(|c| !c.is_empty());
    let Some([w, s, e, n]) = feature.spatial(crs).and_then(|s| s.bbox) else {
        return Err(PayloadError::Unplaced);
    };
    if w < -180.0 || e > 180.0 || s < -90.0 || n > 90.0 {
        return Err(PayloadError::OutOfBounds([w, s, e, n]));
    }
    Ok(())
}

/// Why the sink of a letter's pipeline cannot hold a payload; `None` if it can. An error ends the
/// fix: the sink cannot be asked.
pub type SinkCheck<'a> = &'a mut dyn FnMut(&Letter, &[u8]) -> Result<Option<String>>;

/// The geometry type of a payload, if it has one.
fn geometry_type(payload: &[u8]) -> Option<String> {
    let feature = FeaturePayload::parse(payload).ok()?;
    feature.geometry()?.get("type")?.as_str().map(str::to_owned)
}

/// Asks the sink about a payload of another geometry type; those of the same type it takes.
fn refusal(row: &StoredLetter, payload: &[u8], check: SinkCheck<'_>) -> Result<Option<String>> {
    if geometry_type(row.letter.payload.current()) == geometry_type(payload) {
        return Ok(None);
    }
    check(&row.letter, payload)
}

fn sha(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

impl Fixer<'_> {
    /// Applies a rule to the letters that match a filter and have a code of the rule.
    ///
    /// # Errors
    /// When the store cannot be used, or a payload cannot be decrypted. Letters fixed before stay
    /// fixed.
    pub fn fix(&mut self, rule: &RepairRule, filter: &LetterFilter, now_ms: i64) -> Result<RemedyCounts> {
        self.fix_for(rule, filter, now_ms, &mut |_, _| Ok(None))
    }

    /// The same, and a payload that the sink cannot hold is refused.
    ///
    /// # Errors
    /// As [`Fixer::fix`], or when the sink cannot be asked.
    pub fn fix_for(
        &mut self,
        rule: &RepairRule,
        filter: &LetterFilter,
        now_ms: i64,
        check: SinkCheck<'_>,
    ) -> Result<RemedyCounts> {
        let mut filter = filter.clone();
        if filter.codes.is_empty() {
            filter.codes = rule.codes().iter().map(ToString::to_string).collect();
        }
        if filter.states.is_empty() {
            filter.states = LetterState::ALL.into_iter().filter(|s| s.is_mendable()).collect();
        }
        filter.after = Some(-1);
        let mut count = RemedyCounts::default();
        loop {
            let rows =
                self.store.find(&filter, LetterPage { limit: 256, newest_first: false, payload: true })?;
            let Some(last) = rows.last() else { return Ok(count) };
            filter.after = Some(last.seq);
            for row in rows {
                if row.letter.state.is_mendable() {
                    self.one(rule, row, &mut count, now_ms, check)?;
                }
            }
        }
    }

    fn one(
        &mut self,
        rule: &RepairRule,
        mut row: StoredLetter,
        count: &mut RemedyCounts,
        now_ms: i64,
        check: SinkCheck<'_>,
    ) -> Result<()> {
        count.seen += 1;
        self.reveal(&mut row)?;
        let mut letter = row.letter.clone();
        let (state, note) = match say(rule, &letter, now_ms) {
            RuleDecision::Nothing => {
                count.untouched += 1;
                return Ok(());
            }
            RuleDecision::Changed { payload, spatial, note } => {
                let was = letter.spatial.take();
                letter.spatial = spatial.map(|s| *s).or(was);
                let passed = match gate(&letter.content_type, &payload, &letter) {
                    Ok(()) => refusal(&row, &payload, check)?.map_or(Ok(()), Err),
                    Err(why) => Err(why.to_string()),
                };
                match passed {
                    Ok(()) => {
                        count.validated += 1;
                        return if self.dry_run {
                            Ok(())
                        } else {
                            self.change(row, letter, payload, rule.id(), &note, "fix", now_ms)
                        };
                    }
                    Err(why) => {
                        letter.spatial.clone_from(&row.letter.spatial);
                        (LetterState::Review, format!("{note}; but {why}"))
                    }
                }
            }
            RuleDecision::Later { not_before_ms, note } => {
                letter.not_before_ms = Some(not_before_ms);
                (LetterState::Scheduled, note)
            }
            RuleDecision::Hopeless(why) => (LetterState::Unrecoverable, why),
            RuleDecision::Refused(why) => (LetterState::Review, why),
        };
        match state {
            LetterState::Scheduled => count.scheduled += 1,
            LetterState::Unrecoverable => count.unrecoverable += 1,
            _ => count.review += 1,
        }
        if self.dry_run || (letter.state == state && letter.not_before_ms == row.letter.not_before_ms) {
            return Ok(());
        }
        letter.state = state;
        let detail = serde_json::json!({ "rule": rule.id(), "state": state.as_str(), "note": blur(&note) });
        self.store.amend(&Amend { row, letter, payload: None, act: "fix", detail }, now_ms)
    }

    /// Decrypts the payload if it is sealed.
    ///
    /// # Errors
    /// When the key is missing.
    pub fn reveal(&self, row: &mut StoredLetter) -> Result<()> {
        if let Some(sealed) = &row.sealed {
            row.letter.payload = self.keys.open(sealed)?;
        }
        Ok(())
    }

    /// Replaces the payload of a letter by a manual edit; it must pass the gates.
    ///
    /// # Errors
    /// When it does not pass, or the store cannot be used.
    pub fn edit(
        &mut self,
        row: StoredLetter,
        payload: Vec<u8>,
        now_ms: i64,
        check: SinkCheck<'_>,
    ) -> Result<()> {
        let mut letter = row.letter.clone();
        if let Ok(feature) = FeaturePayload::parse(&payload)
            && feature.geometry().is_some()
        {
            let crs = letter.spatial.as_ref().map(|s| s.source_crs.clone()).filter(|c| !c.is_empty());
            letter.spatial = feature.spatial(crs.as_deref()).or(letter.spatial);
        }
        gate(&letter.content_type, &payload, &letter).map_err(|e| LetterError::Refused(e.to_string()))?;
        if let Some(why) = refusal(&row, &payload, check)? {
            return Err(LetterError::Refused(why));
        }
        self.change(row, letter, payload, "edit", "by hand", "edit", now_ms)
    }

    #[expect(clippy::too_many_arguments, reason = "all of it goes into one entry")]
    fn change(
        &mut self,
        row: StoredLetter,
        mut letter: Letter,
        payload: Vec<u8>,
        rule: &str,
        note: &str,
        act: &'static str,
        now_ms: i64,
    ) -> Result<()> {
        let (before, after) = (sha(row.letter.payload.current()), sha(&payload));
        if before == after {
            return Ok(());
        }
        letter.state = LetterState::Validated;
        letter.idempotency_key = replay_key(
            &letter.idempotency_key,
            Some(&Replayed {
                root_key: &letter.lineage.root_key,
                generation: letter.lineage.generation,
                rule,
                payload: after,
            }),
        );
        letter.remedies.push(Remedied {
            rule: rule.to_owned(),
            at_ms: now_ms,
            who: self.store.who().to_owned(),
            note: note.to_owned(),
            before: hex(&before),
            after: hex(&after),
        });
        let detail = serde_json::json!({
            "rule": rule, "note": blur(note), "before": hex(&before), "after": hex(&after), "key": letter.idempotency_key,
        });
        let payload = match &row.sealed {
            Some(sealed) => self.keys.reseal(sealed, &payload)?,
            None => payload,
        };
        self.store.amend(&Amend { row, letter, payload: Some(payload), act, detail }, now_ms)
    }
}
