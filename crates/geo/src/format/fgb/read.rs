//! Reading FlatGeobuf.
//!
//! The file is not trusted: every offset and count is checked against the length of the buffer
//! (`FlatTable`), and parts nest no deeper than well-known binary allows. The index is skipped; features
//! are read in the order of the file.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use tidegate_core::Code;

use super::table::FlatTable;
use super::write::{MAGIC, NODE_LEN};
use crate::batch::{Batch, Span};
use crate::column::Value;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::format::geojson::ReadOptions;
use crate::format::{Layer, Rejected};
use crate::mapping::Owned;
use crate::schema::{FIELDS_MAX, Kind, Schema, is_date, too_many_fields};
use crate::wkb::{DEPTH_MAX, Dim, Shape, write};

const HEADER_LEN_MAX: usize = 16 << 20;

/// A FlatGeobuf file being read.
pub struct FlatGeobufReader {
    input: BufReader<File>,
    layer: Layer,
    types: Vec<u8>,
    shape: u8,
    dim: Dim,
    record: u64,
    offset: u64,
    bytes: Vec<u8>,
    options: ReadOptions,
}

fn broken(message: &str) -> Problem {
    Problem::new(Code::CORRUPTED_HEADER, format!("not a FlatGeobuf file of version 3: {message}"))
}

