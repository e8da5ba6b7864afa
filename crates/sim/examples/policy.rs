//! A retry policy against a server that fails half of its calls, in virtual time: the load that it
//! causes, and the share of requests that still fail.
//!
//! ```sh
//! cargo run -p tidegate-sim --example policy
//! ```
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use tidegate_sim::scenario::{Scenario, ScenarioOptions};

const SCENARIO: &str = "
name: half
reason: Three retries nearly double the load of a server that fails every second call.
world:
  workload: { poisson: { rate: 10, seconds: 100 } }
  clients: 100
  server: { fault_rate: 0.5 }
cases:
  - name: three retries
    with: { client: { lanes: each, retry_policy: { max_attempts: 4, base_delay_seconds: 0 } } }
  - name: no retries
    with: { client: { lanes: each, retry_policy: { max_attempts: 1 } } }
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let outcome = Scenario::parse(SCENARIO)?.run(&ScenarioOptions::default())?;
    for case in &outcome.cases {
        let metric = |name: &str| case.get(name).map_or(f64::NAN, |value| value.mean);
        println!("{}: load {:.3}, {:.3} still fail", case.name, metric("load"), metric("residual"));
    }
    println!("{} events, the same for the same seed: {:016x}", outcome.events, outcome.trace);
    Ok(())
}
