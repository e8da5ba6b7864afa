//! The simulator and the decisions that it drives, as one program: it is linked once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod attempts;
mod dialect;
mod families;
mod fleet;
mod real_limiters;
mod scenarios;
