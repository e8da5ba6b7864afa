//! What is written is read again.

use super::*;
use crate::grid::{Affine, RasterGrid};
use crate::head::{BandInfo, NoData};
use crate::sample::SampleType;
use crate::{FileBytes, GeoTiff, PixelWindow, RasterLimits, SampleData, with_pixel};
use tidegate_geo::Crs;

fn value(band: u32, x: u32, y: u32) -> u32 {
    (x * 7 + y * 13 + band * 31) % 251
}

fn tile<T: crate::Pixel>(window: PixelWindow, bands: u32) -> SampleData {
    let mut out = Vec::new();
    for band in 0..bands {
        for y in window.y..window.bottom() {
            out.extend((window.x..window.right()).map(|x| T::from_f64(f64::from(value(band, x, y)))));
        }
    }
    T::wrap(out)
}

pub(super) fn spec(width: u32, height: u32, bands: u32, sample: SampleType) -> RasterSpec {
    let transform = Affine([500_000.0, 10.0, 0.0, 5_000_000.0, 0.0, -10.0]);
    RasterSpec {
        grid: RasterGrid { width, height, transform, crs: Some(Crs::epsg(32633)) },
        is_placed: true,
        bands,
        sample,
        nodata: Some(NoData::new(0.0)),
        alpha: None,
        is_premultiplied: false,
        has_mask: false,
        band_info: vec![BandInfo {
            name: Some("red & <green>".into()),
            scale: 0.5,
            offset: -3.0,
            ..BandInfo::default()
        }],
        metadata: vec![(String::new(), "KEY".into(), "a \"value\"".into())],
        palette: None,
        is_point: false,
        photometric: 1,
    }
}

fn written(path: &Path, spec: &RasterSpec, options: &CogOptions) -> CogSummary {
    let writer = CogWriter::create(path, spec.clone(), options).unwrap();
    for (column, row) in writer.tiles() {
        let block = options.block;
        let window = PixelWindow::new(column * block, row * block, block, block)
            .intersection(&spec.grid.window())
            .unwrap();
        let data = with_pixel!(spec.sample, T => tile::<T>(window, spec.bands));
        let samples = Samples { width: window.width, height: window.height, bands: spec.bands, data };
        if spec.has_mask {
            let mask = (0..samples.pixels()).map(|at| u8::from(at % 3 != 0)).collect();
            writer.write_masked_tile(column, row, samples, mask).unwrap();
        } else {
            writer.write_tile(column, row, samples).unwrap();
        }
    }
    writer.finish().unwrap()
}

fn opened(path: &Path) -> GeoTiff {
    GeoTiff::open(Arc::new(FileBytes::open(path).unwrap()), &RasterLimits::default()).unwrap()
}

#[test]
fn all_types_and_codecs_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    for sample in SampleType::ALL {
        for compression in [Compression::None, Compression::Deflate, Compression::Zstd, Compression::Lzw] {
            for (bands, big, is_cog) in [(1, false, true), (3, true, true), (5, false, false)] {
                let spec = spec(150, 83, bands, sample);
                let options = CogOptions {
                    block: 64,
                    compression,
                    big: Some(big),
                    is_cog,
                    threads: 2,
                    ..CogOptions::default()
                };
                let path = dir.path().join("a.tif");
                let summary = written(&path, &spec, &options);
                assert_eq!((summary.overviews, summary.tiles, summary.is_big), (2, 6 + 2 + 1, big));
                let file = opened(&path);
                let head = file.head();
                assert_eq!(head.grid().unwrap(), spec.grid);
                assert_eq!((head.nodata, head.sample, head.bands), (spec.nodata, sample, bands));
                assert_eq!(head.band_info[0], spec.band_info[0]);
                assert_eq!(head.metadata, spec.metadata);
                assert_eq!(head.ghost.is_some(), is_cog);
                assert_eq!(head.warnings, Vec::<String>::new());
                let bands: Vec<u32> = (0..bands).collect();
                let all = file.read_window(0, &bands, head.window()).unwrap();
                let expected = with_pixel!(sample, T => tile::<T>(head.window(), spec.bands));
                assert_eq!(all.data, expected, "{sample} {compression}");
                for window in [
                    PixelWindow::new(60, 60, 10, 10),
                    PixelWindow::new(149, 82, 1, 1),
                    PixelWindow::new(3, 0, 140, 5),
                ] {
                    let part = file.read_window(0, &bands, window).unwrap();
                    assert_eq!(part.data, with_pixel!(sample, T => tile::<T>(window, spec.bands)));
                }
            }
        }
    }
}

