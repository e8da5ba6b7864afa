//! Headers, tiles and repair of rasters.

use std::sync::Arc;

use tidegate_raster::{GeoTiff, MemoryBytes, PixelWindow, RasterLimits};

/// Reads a part of the first picture, validates the file and draws it, and examines the file as a repair does.
pub fn all(data: &[u8]) {
    let limits = RasterLimits { window_len_max: 1 << 22, block_len_max: 1 << 22, ..RasterLimits::default() };
    let source = Arc::new(MemoryBytes::new("fuzz", data.to_vec()));
    if let Ok(raster) = GeoTiff::open(source, &limits) {
        let head = raster.head();
        let window = PixelWindow::whole(head.width.min(256), head.height.min(256));
        let bands: Vec<u32> = (0..head.bands.min(4)).collect();
        if let Ok(samples) = raster.read_window(0, &bands, window) {
            assert_eq!(samples.pixels(), (window.width * window.height) as usize);
        }
        let _ = raster.read_mask(0, window);
        let _ = tidegate_raster::validate(&raster, false);
        let _ = tidegate_raster::thumbnail(&raster, 64);
    }
    tidegate_raster::repair::fuzz(data);
}
