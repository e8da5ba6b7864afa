//! What a fleet that shares one lane reaches, over several seeds.
//!
//! The bounds are those of the project: with 8 members, 99 % of the limit and 0.8 % refused for buckets and short
//! windows with the owner up to 25 ms away, 97 % and 2.5 % for minute windows, no second above 1.1 times the rate
//! after an owner's death, each member within 5 % of its share. The shipped scenarios bound what is reached
//! beyond that.

use tidegate_sim::scenario::{Scenario, ScenarioOptions};

/// What is asked of a case: at least this utilisation and at most these refusals, in per cent.
struct FleetBound {
    utilisation: f64,
    refused: f64,
}

const SHORT: FleetBound = FleetBound { utilisation: 99.0, refused: 0.8 };
const MINUTE: FleetBound = FleetBound { utilisation: 97.0, refused: 2.5 };

fn scenario(members: u32, seconds: u32, limit: &str, fleet: &str) -> Scenario {
    let text = format!(
        "{{name: fleet, reason: a test, seed: 11, trials: 3, world: {{clients: {members}, seconds: {seconds},
          workload: {{drain: {{requests: 4000000000}}}},
          client: {{rate_limit: {{}}, circuit_breaker: {{}}, retry_budget: {{}},
                    retry_policy: {{throttle_wait: lane}}}},
          hop: {{normal: {{mean: 0.005, deviation: 0.0005}}}},
          server: {{service: {{base_seconds: 0.02, spread: 0.2}}, limit: {{{limit}}}}},
          fleet: {{{fleet}}}}}}}"
    );
    Scenario::parse(&text).unwrap()
}

/// Runs a fleet and checks every seed. Returns the highest of `metric`, if there is such a metric.
fn check(scenario: &Scenario, bound: &FleetBound, metric: &str) -> Option<f64> {
    let outcome = scenario.run(&ScenarioOptions::default()).unwrap();
    let case = &outcome.cases[0];
    let get = |name: &str| case.get(name).unwrap();
    let found = format!("{:?}", case.metrics);
    assert!(get("utilisation").min >= bound.utilisation, "{found}");
    assert!(get("refused").max <= bound.refused, "{found}");
    assert!(get("share_error").max <= 5.0, "{found}");
    assert_eq!(get("early").max, 0.0, "{found}");
    case.get(metric).map(|value| value.max)
}

const SERVERS: [(&str, FleetBound); 5] = [
    ("bucket: {rate: 10, burst: 10}", SHORT),
    ("bucket: {rate: 50, burst: 25}", SHORT),
    ("bucket: {rate: 500, burst: 50}", SHORT),
    ("fixed: {limit: 30, window: 1}", SHORT),
    ("fixed: {limit: 600, window: 60}", MINUTE),
];

#[test]
fn eight_members_use_the_limit_as_one() {
    for (limit, bound) in &SERVERS {
        for hop in [0.0002, 0.025] {
            let fleet = format!("owner_hop: {{normal: {{mean: {hop}, deviation: {}}}}}", hop / 10.0);
            check(&scenario(8, 600, limit, &fleet), bound, "");
        }
    }
}

#[test]
fn no_second_after_the_death_of_an_owner_has_more_than_1_1_times_the_rate() {
    for (limit, bound) in &SERVERS {
        let fleet = "owner_hop: {normal: {mean: 0.025, deviation: 0.0025}},
                     faults: [{owner_killed: {at: 300, successor_after: 3}}]";
        // Three of six hundred seconds have no owner.
        let bound = FleetBound { utilisation: bound.utilisation - 0.5, ..*bound };
        let peak = check(&scenario(8, 600, limit, fleet), &bound, "peak_after").unwrap();
        assert!(peak <= 1.1, "{limit}: {peak}");
    }
}

#[test]
fn two_members_or_a_thousand_share_alike() {
    let hop = "owner_hop: {normal: {mean: 0.025, deviation: 0.0025}}";
    check(&scenario(2, 600, "bucket: {rate: 50, burst: 25}", hop), &SHORT, "");
    check(&scenario(100, 600, "bucket: {rate: 500, burst: 50}", hop), &SHORT, "");
    check(&scenario(1000, 300, "bucket: {rate: 500, burst: 50}", hop), &SHORT, "");
}

#[test]
fn members_that_hang_or_are_cut_off_do_not_hold_up_the_others() {
    let hop = "owner_hop: {normal: {mean: 0.025, deviation: 0.0025}}";
    for fault in
        ["{hang: {from: 200, until: 260, members: 6}}", "{partition: {from: 200, until: 260, members: 6}}"]
    {
        let fleet = format!("{hop}, faults: [{fault}]");
        check(&scenario(8, 600, "bucket: {rate: 50, burst: 25}", &fleet), &SHORT, "");
    }
    // All places of a limit of calls at once may be with those that hang.
    let fleet = format!("{hop}, faults: [{{hang: {{from: 200, until: 260, members: 6}}}}]");
    let steady = scenario(8, 300, "concurrent: {limit: 10}", hop).run(&ScenarioOptions::default()).unwrap();
    let hung = scenario(8, 300, "concurrent: {limit: 10}", &fleet).run(&ScenarioOptions::default()).unwrap();
    let used =
        |outcome: &tidegate_sim::outcome::ScenarioOutcome| outcome.cases[0].get("utilisation").unwrap().min;
    assert!(used(&hung) >= used(&steady) - 3.0, "{} {}", used(&hung), used(&steady));
}

#[test]
fn who_wants_less_than_its_share_gets_all_of_it_and_who_has_more_workers_gets_no_more() {
    let fleet = "owner_hop: {normal: {mean: 0.025, deviation: 0.0025}},
                 demand: [{members: 3, rate: 2}, {members: 2, in_flight_max: 2}]";
    check(&scenario(8, 600, "bucket: {rate: 50, burst: 25}", fleet), &SHORT, "");
}

#[test]
fn a_fleet_that_cannot_be_is_refused() {
    for (bad, word) in [
        ("faults: [{hang: {from: 2, until: 1, members: 1}}]", "times that rise"),
        ("faults: [{partition: {from: 1, until: 2, members: 8}}]", "not all"),
        ("demand: [{members: 9, rate: 1}]", "no more members"),
        ("report_every: -1", "report_every"),
    ] {
        let text = format!(
            "{{name: x, reason: y, world: {{clients: 8, seconds: 9, workload: {{drain: {{requests: 1}}}}, fleet: {{{bad}}}}}}}"
        );
        let why = Scenario::parse(&text).unwrap_err().to_string();
        assert!(why.contains(word), "{bad}: {why}");
    }
    let endless = "{name: x, reason: y, world: {workload: {drain: {requests: 1}}, fleet: {}}}";
    assert!(Scenario::parse(endless).unwrap_err().to_string().contains("needs `seconds`"));
}
