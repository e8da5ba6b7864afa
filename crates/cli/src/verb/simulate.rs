//! `tidegate simulate`: shows what a policy does before a provider is involved.
//!
//! It runs a scenario, or the policy of a manifest against a set of typical servers. No requests
//! are sent: time and randomness are simulated, and the seed determines the whole run.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tidegate_core::classify::Classifier;
use tidegate_pipeline::manifest::{self, Policy};
use tidegate_sim::compare;
use tidegate_sim::outcome::ScenarioOutcome;
use tidegate_sim::report::{self, table::Style};
use tidegate_sim::scenario::{Scenario, ScenarioOptions};
use tidegate_sim::world::{self, policy, typical_servers};

use crate::exit::Exit;
use crate::out::{self, OutputFormat};

/// Simulate a scenario, or the policy of a manifest
///
/// A scenario contains expectations, and the command fails if one of them does not hold, so that
/// retry policies can be tested. The policy of a manifest is simulated against servers that are
/// steady, throttled (without and with RateLimit headers), down for a minute, and flaky. No
/// requests are sent.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate simulate scenarios/herd.yaml
  tidegate simulate scenarios/collapse.yaml --html collapse.html
  tidegate simulate scenarios/herd.yaml --compare exponential,equal,decorrelated
  tidegate simulate parcels.yaml

Policies to compare with: at-once, exponential, full, equal, decorrelated, no-retry;
in a limiter scenario: aws, aimd, aimd-slow, vector, vector-shipped, fixed, fixed-hinted.

Exit codes: 0 every expectation holds; 1 at least one does not; 2 the file is invalid.")]
pub(crate) struct Args {
    /// Scenario or manifest; `-` for standard input
    #[arg(value_name = "SCENARIO|MANIFEST")]
    file: PathBuf,

    /// Random seed [default: from the scenario]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Number of trials [default: from the scenario]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    trials: Option<u32>,

    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,

    /// Write an HTML page with charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Compare with these policies
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    compare: Vec<String>,
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let outcome = match simulate(args) {
        Ok(outcome) => outcome,
        Err(text) => {
            out::say(&text);
            return Ok(Exit::Usage);
        }
    };
    if let Some(page) = &args.html
        && let Err(error) = fs::write(page, report::html(&outcome))
    {
        out::say(&format!("cannot write {}: {error}", page.display()));
        return Ok(Exit::Failure);
    }
    let text = match args.format {
        OutputFormat::Table => report::table(&outcome, Style { colour: out::data_color() }),
        OutputFormat::Json => report::json(&outcome).map_err(io::Error::other)? + "\n",
    };
    out::data(&text)?;
    Ok(if outcome.held() { Exit::Done } else { Exit::Failure })
}

/// The outcome, or the reason why there is none.
fn simulate(args: &Args) -> Result<ScenarioOutcome, String> {
    let name = if args.file == Path::new("-") { "<stdin>".into() } else { args.file.to_string_lossy() };
    let text = read(&args.file).map_err(|error| format!("cannot read {name}: {error}"))?;
    // Only a manifest has a pipeline.
    if text.lines().any(|line| line.starts_with("pipeline:")) {
        let manifest = manifest::from_bytes(&name, text.as_bytes())
            .map_err(|rejection| rejection.render(out::color()))?;
        return against_the_usual(&manifest.pipeline.id, &Policy::from(&manifest), args);
    }
    let options = ScenarioOptions { seed: args.seed, trials: args.trials, compare: args.compare.clone() };
    Scenario::parse(&text).and_then(|s| s.run(&options)).map_err(|error| format!("{name}: {error}"))
}

fn read(file: &Path) -> io::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(file)
}

fn against_the_usual(id: &str, policy: &Policy, args: &Args) -> Result<ScenarioOutcome, String> {
    let mut call = policy.call;
    call.history = false;
    // As in a real run: a lane that learns its rate does not wait for the reset of a quota.
    let classifier = Classifier { reset_is_wait: !policy.lane.limit.learn, ..policy.classifier };
    let policy = policy::ClientPolicy { classifier, call, lane: policy.lane, retry_gate: None };
    let own = typical_servers::worlds(&policy);
    let rivals = compare::worlds(&own, &args.compare).map_err(|e| e.to_string())?;
    let mut outcome = ScenarioOutcome {
        name: id.to_owned(),
        reason: "The policy of the manifest, with 2,000 records through one lane, against typical servers."
            .to_owned(),
        seed: args.seed.unwrap_or(1),
        trials: args.trials.unwrap_or(1),
        ..ScenarioOutcome::default()
    };
    let worlds = if rivals.is_empty() { &own } else { &rivals };
    world::run(worlds, outcome.seed, outcome.trials, &mut outcome);
    outcome.choose_lines(&[]);
    for case in &mut outcome.cases {
        let place = |name: &str| typical_servers::SHOW.iter().position(|s| *s == name);
        case.metrics.retain(|m| place(m.name).is_some());
        case.metrics.sort_by_key(|m| place(m.name));
    }
    Ok(outcome)
}
