//! Writing a Shapefile.
//!
//! What the format cannot hold is refused: a second geometry family, text over 254 bytes, integers over 18
//! digits, bytes, files over 2 GB. Two things are lost: names are truncated to ten bytes (and made unique),
//! and empty text becomes null. Datetimes and JSON become text.

use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use tidegate_core::Code;

use super::super::atomic::Pending;
use super::super::{Options, Written};
use super::record;
use crate::batch::Batch;
use crate::bounds::Bounds;
use crate::column::Value;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::number;
use crate::schema::{Kind, Schema};
use crate::wkb::{self, Dim, Shape};

const TEXT_WIDTH: usize = 254;
const INT_WIDTH: usize = 18;
const REAL_WIDTH: usize = 24;
/// Largest file in bytes: offsets are 32-bit counts of 16-bit words, and many readers stop at 2 GB.
const FILE_LEN_MAX: u64 = (1 << 31) - 1;

/// A Shapefile being written.
pub struct ShapefileWriter {
    shapes: BufWriter<Pending>,
    index: BufWriter<Pending>,
    table: BufWriter<Pending>,
    /// The `.prj` and `.cpg` files.
    beside: Vec<Pending>,
    schema: Arc<Schema>,
    family: Option<record::Family>,
    has_z: bool,
    shapes_len: u64,
    table_len: u64,
    bounds: Option<Bounds>,
    record: Vec<u8>,
    written: Written,
}

fn refuse(message: impl Into<String>) -> Problem {
    Problem::new(Code::SCHEMA_MISMATCH, format!("a Shapefile {}", message.into()))
}

impl ShapefileWriter {
    /// Creates the files.
    ///
    /// # Errors
    /// If the format cannot hold the schema or the system, or a file cannot be created.
    pub fn create(
        path: &Path,
        schema: &Arc<Schema>,
        crs: &Crs,
        _options: &Options,
    ) -> Result<ShapefileWriter, Error> {
        let family = schema.shape.map(record::Family::of).transpose()?;
        let Some(prj) = crs.esri_wkt() else {
            let message = format!("{crs} has no ESRI WKT, which a Shapefile needs");
            return Err(Problem::new(Code::CRS_NOT_FOUND, message).into());
        };
        let open = |extension: &str| Pending::new(&path.with_extension(extension));
        let mut beside = Vec::new();
        for (extension, text) in [("prj", prj.as_str()), ("cpg", "UTF-8")] {
            let mut file = open(extension)?;
            file.write_all(text.as_bytes())?;
            beside.push(file);
        }
        let mut writer = ShapefileWriter {
            shapes: BufWriter::with_capacity(1 << 18, open("shp")?),
            index: BufWriter::new(open("shx")?),
            table: BufWriter::with_capacity(1 << 18, open("dbf")?),
            beside,
            schema: schema.clone(),
            family,
            has_z: schema.dim.has_z(),
            shapes_len: 100,
            table_len: 0,
            bounds: None,
            record: Vec::new(),
            written: Written::default(),
        };
        writer.shapes.write_all(&[0; 100])?;
        writer.index.write_all(&[0; 100])?;
        let head = writer.table_head()?;
        writer.table_len = head.len() as u64;
        writer.table.write_all(&head)?;
        Ok(writer)
    }

    /// Header of the table. The number of rows is filled in at the end.
    fn table_head(&self) -> Result<Vec<u8>, Error> {
        let mut fields = Vec::new();
        let mut names: Vec<String> = Vec::new();
        let mut width = 1;
        for field in self.schema.fields() {
            let (letter, len, decimals) =
                form(field.kind).ok_or_else(|| refuse("cannot hold bytes").under(&field.name))?;
            let name = short_name(&field.name, &names);
            let mut entry = [0; 32];
            for (slot, byte) in entry.iter_mut().zip(name.bytes()) {
                *slot = byte;
            }
            (entry[11], entry[16], entry[17]) = (letter, len as u8, decimals);
            names.push(name);
            fields.extend_from_slice(&entry);
            width += len;
        }
        let head_len = 32 + fields.len() + 1;
        let (Ok(head_len), Ok(width)) = (u16::try_from(head_len), u16::try_from(width)) else {
            return Err(refuse("cannot hold so many fields").into());
        };
        let mut head = vec![3, 126, 1, 1, 0, 0, 0, 0];
        head.extend_from_slice(&head_len.to_le_bytes());
        head.extend_from_slice(&width.to_le_bytes());
        head.resize(32, 0);
        head.extend_from_slice(&fields);
        head.push(b'\r');
        Ok(head)
    }

    fn write_row(&mut self, batch: &Batch, row: usize) -> Result<(), Problem> {
        self.record.clear();
        let (mut family, has_z) = (self.family, self.has_z);
        if let Some(wkb) = batch.geometry(row) {
            let (shape, _) = wkb::head(wkb).unwrap_or((Shape::GeometryCollection, Dim::Xy));
            let own = record::Family::of(shape)?;
            if *family.get_or_insert(own) != own {
                return Err(refuse(format!(
                    "holds one family of shapes, and a {} comes after others; keep one of them ($shape = 'Point') or write a GeoPackage",
                    shape.name()
                )));
            }
            record::write(wkb, own, has_z, &mut self.record);
        } else {
            self.record.extend_from_slice(&0i32.to_le_bytes());
        }
        self.family = family;
        Ok(())
    }

