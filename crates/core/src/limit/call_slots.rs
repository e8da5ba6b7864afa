//! How full a window that does not count refused calls could have been.

use super::rate_estimate::secs;
use crate::time::Mono;

/// Slots of one window.
const WINDOW_SLOTS: usize = 64;
/// Slots that are kept: two windows before a call, and one for its answer to come.
const SLOTS: usize = 3 * WINDOW_SLOTS;

/// Calls that were not refused, by when they were sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CallSlots {
    /// A ring.
    counts: [u16; SLOTS],
    /// Number of the newest slot, counted from the beginning of time; 0 before the first call.
    newest: usize,
}

impl CallSlots {
    pub(super) const NEW: CallSlots = CallSlots { counts: [0; SLOTS], newest: 0 };

    /// The slot of a time, for a window of `window` seconds.
    fn slot(window: f64, at: Mono) -> usize {
        SLOTS.saturating_add((secs(Mono::ZERO, at) / window * WINDOW_SLOTS as f64) as usize)
    }

    fn holds(&self, slot: usize) -> bool {
        slot <= self.newest && slot + SLOTS > self.newest
    }

    fn count(&self, slot: usize) -> f64 {
        if self.holds(slot) { f64::from(self.counts[slot % SLOTS]) } else { 0.0 }
    }

    /// A call goes out.
    pub(super) fn sent(&mut self, window: f64, now: Mono) {
        let slot = CallSlots::slot(window, now);
        for old in (self.newest + 1..=slot).rev().take(SLOTS) {
            self.counts[old % SLOTS] = 0;
        }
        self.newest = self.newest.max(slot);
        self.counts[slot % SLOTS] = self.counts[slot % SLOTS].saturating_add(1);
    }

    /// A call that was sent at `at` was refused. The most calls that a window can have counted then, itself
    /// included, wherever it begins: a fixed one, one that slides, or two counters of which the last is weighted.
    pub(super) fn refused(&mut self, window: f64, at: Mono) -> Option<f64> {
        let slot = CallSlots::slot(window, at);
        if !self.holds(slot) {
            return None;
        }
        let count = &mut self.counts[slot % SLOTS];
        *count = count.saturating_sub(1);
        let oldest = slot - 2 * WINDOW_SLOTS;
        if self.newest >= oldest + SLOTS {
            return None;
        }
        // The window began in the slot `back` before: calls since, and those of the window before.
        let (mut since, mut before) = (0.0, (1..=WINDOW_SLOTS).map(|i| self.count(slot - i)).sum::<f64>());
        let mut most: f64 = 0.0;
        for back in 0..=WINDOW_SLOTS {
            since += self.count(slot - back);
            most = most.max(since + before * (1.0 - back as f64 / WINDOW_SLOTS as f64));
            if back < WINDOW_SLOTS {
                before += self.count(slot - back - 1 - WINDOW_SLOTS) - self.count(slot - back - 1);
            }
        }
        Some(most + 1.0)
    }
}
