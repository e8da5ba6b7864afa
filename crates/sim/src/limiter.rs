//! The table of the limiter: servers down, the hints that they send across.
//!
//! Each cell is one drain ([`crate::drain`]): the utilisation, which is the earliest possible
//! finish divided by ours, and the share of refused calls. The limiters of [`crate::rival`] drain
//! the same worlds. The servers are in `scenarios/limiter.yaml`, which the tests, the benchmark and
//! the command all read.

use serde::Deserialize;
use tidegate_core::limit::{LimitConfig, Limiter};

use crate::drain::pause::Pauses;
use crate::drain::{self, DrainWorld, QuotaHeaders, RefusalForm, ServerHints, drain};
use crate::outcome::{MetricTallies, ScenarioOutcome};
use crate::rival::Rival;
use crate::server::ServerLimit;
use crate::trace::TraceHash;
use crate::world::limit::ServerLimitSpec;

/// The limiter section of a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct LimiterSpec {
    /// The most requests in flight; 64 by default.
    #[serde(default = "workers")]
    pub workers: u32,
    /// The network paths to the servers.
    pub ways: Vec<WaySpec>,
    /// The servers.
    pub servers: Vec<ThrottledSpec>,
}

fn workers() -> u32 {
    64
}

/// A network path to the servers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct WaySpec {
    /// Its name.
    pub name: String,
    /// Mean round trip without service, in seconds.
    pub rtt: f64,
    /// Mean service time, in seconds.
    pub service: f64,
    /// Relative spread (0 to 1) of round trip and service time.
    #[serde(default)]
    pub jitter: f64,
}

/// A server with a limit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct ThrottledSpec {
    /// Its name.
    pub name: String,
    /// Requests to drain.
    pub requests: u64,
    /// Its limit; none by default.
    pub limit: Option<ServerLimitSpec>,
    /// How it refuses; 429 at once by default.
    #[serde(default)]
    pub refusal: RefusalForm,
    /// The pauses of the client or the server; none by default.
    #[serde(default)]
    pub pauses: Option<Pauses>,
}

/// A column of the table: the hints that a server sends, and the results required of Tidegate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HintColumn {
    /// The column's name.
    pub name: &'static str,
    /// The hints that the server sends.
    pub tells: ServerHints,
    /// The lowest acceptable utilisation, in per cent.
    pub utilisation: f64,
    /// The highest acceptable share of refused calls, in per cent.
    pub refused: f64,
}

/// The columns of the table.
pub static HINT_COLUMNS: [HintColumn; 4] = [
    HintColumn { name: "none", tells: ServerHints::Nothing, utilisation: 98.0, refused: 1.0 },
    HintColumn { name: "retry-after", tells: ServerHints::RetryAfter, utilisation: 95.0, refused: 1.0 },
    HintColumn {
        name: "rate-limit",
        tells: ServerHints::Quota(QuotaHeaders::RATE_LIMIT),
        utilisation: 99.5,
        refused: 0.2,
    },
    HintColumn {
        name: "x-rate-limit",
        tells: ServerHints::Quota(QuotaHeaders::X_RATE_LIMIT),
        utilisation: 99.5,
        refused: 0.2,
    },
];

/// Drains a world with the shipped limiter.
#[must_use]
pub fn drain_shipped(world: &DrainWorld, seed: u64) -> drain::DrainOutcome {
    let config = LimitConfig { in_flight_max: world.workers, ..LimitConfig::default() };
    drain(world, &mut Limiter::new(&config), seed)
}

impl LimiterSpec {
    /// The reason why it is invalid, if it is.
    #[must_use]
    pub fn flaw(&self) -> Option<String> {
        let way = |w: &WaySpec| {
            (0.0..=3600.0).contains(&w.rtt)
                && (0.0..=3600.0).contains(&w.service)
                && (0.0..=1.0).contains(&w.jitter)
        };
        if self.workers == 0 || self.ways.is_empty() || self.servers.is_empty() {
            return Some("`limiter` needs `workers`, `ways` and `servers`".to_owned());
        }
        if let Some(bad) = self.ways.iter().find(|w| !way(w)) {
            return Some(format!("way {}: times up to an hour, `jitter` up to 1", bad.name));
        }
        self.servers.iter().find_map(|server| {
            let flaw = match &server.limit {
                _ if server.requests == 0 => Some("`requests` must be at least 1"),
                limit => limit
                    .as_ref()
                    .and_then(ServerLimitSpec::flaw)
                    .or_else(|| server.refusal.flaw())
                    .or_else(|| server.pauses.as_ref().and_then(Pauses::flaw)),
            };
            flaw.map(|flaw| format!("server {}: {flaw}", server.name))
        })
    }

