//! Manifests and a fleet in an outage, as one program: it is linked once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod manifest_schema;
mod manifest_total;
mod outage;
