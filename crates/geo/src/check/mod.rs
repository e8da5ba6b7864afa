//! What is in a file, and what is wrong with it.
//!
//! One pass tells the layer, its fields and system, how many features of which shape there are,
//! where they lie, and every record that cannot be read or is not valid. The same pass can write
//! the valid features, the invalid ones, and a point per defect, so that the defects open as a map.
//! Whoever wants more from the pass watches it ([`Watch`]).

mod outputs;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::batch::Batch;
use crate::bounds::Bounds;
use crate::crs::Plausibility;
use crate::error::{Error, Problem};
use crate::format::{self, Format, Layer, Rejected, geojson, geojson::ReadOptions};
use crate::validity::{Checker, Concern, Flaw, Limits, Warning, warnings};
use crate::wkb::{self, Shape};
use outputs::Outs;

/// Where to write what, besides telling it.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// The valid features.
    pub valid: Option<PathBuf>,
    /// The invalid features.
    pub invalid: Option<PathBuf>,
    /// A point per defect, with the record and the reason.
    pub defects: Option<PathBuf>,
}

/// How to check.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// How to read.
    pub read: ReadOptions,
    /// What to write.
    pub outputs: Outputs,
    /// From when on to warn; no warnings if this is not given.
    pub limits: Option<Limits>,
    /// Take the coordinates to be in the system that they are said to be in, even if they cannot be.
    pub trust_crs: bool,
}

/// Sees what a pass sees. All methods do nothing by default.
pub trait Watch {
    /// A feature, and what is wrong with it.
    ///
    /// # Errors
    /// Ends the pass.
    fn feature(
        &mut self,
        batch: &Batch,
        row: usize,
        flaw: Option<&Flaw>,
        warnings: &[Warning],
    ) -> io::Result<()> {
        let _ = (batch, row, flaw, warnings);
        Ok(())
    }

    /// A record that cannot be read.
    ///
    /// # Errors
    /// Ends the pass.
    fn rejected(&mut self, rejected: &Rejected) -> io::Result<()> {
        let _ = rejected;
        Ok(())
    }
}

/// Sees nothing.
impl Watch for () {}

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
    /// How many are invalid for each reason.
    pub reasons: BTreeMap<String, u64>,
    /// How many warnings there are of each concern.
    pub concerns: BTreeMap<Concern, u64>,
    /// Where they lie.
    pub bounds: Option<Bounds>,
    /// How many records cannot be read.
    pub rejected: u64,
    /// Why the coordinates cannot be in the system that they are said to be in.
    pub mismatch: Option<Problem>,
}

impl Report {
    fn new(layer: Layer) -> Report {
        Report {
            layer,
            features: 0,
            without_geometry: 0,
            empty: 0,
            shapes: BTreeMap::new(),
            reasons: BTreeMap::new(),
            concerns: BTreeMap::new(),
            bounds: None,
            rejected: 0,
            mismatch: None,
        }
    }

    /// Whether every record could be read and is valid, and the coordinates can be in their system.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.rejected == 0 && self.reasons.is_empty() && self.mismatch.is_none()
    }

    /// How many features are not valid.
    #[must_use]
    pub fn invalid(&self) -> u64 {
        self.reasons.values().sum()
    }

    /// How many warnings there are.
    #[must_use]
    pub fn warnings(&self) -> u64 {
        self.concerns.values().sum()
    }

    fn look_at(&mut self, bytes: Option<&[u8]>, checker: &mut Checker) -> Option<Flaw> {
        self.features += 1;
        let Some(bytes) = bytes else {
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
        Some(flaw)
    }
}

