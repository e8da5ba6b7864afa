//! The registry of lanes: one per key, created on first use.
//!
//! Everyone who asks for a key gets the same lane: a source and a step that use one service share
//! its rate limit, its breaker and the waits it asked for.

use super::{Clock, LaneHandle, LaneKey, LaneScope, LaneStates, Snapshot};
use crate::lock::lock;
use crate::secret::Secret;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tidegate_core::lane::LaneConfig;

/// Lanes by key. Clones share them.
#[derive(Clone)]
pub struct Lanes {
    clock: Clock,
    config: LaneConfig,
    table: Arc<Mutex<LaneTable>>,
    states: Option<LaneStates>,
    scope: LaneScope,
}

/// The lanes made so far, and the configurations set for single keys.
#[derive(Default)]
struct LaneTable {
    lanes: HashMap<LaneKey, LaneHandle>,
    fixed: HashMap<LaneKey, LaneConfig>,
}

impl Lanes {
    /// An empty registry; new lanes get `config`.
    #[must_use]
    pub fn new(config: &LaneConfig, clock: Clock) -> Lanes {
        Lanes { clock, config: *config, table: Arc::default(), states: None, scope: LaneScope::default() }
    }

    /// Lanes start with their saved state. Call it before the first lane is created.
    #[must_use]
    pub fn keeping(self, states: LaneStates) -> Lanes {
        Lanes { states: Some(states), ..self }
    }

    /// Lanes are shared with other processes. Only lanes with a saved state are, because it identifies
    /// them. Call it before the first lane is created.
    #[must_use]
    pub fn sharing(self, scope: LaneScope) -> Lanes {
        Lanes { scope, ..self }
    }

    /// Sets the value of the credential of this name, which identifies lanes across runs. Call it
    /// before its lanes are created.
    pub fn identify(&self, credential: &str, secret: &Secret) {
        if let Some(states) = &self.states {
            states.identify(credential, secret);
        }
    }

    /// The longest wait that any of them obeys its server for, which bounds what is kept.
    #[must_use]
    pub fn wait_max(&self) -> Duration {
        let table = self.table();
        table.fixed.values().fold(self.config.wait_max, |longest, fixed| longest.max(fixed.wait_max))
    }

    /// Writes the lane states to disk. Call it at the end of a run.
    pub fn flush(&self) {
        if let Some(states) = &self.states {
            states.flush();
        }
    }

    /// Closes all lanes and leaves their owners or members, so that another process owns them at once. Call it at
    /// the end of a run.
    pub async fn leave(&self) {
        let LaneScope::Fleet(fleet) = &self.scope else { return };
        let lanes: Vec<LaneHandle> = self.table().lanes.values().cloned().collect();
        lanes.iter().for_each(LaneHandle::close);
        fleet.settle().await;
    }

    #[cfg(test)]
    pub(super) fn scope(&self) -> &LaneScope {
        &self.scope
    }

    /// The same lanes with another configuration for new ones.
    #[must_use]
    pub fn with(&self, config: &LaneConfig) -> Lanes {
        Lanes { config: *config, ..self.clone() }
    }

    /// Sets the configuration of one lane, whoever asks for it first. If it is set more than once,
    /// the lower limits apply. An existing lane is unchanged.
    pub fn fix(&self, key: LaneKey, config: &LaneConfig) {
        let mut table = self.table();
        let fixed = table.fixed.entry(key).or_insert(*config);
        fixed.limit = fixed.limit.and(config.limit);
        fixed.wait_max = fixed.wait_max.min(config.wait_max);
    }

    /// Whether both share the same lanes.
    #[must_use]
    pub fn are(&self, other: &Lanes) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
    }

    /// The clock that all lanes share.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The lane of this key.
    #[must_use]
    pub fn get(&self, key: &LaneKey) -> LaneHandle {
        let mut table = self.table();
        if let Some(lane) = table.lanes.get(key) {
            return lane.clone();
        }
        let config = table.fixed.get(key).unwrap_or(&self.config);
        let lane = LaneHandle::keeping(key.clone(), config, self.clock, self.states.as_ref(), &self.scope);
        table.lanes.insert(key.clone(), lane.clone());
        lane
    }

    /// Snapshots of all lanes, ordered by key.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let lanes: Vec<LaneHandle> = self.table().lanes.values().cloned().collect();
        let mut all: Vec<Snapshot> = lanes.iter().map(LaneHandle::snapshot).collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    fn table(&self) -> MutexGuard<'_, LaneTable> {
        lock(&self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_is_one_lane_under_the_lower_of_all_limits() {
        let mut config = LaneConfig::default();
        let lanes = Lanes::new(&config, Clock::system());
        let url = "https://a.test/wfs".parse().unwrap();
        let (key, other) = (LaneKey::of_url(&url, "env:A"), LaneKey::of_url(&url, "env:B"));
        config.limit.rate_max = Some(5.0);
        lanes.fix(key.clone(), &config);
        config.limit.rate_max = Some(9.0);
        config.limit.in_flight_max = 2;
        lanes.fix(key.clone(), &config);
        let source = lanes.with(&config);
        let (first, second) = (source.get(&key), lanes.get(&key));
        assert!(source.are(&lanes) && !lanes.are(&Lanes::new(&config, Clock::system())));
        assert_eq!((lanes.snapshots().len(), first.snapshot().cap), (1, second.snapshot().cap));
        assert_eq!(first.snapshot().cap, 2);
        // Another credential has another limit.
        assert!(lanes.get(&other).snapshot().cap > 2);
        assert_eq!(lanes.snapshots().len(), 2);
    }
}
