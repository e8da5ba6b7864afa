//! Replay: runs each letter of a plan once, from the failed stage onward.
//!
//! The members of a plan are frozen ([`super::store::LetterStore::plan`]). They are leased in
//! batches, run by an implementation of [`Rerun`] that knows their pipeline, and finished in one
//! transaction with the audit. The sink is written before the letter is finished. If the process
//! dies in between, the letter is still planned; the next run overwrites its own row, because the
//! effect key is the same.

mod error;
mod merge;

pub use error::ReplayError;
pub use merge::{Update, holds, merge, writable};

use super::envelope::{Letter, Payload};
use super::error::{LetterError, Result};
use super::feature::{FeaturePayload, PayloadError};
use super::remedy::gate;
use super::seal::Keyring;
use super::store::{FinishedReplay, LetterStore, ReplayOutcome, ReplayPlan};
use super::writer::{Letters, now_ms};
use std::path::PathBuf;
use std::time::Duration;
use tidegate_core::Code;
use tidegate_geo::mapping::Owned;

/// Runs the letters of a pipeline again.
pub trait Rerun {
    /// Checks whether a replay is possible now: the sink is writable, the breaker is closed. Sends
    /// no calls.
    ///
    /// # Errors
    /// The reason why not.
    fn preflight(&mut self) -> std::result::Result<(), ReplayError>;

    /// Runs letters from their failed stage through the sink; returns the outcomes in the same
    /// order.
    ///
    /// # Errors
    /// When none of them could be tried. The replay can be resumed.
    fn run(&mut self, letters: &[Letter]) -> std::result::Result<Vec<ReplayOutcome>, ReplayError>;

    /// Why the sink cannot hold the payload that a remedy made for a letter; `None` if it can.
    ///
    /// # Errors
    /// When the sink cannot be asked.
    fn refusal(
        &mut self,
        _letter: &Letter,
        _payload: &[u8],
    ) -> std::result::Result<Option<String>, ReplayError> {
        Ok(None)
    }

    /// Reads the sink back: which of the resolved letters it contains.
    ///
    /// # Errors
    /// When the sink cannot be read.
    fn verify(&mut self, letters: &[Letter]) -> std::result::Result<Vec<bool>, ReplayError>;
}

/// How a plan is processed.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The number of letters in one lease.
    pub batch: u32,
    /// The duration of a lease.
    pub lease: Duration,
    /// Whether to take over the leases of other workers; use it only if they are known to be dead.
    pub takeover: bool,
    /// Whether to read the sink back before a letter counts as resolved.
    pub verify: bool,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { batch: 1000, lease: Duration::from_secs(900), takeover: false, verify: false }
    }
}

/// Processes a plan until nothing is left or it is told to stop.
///
/// # Errors
/// When the store or the pipeline fails. Finished letters stay finished; the plan can be resumed.
pub fn go(
    store: &mut LetterStore,
    letters: &Letters,
    keys: &Keyring,
    plan: i64,
    rerun: &mut dyn Rerun,
    pace: Pace,
    mut watch: impl FnMut(&ReplayPlan) -> bool,
) -> Result<ReplayPlan> {
    let refused = |e: ReplayError| LetterError::Refused(e.to_string());
    loop {
        let now = store.plan_get(plan)?.ok_or_else(|| LetterError::Refused(format!("no replay {plan}")))?;
        if !watch(&now) {
            return Ok(now);
        }
        let time = now_ms();
        let until = time.saturating_add(pace.lease.as_millis() as i64);
        let free_before = if pace.takeover { i64::MAX } else { time };
        let mut leased = store.lease(plan, pace.batch, until, free_before)?;
        if leased.is_empty() {
            // What is left belongs to another worker, or no longer exists.
            store.plans_settle(now_ms())?;
            return Ok(store.plan_get(plan)?.unwrap_or(now));
        }
        for member in &mut leased {
            if let Some(sealed) = &member.row.sealed {
                member.row.letter.payload = keys.open(sealed)?;
            }
        }
        let work: Vec<Letter> = leased.iter().map(|l| l.row.letter.clone()).collect();
        let mut ended = rerun.run(&work).map_err(refused)?;
        if pace.verify {
            let there = rerun.verify(&work).map_err(refused)?;
            for (how, there) in ended.iter_mut().zip(there) {
                if matches!(how, ReplayOutcome::Resolved { .. }) && !there {
                    *how = ReplayOutcome::Back { not_before_ms: None, note: "it is not in the sink".into() };
                }
            }
        }
        let ended: Vec<FinishedReplay> = leased
            .into_iter()
            .zip(ended)
            .map(|(leased, outcome)| FinishedReplay { leased, outcome })
            .collect();
        store.finish(letters, &ended, now_ms())?;
    }
}

