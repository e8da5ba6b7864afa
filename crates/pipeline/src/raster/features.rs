//! The features of a local file, in the system of a raster. One that cannot be used fails the raster: a
//! hole where it should be would look like the ground around it.

use std::path::{Path, PathBuf};

use tidegate_core::Code;
use tidegate_geo::crs::Transform;
use tidegate_geo::format::{self, Reader, geojson::ReadOptions};
use tidegate_geo::{Batch, Crs, Problem};

use super::RasterFailure;

/// A file of features that is open.
pub(super) struct FeatureFile {
    path: PathBuf,
    reader: Box<dyn Reader>,
}

impl FeatureFile {
    pub(super) fn open(path: &Path) -> Result<FeatureFile, RasterFailure> {
        match format::open(path, &ReadOptions::default()) {
            Ok(reader) => Ok(FeatureFile { path: path.to_owned(), reader }),
            Err(error) => Err(unusable(path, &error.to_string())),
        }
    }

    /// Their system.
    pub(super) fn crs(&self) -> Crs {
        self.reader.layer().crs.clone().unwrap_or_else(Crs::wgs84)
    }

    /// The place of a field.
    pub(super) fn field(&self, name: &str) -> Result<usize, RasterFailure> {
        let schema = &self.reader.layer().schema;
        schema.position(name).ok_or_else(|| {
            let known: Vec<&str> = schema.fields().iter().take(30).map(|field| field.name.as_str()).collect();
            let message = format!("{}: no field {name:?}; it has {}", self.path.display(), known.join(", "));
            RasterFailure::Record(Problem::new(Code::SCHEMA_MISMATCH, message))
        })
    }

    /// Hands over all features that have a geometry, with the way to a system. What `take` does not take
    /// fails: it has no place there.
    pub(super) fn each(
        mut self,
        to: &Crs,
        mut take: impl FnMut(&Batch, usize, &[u8], &Transform) -> Result<bool, RasterFailure>,
    ) -> Result<(), RasterFailure> {
        let way = Transform::new(&self.crs(), to).map_err(RasterFailure::Record)?;
        let mut rejected = Vec::new();
        loop {
            let next = self.reader.next_batch(&mut rejected);
            let Some(batch) = next.map_err(|error| unusable(&self.path, &error.to_string()))? else { break };
            for row in 0..batch.len() {
                let Some(wkb) = batch.geometry(row) else { continue };
                if !take(&batch, row, wkb, &way)? {
                    let what = format!("record {} has no place in {to}", batch.record(row));
                    return Err(unusable(&self.path, &what));
                }
            }
        }
        match rejected.first().and_then(|rejected| rejected.problems.first()) {
            Some(problem) => Err(unusable(&self.path, &problem.to_string())),
            None => Ok(()),
        }
    }
}

fn unusable(path: &Path, what: &str) -> RasterFailure {
    RasterFailure::Record(Problem::new(Code::INVALID_GEOMETRY, format!("{}: {what}", path.display())))
}
