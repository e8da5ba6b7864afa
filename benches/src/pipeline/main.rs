//! Files and pipelines of a million polygons, beside GDAL: time, processor time, memory.
//!
//! All read the same newline-delimited GeoJSON, made here from a seed. `convert` is measured
//! against a plain conversion; `run` renames, coerces, validates and reprojects, and keeps ledger
//! and audit, against GDAL that only reprojects. Everybody is a process of its own and they take
//! turns, round by round, so that a machine that slows down slows all of them. A peer that is not
//! installed is left out and named.
#![allow(clippy::print_stdout)]
#![allow(clippy::disallowed_methods, reason = "a bench starts the programs that it measures")]

mod data;
mod job;
mod measure;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use job::{Job, Place, Who};
use measure::Sample;
use table::Row;

/// Measure convert and run on files of polygons, beside GDAL
#[derive(Parser)]
struct Args {
    /// Features in the source
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    features: u64,
    /// Rounds; the median is told
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    runs: u64,
    /// Rounds in which the peers take part, of which some take a minute each
    #[arg(long, value_name = "N", default_value_t = 1)]
    peer_runs: u64,
    /// Only these jobs
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these: tidegate, ogr2ogr, gdal, geopandas
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "tidegate,ogr2ogr,gdal,geopandas"
    )]
    who: Vec<String>,
    /// The built release binary
    #[arg(long, value_name = "FILE", default_value = "target/release/tidegate")]
    tidegate: PathBuf,
    /// A Python that has pyogrio and geopandas
    #[arg(long, value_name = "FILE", default_value = "target/venv/bin/python")]
    python: PathBuf,
    /// Where the runs work
    #[arg(long, value_name = "DIR", default_value = "target/bench-pipeline")]
    work: PathBuf,
}

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("bench-pipeline: {why}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Result<(), String> {
    let jobs: Vec<&Job> = job::ALL.iter().filter(|job| chosen(&args.only, job.name)).collect();
    if let Some(name) = args.only.iter().find(|name| job::ALL.iter().all(|job| job.name != name.as_str())) {
        let names: Vec<&str> = job::ALL.iter().map(|job| job.name).collect();
        return Err(format!("no job is called {name:?}; there are {}", names.join(", ")));
    }
    std::fs::create_dir_all(&args.work).map_err(|e| format!("{}: {e}", args.work.display()))?;
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()));
    let work = absolute(&args.work)?;
    let place = Place {
        tidegate: absolute(&args.tidegate)?,
        python: absolute(&args.python)?,
        source: data::make(&work, args.features)?,
        database: std::env::var("TIDEGATE_TEST_DATABASE").ok(),
        work,
        features: args.features,
    };
    let (bytes, runs, peers) = (data::len(&place.source), args.runs, args.peer_runs.min(args.runs));
    println!("{} features, {bytes} bytes; {runs} rounds, {peers} with peers", args.features);
    let mut who: Vec<Who> = Vec::new();
    for one in Who::ALL.into_iter().filter(|one| chosen(&args.who, one.name())) {
        match place.version(one) {
            Ok(version) => {
                println!("  {:<10} {version}", one.name());
                who.push(one);
            }
            Err(why) => println!("  {:<10} left out: {why}", one.name()),
        }
    }
    let mut rows: Vec<Row> = Vec::new();
    for job in jobs {
        if job.needs_database() && place.database.is_none() {
            println!("{} left out: no TIDEGATE_TEST_DATABASE", job.name);
            continue;
        }
        let peers: Vec<Who> = who.iter().copied().filter(|who| job.can(*who)).collect();
        let mut samples: Vec<(Who, Vec<Sample>)> = peers.iter().map(|who| (*who, Vec::new())).collect();
        for round in 0..args.runs {
            for (who, taken) in &mut samples {
                if *who != Who::Tidegate && round >= args.peer_runs {
                    continue;
                }
                let sample = place.run(job, *who)?;
                println!("  {:<16} {:<10} {} {}", job.name, who.name(), round + 1, sample.words());
                taken.push(sample);
            }
        }
        rows.extend(samples.into_iter().map(|(who, samples)| Row { job, who, samples }));
    }
    println!("\n{}", table::markdown(&rows));
    for miss in table::missed(&rows) {
        println!("MISSED {miss}");
    }
    println!("load average {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    Ok(())
}

fn chosen(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|one| one == name)
}
