//! Makes sound files to damage: strips and tiles, with and without a COG's leaders, in every codec that
//! repair checks. Written from the standard, and sharing no code with what is tested.

use std::io::Write;

pub(crate) const WIDTH: usize = 700;
pub(crate) const HEIGHT: usize = 500;
pub(crate) const BANDS: usize = 3;

/// How to make a file.
#[derive(Clone)]
pub(crate) struct Recipe {
    /// The side of a tile; strips if there is none.
    pub(crate) tile: Option<usize>,
    pub(crate) rows: usize,
    pub(crate) codec: u16,
    pub(crate) predictor: u16,
    pub(crate) big_endian: bool,
    /// An overview, and the leaders of a COG.
    pub(crate) cog: bool,
    pub(crate) geokeys: bool,
    pub(crate) nodata: Option<&'static str>,
}

impl Default for Recipe {
    fn default() -> Recipe {
        Recipe {
            tile: None,
            rows: 25,
            codec: 8,
            predictor: 2,
            big_endian: false,
            cog: false,
            geokeys: true,
            nodata: Some("0"),
        }
    }
}

impl Recipe {
    pub(crate) fn strips(codec: u16) -> Recipe {
        Recipe { codec, predictor: if codec == 1 { 1 } else { 2 }, ..Recipe::default() }
    }

    pub(crate) fn tiles(codec: u16) -> Recipe {
        Recipe { tile: Some(128), ..Recipe::strips(codec) }
    }

    pub(crate) fn cog() -> Recipe {
        Recipe { cog: true, ..Recipe::tiles(8) }
    }
}

/// A picture that is smooth with some noise, as pictures from above are.
pub(crate) fn picture() -> Vec<u16> {
    let mut noise = 12345u32;
    let mut all = Vec::with_capacity(WIDTH * HEIGHT * BANDS);
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            for band in 0..BANDS {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let smooth =
                    3000.0 + 900.0 * (x as f64 / 90.0).sin() + 700.0 * (y as f64 / 60.0 + band as f64).cos();
                all.push(smooth as u16 + (noise >> 27) as u16);
            }
        }
    }
    all
}

/// A file, with where its fields are.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) bytes: Vec<u8>,
    pub(crate) big_endian: bool,
    /// Where each directory begins.
    pub(crate) directories: Vec<usize>,
}

impl Made {
    pub(crate) fn u16(&self, at: usize) -> u16 {
        let two = self.bytes[at..at + 2].try_into().unwrap();
        if self.big_endian { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) }
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        let four = self.bytes[at..at + 4].try_into().unwrap();
        if self.big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
    }

    pub(crate) fn put16(&mut self, at: usize, value: u16) {
        let two = if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes[at..at + 2].copy_from_slice(&two);
    }

    pub(crate) fn put32(&mut self, at: usize, value: u32) {
        let four = if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes[at..at + 4].copy_from_slice(&four);
    }

    /// Where the entry of a tag is in the first directory.
    pub(crate) fn entry(&self, tag: u16) -> usize {
        let at = self.directories[0];
        let count = usize::from(self.u16(at));
        (0..count).map(|i| at + 2 + i * 12).find(|at| self.u16(*at) == tag).unwrap()
    }

    /// Where the values of a tag are that do not fit in its entry.
    pub(crate) fn values(&self, tag: u16) -> (usize, usize) {
        let entry = self.entry(tag);
        (self.u32(entry + 8) as usize, self.u32(entry + 4) as usize)
    }

    /// Changes every value of a tag of four bytes each.
    pub(crate) fn each32(&mut self, tag: u16, change: impl Fn(usize, u32) -> u32) {
        let (at, count) = self.values(tag);
        for i in 0..count {
            let value = self.u32(at + i * 4);
            self.put32(at + i * 4, change(i, value));
        }
    }

    /// Removes a tag from the first directory.
    pub(crate) fn remove(&mut self, tag: u16) {
        let entry = self.entry(tag);
        let at = self.directories[0];
        let count = self.u16(at);
        let end = at + 2 + usize::from(count) * 12 + 4;
        self.bytes.copy_within(entry + 12..end, entry);
        self.put16(at, count - 1);
    }

    /// Where a block is, and how long.
    pub(crate) fn block(&self, i: usize) -> (usize, usize) {
        let tiled = {
            let at = self.directories[0];
            (0..usize::from(self.u16(at))).any(|i| self.u16(at + 2 + i * 12) == 324)
        };
        let (places, lens) = if tiled { (324, 325) } else { (273, 279) };
        let (at, _) = self.values(places);
        let (len, _) = self.values(lens);
        (self.u32(at + i * 4) as usize, self.u32(len + i * 4) as usize)
    }
}

