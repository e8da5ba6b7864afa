//! Servers that throttle, fail and collapse.

pub mod tell;
pub mod throttle;

pub use throttle::{Answer, Limit, Throttle, Truth};
