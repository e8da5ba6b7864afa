//! The values of pixels: their type, and a buffer of them.
//!
//! A buffer is planar: all pixels of the first band, row by row, then those of the second. Kernels
//! work on one band at a time and read neighbours, so this is the order in which they read memory.

use std::fmt;
use std::str::FromStr;

use crate::error::RasterError;
use crate::head::NoData;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum SampleType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

impl SampleType {
    /// All of them.
    pub const ALL: [SampleType; 10] = [
        SampleType::U8,
        SampleType::I8,
        SampleType::U16,
        SampleType::I16,
        SampleType::U32,
        SampleType::I32,
        SampleType::U64,
        SampleType::I64,
        SampleType::F32,
        SampleType::F64,
    ];

    /// Its name, such as `uint16`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SampleType::U8 => "uint8",
            SampleType::I8 => "int8",
            SampleType::U16 => "uint16",
            SampleType::I16 => "int16",
            SampleType::U32 => "uint32",
            SampleType::I32 => "int32",
            SampleType::U64 => "uint64",
            SampleType::I64 => "int64",
            SampleType::F32 => "float32",
            SampleType::F64 => "float64",
        }
    }

    /// Bytes of a value.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            SampleType::U8 | SampleType::I8 => 1,
            SampleType::U16 | SampleType::I16 => 2,
            SampleType::U32 | SampleType::I32 | SampleType::F32 => 4,
            SampleType::U64 | SampleType::I64 | SampleType::F64 => 8,
        }
    }

    /// Whether it is a floating-point number.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, SampleType::F32 | SampleType::F64)
    }

    /// Whether it has negative values.
    #[must_use]
    pub fn is_signed(self) -> bool {
        !matches!(self, SampleType::U8 | SampleType::U16 | SampleType::U32 | SampleType::U64)
    }
}

impl fmt::Display for SampleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SampleType {
    type Err = RasterError;

    /// By its name, or by the one that GDAL gives it.
    fn from_str(name: &str) -> Result<SampleType, RasterError> {
        let lower = name.to_ascii_lowercase();
        let found = SampleType::ALL.into_iter().find(|kind| kind.name() == lower);
        found.or((lower == "byte").then_some(SampleType::U8)).ok_or_else(|| {
            let known = SampleType::ALL.map(SampleType::name).join(", ");
            let why = if lower.starts_with('c') { "; complex numbers are not supported" } else { "" };
            RasterError::invalid(format!("{name:?} is no sample type{why}; known are {known}"))
        })
    }
}

/// A value of a pixel.
pub trait Pixel: bytemuck::Pod + PartialOrd + Default + Send + Sync + 'static {
    /// Its type.
    const TYPE: SampleType;
    /// As a number of double precision.
    fn to_f64(self) -> f64;
    /// The nearest value of the type: rounded half away from zero, cut off at its limits. A NaN becomes 0 in integers.
    fn from_f64(value: f64) -> Self;
    /// A whole number, if the type holds it exactly.
    fn from_exact(value: i128) -> Option<Self>;
    /// As a whole number, if it is one of an integer type.
    fn to_exact(self) -> Option<i128>;
    /// The values of a buffer, if they are of this type.
    fn of(data: &SampleData) -> Option<&[Self]>;
    /// The values of a buffer, if they are of this type.
    fn of_mut(data: &mut SampleData) -> Option<&mut [Self]>;
    /// As a buffer.
    fn wrap(values: Vec<Self>) -> SampleData;
    /// Equal bits, or both NaN.
    fn same(self, other: Self) -> bool;
}

macro_rules! pixels {
    ($($kind:ident $type:ident $int:literal)*) => {
        /// Values of one type.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the names say it")]
        pub enum SampleData {
            $($kind(Vec<$type>)),*
        }

        impl SampleData {
            /// So many zeros.
            #[must_use]
            pub fn zeros(kind: SampleType, len: usize) -> SampleData {
                match kind { $(SampleType::$kind => SampleData::$kind(vec![Default::default(); len])),* }
            }

            /// Their type.
            #[must_use]
            pub fn sample(&self) -> SampleType {
                match self { $(SampleData::$kind(_) => SampleType::$kind),* }
            }

            /// How many.
            #[must_use]
            pub fn len(&self) -> usize {
                match self { $(SampleData::$kind(values) => values.len()),* }
            }

            /// Whether there is none.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Their bytes, in the order of this machine.
            #[must_use]
            pub fn bytes(&self) -> &[u8] {
                match self { $(SampleData::$kind(values) => bytemuck::cast_slice(values)),* }
            }

            /// Their bytes, in the order of this machine.
            pub fn bytes_mut(&mut self) -> &mut [u8] {
                match self { $(SampleData::$kind(values) => bytemuck::cast_slice_mut(values)),* }
            }

            /// One of them, as a number of double precision.
            #[must_use]
            pub fn get(&self, at: usize) -> Option<f64> {
                match self { $(SampleData::$kind(values) => values.get(at).map(|v| v.to_f64())),* }
            }

            /// Sets all to the nearest value of the type.
            pub fn fill(&mut self, value: &NoData) {
                match self { $(SampleData::$kind(values) => values.fill(value.nearest())),* }
            }
        }

        $(#[allow(clippy::cast_lossless, reason = "one text for all types")]
        impl Pixel for $type {
            const TYPE: SampleType = SampleType::$kind;
            #[inline]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline]
            fn from_f64(value: f64) -> $type {
                if $int { value.round() as $type } else { value as $type }
            }
            fn from_exact(value: i128) -> Option<$type> {
                let made = value as $type;
                (made as i128 == value).then_some(made)
            }
            fn to_exact(self) -> Option<i128> {
                $int.then_some(self as i128)
            }
            fn of(data: &SampleData) -> Option<&[$type]> {
                match data { SampleData::$kind(values) => Some(values), _ => None }
            }
            fn of_mut(data: &mut SampleData) -> Option<&mut [$type]> {
                match data { SampleData::$kind(values) => Some(values), _ => None }
            }
            fn wrap(values: Vec<$type>) -> SampleData {
                SampleData::$kind(values)
            }
            #[inline]
            #[allow(clippy::eq_op, reason = "NaN")]
            fn same(self, other: $type) -> bool {
                self == other || (self != self && other != other)
            }
        })*
    };
}

