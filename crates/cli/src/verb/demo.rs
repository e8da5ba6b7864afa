//! `tidegate demo`: shows the main use in one command, without further setup.
//!
//! It starts a faulty provider in this process and geocodes several thousand rows through it, with
//! the code of `tidegate geocode`.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::PathBuf;

use clap::Parser;
use tidegate_chaos::{Chaos, Config, FaultKind, FaultRule, When, spec};

use super::geocode;
use crate::exit::Exit;
use crate::out;
use crate::progress::thousands;

/// Geocode several thousand rows through a faulty provider, in under a minute
///
/// Start `tidegate chaos` in this process (an undocumented rate limit, an outage with a fragile
/// recovery, connection resets, truncated bodies, errors with status 200, rows without a match,
/// rejected rows), geocode generated addresses through it, and write a GeoPackage and a report.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate demo
  tidegate demo --rows 2000 --dir /tmp/demo

Exit codes: 0 every row has the result that the provider intended; 1 some do not.")]
pub(crate) struct Args {
    /// Rows to geocode
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rows: u64,

    /// Output directory; created if missing
    #[arg(long, value_name = "DIR", default_value = "tidegate-demo")]
    dir: PathBuf,

    /// Random seed of the addresses and faults
    #[arg(long, value_name = "N", default_value_t = 7)]
    seed: u64,
}

/// The command line of `geocode`, so that the demo runs what a user would run.
#[derive(Parser)]
struct GeocodeLine {
    #[command(flatten)]
    args: geocode::Args,
}

const FAULTS: &str = "an undocumented limit of 300 calls/s, an outage of 4 s with a fragile \
recovery, 1 % resets, 0.5 % truncated bodies, 0.3 % errors with status 200, 2 % rejected rows, 5 % rows without a match";

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    match play(args) {
        Ok(exit) => Ok(exit),
        Err(problem) => {
            out::say(&format!("tidegate: cannot run the demo: {problem}"));
            Ok(Exit::Failure)
        }
    }
}

fn play(args: &Args) -> Result<Exit, String> {
    let fail = |what: &str, e: io::Error| format!("{what}: {e}");
    fs::create_dir_all(&args.dir).map_err(|e| fail(&args.dir.display().to_string(), e))?;
    let path = |name: &str| args.dir.join(name);
    let state = path("state");
    if state.exists() {
        fs::remove_dir_all(&state).map_err(|e| fail("old state", e))?;
    }
    let input = path("addresses.csv");
    fs::write(&input, addresses(args.rows)).map_err(|e| fail("addresses.csv", e))?;
    let provider =
        Chaos::start(provider(args.seed).map_err(|e| e.to_string())?).map_err(|e| fail("chaos", e))?;
    out::say(&format!("geocoding {} rows through a faulty provider: {FAULTS}\n", thousands(args.rows)));
    let text = |p: &PathBuf| p.display().to_string();
    let line = GeocodeLine::try_parse_from([
        "tidegate geocode",
        &text(&input),
        "--address",
        "street,city",
        "--url",
        &provider.url(),
        "-o",
        &text(&path("places.gpkg")),
        "--report",
        &text(&path("report.html")),
        "--state",
        &text(&state),
        "--timeout",
        "5s",
    ])
    .map_err(|e| e.to_string())?;
    let exit = geocode::run(&line.args).map_err(|e| fail("geocode", e))?;
    let told = provider.stats();
    out::say(&format!(
        "\nseen by the provider\n  {} requests, {} executed, {} of them twice\n  {} throttled, {} during the outage, \
         {} collapses, {} resets, {} truncated bodies, {} errors with status 200\n  {} requests before the time given by Retry-After\n\n\
         files\n  {}\n  {}",
        thousands(told.requests),
        thousands(told.executed),
        thousands(told.duplicates_executed),
        thousands(told.throttled),
        thousands(told.refused_while_down),
        told.collapses,
        told.resets,
        told.cuts,
        told.errors_in_200,
        told.retry_after_violations,
        path("places.gpkg").display(),
        path("report.html").display(),
    ));
    // Rows that the provider rejects become dead letters by design; anything else is a failure.
    let meant = matches!(exit, Exit::Done | Exit::DeadLetters) && told.duplicates_executed == 0;
    Ok(if meant { Exit::Done } else { Exit::Failure })
}

fn provider(seed: u64) -> Result<Config, spec::SpecError> {
    Ok(Config {
        seed,
        limit: spec::throttle("bucket:300/s,burst=30")?,
        service: spec::service_ms("8..25")?,
        outages: vec![spec::outage("6s..10s,collapse=20")?],
        faults: [(FaultKind::Reset, 0.01), (FaultKind::Cut, 0.005), (FaultKind::Error200, 0.003)]
            .map(|(kind, share)| FaultRule { kind, when: When::Chance(share) })
            .to_vec(),
        bad_rows: 0.02,
        no_match: 0.05,
        ..Config::default()
    })
}

fn addresses(rows: u64) -> String {
    const STREETS: [&str; 8] = [
        "Harbour Road",
        "Mill Lane",
        "Station Street",
        "Church Walk",
        "River Quay",
        "Market Square",
        "Hill Rise",
        "Tide Gate",
    ];
    const CITIES: [&str; 6] = ["Northhaven", "Eastmere", "Southport", "Westbrook", "Midtown", "Lakeside"];
    let mut out = String::from("id,street,city\n");
    for id in 1..=rows {
        let (street, city) = (STREETS[(id % 8) as usize], CITIES[(id / 7 % 6) as usize]);
        let _ = writeln!(out, "{id},{} {street},{city}", id / 3 + 1);
    }
    out
}
