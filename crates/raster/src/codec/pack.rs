//! From values to packed bytes.
//!
//! Deflate without an effort that is asked for first packs a sixteenth of the block both ways: with the effort
//! of GDAL, and without a search for repetitions ([`literal`]). If the search does not make the sample
//! shorter, the block is packed without it. The answer depends on the block alone.

use libdeflater::{CompressionLvl, Compressor};
use weezl::{BitOrder, encode};

use super::{BlockForm, literal, predict};
use crate::error::RasterError;
use crate::head::{Compression, Predictor};
use crate::sample::SampleData;

/// The effort of deflate if none is given: GDAL's.
const DEFLATE_EFFORT: i32 = 6;
/// The effort of zstd if none is given: GDAL's.
const ZSTD_EFFORT: i32 = 9;
/// Bytes that are sampled in one place.
const SAMPLE_LEN: usize = 16 << 10;
/// One of so many bytes is sampled.
const SAMPLE_SHARE: usize = 16;

/// Packs blocks of one form; one for each thread.
pub(crate) struct Packer {
    form: BlockForm,
    codec: PackCodec,
}

enum PackCodec {
    None,
    Deflate(Box<Deflate>),
    Zstd(Box<zstd::bulk::Compressor<'static>>),
    Lzw,
}

struct Deflate {
    codec: Compressor,
    /// Room for the longest result: it is filled again for each block.
    room: Vec<u8>,
    sample: Vec<u8>,
    /// Whether no effort is asked for.
    is_free: bool,
}

impl Deflate {
    fn pack(&mut self, bytes: &[u8]) -> Result<Vec<u8>, RasterError> {
        if self.is_free && self.is_noise(bytes)? {
            return Ok(literal::pack(bytes));
        }
        let len = self.searched(bytes)?;
        Ok(self.room.get(..len).unwrap_or_default().to_vec())
    }

    /// Packs with a search for repetitions, into `room`.
    fn searched(&mut self, bytes: &[u8]) -> Result<usize, RasterError> {
        let most = self.codec.zlib_compress_bound(bytes.len());
        self.room.resize(most.max(self.room.len()), 0);
        let made = self.codec.zlib_compress(bytes, &mut self.room);
        made.map_err(|error| RasterError::block(format!("cannot be packed: {error}")))
    }

    /// Whether a search for repetitions finds none worth its while, by a sample.
    fn is_noise(&mut self, bytes: &[u8]) -> Result<bool, RasterError> {
        let places = (bytes.len() / SAMPLE_SHARE / SAMPLE_LEN).max(2);
        let step = bytes.len() / places;
        if step < 4 * SAMPLE_LEN {
            return Ok(false);
        }
        let mut sample = std::mem::take(&mut self.sample);
        sample.clear();
        for place in 0..places {
            let from = place * step + (step - SAMPLE_LEN) / 2;
            sample.extend_from_slice(bytes.get(from..from + SAMPLE_LEN).unwrap_or_default());
        }
        let searched = self.searched(&sample)?;
        let is_noise = literal::packed_len(&sample) <= searched;
        self.sample = sample;
        Ok(is_noise)
    }
}

impl Packer {
    /// Checks the effort that is asked for.
    pub(crate) fn new(form: BlockForm, effort: Option<i32>) -> Result<Packer, RasterError> {
        let refused = |what: &str, range: &str| {
            RasterError::invalid(format!("the effort of {what} is {range}, not {}", effort.unwrap_or(0)))
        };
        let codec = match form.compression {
            Compression::None => PackCodec::None,
            Compression::Lzw => PackCodec::Lzw,
            Compression::Deflate => {
                let level = CompressionLvl::new(effort.unwrap_or(DEFLATE_EFFORT))
                    .ok()
                    .filter(|_| effort.is_none_or(|effort| effort >= 1))
                    .ok_or_else(|| refused("deflate", "1 to 12"))?;
                let codec = Compressor::new(level);
                let is_free = effort.is_none();
                PackCodec::Deflate(Box::new(Deflate { codec, room: Vec::new(), sample: Vec::new(), is_free }))
            }
            Compression::Zstd => {
                let level = effort.unwrap_or(ZSTD_EFFORT);
                if !(1..=22).contains(&level) {
                    return Err(refused("zstd", "1 to 22"));
                }
                PackCodec::Zstd(Box::new(zstd::bulk::Compressor::new(level)?))
            }
            other => return Err(RasterError::unsupported(format!("{other} is not written"))),
        };
        Ok(Packer { form, codec })
    }

