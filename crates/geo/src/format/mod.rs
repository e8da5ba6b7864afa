//! The formats: how features enter and leave.
//!
//! A writer is opened with a schema and a coordinate reference system, takes batches, and is
//! finished. The file appears under its name only when it is finished, whole and flushed to disk:
//! until then it lies beside its place under a hidden name, and a run that ends early leaves the
//! old file as it was.
//!
//! ```
//! use std::sync::Arc;
//! use tidegate_geo::{Batch, Crs, Kind, Schema, Value, format, wkb::Shape};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("places.gpkg");
//! let schema = Arc::new(Schema::new([("name", Kind::Text)]).of_shape(Shape::Point));
//! let mut writer = format::create(&path, &schema, &Crs::wgs84(), &format::Options::default())?;
//! let mut batch = Batch::new(schema);
//! batch.push_point(16.37, 48.21, [Value::Text("Wien")])?;
//! writer.write(&batch)?;
//! assert_eq!(writer.finish()?.features, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod atomic;
pub mod csv;
pub mod fgb;
pub mod geojson;
pub mod gpkg;
mod hilbert;
pub(crate) mod json;
pub mod shp;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use tidegate_core::Code;

use crate::batch::{Batch, Span};
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::schema::Schema;

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// GeoPackage, `.gpkg`.
    GeoPackage,
    /// One GeoJSON FeatureCollection, `.geojson` or `.json`.
    GeoJson,
    /// One GeoJSON feature per line, `.geojsonl`, `.ndjson`, `.jsonl`.
    GeoJsonLines,
    /// GeoJSON text sequence of RFC 8142, `.geojsons`.
    GeoJsonSeq,
    /// Comma-separated values, `.csv`.
    Csv,
    /// FlatGeobuf, `.fgb`.
    FlatGeobuf,
    /// Shapefile, `.shp`; read, not written.
    Shapefile,
}

impl Format {
    /// The format that a file's name says.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Format> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match extension.as_str() {
            "gpkg" => Format::GeoPackage,
            "geojson" | "json" => Format::GeoJson,
            "geojsonl" | "ndjson" | "jsonl" => Format::GeoJsonLines,
            "geojsons" => Format::GeoJsonSeq,
            "csv" => Format::Csv,
            "fgb" => Format::FlatGeobuf,
            "shp" => Format::Shapefile,
            _ => return None,
        })
    }
}

/// Choices for writers. The defaults suit nearly everybody.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format, if the file's name does not say it.
    pub format: Option<Format>,
    /// The layer's name; the file's name without extension by default.
    pub layer: Option<String>,
    /// How a CSV file shows the geometry.
    pub csv_geometry: csv::Geometry,
    /// Put `'` before CSV text that a spreadsheet would run as a formula (`=`, `+`, `-`, `@`).
    pub csv_neutralise: bool,
    /// The time of change that a GeoPackage states, ISO 8601 in UTC; the time of writing by
    /// default. Give it to make the same input give the same bytes.
    pub last_change: Option<String>,
}

/// A record that could not be read, with everything a dead letter needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Its number in the source, from 0.
    pub record: u64,
    /// Where it stood.
    pub span: Span,
    /// Its bytes.
    pub raw: Vec<u8>,
    /// All that is wrong with it.
    pub problems: Vec<Problem>,
}

/// What a source says of itself.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Its fields and shape.
    pub schema: Arc<Schema>,
    /// Its reference system, if it says one.
    pub crs: Option<Crs>,
    /// How many records it holds, if that is known before reading.
    pub records: Option<u64>,
}

/// A file being read.
pub trait Reader: Send {
    /// What is being read.
    fn layer(&self) -> &Layer;

    /// The next batch; `None` after the end. Records that cannot be read are added to `rejected`.
    ///
    /// # Errors
    /// If the file cannot be read any further.
    fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error>;
}

