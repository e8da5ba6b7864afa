//! Warps of small rasters: exact by hand, and what must not matter.

use std::sync::Arc;

use tidegate_core::Code;

use super::*;
use crate::error::RasterCause;
use crate::limits::RasterLimits;
use crate::source::FileBytes;
use crate::testing::TestRaster;
use crate::write::{CogOptions, CogWriter};

fn whole(warp: &Warp<'_>) -> PixelWindow {
    warp.spec().grid.window()
}

/// All values of a result, painted in tiles of this size.
fn painted<T: KernelNumber>(warp: &Warp<'_>, side: u32) -> Vec<T> {
    let all = whole(warp);
    let (width, pixels) = (all.width as usize, all.pixels() as usize);
    let fill: T = warp.spec().nodata.map_or(T::default(), |nodata| nodata.nearest());
    let mut out = vec![fill; pixels * warp.spec().bands as usize];
    for y in (0..all.height).step_by(side as usize) {
        for x in (0..all.width).step_by(side as usize) {
            let window = all.intersection(&PixelWindow::new(x, y, side, side)).unwrap();
            let (Painted::Values(samples) | Painted::Masked(samples, _)) = warp.paint(window).unwrap() else {
                continue;
            };
            for band in 0..samples.bands {
                let values = samples.band::<T>(band).unwrap();
                for (row, line) in values.chunks(window.width as usize).enumerate() {
                    let at = band as usize * pixels + (y as usize + row) * width + x as usize;
                    out[at..at + line.len()].copy_from_slice(line);
                }
            }
        }
    }
    out
}

fn texture(width: u32, height: u32) -> Vec<u16> {
    (0..width * height).map(|i| ((i * 7919) ^ (i >> 3)) as u16 % 4000 + 1).collect()
}

#[test]
fn onto_its_own_grid_every_method_copies() {
    let values: Vec<u16> = [texture(40, 30), texture(40, 30)].concat();
    let mut raster = TestRaster::new(40, 30, values.clone());
    for nodata in [None, Some("17")] {
        raster.nodata = nodata;
        let source = raster.open();
        for (name, resampling) in Resampling::ALL {
            let warp = Warp::new(&source, &WarpOptions { resampling, ..WarpOptions::default() }).unwrap();
            assert_eq!(warp.spec().grid, source.head().grid().unwrap());
            assert_eq!(painted::<u16>(&warp, 16), values, "{name} {nodata:?}");
        }
    }
}

#[test]
fn neither_tiles_nor_halving_change_a_pixel() {
    let mut raster = TestRaster::new(200, 150, texture(200, 150));
    raster.nodata = Some("9");
    let source = raster.open();
    for (name, resampling) in Resampling::ALL {
        for (to, resolution) in [(3857, None), (4326, None), (3857, Some((47.0, 47.0)))] {
            let grid = GridRequest { resolution, ..GridRequest::default() };
            let options = WarpOptions { to: Some(Crs::epsg(to)), resampling, grid, ..WarpOptions::default() };
            let warp = Warp::new(&source, &options).unwrap();
            let one = painted::<u16>(&warp, 4096);
            assert!(one.iter().filter(|value| **value != 9).count() > one.len() / 2, "{name} {to}");
            for side in [16, 50, 64] {
                assert!(painted::<u16>(&warp, side) == one, "{name} {to} {side}");
            }
        }
    }
}

#[test]
fn approximated_positions_keep_their_promise() {
    let raster = TestRaster::new(3000, 2500, vec![0u8; 3000 * 2500]);
    let source = raster.open();
    for to in [3857, 4326, 3035, 32632] {
        let options = WarpOptions { to: Some(Crs::epsg(to)), ..WarpOptions::default() };
        let near = Warp::new(&source, &options).unwrap();
        let exact = Warp::new(&source, &WarpOptions { tolerance: 0.0, ..options }).unwrap();
        let area = PixelArea { left: 1000, top: 700, width: 777, height: 333 };
        let (mut x, mut y, mut to_x, mut to_y) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        near.mapping.fill(area, 0.5, &mut x, &mut y);
        exact.mapping.fill(area, 0.5, &mut to_x, &mut to_y);
        let worst = x.iter().zip(&to_x).chain(y.iter().zip(&to_y)).map(|(a, b)| (a - b).abs());
        let worst = worst.fold(0.0, f64::max);
        assert!(worst < 0.01, "{to}: {worst}");
    }
}

