//! Small GeoTIFFs in memory, for tests of what works on them.

use std::sync::Arc;

use crate::geotiff::GeoTiff;
use crate::limits::RasterLimits;
use crate::sample::{Pixel, SampleData};
use crate::source::MemoryBytes;

/// A raster in memory: one strip, not packed, planes one after the other.
pub(crate) struct TestRaster {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) bands: u16,
    pub(crate) data: SampleData,
    /// Origin x, pixel width, origin y, pixel height.
    pub(crate) place: [f64; 4],
    pub(crate) epsg: u16,
    pub(crate) nodata: Option<&'static str>,
    pub(crate) alpha: bool,
}

impl TestRaster {
    pub(crate) fn new<T: Pixel>(width: u32, height: u32, values: Vec<T>) -> TestRaster {
        let bands = (values.len() / (width * height) as usize) as u16;
        TestRaster {
            width,
            height,
            bands,
            data: T::wrap(values),
            place: [500_000.0, 10.0, 5_300_000.0, 10.0],
            epsg: 32633,
            nodata: None,
            alpha: false,
        }
    }

    pub(crate) fn open(&self) -> GeoTiff {
        let source = MemoryBytes::new("test.tif", self.bytes());
        GeoTiff::open(Arc::new(source), &RasterLimits::default()).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        let sample = self.data.sample();
        let shorts = |all: &[u16]| all.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        let longs = |all: &[u32]| all.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        let doubles = |all: &[f64]| all.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        let bands = usize::from(self.bands);
        let format: u16 = if sample.is_float() { 3 } else { 1 + u16::from(sample.is_signed()) };
        let plane = (self.data.bytes().len() / bands) as u32;
        let [x, width, y, height] = self.place;
        let geographic = self.epsg == 4326;
        let keys = [
            1,
            1,
            0,
            3,
            1024,
            0,
            1,
            if geographic { 2 } else { 1 },
            1025,
            0,
            1,
            1,
            if geographic { 2048 } else { 3072 },
            0,
            1,
            self.epsg,
        ];
        let mut tags: Vec<(u16, u16, u32, Vec<u8>)> = vec![
            (256, 4, 1, longs(&[self.width])),
            (257, 4, 1, longs(&[self.height])),
            (258, 3, bands as u32, shorts(&vec![8 * sample.size() as u16; bands])),
            (259, 3, 1, shorts(&[1])),
            (262, 3, 1, shorts(&[1])),
            (273, 4, bands as u32, Vec::new()),
            (277, 3, 1, shorts(&[self.bands])),
            (278, 4, 1, longs(&[self.height])),
            (279, 4, bands as u32, longs(&vec![plane; bands])),
            (284, 3, 1, shorts(&[2])),
        ];
        if self.bands > 1 {
            let mut extra = vec![0; bands - 1];
            if let Some(last) = extra.last_mut().filter(|_| self.alpha) {
                *last = 2;
            }
            tags.push((338, 3, bands as u32 - 1, shorts(&extra)));
        }
        tags.push((339, 3, bands as u32, shorts(&vec![format; bands])));
        tags.push((33550, 12, 3, doubles(&[width, height, 0.0])));
        tags.push((33922, 12, 6, doubles(&[0.0, 0.0, 0.0, x, y, 0.0])));
        tags.push((34735, 3, 16, shorts(&keys)));
        if let Some(nodata) = self.nodata {
            let text = [nodata.as_bytes(), b"\0"].concat();
            tags.push((42113, 2, text.len() as u32, text));
        }
        let head = 8 + 2 + tags.len() * 12 + 4;
        let extra: usize = tags.iter().map(|tag| if tag.3.len() > 4 { tag.3.len() } else { 0 }).sum();
        let pixels = head + extra + if bands > 1 { 4 * bands } else { 0 };
        let offsets: Vec<u32> = (0..bands as u32).map(|band| pixels as u32 + band * plane).collect();
        for tag in tags.iter_mut().filter(|tag| tag.0 == 273) {
            tag.3 = longs(&offsets);
        }
        let mut file = b"II\x2a\0\x08\0\0\0".to_vec();
        file.extend((tags.len() as u16).to_le_bytes());
        let mut rest = Vec::new();
        for (tag, kind, count, bytes) in tags {
            file.extend(tag.to_le_bytes());
            file.extend(kind.to_le_bytes());
            file.extend(count.to_le_bytes());
            if bytes.len() <= 4 {
                file.extend(bytes.iter().copied().chain([0; 4]).take(4));
            } else {
                file.extend(((head + rest.len()) as u32).to_le_bytes());
                rest.extend(bytes);
            }
        }
        file.extend([0; 4]);
        file.extend(rest);
        file.resize(pixels, 0);
        file.extend(self.data.bytes());
        file
    }
}
