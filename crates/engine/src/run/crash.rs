//! Points at which a test can kill a run, in builds with debug assertions only.
//!
//! `TIDEGATE_CRASH=put:3` ends the process without a word when the third batch has been put and not
//! committed. It is `abort` and not a panic: nothing is unwound, flushed or dropped, as with
//! `kill -9`.

/// Ends the process here if a test asked for it.
pub(super) fn point(name: &str, batch: u64) {
    #[cfg(debug_assertions)]
    if std::env::var("TIDEGATE_CRASH").is_ok_and(|at| at == format!("{name}:{batch}")) {
        std::process::abort();
    }
    #[cfg(not(debug_assertions))]
    let _ = (name, batch);
}
