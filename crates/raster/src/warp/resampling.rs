//! The methods of resampling, by name.

/// How a value is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Resampling {
    /// The value of the pixel at the position.
    #[default]
    Nearest,
    /// Two by two pixels.
    Bilinear,
    /// Four by four pixels.
    Cubic,
    /// The mean over the area of the pixel.
    Average,
    /// The commonest value in the area of the pixel.
    Mode,
}

impl Resampling {
    /// Every method with its name.
    pub const ALL: [(&'static str, Resampling); 5] = [
        ("nearest", Resampling::Nearest),
        ("bilinear", Resampling::Bilinear),
        ("cubic", Resampling::Cubic),
        ("average", Resampling::Average),
        ("mode", Resampling::Mode),
    ];

    /// How many pixels the kernel reaches at full size.
    #[must_use]
    pub fn radius(self) -> u32 {
        match self {
            Resampling::Bilinear => 1,
            Resampling::Cubic => 2,
            Resampling::Nearest | Resampling::Average | Resampling::Mode => 0,
        }
    }

    /// Whether it works on the area of a pixel and not on its centre.
    #[must_use]
    pub fn is_areal(self) -> bool {
        matches!(self, Resampling::Average | Resampling::Mode)
    }
}

impl std::str::FromStr for Resampling {
    type Err = String;

    fn from_str(text: &str) -> Result<Resampling, String> {
        let name = if text == "near" { "nearest" } else { text };
        let found = Resampling::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, method)| *method).ok_or_else(|| {
            format!("unknown resampling {text:?}; expected nearest, bilinear, cubic, average or mode")
        })
    }
}
