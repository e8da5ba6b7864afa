//! What the calls of a store share with those of others.
//!
//! A run has one set of lanes and one place where its calls are counted and written down. A store
//! does not need to know who keeps them.

use crate::call::CallOutcome;
use crate::lane::{LaneKey, Lanes};
use crate::telemetry::ServiceMetrics;
use tidegate_core::call::CallPolicy;
use tidegate_core::lane::LaneConfig;

/// The lanes, the counters and the books that several senders share.
pub trait CallContext: Send + Sync {
    /// The lanes; those that nobody has fixed get `config`.
    fn lanes(&self, config: &LaneConfig) -> Lanes;

    /// Counts calls to one service, from now on.
    fn line(&self, key: &LaneKey, policy: &CallPolicy) -> ServiceMetrics;

    /// A call has ended; `what` it was about, without secrets.
    fn ended(&self, line: &ServiceMetrics, what: &str, outcome: &CallOutcome<()>);
}