    /// The rows: every server over every network path, by name, without hints.
    #[must_use]
    pub fn worlds(&self) -> Vec<(String, DrainWorld)> {
        let row = |way: &WaySpec, server: &ThrottledSpec| {
            let world = DrainWorld {
                limit: server.limit.as_ref().map_or(ServerLimit::Open, ServerLimitSpec::limit),
                requests: server.requests,
                workers: self.workers,
                rtt: way.rtt,
                service: way.service,
                jitter: way.jitter,
                tells: ServerHints::Nothing,
                refusal: server.refusal,
                pauses: server.pauses,
                timer_late: 0.0,
            };
            (format!("{}, {}", server.name, way.name), world)
        };
        self.ways.iter().flat_map(|way| self.servers.iter().map(move |server| row(way, server))).collect()
    }

    /// Runs the shipped limiter; cases are called `hints/server, path`.
    pub fn run(&self, seed: u64, trials: u32, outcome: &mut ScenarioOutcome) {
        for (row, world) in self.worlds() {
            for told in HINT_COLUMNS {
                let world = DrainWorld { tells: told.tells, ..world.clone() };
                let name = format!("{}/{row}", told.name);
                case(name, seed, trials, outcome, |seed| drain_shipped(&world, seed));
            }
        }
    }

    /// Runs the rivals; cases are called `rival/server, path`.
    pub fn compare(&self, rivals: &[Rival], seed: u64, trials: u32, outcome: &mut ScenarioOutcome) {
        for rival in rivals {
            for (row, world) in self.worlds() {
                let name = format!("{}/{row}", rival.name());
                case(name, seed, trials, outcome, |seed| rival.drain(&world, seed));
            }
        }
    }
}

fn case(
    name: String,
    seed: u64,
    trials: u32,
    outcome: &mut ScenarioOutcome,
    run: impl Fn(u64) -> drain::DrainOutcome,
) {
    let mut ledger = MetricTallies::default();
    for trial in 0..trials {
        let out = run(seed.wrapping_add(u64::from(trial) << 20));
        ledger.add("utilisation", out.utilisation());
        ledger.add("refused", out.refused_percent());
        ledger.add("early", out.early as f64);
        // Two events per call: its arrival and its response.
        outcome.events += 2 * out.calls;
        let mut trace = TraceHash::default();
        trace.note((out.finish * 1e9) as u64, out.calls);
        trace.note(out.refused, out.left);
        outcome.trace = outcome.trace.rotate_left(1) ^ trace.hash();
    }
    outcome.cases.push(ledger.case(name));
}

#[cfg(test)]
mod tests {
    use crate::scenario::{Scenario, ScenarioOptions};

    const SMALL: &str = "{name: x, reason: y, limiter: {workers: 8,
        ways: [{name: near, rtt: 0.001, service: 0.005}],
        servers: [{name: slow, requests: 50, limit: {bucket: {rate: 50, burst: 5}}}, {name: open, requests: 50}]}}";

    #[test]
    fn rivals_stand_beside_the_limiter() {
        let scenario = Scenario::parse(SMALL).unwrap();
        let compare = ["aws", "vector"].map(str::to_owned).to_vec();
        let outcome = scenario.run(&ScenarioOptions { compare, ..ScenarioOptions::default() }).unwrap();
        let names: Vec<&str> = outcome.cases.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names.len(), 12);
        assert_eq!(names[0], "none/slow, near");
        assert_eq!(names[11], "vector/open, near");
        let refused = |i: usize| outcome.cases[i].get("refused").unwrap().mean;
        assert!(refused(8) > 0.0, "the first throttle must be met");
        assert_eq!(refused(9), 0.0);
        let unknown = ScenarioOptions { compare: vec!["full".to_owned()], ..ScenarioOptions::default() };
        assert!(scenario.run(&unknown).unwrap_err().to_string().contains("known are aws"));
    }

    #[test]
    fn nonsense_is_refused() {
        for (from, to) in [
            ("requests: 50,", "requests: 0,"),
            ("rate: 50", "rate: 0"),
            ("rtt: 0.001", "rtt: -1"),
            ("workers: 8", "workers: 0"),
            ("limiter:", "contention: {clients: [1]}, limiter:"),
        ] {
            assert!(Scenario::parse(&SMALL.replace(from, to)).is_err(), "{to}");
        }
    }
}
