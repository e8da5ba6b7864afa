//! Backoff: the delay before the next attempt.
//!
//! The window of retry n, counted from 0, is `e(n) = min(cap, base · factorⁿ)`. Jitter draws the
//! delay from the window, because clients that fail at the same time and wait equally long fail at
//! the same time again:
//!
//! | jitter | delay |
//! |---|---|
//! | none | e |
//! | full (default) | U(0, e) |
//! | equal | e/2 + U(0, e/2) |
//! | decorrelated | U(base, 3 · the previous delay) |
//! | additive | e + U(min, max) |
//! | proportional | e · (1 + U(−share, share)) |
//!
//! The cap is applied last, so no delay of any kind exceeds it. All inputs are valid: base 0, a
//! factor below 1, NaN, attempt `u32::MAX` all give a delay between zero and the cap.

use crate::chance::Chance;
use crate::time::nanos;
use core::time::Duration;

/// How a delay is drawn from its window `e`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Jitter {
    /// No jitter: the delay is e.
    None,
    /// Uniform between 0 and e.
    #[default]
    Full,
    /// Uniform between e/2 and e.
    Equal,
    /// Uniform between the base and three times the previous delay.
    Decorrelated,
    /// The window e plus a random time.
    Additive {
        /// The minimum time that is added.
        min: Duration,
        /// The maximum time that is added.
        max: Duration,
    },
    /// The whole window, a share of it more or less. The share is from 0 to 1; anything else counts
    /// as the nearer of the two.
    Proportional {
        /// The share.
        share: f64,
    },
}

/// An exponential backoff.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The window before the first retry, in nanoseconds.
    base: f64,
    /// The growth of the window per retry.
    factor: f64,
    /// The maximum delay, in nanoseconds.
    cap: f64,
    jitter: Jitter,
}

impl Default for Backoff {
    /// Base 1 s, factor 2, cap 60 s, full jitter.
    fn default() -> Backoff {
        Backoff::new(Duration::from_secs(1), 2.0, Duration::from_secs(60), Jitter::Full)
    }
}

impl Backoff {
    /// Creates a backoff. A factor that is negative or NaN counts as 1.
    #[must_use]
    pub fn new(base: Duration, factor: f64, cap: Duration, jitter: Jitter) -> Backoff {
        let factor = if factor >= 0.0 { factor } else { 1.0 };
        Backoff { base: nanos(base) as f64, factor, cap: nanos(cap) as f64, jitter }
    }

    /// The window before the first retry.
    #[must_use]
    pub fn base(&self) -> Duration {
        Duration::from_nanos(self.base as u64)
    }

    /// The maximum delay.
    #[must_use]
    pub fn cap(&self) -> Duration {
        Duration::from_nanos(self.cap as u64)
    }

    /// The same with another base or cap, where given.
    #[must_use]
    pub fn bounded(self, base: Option<Duration>, cap: Option<Duration>) -> Backoff {
        let base = base.map_or(self.base, |base| nanos(base) as f64);
        let cap = cap.map_or(self.cap, |cap| nanos(cap) as f64);
        Backoff { base, cap, ..self }
    }

    /// How delays are drawn.
    #[must_use]
    pub const fn jitter(&self) -> Jitter {
        self.jitter
    }

    /// The delay before retry `n`, counted from 0. `previous` is the delay before the last retry.
    #[must_use]
    pub fn delay<C: Chance>(&self, n: u32, previous: Duration, chance: &mut C) -> Duration {
        Duration::from_nanos(self.delay_nanos(n, nanos(previous), chance))
    }

    /// [`Backoff::delay`] in nanoseconds.
    #[inline]
    #[must_use]
    pub fn delay_nanos<C: Chance>(&self, n: u32, previous: u64, chance: &mut C) -> u64 {
        let delay = match self.jitter {
            Jitter::None => self.window(n),
            Jitter::Full => chance.unit() * self.window(n),
            Jitter::Equal => (0.5 + 0.5 * chance.unit()) * self.window(n),
            Jitter::Decorrelated => {
                chance.between(self.base, 3.0 * if previous == 0 { self.base } else { previous as f64 })
            }
            Jitter::Additive { min, max } => {
                self.window(n) + chance.between(nanos(min) as f64, nanos(max) as f64)
            }
            Jitter::Proportional { share } => {
                self.window(n) * (1.0 + proportion(share) * (2.0 * chance.unit() - 1.0))
            }
        };
        delay.min(self.cap) as u64
    }

    /// The maximum of [`Backoff::delay`] for retry `n`.
    #[must_use]
    pub fn longest(&self, n: u32) -> Duration {
        let longest = match self.jitter {
            Jitter::None | Jitter::Full | Jitter::Equal => self.window(n),
            Jitter::Decorrelated => self.base * power(3.0, n.saturating_add(1)),
            Jitter::Additive { min, max } => self.window(n) + nanos(min.max(max)) as f64,
            Jitter::Proportional { share } => self.window(n) * (1.0 + proportion(share)),
        };
        Duration::from_nanos(longest.min(self.cap) as u64)
    }

