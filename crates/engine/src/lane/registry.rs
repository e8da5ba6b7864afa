//! All lanes of a process: one per key, made on first use.

use super::{Clock, Lane, LaneKey, Snapshot};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tidegate_core::lane::LaneConfig;

/// All lanes of a process. Clones share them.
#[derive(Clone)]
pub struct Lanes {
    clock: Clock,
    config: LaneConfig,
    lanes: Arc<Mutex<HashMap<LaneKey, Lane>>>,
}

impl Lanes {
    /// No lanes yet; new ones get `config`.
    #[must_use]
    pub fn new(config: &LaneConfig, clock: Clock) -> Lanes {
        Lanes { clock, config: *config, lanes: Arc::default() }
    }

    /// The clock that all lanes share.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The lane of this key.
    #[must_use]
    pub fn get(&self, key: &LaneKey) -> Lane {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(key) {
            return lane.clone();
        }
        let lane = Lane::new(key.clone(), &self.config, self.clock);
        lanes.insert(key.clone(), lane.clone());
        lane
    }

    /// All lanes as they are now, in the order of their keys.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let lanes: Vec<Lane> =
            self.lanes.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let mut all: Vec<Snapshot> = lanes.iter().map(Lane::snapshot).collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }
}
