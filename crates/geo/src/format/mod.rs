//! File formats: readers and writers.
//!
//! A writer is opened with a schema and a coordinate reference system, takes batches, and is
//! finished. Until then the file has a hidden name in the same folder. It gets its own name when it is
//! complete and flushed to disk; a run that ends early leaves the old file unchanged.
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

pub mod atomic;
mod beside;
pub mod csv;
pub mod esri;
pub mod fgb;
pub mod geojson;
pub mod gml;
pub mod gpkg;
mod hilbert;
pub(crate) mod json;
#[cfg(feature = "parquet")]
pub mod parquet;
mod prj;
pub mod shp;
mod sort;
mod splice;
mod time;
pub use time::moment_of;
mod zip;

pub use beside::beside;
pub use splice::{Splice, header_text, is_spliceable, record_text, splice};

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
    /// ESRI JSON, the answers of ArcGIS servers; `.esrijson`, or recognised by its content.
    EsriJson,
    /// GML of WFS 1.1 and 2.0, `.gml` or `.xml`; written as GML 3.2.
    Gml,
    /// GeoParquet, `.parquet` or `.geoparquet`.
    GeoParquet,
    /// Shapefile, `.shp`, with its companions.
    Shapefile,
}

impl Format {
    /// The format of a file name, by its extension.
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
            "gml" | "xml" => Format::Gml,
            "esrijson" => Format::EsriJson,
            "parquet" | "geoparquet" => Format::GeoParquet,
            "shp" => Format::Shapefile,
            _ => return None,
        })
    }

    /// The format of an existing file: by its name, else by its first bytes; of an archive, that of
    /// the only file in it.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn detect(path: &Path) -> std::io::Result<Option<Format>> {
        if zip::is_likely(path)? {
            return Ok(zip::format(path));
        }
        let mut head = [0; 4096];
        let mut file = std::fs::File::open(path)?;
        let len = read_up_to(&mut file, &mut head)?;
        let named = match Format::of_path(path) {
            // Both have the extension .json.
            Some(Format::GeoJson) if esri::is_likely(head.get(..len).unwrap_or_default()) => {
                Some(Format::EsriJson)
            }
            named => named,
        };
        Ok(named.or_else(|| Format::of_bytes(head.get(..len).unwrap_or_default())))
    }

    fn of_bytes(head: &[u8]) -> Option<Format> {
        let text = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head).trim_ascii_start();
        match head {
            [b'S', b'Q', b'L', b'i', b't', b'e', b' ', b'f', ..] => Some(Format::GeoPackage),
            [b'f', b'g', b'b', ..] => Some(Format::FlatGeobuf),
            [b'P', b'A', b'R', b'1', ..] => Some(Format::GeoParquet),
            [0, 0, 0x27, 0x0a, ..] => Some(Format::Shapefile),
            [0x1e, ..] => Some(Format::GeoJsonSeq),
            _ if text.starts_with(b"<") => Some(Format::Gml),
            _ if text.starts_with(b"{") && esri::is_likely(head) => Some(Format::EsriJson),
            _ if text.starts_with(b"{") => Some(Format::GeoJson),
            _ => None,
        }
    }

    /// The usual extension of its files, which is also its word in options and manifests.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Format::GeoPackage => "gpkg",
            Format::GeoJson => "geojson",
            Format::GeoJsonLines => "geojsonl",
            Format::GeoJsonSeq => "geojsons",
            Format::Csv => "csv",
            Format::FlatGeobuf => "fgb",
            Format::EsriJson => "esrijson",
            Format::Gml => "gml",
            Format::GeoParquet => "parquet",
            Format::Shapefile => "shp",
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::GeoPackage => "GeoPackage",
            Format::GeoJson => "GeoJSON",
            Format::GeoJsonLines => "GeoJSON lines",
            Format::GeoJsonSeq => "GeoJSON text sequence",
            Format::Csv => "CSV",
            Format::FlatGeobuf => "FlatGeobuf",
            Format::EsriJson => "ESRI JSON",
            Format::Gml => "GML",
            Format::GeoParquet => "GeoParquet",
            Format::Shapefile => "Shapefile",
        }
    }

    /// Whether the format allows only WGS 84.
    #[must_use]
    pub fn is_only_wgs84(self) -> bool {
        matches!(self, Format::GeoJson | Format::GeoJsonLines | Format::GeoJsonSeq)
    }
}

