//! What a GeoTIFF says of itself: its size, its place and its system. Pixels are read only of grids
//! of datum shifts.
//!
//! The head of a TIFF file is a list of tags; three of them hold the keys of GeoTIFF. Classic and
//! big files of either byte order are understood. Nothing in the file is believed further than the
//! limits here, so that a hostile one costs a few kilobytes.

mod keys;
mod pixels;
mod tags;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use tidegate_core::Code;

use crate::bounds::Bounds;
use crate::crs::Crs;
use crate::error::{Error, Problem};
pub use keys::GeoKeys;
pub(crate) use pixels::Pixels;
pub use tags::Tags;

/// The head of a GeoTIFF.
#[derive(Clone, Debug, PartialEq)]
pub struct Raster {
    /// Pixels from west to east.
    pub width: u64,
    /// Pixels from north to south.
    pub height: u64,
    /// How many values a pixel has.
    pub bands: u64,
    /// The type of a value, such as `uint8` or `float32`.
    pub sample: String,
    /// How the pixels are packed, such as `deflate`.
    pub compression: String,
    /// Whether they lie in tiles, not in strips.
    pub tiled: bool,
    /// The value that stands for none, as the file spells it.
    pub nodata: Option<String>,
    /// From column and row to x and y: origin x, x per column, x per row, origin y, y per column,
    /// y per row.
    pub transform: Option<[f64; 6]>,
    /// Its system; the problem if it names none that is known, nothing if it names none.
    pub crs: Option<Result<Crs, Problem>>,
}

impl Raster {
    /// Whether the first bytes are those of a TIFF file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn is_likely(path: &Path) -> std::io::Result<bool> {
        let mut head = Vec::new();
        File::open(path)?.take(4).read_to_end(&mut head)?;
        Ok(matches!(head.as_slice(), b"II\x2a\0" | b"II\x2b\0" | b"MM\0\x2a" | b"MM\0\x2b"))
    }

    /// Reads the head of a file.
    ///
    /// # Errors
    /// If it is not TIFF, or cut off.
    pub fn open(path: &Path) -> Result<Raster, Error> {
        let tags = Tags::read(&mut File::open(path)?)?;
        let (Some(width), Some(height)) = (tags.number(256), tags.number(257)) else {
            return Err(Problem::new(Code::CORRUPTED_HEADER, "the TIFF file has no size").into());
        };
        let bits = tags.number(258).unwrap_or(1);
        let kind = match tags.number(339).unwrap_or(1) {
            1 => "uint",
            2 => "int",
            3 => "float",
            5 | 6 => "complex",
            _ => "bits",
        };
        let keys = GeoKeys::read(&tags);
        let mut raster = Raster {
            width,
            height,
            bands: tags.number(277).unwrap_or(1),
            sample: format!("{kind}{bits}"),
            compression: compression(tags.number(259).unwrap_or(1)),
            tiled: tags.number(322).is_some(),
            nodata: tags.text(42113).map(|text| text.trim().to_owned()),
            transform: transform(&tags, keys.as_ref().is_some_and(GeoKeys::is_point)),
            crs: None,
        };
        raster.crs = keys.and_then(|keys| keys.crs(raster.bounds()));
        Ok(raster)
    }

    /// The box around its pixels.
    #[must_use]
    pub fn bounds(&self) -> Option<Bounds> {
        let [x0, xc, xr, y0, yc, yr] = self.transform?;
        let mut found: Option<Bounds> = None;
        for (column, row) in [(0, 0), (self.width, 0), (0, self.height), (self.width, self.height)] {
            let (column, row) = (column as f64, row as f64);
            let (x, y) = (x0 + column * xc + row * xr, y0 + column * yc + row * yr);
            found.get_or_insert(Bounds { min_x: x, min_y: y, max_x: x, max_y: y }).extend(x, y);
        }
        found.filter(|b| {
            b.min_x.is_finite() && b.max_x.is_finite() && b.min_y.is_finite() && b.max_y.is_finite()
        })
    }
}

/// From column and row to x and y, for the corners of pixels, as the tags of a picture say.
#[must_use]
pub fn transform_of(tags: &Tags) -> Option<[f64; 6]> {
    transform(tags, GeoKeys::read(tags).is_some_and(|keys| keys.is_point()))
}

