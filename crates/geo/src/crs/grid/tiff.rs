//! Grids in GeoTIFF, as PROJ distributes them: an image (IFD) per subgrid, a band per direction.
//!
//! GDAL's metadata names each band, its unit and its positive direction; what a later image leaves out is
//! taken from the one before. Tags and pixels are read by [`crate::raster`], which says why not by a crate.

use std::io::{Read, Seek};

use super::{NODES_MAX, Subgrid, broken};
use crate::error::Error;
use crate::raster::{self, Pixels, Tags};
use crate::xml::{self, Node};

/// Most bytes to read and decompress from a file.
const BYTES_MAX: u64 = 512 << 20;

/// The metadata of the bands.
#[derive(Clone)]
struct Bands {
    /// Indices of the bands of the longitude and the latitude shift.
    at: [usize; 2],
    /// Unit of each in degrees; negative if west or south is positive.
    unit: [f64; 2],
    /// Scale and offset of each.
    scale: [(f64, f64); 2],
}

impl Default for Bands {
    fn default() -> Bands {
        Bands { at: [1, 0], unit: [1.0 / 3600.0; 2], scale: [(1.0, 0.0); 2] }
    }
}

pub(super) fn read(file: &mut (impl Read + Seek)) -> Result<Vec<Subgrid>, Error> {
    let mut bands = Bands::default();
    let (mut parts, mut nodes, mut budget) = (Vec::new(), 0, BYTES_MAX);
    for tags in Tags::all(file)? {
        // An overview or a mask.
        if tags.number(254).unwrap_or(0) & 5 != 0 {
            continue;
        }
        let words = words(&tags)?;
        let kind = item(&words, "TYPE", None);
        if kind.is_some_and(|kind| kind != "HORIZONTAL_OFFSET") {
            return Err(broken("the GeoTIFF is not a grid of horizontal shifts"));
        }
        bands = bands.with(&words)?;
        let part = Subgrid::of_picture(file, &tags, &bands, NODES_MAX - nodes, &mut budget)?;
        nodes += part.shifts.len();
        parts.push(part);
    }
    if parts.is_empty() {
        return Err(broken("the GeoTIFF holds no grid"));
    }
    Ok(parts)
}

/// The items of GDAL's metadata.
fn words(tags: &Tags) -> Result<Vec<Node>, Error> {
    match tags.text(42112) {
        Some(text) => Ok(xml::parse(text.trim().as_bytes())?.children),
        None => Ok(Vec::new()),
    }
}

/// An item by its name, of the image or of one of its bands.
fn item<'a>(words: &'a [Node], name: &str, band: Option<usize>) -> Option<&'a str> {
    let of_band = |node: &Node| match band {
        Some(band) => node.attribute("sample").and_then(|n| n.parse().ok()) == Some(band),
        None => node.attribute("sample").is_none(),
    };
    words
        .iter()
        .find(|node| {
            node.attribute("name").is_some_and(|known| known.eq_ignore_ascii_case(name)) && of_band(node)
        })
        .map(|node| node.text.trim())
}

impl Bands {
    /// Updated by these items.
    fn with(mut self, words: &[Node]) -> Result<Bands, Error> {
        for (way, name) in ["longitude_offset", "latitude_offset"].into_iter().enumerate() {
            let described = words
                .iter()
                .find(|node| node.attribute("name") == Some("DESCRIPTION") && node.text.trim() == name);
            if let Some(band) = described.and_then(|node| node.attribute("sample")?.parse().ok()) {
                self.at[way] = band;
            }
            let band = Some(self.at[way]);
            let west =
                item(words, "positive_value", band).map(|positive| positive == "west" || positive == "south");
            let was_negative = self.unit[way] < 0.0;
            let unit = match item(words, "UNITTYPE", band) {
                None => self.unit[way].abs(),
                Some("arc-second" | "arc-seconds" | "arc-seconds per year") => 1.0 / 3600.0,
                Some("degree" | "degrees") => 1.0,
                Some("radian" | "radians") => 1f64.to_degrees(),
                Some(other) => {
                    return Err(broken(&format!(
                        "the unit of the grid is {other:?}; expected arc-second, degree or radian"
                    )));
                }
            };
            self.unit[way] = if west.unwrap_or(was_negative) { -unit } else { unit };
            let number =
                |name: &str, or: f64| item(words, name, band).map_or(Some(or), |text| text.parse().ok());
            let (scale, offset) = self.scale[way];
            self.scale[way] = number("SCALE", scale)
                .zip(number("OFFSET", offset))
                .ok_or_else(|| broken("the scale or offset of a band is not a number"))?;
        }
        Ok(self)
    }
}

