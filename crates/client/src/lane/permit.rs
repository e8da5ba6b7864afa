//! The right to make one call, as a guard: whatever happens to the call, its place comes back.

use super::LaneHandle;
use tidegate_core::hint::Hints;
use tidegate_core::{Mono, Verdict, lane};

/// The right to make one call. Settle it with what came of the call; dropped, it is released and
/// the lane learns nothing.
#[must_use]
pub struct LanePermit {
    lane: LaneHandle,
    /// `None` only while it is being given back.
    core: Option<lane::Permit>,
}

impl LanePermit {
    pub(super) fn new(lane: LaneHandle, core: lane::Permit) -> LanePermit {
        LanePermit { lane, core: Some(core) }
    }

    /// The lane that gave it.
    #[must_use]
    pub fn lane(&self) -> &LaneHandle {
        &self.lane
    }

    /// The call came back. `then` runs under the same lock, with the core's lane and the
    /// time of the settling, so that the decision about the record costs no second round.
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

    /// The core's permit, taken back by the lane itself.
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
