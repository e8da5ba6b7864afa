//! Watches the patience of lanes, once for all questions of a step: a timer of its own for every
//! question is a noticeable part of the work on it.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::call::{self, Later};
use crate::lane::{LaneHandle, LaneKey};

/// How soon a lane that is shut for too long is looked at again while nobody waits for it.
const IDLE_LOOK: Duration = Duration::from_millis(100);

/// The lanes that are watched. Dropping it ends that.
#[derive(Default)]
pub(super) struct LaneWatches {
    lanes: Vec<LaneKey>,
    tasks: JoinSet<()>,
}

impl LaneWatches {
    /// Begins to watch a lane, unless it is watched. `give_up` is called when the lane is shut, or
    /// fails, for longer than `patience`, and again until it says that this was the end. To be called
    /// within the runtime.
    pub(super) fn watch(
        &mut self,
        lane: &LaneHandle,
        patience: Duration,
        give_up: impl Fn(&LaneHandle, Later) -> bool + Send + Sync + 'static,
    ) {
        if self.lanes.contains(lane.key()) {
            return;
        }
        self.lanes.push(lane.key().clone());
        let lane = lane.clone();
        self.tasks.spawn(async move {
            loop {
                let later = call::given_up(&lane, patience).await;
                if give_up(&lane, later) {
                    return;
                }
                tokio::time::sleep(IDLE_LOOK).await;
            }
        });
    }
}
