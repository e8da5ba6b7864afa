//! What is in a file, and what is wrong with it.
//!
//! One pass tells the layer, its fields and system, how many features of which shape there are,
//! where they lie, and every record that cannot be read or is not valid. The same pass can write
//! the valid features, the invalid ones, and a point per flaw, so that the flaws open as a map.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::batch::Batch;
use crate::bounds::Bounds;
use crate::column::Value;
use crate::crs::Crs;
use crate::error::Error;
use crate::format::{self, Layer, Options, Rejected, Writer, geojson::ReadOptions};
use crate::schema::{Kind, Schema};
use crate::validity::{Checker, Flaw};
use crate::wkb::{self, Shape};

/// Where to write what, besides telling it.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// The valid features.
    pub valid: Option<PathBuf>,
    /// The invalid features.
    pub invalid: Option<PathBuf>,
    /// A point per flaw, with the record and the reason.
    pub flaws: Option<PathBuf>,
}

/// What a pass found.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the file says of itself.
    pub layer: Layer,
    /// How many features could be read.
    pub features: u64,
    /// How many of them have no geometry.
    pub without_geometry: u64,
    /// How many have a geometry without a position.
    pub empty: u64,
    /// How many there are of each shape.
    pub shapes: BTreeMap<Shape, u64>,
    /// How many flaws there are of each reason.
    pub reasons: BTreeMap<String, u64>,
    /// Where they lie.
    pub bounds: Option<Bounds>,
    /// The first flaws, by record.
    pub flaws: Vec<(u64, Flaw)>,
    /// The records that cannot be read.
    pub rejected: Vec<Rejected>,
}

impl Report {
    /// Whether every record could be read and is valid.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.rejected.is_empty() && self.reasons.is_empty()
    }

    /// How many features are not valid.
    #[must_use]
    pub fn invalid(&self) -> u64 {
        self.reasons.values().sum()
    }
}

/// How many flaws a report lists; all are counted, and all are written.
const FLAWS_MAX: usize = 1000;

/// Reads a file to its end and tells what is in it.
///
/// # Errors
/// If the file cannot be read any further, or an output cannot be written.
pub fn check(path: &Path, read: &ReadOptions, outputs: &Outputs) -> Result<Report, Error> {
    let mut reader = format::open(path, read)?;
    let layer = reader.layer().clone();
    let crs = layer.crs.clone().unwrap_or_else(Crs::wgs84);
    let create = |to: &Option<PathBuf>, schema: &Arc<Schema>| -> Result<Option<Box<dyn Writer>>, Error> {
        to.as_deref().map(|to| format::create(to, schema, &crs, &Options::default())).transpose()
    };
    let of_flaws = Schema::new([("record", Kind::Int), ("reason", Kind::Text)]).of_shape(Shape::Point);
    let of_flaws = Arc::new(of_flaws);
    let mut valid_out = create(&outputs.valid, &layer.schema)?;
    let mut invalid_out = create(&outputs.invalid, &layer.schema)?;
    let mut flaws_out = create(&outputs.flaws, &of_flaws)?;
    let mut report = Report {
        layer,
        features: 0,
        without_geometry: 0,
        empty: 0,
        shapes: BTreeMap::new(),
        reasons: BTreeMap::new(),
        bounds: None,
        flaws: Vec::new(),
        rejected: Vec::new(),
    };
    let mut checker = Checker::default();
    while let Some(batch) = reader.next_batch(&mut report.rejected)? {
        let [mut valid, mut invalid] = [(); 2].map(|()| Batch::new(batch.schema().clone()));
        let mut flaws = Batch::new(of_flaws.clone());
        for row in 0..batch.len() {
            let flaw = report.look_at(&batch, row, &mut checker);
            let part = if flaw.is_some() { &mut invalid } else { &mut valid };
            let wanted = if flaw.is_some() { invalid_out.is_some() } else { valid_out.is_some() };
            if wanted {
                part.push(batch.geometry(row), batch.columns().iter().map(|column| column.get(row)))?;
                if let Some(id) = batch.id(row) {
                    part.set_id(id);
                }
            }
            if let (Some(flaw), true) = (flaw, flaws_out.is_some()) {
                let record = i64::try_from(batch.record(row)).unwrap_or(i64::MAX);
                let reason = flaw.reason.to_string();
                flaws.push_point(flaw.x, flaw.y, [Value::Int(record), Value::Text(&reason)])?;
            }
        }
        for (out, part) in [(&mut valid_out, &valid), (&mut invalid_out, &invalid), (&mut flaws_out, &flaws)]
        {
            if let Some(out) = out {
                out.write(part)?;
            }
        }
    }
    for out in [valid_out, invalid_out, flaws_out].into_iter().flatten() {
        out.finish()?;
    }
    Ok(report)
}

impl Report {
    fn look_at(&mut self, batch: &Batch, row: usize, checker: &mut Checker) -> Option<Flaw> {
        self.features += 1;
        let Some(bytes) = batch.geometry(row) else {
            self.without_geometry += 1;
            return None;
        };
        if let Some((shape, _)) = wkb::head(bytes) {
            *self.shapes.entry(shape).or_default() += 1;
        }
        match Bounds::of_wkb(bytes) {
            Some(bounds) => self.bounds = Some(self.bounds.map_or(bounds, |all| all.union(bounds))),
            None => self.empty += 1,
        }
        let flaw = checker.first_flaw(bytes)?;
        *self.reasons.entry(flaw.reason.to_string()).or_default() += 1;
        if self.flaws.len() < FLAWS_MAX {
            self.flaws.push((batch.record(row), flaw));
        }
        Some(flaw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_apart_into_good_and_bad() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let polygon = |ring: &str| {
            format!(
                r#"{{"type":"Feature","properties":{{"n":1}},"geometry":{{"type":"Polygon","coordinates":[{ring}]}}}}"#
            )
        };
        let text = [
            polygon("[[0,0],[4,0],[4,4],[0,0]]"),
            polygon("[[0,0],[2,2],[2,0],[0,2],[0,0]]"),
            polygon("[[0,0],[2,2]]"),
            r#"{"type":"Feature","properties":{"n":2},"geometry":null}"#.to_owned(),
        ];
        std::fs::write(file("in.geojsonl"), text.join("\n")).unwrap();
        let outputs = Outputs {
            valid: Some(file("valid.geojsonl")),
            invalid: Some(file("invalid.geojsonl")),
            flaws: Some(file("flaws.geojsonl")),
        };
        let report = check(&file("in.geojsonl"), &ReadOptions::default(), &outputs).unwrap();
        assert_eq!((report.features, report.without_geometry, report.invalid()), (3, 1, 1));
        assert_eq!(report.rejected.iter().map(|r| r.record).collect::<Vec<_>>(), [2]);
        assert_eq!(
            report.flaws.iter().map(|(record, f)| (*record, f.to_string())).collect::<Vec<_>>(),
            [(1, "Self-intersection[1 1]".into())]
        );
        assert_eq!(report.bounds.map(|b| (b.min_x, b.max_y)), Some((0.0, 4.0)));
        assert!(!report.is_good());
        let lines = |name: &str| std::fs::read_to_string(file(name)).unwrap().lines().count();
        assert_eq!((lines("valid.geojsonl"), lines("invalid.geojsonl"), lines("flaws.geojsonl")), (2, 1, 1));
    }
}