/// From column and row to x and y, for the corners of pixels.
fn transform(tags: &Tags, is_point: bool) -> Option<[f64; 6]> {
    let matrix = tags.doubles(34264);
    let mut found = match matrix.as_slice() {
        [a, b, _, d, e, f, _, h, ..] => [*d, *a, *b, *h, *e, *f],
        _ => {
            let (scale, tie) = (tags.doubles(33550), tags.doubles(33922));
            let ([sx, sy, ..], [i, j, _, x, y, ..]) = (scale.as_slice(), tie.as_slice()) else { return None };
            [x - i * sx, *sx, 0.0, y + j * sy, 0.0, -sy]
        }
    };
    if is_point {
        // The tie is to the middle of a pixel.
        let [x0, xc, xr, y0, yc, yr] = found;
        found = [x0 - (xc + xr) / 2.0, xc, xr, y0 - (yc + yr) / 2.0, yc, yr];
    }
    Some(found)
}

fn compression(number: u64) -> String {
    let name = match number {
        1 => "none",
        5 => "lzw",
        6 | 7 => "jpeg",
        8 | 32946 => "deflate",
        32773 => "packbits",
        34887 => "lerc",
        34925 => "lzma",
        50000 => "zstd",
        50001 => "webp",
        other => return format!("number {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TIFF file of these tags: number, type, count, and the bytes of the values.
    fn tiff(tags: &[(u16, u16, u32, Vec<u8>)]) -> Vec<u8> {
        let mut file = b"II\x2a\0\x08\0\0\0".to_vec();
        let mut data_at = 8 + 2 + tags.len() * 12 + 4;
        file.extend((tags.len() as u16).to_le_bytes());
        let mut data: Vec<u8> = Vec::new();
        for (tag, kind, count, bytes) in tags {
            file.extend(tag.to_le_bytes());
            file.extend(kind.to_le_bytes());
            file.extend(count.to_le_bytes());
            if bytes.len() <= 4 {
                let mut inline = bytes.clone();
                inline.resize(4, 0);
                file.extend(inline);
            } else {
                file.extend((data_at as u32).to_le_bytes());
                data_at += bytes.len();
                data.extend(bytes);
            }
        }
        file.extend([0; 4]);
        file.extend(data);
        file
    }

    fn shorts(all: &[u16]) -> Vec<u8> {
        all.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    fn doubles(all: &[f64]) -> Vec<u8> {
        all.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    fn opened(bytes: &[u8]) -> Result<Raster, Error> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tif");
        std::fs::write(&path, bytes).unwrap();
        assert!(Raster::is_likely(&path).unwrap());
        Raster::open(&path)
    }

    fn with_keys(keys: &[u16], extra: &[f64], text: &str) -> Vec<u8> {
        placed([500_000.0, 200_000.0], 10.0, keys, extra, text)
    }

    fn placed([x, y]: [f64; 2], pixel: f64, keys: &[u16], extra: &[f64], text: &str) -> Vec<u8> {
        let mut tags = vec![
            (256, 3, 1, shorts(&[100])),
            (257, 3, 1, shorts(&[50])),
            (258, 3, 1, shorts(&[32])),
            (259, 3, 1, shorts(&[8])),
            (277, 3, 1, shorts(&[3])),
            (339, 3, 1, shorts(&[3])),
            (33550, 12, 3, doubles(&[pixel, pixel, 0.0])),
            (33922, 12, 6, doubles(&[0.0, 0.0, 0.0, x, y, 0.0])),
            (34735, 3, keys.len() as u32, shorts(keys)),
        ];
        if !extra.is_empty() {
            tags.push((34736, 12, extra.len() as u32, doubles(extra)));
        }
        if !text.is_empty() {
            tags.push((34737, 2, text.len() as u32, text.as_bytes().to_vec()));
        }
        tiff(&tags)
    }

    fn crs_of(keys: &[u16], extra: &[f64], text: &str) -> Option<Result<String, Code>> {
        let raster = opened(&with_keys(keys, extra, text)).unwrap();
        raster.crs.map(|crs| crs.map(|crs| crs.to_string()).map_err(|problem| problem.code))
    }

    #[test]
    fn size_place_and_system() {
        let raster = opened(&with_keys(&[1, 1, 0, 2, 1024, 0, 1, 1, 3072, 0, 1, 27700], &[], "")).unwrap();
        assert_eq!((raster.width, raster.height, raster.bands), (100, 50, 3));
        assert_eq!((raster.sample.as_str(), raster.compression.as_str()), ("float32", "deflate"));
        let b = raster.bounds().unwrap();
        assert_eq!((b.min_x, b.min_y, b.max_x, b.max_y), (500_000.0, 199_500.0, 501_000.0, 200_000.0));
        assert_eq!(raster.crs, Some(Ok(Crs::epsg(27700))));
        let point = opened(&with_keys(&[1, 1, 0, 2, 1025, 0, 1, 2, 3072, 0, 1, 27700], &[], "")).unwrap();
        assert_eq!(point.bounds().unwrap().min_x, 499_995.0);
    }

    #[test]
    fn every_way_to_name_the_system() {
        let geographic = [1, 1, 0, 2, 1024, 0, 1, 2, 2048, 0, 1, 4258];
        let raster = opened(&placed([9.0, 50.0], 0.01, &geographic, &[], "")).unwrap();
        assert_eq!(raster.crs, Some(Ok(Crs::epsg(4258))));
        let esri = "ESRI PE String = PROJCS[\"World_Robinson\",GEOGCS[\"GCS_WGS_1984\",DATUM[\"D_WGS_1984\",SPHEROID[\"WGS_1984\",6378137.0,298.257223563]],PRIMEM[\"Greenwich\",0.0],UNIT[\"Degree\",0.0174532925199433]],PROJECTION[\"Robinson\"],PARAMETER[\"False_Easting\",0.0],PARAMETER[\"False_Northing\",0.0],PARAMETER[\"Central_Meridian\",0.0],UNIT[\"Meter\",1.0]]|";
        let keys = [1, 1, 0, 3, 1024, 0, 1, 1, 3072, 0, 1, 32767, 3073, 34737, esri.len() as u16, 0];
        assert_eq!(crs_of(&keys, &[], esri), Some(Ok("ESRI:54030".into())));
        let named = "PCS Name = WGS_1984_UTM_Zone_33N|";
        let keys = [1, 1, 0, 3, 1024, 0, 1, 1, 3072, 0, 1, 32767, 1026, 34737, named.len() as u16, 0];
        assert_eq!(crs_of(&keys, &[], named), Some(Ok("EPSG:32633".into())));
    }

    /// The code of the geographic system under a projected one is not the system of the pixels.
    #[test]
    fn a_projected_system_may_be_told_by_its_name_alone() {
        let named = "NAD83 / Michigan South (ft)|";
        let len = named.len() as u16;
        for keys in [
            &[1, 1, 0, 2, 2048, 0, 1, 4269, 3073, 34737, len, 0][..],
            &[1, 1, 0, 2, 2048, 0, 1, 4269, 1026, 34737, len, 0],
            &[1, 1, 0, 3, 1024, 0, 1, 32767, 2048, 0, 1, 4269, 3073, 34737, len, 0],
            &[1, 1, 0, 3, 1024, 0, 1, 1, 2048, 0, 1, 4269, 3073, 34737, len, 0],
            // It says that it is geographic, but these are no degrees.
            &[1, 1, 0, 3, 1024, 0, 1, 2, 2048, 0, 1, 4269, 1026, 34737, len, 0],
        ] {
            assert_eq!(crs_of(keys, &[], named), Some(Ok("EPSG:2253".into())), "{keys:?}");
        }
        let unknown = "Our own projection|";
        let keys = [1, 1, 0, 2, 2048, 0, 1, 4326, 3073, 34737, unknown.len() as u16, 0];
        assert_eq!(crs_of(&keys, &[], unknown), Some(Err(Code::CRS_NOT_FOUND)));
        let keys = [1, 1, 0, 1, 2048, 0, 1, 4326];
        assert_eq!(crs_of(&keys, &[], ""), Some(Err(Code::CRS_MISMATCH)), "degrees by the hundred thousand");
    }

    #[test]
    fn a_system_of_the_users_own_is_found_by_its_numbers() {
        let keys = [
            1, 1, 0, 10, 1024, 0, 1, 1, 2048, 0, 1, 4326, 3072, 0, 1, 32767, 3074, 0, 1, 32767, 3075, 0, 1,
            1, 3076, 0, 1, 9001, 3080, 34736, 1, 0, 3081, 34736, 1, 1, 3082, 34736, 1, 2, 3092, 34736, 1, 3,
        ];
        let numbers = [15.0, 0.0, 500_000.0, 0.9996];
        assert_eq!(crs_of(&keys, &numbers, ""), Some(Ok("EPSG:32633".into())));
        let numbers = [15.5, 0.0, 500_000.0, 0.9996];
        assert_eq!(crs_of(&keys, &numbers, ""), Some(Err(Code::CRS_NOT_FOUND)));
    }

    #[test]
    fn hostile_heads_end_in_an_answer() {
        let good = with_keys(&[1, 1, 0, 1, 3072, 0, 1, 27700], &[], "");
        for cut in 4..good.len() {
            let _ = opened(&good[..cut]);
        }
        for at in 4..good.len() {
            let mut bent = good.clone();
            bent[at] = 0xff;
            let _ = opened(&bent);
        }
        let mut huge =
            tiff(&[(256, 3, 1, shorts(&[1])), (257, 3, 1, shorts(&[1])), (34735, 3, u32::MAX, vec![0; 8])]);
        assert!(opened(&huge).unwrap().crs.is_none());
        huge.truncate(8);
        huge.extend([0xff; 2]);
        assert!(opened(&huge).is_err());
    }
}
