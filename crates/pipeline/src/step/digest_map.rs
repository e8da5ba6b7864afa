//! A map whose keys are digests.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::cache::CacheKey;

/// Values by the key of their question. The keys are SHA-256 digests, so to hash them again would
/// be work for nothing.
pub(super) type DigestMap<V> = HashMap<CacheKey, V, BuildHasherDefault<DigestHasher>>;

/// The first bytes of a digest.
#[derive(Default)]
pub(super) struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    }

    /// The length, which is that of every digest.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn keys_are_their_own_hashes() {
        let key: CacheKey = std::array::from_fn(|at| at as u8);
        let mut map = DigestMap::default();
        map.insert(key, 1);
        assert_eq!(map.hasher().hash_one(key), 0x0706_0504_0302_0100);
        assert_eq!((map.get(&key), map.get(&[0; 32])), (Some(&1), None));
    }
}
