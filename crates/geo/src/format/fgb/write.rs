//! Writing FlatGeobuf.
//!
//! The index comes before the features, and both follow a Hilbert curve, so nothing can be written before
//! the last feature: features are spooled to an unnamed file, their bounding boxes and offsets go to a
//! [`Collector`]. Memory does not grow with their number.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use super::super::atomic::Pending;
use super::super::hilbert::Collector;
use super::super::sort::unnamed_file;
use super::super::{Options, Written};
use super::flat::{Flat, TableField};
use super::geometry;
use crate::batch::Batch;
use crate::bounds::Bounds;
use crate::column::Value;
use crate::crs::Crs;
use crate::error::Error;
use crate::schema::{Kind, Schema};
use crate::wkb::{self, Dim, Shape};

pub(super) const MAGIC: [u8; 8] = [0x66, 0x67, 0x62, 3, 0x66, 0x67, 0x62, 0];
/// Entries per node of the index.
const NODE_SIZE: u64 = 16;
/// Size of an entry of the index, in bytes.
pub(super) const NODE_LEN: u64 = 40;

/// A FlatGeobuf file being written.
pub struct FlatGeobufWriter {
    file: Pending,
    /// The spooled features, in the order of input.
    features: BufWriter<File>,
    /// Number of features.
    count: u64,
    /// Length of the spooled features, in bytes.
    len: u64,
    /// The bounding boxes of the features that have one, with their offsets.
    boxes: Collector,
    schema: Arc<Schema>,
    crs: Crs,
    name: String,
    dim: Dim,
    mixed: bool,
    shape: Option<Shape>,
    flat: Flat,
    properties: Vec<u8>,
    /// Bytes of features that are sorted in memory at once.
    window: usize,
}

const WINDOW: usize = 32 << 20;
const WINDOWS_MAX: u64 = 16;

impl FlatGeobufWriter {
    /// Creates a file.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(
        path: &Path,
        schema: &Arc<Schema>,
        crs: &Crs,
        options: &Options,
    ) -> Result<FlatGeobufWriter, Error> {
        let file = Pending::new(path)?;
        let features = BufWriter::with_capacity(1 << 18, unnamed_file(file.path())?);
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer");
        Ok(FlatGeobufWriter {
            file,
            features,
            count: 0,
            len: 0,
            boxes: Collector::new(),
            schema: schema.clone(),
            crs: crs.clone(),
            name: options.layer.clone().unwrap_or_else(|| stem.to_owned()),
            dim: Dim::Xy,
            mixed: false,
            shape: None,
            flat: Flat::default(),
            properties: Vec::new(),
            window: WINDOW,
        })
    }

    fn header(&self, flat: &mut Flat, total: Option<Bounds>) {
        let shape =
            if self.mixed { 0 } else { self.shape.or(self.schema.shape).map_or(0, |shape| shape as u8) };
        // The index has all features or none.
        let indexed = self.is_indexed();
        flat.begin();
        let places = flat.table(
            flat.root(),
            &[
                (0, TableField::To),
                (1, TableField::To),
                (7, TableField::To),
                (10, TableField::To),
                (8, TableField::U64(self.count)),
                (9, TableField::U16(if indexed { NODE_SIZE as u16 } else { 0 })),
                (2, TableField::U8(shape)),
                (3, TableField::U8(u8::from(self.dim.has_z()))),
                (4, TableField::U8(u8::from(self.dim.has_m()))),
            ],
        );
        flat.text(places[0], &self.name);
        let bounds = total.map_or([0.0; 4], |b| [b.min_x, b.min_y, b.max_x, b.max_y]);
        flat.f64s(places[1], 4, bounds.into_iter());
        let first = flat.objects(places[2], self.schema.fields().len());
        for (at, field) in self.schema.fields().iter().enumerate() {
            let column = flat
                .table(first + at * 4, &[(0, TableField::To), (1, TableField::U8(column_type(field.kind)))]);
            flat.text(column[0], &field.name);
        }
        let code = self.crs.number().and_then(|code| i32::try_from(code).ok()).unwrap_or(0);
        let crs = flat.table(places[3], &[(0, TableField::To), (1, TableField::I32(code))]);
        flat.text(crs[0], self.crs.organization());
    }

    fn is_indexed(&self) -> bool {
        self.count > 0 && self.boxes.len() as u64 == self.count
    }

    /// Writes the features in the order of the curve, and their boxes into the index.
    fn write_indexed(&mut self, mut source: File, start: u64) -> Result<(), Error> {
        let boxes = std::mem::replace(&mut self.boxes, Collector::new());
        let Some(total) = boxes.total() else { return Ok(()) };
        let levels = levels(self.count);
        let nodes: u64 = levels.iter().sum();
        let path = self.file.path().to_owned();
        let leaves_from = nodes - levels.first().copied().unwrap_or(0);
        let mut leaves = open_at(&path, start + leaves_from * NODE_LEN)?;
        let mut out = open_at(&path, start + nodes * NODE_LEN)?;
        let (mut offset, mut buffer) = (0u64, Vec::new());
        // Beyond some windows, seeking to each feature is cheaper than one pass per window.
        let window = if self.len <= WINDOWS_MAX * self.window as u64 { self.window } else { 0 };
        let mut waiting: Vec<(u64, usize)> = Vec::new();
        let mut waiting_len = 0;
        for entry in boxes.sorted(total, &path)? {
            let entry = entry?;
            let (from, len) = placed(entry.id, &mut source)?;
            waiting.push((from, len));
            waiting_len += len;
            if waiting_len >= window {
                gather(&mut source, &waiting, &mut buffer)?;
                out.write_all(&buffer)?;
                waiting.clear();
                waiting_len = 0;
            }
            let [min_x, max_x, min_y, max_y] = entry.bounds.map(f64::from);
            write_node(&mut leaves, Bounds { min_x, min_y, max_x, max_y }, offset)?;
            offset += len as u64;
        }
        gather(&mut source, &waiting, &mut buffer)?;
        out.write_all(&buffer)?;
        leaves.flush()?;
        out.flush()?;
        self.write_upper(&levels, start)
    }

    /// Writes the levels above the leaves, each from the level below in the file.
    fn write_upper(&self, levels: &[u64], start: u64) -> Result<(), Error> {
        let mut below_from: u64 = levels.iter().skip(1).sum();
        for (below, count) in levels.iter().zip(levels.iter().skip(1)) {
            let from = below_from - count;
            let mut file = File::open(self.file.path())?;
            file.seek(SeekFrom::Start(start + below_from * NODE_LEN))?;
            let mut nodes = BufReader::with_capacity(1 << 16, file);
            let mut out = open_at(self.file.path(), start + from * NODE_LEN)?;
            let mut left = *below;
            while left > 0 {
                let mut bounds = read_node(&mut nodes)?;
                let family = left.min(NODE_SIZE);
                for _ in 1..family {
                    bounds = bounds.union(read_node(&mut nodes)?);
                }
                write_node(&mut out, bounds, below_from + (below - left))?;
                left -= family;
            }
            out.flush()?;
            below_from = from;
        }
        Ok(())
    }
}

