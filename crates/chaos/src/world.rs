//! The generated data: coordinates for addresses, and a layer of parcels.
//!
//! Nothing is stored. A coordinate is a function of the seed and the address, a feature a function
//! of the seed and its id. So a data set of any size takes no memory, and two servers with the same
//! seed return the same data.

use super::hash;
use tidegate_core::time::calendar::rfc3339;

const STREETS: [&str; 8] = [
    "Harbour Road",
    "Mill Lane",
    "Station Street",
    "Quay Street",
    "Tide Way",
    "Church Hill",
    "Park Row",
    "Weir Lane",
];
const CITIES: [&str; 8] =
    ["Northport", "Eastmouth", "Saltwick", "Fenbridge", "Overy", "Marlow Sands", "Penhaven", "Isleford"];
const ZONES: [&str; 4] = ["residential", "commercial", "industrial", "green"];

/// An address point: an address with its coordinate.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressPoint {
    /// Longitude in degrees.
    pub lon: f64,
    /// Latitude in degrees.
    pub lat: f64,
    /// The address as the provider writes it.
    pub label: String,
    /// The confidence score, from 0.5 to 1.
    pub score: f64,
}

/// One parcel of the layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Parcel {
    /// Its id, from 1.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The zoning: what may be built.
    pub zone: &'static str,
    /// Area in square metres.
    pub area: f64,
    /// Time of the last change, in milliseconds since 1970.
    pub updated_ms: i64,
    /// Longitude of the south-west corner, in degrees.
    pub lon: f64,
    /// Latitude of the south-west corner, in degrees.
    pub lat: f64,
    /// Length of a side, in degrees.
    pub side: f64,
}

/// The hash of an address, ignoring case and white space.
#[must_use]
pub(crate) fn subject(address: &str) -> u64 {
    let mut text = String::with_capacity(address.len());
    for word in address.split_whitespace() {
        if !text.is_empty() {
            text.push(' ');
        }
        text.extend(word.chars().flat_map(char::to_lowercase));
    }
    hash::bytes(3, text.as_bytes())
}

