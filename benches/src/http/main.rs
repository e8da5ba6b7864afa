//! Tidegate beside its peers, over real loopback HTTP.
//!
//! The server is `tidegate chaos`, inside this process and fresh for every run; it keeps the books
//! that only the other side can keep. Every client, Tidegate too, is a process of its own, so that
//! its CPU time is its own. Clients run one after the other, never together. All is bounded: by
//! the rows of a scenario, by the number of runs and by a time limit for each.
#![allow(clippy::print_stdout)]
#![allow(clippy::disallowed_methods, reason = "a bench starts the programs that it measures")]

mod client;
#[path = "../peers.rs"]
mod peers;
mod scenario;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use client::{Client, Place};
use peers::{PeerArgs, load};
use table::Cell;

/// Measure Tidegate over loopback HTTP, alone or beside its peers
#[derive(Parser)]
struct Args {
    /// Beside these clients, or `all`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    peers: Vec<String>,
    /// Only these scenarios
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Runs of each; the median is told
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    runs: u64,
    /// Seed of the first run; the next has the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    programs: PeerArgs,
    /// Where the runs work; emptied before each
    #[arg(long, value_name = "DIR", default_value = "target/bench-http")]
    work: PathBuf,
    /// Every run in full
    #[arg(long, value_name = "FILE", default_value = "target/bench-http.json")]
    json: PathBuf,
}

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("bench-http: {why}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Result<(), String> {
    let scenarios = scenario::all().map_err(|e| e.to_string())?;
    if let Some(name) = args.only.iter().find(|name| scenarios.iter().all(|s| s.name != name.as_str())) {
        let names: Vec<&str> = scenarios.iter().map(|s| s.name).collect();
        return Err(format!("no scenario is called {name:?}; there are {}", names.join(", ")));
    }
    let clients = Client::chosen(&args.peers)?;
    let place = Place {
        tidegate: args.programs.tidegate.clone(),
        rust: args.programs.rust.clone(),
        python: args.programs.python.clone(),
        work: args.work.clone(),
        workers: args.programs.workers,
        timeout: args.programs.timeout,
    };
    let before = load();
    println!("load average before: {before}");
    let mut cells = Vec::new();
    for scenario in scenarios.iter().filter(|s| args.only.is_empty() || args.only.iter().any(|n| n == s.name))
    {
        println!("\n{}: {}, {} rows", scenario.name, scenario.about, scenario.rows);
        for client in clients.iter().filter(|client| client.takes(scenario)) {
            let mut runs = Vec::new();
            for seed in args.seed..args.seed + args.runs {
                runs.push(client::run(*client, scenario, seed, &place)?);
            }
            let cell = Cell { client: *client, scenario, load: load(), runs };
            println!("  {:<28} {}", client.words(), cell.words());
            cells.push(cell);
        }
    }
    let after = load();
    println!("\n{}", table::markdown(&cells));
    println!("load average before {before}, after {after}");
    let json = table::json(&cells, &before, &after);
    std::fs::write(&args.json, format!("{json:#}\n")).map_err(|e| format!("{}: {e}", args.json.display()))?;
    println!("every run in full: {}", args.json.display());
    Ok(())
}