struct Level {
    width: usize,
    height: usize,
    pixels: Vec<u16>,
}

fn put(out: &mut Vec<u8>, big_endian: bool, value: u64, len: usize) {
    let bytes = value.to_le_bytes();
    if big_endian { out.extend(bytes[..len].iter().rev()) } else { out.extend(&bytes[..len]) }
}

/// One block, packed.
fn packed(recipe: &Recipe, level: &Level, x0: usize, y0: usize, wide: usize, high: usize) -> Vec<u8> {
    let mut raw = Vec::new();
    for y in y0..y0 + high {
        let mut row: Vec<u16> = Vec::new();
        for x in x0..x0 + wide {
            for band in 0..BANDS {
                let inside = x < level.width && y < level.height;
                row.push(if inside { level.pixels[(y * level.width + x) * BANDS + band] } else { 0 });
            }
        }
        if recipe.predictor == 2 {
            for i in (BANDS..row.len()).rev() {
                row[i] = row[i].wrapping_sub(row[i - BANDS]);
            }
        }
        for value in row {
            put(&mut raw, recipe.big_endian, u64::from(value), 2);
        }
    }
    pack(recipe.codec, &raw)
}

pub(crate) fn pack(codec: u16, raw: &[u8]) -> Vec<u8> {
    match codec {
        1 => raw.to_vec(),
        5 => weezl::encode::Encoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8).encode(raw).unwrap(),
        8 => {
            let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            packer.write_all(raw).unwrap();
            packer.finish().unwrap()
        }
        50000 => {
            let mut packer = zstd::Encoder::new(Vec::new(), 3).unwrap();
            packer.include_checksum(true).unwrap();
            packer.write_all(raw).unwrap();
            packer.finish().unwrap()
        }
        _ => panic!("no such codec"),
    }
}

const GHOST: &str = "GDAL_STRUCTURAL_METADATA_SIZE=000140 bytes\nLAYOUT=IFDS_BEFORE_DATA\nBLOCK_ORDER=ROW_MAJOR\nBLOCK_LEADER=SIZE_AS_UINT4\nBLOCK_TRAILER=LAST_4_BYTES_REPEATED\nKNOWN_INCOMPATIBLE_EDITION=NO\n ";

/// Makes the file.
pub(crate) fn make(recipe: &Recipe) -> Made {
    let mut levels = vec![Level { width: WIDTH, height: HEIGHT, pixels: picture() }];
    if recipe.cog {
        let full = &levels[0];
        let (width, height) = (WIDTH / 2, HEIGHT / 2);
        let mut pixels = Vec::new();
        for y in 0..height {
            for x in 0..width {
                let from = (y * 2 * WIDTH + x * 2) * BANDS;
                pixels.extend_from_slice(&full.pixels[from..from + BANDS]);
            }
        }
        levels.push(Level { width, height, pixels });
    }
    let blocks: Vec<Vec<Vec<u8>>> = levels
        .iter()
        .map(|level| {
            let (wide, high) = recipe.tile.map_or((level.width, recipe.rows), |side| (side, side));
            let mut all = Vec::new();
            for y in (0..level.height).step_by(high) {
                for x in (0..level.width).step_by(wide) {
                    let rows = if recipe.tile.is_some() { high } else { high.min(level.height - y) };
                    all.push(packed(recipe, level, x, y, wide, rows));
                }
            }
            all
        })
        .collect();
    // Twice: once to know the places, once to write them.
    let mut places = blocks.iter().map(|all| vec![0usize; all.len()]).collect::<Vec<_>>();
    assemble(recipe, &levels, &blocks, &mut places);
    assemble(recipe, &levels, &blocks, &mut places)
}

