//! Reading GeoParquet: of each group of rows, a page of each column at a time.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::schema::types::{SchemaDescriptor, Type};
use tidegate_core::Code;

use super::super::geojson::ReadOptions;
use super::super::time;
use super::meta::{self, Geo};
use super::{broken, failed, guard, guarded, nested};
use crate::batch::{Batch, Span};
use crate::column::Value;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::format::{Layer, Rejected};
use crate::mapping::Owned;
use crate::schema::{Kind, Schema};
use crate::wkb::Dim;

/// How many rows are decoded at a time.
const ROWS_PER_BATCH: usize = 4096;
/// What one column of one group may unpack to. A page must be unpacked whole.
const CHUNK_LEN_MAX: i64 = 1 << 30;

/// A GeoParquet file being read.
pub struct ParquetReader {
    file: SerializedFileReader<File>,
    /// The same file, to look at pages before the crate does.
    pages: File,
    layer: Layer,
    /// The leaf of the geometry.
    geometry: usize,
    /// The leaf and the form of each field; a field without a leaf nests.
    fields: Vec<FieldSource>,
    nested: Option<Arc<SchemaDescriptor>>,
    group: usize,
    now: Option<Group>,
    record: u64,
}

#[derive(Clone, Copy, Debug)]
enum FieldSource {
    Leaf(usize, LeafType),
    Nested(usize),
}

/// What a leaf holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeafType {
    Bool,
    Int,
    /// Whole numbers without sign.
    Unsigned,
    Real,
    Text,
    Json,
    Bytes,
    Day,
    /// Nanoseconds per unit, and whether in UTC.
    Moment(i64, bool),
    /// The old form of twelve bytes.
    OldMoment,
}

struct Group {
    left: usize,
    geometry: ColumnReader,
    columns: Vec<Option<ColumnReader>>,
    nested: Option<ReaderIter>,
}

impl ParquetReader {
    /// Opens a file.
    ///
    /// # Errors
    /// If it is not Parquet, or does not say which column is the geometry.
    pub fn open(path: &Path, _options: &ReadOptions) -> Result<ParquetReader, Error> {
        let input = File::open(path)?;
        guard::footer(&input)?;
        let pages = File::open(path)?;
        guarded(|| ParquetReader::read_head(input, pages, path))
    }

    fn read_head(input: File, pages: File, path: &Path) -> Result<ParquetReader, Error> {
        let file = SerializedFileReader::new(input).map_err(failed)?;
        let meta = file.metadata().file_metadata();
        let pairs = meta.key_value_metadata();
        let geo = pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == "geo"));
        let descr = meta.schema_descr_ptr();
        let geo = match geo.and_then(|pair| pair.value.as_deref()) {
            Some(text) => meta::read(text)?,
            None => native(&descr)?,
        };
        let mut schema = Schema::default();
        (schema.shape, schema.dim) = (geo.shape, geo.dim);
        let mut fields = Vec::new();
        let mut nested_fields = Vec::new();
        let mut geometry = None;
        for field in descr.root_schema().get_fields() {
            let leaf = descr.columns().iter().position(|c| c.path().parts() == [field.name().to_owned()]);
            if field.name() == geo.column {
                geometry = leaf;
                continue;
            }
            if geo.covering.as_deref() == Some(field.name()) {
                continue;
            }
            match leaf.filter(|_| !repeated(field)) {
                Some(leaf) => {
                    let (form, kind) = form_of(field)?;
                    schema.add(field.name(), kind);
                    fields.push(FieldSource::Leaf(leaf, form));
                }
                None => {
                    schema.add(field.name(), Kind::Json);
                    fields.push(FieldSource::Nested(nested_fields.len()));
                    nested_fields.push(field.clone());
                }
            }
        }
        let Some(geometry) = geometry else {
            return Err(broken(format!("there is no column {:?}", geo.column)));
        };
        let nested = if nested_fields.is_empty() {
            None
        } else {
            let root =
                Type::group_type_builder("schema").with_fields(nested_fields).build().map_err(failed)?;
            Some(Arc::new(SchemaDescriptor::new(Arc::new(root))))
        };
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer").to_owned();
        let records = u64::try_from(meta.num_rows()).ok();
        let layer = Layer { name, schema: Arc::new(schema), crs: geo.crs, records };
        Ok(ParquetReader { file, pages, layer, geometry, fields, nested, group: 0, now: None, record: 0 })
    }

    /// Opens the next group; `None` after the last.
    fn next_group(&mut self) -> Result<Option<Group>, Error> {
        if self.group >= self.file.metadata().num_row_groups() {
            return Ok(None);
        }
        let group = self.file.get_row_group(self.group).map_err(failed)?;
        self.group += 1;
        for column in group.metadata().columns() {
            if column.uncompressed_size() > CHUNK_LEN_MAX {
                let message = format!("a column of a group unpacks to {} bytes", column.uncompressed_size());
                return Err(Problem::new(Code::PAYLOAD_TOO_LARGE, message).into());
            }
            let start = column.dictionary_page_offset().filter(|at| *at > 0);
            let start = start.map_or(column.data_page_offset(), |at| at.min(column.data_page_offset()));
            let place = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
            let (start, len) = place.ok_or_else(|| broken("the offset of a column is negative"))?;
            guard::pages(&self.pages, start, len)?;
        }
        let column = |leaf: usize| group.get_column_reader(leaf).map_err(failed);
        let columns = self.fields.iter().map(|source| match source {
            FieldSource::Leaf(leaf, _) => column(*leaf).map(Some),
            FieldSource::Nested(_) => Ok(None),
        });
        let columns = columns.collect::<Result<_, _>>()?;
        let nested = match &self.nested {
            Some(descr) => Some(TreeBuilder::new().as_iter(descr.clone(), &*group).map_err(failed)?),
            None => None,
        };
        let left = usize::try_from(group.metadata().num_rows())
            .map_err(|_| broken("the number of rows of a group is negative"))?;
        Ok(Some(Group { left, geometry: column(self.geometry)?, columns, nested }))
    }

    fn read_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error> {
        while self.now.as_ref().is_none_or(|group| group.left == 0) {
            self.now = self.next_group()?;
            if self.now.is_none() {
                return Ok(None);
            }
        }
        let Some(group) = &mut self.now else { return Ok(None) };
        let rows = group.left.min(ROWS_PER_BATCH);
        group.left -= rows;
        let geometries = column(&mut group.geometry, LeafType::Bytes, rows)?;
        let mut columns: Vec<Vec<Owned>> = Vec::new();
        let nested: Vec<Vec<Owned>> = match &mut group.nested {
            Some(iter) => read_nested(iter, rows)?,
            None => Vec::new(),
        };
        for (source, reader) in self.fields.iter().zip(&mut group.columns) {
            columns.push(match (source, reader) {
                (FieldSource::Leaf(_, form), Some(reader)) => column(reader, *form, rows)?,
                (FieldSource::Nested(at), _) => {
                    nested.iter().map(|row| row.get(*at).cloned().unwrap_or(Owned::Null)).collect()
                }
                _ => Vec::new(),
            });
        }
        let mut batch = Batch::new(self.layer.schema.clone()).from_record(self.record);
        for row in 0..rows {
            let geometry = match geometries.get(row) {
                Some(Owned::Bytes(bytes)) => Some(bytes.as_slice()),
                _ => None,
            };
            let values = columns.iter().map(|column| column.get(row).map_or(Value::Null, Owned::value));
            if let Err(problem) = batch.push(geometry, values) {
                let raw = geometry.unwrap_or_default().to_vec();
                let record = self.record;
                rejected.push(Rejected { record, span: Span::default(), raw, problems: vec![problem] });
                batch.go_to_record(self.record + 1);
            }
            self.record += 1;
        }
        Ok(Some(batch))
    }
}

