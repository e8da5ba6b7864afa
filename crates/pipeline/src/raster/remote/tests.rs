//! Servers that lie about the head of a COG.

use std::sync::Mutex;

use tidegate_geo::Crs;
use tidegate_raster::{
    Affine, CogOptions, CogWriter, GeoTiff, NoData, PixelWindow, RasterGrid, RasterLimits, RasterSpec,
    SampleType, Samples,
};

use super::*;

const SIDE: u32 = 512;
const BLOCK: u32 = 64;

/// The bytes of a COG with noise, so that its blocks have different sizes.
fn cog(salt: u32) -> Vec<u8> {
    let transform = Affine([500_000.0, 10.0, 0.0, 5_000_000.0, 0.0, -10.0]);
    let grid = RasterGrid { width: SIDE, height: SIDE, transform, crs: Some(Crs::epsg(32633)) };
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
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.tif");
    let writer =
        CogWriter::create(&path, spec, &CogOptions { block: BLOCK, ..CogOptions::default() }).unwrap();
    for (column, row) in writer.tiles().collect::<Vec<_>>() {
        let mut samples = Samples::zeros(SampleType::U16, BLOCK, BLOCK, 1);
        for (i, value) in samples.band_mut::<u16>(0).unwrap().iter_mut().enumerate() {
            let noise = (i as u32 ^ salt).wrapping_mul(2_654_435_761).wrapping_add(column * 7 + row) >> 20;
            *value = 1 + (noise % (2 + (column + row * 8 + salt) * 3)) as u16;
        }
        writer.write_tile(column, row, samples).unwrap();
    }
    writer.finish().unwrap();
    std::fs::read(&path).unwrap()
}

/// Hands out an object; the first answers for the head are others.
struct Liar {
    object: Vec<u8>,
    heads: Mutex<Vec<Vec<u8>>>,
    etag: Option<String>,
    asked: Mutex<Vec<Range<u64>>>,
}

impl Liar {
    fn version(&self) -> ObjectVersion {
        ObjectVersion { size: self.object.len() as u64, etag: self.etag.clone() }
    }
}

#[async_trait]
impl RangeReader for Liar {
    async fn first(&self, len: u64) -> Result<(Bytes, ObjectVersion), RasterError> {
        self.asked.lock().unwrap().push(0..len);
        let lie = self.heads.lock().unwrap().pop();
        let mut bytes = lie.unwrap_or_else(|| self.object.clone());
        bytes.truncate(len as usize);
        Ok((bytes.into(), self.version()))
    }

    async fn range(&self, range: Range<u64>, _: &ObjectVersion) -> Result<Bytes, RasterError> {
        self.asked.lock().unwrap().push(range.clone());
        Ok(Bytes::copy_from_slice(&self.object[range.start as usize..range.end as usize]))
    }

    fn beside(&self, _: SidecarName<'_>) -> Option<(String, Arc<dyn RangeReader>)> {
        panic!("a COG that says where it lies needs no files beside it")
    }
}

fn liar(object: &[u8], heads: Vec<Vec<u8>>, etag: Option<&str>) -> Arc<Liar> {
    Arc::new(Liar {
        object: object.to_vec(),
        heads: Mutex::new(heads),
        etag: etag.map(str::to_owned),
        asked: Mutex::default(),
    })
}

fn open(liar: &Arc<Liar>) -> Result<GeoTiff, RasterError> {
    let runtime = Arc::new(tokio::runtime::Builder::new_current_thread().build().unwrap());
    let bytes = RemoteBytes::open("liar", liar.clone(), runtime, 4, false)?;
    bytes.raster(&RasterLimits::default())
}

fn read(raster: &GeoTiff) -> Result<Samples, RasterError> {
    let read = raster.read_window(0, &[0], PixelWindow::new(70, 70, 100, 100))?;
    raster.source().unchanged()?;
    Ok(read)
}

#[test]
fn the_head_of_a_cog_is_proven_by_its_blocks() {
    let object = cog(1);
    let honest = liar(&object, Vec::new(), Some("1"));
    read(&open(&honest).unwrap()).unwrap();
    let asked = honest.asked.lock().unwrap().clone();
    assert_eq!(asked.iter().filter(|range| range.start == 0).count(), 1, "{asked:?}");
    // Without an ETag the head is compared at the end, and without blocks too.
    let plain = liar(&object, Vec::new(), None);
    read(&open(&plain).unwrap()).unwrap();
    let unread = liar(&object, Vec::new(), Some("1"));
    open(&unread).unwrap().source().unchanged().unwrap();
    for one in [plain, unread] {
        let asked = one.asked.lock().unwrap().clone();
        assert_eq!(asked.iter().filter(|range| range.start == 0).count(), 2, "{asked:?}");
    }
}

#[test]
fn a_head_that_is_no_head_is_read_again() {
    let object = cog(1);
    let wanted = read(&open(&liar(&object, Vec::new(), Some("1"))).unwrap()).unwrap();
    let mut shifted = object.clone();
    shifted.rotate_left(16);
    let mut holed = object.clone();
    holed[1024..2048].fill(0);
    let zeros = vec![0; object.len()];
    for lie in [shifted, holed, zeros] {
        let made = read(&open(&liar(&object, vec![lie], Some("1"))).unwrap()).unwrap();
        assert_eq!(made.data, wanted.data);
    }
}

#[test]
fn the_head_of_another_object_is_found_out() {
    let (object, other) = (cog(1), cog(2));
    let error = open(&liar(&object, vec![other.clone()], Some("1"))).and_then(|raster| read(&raster));
    assert!(error.is_err_and(|error| error.is_transient()));
    // And if it is all that is read.
    let error = open(&liar(&object, vec![other], Some("1"))).and_then(|raster| raster.source().unchanged());
    assert!(error.is_err_and(|error| error.is_transient()));
}
