//! How full a window that does not count refused calls could have been. Times are in seconds.

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
    /// When the newest slot ends, in seconds. Most calls fall in the same slot as the one before.
    until: f64,
}

impl CallSlots {
    pub(super) const NEW: CallSlots = CallSlots { counts: [0; SLOTS], newest: 0, until: 0.0 };

    /// The slot of a time, for a window of `window` seconds.
    fn slot(window: f64, at: f64) -> usize {
        SLOTS.saturating_add((at / window * WINDOW_SLOTS as f64) as usize)
    }

    fn holds(&self, slot: usize) -> bool {
        slot <= self.newest && slot + SLOTS > self.newest
    }

    fn count(&self, slot: usize) -> f64 {
        if self.holds(slot) { f64::from(self.counts[slot % SLOTS]) } else { 0.0 }
    }

    /// A call goes out.
    pub(super) fn sent(&mut self, window: f64, now: f64) {
        if now >= self.until {
            let slot = CallSlots::slot(window, now);
            for old in (self.newest + 1..=slot).rev().take(SLOTS) {
                self.counts[old % SLOTS] = 0;
            }
            self.newest = self.newest.max(slot);
            self.until = (self.newest - SLOTS + 1) as f64 * window / WINDOW_SLOTS as f64;
        }
        let count = &mut self.counts[self.newest % SLOTS];
        *count = count.saturating_add(1);
    }

    /// A call that was sent at `at` was refused. The most calls that a window can have counted then, itself
    /// included, wherever it begins: a fixed one, one that slides, or two counters of which the last is weighted.
    pub(super) fn refused(&mut self, window: f64, at: f64) -> Option<f64> {
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