/// The new letter of a failed replay: the same record with the new failure.
#[must_use]
pub fn replay_failure(letter: &Letter, code: Code, message: String, now_ms: i64) -> Letter {
    let mut child = letter.clone();
    child.id = Default::default();
    child.state = Default::default();
    child.not_before_ms = None;
    child.archive = None;
    child.remedies = Vec::new();
    child.payload = Payload { received: letter.payload.current().to_vec(), current: None };
    child.failure.class = tidegate_core::letter::FailureClass::of(code, None);
    child.failure.code = code;
    child.failure.message = message;
    child.failure.attempts = Vec::new();
    child.failure.failed_ms = now_ms;
    child
}

/// Replays features into a file, identified by their effect key in the field `tidegate_key`.
#[derive(Debug)]
pub struct IntoFile {
    /// The file; its extension determines the format.
    pub output: PathBuf,
}

/// The field that holds the effect key.
pub const KEY_FIELD: &str = "tidegate_key";

impl Rerun for IntoFile {
    fn preflight(&mut self) -> std::result::Result<(), ReplayError> {
        writable(&self.output)
    }

    fn run(&mut self, letters: &[Letter]) -> std::result::Result<Vec<ReplayOutcome>, ReplayError> {
        let mut updates = Vec::new();
        let mut ended = Vec::with_capacity(letters.len());
        for letter in letters {
            let payload = letter.payload.current();
            if let Err(why) = feature(payload).and_then(|()| gate(&letter.content_type, payload, letter)) {
                let again = replay_failure(letter, letter.failure.code, why.to_string(), now_ms());
                ended.push(ReplayOutcome::Dead(Box::new(again)));
                continue;
            }
            updates.push(update(letter)?);
            ended.push(ReplayOutcome::Resolved {
                note: format!("{} {}", self.output.display(), letter.effect_key),
            });
        }
        merge(&self.output, KEY_FIELD, &updates)?;
        Ok(ended)
    }

    fn verify(&mut self, letters: &[Letter]) -> std::result::Result<Vec<bool>, ReplayError> {
        let keys: Vec<String> = letters.iter().map(|letter| letter.effect_key.clone()).collect();
        holds(&self.output, KEY_FIELD, &keys)
    }
}

/// Other JSON has no properties: nothing of it would be in the file.
fn feature(payload: &[u8]) -> std::result::Result<(), PayloadError> {
    let parsed = FeaturePayload::parse(payload)?;
    let named = parsed.json.get("type").is_some_and(|kind| kind == "Feature");
    if named || parsed.geometry().is_some() { Ok(()) } else { Err(PayloadError::NotAFeature) }
}

fn update(letter: &Letter) -> std::result::Result<Update, ReplayError> {
    let feature = FeaturePayload::parse(letter.payload.current())?;
    let properties = feature.json.get("properties").and_then(|p| p.as_object());
    let mut values: Vec<(String, Owned)> =
        properties.into_iter().flatten().map(|(name, value)| (name.clone(), owned(value))).collect();
    values.push((KEY_FIELD.into(), Owned::Text(letter.effect_key.clone())));
    let wkb = feature.geometry().map(|_| feature.wkb()).transpose()?;
    let crs = letter.spatial.as_ref().map(|s| s.source_crs.clone());
    Ok(Update { key: letter.effect_key.clone(), wkb, crs, values })
}

fn owned(value: &serde_json::Value) -> Owned {
    match value {
        serde_json::Value::Null => Owned::Null,
        serde_json::Value::Bool(b) => Owned::Bool(*b),
        serde_json::Value::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(n), _) => Owned::Int(n),
            (None, Some(x)) => Owned::Real(x),
            (None, None) => Owned::Text(n.to_string()),
        },
        serde_json::Value::String(text) => Owned::Text(text.clone()),
        other => Owned::Json(other.to_string()),
    }
}
