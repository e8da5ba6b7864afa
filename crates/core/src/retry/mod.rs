//! When to try again: [`backoff`] says how long, [`budget`] says how many in all.

pub mod backoff;
pub mod budget;

pub use backoff::{Backoff, Jitter};
pub use budget::{Budget, BudgetConfig, OnEmpty};
