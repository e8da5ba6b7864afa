//! The arithmetic of kernels on values of any type.

use crate::sample::Pixel;

/// A value that kernels compute.
pub(crate) trait KernelNumber: Pixel {
    /// The nearest value of this type: the limits beyond them, halves upwards, as GDAL rounds. Integers
    /// have no NaN; it becomes 0.
    fn settle(value: f64) -> Self;
    /// A neighbour of this value, to keep apart from nodata.
    fn beside(self) -> Self;
    /// What full opacity is.
    fn opaque() -> Self;
}

macro_rules! unsigned {
    ($($kind:ident $opaque:expr),*) => {$(
        impl KernelNumber for $kind {
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

unsigned!(u8 255, u16 65535, u32 255, u64 255);

macro_rules! signed {
    ($($kind:ident $opaque:expr),*) => {$(
        impl KernelNumber for $kind {
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

signed!(i8 127, i16 32767, i32 255, i64 255);

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
}
