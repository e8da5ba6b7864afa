//! Servers that throttle, fail and collapse.

pub mod headers;
pub mod leaky_bucket;
pub mod stick_table;
pub mod throttle;

pub use leaky_bucket::LeakyBucketSpec;
pub use stick_table::StickTableSpec;
pub use throttle::{QuotaState, ServerLimit, Throttle, ThrottleAnswer};
