//! Rasters through the built binary: reading, transformations, repair, remote reads under every fault
//! of ranges, lists of rasters, the steps, gates and sources of pipelines, geotasks.

mod drift;
mod list;
mod pages;
mod read;
mod remote;
mod repair;
mod stac;
mod step;
mod tasks;
mod transform;

use std::path::Path;

use tidegate_geo::Crs;
use tidegate_raster::{
    Affine, CogOptions, CogWriter, Compression, NoData, PixelWindow, RasterGrid, RasterSpec, SampleType,
    Samples,
};

const SIDE: u32 = 300;

/// The sections that every manifest has.
const POLICIES: &str = "  retry_policy: { max_attempts: 4, base_delay: 10ms, retryable_status_codes: [429, 503] }\n  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }\n  dead_letters: {}\n";

/// A raster of the tests of `tidegate-raster`.
pub(crate) fn fixture(name: &str) -> String {
    format!("{}/../raster/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Writes a COG of one band of 16 bits with smooth values and some nodata, of 128 pixels a tile.
fn write_cog(path: &Path, compression: Compression, salt: u32) {
    write_cog_of(path, (SIDE, 128), compression, salt);
}

/// The same, of this many pixels a side and a tile.
fn write_cog_of(path: &Path, (side, block): (u32, u32), compression: Compression, salt: u32) {
    let grid = RasterGrid {
        width: side,
        height: side,
        transform: Affine([500_000.0, 10.0, 0.0, 5_000_000.0, 0.0, -10.0]),
        crs: Some(Crs::epsg(32633)),
    };
    let spec = RasterSpec {
        grid,
        is_placed: true,
        bands: 1,
        sample: SampleType::U16,
        nodata: Some(NoData::new(0.0)),
        alpha: None,
        is_premultiplied: false,
        has_mask: false,
        band_info: Vec::new(),
        metadata: Vec::new(),
        palette: None,
        is_point: false,
        photometric: 1,
    };
    let options = CogOptions { block, compression, ..CogOptions::default() };
    let writer = CogWriter::create(path, spec, &options).unwrap();
    let tiles: Vec<(u32, u32)> = writer.tiles().collect();
    for (column, row) in tiles {
        let tile = PixelWindow::new(column * block, row * block, block, block);
        let window = PixelWindow::whole(side, side).intersection(&tile).unwrap();
        let mut samples = Samples::zeros(SampleType::U16, window.width, window.height, 1);
        let band = samples.band_mut::<u16>(0).unwrap();
        for (i, value) in band.iter_mut().enumerate() {
            let (x, y) = (window.x + i as u32 % window.width, window.y + i as u32 / window.width);
            let noise = (x.wrapping_mul(2_654_435_761) ^ y.wrapping_mul(40_503) ^ salt) >> 24;
            *value = if x < 20 { 0 } else { (1000 + x * 3 + y * 2 + noise) as u16 };
        }
        writer.write_tile(column, row, samples).unwrap();
    }
    writer.finish().unwrap();
}
