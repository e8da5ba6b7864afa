//! Writing GeoParquet.
//!
//! A row group is written column by column, so its batches are collected until it is full. The file is
//! opened with the first group, because its values decide whether datetimes carry a UTC offset.

use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};
use tidegate_core::Code;

use super::super::atomic::Pending;
use super::super::time;
use super::super::{Options, Written};
use super::{failed, guarded, meta};
use crate::batch::Batch;
use crate::bounds::Bounds;
use crate::column::Value;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::schema::{Kind, Schema, free_name};
use crate::wkb::{self, Dim, Shape};

/// A group of rows ends after this many rows,
const GROUP_ROWS: usize = 1 << 16;
/// or when its values take this many bytes.
const GROUP_BYTES: usize = 32 << 20;

type File = SerializedFileWriter<BufWriter<Pending>>;

/// A GeoParquet file being written.
pub struct ParquetWriter {
    pending: Option<Pending>,
    file: Option<File>,
    schema: Arc<Schema>,
    crs: Crs,
    /// The names of the geometry, of its covering, and of the fields.
    names: (String, String, Vec<String>),
    forms: Vec<ColumnType>,
    waiting: Vec<Waiting>,
    rows: usize,
    bytes: usize,
    kinds: Vec<(Shape, Dim)>,
    bounds: Option<Bounds>,
    written: Written,
}

/// A batch that waits for its group to be full.
struct Waiting {
    batch: Batch,
    /// By row. Each is asked for four times.
    bounds: Vec<Option<Bounds>>,
}

/// How a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnType {
    Bool,
    Int,
    Real,
    Text,
    Json,
    Bytes,
    Day,
    /// Microseconds; in UTC or in no zone.
    Moment {
        utc: bool,
    },
}

impl ParquetWriter {
    /// Opens a new file.
    ///
    /// # Errors
    /// If the file cannot be made, or no PROJJSON is known for the system.
    pub fn create(
        path: &Path,
        schema: &Arc<Schema>,
        crs: &Crs,
        _options: &Options,
    ) -> Result<ParquetWriter, Error> {
        meta::write(crs, &[], None, ("geometry", "bbox"))?;
        let mut fields: Vec<String> = Vec::new();
        for field in schema.fields() {
            fields.push(free_name(&field.name, |name| fields.iter().any(|field| field == name)));
        }
        let free = |name: &str| free_name(name, |name| fields.iter().any(|field| field == name));
        let names = (free("geometry"), free("bbox"), fields.clone());
        Ok(ParquetWriter {
            pending: Some(Pending::new(path)?),
            file: None,
            schema: schema.clone(),
            crs: crs.clone(),
            names,
            forms: Vec::new(),
            waiting: Vec::new(),
            rows: 0,
            bytes: 0,
            kinds: Vec::new(),
            bounds: None,
            written: Written::default(),
        })
    }

    /// Writes the waiting batches as one group.
    fn flush(&mut self) -> Result<(), Error> {
        let batches = std::mem::take(&mut self.waiting);
        (self.rows, self.bytes) = (0, 0);
        if self.file.is_none() {
            self.begin(&batches)?;
        }
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        if batches.is_empty() {
            return Ok(());
        }
        let mut group = file.next_row_group().map_err(failed)?;
        for (at, form) in self.forms.iter().enumerate() {
            write_field(&mut group, &batches, at, *form)?;
        }
        for side in 0..4 {
            write_side(&mut group, &batches, side)?;
        }
        column::<ByteArrayType>(&mut group, &batches, |waiting, row| {
            Ok(waiting.batch.geometry(row).map(|wkb| ByteArray::from(wkb.to_vec())))
        })?;
        group.close().map_err(failed)?;
        Ok(())
    }

