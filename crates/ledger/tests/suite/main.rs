//! Dead letters and the audit on their stores, as one program: it is linked once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]
#![allow(clippy::disallowed_methods, reason = "a test starts programs and reaches databases in its own way")]

mod audit;
mod letter;
