//! Servers that throttle, fail and collapse.

pub mod throttle;

pub use throttle::{Answer, Limit, Throttle, Truth};
