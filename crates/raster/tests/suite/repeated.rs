//! Small files that claim much: blocks that are named many times, and blocks that are not there.

use std::io::Write;
use std::sync::Arc;

use tidegate_raster::{
    CogOptions, FileBytes, GeoTiff, MemoryBytes, PixelWindow, Predictor, RasterLimits, SampleData, to_cog,
};

const BLOCK: u32 = 16;

/// A TIFF of one band of bytes in deflated tiles: their packed bytes, and which of them each tile names.
fn tiff((width, height, block): (u32, u32, u32), packed: &[Vec<u8>], named: &[Option<usize>]) -> GeoTiff {
    let count = named.len() as u32;
    let tables = 8 + 2 + 11 * 12 + 4;
    let mut at = tables + 8 * count;
    let places: Vec<(u32, u32)> = packed
        .iter()
        .map(|bytes| {
            at += bytes.len() as u32;
            (at - bytes.len() as u32, bytes.len() as u32)
        })
        .collect();
    let of = |which: &Option<usize>| which.map_or((0, 0), |which| places[which]);
    let mut file = b"II\x2a\0\x08\0\0\0\x0b\0".to_vec();
    let tags = [
        (256, 1, width),
        (257, 1, height),
        (258, 1, 8),
        (259, 1, 8),
        (262, 1, 1),
        (277, 1, 1),
        (284, 1, 1),
        (322, 1, block),
        (323, 1, block),
        (324, count, tables),
        (325, count, tables + 4 * count),
    ];
    for (tag, count, value) in tags {
        file.extend((tag as u16).to_le_bytes());
        file.extend([4, 0]);
        file.extend(count.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    file.extend([0; 4]);
    named.iter().for_each(|which| file.extend(of(which).0.to_le_bytes()));
    named.iter().for_each(|which| file.extend(of(which).1.to_le_bytes()));
    packed.iter().for_each(|bytes| file.extend(bytes));
    GeoTiff::open(Arc::new(MemoryBytes::new("m.tif", file)), &RasterLimits::default()).unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn bytes(raster: &GeoTiff) -> Vec<u8> {
    let head = raster.head();
    let SampleData::U8(all) =
        raster.read_window(0, &[0], PixelWindow::whole(head.width, head.height)).unwrap().data
    else {
        return Vec::new();
    };
    all
}

#[test]
fn a_block_that_is_named_many_times_is_each_of_them() {
    let side = BLOCK as usize;
    let blocks: Vec<Vec<u8>> =
        (0..2).map(|n| (0..side * side).map(|at| (at * (n + 3)) as u8).collect()).collect();
    let packed: Vec<Vec<u8>> = blocks.iter().map(|block| zlib(block)).collect();
    let named: Vec<Option<usize>> = (0..64).map(|at| Some(usize::from(at % 9 == 4))).collect();
    let raster = tiff((8 * BLOCK, 8 * BLOCK, BLOCK), &packed, &named);
    let found = bytes(&raster);
    for (at, value) in found.iter().enumerate() {
        let (x, y) = (at % (8 * side), at / (8 * side));
        let which = named[y / side * 8 + x / side].unwrap();
        assert_eq!(*value, blocks[which][y % side * side + x % side], "{x} {y}");
    }
    // Tiles that repeat are packed once, and are all there.
    let dir = tempfile::tempdir().unwrap();
    for block in [BLOCK, 2 * BLOCK] {
        let path = dir.path().join(format!("{block}.tif"));
        to_cog(&raster, &path, &CogOptions { block, ..CogOptions::default() }).unwrap();
        let made =
            GeoTiff::open(Arc::new(FileBytes::open(&path).unwrap()), &RasterLimits::default()).unwrap();
        assert!(bytes(&made) == found, "{block}");
    }
}

/// Tiles and overviews that are made once and used again are those of a file in which each block lies on its own.
#[test]
fn repeated_blocks_give_the_file_of_single_ones() {
    let side = BLOCK as usize;
    let blocks: Vec<Vec<u8>> =
        (0..3).map(|n| (0..side * side).map(|at| (at * at / (n + 7)) as u8).collect()).collect();
    // Mostly one block, in some places others, and one that is not there.
    let of = |at: usize| match at % 61 {
        7 | 8 => Some(1),
        30 => None,
        45..=48 => Some(2),
        _ => Some(0),
    };
    let (across, down) = (21, 18);
    let size = (across * BLOCK - 5, down * BLOCK - 9, BLOCK);
    let named: Vec<Option<usize>> = (0..(across * down) as usize).map(of).collect();
    let packed: Vec<Vec<u8>> = blocks.iter().map(|block| zlib(block)).collect();
    let repeated = tiff(size, &packed, &named);
    let alone: Vec<Vec<u8>> = named.iter().map(|which| packed[which.unwrap_or(0)].clone()).collect();
    let places: Vec<Option<usize>> = named.iter().enumerate().map(|(at, which)| which.map(|_| at)).collect();
    let single = tiff(size, &alone, &places);
    let dir = tempfile::tempdir().unwrap();
    for (block, threads, predictor) in [
        (BLOCK, 1, Predictor::None),
        (BLOCK, 2, Predictor::Horizontal),
        (2 * BLOCK, 1, Predictor::Horizontal),
        (2 * BLOCK, 2, Predictor::Horizontal),
    ] {
        let options = CogOptions { block, threads, predictor: Some(predictor), ..CogOptions::default() };
        let made = [&repeated, &single].map(|raster| {
            let path = dir.path().join("cog.tif");
            to_cog(raster, &path, &options).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            bytes
        });
        assert!(made[0] == made[1], "{block} {threads}");
    }
}

#[test]
fn gigabytes_of_nothing_cost_nothing() {
    let packed = [zlib(&vec![7; 4096 * 4096])];
    let mut named = vec![None; 12 * 12];
    named[13] = Some(0);
    let raster = tiff((48_000, 48_000, 4096), &packed, &named);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cog.tif");
    to_cog(&raster, &path, &CogOptions { block: 4096, ..CogOptions::default() }).unwrap();
    let made = GeoTiff::open(Arc::new(FileBytes::open(&path).unwrap()), &RasterLimits::default()).unwrap();
    for (x, y, value) in [(0, 0, 0), (4096, 4096, 7), (8191, 8191, 7), (8192, 4096, 0), (47_999, 47_999, 0)] {
        let found = made.read_window(0, &[0], PixelWindow::new(x, y, 1, 1)).unwrap();
        assert_eq!(found.data, SampleData::U8(vec![value]), "{x} {y}");
    }
}
