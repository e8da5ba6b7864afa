//! Typical servers, for simulating the policy of a manifest without a scenario.

use super::WorldCase;
use super::event_loop::World;
use super::policy::{ClientPolicy, LaneSharing};
use super::server::{ServerOutage, ServerSpec, ServiceTime};
use super::workload::Workload;
use crate::dialect::Dialect;
use crate::distribution::RandomDuration;
use crate::world::limit::ServerLimitSpec;

/// The number of requests in each world.
const REQUESTS: u64 = 2_000;

/// The policy draining 2,000 requests through one lane against each of the typical servers: steady,
/// throttled (10 calls per second, burst 10) without and with RateLimit headers, down for a minute,
/// flaky (20 % of calls fail).
#[must_use]
pub fn worlds(policy: &ClientPolicy) -> Vec<WorldCase> {
    let service = ServiceTime { base_seconds: 0.065, spread: 0.2, ..ServiceTime::default() };
    let steady = ServerSpec { service, ..ServerSpec::default() };
    let throttled = ServerSpec {
        limit: Some(ServerLimitSpec::TokenBucket { rate: 10.0, burst: 10.0 }),
        ..steady.clone()
    };
    let tells = ServerSpec { headers: Dialect::Ietf, ..throttled.clone() };
    let outage = ServerOutage { from: 1.0, until: 61.0, recovery: None };
    let down = ServerSpec { outages: vec![outage], ..steady.clone() };
    let flaky = ServerSpec { fault_rate: 0.2, ..steady.clone() };
    let world = |(name, server): (&str, ServerSpec)| {
        let world = World {
            workload: Workload::Drain { requests: REQUESTS },
            clients: 1,
            lanes: LaneSharing::Shared,
            policy: *policy,
            hop: RandomDuration::Constant(0.02),
            server,
            end: u64::MAX,
            tick: 10_000_000,
            measure: [0, u64::MAX],
            fleet: None,
        };
        WorldCase { name: name.to_owned(), world }
    };
    let servers = [
        ("steady", steady),
        ("throttled", throttled),
        ("throttled, tells", tells),
        ("down for a minute", down),
        ("flaky", flaky),
    ];
    servers.into_iter().map(world).collect()
}

/// The metrics to show.
pub const SHOW: [&str; 8] =
    ["success", "done", "dead", "parked", "calls", "throttled_share", "time", "wait_max"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::policy::PolicySpec;

    #[test]
    fn the_shipped_policy_against_the_usual_servers() {
        let spec: PolicySpec =
            serde_saphyr::from_str("{circuit_breaker: {}, retry_budget: {}, rate_limit: {}}").unwrap();
        for WorldCase { name, world } in worlds(&spec.policy()) {
            let counts = world.run(1, false).counts;
            assert_eq!(counts.offered, REQUESTS, "{name}");
            assert_eq!(counts.done + counts.dead + counts.parked, REQUESTS, "{name}: {counts:?}");
            assert_eq!(counts.early, 0, "{name}");
            let wanted = if name == "steady" { REQUESTS } else { REQUESTS / 2 };
            assert!(counts.done >= wanted, "{name}: {counts:?}");
        }
    }
}