impl FlatGeobufReader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// If it is not FlatGeobuf of version 3.
    pub fn open(path: &Path, options: ReadOptions) -> Result<FlatGeobufReader, Error> {
        let mut input = BufReader::with_capacity(1 << 18, File::open(path)?);
        let mut head = [0; 12];
        input.read_exact(&mut head).map_err(|_| broken("it is too short"))?;
        if head.get(..7) != MAGIC.get(..7) {
            return Err(broken("it has another magic number").into());
        }
        let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        if len > HEADER_LEN_MAX {
            return Err(broken("the header is too long").into());
        }
        let mut header = vec![0; len];
        input.read_exact(&mut header).map_err(|_| broken("the header is truncated"))?;
        let table = FlatTable::root(&header).ok_or_else(|| broken("the header is not a table"))?;
        let (mut schema, mut types) = (Schema::default(), Vec::new());
        for column in table.tables(7) {
            let column = column.ok_or_else(|| broken("the offset of a column is out of range"))?;
            let kind = column.u8(1).unwrap_or(0);
            let name = column.text(0).ok_or_else(|| broken("a column has no name"))?;
            if schema.position(name).is_some() {
                return Err(broken("two columns have the same name").into());
            }
            schema.add(name, kind_of(kind).ok_or_else(|| broken("a column has an unknown type"))?);
            types.push(kind);
            if types.len() > FIELDS_MAX {
                return Err(too_many_fields().into());
            }
        }
        let shape = table.u8(2).unwrap_or(0);
        let dim = Dim::new(table.u8(3) == Some(1), table.u8(4) == Some(1));
        schema.shape = Shape::from_number(shape.into());
        schema.dim = dim;
        let count = table.u64(8).unwrap_or(0);
        let node_size = u64::from(table.u16(9).unwrap_or(16));
        let index_len = index_nodes(count, node_size).saturating_mul(NODE_LEN);
        let crs = table.table(10).flatten().and_then(|crs| {
            let organisation = crs.text(0).unwrap_or("EPSG");
            let by_code = crs.i32(1).and_then(|code| format!("{organisation}:{code}").parse::<Crs>().ok());
            by_code.or_else(|| crs.text(4).and_then(|wkt| wkt.parse().ok()))
        });
        let own = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer");
        let name = table.text(0).filter(|name| !name.is_empty()).unwrap_or(own).to_owned();
        input.seek_relative(i64::try_from(index_len).map_err(|_| broken("the index is too long"))?)?;
        let layer = Layer { name, schema: Arc::new(schema), crs, records: (count > 0).then_some(count) };
        let offset = (12 + len) as u64 + index_len;
        Ok(FlatGeobufReader {
            input,
            layer,
            types,
            shape,
            dim,
            record: 0,
            offset,
            bytes: Vec::new(),
            options,
        })
    }

    fn advance(&mut self) -> Result<bool, Error> {
        let mut len = [0; 4];
        match self.input.read_exact(&mut len) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                return match self.layer.records {
                    Some(count) if self.record < count => {
                        let message = format!("the file ends after {} of {count} records", self.record);
                        let problem = Problem::new(Code::TRUNCATED_BODY, message);
                        Err(problem.of_record(self.record).at(self.offset).into())
                    }
                    _ => Ok(false),
                };
            }
            Err(e) => return Err(e.into()),
        }
        let len = u32::from_le_bytes(len) as usize;
        let place = |problem: Problem| Error::from(problem.of_record(self.record).at(self.offset));
        if len > self.options.limits.record_bytes_max {
            let message = format!("a record is larger than {} bytes", self.options.limits.record_bytes_max);
            return Err(place(Problem::new(Code::PAYLOAD_TOO_LARGE, message)));
        }
        self.bytes.clear();
        if self.input.by_ref().take(len as u64).read_to_end(&mut self.bytes)? < len {
            return Err(place(Problem::new(Code::TRUNCATED_BODY, "the file ends within a record")));
        }
        Ok(true)
    }

    fn push(&self, batch: &mut Batch) -> Result<(), Problem> {
        let feature = FlatTable::root(&self.bytes).ok_or_else(|| bad("the record is not a table"))?;
        let mut values = vec![Owned::Null; self.types.len()];
        properties(feature.bytes(1).unwrap_or_default(), &self.types, &mut values)?;
        batch.push_with(
            |out| match feature.table(0) {
                Some(geometry) => {
                    let geometry =
                        geometry.ok_or_else(|| bad("the offset of the geometry is out of range"))?;
                    let len_max = out.len() + 64 + self.bytes.len().saturating_mul(8);
                    self.geometry(geometry, self.shape, 0, len_max, out)
                }
                None => Ok(()),
            },
            values.iter().map(|value| if *value == Owned::Null { Value::Null } else { value.value() }),
        )
    }

    /// Appends a geometry. Many offsets may refer to the same part, so the output is limited to a multiple of
    /// the input.
    fn geometry(
        &self,
        table: FlatTable<'_>,
        outer: u8,
        depth: usize,
        len_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Problem> {
        let number = table.u8(6).filter(|number| *number != 0).unwrap_or(outer);
        let shape =
            Shape::from_number(number.into()).ok_or_else(|| bad("the geometry has an unknown type"))?;
        let has_parts = matches!(shape, Shape::MultiPolygon | Shape::GeometryCollection);
        if has_parts && depth >= DEPTH_MAX {
            return Err(bad("parts nest too deep"));
        }
        if out.len() > len_max {
            return Err(bad("too many offsets refer to the same part"));
        }
        write::begin(out, shape, self.dim);
        if has_parts {
            let hole = write::hole(out);
            let mut count = 0;
            for part in table.tables(7) {
                let part = part.ok_or_else(|| bad("the offset of a part is out of range"))?;
                let inner = if shape == Shape::MultiPolygon { 3 } else { 0 };
                if inner == 3 && !matches!(part.u8(6), None | Some(0 | 3)) {
                    return Err(bad("a MultiPolygon cannot hold a part of this type"));
                }
                self.geometry(part, inner, depth + 1, len_max, out)?;
                count += 1;
            }
            write::fill(out, hole, count);
            return Ok(());
        }
        let positions = FgbPositions { dim: self.dim, xy: table.f64s(1), z: table.f64s(2), m: table.f64s(3) };
        let count = positions.xy.len() / 16;
        match shape {
            Shape::Point if count == 0 => {
                (0..self.dim.size()).for_each(|_| write::position(out, &[f64::NAN]));
            }
            Shape::Point => positions.write(0, 1, out)?,
            Shape::MultiPoint => {
                write::count(out, count);
                for at in 0..count {
                    write::begin(out, Shape::Point, self.dim);
                    positions.write(at, at + 1, out)?;
                }
            }
            Shape::LineString => {
                write::count(out, count);
                positions.write(0, count, out)?;
            }
            _ => {
                let mut ends: Vec<usize> = Vec::new();
                if count > 0 {
                    ends.extend(table.u32s(0).map(|end| end as usize));
                    ends.is_empty().then(|| ends.push(count));
                }
                write::count(out, ends.len());
                let mut from = 0;
                for end in ends {
                    if end < from || end > count {
                        return Err(bad("the end of a part is out of range"));
                    }
                    if shape == Shape::MultiLineString {
                        write::begin(out, Shape::LineString, self.dim);
                    }
                    write::count(out, end - from);
                    positions.write(from, end, out)?;
                    from = end;
                }
            }
        }
        Ok(())
    }
}

fn bad(message: &str) -> Problem {
    Problem::new(Code::INVALID_GEOMETRY, message)
}

struct FgbPositions<'a> {
    dim: Dim,
    xy: &'a [u8],
    z: &'a [u8],
    m: &'a [u8],
}