    /// Decides the forms and opens the file.
    fn begin(&mut self, batches: &[Waiting]) -> Result<(), Error> {
        self.forms = (0..self.schema.fields().len()).map(|at| form(&self.schema, batches, at)).collect();
        let mut fields = Vec::new();
        for (name, form) in self.names.2.iter().zip(&self.forms) {
            fields.push(Arc::new(form.column(name)?));
        }
        let side = |name: &str| -> Result<Arc<Type>, Error> {
            let side =
                Type::primitive_type_builder(name, Physical::FLOAT).with_repetition(Repetition::REQUIRED);
            Ok(Arc::new(side.build().map_err(failed)?))
        };
        let sides = vec![side("xmin")?, side("ymin")?, side("xmax")?, side("ymax")?];
        let covering = Type::group_type_builder(&self.names.1).with_repetition(Repetition::OPTIONAL);
        fields.push(Arc::new(covering.with_fields(sides).build().map_err(failed)?));
        let geometry = Type::primitive_type_builder(&self.names.0, Physical::BYTE_ARRAY);
        fields.push(Arc::new(geometry.with_repetition(Repetition::OPTIONAL).build().map_err(failed)?));
        let schema = Type::group_type_builder("schema").with_fields(fields).build().map_err(failed)?;
        let path = ColumnPath::new(vec![self.names.0.clone()]);
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_statistics_enabled(path, parquet::file::properties::EnabledStatistics::None)
            .set_created_by(format!("tidegate {}", env!("CARGO_PKG_VERSION")))
            .build();
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let out = BufWriter::with_capacity(1 << 18, pending);
        self.file =
            Some(SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties)).map_err(failed)?);
        Ok(())
    }
}

impl super::super::Writer for ParquetWriter {
    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let batch = batch.bare();
        let bounds: Vec<Option<Bounds>> = (0..batch.len()).map(|row| batch.bounds(row)).collect();
        for wkb in (0..batch.len()).filter_map(|row| batch.geometry(row)) {
            let kind = wkb::head(wkb).unwrap_or((Shape::GeometryCollection, Dim::Xy));
            if self.kinds.last() != Some(&kind) && !self.kinds.contains(&kind) {
                self.kinds.push(kind);
            }
        }
        self.bounds = bounds.iter().copied().flatten().chain(self.bounds).reduce(Bounds::union);
        self.written.features += batch.len() as u64;
        self.rows += batch.len();
        self.bytes += batch.byte_len();
        self.waiting.push(Waiting { batch, bounds });
        if self.rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
            guarded(|| self.flush())?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written, Error> {
        guarded(|| self.flush())?;
        let geo = meta::write(&self.crs, &self.kinds, self.bounds, (&self.names.0, &self.names.1))?;
        if let Some(mut file) = self.file.take() {
            file.append_key_value_metadata(KeyValue::new("geo".to_owned(), geo));
            let out = guarded(|| file.into_inner().map_err(failed))?;
            out.into_inner().map_err(std::io::IntoInnerError::into_error)?.commit()?;
        }
        Ok(self.written)
    }
}

/// The form of a column, by its kind and, for moments, by its values.
fn form(schema: &Schema, batches: &[Waiting], at: usize) -> ColumnType {
    let kind = schema.fields().get(at).map_or(Kind::Text, |field| field.kind);
    let values = || {
        let batches = batches.iter().map(|waiting| &waiting.batch);
        batches.flat_map(|batch| (0..batch.len()).map(move |row| batch.value(row, at)))
    };
    match kind {
        Kind::Bool => ColumnType::Bool,
        Kind::Int => ColumnType::Int,
        Kind::Real => ColumnType::Real,
        Kind::Text => ColumnType::Text,
        Kind::Json => ColumnType::Json,
        Kind::Bytes => ColumnType::Bytes,
        Kind::Date => ColumnType::Day,
        Kind::DateTime => {
            let mut moments = values().filter_map(|value| match value {
                Value::Text(text) => Some(time::moment_of(text)),
                _ => None,
            });
            let first = moments.next().flatten();
            match first {
                Some((_, utc)) if moments.all(|other| other.is_some_and(|(_, same)| same == utc)) => {
                    ColumnType::Moment { utc }
                }
                // What a count cannot hold stays text.
                _ => ColumnType::Text,
            }
        }
    }
}