    /// Packs the values of a block, in little-endian order.
    pub(crate) fn pack(&mut self, mut data: SampleData) -> Result<Vec<u8>, RasterError> {
        let together = self.form.together as usize;
        let row_len = self.form.width as usize * together;
        let size = data.sample().size();
        match self.form.predictor {
            Predictor::None => {}
            Predictor::Horizontal => predict::do_horizontal(&mut data, row_len, together),
            Predictor::Float => predict::do_float(data.bytes_mut(), row_len, together, size),
        }
        if cfg!(target_endian = "big") && self.form.predictor != Predictor::Float && size > 1 {
            data.bytes_mut().chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        self.bytes(data.bytes())
    }

    /// Packs bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<Vec<u8>, RasterError> {
        match &mut self.codec {
            PackCodec::None => Ok(bytes.to_vec()),
            PackCodec::Deflate(codec) => codec.pack(bytes),
            PackCodec::Zstd(codec) => Ok(codec.compress(bytes)?),
            PackCodec::Lzw => {
                let mut out = Vec::new();
                let result = encode::Encoder::with_tiff_size_switch(BitOrder::Msb, 8)
                    .into_vec(&mut out)
                    .encode_all(bytes);
                result.status.map_err(|error| RasterError::block(format!("cannot be packed: {error}")))?;
                Ok(out)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::unpack;
    use crate::sample::SampleType;
    use proptest::prelude::*;

    fn form(
        compression: Compression,
        predictor: Predictor,
        sample: SampleType,
        width: u32,
        together: u32,
    ) -> BlockForm {
        BlockForm {
            compression,
            predictor,
            sample,
            bits: sample.size() as u16 * 8,
            width,
            together,
            big_endian: false,
            reversed: false,
            photometric: 1,
            jpeg_tables: None,
            lerc_in: 0,
        }
    }

    const ALL: [Compression; 4] =
        [Compression::None, Compression::Deflate, Compression::Zstd, Compression::Lzw];

    proptest! {
        #[test]
        fn what_is_packed_can_be_unpacked(
            seed in prop::collection::vec(any::<u8>(), 1..64),
            width in 1u32..40, rows in 1u32..12, together in 1u32..6, codec in 0usize..4, kind in 0usize..10, predictor in 0..3,
        ) {
            let sample = SampleType::ALL[kind];
            let predictor = match predictor {
                0 => Predictor::None,
                1 => Predictor::Horizontal,
                _ if sample.is_float() => Predictor::Float,
                _ => Predictor::None,
            };
            let form = form(ALL[codec], predictor, sample, width, together);
            let mut data = SampleData::zeros(sample, (width * rows * together) as usize);
            for (byte, seed) in data.bytes_mut().iter_mut().zip(seed.iter().cycle()) {
                *byte = *seed;
            }
            let packed = Packer::new(form.clone(), None).unwrap().pack(data.clone()).unwrap();
            let found = unpack(&packed, &form, rows, rows).unwrap();
            prop_assert_eq!(found.bytes(), data.bytes());
            // One byte less or more is noticed, or does not count.
            if packed.len() > 1 && form.compression != Compression::Lzw {
                prop_assert!(unpack(&packed[..packed.len() - 1], &form, rows, rows).is_err());
            }
            prop_assert!(unpack(&packed, &form, rows + 1, rows + 1).is_err());
        }

        #[test]
        fn hostile_bytes_end_in_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200), codec in 0u16..8) {
            let codecs = [
                Compression::None, Compression::Deflate, Compression::Zstd, Compression::Lzw, Compression::PackBits,
                Compression::Jpeg, Compression::WebP, Compression::Lerc,
            ];
            let form = form(codecs[usize::from(codec)], Predictor::None, SampleType::U8, 16, 3);
            let _ = unpack(&bytes, &form, 16, 16);
        }
    }

    #[test]
    fn a_block_that_unpacks_to_more_is_refused() {
        for compression in [Compression::Deflate, Compression::Zstd] {
            let form = form(compression, Predictor::None, SampleType::U8, 16, 1);
            let bomb = Packer::new(form.clone(), None).unwrap().bytes(&vec![0; 100_000_000]).unwrap();
            assert!(unpack(&bomb, &form, 16, 16).is_err());
        }
    }

    /// A block of 256 x 256 pixels of three bands.
    fn block(mut value: impl FnMut(i64, i64, u64) -> i64) -> SampleData {
        let mut state = 1u64;
        let mut values = Vec::new();
        for at in 0..256 * 256 * 3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            values.push(value(at / 3 % 256, at / 768, state >> 33) as u16);
        }
        SampleData::U16(values)
    }

    #[test]
    fn without_an_effort_blocks_are_not_longer_than_with_that_of_gdal() {
        let form = form(Compression::Deflate, Predictor::Horizontal, SampleType::U16, 256, 3);
        let blocks = [
            ("noise", true, block(|_, _, chance| 900 + (chance % 200) as i64)),
            (
                "noise in a half",
                true,
                block(|x, y, chance| if x < y { 0 } else { 900 + (chance % 200) as i64 }),
            ),
            ("hills", false, block(|x, y, _| 900 + (x * x + y * y) / 500)),
            ("steps", false, block(|x, y, _| 100 * (x / 16 + y / 16))),
            ("repeated", false, block(|x, y, _| (x % 40) * (x % 7) + (y % 30) * (y % 11))),
        ];
        for (name, is_noise, data) in blocks {
            let free = Packer::new(form.clone(), None).unwrap().pack(data.clone()).unwrap();
            let asked = Packer::new(form.clone(), Some(DEFLATE_EFFORT)).unwrap().pack(data.clone()).unwrap();
            assert!(free.len() <= asked.len() + asked.len() / 100, "{name}: {} {}", free.len(), asked.len());
            assert_eq!(free != asked, is_noise, "{name}");
            assert_eq!(unpack(&free, &form, 256, 256).unwrap().bytes(), data.bytes(), "{name}");
        }
    }

    #[test]
    fn efforts_out_of_range_are_refused() {
        for (compression, effort) in
            [(Compression::Deflate, 13), (Compression::Deflate, 0), (Compression::Zstd, 0)]
        {
            assert!(
                Packer::new(form(compression, Predictor::None, SampleType::U8, 1, 1), Some(effort)).is_err()
            );
        }
    }
}
