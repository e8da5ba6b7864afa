//! A GeoJSON file: read once for its schema and once for its features.

use std::fs::File;
use std::path::Path;

use tidegate_core::Code;

use super::infer::infer;
use super::named;
use super::read::{GeoJsonReader, ReadOptions};
use crate::batch::Batch;
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::format::{Format, Layer, Rejected};

/// Opens a file of any of the framings.
pub(in crate::format) fn open(path: &Path, options: ReadOptions) -> Result<FileReader, Error> {
    let inferred = infer(File::open(path)?, options.limits.record_bytes_max)?;
    // A file without records is valid, a file without text is not.
    if inferred.blank && options.format.or_else(|| Format::of_path(path)) == Some(Format::GeoJson) {
        return Err(Problem::new(Code::UNEXPECTED_BODY, "the file contains no GeoJSON").at(0).into());
    }
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer").to_owned();
    let unsaid = || Ok(Some(options.crs.clone().unwrap_or_else(Crs::wgs84)));
    let crs = inferred.legacy_crs.as_deref().map_or_else(unsaid, named::system)?;
    let layer = Layer { name, schema: inferred.schema.clone(), crs, records: Some(inferred.records) };
    Ok(FileReader { layer, reader: GeoJsonReader::new(File::open(path)?, inferred.schema, options) })
}

/// A GeoJSON file being read.
pub(in crate::format) struct FileReader {
    layer: Layer,
    reader: GeoJsonReader<File>,
}

impl crate::format::Reader for FileReader {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error> {
        self.reader.next_batch(rejected)
    }
}
