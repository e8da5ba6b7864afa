//! Random numbers as an argument.
//!
//! Policies draw from a [`Chance`] that they get as an argument, never from a global generator, so a
//! seed determines a whole run. [`Rng`] is xoshiro256++ seeded through SplitMix64: small, fast, well
//! tested, and the same on every platform. It is not suitable for cryptography.

/// A source of random bits.
pub trait Chance {
    /// The next 64 random bits.
    fn bits(&mut self) -> u64;

    /// A uniform number in `[0, 1)`.
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A uniform number in `[lo, hi)`; `lo` if the interval is empty.
    fn between(&mut self, lo: f64, hi: f64) -> f64 {
        if hi > lo { lo + (hi - lo) * self.unit() } else { lo }
    }

    /// A uniform integer in `0..n`; 0 if `n` is 0.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }
}

impl<C: Chance + ?Sized> Chance for &mut C {
    fn bits(&mut self) -> u64 {
        (**self).bits()
    }
}

/// The generator xoshiro256++.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng([u64; 4]);

impl Rng {
    /// Creates a generator whose output depends only on `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Rng {
        let mut state = [0u64; 4];
        let mut x = seed;
        let mut i = 0;
        while i < 4 {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            state[i] = z ^ (z >> 31);
            i += 1;
        }
        Rng(state)
    }

    /// Creates generator `n` of a seed. Its output does not depend on how much the others draw.
    #[must_use]
    pub const fn fork(seed: u64, n: u64) -> Rng {
        Rng::new(seed ^ n.wrapping_add(1).wrapping_mul(0xd134_2543_de82_ef95))
    }
}

impl Chance for Rng {
    fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_draws() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for _ in 0..100 {
            assert_eq!(a.bits(), b.bits());
        }
        assert_ne!(Rng::new(7).bits(), Rng::new(8).bits());
        assert_ne!(Rng::fork(7, 0).bits(), Rng::fork(7, 1).bits());
    }

    #[test]
    fn draws_stay_in_range_and_are_even() {
        let mut rng = Rng::new(1);
        let (mut sum, mut counts) = (0.0, [0u32; 10]);
        for _ in 0..100_000 {
            let u = rng.unit();
            assert!((0.0..1.0).contains(&u));
            sum += u;
            counts[rng.below(10) as usize] += 1;
        }
        assert!((sum / 100_000.0 - 0.5).abs() < 0.005);
        assert!(counts.iter().all(|&c| (9_500..10_500).contains(&c)), "{counts:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.between(3.0, 3.0), 3.0);
    }
}
