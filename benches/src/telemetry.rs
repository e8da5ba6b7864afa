//! What watching costs: `geocode` with metrics served and spans pushed, against `geocode` alone.
//!
//! Both runs of a pair geocode the same rows from a server of their own, one after the other, and
//! who goes first alternates. What counts is the processor time of the process, user and system: on
//! a busy machine the clock says how busy it is. The median of the pairs' differences is printed
//! with its target. Run it with `cargo run --release -p tidegate-benches --bin bench-telemetry`;
//! `-- --rows 20000 --pairs 11 --tidegate PATH` chooses otherwise.
#![allow(clippy::disallowed_methods, reason = "a bench starts the programs that it measures")]

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use tidegate_chaos::{Chaos, Config};

/// The share that watching may cost.
const TARGET: f64 = 0.02;

#[derive(Parser)]
struct Args {
    /// Rows of each run
    #[arg(long, default_value_t = 20_000)]
    rows: u64,
    /// Pairs of runs
    #[arg(long, default_value_t = 11)]
    pairs: usize,
    /// The command
    #[arg(long, default_value = "target/release/tidegate")]
    tidegate: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let work = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
    fs::create_dir_all(&work)?;
    let lines = (0..args.rows).map(|row| format!("{row},{row} Harbour Street\n"));
    let text: String = std::iter::once("id,address\n".to_owned()).chain(lines).collect();
    fs::write(work.join("rows.csv"), text)?;
    let collector = Collector::start()?;
    let mut pairs = Vec::new();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} rows; µs of CPU per row", args.rows)?;
    writeln!(out, "{:>6} {:>8} {:>8} {:>8}", "pair", "off", "on", "cost %")?;
    for pair in 0..args.pairs {
        let on_first = pair % 2 == 1;
        let first = run(&args, &work, on_first.then_some(&collector))?;
        let second = run(&args, &work, (!on_first).then_some(&collector))?;
        let (off, on) = if on_first { (second, first) } else { (first, second) };
        let cost = on / off - 1.0;
        writeln!(out, "{:>6} {off:>8.1} {on:>8.1} {:>8.1}", pair + 1, cost * 100.0)?;
        pairs.push((off, on, cost));
    }
    fs::remove_dir_all(&work)?;
    let median = |of: fn(&(f64, f64, f64)) -> f64| {
        let mut all: Vec<f64> = pairs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    };
    let (off, on, cost) = (median(|p| p.0), median(|p| p.1), median(|p| p.2));
    writeln!(out, "{:>6} {off:>8.1} {on:>8.1} {:>8.1}", "median", cost * 100.0)?;
    writeln!(out, "pushed: {} times, {} bytes", collector.times(), collector.bytes())?;
    let word = if cost <= TARGET { "within" } else { "ABOVE" };
    writeln!(out, "{word} the target of {} %", TARGET * 100.0)?;
    Ok(())
}

/// One run; µs of CPU per row.
fn run(args: &Args, work: &Path, watched: Option<&Collector>) -> Result<f64, Box<dyn Error>> {
    let server = Chaos::start(Config { threads: 1, ..Config::default() })?;
    let mut command = Command::new(&args.tidegate);
    command.arg("geocode").arg(work.join("rows.csv")).args(["--address", "address", "--url", &server.url()]);
    command.args(["--no-cache", "--quiet", "--seed", "1", "-o"]).arg(work.join("out.geojsonl"));
    command.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
    if let Some(collector) = watched {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        command.args(["--metrics", &format!("127.0.0.1:{port}")]);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url);
        command.env("OTEL_METRIC_EXPORT_INTERVAL", "1000").env("OTEL_BSP_SCHEDULE_DELAY", "1000");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(work.join("stderr"))?);
    let before = cpu_of_children();
    let status = command.status()?;
    let cpu = cpu_of_children().saturating_sub(before);
    if !status.success() {
        return Err(fs::read_to_string(work.join("stderr"))?.into());
    }
    Ok(cpu.as_secs_f64() * 1e6 / args.rows as f64)
}

/// Takes what is pushed, and counts it.
struct Collector {
    url: String,
    seen: Arc<(AtomicU64, AtomicU64)>,
}

impl Collector {
    fn start() -> std::io::Result<Collector> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let collector = Collector { url: format!("http://{}", listener.local_addr()?), seen: Arc::default() };
        let seen = Arc::clone(&collector.seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || take(stream, &seen));
            }
        });
        Ok(collector)
    }

    fn times(&self) -> u64 {
        self.seen.0.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> u64 {
        self.seen.1.load(Ordering::Relaxed)
    }
}

fn take(mut stream: TcpStream, seen: &(AtomicU64, AtomicU64)) {
    let mut bytes = Vec::new();
    let mut more = vec![0; 64 * 1024];
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).to_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            let whole = end + 4 + length.unwrap_or(0usize);
            if bytes.len() >= whole {
                bytes.drain(..whole);
                seen.0.fetch_add(1, Ordering::Relaxed);
                seen.1.fetch_add(whole as u64, Ordering::Relaxed);
                if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                    return;
                }
                continue;
            }
        }
        match stream.read(&mut more) {
            Ok(n) if n > 0 => bytes.extend_from_slice(more.get(..n).unwrap_or_default()),
            _ => return,
        }
    }
}

/// CPU time of all children that have ended, in steps of 10 ms.
fn cpu_of_children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
