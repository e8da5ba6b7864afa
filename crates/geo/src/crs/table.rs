//! The table of systems, `data/crs.bin`, made by `examples/crs_table.rs`.
//!
//! PROJ strings share most of their words, so the file holds each word once and each system as a
//! list of word numbers. It is read once, when first needed.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::bounds::Bounds;

/// The one number that both EPSG and ESRI give out, to different systems. EPSG's is known here.
pub const SHARED: u32 = 4812;

static FILE: &[u8] = include_bytes!("../../data/crs.bin");

/// What the table knows of a system.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The code of EPSG or ESRI. ESRI's numbers begin where EPSG's end, but for [`SHARED`].
    pub code: u32,
    /// Whether the code is ESRI's.
    pub esri: bool,
    /// The EPSG code of the geographic system under it, itself if it is one.
    pub base: Option<u32>,
    /// The number that EPSG or ESRI gives to its datum. A datum that counts longitudes from a meridian of its
    /// own is the one that counts them from Greenwich.
    pub datum: Option<u32>,
    /// The name.
    pub name: String,
    /// Whether coordinates are degrees.
    pub geographic: bool,
    /// Whether a height over the ellipsoid, or what tells it, is part of a place.
    pub has_height: bool,
    /// Whether places are counted in metres from the middle of the earth, along X, Y and Z.
    pub geocentric: bool,
    /// Whether the authority writes north before east.
    pub north_first: bool,
    /// Whether the authority advises against it.
    pub deprecated: bool,
    /// Whether our projection was checked against PROJ.
    pub verified: bool,
    /// The stated accuracy of the way from WGS 84 in metres; `None` if there is only a ballpark
    /// one, which ignores the difference of datums.
    pub accuracy: Option<f32>,
    /// Where it is meant to be used, in degrees. West may be greater than east.
    pub area: Bounds,
    /// Its definition as a PROJ string.
    pub proj: String,
}

/// The entry of this number of EPSG or ESRI.
#[must_use]
pub fn entry(code: u32) -> Option<Entry> {
    let table = table();
    let at = table.offsets.get(&code)?;
    TableInput { bytes: FILE, at: *at }.entry(&table.words)
}

/// The EPSG code of the system to which ESRI gives this number, if it has one.
#[must_use]
pub fn same_as_esri(code: u32) -> Option<u32> {
    table().same.get(&code).copied()
}

/// The number of the system that EPSG or ESRI calls so, in any spelling of case, spaces and
/// punctuation.
#[must_use]
pub fn code_of_name(name: &str) -> Option<u32> {
    table().names.get(&plain(name)).copied()
}

/// All codes, in order.
#[must_use]
pub fn codes() -> Vec<u32> {
    let mut codes: Vec<u32> = table().offsets.keys().copied().collect();
    codes.sort_unstable();
    codes
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric() || *c == '+').flat_map(char::to_lowercase).collect()
}

struct CrsTable {
    words: Vec<String>,
    offsets: HashMap<u32, usize>,
    names: HashMap<String, u32>,
    same: HashMap<u32, u32>,
}

fn table() -> &'static CrsTable {
    static TABLE: OnceLock<CrsTable> = OnceLock::new();
    TABLE.get_or_init(|| {
        read().unwrap_or(CrsTable {
            words: Vec::new(),
            offsets: HashMap::new(),
            names: HashMap::new(),
            same: HashMap::new(),
        })
    })
}

fn read() -> Option<CrsTable> {
    let mut input = TableInput { bytes: FILE, at: 0 };
    let words: Vec<String> = (0..input.u32()?).map(|_| input.text()).collect::<Option<_>>()?;
    let (mut offsets, mut names, mut same) = (HashMap::new(), HashMap::new(), HashMap::new());
    // A name that is still in use counts before one that is not, whoever gave it.
    let mut outdated = Vec::new();
    for _ in 0..input.u32()? {
        let at = input.at;
        let entry = input.entry(&words)?;
        if entry.esri && entry.code == SHARED {
            continue;
        }
        offsets.insert(entry.code, at);
        if entry.has_height {
            // It has the name of the one without heights.
            continue;
        }
        if entry.deprecated {
            outdated.push((plain(&entry.name), entry.code));
        } else {
            names.entry(plain(&entry.name)).or_insert(entry.code);
        }
    }
    for _ in 0..input.u32()? {
        let (esri, epsg) = (input.u32()?, input.u32()?);
        same.insert(esri, epsg);
    }
    for _ in 0..input.u32()? {
        let (code, name) = (input.u32()?, input.text()?);
        if code != SHARED {
            names.entry(plain(&name)).or_insert(code);
        }
    }
    for (name, code) in outdated {
        names.entry(name).or_insert(code);
    }
    Some(CrsTable { words, offsets, names, same })
}

struct TableInput<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl TableInput<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = self.bytes.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn f32(&mut self) -> Option<f32> {
        self.take().map(f32::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let [len] = self.take()?;
        let text = self.bytes.get(self.at..self.at + usize::from(len))?;
        self.at += usize::from(len);
        String::from_utf8(text.to_vec()).ok()
    }

    fn entry(&mut self, words: &[String]) -> Option<Entry> {
        let code = self.u32()?;
        let base = Some(self.u32()?).filter(|base| *base != 0);
        let datum = Some(self.u32()?).filter(|datum| *datum != 0);
        let [flags] = self.take()?;
        let accuracy = self.f32()?;
        let [min_x, min_y, max_x, max_y] =
            [self.f32()?, self.f32()?, self.f32()?, self.f32()?].map(f64::from);
        let name = self.text()?;
        let [count] = self.take()?;
        let mut proj = String::new();
        for _ in 0..count {
            let word = words.get(usize::from(u16::from_le_bytes(self.take()?)))?;
            if !proj.is_empty() {
                proj.push(' ');
            }
            proj.push_str(word);
        }
        Some(Entry {
            code,
            base,
            datum,
            name,
            esri: flags & 16 != 0,
            has_height: flags & 32 != 0,
            geocentric: flags & 64 != 0,
            geographic: flags & 1 != 0,
            north_first: flags & 2 != 0,
            deprecated: flags & 4 != 0,
            verified: flags & 8 != 0,
            accuracy: (accuracy >= 0.0).then_some(accuracy),
            area: Bounds { min_x, min_y, max_x, max_y },
            proj,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one number that both give out.
    #[test]
    fn a_number_that_both_give_out_is_epsgs() {
        let entry = entry(SHARED).expect("EPSG:4812");
        assert!(!entry.esri, "{entry:?}");
        assert_eq!(crate::crs::Crs::esri(SHARED).entry(), None);
    }

    #[test]
    fn the_table_is_whole_and_knows_the_systems_of_daily_use() {
        assert!(codes().len() > 6000, "{}", codes().len());
        for (code, name) in [
            (4326, "WGS 84"),
            (3857, "WGS 84 / Pseudo-Mercator"),
            (27700, "OSGB36 / British National Grid"),
            (2056, "CH1903+ / LV95"),
            (25832, "ETRS89 / UTM zone 32N"),
        ] {
            let entry = entry(code).unwrap();
            assert_eq!(entry.name, name);
            assert!(entry.verified, "{entry:?}");
        }
        assert!(entry(4326).unwrap().geographic && entry(4326).unwrap().north_first);
        assert_eq!(code_of_name("WGS_1984_UTM_Zone_33N"), Some(32633));
        assert_eq!(code_of_name("British_National_Grid"), Some(27700));
        assert_eq!(code_of_name("ETRS89 / UTM zone 32N"), Some(25832));
        assert_eq!(entry(1), None);
    }
}
