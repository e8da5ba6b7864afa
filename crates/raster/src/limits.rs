//! How much a raster may ask for. Nothing is allocated before these are held.

use crate::head::Compression;

/// The limits of a raster that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RasterLimits {
    /// Pixels of one picture.
    pub pixels_max: u64,
    /// Bands.
    pub bands_max: u32,
    /// Bytes of a block, unpacked.
    pub block_len_max: u64,
    /// Directories of a file.
    pub directories_max: usize,
    /// Bytes of the values of one tag.
    pub tag_len_max: u64,
    /// Bytes of the values of all tags that are kept.
    pub tags_len_max: u64,
    /// Bytes of unpacked blocks that are kept for the next window.
    pub cache_len_max: usize,
    /// Bytes of one window that is read.
    pub window_len_max: u64,
}

impl Default for RasterLimits {
    fn default() -> RasterLimits {
        RasterLimits {
            pixels_max: 1 << 36,
            bands_max: 4096,
            block_len_max: 64 << 20,
            directories_max: 1024,
            tag_len_max: 64 << 20,
            tags_len_max: 128 << 20,
            cache_len_max: 64 << 20,
            window_len_max: 1 << 30,
        }
    }
}

impl RasterLimits {
    /// The most bytes that a packed block may have: what does not shrink grows by a few. LZW alone
    /// writes up to twelve bits for a byte.
    #[must_use]
    pub fn packed_len_max(compression: Compression, unpacked: u64) -> u64 {
        let growth = if compression == Compression::Lzw { unpacked / 2 } else { unpacked / 8 };
        unpacked.saturating_add(growth).saturating_add(1024)
    }
}
