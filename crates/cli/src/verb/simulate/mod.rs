//! `tidegate simulate`: shows what a policy does before a provider is involved.
//!
//! It runs a scenario, or the policy of a manifest against a set of typical servers. No requests
//! are sent: time and randomness are simulated, and the seed determines the whole run.

mod manifest;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tidegate_pipeline::manifest::{ManifestOptions, has_flow_key};
use tidegate_sim::outcome::ScenarioOutcome;
use tidegate_sim::report::{self, table::Style};
use tidegate_sim::scenario::{Scenario, ScenarioOptions};

use crate::exit::Exit;
use crate::out::{self, OutputFormat};
use crate::verb::plan::IncludeArgs;
use crate::verb::validate::NoEnvArgs;

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

    #[command(flatten)]
    include: IncludeArgs,

    #[command(flatten)]
    env: NoEnvArgs,

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
    let own = options(args);
    if own.no_env && file != Path::new("-") {
        tidegate_pipeline::manifest::named(file, &own.allow_include)
            .map_err(|why| format!("cannot read {name}: {why}"))?;
    }
    let text = read(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    if !is_known(&text) {
        // Not a word of it is shown: it may be any file.
        let words = "no line begins with `pipeline:` or with a key of a scenario, such as `world:`";
        return Err(format!("{name}: neither a manifest nor a scenario: {words}"));
    }
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
        Some(path) => Some(manifest::included(file, path, &own)?),
    };
    let how =
        ScenarioOptions { seed: args.seed, trials: args.trials, compare: args.compare.clone(), included };
    scenario.run(&how).map_err(|error| at(&error))
}

/// What a manifest may use.
fn options(args: &Args) -> ManifestOptions {
    args.env.options(args.include.options())
}

/// The largest file, in bytes.
const BYTES_MAX: usize = tidegate_pipeline::manifest::BYTES_MAX;

fn read(file: &Path) -> io::Result<String> {
    let input: Box<dyn Read> =
        if file == Path::new("-") { Box::new(out::input()) } else { Box::new(fs::File::open(file)?) };
    let mut bytes = Vec::new();
    input.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not valid UTF-8"))
}

/// The keys by which a manifest or a scenario is known.
const KEYS: [&str; 7] = ["pipeline", "world", "contention", "limiter", "reason", "trials", "expect"];

/// Whether a text is meant to be a manifest or a scenario, right or wrong: then it may be quoted.
fn is_known(text: &str) -> bool {
    let begins = |line: &str| line.split_once(':').is_some_and(|(key, _)| KEYS.contains(&key.trim_end()));
    let is_flow = text.trim_start().starts_with('{');
    let has_keys = if is_flow { has_flow_key(text, &KEYS) } else { text.lines().any(begins) };
    has_keys && !text.contains('\0')
}
