//! What the services of a pipeline would be asked, and how long that takes: the simulator with the
//! manifest's policy and each lane's limits, against a server that keeps its terms and against
//! some that do not.
//!
//! At most two thousand questions are simulated; beyond that time and calls grow in proportion,
//! which is what a drain through one lane does once it has found its pace.

use serde::Serialize;
use tidegate_core::classify::Classifier;
use tidegate_pipeline::manifest::Policy;
use tidegate_pipeline::run::ServiceLoad;
use tidegate_sim::distribution::RandomDuration;
use tidegate_sim::world::World;
use tidegate_sim::world::limit::ServerLimitSpec;
use tidegate_sim::world::policy::{self, LaneSharing};
use tidegate_sim::world::server::{ServerOutage, ServerSpec, ServiceTime};
use tidegate_sim::world::workload::Workload;

const QUESTIONS_MAX: u64 = 2_000;
const SEED: u64 = 1;

/// What one service would do to a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Prediction {
    /// The service.
    pub(crate) service: String,
    /// How the service behaves.
    pub(crate) case: &'static str,
    /// Until the last record has its end.
    pub(crate) seconds: f64,
    /// Calls, repeats included.
    pub(crate) calls: u64,
    /// The longest that one record takes.
    pub(crate) wait_max_seconds: f64,
    /// Records answered.
    pub(crate) answered: u64,
    /// Records given up.
    pub(crate) dead: u64,
    /// Records put off until later.
    pub(crate) parked: u64,
    /// What the calls cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<f64>,
}

/// Predicts what a service does to its questions.
pub(crate) fn predict(
    asked: &ServiceLoad,
    questions: u64,
    policy: &Policy,
    price: Option<f64>,
) -> Vec<Prediction> {
    let mut call = policy.call;
    call.history = false;
    // As the engine does: a lane that learns knows better than the reset of a quota.
    let classifier = Classifier { reset_is_wait: !asked.lane.limit.learn, ..policy.classifier };
    let policy = policy::ClientPolicy { classifier, call, lane: asked.lane, retry_gate: None };
    let service = ServiceTime { base_seconds: 0.065, spread: 0.2, ..ServiceTime::default() };
    let limit =
        asked.allowed.map(|(rate, burst)| ServerLimitSpec::TokenBucket { rate, burst: f64::from(burst) });
    let keeps = ServerSpec { service, limit, ..ServerSpec::default() };
    let down = ServerOutage { from: 1.0, until: 61.0, recovery: None };
    let cases = [
        ("answers", keeps.clone()),
        ("fails 1 in 5", ServerSpec { fault_rate: 0.2, ..keeps.clone() }),
        ("down for a minute", ServerSpec { outages: vec![down], ..keeps.clone() }),
        ("fails always", ServerSpec { fault_rate: 1.0, ..keeps }),
    ];
    let simulated = questions.min(QUESTIONS_MAX);
    let scale = |n: u64| (n as f64 * (questions as f64 / simulated.max(1) as f64)).round() as u64;
    cases
        .into_iter()
        .map(|(case, server)| {
            let world = World {
                workload: Workload::Drain { requests: simulated },
                clients: 1,
                lanes: LaneSharing::Shared,
                policy,
                hop: RandomDuration::Constant(0.02),
                server,
                end: u64::MAX,
                tick: 10_000_000,
                measure: [0, u64::MAX],
            };
            let counts = world.run(SEED, false).counts;
            let calls = scale(counts.calls);
            Prediction {
                service: asked.service.clone(),
                case,
                seconds: counts.last as f64 / 1e9 * (questions as f64 / simulated.max(1) as f64),
                calls,
                wait_max_seconds: counts.longest as f64 / 1e9,
                answered: scale(counts.done),
                dead: scale(counts.dead),
                parked: scale(counts.parked),
                cost: price.map(|price| calls as f64 * price / 1000.0),
            }
        })
        .collect()
}