    /// `min(cap, base · factorⁿ)`, in nanoseconds; zero for base zero, even if the factor is infinite.
    #[inline]
    fn window(&self, n: u32) -> f64 {
        if self.base == 0.0 { 0.0 } else { (self.base * power(self.factor, n)).min(self.cap) }
    }
}

/// A share from 0 to 1, whatever was given; what is not a number is 0.
fn proportion(share: f64) -> f64 {
    if share > 0.0 { share.min(1.0) } else { 0.0 }
}

/// `xⁿ` for `x ≥ 0` by squaring: exact for powers of two, the same on every platform.
#[inline]
fn power(mut x: f64, mut n: u32) -> f64 {
    let mut out = 1.0;
    while n > 0 {
        if n & 1 == 1 {
            out *= x;
        }
        x *= x;
        n >>= 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Rng;
    use proptest::prelude::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn windows_double_up_to_the_cap() {
        let b = Backoff::new(ms(100), 2.0, ms(2000), Jitter::None);
        let mut rng = Rng::new(0);
        let got: alloc::vec::Vec<u128> =
            (0..7).map(|n| b.delay(n, Duration::ZERO, &mut rng).as_millis()).collect();
        assert_eq!(got, [100, 200, 400, 800, 1600, 2000, 2000]);
    }

    #[test]
    fn each_kind_fills_its_window_and_no_more() {
        let cases = [
            (Jitter::Full, 0.0, 400.0),
            (Jitter::Equal, 200.0, 400.0),
            (Jitter::Decorrelated, 100.0, 900.0),
            (Jitter::Additive { min: ms(10), max: ms(50) }, 410.0, 450.0),
            (Jitter::Proportional { share: 0.25 }, 300.0, 500.0),
            (Jitter::Proportional { share: 7.0 }, 0.0, 800.0),
        ];
        for (jitter, lo, hi) in cases {
            let b = Backoff::new(ms(100), 2.0, ms(60_000), jitter);
            let mut rng = Rng::new(3);
            let (mut least, mut most, mut sum) = (f64::MAX, 0.0f64, 0.0);
            for _ in 0..20_000 {
                let d = b.delay(2, ms(300), &mut rng).as_secs_f64() * 1000.0;
                least = least.min(d);
                most = most.max(d);
                sum += d;
            }
            let slack = (hi - lo) * 0.01;
            assert!(least >= lo && least < lo + slack, "{jitter:?} least {least}");
            assert!(most <= hi && most > hi - slack, "{jitter:?} most {most}");
            assert!((sum / 20_000.0 - (lo + hi) / 2.0).abs() < slack, "{jitter:?}");
        }
    }

    #[test]
    fn absurd_settings_still_give_a_delay() {
        let mut rng = Rng::new(0);
        for factor in [0.0, 0.5, 1.0, f64::INFINITY, f64::NAN, -3.0, f64::MAX] {
            for base in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
                let b = Backoff::new(base, factor, ms(5), Jitter::None);
                for n in [0, 1, 2, 63, 1_000_000, u32::MAX] {
                    let d = b.delay(n, Duration::MAX, &mut rng);
                    assert!(d <= ms(5));
                    assert!(!base.is_zero() || d.is_zero());
                }
            }
        }
    }

    fn any_jitter() -> impl Strategy<Value = Jitter> {
        prop_oneof![
            Just(Jitter::None),
            Just(Jitter::Full),
            Just(Jitter::Equal),
            Just(Jitter::Decorrelated),
            (any::<u64>(), any::<u64>()).prop_map(|(a, b)| Jitter::Additive {
                min: Duration::from_nanos(a),
                max: Duration::from_nanos(b)
            }),
            any::<f64>().prop_map(|share| Jitter::Proportional { share }),
        ]
    }

    proptest! {
        /// No delay exceeds the cap, and `longest` is an upper bound.
        #[test]
        fn no_delay_exceeds_the_cap(
            base in any::<u64>(), factor in any::<f64>(), cap in any::<u64>(), jitter in any_jitter(),
            n in any::<u32>(), previous in any::<u64>(), seed in any::<u64>(),
        ) {
            let cap = Duration::from_nanos(cap);
            let b = Backoff::new(Duration::from_nanos(base), factor, cap, jitter);
            let d = b.delay(n, Duration::from_nanos(previous), &mut Rng::new(seed));
            // The cap is stored as a float, whose error above 2^53 ns (104 days) is 1 in 10^15.
            prop_assert!(d.as_secs_f64() <= cap.as_secs_f64() * (1.0 + 1e-15));
            if jitter != Jitter::Decorrelated {
                prop_assert!(d <= b.longest(n));
            }
        }
    }
}
