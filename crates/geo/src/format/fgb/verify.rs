//! A strict verifier of FlatBuffers, for tests.
//!
//! Offsets must lead into the buffer, strings must end with a zero byte, and every scalar must be
//! aligned to its size, counted from the size prefix. The verifier of the `flatbuffers` crate checks the
//! same and refuses a file that GDAL still reads.

use std::sync::Arc;

use super::super::{self as format, Options};
use super::write::{MAGIC, NODE_LEN};
use crate::batch::Batch;
use crate::column::Value;
use crate::crs::Crs;
use crate::schema::{Kind, Schema};
use crate::wkt;

/// The type of a field in the schema of FlatGeobuf; sizes in bytes.
enum FieldType {
    Scalar(usize),
    Text,
    Vector(usize),
    Table(&'static [(usize, FieldType)]),
    Tables(&'static [(usize, FieldType)]),
}

use FieldType::{Scalar, Table, Tables, Text, Vector};

static GEOMETRY: [(usize, FieldType); 6] =
    [(0, Vector(4)), (1, Vector(8)), (2, Vector(8)), (3, Vector(8)), (6, Scalar(1)), (7, Tables(&GEOMETRY))];
static FEATURE: [(usize, FieldType); 2] = [(0, Table(&GEOMETRY)), (1, Vector(1))];
static COLUMN: [(usize, FieldType); 2] = [(0, Text), (1, Scalar(1))];
static CRS: [(usize, FieldType); 2] = [(0, Text), (1, Scalar(4))];
static HEADER: [(usize, FieldType); 9] = [
    (0, Text),
    (1, Vector(8)),
    (2, Scalar(1)),
    (3, Scalar(1)),
    (4, Scalar(1)),
    (7, Tables(&COLUMN)),
    (8, Scalar(8)),
    (9, Scalar(2)),
    (10, Table(&CRS)),
];

/// A buffer with its size prefix.
struct Verifier<'a>(&'a [u8]);

impl Verifier<'_> {
    /// The bytes of a scalar of `size` bytes that must be aligned to it.
    fn scalar(&self, at: usize, size: usize) -> u64 {
        assert!(at.is_multiple_of(size), "{size} bytes at position {at} are unaligned");
        let bytes = self.0.get(at..at + size).unwrap_or_else(|| panic!("position {at} is outside"));
        bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn target(&self, at: usize) -> usize {
        at + self.scalar(at, 4) as usize
    }

    /// Checks a vector and returns the position of its first item and their count.
    fn vector(&self, at: usize, size: usize) -> (usize, usize) {
        let (first, count) = (at + 4, self.scalar(at, 4) as usize);
        assert!(first.is_multiple_of(size), "a vector of {size} bytes at position {first} is unaligned");
        assert!(self.0.get(first..first + count * size).is_some(), "the vector at {at} ends outside");
        (first, count)
    }

    fn table(&self, at: usize, fields: &[(usize, FieldType)]) {
        let vtable = at - i32::try_from(self.scalar(at, 4)).unwrap() as usize;
        let (vtable_len, table_len) = (self.scalar(vtable, 2) as usize, self.scalar(vtable + 2, 2) as usize);
        let known: Vec<usize> = fields.iter().map(|(slot, _)| *slot).collect();
        for slot in (0..(vtable_len - 4) / 2).filter(|slot| !known.contains(slot)) {
            assert_eq!(self.scalar(vtable + 4 + slot * 2, 2), 0, "field {slot} is not in the schema");
        }
        for (slot, kind) in fields.iter().filter(|(slot, _)| 4 + slot * 2 < vtable_len) {
            let offset = self.scalar(vtable + 4 + slot * 2, 2) as usize;
            if offset == 0 {
                continue;
            }
            assert!(offset >= 4 && offset < table_len, "field {slot} lies outside its table");
            let field = at + offset;
            match kind {
                Scalar(size) => {
                    self.scalar(field, *size);
                }
                Vector(size) => {
                    self.vector(self.target(field), *size);
                }
                Text => {
                    let (first, len) = self.vector(self.target(field), 1);
                    assert_eq!(self.0.get(first + len), Some(&0), "a string without its zero byte");
                    assert!(std::str::from_utf8(&self.0[first..first + len]).is_ok());
                }
                Table(fields) => self.table(self.target(field), fields),
                Tables(fields) => {
                    let (first, count) = self.vector(self.target(field), 4);
                    (0..count).for_each(|item| self.table(self.target(first + item * 4), fields));
                }
            }
        }
    }

    fn root(&self, fields: &[(usize, FieldType)]) {
        assert_eq!(self.scalar(0, 4) as usize + 4, self.0.len());
        self.table(self.target(4), fields);
    }
}

/// Every size-prefixed buffer of a file: the header, then the features.
fn buffers(bytes: &[u8], nodes: usize) -> Vec<&[u8]> {
    assert_eq!(bytes[..8], MAGIC);
    let (mut at, mut found) = (MAGIC.len(), Vec::new());
    while at < bytes.len() {
        let len = 4 + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        found.push(&bytes[at..at + len]);
        at += len + if found.len() == 1 { nodes * NODE_LEN as usize } else { 0 };
    }
    found
}

#[test]
fn every_buffer_passes_a_strict_verifier() {
    let dir = tempfile::tempdir().unwrap();
    let texts = [
        "POINT (1 2)",
        "POINT Z (1 2 3)",
        "POINT M (1 2 4)",
        "MULTIPOINT (1 2, 3 4, 5 6)",
        "LINESTRING ZM (0 0 1 2, 1 1 3 4, 2 2 5 6)",
        "MULTILINESTRING ((0 0, 1 1), (2 2, 3 3, 4 4))",
        "POLYGON ((0 0, 9 0, 9 9, 0 0), (5 1, 6 1, 6 2, 5 1))",
        "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))",
        "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (0 0, 1 1))",
    ];
    for columns in 0..5 {
        let fields = ["n", "na", "nam", "name", "names"].into_iter().take(columns);
        let schema = Arc::new(Schema::new(fields.map(|name| (name, Kind::Text))));
        let path = dir.path().join(format!("{}.fgb", "x".repeat(columns + 1)));
        let mut writer = format::create(&path, &schema, &Crs::epsg(25832), &Options::default()).unwrap();
        let mut batch = Batch::new(schema);
        for (text, value) in texts.iter().flat_map(|text| ["", "a", "bc", "def"].map(|value| (text, value))) {
            let mut wkb = Vec::new();
            wkt::read(text, &mut wkb).unwrap();
            batch.push(Some(&wkb), std::iter::repeat_n(Value::Text(value), columns)).unwrap();
        }
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        // 36 leaves, 3 nodes above them and the root.
        let found = buffers(&bytes, 36 + 3 + 1);
        assert_eq!(found.len(), 1 + texts.len() * 4);
        for (at, buffer) in found.into_iter().enumerate() {
            assert!(buffer.len().is_multiple_of(8), "the next buffer is unaligned");
            Verifier(buffer).root(if at == 0 { &HEADER } else { &FEATURE });
        }
    }
}

#[test]
fn measures_survive_a_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    for text in ["POINT M (1 2 4)", "LINESTRING ZM (0 0 1 2, 1 1 3 4)"] {
        let path = dir.path().join("m.fgb");
        let schema = Arc::new(Schema::default());
        let mut writer = format::create(&path, &schema, &Crs::wgs84(), &Options::default()).unwrap();
        let (mut batch, mut wkb) = (Batch::new(schema), Vec::new());
        wkt::read(text, &mut wkb).unwrap();
        batch.push(Some(&wkb), []).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let mut reader = format::open(&path, &format::geojson::ReadOptions::default()).unwrap();
        let found = reader.next_batch(&mut Vec::new()).unwrap().unwrap();
        assert_eq!(found.geometry(0).map(wkt::to_string).as_deref(), Some(text));
    }
}