impl crate::format::Reader for ParquetReader {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error> {
        guarded(|| self.read_batch(rejected))
    }
}

fn repeated(field: &Type) -> bool {
    field.get_basic_info().has_repetition()
        && field.get_basic_info().repetition() == parquet::basic::Repetition::REPEATED
}

/// A file without the member `geo`: a column of Parquet's own type for geometry.
fn native(descr: &SchemaDescriptor) -> Result<Geo, Error> {
    for column in descr.columns() {
        let crs = match column.logical_type_ref() {
            Some(LogicalType::Geometry(geometry)) => geometry.crs.as_deref(),
            _ => continue,
        };
        let crs = crs.map_or_else(|| Ok(Crs::wgs84()), str::parse)?;
        let name = column.path().parts().first().cloned().unwrap_or_default();
        return Ok(Geo { column: name, crs: Some(crs), shape: None, dim: Dim::Xy, covering: None });
    }
    Err(broken("it declares no geometry column"))
}

/// How a leaf is read, and the kind of its field.
fn form_of(field: &Type) -> Result<(LeafType, Kind), Error> {
    let info = field.get_basic_info();
    let nanos = |unit: &TimeUnit| match unit {
        TimeUnit::MILLIS => 1_000_000,
        TimeUnit::MICROS => 1_000,
        TimeUnit::NANOS => 1,
    };
    let unsigned = matches!(info.logical_type_ref(), Some(LogicalType::Integer(i)) if !i.is_signed);
    Ok(match (field.get_physical_type(), info.logical_type_ref(), info.converted_type()) {
        (Physical::BOOLEAN, ..) => (LeafType::Bool, Kind::Bool),
        (Physical::INT32, Some(LogicalType::Date), _) | (Physical::INT32, _, ConvertedType::DATE) => {
            (LeafType::Day, Kind::Date)
        }
        (Physical::INT64, Some(LogicalType::Timestamp(t)), _) => {
            (LeafType::Moment(nanos(&t.unit), t.is_adjusted_to_u_t_c), Kind::DateTime)
        }
        (Physical::INT64, _, ConvertedType::TIMESTAMP_MILLIS) => {
            (LeafType::Moment(1_000_000, true), Kind::DateTime)
        }
        (Physical::INT64, _, ConvertedType::TIMESTAMP_MICROS) => {
            (LeafType::Moment(1_000, true), Kind::DateTime)
        }
        (_, Some(LogicalType::Decimal(_) | LogicalType::Float16), _) | (_, _, ConvertedType::DECIMAL) => {
            let message = format!("the type of the column {:?} is not supported", field.name());
            return Err(Problem::new(Code::SCHEMA_MISMATCH, message).into());
        }
        (Physical::INT32 | Physical::INT64, ..) if unsigned => (LeafType::Unsigned, Kind::Int),
        (Physical::INT32 | Physical::INT64, ..) => (LeafType::Int, Kind::Int),
        (Physical::INT96, ..) => (LeafType::OldMoment, Kind::DateTime),
        (Physical::FLOAT | Physical::DOUBLE, ..) => (LeafType::Real, Kind::Real),
        (Physical::BYTE_ARRAY, Some(LogicalType::String | LogicalType::Enum), _)
        | (Physical::BYTE_ARRAY, _, ConvertedType::UTF8 | ConvertedType::ENUM) => {
            (LeafType::Text, Kind::Text)
        }
        (Physical::BYTE_ARRAY, Some(LogicalType::Json), _)
        | (Physical::BYTE_ARRAY, _, ConvertedType::JSON) => (LeafType::Json, Kind::Json),
        (Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY, ..) => (LeafType::Bytes, Kind::Bytes),
    })
}