    fn head(&self, len: u64) -> [u8; 100] {
        let mut head = [0; 100];
        let mut put = |at: usize, bytes: &[u8]| {
            head.iter_mut().skip(at).zip(bytes).for_each(|(slot, byte)| *slot = *byte);
        };
        put(0, &9994i32.to_be_bytes());
        put(24, &((len / 2) as u32).to_be_bytes());
        put(28, &1000i32.to_le_bytes());
        put(32, &self.family.map_or(0, |family| family.number(self.has_z)).to_le_bytes());
        let b = self.bounds.unwrap_or(Bounds { min_x: 0.0, min_y: 0.0, max_x: 0.0, max_y: 0.0 });
        for (at, x) in [b.min_x, b.min_y, b.max_x, b.max_y].into_iter().enumerate() {
            put(36 + at * 8, &x.to_le_bytes());
        }
        head
    }
}

impl super::super::Writer for ShapefileWriter {
    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut cells = Vec::new();
        for row in 0..batch.len() {
            let place = |problem: Problem| problem.of_record(batch.record(row));
            self.write_row(batch, row).map_err(place)?;
            cells.clear();
            cells.push(b' ');
            for (at, field) in self.schema.fields().iter().enumerate() {
                cell(batch.value(row, at), field.kind, &mut cells)
                    .map_err(|p| place(p.under(&field.name)))?;
            }
            self.written.features += 1;
            let len = self.record.len() as u64 + 8;
            self.table_len += cells.len() as u64;
            if self.shapes_len + len > FILE_LEN_MAX || self.table_len > FILE_LEN_MAX {
                return Err(place(refuse("holds at most 2 GB")).into());
            }
            let words = (self.record.len() / 2) as u32;
            let number = self.written.features as u32;
            self.index.write_all(&((self.shapes_len / 2) as u32).to_be_bytes())?;
            self.index.write_all(&words.to_be_bytes())?;
            self.shapes.write_all(&number.to_be_bytes())?;
            self.shapes.write_all(&words.to_be_bytes())?;
            self.shapes.write_all(&self.record)?;
            self.table.write_all(&cells)?;
            self.shapes_len += len;
            if let Some(bounds) = batch.bounds(row) {
                self.bounds = Some(self.bounds.map_or(bounds, |all| all.union(bounds)));
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written, Error> {
        let rows = self.written.features as u32;
        for (len, is_index) in [(self.shapes_len, false), (100 + self.written.features * 8, true)] {
            let head = self.head(len);
            let file = if is_index { &mut self.index } else { &mut self.shapes };
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&head)?;
        }
        self.table.write_all(&[0x1a])?;
        self.table.seek(SeekFrom::Start(4))?;
        self.table.write_all(&rows.to_le_bytes())?;
        // The .shp file last: it is the one that a reader opens.
        for file in self.beside {
            file.commit()?;
        }
        for file in [self.table, self.index, self.shapes] {
            file.into_inner().map_err(std::io::IntoInnerError::into_error)?.commit()?;
        }
        Ok(self.written)
    }
}

/// The dBase type, width and decimals of a field type.
fn form(kind: Kind) -> Option<(u8, usize, u8)> {
    Some(match kind {
        Kind::Bool => (b'L', 1, 0),
        Kind::Int => (b'N', INT_WIDTH, 0),
        Kind::Real => (b'F', REAL_WIDTH, 15),
        Kind::Text | Kind::DateTime | Kind::Json => (b'C', TEXT_WIDTH, 0),
        Kind::Date => (b'D', 8, 0),
        Kind::Bytes => return None,
    })
}

/// A unique name of at most ten bytes.
fn short_name(name: &str, taken: &[String]) -> String {
    let cut = |len: usize| {
        let mut end = name.len().min(len);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name.get(..end).unwrap_or_default().to_owned()
    };
    let is_taken = |name: &str| taken.iter().any(|other| other.eq_ignore_ascii_case(name));
    let plain = cut(10);
    if !is_taken(&plain) {
        return plain;
    }
    let numbered = (1..1000).map(|n| format!("_{n}")).map(|end| format!("{}{end}", cut(10 - end.len())));
    numbered.into_iter().find(|name| !is_taken(name)).unwrap_or(plain)
}

/// Appends a value, padded to the width of its field.
fn cell(value: Value<'_>, kind: Kind, out: &mut Vec<u8>) -> Result<(), Problem> {
    let width = form(kind).map_or(0, |(_, width, _)| width);
    let start = out.len();
    match value {
        Value::Null if kind == Kind::Bool => out.push(b'?'),
        Value::Null | Value::Bytes(_) => {}
        Value::Bool(b) => out.push(if b { b'T' } else { b'F' }),
        Value::Int(i) => number::int(out, i),
        Value::Real(x) if x.is_finite() => number::real(out, x),
        Value::Real(_) => return Err(refuse("holds only finite numbers")),
        Value::Text(day) if kind == Kind::Date => out.extend(day.bytes().filter(u8::is_ascii_digit)),
        Value::Text(text) | Value::Json(text) => out.extend_from_slice(text.as_bytes()),
    }
    let len = out.len() - start;
    if len > width {
        return Err(refuse(format!("holds {width} bytes in this field, and the value has {len}")));
    }
    out.resize(start + width, b' ');
    // Numbers are right-aligned.
    if matches!(kind, Kind::Int | Kind::Real)
        && let Some(cell) = out.get_mut(start..)
    {
        cell.rotate_right(width - len);
    }
    Ok(())
}
