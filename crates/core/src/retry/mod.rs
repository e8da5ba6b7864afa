//! Retries: the delay between attempts ([`backoff`]), the number of retries of a lane ([`budget`]),
//! and the retries of a commit to a sink, which has no lane ([`commit`]).

pub mod backoff;
pub mod budget;
pub mod commit;

pub use backoff::{Backoff, Jitter};
pub use budget::{Budget, BudgetConfig, OnEmpty};
pub use commit::{CommitNext, CommitRetry};