impl ColumnType {
    fn column(self, name: &str) -> Result<Type, Error> {
        let (physical, logical) = match self {
            ColumnType::Bool => (Physical::BOOLEAN, None),
            ColumnType::Int => (Physical::INT64, None),
            ColumnType::Real => (Physical::DOUBLE, None),
            ColumnType::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            ColumnType::Json => (Physical::BYTE_ARRAY, Some(LogicalType::Json)),
            ColumnType::Bytes => (Physical::BYTE_ARRAY, None),
            ColumnType::Day => (Physical::INT32, Some(LogicalType::Date)),
            ColumnType::Moment { utc } => {
                (Physical::INT64, Some(LogicalType::timestamp(utc, TimeUnit::MICROS)))
            }
        };
        let column = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        column.with_logical_type(logical).build().map_err(failed)
    }
}

/// Writes the next column, batch by batch. A value that is there stands at the first level, be it
/// in the row or in the box of the row.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, BufWriter<Pending>>,
    batches: &[Waiting],
    get: impl Fn(&Waiting, usize) -> Result<Option<T::T>, Problem>,
) -> Result<(), Error> {
    let Some(mut writer) = group.next_column().map_err(failed)? else { return Ok(()) };
    let (mut present, mut levels) = (Vec::new(), Vec::new());
    for waiting in batches {
        present.clear();
        levels.clear();
        for row in 0..waiting.batch.len() {
            let value = get(waiting, row)?;
            levels.push(i16::from(value.is_some()));
            present.extend(value);
        }
        writer.typed::<T>().write_batch(&present, Some(&levels), None).map_err(failed)?;
    }
    writer.close().map_err(failed)?;
    Ok(())
}

fn write_field(
    group: &mut SerializedRowGroupWriter<'_, BufWriter<Pending>>,
    batches: &[Waiting],
    at: usize,
    form: ColumnType,
) -> Result<(), Error> {
    macro_rules! write {
        ($kind:ty, $value:pat => $made:expr) => {
            column::<$kind>(group, batches, |waiting, row| match waiting.batch.value(row, at) {
                $value => Ok(Some($made)),
                _ => Ok(None),
            })
        };
    }
    match form {
        ColumnType::Bool => write!(BoolType, Value::Bool(b) => b),
        ColumnType::Int => write!(Int64Type, Value::Int(i) => i),
        ColumnType::Real => write!(DoubleType, Value::Real(x) => x),
        ColumnType::Text => write!(ByteArrayType, Value::Text(text) => ByteArray::from(text)),
        ColumnType::Json => write!(ByteArrayType, Value::Json(text) => ByteArray::from(text)),
        ColumnType::Bytes => write!(ByteArrayType, Value::Bytes(bytes) => ByteArray::from(bytes.to_vec())),
        ColumnType::Day => {
            column::<Int32Type>(group, batches, |waiting, row| match waiting.batch.value(row, at) {
                Value::Text(text) => {
                    time::day_of(text).map(Some).ok_or_else(|| odd(&waiting.batch, row, text, "a day"))
                }
                _ => Ok(None),
            })
        }
        ColumnType::Moment { utc } => {
            column::<Int64Type>(group, batches, |waiting, row| match waiting.batch.value(row, at) {
                Value::Text(text) => match time::moment_of(text) {
                    Some((micros, same)) if same == utc => Ok(Some(micros)),
                    _ => {
                        let wanted = "a datetime like those before it (with or without a UTC offset), to the microsecond";
                        Err(odd(&waiting.batch, row, text, wanted))
                    }
                },
                _ => Ok(None),
            })
        }
    }
}

fn odd(batch: &Batch, row: usize, text: &str, wanted: &str) -> Problem {
    Problem::new(Code::SCHEMA_MISMATCH, format!("{text:?} is not {wanted}")).of_record(batch.record(row))
}

/// One side of the covering, rounded outwards.
fn write_side(
    group: &mut SerializedRowGroupWriter<'_, BufWriter<Pending>>,
    batches: &[Waiting],
    side: usize,
) -> Result<(), Error> {
    column::<FloatType>(group, batches, |waiting, row| {
        let bounds = waiting.bounds.get(row).copied().flatten();
        Ok(bounds.map(|b| match side {
            0 => down(b.min_x),
            1 => down(b.min_y),
            2 => up(b.max_x),
            _ => up(b.max_y),
        }))
    })
}

fn down(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) > x { near.next_down() } else { near }
}

fn up(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) < x { near.next_up() } else { near }
}