impl FgbPositions<'_> {
    fn write(&self, from: usize, to: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
        let Some(xy) = self.xy.get(from * 16..to * 16) else {
            return Err(bad("the geometry has too few positions"));
        };
        if self.dim == Dim::Xy {
            out.extend_from_slice(xy);
            return Ok(());
        }
        let nan = f64::NAN.to_le_bytes();
        for (at, position) in (from..to).zip(xy.chunks_exact(16)) {
            out.extend_from_slice(position);
            for (list, wanted) in [(self.z, self.dim.has_z()), (self.m, self.dim.has_m())] {
                if wanted {
                    out.extend_from_slice(list.get(at * 8..at * 8 + 8).unwrap_or(&nan));
                }
            }
        }
        Ok(())
    }
}

/// Number of nodes in the index of this many features.
fn index_nodes(features: u64, node_size: u64) -> u64 {
    if features == 0 || node_size < 2 {
        return 0;
    }
    let (mut level, mut nodes) = (features, features);
    loop {
        level = level.div_ceil(node_size);
        nodes = nodes.saturating_add(level);
        if level == 1 {
            return nodes;
        }
    }
}

fn kind_of(number: u8) -> Option<Kind> {
    Some(match number {
        2 => Kind::Bool,
        0 | 1 | 3..=8 => Kind::Int,
        9 | 10 => Kind::Real,
        11 => Kind::Text,
        12 => Kind::Json,
        13 => Kind::DateTime,
        14 => Kind::Bytes,
        _ => return None,
    })
}

fn properties(mut bytes: &[u8], types: &[u8], values: &mut [Owned]) -> Result<(), Problem> {
    let cut = || Problem::new(Code::DATA_EXCEPTION, "the properties are truncated");
    while !bytes.is_empty() {
        let (column, rest) = bytes.split_first_chunk::<2>().ok_or_else(cut)?;
        let column = usize::from(u16::from_le_bytes(*column));
        let number = *types
            .get(column)
            .ok_or_else(|| Problem::new(Code::SCHEMA_MISMATCH, "a property has no column"))?;
        let width = match number {
            0..=2 => 1,
            3 | 4 => 2,
            5 | 6 | 9 => 4,
            7 | 8 | 10 => 8,
            _ => {
                let len = rest.first_chunk().ok_or_else(cut)?;
                4usize.saturating_add(u32::from_le_bytes(*len) as usize)
            }
        };
        let (value, after) = rest.split_at_checked(width).ok_or_else(cut)?;
        bytes = after;
        if let Some(slot) = values.get_mut(column) {
            *slot = property(value, number)?;
        }
    }
    Ok(())
}

fn property(value: &[u8], number: u8) -> Result<Owned, Problem> {
    let mut wide = [0u8; 8];
    let sign = matches!(number, 0 | 3 | 5) && value.last().is_some_and(|b| b & 0x80 != 0);
    if sign {
        wide = [0xFF; 8];
    }
    if number <= 10 {
        for (slot, byte) in wide.iter_mut().zip(value) {
            *slot = *byte;
        }
    }
    let text = || {
        let text = std::str::from_utf8(value.get(4..).unwrap_or_default());
        text.map(str::to_owned).map_err(|_| Problem::new(Code::DATA_EXCEPTION, "the text is not UTF-8"))
    };
    Ok(match number {
        2 => Owned::Bool(wide.first() != Some(&0)),
        0 | 1 | 3..=7 => Owned::Int(i64::from_le_bytes(wide)),
        8 => {
            let int = i64::try_from(u64::from_le_bytes(wide));
            Owned::Int(
                int.map_err(|_| Problem::new(Code::DATA_EXCEPTION, "an unsigned integer exceeds 63 bits"))?,
            )
        }
        9 => Owned::Real(f64::from(f32::from_le_bytes([wide[0], wide[1], wide[2], wide[3]]))),
        10 => Owned::Real(f64::from_le_bytes(wide)),
        12 => Owned::Json(text()?),
        13 => {
            let text = text()?;
            Owned::Text(if is_date(&text) { format!("{text}T00:00:00") } else { text })
        }
        14 => Owned::Bytes(value.get(4..).unwrap_or_default().to_vec()),
        _ => Owned::Text(text()?),
    })
}

