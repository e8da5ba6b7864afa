//! Dead letters: a record that was given up is never lost and never a mystery.
//!
//! What a pipeline needs is small. It opens [`Letters`] once, and before it acknowledges a record
//! to its source it puts the letters of those that failed and waits for the ticket:
//!
//! ```
//! use tidegate_ledger::letter::{Failure, Letter, Letters, Payload, LetterStoreLocation, now_ms};
//! use tidegate_core::{Code, letter::FailureClass};
//!
//! # let dir = tempfile::tempdir()?;
//! # let file = dir.path().join("letters.db").display().to_string();
//! let letters = Letters::open(&LetterStoreLocation::from(file.as_str()))?;
//! let letter = Letter {
//!     pipeline: "parcels".into(),
//!     stage: "gate".into(),
//!     idempotency_key: "parcels:7f3a".into(), // the record's key
//!     effect_key: "parcels:17".into(),        // the sink's row
//!     content_type: "application/geo+json".into(),
//!     payload: Payload { received: b"{}".to_vec(), current: None },
//!     failure: Failure {
//!         class: FailureClass::Fatal,
//!         code: Code::INVALID_GEOMETRY,
//!         message: "Self-intersection[16.37 48.21]".into(),
//!         failed_ms: now_ms(),
//!         ..Failure::default()
//!     },
//!     ..Letter::default()
//! };
//! letters.put(&[letter]).wait()?; // or .done().await; an error: acknowledge nothing, stop
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same failure of the same record (pipeline, stage, key, generation) is one letter while that
//! letter is open, so a run that was cut off between the letter and the acknowledgement may simply
//! put it again. Before a batch is put, [`flood`] says whether it is one incident instead. A
//! pipeline that wants to survive records that abort the process runs suspects through [`guarded`].
//!
//! The rest is for people: [`LetterFilter`] and [`LetterStore`] to look, [`remedy`] to repair, [`replay`] to
//! run again, `archive` to keep, [`seal`] to hide, [`export`] to see.

#[cfg(feature = "object-store")]
pub mod archive;
mod envelope;
mod error;
pub mod export;
pub mod feature;
mod filter;
pub mod remedy;
pub mod replay;
pub mod seal;
pub mod store;
mod text;
mod writer;

pub use envelope::{
    DAY_MS, Defect, Failure, Http, Letter, LetterAttempt, LetterSource, Lineage, Payload, RETENTION_DAYS,
    RETENTION_RANGE, Remedied, Spatial, Versions,
};
pub use error::LetterError;
pub use filter::LetterFilter;
pub use store::{LetterStore, LetterStoreLocation, Put};
pub use writer::{LetterTicket, Letters, now_ms};

use std::collections::BTreeMap;
use store::Incident;
use tidegate_core::letter::incident::Threshold;

/// Whether a batch of `len` records with these failures is one incident and not a heap of letters.
/// If it is: acknowledge nothing of the batch, [`LetterStore::incident_open`] it and stop the pipeline.
#[must_use]
pub fn flood(letters: &[Letter], len: u64, threshold: &Threshold) -> Option<Incident> {
    let mut counts = BTreeMap::new();
    for letter in letters {
        counts.entry(letter.fingerprint()).or_insert((0u64, letter)).0 += 1;
    }
    let (fingerprint, failed) = threshold.judge(len, counts.iter().map(|(fp, (n, _))| (*fp, *n)))?;
    let (_, example) = counts.get(&fingerprint)?;
    Some(Incident {
        incident: 0,
        pipeline: example.pipeline.clone(),
        fingerprint,
        code: example.failure.code.to_string(),
        message: example.failure.message.clone(),
        failed,
        batch: len,
        opened_ms: example.failure.failed_ms,
        closed_ms: None,
    })
}

/// What became of a record that is under suspicion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarded<T> {
    /// The process lived.
    Worked(T),
    /// The process died on it so often before that it was not tried again: put it as a letter with
    /// [`Code::PROCESS_CRASHED`](tidegate_core::Code::PROCESS_CRASHED), then [`LetterStore::crash_end`] it.
    Poison(u32),
}

/// The record that is worked on.
#[derive(Clone, Copy, Debug)]
pub struct GuardedRecord<'a> {
    /// The name of the pipeline.
    pub pipeline: &'a str,
    /// The stage of the pipeline.
    pub stage: &'a str,
    /// The key of the record.
    pub key: &'a str,
}

/// Works on one record so that a death of the process is remembered. Costs two commits, so use it
/// for what was under way when a process died ([`LetterStore::crash_count`]), not for every record.
///
/// # Errors
/// When the store cannot be written; the work is then not begun.
pub fn guarded<T>(
    store: &mut LetterStore,
    record: GuardedRecord<'_>,
    deaths_max: u32,
    work: impl FnOnce() -> T,
) -> Result<Guarded<T>, LetterError> {
    let GuardedRecord { pipeline, stage, key } = record;
    let deaths = store.crash_begin(pipeline, stage, key, now_ms())?;
    if deaths >= deaths_max {
        return Ok(Guarded::Poison(deaths));
    }
    let done = work();
    store.crash_end(pipeline, stage, key)?;
    Ok(Guarded::Worked(done))
}