/// Offset and length of a spooled feature as one number, in units of four bytes. A length that does not fit
/// is read from the size prefix of the feature.
fn place(from: u64, len: usize) -> i64 {
    let len = u64::try_from(len / 4).unwrap_or(LEN_MAX).min(LEN_MAX);
    (((from / 4) << LEN_BITS) | len).cast_signed()
}

const LEN_BITS: u32 = 20;
const LEN_MAX: u64 = (1 << LEN_BITS) - 1;

/// The inverse of [`place`]: offset and length in bytes.
fn placed(place: i64, source: &mut File) -> std::io::Result<(u64, usize)> {
    let (from, len) = ((place.cast_unsigned() >> LEN_BITS) * 4, place.cast_unsigned() & LEN_MAX);
    if len < LEN_MAX {
        return Ok((from, usize::try_from(len * 4).unwrap_or(usize::MAX)));
    }
    let mut prefix = [0; 4];
    read_at(source, from, &mut prefix)?;
    Ok((from, prefix.len() + u32::from_le_bytes(prefix) as usize))
}

fn open_at(path: &Path, at: u64) -> std::io::Result<BufWriter<File>> {
    let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
    file.seek(SeekFrom::Start(at))?;
    Ok(BufWriter::with_capacity(1 << 18, file))
}

