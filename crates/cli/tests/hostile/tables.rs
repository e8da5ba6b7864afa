//! FlatGeobuf and Shapefile: distances, counts and lengths that lie.

use crate::{Case, bad, legal};

const MAGIC: &[u8] = b"fgb\x03fgb\x00";

fn sized(table: &[u8]) -> Vec<u8> {
    [&(table.len() as u32).to_le_bytes()[..], table].concat()
}

/// A table of numbers and distances, behind the list of their places.
struct Table(Vec<(usize, Vec<u8>)>);

impl Table {
    /// The bytes, and where the field of each slot stands in them.
    fn write(&self, at: usize) -> (Vec<u8>, usize, Vec<usize>) {
        let slots = self.0.iter().map(|(slot, _)| slot + 1).max().unwrap_or(0);
        let list_len = 4 + slots * 2;
        let (mut places, mut body) = (vec![0u16; slots], Vec::<u8>::new());
        let mut fields = Vec::new();
        for (slot, value) in &self.0 {
            places[*slot] = 4 + body.len() as u16;
            fields.push(at + list_len + 4 + body.len());
            body.extend(value);
        }
        let mut out = (list_len as u16).to_le_bytes().to_vec();
        out.extend((4 + body.len() as u16).to_le_bytes());
        places.iter().for_each(|place| out.extend(place.to_le_bytes()));
        out.extend((list_len as i32).to_le_bytes());
        out.extend(body);
        (out, at + list_len, fields)
    }
}

fn u32s(number: u32) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

/// A buffer of one table.
fn buffer(table: &Table) -> (Vec<u8>, Vec<usize>) {
    let (bytes, at, fields) = table.write(4);
    ([u32s(at as u32), bytes].concat(), fields)
}

fn header(features: u64, node_size: u16, shape: u8) -> Vec<u8> {
    let fields =
        vec![(8, features.to_le_bytes().to_vec()), (9, node_size.to_le_bytes().to_vec()), (2, vec![shape])];
    buffer(&Table(fields)).0
}

fn file(header: &[u8], features: &[Vec<u8>]) -> Vec<u8> {
    let mut out = [MAGIC, &sized(header)].concat();
    features.iter().for_each(|feature| out.extend(sized(feature)));
    out
}

/// A feature whose geometry stands behind it.
fn feature(geometry: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let (mut out, fields) = buffer(&Table(vec![(0, u32s(0))]));
    // The list of places of a geometry (type and parts) stands before the geometry.
    let at = out.len() + 20;
    out[fields[0]..fields[0] + 4].copy_from_slice(&((at - fields[0]) as u32).to_le_bytes());
    out.extend([20u16, 12, 0, 0, 0, 0, 0, 0, 8, 4].iter().flat_map(|n| n.to_le_bytes()));
    out.extend(geometry(at - 20));
    out
}

/// A collection that holds `each` times what follows it, as often as asked.
fn chain(levels: usize, each: u32) -> Vec<u8> {
    feature(|list| {
        let mut out = Vec::new();
        let size = 16 + 4 * each as usize;
        for level in 0..levels {
            let at = list + 20 + level * size;
            out.extend(((at - list) as i32).to_le_bytes());
            out.extend(u32s(8));
            out.extend([7, 0, 0, 0]);
            out.extend(u32s(if level + 1 < levels { each } else { 0 }));
            // All of the same place, which is the next level.
            (0..each).for_each(|n| out.extend(u32s(4 * (each - n))));
        }
        out
    })
}

/// Columns that are all the same long name.
fn columns(count: u32, name_len: usize) -> Vec<u8> {
    let (mut out, fields) = buffer(&Table(vec![(7, u32s(0))]));
    let list = out.len();
    out[fields[0]..fields[0] + 4].copy_from_slice(&((list - fields[0]) as u32).to_le_bytes());
    out.extend(u32s(count));
    let column = list + 4 + 4 * count as usize;
    let (bytes, at, places) = Table(vec![(0, u32s(0)), (1, vec![11])]).write(column);
    for n in 0..count as usize {
        out.extend(u32s((at - (list + 4 + 4 * n)) as u32));
    }
    out.extend(bytes);
    let name = out.len();
    out[places[0]..places[0] + 4].copy_from_slice(&((name - places[0]) as u32).to_le_bytes());
    out.extend(u32s(name_len as u32));
    out.extend(vec![b'n'; name_len]);
    out
}

