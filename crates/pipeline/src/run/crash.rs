//! Points at which a test can kill or pause a run, in builds with debug assertions only.
//!
//! `TIDEGATE_CRASH=put:3` aborts the process after the third batch was put and before it is
//! committed. It is `abort`, not a panic: nothing is unwound, flushed or dropped, as with `kill
//! -9`. `TIDEGATE_HOLD=put:3=/tmp/gate` creates the file `/tmp/gate.here` and waits until the file
//! `/tmp/gate` exists, so that a test controls the order of events.

/// The same for one record: `TIDEGATE_CRASH=record:17` after a step has worked on record 17.
/// `record:17,put:3` are two points.
pub(super) fn record(batch: &tidegate_geo::Batch) {
    #[cfg(debug_assertions)]
    if ["TIDEGATE_CRASH", "TIDEGATE_HOLD"]
        .iter()
        .any(|name| std::env::var(name).is_ok_and(|at| at.contains("record:")))
    {
        (0..batch.len()).for_each(|row| point("record", batch.record(row)));
    }
    #[cfg(not(debug_assertions))]
    let _ = batch;
}

/// The same for one task of a queue: `TIDEGATE_CRASH=task:p7`.
pub(crate) fn task(key: &str) {
    at("task", key);
}

/// Aborts or pauses the process here if a test asked for it.
pub(super) fn point(name: &str, batch: u64) {
    at(name, &batch.to_string());
}

fn at(name: &str, which: &str) {
    #[cfg(debug_assertions)]
    {
        let here = format!("{name}:{which}");
        if std::env::var("TIDEGATE_CRASH").is_ok_and(|at| at.split(',').any(|at| at == here)) {
            std::process::abort();
        }
        if let Ok(hold) = std::env::var("TIDEGATE_HOLD")
            && let Some((_, gate)) = hold.split_once('=').filter(|(at, _)| *at == here)
        {
            // Without the file the test fails by its own timeout.
            let _ = std::fs::write(format!("{gate}.here"), b"");
            while !std::path::Path::new(gate).exists() {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
    }
    #[cfg(not(debug_assertions))]
    let _ = (name, which);
}