fn round(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

fn pick(list: &[&'static str], draw: u64) -> &'static str {
    list.get((draw % list.len().max(1) as u64) as usize).copied().unwrap_or_default()
}

/// Longitude and latitude of towns around the world; addresses are scattered around them.
const CENTRES: [(f64, f64); 32] = [
    (16.4, 48.2),
    (2.3, 48.9),
    (-3.7, 40.4),
    (13.4, 52.5),
    (-0.1, 51.5),
    (12.5, 41.9),
    (23.7, 38.0),
    (30.5, 50.4),
    (37.6, 55.7),
    (28.9, 41.0),
    (31.2, 30.0),
    (3.4, 6.5),
    (36.8, -1.3),
    (28.0, -26.2),
    (-7.6, 33.6),
    (55.3, 25.2),
    (77.2, 28.6),
    (72.9, 19.1),
    (100.5, 13.8),
    (106.8, -6.2),
    (114.2, 22.4),
    (116.4, 39.9),
    (127.0, 37.6),
    (139.7, 35.7),
    (151.1, -33.8),
    (144.9, -37.7),
    (-74.0, 40.8),
    (-87.7, 41.8),
    (-118.2, 34.1),
    (-99.1, 19.4),
    (-46.6, -23.5),
    (-58.4, -34.7),
];

/// The coordinate of `address` for this seed: within a few degrees of a town, more often close to
/// it.
#[must_use]
pub fn place(seed: u64, address: &str) -> AddressPoint {
    let draw = hash::mix(seed) ^ subject(address);
    let (lon, lat) =
        CENTRES.get((hash::mix(draw) % CENTRES.len() as u64) as usize).copied().unwrap_or_default();
    let away = |n: u64| (hash::unit(draw ^ n) + hash::unit(draw ^ (n + 8)) - 1.0) * 2.0;
    AddressPoint {
        lon: round(lon + away(16), 1e6),
        lat: round(lat + away(32), 1e6),
        label: address.split_whitespace().collect::<Vec<_>>().join(" "),
        score: round(0.5 + hash::unit(draw ^ 2) / 2.0, 1e2),
    }
}

/// The address at a coordinate for this seed, to about a metre.
#[must_use]
pub fn reverse(seed: u64, lat: f64, lon: f64) -> AddressPoint {
    let (lat, lon) = (round(lat, 1e5), round(lon, 1e5));
    let draw = hash::mix(hash::mix(seed ^ (lat + 0.0).to_bits()) ^ (lon + 0.0).to_bits());
    let number = draw % 200 + 1;
    let label = format!("{number} {}, {}", pick(&STREETS, draw >> 8), pick(&CITIES, draw >> 16));
    AddressPoint { lon, lat, label, score: round(0.5 + hash::unit(draw) / 2.0, 1e2) }
}

/// The parcel with the id `id`, from 1.
#[must_use]
pub fn parcel(seed: u64, id: u64) -> Parcel {
    let draw = hash::mix(hash::mix(seed) ^ id);
    let index = id.saturating_sub(1);
    let (column, row) = (index % 1_000, index / 1_000 % 10_000);
    let side = round(0.0002 + hash::unit(draw) * 0.0006, 1e7);
    Parcel {
        id,
        name: format!("{} {id}", pick(&CITIES, draw)),
        zone: pick(&ZONES, draw >> 8),
        area: round((side * 111_320.0) * (side * 111_320.0) * 0.64, 1e2),
        updated_ms: 1_700_000_000_000 + ((draw >> 16) % 60_000_000_000) as i64,
        lon: round(-5.0 + column as f64 * 0.001, 1e6),
        lat: round(40.0 + row as f64 * 0.001, 1e6),
        side,
    }
}

impl Parcel {
    /// The corners, counter-clockwise; the last repeats the first.
    pub(crate) fn ring(&self) -> [(f64, f64); 5] {
        let east = round(self.lon + self.side, 1e7);
        let north = round(self.lat + self.side, 1e7);
        [(self.lon, self.lat), (east, self.lat), (east, north), (self.lon, north), (self.lon, self.lat)]
    }

    /// Time of the last change, in RFC 3339.
    pub(crate) fn updated(&self) -> String {
        rfc3339(self.updated_ms)
    }
}

/// The tile at an address: a PNG of one pixel that holds the address as text.
#[must_use]
pub fn tile(address: &str) -> Vec<u8> {
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    // One grey pixel of eight bits, stored and not packed.
    chunk(&mut out, b"IHDR", &[0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0]);
    chunk(&mut out, b"tEXt", &[b"Comment\0", address.as_bytes()].concat());
    chunk(&mut out, b"IDAT", &[0x78, 1, 1, 2, 0, 0xfd, 0xff, 0, 0, 0, 2, 0, 1]);
    chunk(&mut out, b"IEND", &[]);
    out
}

fn chunk(out: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    out.extend((data.len() as u32).to_be_bytes());
    let start = out.len();
    out.extend(name);
    out.extend(data);
    let crc = out.get(start..).unwrap_or_default().iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    });
    out.extend((!crc).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_depend_on_seed_and_words_only() {
        assert_eq!(place(1, "1 Main St"), place(1, " 1  Main St "));
        assert_eq!(place(1, "1 Main St").lon, place(1, "1 MAIN st").lon);
        assert_ne!(place(1, "1 Main St").lon, place(2, "1 Main St").lon);
        assert_ne!(place(1, "1 Main St").lon, place(1, "2 Main St").lon);
        for i in 0..1_000 {
            let place = place(7, &format!("{i} Main St"));
            assert!((-180.0..180.0).contains(&place.lon) && (-90.0..90.0).contains(&place.lat));
        }
    }

    #[test]
    fn parcels_do_not_overlap_and_dates_are_dates() {
        let (a, b) = (parcel(1, 1), parcel(1, 2));
        assert!(a.ring()[1].0 < b.ring()[0].0);
        let dated = Parcel { updated_ms: 1_709_251_199_000, ..a };
        assert_eq!(dated.updated(), "2024-02-29T23:59:59Z");
    }
}