fn assemble(recipe: &Recipe, levels: &[Level], blocks: &[Vec<Vec<u8>>], places: &mut [Vec<usize>]) -> Made {
    let be = recipe.big_endian;
    let mut out = if be { b"MM\0\x2a".to_vec() } else { b"II\x2a\0".to_vec() };
    let first = 8 + if recipe.cog { GHOST.len() + GHOST.len() % 2 } else { 0 };
    put(&mut out, be, first as u64, 4);
    if recipe.cog {
        out.extend(GHOST.as_bytes());
        out.resize(first, b' ');
    }
    let mut directories = Vec::new();
    for (i, level) in levels.iter().enumerate() {
        directories.push(out.len());
        let tags = tags(recipe, level, i > 0, &blocks[i], &places[i]);
        let mut after = out.len() + 2 + tags.len() * 12 + 4;
        put(&mut out, be, tags.len() as u64, 2);
        let mut values = Vec::new();
        for (tag, kind, count, bytes) in &tags {
            put(&mut out, be, u64::from(*tag), 2);
            put(&mut out, be, u64::from(*kind), 2);
            put(&mut out, be, *count as u64, 4);
            if bytes.len() <= 4 {
                out.extend(bytes);
                out.extend(std::iter::repeat_n(0, 4 - bytes.len()));
            } else {
                put(&mut out, be, after as u64, 4);
                values.extend(bytes);
                values.resize(values.len().next_multiple_of(2), 0);
                after = after - after % 2 + bytes.len().next_multiple_of(2);
            }
        }
        put(&mut out, be, if i + 1 < levels.len() { after as u64 } else { 0 }, 4);
        out.extend(values);
    }
    for i in (0..levels.len()).rev() {
        for (block, place) in blocks[i].iter().zip(places[i].iter_mut()) {
            if recipe.cog {
                out.extend((block.len() as u32).to_le_bytes());
            }
            *place = out.len();
            out.extend(block);
            if recipe.cog {
                out.extend(&block[block.len() - 4..]);
            }
        }
    }
    Made { bytes: out, big_endian: be, directories }
}

type Tag = (u16, u16, usize, Vec<u8>);

fn tags(recipe: &Recipe, level: &Level, reduced: bool, blocks: &[Vec<u8>], places: &[usize]) -> Vec<Tag> {
    let be = recipe.big_endian;
    let whole = |kind: u16, all: &[u64]| {
        let mut bytes = Vec::new();
        for value in all {
            put(&mut bytes, be, *value, if kind == 3 { 2 } else { 4 });
        }
        (kind, all.len(), bytes)
    };
    let doubles = |all: &[f64]| {
        let mut bytes = Vec::new();
        for value in all {
            put(&mut bytes, be, value.to_bits(), 8);
        }
        (12u16, all.len(), bytes)
    };
    let mut tags = vec![
        (254, whole(4, &[u64::from(reduced)])),
        (256, whole(4, &[level.width as u64])),
        (257, whole(4, &[level.height as u64])),
        (258, whole(3, &[16; BANDS])),
        (259, whole(3, &[u64::from(recipe.codec)])),
        (262, whole(3, &[1])),
        (277, whole(3, &[BANDS as u64])),
        (284, whole(3, &[1])),
        (317, whole(3, &[u64::from(recipe.predictor)])),
        (339, whole(3, &[1; BANDS])),
    ];
    let places: Vec<u64> = places.iter().map(|at| *at as u64).collect();
    let lens: Vec<u64> = blocks.iter().map(|block| block.len() as u64).collect();
    match recipe.tile {
        Some(side) => tags.extend([
            (322, whole(3, &[side as u64])),
            (323, whole(3, &[side as u64])),
            (324, whole(4, &places)),
            (325, whole(4, &lens)),
        ]),
        None => tags.extend([
            (273, whole(4, &places)),
            (278, whole(4, &[recipe.rows as u64])),
            (279, whole(4, &lens)),
        ]),
    }
    if !reduced {
        tags.push((33550, doubles(&[10.0, 10.0, 0.0])));
        tags.push((33922, doubles(&[0.0, 0.0, 0.0, 500_000.0, 5_000_000.0, 0.0])));
        if recipe.geokeys {
            let keys = [1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32633];
            tags.push((34735, whole(3, &keys)));
        }
        if let Some(nodata) = recipe.nodata {
            let mut bytes = nodata.as_bytes().to_vec();
            bytes.push(0);
            tags.push((42113, (2, bytes.len(), bytes)));
        }
    }
    tags.sort_by_key(|(tag, _)| *tag);
    tags.into_iter().map(|(tag, (kind, count, bytes))| (tag, kind, count, bytes)).collect()
}
