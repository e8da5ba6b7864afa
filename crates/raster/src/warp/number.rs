//! The arithmetic of kernels on values of any type.

use crate::sample::Pixel;

/// A value that kernels compute.
pub(crate) trait KernelNumber: Pixel {
    /// Whether it is a whole number of at most 16 bits, for which single precision is enough.
    const IS_NARROW: bool = false;
    /// The nearest value of this type: the limits beyond them, halves upwards, as GDAL rounds. Integers
    /// have no NaN; it becomes 0.
    fn settle(value: f64) -> Self;
    /// The same of a number of single precision. In narrow types, NaN becomes the smallest value.
    #[inline(always)]
    fn settle_single(value: f32) -> Self {
        Self::settle(f64::from(value))
    }
    /// As a number of single precision, exact for narrow types.
    #[inline(always)]
    fn to_single(self) -> f32 {
        self.to_f64() as f32
    }
    /// A neighbour of this value, to keep apart from nodata.
    fn beside(self) -> Self;
    /// What full opacity is.
    fn opaque() -> Self;
}

/// The largest whole number up to this one, or the next limit, in the lowest 16 bits. A cast of many numbers at
/// once is not one instruction on plain x86-64, because it must stay within limits of its own.
#[inline(always)]
fn whole(value: f32, min: f32, max: f32) -> u32 {
    // 2^23 and a half of it: what is added to it loses its fraction.
    const WHOLE: f32 = 12_582_912.0;
    let value = if value > min { value } else { min };
    let value = if value < max { value } else { max };
    let near = (value + WHOLE) - WHOLE;
    let below = near - if near > value { 1.0 } else { 0.0 };
    (below + WHOLE).to_bits()
}

/// What narrow types have of their own.
macro_rules! narrow {
    ($kind:ident true) => {
        const IS_NARROW: bool = true;
        #[inline(always)]
        fn settle_single(value: f32) -> $kind {
            whole(value + 0.5, f32::from($kind::MIN), f32::from($kind::MAX)) as $kind
        }
        #[inline(always)]
        fn to_single(self) -> f32 {
            f32::from(self)
        }
    };
    ($kind:ident false) => {};
}

macro_rules! unsigned {
    ($($kind:ident $is_narrow:ident $opaque:expr),*) => {$(
        impl KernelNumber for $kind {
            narrow!($kind $is_narrow);
            #[inline(always)]
            fn settle(value: f64) -> $kind {
                // A cast cuts off the fraction and stays within the limits.
                (value + 0.5) as $kind
            }
            #[inline(always)]
            fn beside(self) -> $kind {
                if self == $kind::MIN { $kind::MIN + 1 } else { self - 1 }
            }
            fn opaque() -> $kind {
                $opaque
            }
        }
    )*};
}

unsigned!(u8 true 255, u16 true 65535, u32 false 255, u64 false 255);

macro_rules! signed {
    ($($kind:ident $is_narrow:ident $opaque:expr),*) => {$(
        impl KernelNumber for $kind {
            narrow!($kind $is_narrow);
            #[inline(always)]
            fn settle(value: f64) -> $kind {
                (value + 0.5).floor() as $kind
            }
            #[inline(always)]
            fn beside(self) -> $kind {
                if self == $kind::MIN { $kind::MIN + 1 } else { self - 1 }
            }
            fn opaque() -> $kind {
                $opaque
            }
        }
    )*};
}

signed!(i8 true 127, i16 true 32767, i32 false 255, i64 false 255);

macro_rules! real {
    ($($kind:ident),*) => {$(
        impl KernelNumber for $kind {
            #[inline(always)]
            #[allow(clippy::unnecessary_cast, reason = "one macro for both types")]
            fn settle(value: f64) -> $kind {
                value as $kind
            }
            #[inline(always)]
            fn beside(self) -> $kind {
                if self == $kind::MAX { self.next_down() } else { self.next_up() }
            }
            fn opaque() -> $kind {
                255.0
            }
        }
    )*};
}

real!(f32, f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_up_and_limits_hold() {
        assert_eq!((u8::settle(2.5), u8::settle(-0.7), u8::settle(1e9)), (3, 0, 255));
        assert_eq!((i16::settle(-2.5), i16::settle(-2.6), i16::settle(f64::NAN)), (-2, -3, 0));
        assert_eq!((0u16.beside(), 7u16.beside(), i8::MIN.beside()), (1, 6, -127));
        assert!(0f32.beside() > 0.0 && f64::MAX.beside() < f64::MAX);
    }

    #[test]
    fn single_precision_settles_as_double() {
        fn check<T: KernelNumber + std::fmt::Debug>() {
            assert!(T::IS_NARROW);
            for value in (-1_200_000..1_200_000).map(|n| n as f32 / 16.0) {
                assert_eq!(T::settle_single(value), T::settle(f64::from(value)), "{value}");
            }
            for value in [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN] {
                assert_eq!(T::settle_single(value), T::settle(f64::from(value)), "{value}");
            }
        }
        check::<u8>();
        check::<i8>();
        check::<u16>();
        check::<i16>();
    }
}
