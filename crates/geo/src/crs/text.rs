//! Full definitions of systems as PROJJSON and ESRI WKT, for formats that need more than a code.
//!
//! The texts are PROJ's, extracted by `tools/crs_text.py`: generating WKT from parameters is a program of
//! its own, and a wrong keyword makes a file unreadable for others.

use std::io::Read;

use super::Crs;

static FILE: &[u8] = include_bytes!("../../data/crs_text.bin");

/// Most bytes of a decompressed block.
const BLOCK_LEN_MAX: u64 = 1 << 20;

impl Crs {
    /// The definition as PROJJSON, for GeoParquet.
    #[must_use]
    pub fn projjson(&self) -> Option<String> {
        if *self == Crs::wgs84() {
            // The same system, longitude first.
            let text = texts(4326)?.0;
            let named = text.replacen("\"WGS 84\"", "\"WGS 84 (CRS84)\"", 1);
            return Some(named.replace(
                "{\"authority\":\"EPSG\",\"code\":4326}",
                "{\"authority\":\"OGC\",\"code\":\"CRS84\"}",
            ));
        }
        texts(self.number()?).map(|texts| texts.0)
    }

    /// The definition as ESRI WKT, for a `.prj` file.
    #[must_use]
    pub fn esri_wkt(&self) -> Option<String> {
        esri(self.number()?)
    }
}

/// The ESRI WKT of a code.
pub(super) fn esri(number: u32) -> Option<String> {
    texts(number).map(|texts| texts.1).filter(|text| !text.is_empty())
}

/// Visits the ESRI WKT of every system that has one, in the order of codes.
pub(super) fn each_esri(mut visit: impl FnMut(u32, &str)) {
    let count = word(0).unwrap_or(0) as usize;
    let mut row = 0;
    while row < count {
        let Some(block) = word(8 + row * 8) else { return };
        let Some(plain) = unpack(block) else { return };
        let mut parts = plain.split('\0');
        while row < count && word(8 + row * 8) == Some(block) {
            let (Some(_), Some(text)) = (parts.next(), parts.next()) else { return };
            if let Some(number) = word(4 + row * 8).filter(|_| !text.is_empty()) {
                visit(number, text);
            }
            row += 1;
        }
    }
}

fn word(at: usize) -> Option<u32> {
    FILE.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn unpack(block: u32) -> Option<String> {
    let mut at = 4 + word(0)? as usize * 8;
    for _ in 0..block {
        at += 4 + word(at)? as usize;
    }
    let packed = FILE.get(at + 4..at + 4 + word(at)? as usize)?;
    let mut plain = String::new();
    flate2::read::ZlibDecoder::new(packed).take(BLOCK_LEN_MAX).read_to_string(&mut plain).ok()?;
    Some(plain)
}

/// PROJJSON and ESRI WKT of a code.
fn texts(code: u32) -> Option<(String, String)> {
    let count = word(0)? as usize;
    let code_at = |row: usize| word(4 + row * 8);
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = usize::midpoint(low, high);
        if code_at(middle)? < code { low = middle + 1 } else { high = middle }
    }
    if low >= count || code_at(low)? != code {
        return None;
    }
    let block = word(8 + low * 8)?;
    let first = (0..low).rev().take_while(|row| word(8 + row * 8) == Some(block)).count();
    let plain = unpack(block)?;
    let mut parts = plain.split('\0').skip(first * 2);
    Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_of_the_table_is_spelt_out_and_understood_again() {
        for code in super::super::table::codes().into_iter().step_by(97).chain([4326, 27700, 3857, 2056]) {
            let crs = super::super::parse::numbered(code);
            let json = crs.projjson().unwrap_or_else(|| panic!("{crs}"));
            assert_eq!(json.parse::<Crs>().unwrap(), crs, "{json}");
        }
        assert!(Crs::epsg(27700).esri_wkt().unwrap().starts_with("PROJCS[\"British_National_Grid\""));
        assert!(Crs::wgs84().esri_wkt().unwrap().starts_with("GEOGCS[\"GCS_WGS_1984\""));
        assert_eq!(Crs::epsg(1).projjson(), None);
    }
}