impl Subgrid {
    fn of_picture(
        file: &mut (impl Read + Seek),
        tags: &Tags,
        bands: &Bands,
        nodes_max: usize,
        budget: &mut u64,
    ) -> Result<Subgrid, Error> {
        let pixels = Pixels::new(tags, nodes_max)?;
        let (columns, rows) = (pixels.width, pixels.height);
        if bands.at.iter().any(|band| *band >= pixels.bands) {
            return Err(broken("the grid lacks a band of longitude or latitude shifts"));
        }
        // The geotransform is that of pixel corners; a node is a pixel centre.
        let Some([x, step_x, 0.0, y, 0.0, step_y]) = raster::transform_of(tags) else {
            return Err(broken("the grid is not georeferenced, or is rotated"));
        };
        let (west, north, step_y) = (x + step_x / 2.0, y + step_y / 2.0, -step_y);
        let (east, south) = (west + step_x * (columns - 1) as f64, north - step_y * (rows - 1) as f64);
        if !(step_x > 0.0 && step_y > 0.0 && east.is_finite() && south.is_finite() && columns > 1 && rows > 1)
        {
            return Err(broken("the grid lies outside of the globe"));
        }
        let nothing = tags.text(42113).and_then(|text| text.trim().parse::<f32>().ok());
        let mut shifts = vec![[f32::NAN; 2]; columns * rows];
        for (way, band) in bands.at.into_iter().enumerate() {
            let (scale, offset) = bands.scale[way];
            // From the north-west to the south-east; ours is the reverse.
            let last = columns * rows - 1;
            pixels.band(file, band, budget, |at, value| {
                let value = if Some(value) == nothing { f32::NAN } else { value };
                let scaled = if (scale, offset) == (1.0, 0.0) {
                    value
                } else {
                    (f64::from(value) * scale + offset) as f32
                };
                shifts[last - at][way] = scaled;
            })?;
        }
        Ok(Subgrid { south, east, step: (step_x, step_y), columns, rows, unit: bands.unit, shifts })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::super::Grid;
    use super::*;

    /// How a file is laid out.
    #[derive(Clone, Copy, Debug)]
    struct Form {
        big_endian: bool,
        tiled: bool,
        separate: bool,
        deflated: bool,
        predictor: u16,
        double: bool,
        point: bool,
    }

    const PLAIN: Form = Form {
        big_endian: false,
        tiled: false,
        separate: false,
        deflated: false,
        predictor: 1,
        double: false,
        point: true,
    };

    const WORDS: &str = "<GDALMetadata><Item name=\"TYPE\">HORIZONTAL_OFFSET</Item>\
        <Item name=\"DESCRIPTION\" sample=\"0\" role=\"description\">latitude_offset</Item>\
        <Item name=\"DESCRIPTION\" sample=\"1\" role=\"description\">longitude_offset</Item>\
        <Item name=\"UNITTYPE\" sample=\"0\" role=\"unittype\">arc-second</Item>\
        <Item name=\"positive_value\" sample=\"1\">east</Item></GDALMetadata>\n\0";

    /// A part from the north-western node, in steps, of so many nodes.
    struct Made {
        west: f64,
        north: f64,
        step: f64,
        columns: usize,
        rows: usize,
    }

    const ROOT: Made = Made { west: -2.0, north: 52.0, step: 0.125, columns: 25, rows: 17 };
    const FINE: Made = Made { west: -1.0, north: 51.5, step: 0.0625, columns: 5, rows: 5 };

    /// The latitude and longitude shifts in seconds.
    fn shifts(lon: f64, lat: f64) -> [f64; 2] {
        [lat - 45.0, lon + 0.1]
    }

    /// A value in the order of the file, of two, four or eight bytes.
    fn value(form: Form, number: u64, len: usize) -> Vec<u8> {
        let bytes = number.to_le_bytes();
        let mut bytes = bytes[..len].to_vec();
        form.big_endian.then(|| bytes.reverse());
        bytes
    }

    fn real(form: Form, number: f64) -> u64 {
        if form.double { number.to_bits() } else { u64::from((number as f32).to_bits()) }
    }

    /// The bytes of a row, predicted.
    fn row(form: Form, numbers: &[u64], stride: usize) -> Vec<u8> {
        let len = if form.double { 8 } else { 4 };
        let before = |at: usize| if at < stride { 0 } else { numbers[at - stride] };
        match form.predictor {
            2 => numbers
                .iter()
                .enumerate()
                .flat_map(|(at, number)| value(form, number.wrapping_sub(before(at)), len))
                .collect(),
            3 => {
                let bytes: Vec<u8> = (0..len)
                    .flat_map(|byte| {
                        numbers.iter().map(move |number| (number >> (8 * (len - 1 - byte))) as u8)
                    })
                    .collect();
                let before = |at: usize| if at < stride { 0 } else { bytes[at - stride] };
                (0..bytes.len()).map(|at| bytes[at].wrapping_sub(before(at))).collect()
            }
            _ => numbers.iter().flat_map(|number| value(form, *number, len)).collect(),
        }
    }

    /// The blocks of a part.
    fn blocks(form: Form, part: &Made) -> Vec<Vec<u8>> {
        let (width, height) = if form.tiled { (16, 16) } else { (part.columns, 7) };
        let bands: &[&[usize]] = if form.separate { &[&[0], &[1]] } else { &[&[0, 1]] };
        let mut out = Vec::new();
        for bands in bands {
            for top in (0..part.rows).step_by(height) {
                for left in (0..part.columns).step_by(width) {
                    let mut bytes = Vec::new();
                    let rows = if form.tiled { height } else { height.min(part.rows - top) };
                    for y in top..top + rows {
                        let of = |x: usize| {
                            shifts(part.west + x as f64 * part.step, part.north - y as f64 * part.step)
                        };
                        let numbers: Vec<u64> = (left..left + width)
                            .flat_map(|x| bands.iter().map(move |band| real(form, of(x)[*band])))
                            .collect();
                        bytes.extend(row(form, &numbers, bands.len()));
                    }
                    if form.deflated {
                        let mut packer =
                            flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                        packer.write_all(&bytes).unwrap();
                        bytes = packer.finish().unwrap();
                    }
                    out.push(bytes);
                }
            }
        }
        out
    }

    fn file(form: Form, parts: &[(Made, &str)]) -> Vec<u8> {
        let mut out = if form.big_endian { b"MM\0\x2a".to_vec() } else { b"II\x2a\0".to_vec() };
        let mut link = out.len();
        out.extend([0; 4]);
        for (part, words) in parts {
            let blocks = blocks(form, part);
            let places: Vec<usize> = blocks
                .iter()
                .map(|block| {
                    out.extend(block);
                    out.len() - block.len()
                })
                .collect();
            let longs =
                |all: &[usize]| all.iter().flat_map(|n| value(form, *n as u64, 4)).collect::<Vec<u8>>();
            let shorts = |all: &[u64]| all.iter().flat_map(|n| value(form, *n, 2)).collect::<Vec<u8>>();
            let doubles =
                |all: &[f64]| all.iter().flat_map(|n| value(form, n.to_bits(), 8)).collect::<Vec<u8>>();
            let lens: Vec<usize> = blocks.iter().map(Vec::len).collect();
            let edge = if form.point { 0.0 } else { part.step / 2.0 };
            let bits = if form.double { 64 } else { 32 };
            let mut tags: Vec<(u64, u64, Vec<u8>)> = vec![
                (256, 4, longs(&[part.columns])),
                (257, 4, longs(&[part.rows])),
                (258, 3, shorts(&[bits, bits])),
                (259, 3, shorts(&[if form.deflated { 8 } else { 1 }])),
                (277, 3, shorts(&[2])),
                (284, 3, shorts(&[if form.separate { 2 } else { 1 }])),
                (317, 3, shorts(&[form.predictor.into()])),
                (339, 3, shorts(&[3, 3])),
                (33550, 12, doubles(&[part.step, part.step, 0.0])),
                (33922, 12, doubles(&[0.0, 0.0, 0.0, part.west - edge, part.north + edge, 0.0])),
                (34735, 3, shorts(&[1, 1, 0, 1, 1025, 0, 1, if form.point { 2 } else { 1 }])),
                (42112, 2, words.as_bytes().to_vec()),
            ];
            if form.tiled {
                tags.extend([(322, 3, shorts(&[16])), (323, 3, shorts(&[16]))]);
                tags.extend([(324, 4, longs(&places)), (325, 4, longs(&lens))]);
            } else {
                tags.extend([(273, 4, longs(&places)), (278, 3, shorts(&[7])), (279, 4, longs(&lens))]);
            }
            tags.retain(|(_, _, bytes)| !bytes.is_empty());
            tags.sort_by_key(|(number, _, _)| *number);
            let mut list = value(form, tags.len() as u64, 2);
            for (number, kind, mut bytes) in tags {
                let size = match kind {
                    3 => 2,
                    4 => 4,
                    12 => 8,
                    _ => 1,
                };
                list.extend([value(form, number, 2), value(form, kind, 2)].concat());
                list.extend(value(form, (bytes.len() / size) as u64, 4));
                if bytes.len() <= 4 {
                    bytes.resize(4, 0);
                    list.extend(bytes);
                } else {
                    list.extend(value(form, out.len() as u64, 4));
                    out.extend(bytes);
                }
            }
            let at = value(form, out.len() as u64, 4);
            out[link..link + 4].copy_from_slice(&at);
            out.extend(list);
            link = out.len();
            out.extend([0; 4]);
        }
        out
    }

    fn opened(bytes: &[u8]) -> Result<Grid, Error> {
        Grid::read(&mut Cursor::new(bytes))
    }

    fn assert_shifts(grid: &Grid, what: &dyn std::fmt::Debug) {
        for (lon, lat) in [(-1.99, 51.99), (0.99, 50.01), (-0.9, 51.4), (0.3, 51.03)] {
            let [north, east] = shifts(lon, lat);
            let (x, y) = grid.forward(lon, lat).unwrap();
            let off = ((x - lon) * 3600.0 - east).abs().max(((y - lat) * 3600.0 - north).abs());
            assert!(off < 1e-6, "{off} at {lon} {lat} of {what:?}");
            let (lon_back, lat_back) = grid.backward(x, y).unwrap();
            assert!((lon_back - lon).abs() < 1e-11 && (lat_back - lat).abs() < 1e-11);
        }
        assert!(grid.forward(-2.0, 52.0).is_some() && grid.forward(1.0, 50.0).is_some());
        assert!(grid.forward(1.1, 51.0).is_none() && grid.forward(0.0, 49.9).is_none());
        // The same place, counted around the earth.
        assert!(grid.forward(359.0, 51.0).is_some());
    }

    #[test]
    fn every_layout_gives_the_same_shifts() {
        for bits in 0..64 {
            let is = |bit: u32| bits >> bit & 1 == 1;
            for predictor in 1..=3 {
                let form = Form {
                    big_endian: is(0),
                    tiled: is(1),
                    separate: is(2),
                    deflated: is(3),
                    double: is(4),
                    point: is(5),
                    predictor,
                };
                assert_shifts(&opened(&file(form, &[(ROOT, WORDS)])).unwrap(), &form);
            }
        }
    }

    #[test]
    fn a_finer_part_counts_and_says_only_what_differs() {
        let form = Form { deflated: true, tiled: true, predictor: 3, ..PLAIN };
        assert_shifts(&opened(&file(form, &[(ROOT, WORDS), (FINE, "")])).unwrap(), &form);
        // The other way is positive, other unit, other order of bands: all told of the second only.
        let turned = "<GDALMetadata><Item name=\"positive_value\" sample=\"1\">west</Item>\
            <Item name=\"UNITTYPE\" sample=\"0\">degree</Item></GDALMetadata>";
        let grid = opened(&file(form, &[(ROOT, WORDS), (FINE, turned)])).unwrap();
        let (lon, lat) = grid.forward(-0.9, 51.4).unwrap();
        assert!((lon - (-0.9 + 0.8 / 3600.0)).abs() < 1e-9 && (lat - 57.8).abs() < 1e-5, "{lon} {lat}");
        assert!((grid.forward(0.3, 51.03).unwrap().0 - (0.3 + 0.4 / 3600.0)).abs() < 1e-9);
    }

    #[test]
    fn other_grids_are_refused_in_words() {
        let said = |words: &str| opened(&file(PLAIN, &[(ROOT, words)])).unwrap_err().to_string();
        let kind = said(
            "<GDALMetadata><Item name=\"TYPE\">VERTICAL_OFFSET_GEOGRAPHIC_TO_VERTICAL</Item></GDALMetadata>",
        );
        assert!(kind.contains("not a grid of horizontal shifts"), "{kind}");
        let unit = said("<GDALMetadata><Item name=\"UNITTYPE\" sample=\"1\">metre</Item></GDALMetadata>");
        assert!(unit.contains("metre"), "{unit}");
        let bands = said(
            "<GDALMetadata><Item name=\"DESCRIPTION\" sample=\"7\">longitude_offset</Item></GDALMetadata>",
        );
        assert!(bands.contains("lacks a band"), "{bands}");
    }

    #[test]
    fn hostile_files_end_in_an_answer() {
        for form in [PLAIN, Form { deflated: true, tiled: true, predictor: 3, separate: true, ..PLAIN }] {
            let good = file(form, &[(ROOT, WORDS), (FINE, "")]);
            for cut in (0..good.len()).step_by(7) {
                let _ = opened(&good[..cut]);
            }
            for at in 0..good.len() {
                for byte in [0, 0x7f, 0xff] {
                    let mut bent = good.clone();
                    bent[at] = byte;
                    let _ = opened(&bent).map(|grid| grid.forward(0.0, 51.0));
                }
            }
        }
        // A list of pictures that leads back to its start.
        let mut ring = file(PLAIN, &[(FINE, WORDS)]);
        let (end, first) = (ring.len() - 4, ring[4..8].to_vec());
        ring[end..].copy_from_slice(&first);
        assert!(opened(&ring).is_err());
    }
}
