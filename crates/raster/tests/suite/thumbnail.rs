//! Small pictures of rasters: which pixels they show, what is transparent, and what they cost.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use tidegate_raster::{
    CogOptions, GeoTiff, MemoryBytes, RasterCause, RasterLimits, Thumbnail, outline, thumbnail, to_cog,
};

fn open(bytes: Vec<u8>) -> GeoTiff {
    GeoTiff::open(Arc::new(MemoryBytes::new("test.tif", bytes)), &RasterLimits::default()).unwrap()
}

fn fixture(name: &str) -> GeoTiff {
    open(std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)).unwrap())
}

/// The channels and the pixels of a picture, by the rules of PNG.
fn decoded(picture: &Thumbnail) -> (usize, Vec<Vec<u8>>) {
    let png = &picture.png;
    assert_eq!(png[..8], [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n']);
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    assert_eq!((number(16), number(20), png[24]), (picture.width, picture.height, 8));
    let channels = [(0u8, 1), (2, 3), (4, 2), (6, 4)].iter().find(|(kind, _)| *kind == png[25]).unwrap().1;
    let (mut at, mut packed) = (8, Vec::new());
    while at < png.len() {
        let len = number(at) as usize;
        let mut sum = flate2::Crc::new();
        sum.update(&png[at + 4..at + 8 + len]);
        assert_eq!(sum.sum(), number(at + 8 + len), "the checksum of a chunk");
        if png[at + 4..at + 8] == *b"IDAT" {
            packed.extend(&png[at + 8..at + 8 + len]);
        }
        at += 12 + len;
    }
    let mut rows = Vec::new();
    flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut rows).unwrap();
    let row_len = picture.width as usize * channels;
    let (mut above, mut pixels) = (vec![0u8; row_len], Vec::new());
    for row in rows.chunks_exact(row_len + 1) {
        assert_eq!(row[0], 4, "the filter of a row");
        let mut here = vec![0u8; row_len];
        for x in 0..row_len {
            let before = |row: &[u8]| if x < channels { 0 } else { i32::from(row[x - channels]) };
            let (a, b, c) = (before(&here), i32::from(above[x]), before(&above));
            let nearest = [a, b, c].into_iter().min_by_key(|n| (a + b - c - n).abs()).unwrap();
            here[x] = row[x + 1].wrapping_add(nearest as u8);
        }
        pixels.extend(here.chunks_exact(channels).map(<[u8]>::to_vec));
        above = here;
    }
    assert_eq!(pixels.len(), (picture.width * picture.height) as usize);
    (channels, pixels)
}

#[test]
fn colours_of_8_bits_are_shown_as_they_are() {
    let picture = thumbnail(&fixture("webp.tif"), 256).unwrap();
    assert_eq!((picture.width, picture.height), (37, 29));
    let (channels, pixels) = decoded(&picture);
    assert_eq!(channels, 3, "nothing is transparent");
    for (x, y) in [(0, 0), (36, 28), (5, 17)] {
        let expected: Vec<u8> = (0..3).map(|band| ((7 * x + 13 * y + 31 * band) % 251) as u8).collect();
        assert_eq!(pixels[(y * 37 + x) as usize], expected, "{x} {y}");
    }
    let small = thumbnail(&fixture("webp.tif"), 10).unwrap();
    assert_eq!((small.width, small.height), (10, 8));
    // The pixel in the middle of what the small one stands for.
    assert_eq!(decoded(&small).1[0], pixels[37 + 1]);
}

#[test]
fn masked_pixels_and_nodata_are_transparent() {
    let (channels, pixels) = decoded(&thumbnail(&fixture("mask.tif"), 256).unwrap());
    assert_eq!(channels, 2, "grey and opacity");
    let clear: Vec<usize> = (0..37 * 29).filter(|at| pixels[*at][1] == 0).collect();
    let expected: Vec<usize> = (3..9).flat_map(|y| (4..20).map(move |x| y * 37 + x)).collect();
    assert_eq!(clear, expected);
    let (_, pixels) = decoded(&thumbnail(&fixture("sparse.tif"), 256).unwrap());
    let clear = pixels.iter().filter(|pixel| pixel[1] == 0).count();
    assert_eq!(clear, 37 * 29 - 16 * 16, "blocks that are absent are nodata");
}

#[test]
fn other_values_are_stretched() {
    for name in ["lerc.tif", "packbits.tif", "big-endian-float.tif", "half-float.tif"] {
        let (channels, pixels) = decoded(&thumbnail(&fixture(name), 256).unwrap());
        assert_eq!(channels, 1, "{name}");
        let (low, high) = (pixels.iter().min().unwrap()[0], pixels.iter().max().unwrap()[0]);
        assert_eq!((low, high), (0, 255), "{name}");
        // The 2nd percentile of 0 to 250 is 5, the 98th 245.
        let grey = |value: f64| ((value - 5.0) / 240.0 * 255.0).round() as i32;
        assert!((i32::from(pixels[10][0]) - grey(70.0)).abs() <= 2, "{name}: {}", pixels[10][0]);
    }
}

/// A file of 8 bits and one band in tiles of 256 pixels a side, of which none is there.
fn empty(side: u32) -> Vec<u8> {
    let tiles = side.div_ceil(256).pow(2);
    let tags: [(u16, u32, u32); 9] = [
        (256, 1, side),
        (257, 1, side),
        (258, 1, 8),
        (259, 1, 1),
        (262, 1, 1),
        (322, 1, 256),
        (323, 1, 256),
        (324, tiles, 134),
        (325, tiles, 134),
    ];
    let mut file = b"II\x2a\0\x08\0\0\0".to_vec();
    file.extend((tags.len() as u16).to_le_bytes());
    for (tag, count, value) in tags {
        file.extend(tag.to_le_bytes());
        file.extend(4u16.to_le_bytes());
        file.extend(count.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    file.resize(134 + 4 * tiles as usize, 0);
    file
}

#[test]
fn a_picture_comes_from_an_overview_or_costs_little() {
    let large = open(empty(8_000));
    let error = thumbnail(&large, 256).unwrap_err();
    assert_eq!(error.cause, RasterCause::TooLarge);
    assert!(error.message.contains("no overview is small enough: 64 MiB"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cog.tif");
    to_cog(&large, &path, &CogOptions { threads: 1, ..CogOptions::default() }).unwrap();
    let cog = open(std::fs::read(path).unwrap());
    let picture = thumbnail(&cog, 256).unwrap();
    assert_eq!((picture.width, picture.height), (256, 256));
    assert!(picture.png.len() < 1000, "{}", picture.png.len());
    // Few blocks of a raster without overviews are read.
    assert_eq!(thumbnail(&open(empty(4_000)), 256).unwrap().width, 256);
}

#[test]
fn an_outline_is_in_degrees_and_needs_a_system() {
    let ring = outline(fixture("webp.tif").head()).unwrap();
    assert_eq!((ring.len(), ring.first()), (33, ring.last()));
    // The file begins on the central meridian of its zone, at 4,900,000 m north.
    let (lon, lat) = ring[0];
    assert!((lon - 15.0).abs() < 1e-9 && (lat - 44.2538).abs() < 1e-3, "{lon} {lat}");
    assert_eq!(outline(open(empty(256)).head()), None);
}
