//! A record that aborts the process is given up after N deaths instead of looping.

use crate::bench::{Bench, letter};
use std::process::Command;
use tidegate_core::Code;
use tidegate_core::letter::FailureClass;
use tidegate_ledger::letter::{
    Guarded, GuardedRecord, LetterFilter, LetterStore, LetterStoreLocation, Letters, guarded,
};

const CHILD: &str = "TIDEGATE_TEST_POISON";

/// One run of a pipeline over three records, of which the second aborts the process.
fn pipeline(file: &str) {
    let place = LetterStoreLocation::File(file.into());
    let (mut store, letters) = (LetterStore::open(&place).unwrap(), Letters::open(&place).unwrap());
    for key in ["one", "two", "three"] {
        let work = || {
            if key == "two" {
                std::process::abort()
            }
        };
        match guarded(&mut store, GuardedRecord { pipeline: "p", stage: "s", key }, 3, work).unwrap() {
            Guarded::Worked(()) => {}
            Guarded::Poison(deaths) => {
                let mut dead = letter(0);
                (dead.failure.class, dead.failure.code) = (FailureClass::Poison, Code::PROCESS_CRASHED);
                dead.failure.message = format!("the process died on it {deaths} times");
                letters.put(&[dead]).wait().unwrap();
                store.crash_end("p", "s", key).unwrap();
            }
        }
    }
}

#[test]
fn a_record_that_aborts_is_a_letter_after_three_deaths() {
    // The test is its own child: the process that dies.
    if let Ok(file) = std::env::var(CHILD) {
        return pipeline(&file);
    }
    let bench = Bench::sqlite();
    let file = bench.dir().join("letters.db").display().to_string();
    let run = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "poison::a_record_that_aborts_is_a_letter_after_three_deaths"])
            .env(CHILD, &file)
            .output()
            .unwrap()
            .status
            .success()
    };
    let lived: Vec<bool> = (0..4).map(|_| run()).collect();
    assert_eq!(lived, [false, false, false, true]);
    let mut store = LetterStore::open(&LetterStoreLocation::File(file.into())).unwrap();
    let poison = LetterFilter { classes: vec![FailureClass::Poison], ..LetterFilter::default() };
    assert_eq!((store.count(&poison), store.crash_count("p")), (Ok(1), Ok(0)));
    assert_eq!(
        store.plan_dry(&LetterFilter::default(), 3, i64::MAX).unwrap(),
        [],
        "and is not replayed unasked"
    );
}
