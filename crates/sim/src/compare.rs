//! Runs the same worlds under other policies, for comparison.

use core::time::Duration;

use tidegate_core::retry::{Backoff, Jitter};

use crate::UnknownNameError;
use crate::world::{World, WorldCase};

/// The policies that can be selected by name, with their descriptions.
pub const POLICIES: [(&str, &str); 6] = [
    ("at-once", "retries without any wait"),
    ("exponential", "exponential backoff without jitter"),
    ("full", "full jitter"),
    ("equal", "equal jitter"),
    ("decorrelated", "decorrelated jitter"),
    ("no-retry", "one attempt"),
];

/// Every world under its own policy and under each of the named ones; nothing without names. Cases
/// are called `policy/case`.
///
/// # Errors
/// When a policy is unknown.
pub fn worlds(own: &[WorldCase], names: &[String]) -> Result<Vec<WorldCase>, UnknownNameError> {
    let mut all = Vec::new();
    if names.is_empty() {
        return Ok(all);
    }
    all.extend(
        own.iter().map(|case| WorldCase { name: format!("own/{}", case.name), world: case.world.clone() }),
    );
    for name in names {
        for case in own {
            all.push(WorldCase { name: format!("{name}/{}", case.name), world: under(&case.world, name)? });
        }
    }
    Ok(all)
}

fn under(world: &World, name: &str) -> Result<World, UnknownNameError> {
    let mut world = world.clone();
    let call = &mut world.policy.call;
    let (base, cap) = (call.backoff.base(), call.backoff.cap());
    let with = |jitter| Backoff::new(base, 2.0, cap, jitter);
    match name {
        "at-once" => call.backoff = Backoff::new(Duration::ZERO, 1.0, cap, Jitter::None),
        "exponential" => call.backoff = with(Jitter::None),
        "full" => call.backoff = with(Jitter::Full),
        "equal" => call.backoff = with(Jitter::Equal),
        "decorrelated" => call.backoff = with(Jitter::Decorrelated),
        "no-retry" => call.attempts_max = 1,
        _ => {
            let known = POLICIES.map(|(name, _)| name).to_vec();
            return Err(UnknownNameError { kind: "policy", name: name.to_owned(), known });
        }
    }
    Ok(world)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Scenario, ScenarioOptions};

    #[test]
    fn every_named_policy_is_known_and_jitter_spreads_a_herd() {
        let scenario = Scenario::parse(
            "{name: x, reason: y, world: {workload: {drain: {requests: 100}}, measure: [0.001, 100],
              client: {lanes: none}, server: {outages: [{from: 0, until: 0.001}]}}}",
        )
        .unwrap();
        let compare: Vec<String> = POLICIES.iter().map(|(name, _)| (*name).to_owned()).collect();
        let outcome = scenario.run(&ScenarioOptions { compare, ..ScenarioOptions::default() }).unwrap();
        let peak = |name: &str| {
            let case = outcome.cases.iter().find(|c| c.name == format!("{name}/run")).unwrap();
            case.get("peak").unwrap().mean
        };
        assert_eq!(peak("exponential"), 100.0);
        assert_eq!(peak("no-retry"), 0.0);
        assert!(peak("own") < 15.0 && peak("full") < 15.0 && peak("equal") < 20.0, "{}", peak("equal"));
        let unknown = ScenarioOptions { compare: vec!["fast".to_owned()], ..ScenarioOptions::default() };
        assert!(scenario.run(&unknown).unwrap_err().to_string().contains("known are at-once"));
    }
}
