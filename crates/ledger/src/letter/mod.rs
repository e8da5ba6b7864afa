//! Dead letters: records that were given up, with everything needed to understand, repair and
//! replay them.
//!
//! A pipeline opens [`Letters`] once. Before it acknowledges records to the source, it puts the
//! letters of those that failed and waits for the ticket:
//!
//! ```
//! use tidegate_ledger::letter::{Failure, Letter, Letters, Payload, LetterStoreLocation, now_ms};
//! use tidegate_core::{Code, letter::FailureClass};
//!
//! # let dir = tempfile::tempdir()?;
//! # let file = dir.path().join("letters.db").display().to_string();
//! let letters = Letters::open(&file.parse()?)?;
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
//! While a letter is open, the same failure of the same record (pipeline, stage, key, generation)
//! is stored only once, so a run that was interrupted between the letter and the acknowledgement
//! can put it again. Before putting a batch, [`flood`] tells whether it is one incident.
//!
//! The rest is for operators: [`LetterFilter`] and [`LetterStore`] to query, [`remedy`] to repair,
//! [`replay`] to run again, `archive` to archive, [`seal`] to encrypt, [`export`] to view on a map.

pub mod archive;
mod draft;
mod envelope;
mod error;
pub mod export;
pub mod feature;
mod filter;
mod record_key;
pub mod remedy;
pub mod replay;
pub mod seal;
pub mod store;
mod text;
mod worker;
mod writer;

pub use draft::{LetterDraft, PUT_STAGE};
pub use envelope::{
    DAY_MS, Defect, Failure, Http, Letter, LetterAttempt, LetterSource, Lineage, Payload, RETENTION_DAYS,
    RETENTION_RANGE, Remedied, Spatial, Versions,
};
pub use error::LetterError;
pub use filter::LetterFilter;
pub use record_key::{KeyedRecord, RecordKeys};
pub use store::{LetterStore, LetterStoreLocation, Put, StoreUrl};
pub use worker::worker;
pub use writer::{LetterTicket, Letters, now_ms};

use std::collections::BTreeMap;
use store::Incident;
use tidegate_core::letter::incident::Threshold;

/// Whether a batch of `len` records with these failures is one incident rather than many letters.
/// If so, acknowledge nothing of the batch, open the incident with [`LetterStore::incident_open`],
/// and stop the pipeline.
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