impl crate::format::Reader for FlatGeobufReader {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error> {
        let mut batch = Batch::new(self.layer.schema.clone()).from_record(self.record);
        let mut aside = 0;
        while batch.len() < self.options.batch_rows_max
            && batch.full_len() + aside < self.options.batch_bytes_max
        {
            if !self.advance()? {
                return Ok((!batch.is_empty()).then_some(batch));
            }
            let span = Span { offset: self.offset, len: self.bytes.len() as u64 + 4 };
            self.offset += span.len;
            match self.push(&mut batch) {
                Ok(()) => batch.set_origin(span, if self.options.keep_raw { &self.bytes } else { &[] }),
                Err(problem) => {
                    let problems = vec![problem.of_record(self.record).at(span.offset)];
                    rejected.push(Rejected { record: self.record, span, raw: self.bytes.clone(), problems });
                    aside += rejected.last().map_or(0, Rejected::byte_len);
                }
            }
            self.record += 1;
            batch.go_to_record(self.record);
        }
        Ok(Some(batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{self, Options};
    use proptest::prelude::*;

    fn read(path: &Path) -> Result<(Vec<String>, usize), Error> {
        let mut reader = format::open(path, &ReadOptions::default())?;
        let (mut rows, mut rejected) = (Vec::new(), Vec::new());
        while let Some(batch) = reader.next_batch(&mut rejected)? {
            for row in 0..batch.len() {
                let geometry = batch.geometry(row).map_or("null".into(), crate::wkt::to_string);
                let values: Vec<_> =
                    batch.columns().iter().map(|column| format!("{:?}", column.get(row))).collect();
                rows.push(format!("{geometry} {}", values.join(" ")));
            }
        }
        rows.sort();
        Ok((rows, rejected.len()))
    }

    const SHAPES: [&str; 8] = [
        "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (0 0, 1 1))",
        "LINESTRING (0 0, 1 1)",
        "MULTILINESTRING ((0 0, 1 1), (2 2, 3 3, 4 4))",
        "MULTIPOINT ((1 2), (3 4))",
        "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 9 5, 9 9, 5 5), (6 5.5, 7 5.5, 7 6, 6 5.5)))",
        "POINT (1 2)",
        "POLYGON ((0 0, 9 0, 9 9, 0 0), (5 1, 6 1, 6 2, 5 1))",
        "POLYGON EMPTY",
    ];

    fn sample(path: &Path) {
        let schema =
            Schema::new([("t", Kind::Text), ("n", Kind::Int), ("b", Kind::Bool), ("x", Kind::Bytes)]);
        let schema = Arc::new(schema);
        let mut writer = format::create(path, &schema, &Crs::epsg(27700), &Options::default()).unwrap();
        let mut batch = Batch::new(schema);
        for text in SHAPES {
            let mut wkb = Vec::new();
            crate::wkt::read(text, &mut wkb).unwrap();
            let values = [Value::Text("é"), Value::Int(-5), Value::Bool(true), Value::Bytes(&[1, 2])];
            batch.push(Some(&wkb), values).unwrap();
        }
        batch.push(None, [Value::Null; 4]).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    }

    #[test]
    fn what_is_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.fgb");
        sample(&path);
        let (rows, rejected) = read(&path).unwrap();
        let mut want: Vec<String> = SHAPES
            .iter()
            .map(|text| format!("{text} Text(\"é\") Int(-5) Bool(true) Bytes([1, 2])"))
            .collect();
        want.push("null Null Null Null Null".into());
        assert_eq!((rows, rejected), (want, 0));
        let reader = format::open(&path, &ReadOptions::default()).unwrap();
        assert_eq!(reader.layer().crs, Some(Crs::epsg(27700)));
    }

    /// Found by the fuzzer: a part may say that it is anything.
    #[test]
    fn a_multipolygon_holds_polygons() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.fgb");
        sample(&path);
        let good = std::fs::read(&path).unwrap();
        let mut refused = 0;
        for at in (0..good.len()).filter(|at| good[*at] == 3) {
            let mut bent = good.clone();
            bent[at] = 7;
            std::fs::write(&path, bent).unwrap();
            let Ok(mut reader) = format::open(&path, &ReadOptions::default()) else { continue };
            let mut rejected = Vec::new();
            while let Ok(Some(batch)) = reader.next_batch(&mut rejected) {
                for wkb in (0..batch.len()).filter_map(|row| batch.geometry(row)) {
                    let mut again = Vec::new();
                    crate::wkb::canonicalise(wkb, &mut again).unwrap();
                    assert_eq!(again, wkb);
                }
            }
            let words = |reject: &Rejected| reject.problems[0].message.contains("a part of this type");
            refused += rejected.iter().filter(|reject| words(reject)).count();
        }
        assert_eq!(refused, 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn a_damaged_file_ends_in_an_answer(at in 0usize..2000, byte in any::<u8>(), cut in 0usize..2000) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.fgb");
            sample(&path);
            let mut bytes = std::fs::read(&path).unwrap();
            let len = bytes.len();
            bytes[at % len] = byte;
            if cut % 3 == 0 {
                bytes.truncate(cut % len);
            }
            std::fs::write(&path, bytes).unwrap();
            let _ = read(&path);
        }
    }
}
