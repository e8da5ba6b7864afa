//! Every scenario file at the root of the repository must keep its promises, and a seed must
//! decide all of it.
//!
//! The promises of a limiter scenario are measurements. After a change of the limiter,
//! `BLESS=1 cargo test -p tidegate-sim --test scenarios` writes the new ones into the file; the
//! diff shows what became better and what worse.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use tidegate_sim::outcome::ScenarioOutcome;
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

/// Writes what came out as what must come out: utilisation to a tenth, refusals to a hundredth of
/// a per cent.
fn bless(name: &str, outcome: &ScenarioOutcome) {
    let path = folder().join(format!("{name}.yaml"));
    let text = fs::read_to_string(&path).unwrap();
    let (before, _) = text.split_once("\nexpect:").unwrap();
    let mut after = format!("{before}\nexpect:\n");
    for case in &outcome.cases {
        let mean = |metric: &str| case.get(metric).unwrap().mean;
        let bounds = |x: f64, per: f64| format!("[{}, {}]", (x * per).floor() / per, (x * per).ceil() / per);
        let (utilisation, refused) = (bounds(mean("utilisation"), 10.0), bounds(mean("refused"), 100.0));
        writeln!(
            after,
            "  {}: {{ utilisation: {{ between: {utilisation} }}, refused: {{ between: {refused} }}, early: {{ equals: {} }} }}",
            case.name,
            mean("early")
        )
        .unwrap();
    }
    fs::write(path, after).unwrap();
}

#[test]
fn every_scenario_keeps_its_promises() {
    if env::var_os("BLESS").is_some() {
        for (name, scenario) in scenarios().into_iter().filter(|(_, s)| s.limiter.is_some()) {
            bless(&name, &scenario.run(&ScenarioOptions::default()).unwrap());
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
