//! A dead letter, written and read back: the record and the reason why it was given up.
//!
//! ```sh
//! cargo run -p tidegate-ledger --example letter
//! ```
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use tidegate_core::{Code, letter::FailureClass};
use tidegate_ledger::letter::{
    Failure, Letter, LetterStore, LetterStoreLocation, Letters, Payload, Put, now_ms,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let place = LetterStoreLocation::File(dir.path().join("letters.db"));
    let record = br#"{"type":"Feature","properties":{"id":17},"geometry":null}"#;
    let letter = Letter {
        pipeline: "parcels".into(),
        stage: "gate".into(),
        idempotency_key: "parcels:17".into(),
        content_type: "application/geo+json".into(),
        payload: Payload { received: record.to_vec(), current: None },
        failure: Failure {
            class: FailureClass::Fatal,
            code: Code::INVALID_GEOMETRY,
            message: "the geometry is null".into(),
            failed_ms: now_ms(),
            ..Failure::default()
        },
        ..Letter::default()
    };
    // After `wait` the letter is durable, and the record may be acknowledged to its source.
    let put = Letters::open(&place)?.put(&[letter]).wait()?;
    let Some(Put::New(id)) = put.first() else { return Err("the letter was there already".into()) };
    let found = LetterStore::open(&place)?.get(*id)?.ok_or("the letter is missing")?.letter;
    println!("{id}: {} at {}: {}", found.failure.code, found.stage, found.failure.message);
    assert_eq!(found.payload.received, record);
    Ok(())
}