fn read_up_to(file: &mut std::fs::File, room: &mut [u8]) -> std::io::Result<usize> {
    use std::io::Read;
    let mut len = 0;
    while let Some(rest) = room.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

/// Options for writers.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format; by default that of the file name.
    pub format: Option<Format>,
    /// The layer's name; the file's name without extension by default.
    pub layer: Option<String>,
    /// What to do with a file that exists.
    pub mode: Mode,
    /// The columns of the geometry in a CSV file.
    pub csv_geometry: csv::Geometry,
    /// Put `'` before CSV text that a spreadsheet would run as a formula (`=`, `+`, `-`, `@`).
    pub csv_neutralise: bool,
    /// `last_change` of a GeoPackage, ISO 8601 in UTC; the time of writing by default. A fixed value
    /// gives the same bytes for the same input.
    pub last_change: Option<String>,
}

/// What to do with an existing file. Only a GeoPackage can be appended to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Replace it.
    #[default]
    New,
    /// Append the features to its layer of that name, which is created if it does not exist.
    Append,
    /// As `Append`, and a feature replaces the one with the same value in this field.
    Upsert(String),
}

/// A record that could not be read, with everything a dead letter needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Its number in the source, from 0.
    pub record: u64,
    /// Its offset and length in the source.
    pub span: Span,
    /// Its bytes.
    pub raw: Vec<u8>,
    /// Its problems.
    pub problems: Vec<Problem>,
}

impl Rejected {
    /// Approximate memory in bytes. Rejected records count towards the size of a batch.
    pub(crate) fn byte_len(&self) -> usize {
        self.raw.len() + self.problems.len() * 256
    }
}

/// The metadata of a layer.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Its fields and shape.
    pub schema: Arc<Schema>,
    /// Its coordinate reference system, if it declares one.
    pub crs: Option<Crs>,
    /// Number of records, if it is known before reading.
    pub records: Option<u64>,
}

/// A file being read.
pub trait Reader: Send {
    /// The metadata of the layer.
    fn layer(&self) -> &Layer;

    /// The next batch; `None` after the end. Records that cannot be read are added to `rejected`.
    ///
    /// # Errors
    /// If the file cannot be read any further.
    fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error>;
}

/// The format in which a file is read.
fn format_of(path: &Path, options: &geojson::ReadOptions) -> std::io::Result<Option<Format>> {
    match options.format {
        Some(format) => Ok(Some(format)),
        None => Format::detect(path),
    }
}

/// Opens a file for reading, in the format of the options, of its name or of its first bytes.
///
/// # Errors
/// If the format is unknown or the file is not of it.
pub fn open(path: &Path, options: &geojson::ReadOptions) -> Result<Box<dyn Reader>, Error> {
    if options.format.is_none() && zip::is_likely(path)? {
        return zip::open(path, options);
    }
    match format_of(path, options)? {
        Some(Format::GeoJson | Format::GeoJsonLines | Format::GeoJsonSeq) => {
            Ok(Box::new(geojson::open(path, options.clone())?))
        }
        Some(Format::Shapefile) => Ok(Box::new(shp::ShapefileReader::open(path, options.clone())?)),
        Some(Format::EsriJson) => Ok(Box::new(esri::EsriJsonReader::open(path, options.clone())?)),
        Some(Format::Gml) => Ok(Box::new(gml::GmlReader::open(path, options.clone())?)),
        #[cfg(feature = "parquet")]
        Some(Format::GeoParquet) => Ok(Box::new(parquet::ParquetReader::open(path, options)?)),
        #[cfg(not(feature = "parquet"))]
        Some(Format::GeoParquet) => Err(no_parquet()),
        Some(Format::FlatGeobuf) => Ok(Box::new(fgb::FlatGeobufReader::open(path, options.clone())?)),
        Some(Format::Csv) => Ok(Box::new(csv::CsvReader::open(path, options.clone())?)),
        Some(Format::GeoPackage) => gpkg::open(path, options.layer.as_deref(), &options.limits),
        None => {
            let message = unknown(path);
            Err(Problem::new(Code::UNPROCESSABLE, message).into())
        }
    }
}

