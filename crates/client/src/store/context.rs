//! What the calls of a store share with other calls of a run.
//!
//! A run has one set of lanes, one set of counters and one audit log. A store uses them through
//! this trait, without depending on the run.

use crate::call::CallOutcome;
use crate::lane::{LaneKey, Lanes};
use crate::telemetry::ServiceMetrics;
use tidegate_core::call::CallPolicy;
use tidegate_core::lane::LaneConfig;

/// The lanes, the counters and the log that several callers share.
pub trait CallContext: Send + Sync {
    /// The lanes; those without a configuration of their own get `config`.
    fn lanes(&self, config: &LaneConfig) -> Lanes;

    /// The counters of calls to one service.
    fn line(&self, key: &LaneKey, policy: &CallPolicy) -> ServiceMetrics;

    /// Records that a call has ended; `what` describes it without secrets.
    fn ended(&self, service: &ServiceMetrics, what: &str, outcome: &CallOutcome<()>);
}
