//! Lanes: one per key, made on first use.
//!
//! All that ask for the same key get the same lane, whoever they are: a source and a step that use
//! one service share its pace, its breaker and what the server said.

use super::{Clock, LaneHandle, LaneKey, LaneStates, Snapshot};
use crate::lock::lock;
use crate::secret::Secret;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_core::lane::LaneConfig;

/// Lanes by their keys. Clones share them.
#[derive(Clone)]
pub struct Lanes {
    clock: Clock,
    config: LaneConfig,
    table: Arc<Mutex<LaneTable>>,
    states: Option<LaneStates>,
}

/// The lanes made so far, and the configurations set for single keys.
#[derive(Default)]
struct LaneTable {
    lanes: HashMap<LaneKey, LaneHandle>,
    fixed: HashMap<LaneKey, LaneConfig>,
}

impl Lanes {
    /// No lanes yet; new ones get `config`.
    #[must_use]
    pub fn new(config: &LaneConfig, clock: Clock) -> Lanes {
        Lanes { clock, config: *config, table: Arc::default(), states: None }
    }

    /// These lanes, each beginning with what its server asked for before. To be said before the first
    /// lane is made.
    #[must_use]
    pub fn keeping(self, states: LaneStates) -> Lanes {
        Lanes { states: Some(states), ..self }
    }

    /// Lanes that use the credential of this name use this value. To be said before they are made.
    pub fn identify(&self, credential: &str, secret: &Secret) {
        if let Some(states) = &self.states {
            states.identify(credential, secret);
        }
    }

    /// Writes down what servers asked for. To be called when a run ends.
    pub fn flush(&self) {
        if let Some(states) = &self.states {
            states.flush();
        }
    }

    /// The same lanes, for others whose new ones get `config`.
    #[must_use]
    pub fn with(&self, config: &LaneConfig) -> Lanes {
        Lanes { config: *config, ..self.clone() }
    }

    /// The lane of this key gets `config`, whoever is the first to ask for it. If several fix one
    /// lane, the lower of their limits hold. A lane that is there already stays as it is.
    pub fn fix(&self, key: LaneKey, config: &LaneConfig) {
        let mut table = self.table();
        let fixed = table.fixed.entry(key).or_insert(*config);
        fixed.limit = fixed.limit.and(config.limit);
    }

    /// Whether these are the lanes of `other`.
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
        let lane = LaneHandle::keeping(key.clone(), config, self.clock, self.states.as_ref());
        table.lanes.insert(key.clone(), lane.clone());
        lane
    }

    /// All lanes as they are now, in the order of their keys.
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
        // Another credential is another limit.
        assert!(lanes.get(&other).snapshot().cap > 2);
        assert_eq!(lanes.snapshots().len(), 2);
    }
}