#[test]
fn kernels_weigh_as_gdal_does() {
    // Half a pixel to the right and down.
    let values = vec![10u8, 20, 30, 40, 50, 60, 70, 80, 90];
    let mut raster = TestRaster::new(3, 3, values);
    raster.place = [0.0, 1.0, 3.0, 1.0];
    let grid =
        GridRequest { extent: Some([0.5, 0.5, 2.5, 2.5]), size: Some((2, 2)), ..GridRequest::default() };
    let asked = |resampling| WarpOptions { resampling, grid: grid.clone(), ..WarpOptions::default() };
    let source = raster.open();
    let warp = Warp::new(&source, &asked(Resampling::Bilinear)).unwrap();
    assert_eq!(painted::<u8>(&warp, 64), [30, 40, 60, 70]);
    // The middle is nodata: what lies on it has no value, what lies beside it shares the other weights.
    raster.nodata = Some("50");
    let source = raster.open();
    let warp = Warp::new(&source, &asked(Resampling::Bilinear)).unwrap();
    // Centres are at corners of pixels, and belong to the pixel right of and below them.
    assert_eq!(painted::<u8>(&warp, 64), [50, 37, 63, 77]);
    // One of sixteen is missing: bilinear.
    let warp = Warp::new(&source, &asked(Resampling::Cubic)).unwrap();
    assert_eq!(painted::<u8>(&warp, 64), [50, 37, 63, 77]);
    let warp = Warp::new(&source, &asked(Resampling::Nearest)).unwrap();
    assert_eq!(painted::<u8>(&warp, 64), [50, 60, 80, 90]);
}

#[test]
fn a_coarser_result_takes_wider_kernels() {
    let values: Vec<f32> = (0..64u8).map(|i| f32::from(i % 8)).collect();
    let mut raster = TestRaster::new(8, 8, values);
    raster.place = [0.0, 1.0, 8.0, 1.0];
    let source = raster.open();
    let grid = GridRequest { size: Some((2, 2)), ..GridRequest::default() };
    let asked = |resampling| WarpOptions { resampling, grid: grid.clone(), ..WarpOptions::default() };
    let warp = Warp::new(&source, &asked(Resampling::Bilinear)).unwrap();
    assert_eq!(warp.kernel_scale(), KernelScale { x: 0.25, y: 0.25 });
    let got = painted::<f32>(&warp, 64);
    // A triangle four pixels to each side of column 2: weights 5, 7, 7, 5, 3, 1 eighths of columns 0 to 5.
    let wanted = (0.0 * 5.0 + 1.0 * 7.0 + 2.0 * 7.0 + 3.0 * 5.0 + 4.0 * 3.0 + 5.0) / 28.0;
    assert!((got[0] - wanted as f32).abs() < 1e-5, "{} {wanted}", got[0]);
    let warp = Warp::new(&source, &asked(Resampling::Average)).unwrap();
    assert_eq!(painted::<f32>(&warp, 64), [1.5, 5.5, 1.5, 5.5]);
}

