//! The history of each request that the server has seen.
//!
//! A request is identified by the 64-bit hash of its idempotency key, else of its method, target
//! and body. There are two generations of bounded maps: when the young one is full it becomes the
//! old one, and the old one is discarded. So memory is bounded in a run of any length, and at least
//! the last `capacity` requests are remembered.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroU32;
use std::sync::Mutex;

use super::lock::lock;

const SHARDS: usize = 16;

/// A hasher for keys that are already hashes.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = super::hash::bytes(self.0, bytes);
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

/// The history of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestHistory {
    /// The number of attempts that passed the throttle and the outages.
    pub(crate) attempts: u16,
    /// The number of successes that were delivered completely.
    pub(crate) delivered: u16,
    /// The number of successes whose response was lost.
    pub(crate) lost: u16,
    /// The hash of the request that was executed under an idempotency key.
    pub(crate) executed: Option<NonZeroU32>,
}

type Map = HashMap<u64, RequestHistory, BuildHasherDefault<AsIs>>;

#[derive(Default)]
struct Shard {
    young: Map,
    old: Map,
}

/// The histories of requests.
pub(crate) struct Memory {
    shards: [Mutex<Shard>; SHARDS],
    /// The most requests in the young generation of a shard.
    capacity: usize,
}

impl Memory {
    /// Remembers at least the last `capacity` different requests, and at most twice as many.
    pub(crate) fn new(capacity: usize) -> Memory {
        Memory { shards: Default::default(), capacity: (capacity / SHARDS).max(1) }
    }

    /// Changes the history of `key` and returns the previous one.
    pub(crate) fn update(&self, key: u64, change: impl FnOnce(&mut RequestHistory)) -> RequestHistory {
        let index = (key >> 60) as usize % SHARDS;
        let Some(shard) = self.shards.get(index) else { return RequestHistory::default() };
        let mut shard = lock(shard);
        if !shard.young.contains_key(&key) {
            if shard.young.len() >= self.capacity {
                shard.old = std::mem::take(&mut shard.young);
            }
            let before = shard.old.remove(&key).unwrap_or_default();
            shard.young.insert(key, before);
        }
        let seen = shard.young.entry(key).or_default();
        let before = *seen;
        change(seen);
        before
    }

    /// Resets all state.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            *lock(shard) = Shard::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_last_ones_and_stays_bounded() {
        let memory = Memory::new(SHARDS * 10);
        for round in 0..3 {
            for key in 0..5 {
                assert_eq!(memory.update(key, |s| s.attempts += 1).attempts, round);
            }
        }
        for key in 0..10_000 {
            memory.update(key, |s| s.attempts += 1);
        }
        let shard = memory.shards[0].lock().unwrap();
        assert!(shard.young.len() + shard.old.len() <= 20);
    }
}