/// Opens a file for reading, in the format of its name.
///
/// # Errors
/// If the format is unknown or the file is not of it.
pub fn open(path: &Path, options: &geojson::ReadOptions) -> Result<Box<dyn Reader>, Error> {
    match Format::of_path(path) {
        Some(Format::GeoJson | Format::GeoJsonLines | Format::GeoJsonSeq) => {
            Ok(Box::new(geojson::open(path, options.clone())?))
        }
        Some(Format::Shapefile) => Ok(Box::new(shp::Reader::open(path, options.clone())?)),
        Some(Format::FlatGeobuf) => Ok(Box::new(fgb::Reader::open(path, options.clone())?)),
        Some(Format::Csv) => Ok(Box::new(csv::Reader::open(path, options.clone())?)),
        Some(Format::GeoPackage) => Ok(Box::new(gpkg::Reader::open(path, options.layer.as_deref())?)),
        None => {
            let message = format!("no format that can be read is known by the name {}", path.display());
            Err(Problem::new(Code::UNPROCESSABLE, message).into())
        }
    }
}

/// What a finished writer wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// How many features.
    pub features: u64,
}

/// A file being written.
pub trait Writer: Send {
    /// Adds the features of a batch.
    ///
    /// # Errors
    /// A feature that the format cannot hold, or a failure of the disk. The file is then given up:
    /// what stood under its name before stays.
    fn write(&mut self, batch: &Batch) -> Result<(), Error>;

    /// Completes the file and puts it in its place.
    ///
    /// # Errors
    /// A failure of the disk.
    fn finish(self: Box<Self>) -> Result<Written, Error>;
}

/// Opens a file for writing, in the format of the options or of the file's name.
///
/// # Errors
/// If the format is unknown, cannot hold the coordinate reference system, or the file cannot be
/// made.
pub fn create(
    path: &Path,
    schema: &Arc<Schema>,
    crs: &Crs,
    options: &Options,
) -> Result<Box<dyn Writer>, Error> {
    let Some(format) = options.format.or_else(|| Format::of_path(path)) else {
        let message = format!("no format is known by the name {}", path.display());
        return Err(Problem::new(Code::UNPROCESSABLE, message).into());
    };
    match format {
        Format::GeoPackage => Ok(Box::new(gpkg::Writer::create(path, schema, crs, options)?)),
        Format::Shapefile => {
            Err(Problem::new(Code::UNPROCESSABLE, "Shapefiles are read, not written").into())
        }
        Format::FlatGeobuf => Ok(Box::new(fgb::Writer::create(path, schema, crs, options)?)),
        text => {
            let file = atomic::Pending::new(path)?;
            let out = std::io::BufWriter::with_capacity(1 << 18, file);
            text_writer(text, Out::File(out), schema, crs, options)
        }
    }
}

/// Opens a stream for writing; every format without an index can be streamed.
///
/// # Errors
/// As [`create`].
pub fn create_stream(
    to: Box<dyn Write + Send>,
    format: Format,
    schema: &Arc<Schema>,
    crs: &Crs,
    options: &Options,
) -> Result<Box<dyn Writer>, Error> {
    text_writer(format, Out::Stream(to), schema, crs, options)
}

fn text_writer(
    format: Format,
    out: Out,
    schema: &Arc<Schema>,
    crs: &Crs,
    options: &Options,
) -> Result<Box<dyn Writer>, Error> {
    Ok(match format {
        Format::GeoPackage | Format::FlatGeobuf | Format::Shapefile => {
            return Err(Problem::new(Code::UNPROCESSABLE, "this format cannot be streamed").into());
        }
        Format::GeoJson => Box::new(geojson::Writer::new(out, geojson::Frame::Collection, schema, crs)?),
        Format::GeoJsonLines => Box::new(geojson::Writer::new(out, geojson::Frame::Lines, schema, crs)?),
        Format::GeoJsonSeq => Box::new(geojson::Writer::new(out, geojson::Frame::Sequence, schema, crs)?),
        Format::Csv => Box::new(csv::Writer::new(out, schema, options)?),
    })
}

/// Where a text format goes.
pub(crate) enum Out {
    File(std::io::BufWriter<atomic::Pending>),
    Stream(Box<dyn Write + Send>),
}

impl Out {
    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Out::File(file) => file.write_all(bytes),
            Out::Stream(stream) => stream.write_all(bytes),
        }
    }

    fn finish(self) -> std::io::Result<()> {
        match self {
            Out::File(file) => file.into_inner().map_err(std::io::IntoInnerError::into_error)?.commit(),
            Out::Stream(mut stream) => stream.flush(),
        }
    }
}