#[test]
fn opacity_is_that_of_the_nearest_pixel() {
    let colour = vec![10u8, 20, 30, 40];
    let alpha = vec![255u8, 0, 128, 255];
    let mut raster = TestRaster::new(2, 2, [colour, alpha].concat());
    raster.alpha = true;
    let source = raster.open();
    assert_eq!(source.head().alpha, Some(1));
    for resampling in [Resampling::Nearest, Resampling::Bilinear] {
        let warp = Warp::new(&source, &WarpOptions { resampling, ..WarpOptions::default() }).unwrap();
        assert_eq!(painted::<u8>(&warp, 64), [10, 0, 30, 40, 255, 0, 128, 255]);
    }
    // A result without a way to show holes gets one on demand.
    let plain = TestRaster::new(2, 2, vec![1u8, 2, 3, 4]);
    let source = plain.open();
    let grid = GridRequest {
        extent: Some([499_990.0, 5_299_980.0, 500_020.0, 5_300_000.0]),
        ..GridRequest::default()
    };
    let warp = Warp::new(&source, &WarpOptions { grid, alpha: true, ..WarpOptions::default() }).unwrap();
    assert_eq!(painted::<u8>(&warp, 64), [0, 1, 2, 0, 3, 4, 0, 255, 255, 0, 255, 255]);
}

#[test]
fn what_cannot_be_is_refused() {
    let source = TestRaster::new(2, 2, vec![1u8, 2, 3, 4]).open();
    let refused = |options: WarpOptions| Warp::new(&source, &options).err().map(|error| error.cause);
    assert!(refused(WarpOptions { nodata: Some(NoData::new(300.0)), ..WarpOptions::default() }).is_some());
    assert!(refused(WarpOptions { tolerance: f64::NAN, ..WarpOptions::default() }).is_some());
    assert_eq!(
        refused(WarpOptions { to: Some(Crs::epsg(1)), ..WarpOptions::default() }),
        Some(RasterCause::Refused(Code::CRS_NOT_FOUND))
    );
}

#[test]
fn positions_outside_do_not_count() {
    let (x, y) = ([-1.0, 2.0, f64::NAN, 9.0, 5.0, 10.5], [3.0, 4.0, 1.0, 7.5, f64::INFINITY, 2.0]);
    assert_eq!(box_around(&x, &y, (10.0, 8.0), (0.0, 0.0)), [2.0, 4.0, 9.0, 7.5]);
    assert_eq!(box_around(&x, &y, (10.0, 8.0), (1.0, 1.0)), [-1.0, 2.0, 10.5, 7.5]);
    let [left, _, right, _] = box_around(&x[..1], &y[..1], (10.0, 8.0), (0.0, 0.0));
    assert!(left > right);
}

#[test]
fn blocks_that_are_not_in_the_source_are_empty() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.tif");
    let mut raster = TestRaster::new(32, 16, vec![9u16; 512]);
    raster.nodata = Some("9");
    let like = raster.open();
    let spec = RasterSpec::like(like.head(), like.head().grid().unwrap());
    let options = CogOptions { block: 16, is_sparse: true, overviews: Some(0), ..CogOptions::default() };
    let writer = CogWriter::create(&path, spec, &options).unwrap();
    let tile = Samples { width: 16, height: 16, bands: 1, data: SampleData::U16(texture(16, 16)) };
    writer.write_tile(0, 0, tile.clone()).unwrap();
    writer.skip_tile(1, 0).unwrap();
    writer.finish().unwrap();

    let source = GeoTiff::open(Arc::new(FileBytes::open(&path).unwrap()), &RasterLimits::default()).unwrap();
    let (left, right) = (PixelWindow::new(0, 0, 16, 16), PixelWindow::new(17, 0, 15, 16));
    for (_, resampling) in Resampling::ALL {
        let warp = Warp::new(&source, &WarpOptions { resampling, ..WarpOptions::default() }).unwrap();
        let Painted::Values(found) = warp.paint(left).unwrap() else { panic!("{resampling:?}") };
        assert_eq!(found, tile);
        assert!(matches!(warp.paint(right).unwrap(), Painted::Empty), "{resampling:?}");
    }
    // If another value is said to be nodata, the one of absent blocks is a value.
    let said = WarpOptions { source_nodata: Some(NoData::new(5.0)), ..WarpOptions::default() };
    let warp = Warp::new(&source, &said).unwrap();
    let Painted::Values(found) = warp.paint(right).unwrap() else { panic!() };
    assert_eq!(found.data, SampleData::U16(vec![9; 240]));
}
