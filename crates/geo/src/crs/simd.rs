//! Arithmetic on small blocks of numbers, which the compiler vectorises to SSE2.
//!
//! Why not wider instructions: they need detection at run time and unsafe code, and fused operations
//! would round differently from machine to machine.

use std::array::from_fn;
use std::f64::consts::{PI, TAU};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// PROJ's tolerance for a latitude beyond the pole and a longitude beyond 180°, in radians.
pub(super) const SLACK: f64 = 1e-12;

/// The largest longitude that PROJ accepts, in radians.
pub(super) const LONGITUDE_MAX: f64 = 10.0;

/// A longitude normalised to ±π, as PROJ does it.
#[inline]
pub(super) fn around(lon: f64) -> f64 {
    if lon.abs() < PI + SLACK { lon } else { lon + PI - TAU * ((lon + PI) / TAU).floor() - PI }
}

/// A block of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Simd<const N: usize>(pub(super) [f64; N]);

impl<const N: usize> Simd<N> {
    #[inline]
    pub(super) fn map(self, f: impl Fn(f64) -> f64) -> Simd<N> {
        Simd(self.0.map(f))
    }

    #[inline]
    pub(super) fn with(self, other: Simd<N>, f: impl Fn(f64, f64) -> f64) -> Simd<N> {
        Simd(from_fn(|i| f(self.0[i], other.0[i])))
    }

    #[inline]
    pub(super) fn all(self, is: impl Fn(f64) -> bool) -> bool {
        self.0.into_iter().all(is)
    }

    /// NaN where the condition does not hold for `other`.
    #[inline]
    pub(super) fn only(self, other: Simd<N>, is: impl Fn(f64) -> bool) -> Simd<N> {
        self.with(other, |this, other| if is(other) { this } else { f64::NAN })
    }

    #[inline]
    pub(super) fn sin_cos(self) -> (Simd<N>, Simd<N>) {
        let both = self.0.map(f64::sin_cos);
        (Simd(both.map(|(sin, _)| sin)), Simd(both.map(|(_, cos)| cos)))
    }

    /// The arc tangent of numbers up to 0.003.
    #[inline]
    pub(super) fn small_atan(self) -> Simd<N> {
        self * (self * self).polynomial([1.0, -1.0 / 3.0, 1.0 / 5.0, -1.0 / 7.0])
    }

    /// The polynomial with these coefficients, lowest degree first.
    #[inline]
    pub(super) fn polynomial<const K: usize>(self, terms: [f64; K]) -> Simd<N> {
        terms.into_iter().rev().fold(Simd([0.0; N]), |sum, term| sum * self + term)
    }
}

macro_rules! arithmetic {
    ($($operation:ident $name:ident $sign:tt),*) => {$(
        impl<const N: usize> $operation for Simd<N> {
            type Output = Simd<N>;
            #[inline]
            fn $name(self, other: Simd<N>) -> Simd<N> {
                self.with(other, |a, b| a $sign b)
            }
        }
        impl<const N: usize> $operation<f64> for Simd<N> {
            type Output = Simd<N>;
            #[inline]
            fn $name(self, other: f64) -> Simd<N> {
                self.map(|a| a $sign other)
            }
        }
        impl<const N: usize> $operation<Simd<N>> for f64 {
            type Output = Simd<N>;
            #[inline]
            fn $name(self, other: Simd<N>) -> Simd<N> {
                other.map(|b| self $sign b)
            }
        }
    )*};
}

arithmetic!(Add add +, Sub sub -, Mul mul *, Div div /);

impl<const N: usize> Neg for Simd<N> {
    type Output = Simd<N>;
    #[inline]
    fn neg(self) -> Simd<N> {
        self.map(|a| -a)
    }
}

/// Applies a function to each position of a block.
pub(super) fn one_by_one<const N: usize>(
    x: Simd<N>,
    y: Simd<N>,
    single: impl Fn(Simd<1>, Simd<1>) -> (Simd<1>, Simd<1>),
) -> (Simd<N>, Simd<N>) {
    let (mut x, mut y) = (x.0, y.0);
    for (x, y) in x.iter_mut().zip(&mut y) {
        (Simd([*x]), Simd([*y])) = single(Simd([*x]), Simd([*y]));
    }
    (Simd(x), Simd(y))
}

/// Positions in a block.
const BLOCK: usize = 4;

/// A projection of our own.
pub(super) trait BlockProjection {
    /// Longitudes and latitudes in radians to eastings and northings; NaN outside its domain.
    fn forward<const N: usize>(&self, lon: Simd<N>, lat: Simd<N>) -> (Simd<N>, Simd<N>);

    /// The inverse of [`BlockProjection::forward`].
    fn inverse<const N: usize>(&self, x: Simd<N>, y: Simd<N>) -> (Simd<N>, Simd<N>);

    /// [`BlockProjection::forward`] of all positions.
    fn project(&self, x: &mut [f64], y: &mut [f64]) {
        in_blocks(x, y, |x, y| self.forward(x, y), |x, y| self.forward(x, y));
    }

    /// [`BlockProjection::inverse`] of all positions.
    fn unproject(&self, x: &mut [f64], y: &mut [f64]) {
        in_blocks(x, y, |x, y| self.inverse(x, y), |x, y| self.inverse(x, y));
    }
}

/// Applies a function to two slices, in blocks and the rest one by one. Both must give the same bits:
/// geometries that share a vertex still share it afterwards.
#[inline]
pub(super) fn in_blocks(
    x: &mut [f64],
    y: &mut [f64],
    block: impl Fn(Simd<BLOCK>, Simd<BLOCK>) -> (Simd<BLOCK>, Simd<BLOCK>),
    single: impl Fn(Simd<1>, Simd<1>) -> (Simd<1>, Simd<1>),
) {
    let ((x_blocks, x_rest), (y_blocks, y_rest)) = (x.as_chunks_mut::<BLOCK>(), y.as_chunks_mut::<BLOCK>());
    for (x, y) in x_blocks.iter_mut().zip(y_blocks) {
        (Simd(*x), Simd(*y)) = block(Simd(*x), Simd(*y));
    }
    for (x, y) in x_rest.iter_mut().zip(y_rest) {
        (Simd([*x]), Simd([*y])) = single(Simd([*x]), Simd([*y]));
    }
}
