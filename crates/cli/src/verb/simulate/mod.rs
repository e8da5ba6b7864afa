//! `tidegate simulate`: shows what a policy does before a provider is involved.
//!
//! It runs a scenario, or the policy of a manifest against a set of typical servers. No requests
//! are sent: time and randomness are simulated, and the seed determines the whole run.

mod manifest;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tidegate_sim::outcome::ScenarioOutcome;
use tidegate_sim::report::{self, table::Style};
use tidegate_sim::scenario::{Scenario, ScenarioOptions};

use crate::exit::Exit;
use crate::out::{self, OutputFormat};

/// The name of standard input in messages.
const STDIN: &str = "<stdin>";

/// Simulate scenarios, or the policies of manifests
///
/// A scenario contains expectations, and so may a manifest (`expect`). The command fails if one of
/// them does not hold, so that retry policies can be tested. The policy of a manifest is simulated
/// against servers that are steady, throttled (without and with RateLimit headers), down for a
/// minute, and flaky. No requests are sent.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate simulate scenarios/herd.yaml
  tidegate simulate scenarios/collapse.yaml --html collapse.html
  tidegate simulate scenarios/herd.yaml --compare exponential,equal,decorrelated
  tidegate simulate parcels.yaml
  tidegate simulate parcels.yaml --expect policies/expect.yaml
  tidegate simulate pipelines/*.yaml

Policies to compare with: at-once, exponential, full, equal, decorrelated, no-retry;
in a limiter scenario: aws, aimd, aimd-slow, vector, vector-shipped, fixed, fixed-hinted.

Exit codes: 0 every expectation holds; 1 at least one does not; 2 a file is invalid.")]
pub(crate) struct Args {
    /// Scenarios and manifests; `-` for standard input
    #[arg(value_name = "SCENARIO|MANIFEST", required = true)]
    files: Vec<PathBuf>,

    /// File with an `expect` section, whose keys take precedence over those of the manifest
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,

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
    if args.html.is_some() && args.files.len() > 1 {
        out::say("--html shows one scenario or manifest; pass one file");
        return Ok(Exit::Usage);
    }
    let (mut held, mut valid) = (true, true);
    for (at, file) in args.files.iter().enumerate() {
        let outcome = match simulate(file, args) {
            Ok(outcome) => outcome,
            Err(text) => {
                out::say(&text);
                valid = false;
                continue;
            }
        };
        if let Some(page) = &args.html
            && let Err(error) = fs::write(page, report::html(&outcome))
        {
            out::say(&format!("cannot write {}: {error}", page.display()));
            return Ok(Exit::Failure);
        }
        let text = match args.format {
            OutputFormat::Table => {
                let gap = if at == 0 { "" } else { "\n" };
                format!("{gap}{}", report::table(&outcome, Style { colour: out::data_color() }))
            }
            OutputFormat::Json => report::json(&outcome).map_err(io::Error::other)? + "\n",
        };
        out::data(&text)?;
        held &= outcome.held();
    }
    Ok(match (valid, held) {
        (false, _) => Exit::Usage,
        (true, false) => Exit::Failure,
        (true, true) => Exit::Done,
    })
}

/// The outcome, or the reason why there is none.
fn simulate(file: &Path, args: &Args) -> Result<ScenarioOutcome, String> {
    let name = if file == Path::new("-") { STDIN.into() } else { file.to_string_lossy() };
    let text = read(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    // Only a manifest has a pipeline.
    if text.lines().any(|line| line.starts_with("pipeline:")) {
        return manifest::simulate(&manifest::load(&name, &text, args)?, args)
            .map_err(|error| format!("{name}: {error}"));
    }
    let at = |error: &dyn std::fmt::Display| format!("{name}: {error}");
    let scenario = Scenario::parse(&text).map_err(|error| at(&error))?;
    if args.expect.is_some() {
        return Err(at(&"--expect is for manifests; a scenario has its own `expect`"));
    }
    let included = match &scenario.include {
        None => None,
        Some(path) => Some(manifest::included(&file.parent().unwrap_or(Path::new("")).join(path))?),
    };
    let options =
        ScenarioOptions { seed: args.seed, trials: args.trials, compare: args.compare.clone(), included };
    scenario.run(&options).map_err(|error| at(&error))
}

fn read(file: &Path) -> io::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        out::input().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(file)
}