pub(crate) fn flatgeobuf() -> Vec<Case> {
    let head = header(0, 0, 0);
    let point = |xy: &[f64]| {
        let (mut out, fields) = buffer(&Table(vec![(0, u32s(0))]));
        let (mut geometry, at, places) = Table(vec![(1, u32s(0)), (6, vec![1])]).write(out.len());
        let list = out.len() + geometry.len();
        let rel = places[0] - out.len();
        geometry[rel..rel + 4].copy_from_slice(&((list - places[0]) as u32).to_le_bytes());
        out[fields[0]..fields[0] + 4].copy_from_slice(&((at - fields[0]) as u32).to_le_bytes());
        out.extend(geometry);
        out.extend(u32s(xy.len() as u32));
        xy.iter().for_each(|x| out.extend(x.to_le_bytes()));
        out
    };
    let huge_feature = [file(&head, &[]), u32s(u32::MAX), vec![0; 64]].concat();
    let long_feature = [file(&head, &[]), u32s(60 << 20), vec![0; 64]].concat();
    let mut outside = chain(1, 0);
    outside[0..4].copy_from_slice(&u32::MAX.to_le_bytes());
    vec![
        bad("magic.fgb", format!("fgb\u{3}fgb\0{}", "\u{7f}".repeat(64))),
        bad("old.fgb", b"fgb\x02fgb\x00\x04\0\0\0\0\0\0\0"),
        bad("header_len.fgb", [MAGIC, &u32s(u32::MAX)].concat()),
        bad("header_cut.fgb", [MAGIC, &u32s(10 << 20), &[0; 16]].concat()),
        bad("many.fgb", file(&header(u64::MAX, 16, 1), &[])),
        bad("many_few.fgb", file(&header(u64::MAX / 64, 2, 1), &[])),
        bad("index_cut.fgb", file(&header(1 << 40, 16, 1), &[])),
        bad("columns.fgb", file(&columns(1_000_000, 100_000), &[])),
        bad("deep.fgb", file(&head, &[chain(200_000, 1)])),
        bad("wide.fgb", file(&head, &[chain(60, 10)])),
        bad("wider.fgb", file(&head, &[chain(3, 5_000)])),
        bad("outside.fgb", file(&head, &[outside])),
        bad("itself.fgb", file(&head, &[vec![0; 64]])),
        bad("feature_len.fgb", huge_feature),
        bad("feature_cut.fgb", long_feature),
        bad("nan.fgb", file(&head, &[point(&[f64::INFINITY, 1.0])])),
        bad("zip.fgb", "PK\u{3}\u{4}\u{14}\0\0\0\u{8}\0"),
        bad("empty.fgb", ""),
    ]
}

fn shapes(kind: i32, records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0; 100];
    out[..4].copy_from_slice(&9994i32.to_be_bytes());
    out[28..32].copy_from_slice(&1000i32.to_le_bytes());
    out[32..36].copy_from_slice(&kind.to_le_bytes());
    for (at, record) in records.iter().enumerate() {
        out.extend((at as i32 + 1).to_be_bytes());
        out.extend((record.len() as i32 / 2).to_be_bytes());
        out.extend(record);
    }
    out
}

fn record(kind: i32, parts: u32, points: u32, rest: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &[0; 32], &parts.to_le_bytes(), &points.to_le_bytes(), rest].concat()
}

/// So many rings of a shell and of holes in it that each must be looked for in each.
fn rings(count: usize) -> Vec<u8> {
    let mut starts = Vec::new();
    let mut points = Vec::new();
    for n in 0..count {
        starts.extend((n as u32 * 4).to_le_bytes());
        let (x, turn) = (n as f64 * 3.0, n % 2 == 0);
        let ring = [[x, 0.0], [x, 1.0], [x + 1.0, 1.0], [x, 0.0]];
        let ring: Vec<_> = if turn { ring.to_vec() } else { ring.into_iter().rev().collect() };
        ring.iter().flatten().for_each(|v| points.extend(v.to_le_bytes()));
    }
    record(5, count as u32, count as u32 * 4, &[starts, points].concat())
}

pub(crate) fn shapefile() -> Vec<Case> {
    let with_length = |words: i32| {
        let mut out = shapes(5, &[record(5, 0, 0, &[])]);
        out[104..108].copy_from_slice(&words.to_be_bytes());
        out
    };
    let point = |x: f64, y: f64| [&1i32.to_le_bytes()[..], &x.to_le_bytes(), &y.to_le_bytes()].concat();
    vec![
        bad("zip.shp", "PK\u{3}\u{4}\u{14}\0\0\0\u{8}\0"),
        bad("empty.shp", ""),
        bad("zeros.shp", vec![0; 4096]),
        bad("kind.shp", shapes(99, &[vec![0; 8]])),
        bad("patch.shp", shapes(31, &[record(31, 1, 1, &[0; 64])])),
        bad("length.shp", with_length(i32::MAX)),
        bad("length_below.shp", with_length(-1)),
        bad("length_none.shp", with_length(0)),
        bad("parts.shp", shapes(5, &[record(5, u32::MAX, 4, &[0; 64])])),
        bad("many_parts.shp", shapes(5, &[record(5, i32::MAX as u32, 4, &[0; 64])])),
        bad("points.shp", shapes(5, &[record(5, 1, u32::MAX, &[0; 64])])),
        bad("both.shp", shapes(3, &[record(3, 0x4000_0000, 0x4000_0000, &[0; 64])])),
        bad("starts.shp", shapes(5, &[record(5, 2, 2, &[0xff; 40])])),
        bad(
            "multipoint.shp",
            shapes(8, &[[&8i32.to_le_bytes()[..], &[0; 32], &[0xff; 4], &[0; 16]].concat()]),
        ),
        bad("heights.shp", shapes(15, &[record(15, 1, 2, &[0; 40])])),
        bad("infinite.shp", shapes(1, &[point(f64::INFINITY, f64::NAN)])),
        bad("cut.shp", &shapes(1, &[point(1.0, 2.0)])[..110]),
        legal("rings.shp", shapes(5, &[rings(4_000)])),
    ]
}
