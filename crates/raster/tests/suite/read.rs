//! Files that GDAL wrote (`fixtures/make.py`), files that were damaged, and files beside them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_raster::{
    ByteSource, CogOptions, Compression, FileBytes, GeoTiff, MemoryBytes, PixelWindow, PlacedBy, RasterCause,
    RasterError, RasterLimits, SampleType, to_cog, validate,
};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn opened(path: &Path) -> GeoTiff {
    GeoTiff::open(Arc::new(FileBytes::open(path).unwrap()), &RasterLimits::default()).unwrap()
}

fn memory(bytes: Vec<u8>) -> Result<GeoTiff, RasterError> {
    GeoTiff::open(Arc::new(MemoryBytes::new("m.tif", bytes)), &RasterLimits::default())
}

fn all_bands(file: &GeoTiff) -> Vec<u32> {
    (0..file.head().bands).collect()
}

fn expected(band: u32, x: u32, y: u32, modulo: u32) -> f64 {
    f64::from((7 * x + 13 * y + 31 * band) % modulo)
}

/// The largest difference to the formula.
fn off_by(file: &GeoTiff, modulo: u32) -> f64 {
    let head = file.head();
    let all = file.read_window(0, &all_bands(file), head.window()).unwrap();
    let mut most: f64 = 0.0;
    for (band, y, x) in (0..head.bands)
        .flat_map(|b| (0..head.height).flat_map(move |y| (0..head.width).map(move |x| (b, y, x))))
    {
        most = most.max((all.get(band, x, y).unwrap() - expected(band, x, y, modulo)).abs());
    }
    most
}

#[test]
fn every_codec_and_layout_of_gdal() {
    for (name, sample, bands, compression, modulo) in [
        ("webp.tif", SampleType::U8, 3, Compression::WebP, 251),
        ("lerc.tif", SampleType::F32, 1, Compression::Lerc, 251),
        ("lerc-zstd.tif", SampleType::I16, 2, Compression::Lerc, 251),
        ("packbits.tif", SampleType::U16, 1, Compression::PackBits, 251),
        ("one-bit.tif", SampleType::U8, 1, Compression::None, 2),
        ("twelve-bits.tif", SampleType::U16, 2, Compression::Deflate, 251),
        ("three-bytes.tif", SampleType::U32, 1, Compression::Deflate, 251),
        ("big-endian-three-bytes.tif", SampleType::U32, 1, Compression::Deflate, 251),
        ("half-float.tif", SampleType::F32, 1, Compression::Lzw, 251),
        ("big-endian-float.tif", SampleType::F64, 2, Compression::Deflate, 251),
        ("separate-lzw.tif", SampleType::I32, 3, Compression::Lzw, 251),
        ("mask.tif", SampleType::U8, 1, Compression::Zstd, 251),
    ] {
        let file = opened(&fixture(name));
        let head = file.head();
        assert_eq!((head.width, head.height, head.bands, head.sample), (37, 29, bands, sample), "{name}");
        assert_eq!(head.levels[0].compression, compression, "{name}");
        assert_eq!(head.grid().unwrap().crs.unwrap().to_string(), "EPSG:32633", "{name}");
        assert_eq!(off_by(&file, modulo), 0.0, "{name}");
    }
}

#[test]
fn jpeg_is_near() {
    let file = opened(&fixture("jpeg.tif"));
    let all = file.read_window(0, &[0, 1, 2], file.head().window()).unwrap();
    // A flat part of the picture: the formula jumps elsewhere, which JPEG cannot follow.
    assert_eq!(all.sample(), SampleType::U8);
    assert!(off_by(&file, 251) < 200.0);
    let mean: f64 = (0..29)
        .flat_map(|y| (0..37).map(move |x| (x, y)))
        .map(|(x, y)| (all.get(0, x, y).unwrap() - expected(0, x, y, 251)).abs())
        .sum::<f64>()
        / (37.0 * 29.0);
    assert!(mean < 20.0, "{mean}");
}

#[test]
fn blocks_that_are_not_there_are_nodata() {
    let file = opened(&fixture("sparse.tif"));
    let all = file.read_window(0, &[0], file.head().window()).unwrap();
    assert_eq!(all.get(0, 3, 3), Some(expected(0, 3, 3, 251)));
    assert_eq!(all.get(0, 20, 3), Some(-9999.0));
    let found = validate(&file, true).unwrap();
    assert_eq!((found.blocks, found.absent, found.unpacked), (6, 5, 1));
}

