//! What core promises to every driver, as one program: it is linked once. The allocator that counts is in
//! a program of its own, `no_allocation`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod hint_cases;
mod hint_properties;
mod unreadable_hint;
