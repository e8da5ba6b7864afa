//! A small hash that is the same on every machine and in every run, for the identity of requests,
//! the coordinates of addresses and the draws of faults. Not cryptographic.

/// One step of SplitMix64: mixes a number over 64 bits.
pub(crate) const fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The hash of `bytes`, continuing from `seed`.
pub(crate) fn bytes(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(0x9fb2_1c65_1e98_df25);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = word.iter().rev().fold(0u64, |acc, &b| (acc << 8) | u64::from(b));
        hash = (hash ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29);
    }
    let rest = words.remainder().iter().fold(0u64, |acc, &b| (acc << 8) | u64::from(b));
    mix(hash ^ rest)
}

/// Uniform in `[0, 1)` from a hash.
pub(crate) fn unit(hash: u64) -> f64 {
    (mix(hash) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}
