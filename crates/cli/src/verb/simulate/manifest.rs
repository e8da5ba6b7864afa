//! The policy of a manifest against typical servers, and what its `expect` says about them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tidegate_core::suggest::question;
use tidegate_pipeline::manifest::{self, ExpectSpec, Manifest, ManifestOptions, MetricBound, Policy};
use tidegate_sim::compare;
use tidegate_sim::outcome::ScenarioOutcome;
use tidegate_sim::scenario::expect::{Expectation, Expectations};
use tidegate_sim::world::policy::ClientPolicy;
use tidegate_sim::world::workload::Workload;
use tidegate_sim::world::{self, WorldCase, typical_servers};

use super::Args;
use crate::out;
use crate::progress::thousands;

/// The policy of a manifest as the clients of a simulation have it.
pub(super) fn client(policy: &Policy) -> ClientPolicy {
    let mut call = policy.call;
    call.history = false;
    // As in a real run: a lane that learns its rate does not wait for the reset of a quota.
    let classifier = policy.classifier.for_lane(&policy.lane);
    ClientPolicy { classifier, call, lane: policy.lane, retry_gate: None }
}

/// The policy that a scenario includes by this path.
pub(super) fn included(
    scenario: &Path,
    path: &str,
    options: &ManifestOptions,
) -> Result<ClientPolicy, String> {
    manifest::load_included_policy(scenario, path, options)
        .map(|policy| client(&policy))
        .map_err(|rejection| rejection.render(out::color()))
}

/// The manifest, with the expectations of a file of their own if there is one.
pub(super) fn load(name: &str, text: &str, args: &Args) -> Result<Manifest, String> {
    let options = super::options(args);
    let read = match &args.expect {
        None => manifest::check_reader(name, text.as_bytes(), &options),
        Some(_) if name == super::STDIN => {
            return Err("--expect needs a manifest that is a file, not standard input".to_owned());
        }
        Some(expect) => manifest::check_merged(&[expect, Path::new(name)], &options),
    };
    let checked = read.map_err(|rejection| rejection.render(out::color()))?;
    checked.whole().map_err(|why| format!("{name}: {why}"))
}

/// Simulates the manifest and checks its expectations.
pub(super) fn simulate(manifest: &Manifest, args: &Args) -> Result<ScenarioOutcome, String> {
    let expect = manifest.expect.clone().unwrap_or_default();
    let mut own = worlds(manifest);
    if let Some(requests) = expect.records {
        own.iter_mut().for_each(|case| resize(case, requests));
    }
    let expectations = expectations(&expect, &own)?;
    let rivals = compare::worlds(&own, &args.compare).map_err(|error| error.to_string())?;
    let records = own.iter().find_map(|case| match case.world.workload {
        Workload::Drain { requests } => Some(thousands(requests)),
        _ => None,
    });
    let mut outcome = ScenarioOutcome {
        name: manifest.pipeline.id.clone(),
        reason: format!(
            "The policy of the manifest, with {} records through one lane, against typical servers.",
            records.unwrap_or_default()
        ),
        seed: args.seed.unwrap_or(1),
        trials: args.trials.unwrap_or(1),
        ..ScenarioOutcome::default()
    };
    let (seed, trials) = (outcome.seed, outcome.trials);
    if rivals.is_empty() || !expectations.is_empty() {
        world::run(&own, seed, trials, &mut outcome);
        outcome.check(&expectations);
    }
    if !rivals.is_empty() {
        outcome.plots.clear();
        outcome.cases.clear();
        world::run(&rivals, seed, trials, &mut outcome);
    }
    outcome.choose_lines(&[]);
    for case in &mut outcome.cases {
        let place = |name: &str| typical_servers::SHOW.iter().position(|s| *s == name);
        case.metrics.retain(|m| place(m.name).is_some());
        case.metrics.sort_by_key(|m| place(m.name));
    }
    Ok(outcome)
}

/// The typical servers for the policy of the pipeline, and for that of each service that has its
/// own. Then the cases are called `pipeline/steady`, `geocoder/steady` and so on.
fn worlds(manifest: &Manifest) -> Vec<WorldCase> {
    let of = |policy: Policy| typical_servers::worlds(&client(&policy));
    let shared = of(Policy::from(manifest));
    let services = manifest.pipeline.services.iter().filter(|(_, form)| form.retry_policy.is_some());
    let own: Vec<_> =
        services.map(|(name, form)| (name.as_str(), of(Policy::of_service(manifest, form)))).collect();
    if own.is_empty() {
        return shared;
    }
    let named = |(who, cases): (&str, Vec<WorldCase>)| {
        let rename = |case: WorldCase| WorldCase { name: format!("{who}/{}", case.name), ..case };
        cases.into_iter().map(rename).collect::<Vec<_>>()
    };
    std::iter::once(("pipeline", shared)).chain(own).flat_map(named).collect()
}

/// The server of a case.
fn server(case: &str) -> &str {
    case.split_once('/').map_or(case, |(_, server)| server)
}

/// Gives a case another number of requests. An outage begins at the same share of them, so that a
/// small number does not end before it.
fn resize(case: &mut WorldCase, requests: u64) {
    let Workload::Drain { requests: before } = case.world.workload else { return };
    let share = (requests as f64 / before as f64).min(1.0);
    for outage in &mut case.world.server.outages {
        let from = outage.from * share;
        (outage.until, outage.from) = (outage.until - outage.from + from, from);
    }
    case.world.workload = Workload::Drain { requests };
}

/// What is expected of each case.
fn expectations(expect: &ExpectSpec, cases: &[WorldCase]) -> Result<Expectations, String> {
    let mut names: Vec<&str> = cases.iter().map(|case| server(&case.name)).collect();
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    if let Some(stranger) = expect.servers.keys().find(|name| !names.contains(&name.as_str())) {
        return Err(format!(
            "expect.servers: there is no server `{stranger}`{}\nhelp: use one of `{}`",
            question(stranger, &names),
            names.join("`, `")
        ));
    }
    let of = |bound: MetricBound| match bound {
        MetricBound::Equals(value) => Expectation::exactly(value),
        MetricBound::AtMost(value) => Expectation::no_more_than(value),
        MetricBound::AtLeast(value) => Expectation::no_less_than(value),
    };
    let at = |name: &str| expect.at(name).into_iter().map(|(metric, bound)| (metric, of(bound))).collect();
    let each = cases.iter().map(|case| (case.name.clone(), at(server(&case.name))));
    Ok(each.filter(|(_, metrics): &(_, BTreeMap<_, _>)| !metrics.is_empty()).collect())
}
