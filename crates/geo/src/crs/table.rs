//! The table of coordinate reference systems, `data/crs.bin`, made by `examples/crs_table.rs`.
//!
//! PROJ strings share most of their parameters, so the file holds each parameter once and each system as
//! a list of indices. It is read when first needed.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::bounds::Bounds;

/// The one code that EPSG and ESRI both use, for different systems. The table has EPSG's.
pub const SHARED: u32 = 4812;

static FILE: &[u8] = include_bytes!("../../data/crs.bin");

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// EPSG or ESRI code. They do not overlap, except for [`SHARED`].
    pub code: u32,
    /// Whether it is an ESRI code.
    pub esri: bool,
    /// EPSG code of the base geographic system; its own code if it is geographic.
    pub base: Option<u32>,
    /// EPSG or ESRI code of the datum. A datum with another prime meridian has the code of the same datum
    /// with Greenwich.
    pub datum: Option<u32>,
    /// Name in EPSG's or ESRI's register.
    pub name: String,
    /// Whether coordinates are longitude and latitude in degrees.
    pub geographic: bool,
    /// Whether it has ellipsoidal heights: geographic 3D or geocentric.
    pub has_height: bool,
    /// Whether it is geocentric: X, Y and Z in metres.
    pub geocentric: bool,
    /// Whether the first axis of the authority's definition points north.
    pub north_first: bool,
    /// Whether it is deprecated.
    pub deprecated: bool,
    /// Whether our projection agrees with PROJ's.
    pub verified: bool,
    /// Stated accuracy of the datum shift to WGS 84, in metres; `None` if there is only a ballpark
    /// transformation, which ignores the difference of datums.
    pub accuracy: Option<f32>,
    /// Area of use in degrees. West is greater than east if it crosses the antimeridian.
    pub area: Bounds,
    /// PROJ string, with the parameters of the datum shift.
    pub proj: String,
}

/// The row of an EPSG or ESRI code.
#[must_use]
pub fn entry(code: u32) -> Option<Entry> {
    let table = table();
    let at = *table.offsets.get(&code)?;
    TableInput { at }.row()?.entry(&table.words)
}

/// The EPSG code of the system with this ESRI code, if it has one.
#[must_use]
pub fn same_as_esri(code: u32) -> Option<u32> {
    table().same.get(&code).copied()
}

/// The code of the system with this name in EPSG's or ESRI's register. Case, spaces and punctuation do not
/// count.
#[must_use]
pub fn code_of_name(name: &str) -> Option<u32> {
    names().get(&plain(name)).copied()
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

/// The index of the file. It holds no text of its own: opening it costs less than reading one small file.
struct CrsTable {
    words: Vec<&'static str>,
    /// Byte offsets of the rows by code, without ESRI's [`SHARED`].
    offsets: HashMap<u32, usize>,
    same: HashMap<u32, u32>,
    /// Byte offset of the number of rows.
    rows_at: usize,
    /// Byte offset of the list of aliases.
    aliases_at: usize,
}

fn table() -> &'static CrsTable {
    static TABLE: OnceLock<CrsTable> = OnceLock::new();
    TABLE.get_or_init(|| {
        read().unwrap_or(CrsTable {
            words: Vec::new(),
            offsets: HashMap::new(),
            same: HashMap::new(),
            rows_at: FILE.len(),
            aliases_at: FILE.len(),
        })
    })
}

/// Codes by name. Few commands look up a name, and the names cost more to index than all the rest.
fn names() -> &'static HashMap<String, u32> {
    static NAMES: OnceLock<HashMap<String, u32>> = OnceLock::new();
    NAMES.get_or_init(|| read_names().unwrap_or_default())
}

fn read() -> Option<CrsTable> {
    let mut input = TableInput { at: 0 };
    let words = (0..input.u32()?).map(|_| input.text()).collect::<Option<_>>()?;
    let rows_at = input.at;
    let count = input.u32()?;
    let mut offsets = HashMap::with_capacity(usize::try_from(count).ok()?);
    for _ in 0..count {
        let at = input.at;
        let row = input.row()?;
        if !row.is_shared_by_esri() {
            offsets.insert(row.code, at);
        }
    }
    let mut same = HashMap::new();
    for _ in 0..input.u32()? {
        let (esri, epsg) = (input.u32()?, input.u32()?);
        same.insert(esri, epsg);
    }
    Some(CrsTable { words, offsets, same, rows_at, aliases_at: input.at })
}

