//! How fast the simulator is: events per second of CPU time, and its memory.
//!
//! `cargo bench -p tidegate-sim --bench events`; with a word after `--`, only what has it in its name.
#![allow(clippy::print_stdout, missing_docs)]

use std::{env, fs};

use tidegate_sim::contention::{Contention, Strategy};
use tidegate_sim::outcome::ScenarioOutcome;
use tidegate_sim::scenario::Scenario;

/// CPU seconds of this process so far, from the kernel's count of clock ticks (100 a second).
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |field: usize| after_name.split_whitespace().nth(field).and_then(|t| t.parse::<f64>().ok());
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}

/// The most memory this process ever had, in MiB.
fn peak_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn measure(name: &str, run: impl FnOnce() -> u64) {
    let mut words = env::args().skip(1).filter(|word| !word.starts_with("--")).peekable();
    if words.peek().is_some() && !words.any(|word| name.contains(&word)) {
        return;
    }
    let before = cpu_seconds();
    let events = run();
    let seconds = cpu_seconds() - before;
    println!(
        "{name:<44} {events:>11} events {seconds:>6.2} s CPU {:>6.1} M events/s   peak {:>5.0} MiB",
        events as f64 / seconds.max(0.01) / 1e6,
        peak_mib()
    );
}

fn scenario(yaml: &str) -> u64 {
    match Scenario::parse(yaml).and_then(|s| s.run(&tidegate_sim::scenario::ScenarioOptions::default())) {
        Ok(outcome) => outcome.events,
        Err(error) => {
            println!("{error}");
            0
        }
    }
}

fn main() {
    measure("contention table, 20 N × 5 × 100 trials", || {
        let mut outcome = ScenarioOutcome::default();
        let clients = (1..=20).map(|i| i * 10).collect();
        Contention { clients, strategies: Strategy::ALL.to_vec() }.run(1, 100, &mut outcome);
        outcome.events
    });
    measure("100 clients at 10/s for 1000 s, p = 0.5", || {
        scenario(
            "{name: x, reason: x, world: {workload: {poisson: {rate: 10, seconds: 1000}}, clients: 100,
              hop: {exponential: 0.01}, server: {fault_rate: 0.5},
              client: {lanes: each, retry_policy: {max_attempts: 4, base_delay_seconds: 0}}}}",
        )
    });
    measure("one learning lane drains 1,000,000", || {
        scenario(
            "{name: x, reason: x, world: {workload: {drain: {requests: 1000000}}, hop: {constant: 0.02},
              client: {rate_limit: {}, retry_policy: {max_attempts: 100, deadline_seconds: 1e6,
                       throttle_wait: lane}},
              server: {service: {base_seconds: 0.065}, limit: {bucket: {rate: 500, burst: 100}}}}}",
        )
    });
    measure("1,000,000 clients after a blip, full jitter", || {
        scenario(
            "{name: x, reason: x, world: {workload: {drain: {requests: 1000000}}, hop: {exponential: 0.01},
              client: {lanes: none}, server: {outages: [{from: 0, until: 0.5}]}}}",
        )
    });
}
