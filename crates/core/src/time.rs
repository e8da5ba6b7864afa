//! Two clocks with separate types: [`Mono`] for waits, [`Wall`] for dates.
//!
//! Why two types: a wait measured on the wall clock ends early or never when the clock is adjusted,
//! and an HTTP date has no meaning on the monotonic clock. The types do not convert into each other;
//! a driver reads both clocks together and passes them as [`Now`].
//!
//! All arithmetic saturates, so no input makes a wait overflow to zero.

pub mod calendar;

use core::ops::{Add, AddAssign};
use core::time::Duration;

/// A duration in nanoseconds, saturating at `u64::MAX` (584 years).
#[must_use]
pub const fn nanos(span: Duration) -> u64 {
    let n = span.as_nanos();
    if n > u64::MAX as u128 { u64::MAX } else { n as u64 }
}

/// A duration from fractional seconds. NaN and negative values give zero; values that are too large
/// saturate.
#[must_use]
pub fn seconds(s: f64) -> Duration {
    Duration::from_nanos((s * 1e9) as u64)
}

/// A time on the monotonic clock, in nanoseconds since the start of the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(u64);

impl Mono {
    /// The start of the driver.
    pub const ZERO: Mono = Mono(0);
    /// The latest time; it is never reached.
    pub const FAR: Mono = Mono(u64::MAX);

    /// The time `n` nanoseconds after the start.
    #[must_use]
    pub const fn from_nanos(n: u64) -> Mono {
        Mono(n)
    }

    /// The time `ms` milliseconds after the start.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Mono {
        Mono(ms.saturating_mul(1_000_000))
    }

    /// The time `s` seconds after the start; NaN and negative values give the start.
    #[must_use]
    pub fn from_secs_f64(s: f64) -> Mono {
        Mono((s * 1e9) as u64)
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the start.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The duration since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This time minus `span`, but not before the start.
    #[must_use]
    pub const fn saturating_sub(self, span: Duration) -> Mono {
        Mono(self.0.saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;
    fn add(self, span: Duration) -> Mono {
        Mono(self.0.saturating_add(nanos(span)))
    }
}

impl AddAssign<Duration> for Mono {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

/// A time on the wall clock, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(i64);

impl Wall {
    /// The time `ms` milliseconds after 1970.
    #[must_use]
    pub const fn from_millis(ms: i64) -> Wall {
        Wall(ms)
    }

    /// The time `s` seconds after 1970, saturating.
    #[must_use]
    pub const fn from_secs(s: i64) -> Wall {
        Wall(s.saturating_mul(1000))
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Milliseconds since `earlier`; negative if `earlier` is later.
    #[must_use]
    pub const fn millis_since(self, earlier: Wall) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Both clocks, read together by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The monotonic time, for waits.
    pub mono: Mono,
    /// The wall-clock time, for dates.
    pub wall: Wall,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Mono::FAR + Duration::from_secs(1), Mono::FAR);
        assert_eq!(Mono::ZERO + Duration::MAX, Mono::FAR);
        assert_eq!(Mono::ZERO.since(Mono::FAR), Duration::ZERO);
        assert_eq!(Mono::from_secs_f64(f64::NAN), Mono::ZERO);
        assert_eq!(Mono::from_secs_f64(-1.0), Mono::ZERO);
        assert_eq!(Mono::from_secs_f64(f64::INFINITY), Mono::FAR);
        assert_eq!(seconds(1.5), Duration::from_millis(1500));
        assert_eq!(seconds(f64::NAN), Duration::ZERO);
        assert_eq!(Wall::from_secs(i64::MAX).millis(), i64::MAX);
    }
}
