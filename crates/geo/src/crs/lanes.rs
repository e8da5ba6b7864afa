//! Several numbers that go through the same arithmetic, so that the compiler works on two at a time
//! and the processor waits for none. Why not its widest instructions: they would have to be asked
//! for at run time, in unsafe code, and round differently from machine to machine.

use std::array::from_fn;
use std::f64::consts::{PI, TAU};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// What PROJ forgives in a latitude beyond a pole and in a longitude beyond half a turn, in radians.
pub(super) const SLACK: f64 = 1e-12;

/// The longitude in radians beyond which PROJ refuses.
pub(super) const LONGITUDE_MAX: f64 = 10.0;

/// A longitude within half a turn, as PROJ takes it.
#[inline]
pub(super) fn around(lon: f64) -> f64 {
    if lon.abs() < PI + SLACK { lon } else { lon + PI - TAU * ((lon + PI) / TAU).floor() - PI }
}

/// Numbers side by side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lanes<const N: usize>(pub(super) [f64; N]);

impl<const N: usize> Lanes<N> {
    #[inline]
    pub(super) fn map(self, f: impl Fn(f64) -> f64) -> Lanes<N> {
        Lanes(self.0.map(f))
    }

    #[inline]
    pub(super) fn with(self, other: Lanes<N>, f: impl Fn(f64, f64) -> f64) -> Lanes<N> {
        Lanes(from_fn(|i| f(self.0[i], other.0[i])))
    }

    #[inline]
    pub(super) fn all(self, is: impl Fn(f64) -> bool) -> bool {
        self.0.into_iter().all(is)
    }

    /// NaN where `other` is not so.
    #[inline]
    pub(super) fn only(self, other: Lanes<N>, is: impl Fn(f64) -> bool) -> Lanes<N> {
        self.with(other, |this, other| if is(other) { this } else { f64::NAN })
    }

    #[inline]
    pub(super) fn sin_cos(self) -> (Lanes<N>, Lanes<N>) {
        let both = self.0.map(f64::sin_cos);
        (Lanes(both.map(|(sin, _)| sin)), Lanes(both.map(|(_, cos)| cos)))
    }

    /// The angles of tangents up to 0.003.
    #[inline]
    pub(super) fn small_atan(self) -> Lanes<N> {
        self * (self * self).polynomial([1.0, -1.0 / 3.0, 1.0 / 5.0, -1.0 / 7.0])
    }

    /// The sum of the terms with the powers of these, the first with none.
    #[inline]
    pub(super) fn polynomial<const K: usize>(self, terms: [f64; K]) -> Lanes<N> {
        terms.into_iter().rev().fold(Lanes([0.0; N]), |sum, term| sum * self + term)
    }
}

macro_rules! arithmetic {
    ($($operation:ident $name:ident $sign:tt),*) => {$(
        impl<const N: usize> $operation for Lanes<N> {
            type Output = Lanes<N>;
            #[inline]
            fn $name(self, other: Lanes<N>) -> Lanes<N> {
                self.with(other, |a, b| a $sign b)
            }
        }
        impl<const N: usize> $operation<f64> for Lanes<N> {
            type Output = Lanes<N>;
            #[inline]
            fn $name(self, other: f64) -> Lanes<N> {
                self.map(|a| a $sign other)
            }
        }
        impl<const N: usize> $operation<Lanes<N>> for f64 {
            type Output = Lanes<N>;
            #[inline]
            fn $name(self, other: Lanes<N>) -> Lanes<N> {
                other.map(|b| self $sign b)
            }
        }
    )*};
}

arithmetic!(Add add +, Sub sub -, Mul mul *, Div div /);

impl<const N: usize> Neg for Lanes<N> {
    type Output = Lanes<N>;
    #[inline]
    fn neg(self) -> Lanes<N> {
        self.map(|a| -a)
    }
}

/// Each by itself.
pub(super) fn one_by_one<const N: usize>(
    x: Lanes<N>,
    y: Lanes<N>,
    single: impl Fn(Lanes<1>, Lanes<1>) -> (Lanes<1>, Lanes<1>),
) -> (Lanes<N>, Lanes<N>) {
    let (mut x, mut y) = (x.0, y.0);
    for (x, y) in x.iter_mut().zip(&mut y) {
        (Lanes([*x]), Lanes([*y])) = single(Lanes([*x]), Lanes([*y]));
    }
    (Lanes(x), Lanes(y))
}

/// Positions that are computed together.
const BLOCK: usize = 4;

/// A projection of our own, over as many positions as there are.
pub(super) trait Projects {
    /// Longitudes and latitudes in radians to eastings and northings; NaN where there are none.
    fn forward<const N: usize>(&self, lon: Lanes<N>, lat: Lanes<N>) -> (Lanes<N>, Lanes<N>);

    /// Back from [`Projects::forward`].
    fn inverse<const N: usize>(&self, x: Lanes<N>, y: Lanes<N>) -> (Lanes<N>, Lanes<N>);

    /// [`Projects::forward`] of all positions.
    fn project(&self, x: &mut [f64], y: &mut [f64]) {
        in_blocks(x, y, |x, y| self.forward(x, y), |x, y| self.forward(x, y));
    }

    /// [`Projects::inverse`] of all positions.
    fn unproject(&self, x: &mut [f64], y: &mut [f64]) {
        in_blocks(x, y, |x, y| self.inverse(x, y), |x, y| self.inverse(x, y));
    }
}

/// Two slices through a function, in blocks and then one by one. What becomes of a position must not
/// hang on its neighbours: two geometries that share a corner share it afterwards.
#[inline]
pub(super) fn in_blocks(
    x: &mut [f64],
    y: &mut [f64],
    block: impl Fn(Lanes<BLOCK>, Lanes<BLOCK>) -> (Lanes<BLOCK>, Lanes<BLOCK>),
    single: impl Fn(Lanes<1>, Lanes<1>) -> (Lanes<1>, Lanes<1>),
) {
    let ((x_blocks, x_rest), (y_blocks, y_rest)) = (x.as_chunks_mut::<BLOCK>(), y.as_chunks_mut::<BLOCK>());
    for (x, y) in x_blocks.iter_mut().zip(y_blocks) {
        (Lanes(*x), Lanes(*y)) = block(Lanes(*x), Lanes(*y));
    }
    for (x, y) in x_rest.iter_mut().zip(y_rest) {
        (Lanes([*x]), Lanes([*y])) = single(Lanes([*x]), Lanes([*y]));
    }
}
