//! From the packed bytes of a block to its values, and the way there.
//!
//! A block is unpacked into a buffer of its exact size: no more is ever written, and less is an
//! error. Values lie as in the file: side by side for a pixel, or one band alone.

mod bits;
mod huffman;
mod literal;
mod pack;
mod pictures;
mod predict;
mod unpack;

pub(crate) use pack::Packer;
pub(crate) use pictures::kind_of as picture_kind;
pub(crate) use unpack::unpack;

use bytes::Bytes;

use crate::head::{Compression, Predictor};
use crate::sample::SampleType;

/// What must be known to unpack a block.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(all(feature = "jpeg", feature = "lerc")),
    allow(dead_code, reason = "a part of it is for the codecs that are left out")
)]
pub(crate) struct BlockForm {
    pub(crate) compression: Compression,
    pub(crate) predictor: Predictor,
    pub(crate) sample: SampleType,
    /// Bits of a value in the file.
    pub(crate) bits: u16,
    /// Columns of a block.
    pub(crate) width: u32,
    /// Values of a pixel in a block.
    pub(crate) together: u32,
    pub(crate) big_endian: bool,
    /// Bits of packed bytes are turned round (FillOrder 2).
    pub(crate) reversed: bool,
    pub(crate) photometric: u16,
    pub(crate) jpeg_tables: Option<Bytes>,
    /// What the bytes of LERC are packed in: 0 nothing, 1 deflate, 2 zstd.
    pub(crate) lerc_in: u64,
}

impl BlockForm {
    /// Bytes of a row in the file, unpacked.
    pub(crate) fn row_len(&self) -> u64 {
        let bits = u64::from(self.width) * u64::from(self.together) * u64::from(self.bits);
        bits.div_ceil(8)
    }

    /// Whether the values in the file are those of [`SampleType`], bit by bit.
    pub(crate) fn is_plain(&self) -> bool {
        usize::from(self.bits) == self.sample.size() * 8
    }
}
