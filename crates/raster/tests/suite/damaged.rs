//! Blocks with damaged bytes, of every codec: values, or an error of the block; never a panic, and
//! never more memory than the block has.

use std::path::Path;
use std::sync::Arc;

use tidegate_raster::{GeoTiff, MemoryBytes, RasterCause, RasterLimits, thumbnail, validate};

/// A small generator, so that the damage is the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn open(bytes: Vec<u8>) -> GeoTiff {
    GeoTiff::open(Arc::new(MemoryBytes::new("damaged.tif", bytes)), &RasterLimits::default()).unwrap()
}

/// One to eight damages within the blocks: a bit, a byte, a run of bytes, or bytes of elsewhere.
fn damage(bytes: &mut [u8], blocks: &[std::ops::Range<u64>], chance: &mut Chance) {
    for _ in 0..=chance.below(8) {
        let block = &blocks[chance.below(blocks.len() as u64) as usize];
        let len = block.end - block.start;
        // The heads of blocks decide most, so every second damage is there.
        let reach = if chance.below(2) == 0 { len.min(24) } else { len };
        let at = (block.start + chance.below(reach)) as usize;
        match chance.below(4) {
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][chance.below(5) as usize],
            2 => {
                let end = (at + 1 + chance.below(8) as usize).min(block.end as usize);
                let value = chance.below(256) as u8;
                bytes[at..end].fill(value);
            }
            _ => {
                let from = (block.start + chance.below(len)) as usize;
                let run = (1 + chance.below(16) as usize).min(block.end as usize - at.max(from));
                bytes.copy_within(from..from + run, at);
            }
        }
    }
}

#[test]
fn damaged_blocks_of_every_codec_are_errors_and_no_panics() {
    for name in ["jpeg", "webp", "lerc", "lerc-zstd", "packbits", "separate-lzw", "twelve-bits", "mask"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.tif"));
        let sound = std::fs::read(path).unwrap();
        let file = open(sound.clone());
        let blocks: Vec<_> =
            (0..file.blocks(0).unwrap()).filter_map(|at| file.block_place(0, at).unwrap()).collect();
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
        let mut refused = 0;
        for round in 0..400 {
            let mut bytes = sound.clone();
            damage(&mut bytes, &blocks, &mut chance);
            let file = open(bytes);
            let bands: Vec<u32> = (0..file.head().bands).collect();
            match file.read_window(0, &bands, file.head().window()) {
                Ok(samples) => assert_eq!(samples.pixels(), 37 * 29, "{name} {round}"),
                Err(error) => {
                    let expected =
                        matches!(error.cause, RasterCause::CorruptBlock | RasterCause::Unsupported);
                    assert!(expected, "{name} {round}: {error:?}");
                    assert!(error.message.contains("block"), "{name} {round}: {error}");
                    let found = validate(&file, true).unwrap();
                    assert!(!found.errors.is_empty(), "{name} {round}: validation misses {error}");
                    assert!(thumbnail(&file, 64).is_err(), "{name} {round}: a picture of {error}");
                    refused += 1;
                }
            }
        }
        // PackBits has nothing that could be wrong but its length.
        assert!(refused >= if name == "packbits" { 20 } else { 100 }, "{name}: {refused} of 400");
    }
}
