//! The client against servers of its own, its profiles and what it compiles, as one program: it is linked
//! once. Waits that are skipped for the whole process are in a program of their own, `skipped_waits`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]
#![allow(clippy::disallowed_methods, reason = "a test starts programs and reaches databases in its own way")]

mod dependencies;
mod http;
mod profiles;
mod store;