#[test]
fn the_mask_is_read() {
    let file = opened(&fixture("mask.tif"));
    let mask = file.read_mask(0, file.head().window()).unwrap().unwrap();
    for (y, x) in (0..29).flat_map(|y| (0..37).map(move |x| (y, x))) {
        let masked = (3..9).contains(&y) && (4..20).contains(&x);
        assert_eq!(mask[y * 37 + x], if masked { 0 } else { 255 });
    }
}

#[test]
fn windows_are_parts_of_the_whole() {
    for name in ["separate-lzw.tif", "twelve-bits.tif", "packbits.tif", "lerc-zstd.tif"] {
        let limits = RasterLimits { cache_len_max: 0, ..RasterLimits::default() };
        let file = GeoTiff::open(Arc::new(FileBytes::open(&fixture(name)).unwrap()), &limits).unwrap();
        let bands = all_bands(&file);
        let all = file.read_window(0, &bands, file.head().window()).unwrap();
        for window in [
            PixelWindow::new(0, 0, 1, 1),
            PixelWindow::new(15, 7, 3, 11),
            PixelWindow::new(36, 28, 1, 1),
            PixelWindow::new(0, 10, 37, 2),
        ] {
            let part = file.read_window(0, &bands, window).unwrap();
            for (band, y, x) in bands.iter().flat_map(|b| {
                (0..window.height).flat_map(move |y| (0..window.width).map(move |x| (*b, y, x)))
            }) {
                assert_eq!(part.get(band, x, y), all.get(band, window.x + x, window.y + y), "{name}");
            }
        }
        for window in
            [PixelWindow::new(0, 0, 0, 1), PixelWindow::new(36, 0, 2, 1), PixelWindow::new(u32::MAX, 0, 2, 1)]
        {
            assert_eq!(file.read_window(0, &bands, window).unwrap_err().cause, RasterCause::Invalid);
        }
        assert_eq!(
            file.read_window(0, &[9], PixelWindow::new(0, 0, 1, 1)).unwrap_err().cause,
            RasterCause::Invalid
        );
        assert_eq!(
            file.read_window(7, &[0], PixelWindow::new(0, 0, 1, 1)).unwrap_err().cause,
            RasterCause::Invalid
        );
    }
}

#[test]
fn every_fixture_becomes_a_cog_with_the_same_pixels() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "jpeg.tif",
        "webp.tif",
        "lerc.tif",
        "packbits.tif",
        "one-bit.tif",
        "twelve-bits.tif",
        "half-float.tif",
        "big-endian-float.tif",
        "separate-lzw.tif",
        "sparse.tif",
        "mask.tif",
    ] {
        let from = opened(&fixture(name));
        for (compression, threads) in [(Compression::Zstd, 1), (Compression::Deflate, 3)] {
            let path = dir.path().join("out.tif");
            let options = CogOptions { block: 16, compression, threads, ..CogOptions::default() };
            let summary = to_cog(&from, &path, &options).unwrap();
            assert_eq!(summary.overviews, 2, "{name}");
            let to = opened(&path);
            let bands = all_bands(&from);
            assert_eq!(
                from.read_window(0, &bands, from.head().window()).unwrap(),
                to.read_window(0, &bands, to.head().window()).unwrap(),
                "{name}"
            );
            assert_eq!(from.head().grid().unwrap(), to.head().grid().unwrap());
            assert_eq!(from.head().nodata, to.head().nodata);
            assert_eq!(
                from.read_mask(0, from.head().window()).unwrap(),
                to.read_mask(0, to.head().window()).unwrap()
            );
            let found = validate(&to, true).unwrap();
            assert!(found.is_cog() && found.unpacked == found.blocks, "{name}: {found:?}");
        }
    }
}

#[test]
fn packed_blocks_are_copied_when_they_are_as_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("a.tif"), dir.path().join("b.tif"));
    // An effort that nobody would choose twice shows in the bytes.
    let slow = CogOptions { block: 16, effort: Some(1), ..CogOptions::default() };
    to_cog(&opened(&fixture("separate-lzw.tif")), &first, &slow).unwrap();
    let from = opened(&first);
    to_cog(&from, &second, &CogOptions { block: 16, ..CogOptions::default() }).unwrap();
    let to = opened(&second);
    for index in 0..from.blocks(0).unwrap() {
        assert_eq!(from.packed_block(0, index).unwrap(), to.packed_block(0, index).unwrap());
    }
}