pixels! {
    U8 u8 true
    I8 i8 true
    U16 u16 true
    I16 i16 true
    U32 u32 true
    I32 i32 true
    U64 u64 true
    I64 i64 true
    F32 f32 false
    F64 f64 false
}

/// Runs a block with a name standing for the Rust type of a [`SampleType`]:
/// `with_pixel!(head.sample, T => kernel::<T>(…))`.
#[macro_export]
macro_rules! with_pixel {
    ($sample:expr, $T:ident => $body:expr) => {
        match $sample {
            $crate::SampleType::U8 => $crate::with_pixel!(@ $T u8 $body),
            $crate::SampleType::I8 => $crate::with_pixel!(@ $T i8 $body),
            $crate::SampleType::U16 => $crate::with_pixel!(@ $T u16 $body),
            $crate::SampleType::I16 => $crate::with_pixel!(@ $T i16 $body),
            $crate::SampleType::U32 => $crate::with_pixel!(@ $T u32 $body),
            $crate::SampleType::I32 => $crate::with_pixel!(@ $T i32 $body),
            $crate::SampleType::U64 => $crate::with_pixel!(@ $T u64 $body),
            $crate::SampleType::I64 => $crate::with_pixel!(@ $T i64 $body),
            $crate::SampleType::F32 => $crate::with_pixel!(@ $T f32 $body),
            $crate::SampleType::F64 => $crate::with_pixel!(@ $T f64 $body),
        }
    };
    (@ $T:ident $type:ident $body:expr) => {{
        type $T = $type;
        $body
    }};
}

/// The values of a window: planar, band after band, each row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bands.
    pub bands: u32,
    /// `bands × height × width` values.
    pub data: SampleData,
}

impl Samples {
    /// A window of zeros.
    #[must_use]
    pub fn zeros(sample: SampleType, width: u32, height: u32, bands: u32) -> Samples {
        let len = width as usize * height as usize * bands as usize;
        Samples { width, height, bands, data: SampleData::zeros(sample, len) }
    }

    /// Their type.
    #[must_use]
    pub fn sample(&self) -> SampleType {
        self.data.sample()
    }

    /// Pixels of a band.
    #[must_use]
    pub fn pixels(&self) -> usize {
        self.width as usize * self.height as usize
    }

    /// The values of a band, counted from 0, if they are of this type.
    #[must_use]
    pub fn band<T: Pixel>(&self, band: u32) -> Option<&[T]> {
        let (pixels, band) = (self.pixels(), band as usize);
        T::of(&self.data)?.get(band * pixels..(band + 1) * pixels)
    }

    /// The values of a band, counted from 0, if they are of this type.
    pub fn band_mut<T: Pixel>(&mut self, band: u32) -> Option<&mut [T]> {
        let (pixels, band) = (self.pixels(), band as usize);
        T::of_mut(&mut self.data)?.get_mut(band * pixels..(band + 1) * pixels)
    }

    /// A value, as a number of double precision.
    #[must_use]
    pub fn get(&self, band: u32, x: u32, y: u32) -> Option<f64> {
        let inside = band < self.bands && x < self.width && y < self.height;
        let at = (band as usize * self.height as usize + y as usize) * self.width as usize + x as usize;
        inside.then(|| self.data.get(at)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for kind in SampleType::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert_eq!("Byte".parse(), Ok(SampleType::U8));
        assert_eq!("UInt16".parse(), Ok(SampleType::U16));
        let error = "CFloat32".parse::<SampleType>().unwrap_err();
        assert!(error.message.contains("complex"), "{error}");
    }

    #[test]
    fn values_are_rounded_and_cut_off() {
        assert_eq!((u8::from_f64(2.5), u8::from_f64(-3.0), u8::from_f64(300.0)), (3, 0, 255));
        assert_eq!((i16::from_f64(-2.5), i16::from_f64(f64::NAN)), (-3, 0));
        assert_eq!((u8::from_exact(255), u8::from_exact(256), u8::from_exact(-1)), (Some(255), None, None));
        assert_eq!(u64::from_exact(i128::from(u64::MAX)), Some(u64::MAX));
    }

    #[test]
    fn bands_lie_one_after_the_other() {
        let mut samples = Samples::zeros(SampleType::U16, 3, 2, 2);
        samples.band_mut::<u16>(1).unwrap()[4] = 7;
        assert_eq!(samples.get(1, 1, 1), Some(7.0));
        assert_eq!(samples.get(2, 0, 0), None);
        assert!(samples.band::<u8>(0).is_none());
        assert_eq!(with_pixel!(samples.sample(), T => size_of::<T>()), 2);
    }
}