impl super::super::Writer for FlatGeobufWriter {
    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        for row in 0..batch.len() {
            self.properties.clear();
            for (at, column) in batch.columns().iter().enumerate() {
                property(&mut self.properties, at, column.get(row));
            }
            let geometry = batch.geometry(row);
            self.flat.begin();
            let root = self.flat.root();
            let fields = [(1, TableField::To), (0, TableField::To)];
            let places = self
                .flat
                .table(root, if geometry.is_some() { &fields } else { fields.get(..1).unwrap_or(&fields) });
            self.flat.bytes(places[0], &self.properties);
            if let Some(wkb) = geometry {
                if let Some((shape, dim)) = wkb::head(wkb) {
                    self.mixed |= self.shape.is_some_and(|other| other != shape);
                    self.shape = Some(shape);
                    self.dim = self.dim.union(dim);
                }
                geometry::write(&mut self.flat, places[1], wkb)
                    .map_err(|problem| problem.of_record(batch.record(row)))?;
            }
            let bytes = self.flat.finish();
            self.features.write_all(bytes)?;
            if let Some(bounds) = batch.bounds(row) {
                self.boxes.push(place(self.len, bytes.len()), bounds, self.file.path())?;
            }
            self.count += 1;
            self.len += bytes.len() as u64;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written, Error> {
        let mut flat = std::mem::take(&mut self.flat);
        self.header(&mut flat, self.boxes.total());
        let header = flat.finish();
        self.file.write_all(&MAGIC)?;
        self.file.write_all(header)?;
        let start = (MAGIC.len() + header.len()) as u64;
        let spool = std::mem::replace(&mut self.features, BufWriter::new(unnamed_file(self.file.path())?));
        let mut spool = spool.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        if self.is_indexed() {
            self.write_indexed(spool, start)?;
        } else {
            spool.seek(SeekFrom::Start(0))?;
            std::io::copy(&mut spool, &mut self.file)?;
        }
        self.file.commit()?;
        Ok(Written { features: self.count })
    }
}

#[cfg(unix)]
fn read_at(file: &mut File, at: u64, buffer: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, at)
}

#[cfg(not(unix))]
fn read_at(file: &mut File, at: u64, buffer: &mut [u8]) -> std::io::Result<()> {
    std::io::Seek::seek(file, SeekFrom::Start(at))?;
    std::io::Read::read_exact(file, buffer)
}

/// Reads pieces of a file in one sequential pass and returns them in the requested order.
fn gather(source: &mut File, pieces: &[(u64, usize)], out: &mut Vec<u8>) -> std::io::Result<()> {
    out.clear();
    let mut order: Vec<(u64, usize, usize)> = Vec::with_capacity(pieces.len());
    let mut to = 0;
    for (from, len) in pieces {
        order.push((*from, to, *len));
        to += len;
    }
    out.resize(to, 0);
    if let [(from, _, _)] = order.as_slice() {
        return read_at(source, *from, out);
    }
    order.sort_unstable();
    let mut at = order.first().map_or(0, |(from, ..)| *from);
    source.seek(SeekFrom::Start(at))?;
    let mut input = BufReader::with_capacity(1 << 20, source);
    for (from, to, len) in order {
        input.seek_relative(i64::try_from(from - at).unwrap_or(0))?;
        input.read_exact(out.get_mut(to..to + len).unwrap_or_default())?;
        at = from + len as u64;
    }
    Ok(())
}

/// Number of nodes per level, leaves first.
fn levels(features: u64) -> Vec<u64> {
    let mut levels = vec![features];
    let mut count = features;
    while count > 1 {
        count = count.div_ceil(NODE_SIZE);
        levels.push(count);
    }
    if features == 1 {
        levels.push(1);
    }
    levels
}

fn write_node(out: &mut impl Write, bounds: Bounds, offset: u64) -> std::io::Result<()> {
    for number in [bounds.min_x, bounds.min_y, bounds.max_x, bounds.max_y] {
        out.write_all(&number.to_le_bytes())?;
    }
    out.write_all(&offset.to_le_bytes())
}

fn read_node(from: &mut impl Read) -> std::io::Result<Bounds> {
    let mut node = [0; NODE_LEN as usize];
    from.read_exact(&mut node)?;
    let mut numbers = node.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap_or_default()));
    let mut next = || numbers.next().unwrap_or(f64::NAN);
    Ok(Bounds { min_x: next(), min_y: next(), max_x: next(), max_y: next() })
}

fn column_type(kind: Kind) -> u8 {
    match kind {
        Kind::Bool => 2,
        Kind::Int => 7,
        Kind::Real => 10,
        Kind::Text => 11,
        Kind::Json => 12,
        Kind::Date | Kind::DateTime => 13,
        Kind::Bytes => 14,
    }
}

