//! A permit for one call, as a guard that releases its slot on drop.

use super::LaneHandle;
use tidegate_core::hint::Hints;
use tidegate_core::{Mono, Verdict, lane};

/// A permit for one call. Settle it with the result of the call. If it is dropped, the slot is
/// released and the lane learns nothing.
#[must_use]
pub struct LanePermit {
    lane: LaneHandle,
    /// `None` only while it is being released.
    core: Option<HeldPermit>,
}

/// A permit of the core, and where it came from.
pub(super) struct HeldPermit {
    pub(super) core: lane::Permit,
    /// The lane of the core that granted it: it may have been replaced since.
    pub(super) generation: u32,
    /// The owner's permit, in a lane that another process owns, and when it came.
    pub(super) grant: Option<(u64, Mono)>,
    /// It is for a member of the lane, and counts there.
    pub(super) foreign: bool,
}

impl LanePermit {
    pub(super) fn new(lane: LaneHandle, held: HeldPermit) -> LanePermit {
        LanePermit { lane, core: Some(held) }
    }

    /// The lane that granted it.
    #[must_use]
    pub fn lane(&self) -> &LaneHandle {
        &self.lane
    }

    /// Settles the permit with the result of the call. `then` runs under the same lock, with the
    /// lane of the core and the current time, so that the decision about the call does not lock
    /// again.
    pub fn settle<T>(
        mut self,
        verdict: &Verdict,
        hints: &Hints,
        then: impl FnOnce(&mut lane::Lane, Mono) -> T,
    ) -> T {
        match self.core.take() {
            Some(core) => self.lane.settle(core, verdict, hints, then),
            None => self.lane.with_core(then),
        }
    }

    /// What it holds, for the lane to release.
    pub(super) fn into_held(mut self) -> Option<HeldPermit> {
        self.core.take()
    }
}

impl Drop for LanePermit {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            self.lane.release(core);
        }
    }
}

impl std::fmt::Debug for LanePermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LanePermit({})", self.lane.key())
    }
}