/// The next values of a column.
fn column(reader: &mut ColumnReader, form: LeafType, rows: usize) -> Result<Vec<Owned>, Error> {
    let text = |bytes: &[u8]| match String::from_utf8(bytes.to_vec()) {
        Ok(text) => Ok(text),
        Err(_) => Err(broken("a text is not UTF-8")),
    };
    match reader {
        ColumnReader::BoolColumnReader(r) => values(r, rows, |b| Ok(Owned::Bool(*b))),
        ColumnReader::Int32ColumnReader(r) => values(r, rows, |i| {
            Ok(match form {
                LeafType::Day => Owned::Text(time::day_text(*i)),
                LeafType::Unsigned => Owned::Int(i64::from(i.cast_unsigned())),
                _ => Owned::Int((*i).into()),
            })
        }),
        ColumnReader::Int64ColumnReader(r) => values(r, rows, |i| match form {
            LeafType::Moment(nanos, utc) => {
                Ok(Owned::Text(time::moment_text(i128::from(*i) * i128::from(nanos), utc)))
            }
            LeafType::Unsigned if *i < 0 => Err(broken("an unsigned integer exceeds 63 bits")),
            _ => Ok(Owned::Int(*i)),
        }),
        ColumnReader::Int96ColumnReader(r) => {
            values(r, rows, |at| Ok(Owned::Text(time::moment_text(i128::from(at.to_nanos()), false))))
        }
        ColumnReader::FloatColumnReader(r) => values(r, rows, |x| Ok(Owned::Real((*x).into()))),
        ColumnReader::DoubleColumnReader(r) => values(r, rows, |x| Ok(Owned::Real(*x))),
        ColumnReader::ByteArrayColumnReader(r) => values(r, rows, |bytes| {
            Ok(match form {
                LeafType::Text => Owned::Text(text(bytes.data())?),
                LeafType::Json => Owned::Json(text(bytes.data())?),
                _ => Owned::Bytes(bytes.data().to_vec()),
            })
        }),
        ColumnReader::FixedLenByteArrayColumnReader(r) => {
            values(r, rows, |bytes| Ok(Owned::Bytes(bytes.data().to_vec())))
        }
    }
}

fn values<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    make: impl Fn(&T::T) -> Result<Owned, Error>,
) -> Result<Vec<Owned>, Error> {
    let (mut levels, mut present) = (Vec::new(), Vec::new());
    let mut made = 0;
    while made < rows {
        let (read, ..) =
            reader.read_records(rows - made, Some(&mut levels), None, &mut present).map_err(failed)?;
        if read == 0 {
            return Err(broken("a column ends before its group does"));
        }
        made += read;
    }
    let mut present = present.iter();
    // A required column has no levels.
    if levels.is_empty() {
        return present.map(make).collect();
    }
    let top = levels.iter().copied().max().unwrap_or(0).max(1);
    levels
        .iter()
        .map(|level| match if *level == top { present.next() } else { None } {
            Some(value) => make(value),
            None => Ok(Owned::Null),
        })
        .collect()
}

fn read_nested(iter: &mut ReaderIter, rows: usize) -> Result<Vec<Vec<Owned>>, Error> {
    let mut all = Vec::with_capacity(rows);
    for _ in 0..rows {
        let Some(row) = iter.next() else { return Err(broken("a column ends before its group does")) };
        let row = row.map_err(failed)?;
        let cell = |field: &parquet::record::Field| {
            if matches!(field, parquet::record::Field::Null) {
                return Owned::Null;
            }
            let mut text = Vec::new();
            nested::write(field, &mut text);
            Owned::Json(String::from_utf8(text).unwrap_or_default())
        };
        all.push(row.get_column_iter().map(|(_, field)| cell(field)).collect());
    }
    Ok(all)
}