fn property(out: &mut Vec<u8>, at: usize, value: Value<'_>) {
    if value == Value::Null {
        return;
    }
    out.extend_from_slice(&u16::try_from(at).unwrap_or(u16::MAX).to_le_bytes());
    let sized = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    match value {
        Value::Null => {}
        Value::Bool(b) => out.push(u8::from(b)),
        Value::Int(i) => out.extend_from_slice(&i.to_le_bytes()),
        Value::Real(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::Text(text) | Value::Json(text) => sized(out, text.as_bytes()),
        Value::Bytes(bytes) => sized(out, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format;

    #[test]
    fn levels_shrink_to_one_root() {
        assert_eq!(levels(1), [1, 1]);
        assert_eq!(levels(16), [16, 1]);
        assert_eq!(levels(17), [17, 2, 1]);
        assert_eq!(levels(5000), [5000, 313, 20, 2, 1]);
    }

    #[test]
    fn the_index_is_as_long_as_it_should_be_and_the_features_follow() {
        let dir = tempfile::tempdir().unwrap();
        for (count, nodes) in [(0u32, 0), (1, 2), (17, 20)] {
            let path = dir.path().join(format!("{count}.fgb"));
            let schema = Arc::new(Schema::new([("n", Kind::Int)]).of_shape(Shape::Point));
            let mut writer = format::create(&path, &schema, &Crs::wgs84(), &Options::default()).unwrap();
            let mut batch = Batch::new(schema);
            for n in 0..count {
                batch.push_point(f64::from(n), 0.0, [Value::Int(i64::from(n))]).unwrap();
            }
            writer.write(&batch).unwrap();
            assert_eq!(writer.finish().unwrap().features, u64::from(count));
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes[..8], MAGIC);
            let length = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
            let mut at = 12 + length(8) + nodes * NODE_LEN as usize;
            let mut features = 0;
            while at < bytes.len() {
                at += 4 + length(at);
                features += 1;
            }
            assert_eq!((at, features), (bytes.len(), count));
        }
    }

    #[test]
    fn a_place_holds_what_is_large_and_far_away() {
        let mut file = tempfile::tempfile().unwrap();
        for (from, len) in [(0, 4), (1 << 44, 4 << 19), (4, (4 << 20) - 8)] {
            assert_eq!(placed(place(from, len), &mut file).unwrap(), (from, len));
        }
        // Too long: the length comes from the size prefix.
        file.write_all(&[0; 8]).unwrap();
        file.write_all(&(5u32 << 20).to_le_bytes()).unwrap();
        assert_eq!(placed(place(8, (5 << 20) + 4), &mut file).unwrap(), (8, (5 << 20) + 4));
    }

    #[test]
    fn every_node_lies_around_those_below_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.fgb");
        let schema = Arc::new(Schema::new([("n", Kind::Int)]).of_shape(Shape::Point));
        let mut writer = format::create(&path, &schema, &Crs::wgs84(), &Options::default()).unwrap();
        let mut batch = Batch::new(schema);
        for n in 0..1000u32 {
            let (x, y) = (f64::from(n * 7919 % 500), f64::from(n * 104_729 % 500));
            batch.push_point(x, y, [Value::Int(i64::from(n))]).unwrap();
        }
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let header = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        let node = |at: usize| {
            let at = 12 + header + at * NODE_LEN as usize;
            (
                read_node(&mut &bytes[at..]).unwrap(),
                u64::from_le_bytes(bytes[at + 32..at + 40].try_into().unwrap()),
            )
        };
        // 1 + 4 + 63 nodes above 1000 leaves.
        assert_eq!(levels(1000), [1000, 63, 4, 1]);
        for (from, to) in [(0, 1), (1, 5), (5, 68)] {
            let mut next = to;
            for at in from..to {
                let (bounds, first) = node(at);
                assert_eq!(first as usize, next);
                let last = (next + 16).min([1, 5, 68, 1068].into_iter().find(|end| *end > next).unwrap());
                let family = (next..last).map(|at| node(at).0).reduce(Bounds::union).unwrap();
                assert_eq!(bounds, family, "{at}");
                next = last;
            }
        }
    }

    #[test]
    fn the_size_of_the_window_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let schema = Arc::new(Schema::new([("n", Kind::Text)]).of_shape(Shape::Point));
        let mut batch = Batch::new(schema.clone());
        for n in 0..500u32 {
            let text = "x".repeat(n as usize % 7);
            batch
                .push_point(f64::from(n * 7919 % 500), f64::from(n * 104_729 % 500), [Value::Text(&text)])
                .unwrap();
        }
        let [jumps, some, one] = [1, 10_000, 1 << 20].map(|window| {
            let path = dir.path().join("a.fgb");
            let mut writer =
                FlatGeobufWriter::create(&path, &schema, &Crs::wgs84(), &Options::default()).unwrap();
            writer.window = window;
            let mut writer: Box<dyn format::Writer> = Box::new(writer);
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
            std::fs::read(&path).unwrap()
        });
        assert_eq!(jumps.len(), some.len());
        assert!(jumps == some && some == one);
    }
}
