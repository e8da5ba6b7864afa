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
    core: Option<lane::Permit>,
}

impl LanePermit {
    pub(super) fn new(lane: LaneHandle, core: lane::Permit) -> LanePermit {
        LanePermit { lane, core: Some(core) }
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

    /// The permit of the core, for the lane to release.
    pub(super) fn into_core(mut self) -> Option<lane::Permit> {
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