/// Reads a layer to its end and tells what is in it.
///
/// # Errors
/// If the file cannot be read any further, an output cannot be written, or the watcher fails.
pub fn check(path: &Path, checks: &Checks, watch: &mut dyn Watch) -> Result<Report, Error> {
    let mut reader = format::open(path, &checks.read)?;
    let layer = reader.layer().clone();
    let mut outs = Outs::new(&checks.outputs, &layer)?;
    let schema = layer.schema.clone();
    let known = layer.crs.as_ref().filter(|_| !checks.trust_crs);
    let mut plausibility = known.map(Plausibility::new);
    let mut report = Report::new(layer);
    let mut checker = Checker::within(&checks.read.limits);
    let mut found: Vec<Warning> = Vec::new();
    let format = checks.read.format.map_or_else(|| Format::detect(path), |format| Ok(Some(format)))?;
    let is_geojson = format.is_some_and(Format::is_only_wgs84);
    loop {
        let mut rejected = Vec::new();
        let batch = reader.next_batch(&mut rejected)?;
        let ended = batch.is_none();
        let batch = batch.unwrap_or_else(|| Batch::new(schema.clone()));
        if let Some(Err(problem)) = plausibility.as_mut().map(|plausibility| plausibility.see_batch(&batch)) {
            report.mismatch.get_or_insert(problem.of_record(batch.record(0)));
        }
        for row in 0..batch.len() {
            found.clear();
            let bytes = batch.geometry(row);
            let flaw = report.look_at(bytes, &mut checker);
            if let (Some(limits), Some(bytes), None) = (&checks.limits, bytes, flaw) {
                warnings(bytes, limits, &mut found);
            }
            for warning in &found {
                *report.concerns.entry(warning.concern).or_default() += 1;
            }
            watch.feature(&batch, row, flaw.as_ref(), &found)?;
            outs.feature(&batch, row, flaw.as_ref(), &found)?;
        }
        for one in &rejected {
            report.rejected += 1;
            watch.rejected(one)?;
            // What breaks a rule of GeoJSON may still have a place on the map.
            if is_geojson && outs.wants_invalid() {
                let read = ReadOptions { rules: geojson::Rules::Pass, ..checks.read.clone() };
                let mut again = geojson::GeoJsonReader::new(one.raw.as_slice(), schema.clone(), read);
                if let Ok(Some(batch)) = again.next_batch(&mut Vec::new()) {
                    outs.rejected(one, &batch, &mut checker)?;
                }
            }
        }
        outs.flush()?;
        if ended {
            break;
        }
    }
    outs.finish()?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Notes(Vec<String>);

    impl Watch for Notes {
        fn feature(
            &mut self,
            batch: &Batch,
            row: usize,
            flaw: Option<&Flaw>,
            warnings: &[Warning],
        ) -> io::Result<()> {
            let record = batch.record(row);
            self.0.extend(flaw.map(|flaw| format!("{record} {flaw}")));
            self.0.extend(warnings.iter().map(|w| format!("{record} {} {} {}", w.concern, w.x, w.y)));
            Ok(())
        }

        fn rejected(&mut self, rejected: &Rejected) -> io::Result<()> {
            self.0.extend(rejected.problems.iter().map(ToString::to_string));
            Ok(())
        }
    }

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
            polygon("[[0,0],[4,0],[4,0],[4,4],[0,0]]"),
            polygon("[[0,0],[2,2],[2,0],[0,2],[0,0]]"),
            polygon("[[0,0],[2,0],[2,2],[0,2]]"),
            r#"{"type":"Feature","properties":{"n":2},"geometry":null}"#.to_owned(),
        ];
        std::fs::write(file("in.geojsonl"), text.join("\n")).unwrap();
        let checks = Checks {
            outputs: Outputs {
                valid: Some(file("valid.geojsonl")),
                invalid: Some(file("invalid.geojsonl")),
                defects: Some(file("defects.geojsonl")),
            },
            limits: Some(Limits::usual(true)),
            ..Checks::default()
        };
        let mut notes = Notes(Vec::new());
        let report = check(&file("in.geojsonl"), &checks, &mut notes).unwrap();
        assert_eq!((report.features, report.without_geometry, report.invalid()), (3, 1, 1));
        assert_eq!((report.rejected, report.warnings(), report.is_good()), (1, 1, false));
        assert_eq!(notes.0[..2], ["0 Repeated position 4 0", "1 Self-intersection[1 1]"]);
        assert!(notes.0[2].contains("record 2, at $.geometry.coordinates[0]"), "{}", notes.0[2]);
        assert_eq!(report.bounds.map(|b| (b.min_x, b.max_y)), Some((0.0, 4.0)));
        let lines = |name: &str| std::fs::read_to_string(file(name)).unwrap().lines().count();
        assert_eq!(
            (lines("valid.geojsonl"), lines("invalid.geojsonl"), lines("defects.geojsonl")),
            (2, 2, 3)
        );
        let defects = std::fs::read_to_string(file("defects.geojsonl")).unwrap();
        assert!(
            defects.contains(r#""record":2,"severity":"error","reason":"Ring is not closed""#),
            "{defects}"
        );
    }
}