fn read_names() -> Option<HashMap<String, u32>> {
    let table = table();
    let mut names = HashMap::new();
    // The name of a current system takes precedence over that of a deprecated one.
    let mut outdated = Vec::new();
    let mut input = TableInput { at: table.rows_at };
    for _ in 0..input.u32()? {
        let row = input.row()?;
        // The name of a system with heights is that of the 2D system.
        if row.is_shared_by_esri() || row.has(HAS_HEIGHT) {
            continue;
        }
        if row.has(DEPRECATED) {
            outdated.push((plain(row.name), row.code));
        } else {
            names.entry(plain(row.name)).or_insert(row.code);
        }
    }
    let mut input = TableInput { at: table.aliases_at };
    for _ in 0..input.u32()? {
        let (code, name) = (input.u32()?, input.text()?);
        if code != SHARED {
            names.entry(plain(name)).or_insert(code);
        }
    }
    for (name, code) in outdated {
        names.entry(name).or_insert(code);
    }
    Some(names)
}

// Flags of a row.
const GEOGRAPHIC: u8 = 1;
const NORTH_FIRST: u8 = 2;
const DEPRECATED: u8 = 4;
const VERIFIED: u8 = 8;
const ESRI: u8 = 16;
const HAS_HEIGHT: u8 = 32;
const GEOCENTRIC: u8 = 64;

/// A row as it is in the file.
struct TableRow {
    code: u32,
    base: u32,
    datum: u32,
    flags: u8,
    accuracy: f32,
    area: [f32; 4],
    name: &'static str,
    /// Indices of the words of its PROJ string, two bytes each.
    words: &'static [u8],
}

impl TableRow {
    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    const fn is_shared_by_esri(&self) -> bool {
        self.has(ESRI) && self.code == SHARED
    }

    fn entry(&self, words: &[&str]) -> Option<Entry> {
        let mut proj = String::new();
        for index in self.words.chunks_exact(2) {
            let word = words.get(usize::from(u16::from_le_bytes([index[0], index[1]])))?;
            if !proj.is_empty() {
                proj.push(' ');
            }
            proj.push_str(word);
        }
        let [min_x, min_y, max_x, max_y] = self.area.map(f64::from);
        Some(Entry {
            code: self.code,
            base: Some(self.base).filter(|base| *base != 0),
            datum: Some(self.datum).filter(|datum| *datum != 0),
            name: self.name.to_owned(),
            esri: self.has(ESRI),
            has_height: self.has(HAS_HEIGHT),
            geocentric: self.has(GEOCENTRIC),
            geographic: self.has(GEOGRAPHIC),
            north_first: self.has(NORTH_FIRST),
            deprecated: self.has(DEPRECATED),
            verified: self.has(VERIFIED),
            accuracy: (self.accuracy >= 0.0).then_some(self.accuracy),
            area: Bounds { min_x, min_y, max_x, max_y },
            proj,
        })
    }
}

/// Reads [`FILE`] from an offset on.
struct TableInput {
    at: usize,
}

impl TableInput {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = FILE.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(*taken)
    }

    fn bytes(&mut self, len: usize) -> Option<&'static [u8]> {
        let bytes = FILE.get(self.at..self.at + len)?;
        self.at += len;
        Some(bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn f32(&mut self) -> Option<f32> {
        self.take().map(f32::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'static str> {
        let [len] = self.take()?;
        std::str::from_utf8(self.bytes(usize::from(len))?).ok()
    }

    fn row(&mut self) -> Option<TableRow> {
        let (code, base, datum) = (self.u32()?, self.u32()?, self.u32()?);
        let [flags] = self.take()?;
        let accuracy = self.f32()?;
        let area = [self.f32()?, self.f32()?, self.f32()?, self.f32()?];
        let name = self.text()?;
        let [count] = self.take()?;
        let words = self.bytes(2 * usize::from(count))?;
        Some(TableRow { code, base, datum, flags, accuracy, area, name, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
