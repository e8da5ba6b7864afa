//! Servers that throttle, fail and collapse.

pub mod headers;
pub mod throttle;

pub use throttle::{QuotaState, ServerLimit, Throttle, ThrottleAnswer};
