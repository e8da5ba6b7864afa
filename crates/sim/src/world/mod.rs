//! A simulated world: a workload, clients with the shipped policy, a network, a server.
//!
//! A scenario describes the world once; each case lists only the sections that differ. The clients
//! use the lanes and calls of the core, as the production driver does.

pub mod counters;
mod event_loop;
pub mod fleet;
pub mod limit;
pub mod policy;
pub mod server;
pub mod typical_servers;
pub mod workload;

use serde::Deserialize;

use crate::WorldError;
use crate::distribution::RandomDuration;
use crate::outcome::{MetricTallies, ScenarioOutcome};
use counters::Curves;
pub use event_loop::{World, WorldRun};
use fleet::FleetSpec;
use policy::PolicySpec;
use server::ServerSpec;
use workload::Workload;

/// The world section of a scenario or of a case. A section of a case replaces the whole section of
/// the world.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct WorldSpec {
    /// The arrivals of requests.
    pub workload: Option<Workload>,
    /// The number of clients; 1 by default.
    pub clients: Option<u32>,
    /// The policy of the clients; the shipped retries alone by default.
    pub client: Option<PolicySpec>,
    /// The one-way delay of the network, in seconds; 0 by default.
    pub hop: Option<RandomDuration>,
    /// The server; by default it answers immediately.
    pub server: Option<ServerSpec>,
    /// The end of the run, in seconds from the start; by default the end of the last request.
    pub seconds: Option<f64>,
    /// The length of a tick in seconds, for `peak` and for weak servers; 0.01 by default.
    pub tick: Option<f64>,
    /// The start and the end of the measured time for `rate` and `peak`, in seconds from the start; the
    /// whole run by default.
    pub measure: Option<[f64; 2]>,
    /// The clients are processes that share one lane; by default they share it without messages.
    pub fleet: Option<FleetSpec>,
}

/// A named case of a world.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct CaseSpec {
    /// The name of the case.
    pub name: String,
    /// The sections that replace the world's.
    #[serde(default)]
    pub with: WorldSpec,
}

impl WorldSpec {
    /// This world with the sections of a case.
    #[must_use]
    pub fn with(&self, case: &WorldSpec) -> WorldSpec {
        WorldSpec {
            workload: case.workload.clone().or_else(|| self.workload.clone()),
            clients: case.clients.or(self.clients),
            client: case.client.or(self.client),
            hop: case.hop.or(self.hop),
            server: case.server.clone().or_else(|| self.server.clone()),
            seconds: case.seconds.or(self.seconds),
            tick: case.tick.or(self.tick),
            measure: case.measure.or(self.measure),
            fleet: case.fleet.clone().or_else(|| self.fleet.clone()),
        }
    }

    /// Builds the world.
    ///
    /// # Errors
    /// When it has no workload, or a number is invalid.
    pub fn world(&self) -> Result<World, WorldError> {
        let workload = self.workload.clone().ok_or(WorldError::new("a world needs a `workload`"))?;
        let server = self.server.clone().unwrap_or_default();
        if let Some(flaw) = workload.flaw().or_else(|| server.flaw()) {
            return Err(WorldError::new(flaw));
        }
        let client = self.client.unwrap_or_default();
        let measure = self.measure.unwrap_or([0.0, f64::INFINITY]);
        let positive = |x: Option<f64>| x.is_none_or(|x| x > 0.0);
        if !positive(self.seconds) || !positive(self.tick) || measure[0] >= measure[1] {
            return Err(WorldError::new("`seconds`, `tick` and the length of `measure` must be above 0"));
        }
        if let Some(flaw) = self.fleet.as_ref().and_then(|fleet| fleet.flaw(self.clients.unwrap_or(1))) {
            return Err(WorldError::new(flaw));
        }
        let has_demand = matches!(workload, Workload::Drain { .. } | Workload::Poisson { .. });
        if self.fleet.is_some() && (self.seconds.is_none() || !has_demand) {
            return Err(WorldError::new("a `fleet` needs `seconds`, and a workload of `drain` or `poisson`"));
        }
        Ok(World {
            workload,
            clients: self.clients.unwrap_or(1).max(1),
            lanes: client.lanes,
            policy: client.policy(),
            hop: self.hop.unwrap_or_default(),
            server,
            end: self.seconds.map_or(u64::MAX, nanos),
            tick: nanos(self.tick.unwrap_or(0.01)).max(1),
            measure: [nanos(measure[0]), nanos(measure[1])],
            fleet: self.fleet.clone(),
        })
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// A world that is ready to run, with the name of its case.
#[derive(Clone, Debug)]
pub struct WorldCase {
    /// The name of the case.
    pub name: String,
    /// The world.
    pub world: World,
}

/// The worlds of all cases; one called `run` if there are none.
///
/// # Errors
/// When a case is invalid.
pub fn cases(base: &WorldSpec, cases: &[CaseSpec]) -> Result<Vec<WorldCase>, WorldError> {
    if cases.is_empty() {
        return Ok(vec![WorldCase { name: "run".to_owned(), world: base.world()? }]);
    }
    let world = |case: &CaseSpec| {
        let named = |e: WorldError| WorldError { case: Some(case.name.clone()), ..e };
        let world = base.with(&case.with).world().map_err(named)?;
        Ok(WorldCase { name: case.name.clone(), world })
    };
    cases.iter().map(world).collect()
}

/// Runs worlds and adds to the outcome. Every trial of every world has its own random generator.
pub fn run(worlds: &[WorldCase], seed: u64, trials: u32, outcome: &mut ScenarioOutcome) {
    let mut curves = Vec::new();
    for (index, WorldCase { name, world }) in worlds.iter().enumerate() {
        let mut ledger = MetricTallies::default();
        let [from, to] = world.measure;
        let window = (to < u64::MAX).then(|| (to - from) as f64 / 1e9);
        for trial in 0..trials {
            let seed = seed.wrapping_add(u64::from(trial) << 20).wrapping_add(index as u64);
            if let Some(spec) = &world.fleet {
                let run = fleet::run(world, spec, seed);
                run.counts.enter(&mut ledger);
                outcome.events += run.events;
                outcome.trace = outcome.trace.rotate_left(1) ^ run.trace;
                continue;
            }
            let run = world.run(seed, trial == 0);
            run.counts.enter(&mut ledger, window);
            outcome.events += run.events;
            outcome.trace = outcome.trace.rotate_left(1) ^ run.trace;
            curves.extend(run.curves.map(|c| (name.clone(), c)));
        }
        outcome.cases.push(ledger.case(name.clone()));
    }
    if !curves.is_empty() {
        outcome.plots.extend(Curves::plots(curves));
    }
}
