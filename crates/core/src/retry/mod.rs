//! When to try again: [`backoff`] says how long, [`budget`] says how many in all, [`commit`] does
//! both for sinks, which have no lane.

pub mod backoff;
pub mod budget;
pub mod commit;

pub use backoff::{Backoff, Jitter};
pub use budget::{Budget, BudgetConfig, OnEmpty};
pub use commit::{CommitNext, CommitRetry};
