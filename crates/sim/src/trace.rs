//! A hash over all events of a run.
//!
//! Every event is hashed in order. Two runs with equal hashes took the same steps; a run that
//! depends on anything but its seed shows up as a changed hash. The hash is not cryptographic.

/// A running 64-bit hash over `(time, event)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> TraceHash {
        TraceHash(0x9e37_79b9_7f4a_7c15)
    }
}

impl TraceHash {
    /// Adds one event.
    #[inline]
    pub fn note(&mut self, at: u64, event: u64) {
        let mixed = (self.0 ^ at).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29) ^ event;
        self.0 = mixed.wrapping_mul(0xa24b_aed4_963e_e407);
    }

    /// The hash so far.
    #[must_use]
    pub const fn hash(self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_time_and_event_all_count() {
        let hash = |events: &[(u64, u64)]| {
            let mut trace = TraceHash::default();
            events.iter().for_each(|&(at, event)| trace.note(at, event));
            trace.hash()
        };
        assert_eq!(hash(&[(1, 2), (3, 4)]), hash(&[(1, 2), (3, 4)]));
        assert_ne!(hash(&[(1, 2), (3, 4)]), hash(&[(3, 4), (1, 2)]));
        assert_ne!(hash(&[(1, 2)]), hash(&[(2, 1)]));
        assert_ne!(hash(&[(0, 0)]), hash(&[]));
        assert_ne!(hash(&[(0, 0)]), hash(&[(0, 0), (0, 0)]));
    }
}