#[test]
fn places_come_from_files_beside_it() {
    let mut bytes = std::fs::read(fixture("packbits.tif")).unwrap();
    // Tags that nobody knows take the place of those of GeoTIFF.
    for tag in [33550u16, 33922] {
        let at = bytes
            .windows(4)
            .position(|four| four == [tag.to_le_bytes(), 12u16.to_le_bytes()].concat())
            .unwrap();
        bytes[at + 1] = 0xff;
    }
    let plain = memory(bytes.clone()).unwrap();
    assert_eq!((plain.head().transform, plain.head().placed_by), (None, None));
    assert!(plain.head().grid().is_err());
    let open = |source: MemoryBytes| GeoTiff::open(Arc::new(source), &RasterLimits::default());
    let source = MemoryBytes::new("m.tif", bytes.clone());
    let file = open(source.clone().with_beside("tfw", &b"2\n0\n0\n-2\n101\n199\n"[..])).unwrap();
    assert_eq!(file.head().transform.unwrap().0, [100.0, 2.0, 0.0, 200.0, 0.0, -2.0]);
    assert_eq!(file.head().placed_by, Some(PlacedBy::WorldFile));
    assert!(open(source.clone().with_beside("tfw", &b"2\n0\n0\nx"[..])).is_err());
    let aux = b"<PAMDataset><SRS>EPSG:3857</SRS><GeoTransform>1, 2, 0, 3, 0, -2</GeoTransform>\
        <Metadata><MDI key=\"A\">b</MDI></Metadata><PAMRasterBand band=\"1\"><Description>red</Description>\
        <NoDataValue>7</NoDataValue><Scale>0.5</Scale></PAMRasterBand></PAMDataset>";
    let file = open(source.clone().with_beside("aux.xml", &aux[..])).unwrap();
    let head = file.head();
    assert_eq!((head.transform.unwrap().0[0], head.placed_by), (1.0, Some(PlacedBy::AuxXml)));
    assert_eq!(head.grid().unwrap().crs.unwrap().to_string(), "EPSG:3857");
    assert_eq!((head.nodata.unwrap().value, head.band_info[0].scale), (7.0, 0.5));
    assert_eq!(head.band_info[0].name.as_deref(), Some("red"));
    assert_eq!(head.metadata, [(String::new(), "A".to_owned(), "b".to_owned())]);
    assert!(open(source.with_beside("aux.xml", &b"<PAM"[..])).is_err());
}

#[test]
fn a_mask_beside_it_is_read_or_the_raster_fails() {
    let bytes = std::fs::read(fixture("packbits.tif")).unwrap();
    let mask = std::fs::read(fixture("one-bit.tif")).unwrap();
    let source = MemoryBytes::new("m.tif", bytes);
    let open = |source: MemoryBytes| GeoTiff::open(Arc::new(source), &RasterLimits::default());
    let file = open(source.clone().with_beside("msk", mask.clone())).unwrap();
    let found = file.read_mask(0, PixelWindow::new(0, 0, 3, 1)).unwrap().unwrap();
    assert_eq!(found, [0, 255, 0]);
    assert!(open(source.clone().with_beside("msk", mask[..mask.len() / 2].to_vec())).is_err());
    assert!(open(source.with_beside("msk", &b"slow down"[..])).is_err());
}

/// The place of an entry of a tag in a little-endian classic file.
fn entry(bytes: &[u8], tag: u16) -> usize {
    let start = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes(bytes[start..start + 2].try_into().unwrap()));
    (0..count).map(|at| start + 2 + at * 12).find(|at| bytes[*at..*at + 2] == tag.to_le_bytes()).unwrap()
}

fn with_value(bytes: &[u8], tag: u16, value: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = entry(&bytes, tag);
    bytes[at + 2..at + 4].copy_from_slice(&4u16.to_le_bytes());
    bytes[at + 4..at + 8].copy_from_slice(&1u32.to_le_bytes());
    bytes[at + 8..at + 12].copy_from_slice(&value.to_le_bytes());
    bytes
}

#[test]
fn absurd_headers_are_refused_with_their_cause() {
    let good = std::fs::read(fixture("packbits.tif")).unwrap();
    let cause = |bytes: Vec<u8>| memory(bytes).map(|_| ()).unwrap_err().cause;
    assert_eq!(cause(Vec::new()), RasterCause::NotTiff);
    assert_eq!(cause(b"<?xml version=\"1.0\"?><Error/>".to_vec()), RasterCause::NotTiff);
    assert_eq!(cause(b"II*\0".to_vec()), RasterCause::Short);
    assert_eq!(cause(b"II*\0\xff\xff\xff\x00\0\0".to_vec()), RasterCause::Short);
    assert_eq!(cause(with_value(&good, 256, 0)), RasterCause::CorruptHeader);
    assert_eq!(cause(with_value(&good, 256, u32::MAX)), RasterCause::TooLarge);
    assert_eq!(cause(with_value(&with_value(&good, 256, 1 << 20), 257, 1 << 20)), RasterCause::TooLarge);
    assert_eq!(cause(with_value(&good, 277, 5000)), RasterCause::TooLarge);
    assert_eq!(cause(with_value(&good, 339, 6)), RasterCause::Unsupported);
    assert_eq!(cause(with_value(&good, 258, 63)), RasterCause::Unsupported);
    let loops = {
        let mut bytes = good.clone();
        let start = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        let count = usize::from(u16::from_le_bytes(bytes[start..start + 2].try_into().unwrap()));
        let at = start + 2 + count * 12;
        bytes[at..at + 4].copy_from_slice(&(start as u32).to_le_bytes());
        bytes
    };
    assert!(memory(loops).unwrap().head().warnings[0].contains("loops"));
    let lzma = memory(with_value(&good, 259, 34925)).unwrap();
    let error = lzma.read_window(0, &[0], PixelWindow::new(0, 0, 1, 1)).unwrap_err();
    assert_eq!(error.cause, RasterCause::Unsupported);
    assert!(error.message.contains("lzma"), "{error}");
}

