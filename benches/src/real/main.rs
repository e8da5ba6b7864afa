//! Tidegate and its peers behind real limiters: nginx and HAProxy.
//!
//! The backend is `tidegate chaos` inside this process: 20 ms a call, no limit of its own. Before it
//! stands one nginx or HAProxy, a process of its own with a fresh state and a free loopback port
//! for every run. Its access log says what was refused and to whom. The least time is that of a
//! client that knows the limit, from the simulator, which computes as the two programs do. All is
//! bounded: by the rows, by the number of runs and by a time limit for each.
#![allow(clippy::print_stdout)]
#![allow(clippy::disallowed_methods, reason = "a bench starts the programs that it measures")]

mod client;
mod log;
#[path = "../peers.rs"]
mod peers;
mod proxy;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tidegate_chaos::{Chaos, Config, Service};
use tidegate_sim::drain::earliest;
use tidegate_sim::real_limiter::{REQUESTS, RealLimiter, SERVICE_SECONDS};

use client::Client;
use log::Shares;
use peers::{PeerArgs, load};
use proxy::Proxy;

/// Measure Tidegate behind real nginx and HAProxy, alone or beside its peers
#[derive(Parser)]
struct Args {
    /// Beside these clients: reqwest-retry, backon, stamina, or `all`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    peers: Vec<String>,
    /// Only the limiters whose name contains one of these, such as `limit_conn`
    #[arg(long, value_name = "TEXTS", value_delimiter = ',')]
    only: Vec<String>,
    /// Only this status of a refusal
    #[arg(long, value_name = "STATUS")]
    status: Option<u16>,
    /// Numbers of Tidegate processes on one limiter
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,2,4")]
    clients: Vec<u64>,
    #[command(flatten)]
    programs: PeerArgs,
    /// Where the runs work; emptied before each
    #[arg(long, value_name = "DIR", default_value = "target/bench-real")]
    work: PathBuf,
}

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("bench-real: {why}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Result<(), String> {
    let peers = Client::peers(&args.peers)?;
    println!("{REQUESTS} rows, backend {} ms, {} workers each", SERVICE_SECONDS * 1e3, args.programs.workers);
    println!("load average before: {}", load());
    println!("\n| limiter | status | client | least s | seconds | x | refused % | lost | share of each, % |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for limiter in RealLimiter::ALL {
        let wanted = |text: &String| limiter.name().contains(text.as_str());
        if !args.only.is_empty() && !args.only.iter().any(wanted) {
            continue;
        }
        for &status in limiter.statuses().iter().filter(|s| args.status.is_none_or(|only| only == **s)) {
            for &count in &args.clients {
                println!("{}", run(args, limiter, status, Client::Tidegate, count)?);
            }
            for &peer in &peers {
                println!("{}", run(args, limiter, status, peer, 1)?);
            }
        }
    }
    println!("\nload average after: {}", load());
    Ok(())
}

/// One run; a row of the table.
fn run(args: &Args, limiter: RealLimiter, status: u16, client: Client, count: u64) -> Result<String, String> {
    client::empty(&args.work)?;
    let service = Service::Uniform(SERVICE_SECONDS, SERVICE_SECONDS);
    let backend = Chaos::start(Config { service, ..Config::default() }).map_err(|e| e.to_string())?;
    let proxy = Proxy::start(limiter, status, backend.addr(), &args.work)?;
    let ended = client::run(args, client, count.clamp(1, REQUESTS), &proxy.url())?;
    let stats = backend.stats();
    let log = proxy.stop()?;
    let least = earliest(&limiter.world(status), 1);
    let seconds = stats.elapsed_seconds;
    let shares = Shares::of(&log, count, REQUESTS / count.max(1));
    let refused = 100.0 * shares.refused as f64 / shares.calls.max(1) as f64;
    let time = if ended.timed_out {
        "too long | –".to_owned()
    } else {
        format!("{seconds:.1} | {:.2}", seconds / least)
    };
    // A client that was ended gave no account.
    let lost =
        if ended.timed_out { "–".to_owned() } else { REQUESTS.saturating_sub(ended.answered).to_string() };
    let name = if count == 1 { client.name().to_owned() } else { format!("{} × {count}", client.name()) };
    Ok(format!(
        "| {} | {status} | {name} | {least:.1} | {time} | {refused:.1} | {lost} | {} |",
        limiter.name(),
        if count > 1 { shares.words() } else { String::new() },
    ))
}