#[test]
fn overviews_are_means_of_what_is_valid() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    written(&path, &spec(150, 83, 2, SampleType::U16), &CogOptions { block: 32, ..CogOptions::default() });
    let file = opened(&path);
    let sizes: Vec<_> = file.head().levels.iter().map(|level| (level.width, level.height)).collect();
    assert_eq!(sizes, [(150, 83), (75, 42), (38, 21), (19, 11)]);
    for (level, (width, height)) in sizes.iter().enumerate().skip(1) {
        let below = file.read_window(level - 1, &[0, 1], file.head().levels[level - 1].window()).unwrap();
        let own = file.read_window(level, &[0, 1], PixelWindow::whole(*width, *height)).unwrap();
        for (band, y, x) in
            (0..2).flat_map(|b| (0..*height).flat_map(move |y| (0..*width).map(move |x| (b, y, x))))
        {
            let (right, lower) = ((2 * x + 1).min(below.width - 1), (2 * y + 1).min(below.height - 1));
            let four = [(2 * x, 2 * y), (right, 2 * y), (2 * x, lower), (right, lower)];
            let valid: Vec<f64> =
                four.into_iter().filter_map(|(x, y)| below.get(band, x, y)).filter(|v| *v != 0.0).collect();
            let mean = (valid.iter().sum::<f64>() / valid.len().max(1) as f64 + 0.5).floor();
            assert_eq!(own.get(band, x, y), Some(mean), "level {level} band {band} {x} {y}");
        }
    }
}

#[test]
fn masks_are_written_beside_their_tiles() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    let spec = RasterSpec { has_mask: true, nodata: None, ..spec(70, 70, 1, SampleType::U8) };
    written(&path, &spec, &CogOptions { block: 64, ..CogOptions::default() });
    let file = opened(&path);
    assert_eq!(file.head().mask_levels.len(), 2);
    let mask = file.read_mask(0, PixelWindow::new(0, 0, 64, 64)).unwrap().unwrap();
    assert!(mask.iter().enumerate().all(|(at, valid)| *valid == if at % 3 != 0 { 255 } else { 0 }));
    assert_eq!(file.read_mask(1, PixelWindow::whole(35, 35)).unwrap().unwrap(), vec![255; 35 * 35]);
}

#[test]
fn nothing_is_left_of_what_is_not_finished() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    let writer = CogWriter::create(
        &path,
        spec(150, 83, 1, SampleType::U8),
        &CogOptions { block: 64, ..CogOptions::default() },
    )
    .unwrap();
    writer.skip_tile(0, 0).unwrap();
    assert!(writer.skip_tile(0, 0).unwrap_err().message.contains("twice"));
    let error = writer.finish().unwrap_err();
    assert!(error.message.contains("5 of 6 tiles"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn tiles_that_are_left_out_are_nodata() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    for is_sparse in [false, true] {
        let spec = RasterSpec { nodata: Some(NoData::new(9.0)), ..spec(150, 83, 2, SampleType::I16) };
        let options = CogOptions { block: 64, is_sparse, ..CogOptions::default() };
        let writer = CogWriter::create(&path, spec, &options).unwrap();
        for (column, row) in writer.tiles() {
            writer.skip_tile(column, row).unwrap();
        }
        assert_eq!(writer.finish().unwrap().sparse, if is_sparse { 9 } else { 0 });
        let file = opened(&path);
        let all = file.read_window(0, &[0, 1], file.head().window()).unwrap();
        assert_eq!(all.data, SampleData::I16(vec![9; 150 * 83 * 2]));
        assert_eq!(file.block_place(0, 0).unwrap().is_none(), is_sparse);
    }
}

#[test]
fn every_tile_comes_once_and_neighbours_are_close() {
    let dir = tempfile::tempdir().unwrap();
    let options = CogOptions { block: 16, ..CogOptions::default() };
    for (width, height) in [(1, 1), (16 * 5, 16 * 3), (16 * 300, 10)] {
        let writer =
            CogWriter::create(&dir.path().join("a.tif"), spec(width, height, 1, SampleType::U8), &options)
                .unwrap();
        let (across, down) = writer.tiles_across_down();
        let mut all: Vec<_> = writer.tiles().collect();
        assert_eq!(all.len(), (across * down) as usize);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), (across * down) as usize);
    }
}