/// Whatever a byte is changed to, the reader ends with pixels or an error.
#[test]
fn damaged_files_end_in_an_answer() {
    let limits = RasterLimits { block_len_max: 1 << 20, window_len_max: 1 << 20, ..RasterLimits::default() };
    for name in [
        "packbits.tif",
        "lerc.tif",
        "jpeg.tif",
        "webp.tif",
        "mask.tif",
        "big-endian-float.tif",
        "one-bit.tif",
    ] {
        let good = std::fs::read(fixture(name)).unwrap();
        let step = (good.len() / 400).max(1);
        for at in (0..good.len()).step_by(step) {
            for value in [0, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = value;
                let source: Arc<dyn ByteSource> = Arc::new(MemoryBytes::new("m.tif", bytes));
                let Ok(file) = GeoTiff::open(source, &limits) else { continue };
                let _ = file.read_window(0, &all_bands(&file), file.head().window());
                let _ = file.read_mask(0, file.head().window());
            }
        }
        for cut in (0..good.len()).step_by(step) {
            let Ok(file) = GeoTiff::open(Arc::new(MemoryBytes::new("m.tif", good[..cut].to_vec())), &limits)
            else {
                continue;
            };
            let read = file.read_window(0, &all_bands(&file), file.head().window());
            assert!(read.is_err() || cut > good.len() / 2, "{name} cut at {cut} of {}", good.len());
        }
    }
}

/// The place and the length of the first tile of the directory at a byte of a little-endian file.
fn first_tile(bytes: &[u8], directory: u64) -> std::ops::Range<usize> {
    let short = |at: usize| usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()));
    let long = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let at = directory as usize;
    let value = |tag: usize| {
        let entry = (0..short(at)).map(|i| at + 2 + 12 * i).find(|entry| short(*entry) == tag).unwrap();
        match (short(entry + 2), long(entry + 4)) {
            (3, 1) => short(entry + 8),
            (3, 2) => short(entry + 8),
            (3, _) => short(long(entry + 8)),
            (_, 1) => long(entry + 8),
            _ => long(long(entry + 8)),
        }
    };
    value(324)..value(324) + value(325)
}

#[test]
fn masks_are_validated_in_the_file_and_beside_it() {
    let sound = std::fs::read(fixture("mask.tif")).unwrap();
    let file = memory(sound.clone()).unwrap();
    let found = validate(&file, true).unwrap();
    assert_eq!((found.errors.len(), found.blocks, found.unpacked), (0, 12, 12), "{found:?}");
    let tile = first_tile(&sound, file.head().mask_levels[0].offset);
    let mut broken = sound.clone();
    broken[tile].fill(0xaa);
    let found = validate(&memory(broken.clone()).unwrap(), true).unwrap();
    assert!(found.errors[0].starts_with("mask 0: block 0: "), "{found:?}");
    assert_eq!((found.errors.len(), found.blocks, found.unpacked), (1, 12, 11));

    // The picture of that file as a mask beside another of the same size.
    let dir = tempfile::tempdir().unwrap();
    let (picture, mask) = (dir.path().join("a.tif"), dir.path().join("a.tif.msk"));
    std::fs::copy(fixture("webp.tif"), &picture).unwrap();
    std::fs::write(&mask, &sound).unwrap();
    let found = validate(&opened(&picture), true).unwrap();
    assert_eq!((found.errors.len(), found.blocks, found.unpacked), (0, 18, 18), "{found:?}");
    let tile = first_tile(&sound, file.head().levels[0].offset);
    let mut broken = sound;
    broken[tile].fill(0xaa);
    std::fs::write(&mask, &broken).unwrap();
    let found = validate(&opened(&picture), true).unwrap();
    assert!(found.errors[0].starts_with("the mask beside it: resolution 0: block 0: "), "{found:?}");
}