/// The names of the layers of a file.
///
/// # Errors
/// If the file is not of its format.
pub fn layers(path: &Path, options: &geojson::ReadOptions) -> Result<Vec<String>, Error> {
    if options.format.is_none() && zip::is_likely(path)? {
        return zip::layers(path, options);
    }
    match format_of(path, options)? {
        Some(Format::GeoPackage) => gpkg::layers(path),
        _ => Ok(vec![path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer").to_owned()]),
    }
}

/// The result of a finished writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of features.
    pub features: u64,
}

/// A file being written.
pub trait Writer: Send {
    /// Adds the features of a batch.
    ///
    /// # Errors
    /// A feature that the format cannot hold, or an I/O error. The file is then discarded, and an existing
    /// one stays unchanged.
    fn write(&mut self, batch: &Batch) -> Result<(), Error>;

    /// Completes a layer and begins another in the same file.
    ///
    /// # Errors
    /// If the format holds only one layer, or the file has a layer of that name.
    fn next_layer(&mut self, schema: &Arc<Schema>, crs: &Crs, options: &Options) -> Result<(), Error> {
        let _ = (schema, crs, options);
        Err(Problem::new(Code::UNPROCESSABLE, "this format holds only one layer").into())
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// An I/O error.
    fn finish(self: Box<Self>) -> Result<Written, Error>;
}

#[cfg(not(feature = "parquet"))]
fn no_parquet() -> Error {
    let missing = tidegate_core::part::MissingPart(tidegate_core::part::OptionalPart::GeoParquet);
    Problem::new(Code::UNPROCESSABLE, missing.to_string()).into()
}

/// Opens a file for writing, in the format of the options or of the file name; `-` is standard
/// output.
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
        let message = unknown(path);
        return Err(Problem::new(Code::UNPROCESSABLE, message).into());
    };
    if options.mode != Mode::New && format != Format::GeoPackage {
        return Err(Problem::new(Code::UNPROCESSABLE, "only a GeoPackage can be appended to").into());
    }
    if path == Path::new("-") {
        return create_stream(Box::new(std::io::stdout()), format, schema, crs, options);
    }
    match format {
        Format::GeoPackage => Ok(Box::new(gpkg::GpkgWriter::create(path, schema, crs, options)?)),
        Format::Shapefile => Ok(Box::new(shp::ShapefileWriter::create(path, schema, crs, options)?)),
        #[cfg(feature = "parquet")]
        Format::GeoParquet => Ok(Box::new(parquet::ParquetWriter::create(path, schema, crs, options)?)),
        #[cfg(not(feature = "parquet"))]
        Format::GeoParquet => Err(no_parquet()),
        Format::FlatGeobuf => Ok(Box::new(fgb::FlatGeobufWriter::create(path, schema, crs, options)?)),
        text => {
            let file = atomic::Pending::new(path)?;
            let out = std::io::BufWriter::with_capacity(1 << 18, file);
            text_writer(text, Out::File(out), schema, crs, options, Some(path))
        }
    }
}

/// Opens a stream for writing. Formats with an index cannot be streamed.
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
    text_writer(format, Out::Stream(to), schema, crs, options, None)
}

fn text_writer(
    format: Format,
    out: Out,
    schema: &Arc<Schema>,
    crs: &Crs,
    options: &Options,
    path: Option<&Path>,
) -> Result<Box<dyn Writer>, Error> {
    Ok(match format {
        Format::GeoPackage | Format::FlatGeobuf | Format::GeoParquet | Format::Shapefile => {
            return Err(Problem::new(Code::UNPROCESSABLE, "this format cannot be streamed").into());
        }
        Format::GeoJson => {
            Box::new(geojson::GeoJsonWriter::new(out, geojson::Frame::Collection, schema, crs)?)
        }
        Format::GeoJsonLines => {
            Box::new(geojson::GeoJsonWriter::new(out, geojson::Frame::Lines, schema, crs)?)
        }
        Format::GeoJsonSeq => {
            Box::new(geojson::GeoJsonWriter::new(out, geojson::Frame::Sequence, schema, crs)?)
        }
        Format::Csv => Box::new(csv::CsvWriter::new(out, schema, crs, options, path)?),
        Format::EsriJson => Box::new(esri::EsriJsonWriter::new(out, schema, crs)?),
        Format::Gml => {
            let stem = path.and_then(Path::file_stem).and_then(|stem| stem.to_str());
            Box::new(gml::GmlWriter::new(out, schema, crs, options, stem.unwrap_or("features"))?)
        }
    })
}

/// The output of a text format.
pub(crate) enum Out {
    File(std::io::BufWriter<atomic::Pending>),
    Stream(Box<dyn Write + Send>),
}

impl Out {
    /// Writes the buffer if it is large enough.
    pub(crate) fn spill(&mut self, gathered: &mut Vec<u8>) -> std::io::Result<()> {
        if gathered.len() >= 1 << 16 {
            self.write_all(gathered)?;
            gathered.clear();
        }
        Ok(())
    }

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
/// The message about a file of no known format.
fn unknown(path: &Path) -> String {
    format!(
        "{}: unknown file format; expected one of .gpkg, .geojson, .geojsonl, .geojsons, .fgb, .parquet, .csv, .gml, .esrijson, .shp",
        path.display()
    )
}
