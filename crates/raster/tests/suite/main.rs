//! Rasters of others, read, repaired and shown, as one program: it is linked once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod damaged;
mod read;
mod repair;
mod repeated;
mod thumbnail;
