//! Every scenario file at the root of the repository must keep its promises, and a seed must
//! decide all of it.
//!
//! The promises of a limiter scenario are bounds: what is better passes, and what is worse by more
//! than a point fails. `BLESS=1 cargo test -p tidegate-sim --test suite scenarios::` moves the bounds up to
//! what is reached now, and never down; a bound is loosened by hand, with a reason.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use tidegate_sim::outcome::ScenarioOutcome;
use tidegate_sim::scenario::expect::{Expectation, Expectations};
use tidegate_sim::scenario::{Scenario, ScenarioOptions};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn scenarios() -> Vec<(String, Scenario)> {
    let folder = folder();
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(scenario.name, name, "a scenario is called like its file");
            (name, scenario)
        })
        .collect()
}

/// Moves the bounds to what came out, where that is better: utilisation to a tenth, refusals to a
/// hundredth of a per cent.
fn bless(name: &str, expect: &Expectations, outcome: &ScenarioOutcome) {
    let path = folder().join(format!("{name}.yaml"));
    let text = fs::read_to_string(&path).unwrap();
    let (before, _) = text.split_once("\nexpect:").unwrap();
    let mut after = format!("{before}\nexpect:\n");
    for case in &outcome.cases {
        let summary = |metric: &str| case.get(metric).unwrap();
        let bound = |metric: &str| expect.get(&case.name).and_then(|checks| checks.get(metric));
        let utilisation = (summary("utilisation").min * 10.0).floor() / 10.0;
        let utilisation = bound("utilisation")
            .and_then(Expectation::at_least)
            .map_or(utilisation, |old| old.max(utilisation));
        let refused = (summary("refused").max * 100.0).ceil() / 100.0;
        let refused = bound("refused").and_then(Expectation::at_most).map_or(refused, |old| old.min(refused));
        writeln!(
            after,
            "  {}: {{ utilisation: {{ at_least: {utilisation}, within: 1 }}, refused: {{ at_most: {refused}, within: 1 }}, early: {{ equals: 0 }} }}",
            case.name,
        )
        .unwrap();
    }
    fs::write(path, after).unwrap();
}

#[test]
fn every_scenario_keeps_its_promises() {
    if env::var_os("BLESS").is_some() {
        for (name, scenario) in scenarios().into_iter().filter(|(_, s)| s.limiter.is_some()) {
            bless(&name, &scenario.expect, &scenario.run(&ScenarioOptions::default()).unwrap());
        }
    }
    let all = scenarios();
    assert!(!all.is_empty());
    let mut broken = Vec::new();
    for (name, scenario) in all {
        assert!(!scenario.expect.is_empty(), "{name} promises nothing");
        let outcome = scenario.run(&ScenarioOptions::default()).unwrap();
        broken.extend(outcome.checks.into_iter().filter(|c| !c.held).map(|c| {
            format!("{name}: {} {}: wanted {}, got {:?} (se {})", c.case, c.metric, c.wanted, c.got, c.se)
        }));
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for (name, scenario) in scenarios() {
        let run = |seed| {
            let options =
                ScenarioOptions { seed, trials: Some(scenario.trials.min(3)), ..ScenarioOptions::default() };
            scenario.run(&options).unwrap()
        };
        let (a, b) = (run(None), run(None));
        assert_eq!(a.trace, b.trace, "{name}");
        assert_eq!(a.cases, b.cases, "{name}");
        assert!(a.events > 0, "{name}");
    }
}
