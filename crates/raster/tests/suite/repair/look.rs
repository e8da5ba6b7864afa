//! Reads a sound file to compare its pixels. Strict, and sharing no code with what is tested.

use std::collections::BTreeMap;
use std::io::Read;

use crate::repair::make::{BANDS, HEIGHT, Made, WIDTH};

/// The values of each tag as whole numbers.
type Tags = BTreeMap<u16, Vec<u64>>;

/// The pixels and the mask of a file.
pub(crate) struct Looked {
    pub(crate) pixels: Vec<u16>,
    /// Per pixel, whether it is there; nothing if the file has no mask.
    pub(crate) mask: Option<Vec<bool>>,
    pub(crate) tags: Tags,
}

pub(crate) fn look(bytes: &[u8]) -> Looked {
    let big_endian = match &bytes[..4] {
        b"II\x2a\0" => false,
        b"MM\0\x2a" => true,
        other => panic!("not a TIFF: {other:?}"),
    };
    let file = Made { bytes: bytes.to_vec(), big_endian, directories: Vec::new() };
    let (mut at, mut first, mut mask) = (file.u32(4) as usize, None, None);
    while at != 0 {
        let (tags, next) = directory(&file, at);
        match tags[&254][0] {
            0 => assert!(first.replace(tags).is_none(), "two pictures"),
            4 => mask = Some(tags),
            _ => {}
        }
        at = next;
    }
    let tags = first.unwrap();
    let raw = unpacked(&file, &tags, BANDS * 16);
    let mut pixels = vec![0; WIDTH * HEIGHT * BANDS];
    for (x0, y0, wide, block) in raw {
        for (row, bytes) in block.chunks(wide * BANDS * 2).enumerate() {
            let two = |two: &[u8]| {
                if big_endian {
                    u16::from_be_bytes([two[0], two[1]])
                } else {
                    u16::from_le_bytes([two[0], two[1]])
                }
            };
            let mut values: Vec<u16> = bytes.chunks(2).map(two).collect();
            if tags.get(&317).is_some_and(|p| p[0] == 2) {
                for i in BANDS..values.len() {
                    values[i] = values[i].wrapping_add(values[i - BANDS]);
                }
            }
            if y0 + row < HEIGHT {
                let n = wide.min(WIDTH - x0) * BANDS;
                let to = ((y0 + row) * WIDTH + x0) * BANDS;
                pixels[to..to + n].copy_from_slice(&values[..n]);
            }
        }
    }
    let mask = mask.map(|tags| {
        let mut all = vec![false; WIDTH * HEIGHT];
        for (x0, y0, wide, block) in unpacked(&file, &tags, 1) {
            for (row, bytes) in block.chunks(wide.div_ceil(8)).enumerate() {
                for x in (0..wide).filter(|x| x0 + x < WIDTH && y0 + row < HEIGHT) {
                    all[(y0 + row) * WIDTH + x0 + x] = bytes[x / 8] & (0x80 >> (x % 8)) != 0;
                }
            }
        }
        all
    });
    Looked { pixels, mask, tags }
}

fn directory(file: &Made, at: usize) -> (Tags, usize) {
    let count = usize::from(file.u16(at));
    let mut tags = Tags::new();
    let mut last = 0;
    for i in 0..count {
        let entry = at + 2 + i * 12;
        let (tag, kind, n) = (file.u16(entry), file.u16(entry + 2), file.u32(entry + 4) as usize);
        assert!(tag > last, "tags in order");
        last = tag;
        let len = [0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8][usize::from(kind)];
        let from = if len * n > 4 { file.u32(entry + 8) as usize } else { entry + 8 };
        let value = |i: usize| match len {
            1 => u64::from(file.bytes[from + i]),
            2 => u64::from(file.u16(from + i * 2)),
            4 => u64::from(file.u32(from + i * 4)),
            _ => 0,
        };
        tags.insert(tag, (0..n).map(value).collect());
    }
    (tags, file.u32(at + 2 + count * 12) as usize)
}

/// Each block that is there, with its corner and its width.
fn unpacked(file: &Made, tags: &Tags, bits: usize) -> Vec<(usize, usize, usize, Vec<u8>)> {
    let tiled = tags.contains_key(&322);
    let (wide, high) = if tiled {
        (tags[&322][0] as usize, tags[&323][0] as usize)
    } else {
        (WIDTH, tags[&278][0] as usize)
    };
    let (places, lens) = if tiled { (&tags[&324], &tags[&325]) } else { (&tags[&273], &tags[&279]) };
    let across = if tiled { WIDTH.div_ceil(wide) } else { 1 };
    assert_eq!(places.len(), across * HEIGHT.div_ceil(high));
    let mut all = Vec::new();
    for (i, (at, len)) in places.iter().zip(lens).enumerate() {
        if *at == 0 && *len == 0 {
            continue;
        }
        let (x0, y0) = ((i % across) * wide, (i / across) * high);
        let rows = if tiled { high } else { high.min(HEIGHT - y0) };
        let packed = &file.bytes[*at as usize..(*at + *len) as usize];
        let mut block = Vec::new();
        match tags[&259][0] {
            1 => block = packed.to_vec(),
            5 => {
                block = weezl::decode::Decoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8)
                    .decode(packed)
                    .unwrap();
            }
            8 => {
                flate2::read::ZlibDecoder::new(packed).read_to_end(&mut block).unwrap();
            }
            50000 => block = zstd::decode_all(packed).unwrap(),
            other => panic!("codec {other}"),
        }
        assert_eq!(block.len(), (wide * bits).div_ceil(8) * rows, "block {i}");
        all.push((x0, y0, wide, block));
    }
    all
}
