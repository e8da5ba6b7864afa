//! Predicts the calls of a run and their duration: simulates the manifest's policy and the limits
//! of each lane against a healthy server and several faulty ones.
//!
//! At most 2000 calls are simulated. Beyond that, time and calls are extrapolated linearly, as the
//! rate of a lane is constant once it has settled.

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

/// The predicted calls to one service in one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Prediction {
    /// The name of the service.
    pub(crate) service: String,
    /// How the service behaves in this case.
    pub(crate) case: &'static str,
    /// The duration until the last record is done, in seconds.
    pub(crate) seconds: f64,
    /// The number of calls, retries included.
    pub(crate) calls: u64,
    /// The longest time that one record takes, in seconds.
    pub(crate) wait_max_seconds: f64,
    /// The number of records answered.
    pub(crate) answered: u64,
    /// The number of records given up.
    pub(crate) dead: u64,
    /// The number of records parked until later.
    pub(crate) parked: u64,
    /// The cost of the calls, in the currency of the price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<f64>,
}

/// Simulates the calls to one service.
pub(crate) fn predict(
    asked: &ServiceLoad,
    questions: u64,
    policy: &Policy,
    price: Option<f64>,
) -> Vec<Prediction> {
    let mut call = policy.call;
    call.history = false;
    // As in a real run: a lane that learns its rate does not wait for the reset of a quota.
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
