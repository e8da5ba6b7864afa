//! From the spool to the output.

use crate::source::SourceError;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tidegate_core::Code;
use tidegate_geo::crs::Transform;
use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::format::{self, Format, Options, Rejected};
use tidegate_geo::{Batch, Crs, Problem};

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Features in the output.
    pub written: u64,
    /// Features that the output cannot hold.
    pub rejected: u64,
    /// Where those are, each with its reason.
    pub rejects: Option<PathBuf>,
    /// The reference system of the output.
    pub crs: String,
}

/// Whether the output can be written at all, before anything is asked.
pub(super) fn check(output: &Path) -> Result<(), SourceError> {
    let setup = |what: String| Err(SourceError::setup(what));
    match Format::of_path(output) {
        None => setup(format!(
            "{}: the name tells no format; use .gpkg, .geojson, .geojsonl, .fgb or .csv",
            output.display()
        )),
        Some(Format::Shapefile) => setup("Shapefiles are read, not written; use .gpkg".into()),
        Some(_) => {
            let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
            match folder {
                Some(folder) if !folder.is_dir() => setup(format!("there is no folder {}", folder.display())),
                _ => Ok(()),
            }
        }
    }
}

/// Reads every feature of `from` and writes it to `to`. `expected` is how many there must be.
pub(super) fn write(from: &Path, to: &Path, expected: Option<u64>) -> Result<Outcome, SourceError> {
    let failed = |e: tidegate_geo::Error| SourceError::broken(e.code(), format!("{}: {e}", to.display()));
    let options = ReadOptions { keep_raw: true, ..ReadOptions::default() };
    let reader = format::open(from, &options)
        .map_err(|e| SourceError::broken(e.code(), format!("what was received cannot be read: {e}")))?;
    let layer = reader.layer().clone();
    let Some(crs) = layer.crs.clone() else {
        return Err(SourceError::broken(Code::CRS_NOT_FOUND, "the file does not say its reference system"));
    };
    let text =
        matches!(Format::of_path(to), Some(Format::GeoJson | Format::GeoJsonLines | Format::GeoJsonSeq));
    let target = if text { Crs::wgs84() } else { crs.clone() };
    let same = target == crs || (target.is_wgs84() && crs.is_wgs84());
    let transform =
        if same { None } else { Some(Transform::new(&crs, &target).map_err(|p| failed(p.into()))?) };
    let mut writer = format::create(to, &layer.schema, &target, &Options::default()).map_err(failed)?;
    let mut rejects = Rejects::new(to);
    let mut read = 0;
    let work = move |batch, rejected: &mut Vec<Rejected>| match &transform {
        Some(transform) => Ok(turned(batch, transform, rejected)),
        None => Ok(batch),
    };
    let put = |batch: Option<Batch>, rejected| {
        rejects.put(rejected)?;
        let Some(batch) = batch else { return Ok(()) };
        read += batch.len() as u64;
        writer.write(&batch)
    };
    format::beside(reader, work, put).map_err(failed)?;
    if let Some(expected) = expected.filter(|expected| *expected != read + rejects.count) {
        return Err(SourceError::broken(
            Code::COUNT_MISMATCH,
            format!(
                "{expected} features were received, {read} read and {} rejected: features are missing, \
                 and the output was not put in place. Please report this",
                rejects.count
            ),
        ));
    }
    let (count, place) = rejects.finish().map_err(failed)?;
    let written = writer.finish().map_err(failed)?.features;
    Ok(Outcome { written, rejected: count, rejects: place, crs: target.to_string() })
}

/// The batch in another system. What cannot be brought there is rejected.
fn turned(mut batch: Batch, transform: &Transform, rejected: &mut Vec<Rejected>) -> Batch {
    let mut bad: Vec<(usize, Problem)> = Vec::new();
    for row in 0..batch.len() {
        if let Some(Err(problem)) = batch.geometry_mut(row).map(|wkb| transform.geometry(wkb)) {
            bad.push((row, problem));
        }
    }
    if bad.is_empty() {
        return batch;
    }
    let mut good = Batch::new(batch.schema().clone());
    for row in 0..batch.len() {
        let (span, raw) = batch.origin(row);
        let record = batch.record(row);
        let problem = bad.iter().find(|(at, _)| *at == row).map(|(_, problem)| problem.clone());
        let problem = problem.or_else(|| {
            good.go_to_record(record);
            let values = batch.columns().iter().map(|column| column.get(row));
            good.push(batch.geometry(row), values).err()
        });
        if let Some(problem) = problem {
            rejected.push(Rejected { record, span, raw: raw.to_vec(), problems: vec![problem] });
        } else if let Some(id) = batch.id(row) {
            good.set_id(id);
        }
    }
    good
}

/// The rejected features, one per line beside the output; no file if there are none.
struct Rejects {
    path: PathBuf,
    out: Option<BufWriter<std::fs::File>>,
    count: u64,
}

impl Rejects {
    fn new(output: &Path) -> Rejects {
        let mut name = output.file_name().unwrap_or_default().to_owned();
        name.push(".rejected.ndjson");
        Rejects { path: output.with_file_name(name), out: None, count: 0 }
    }

    fn put(&mut self, rejected: Vec<Rejected>) -> Result<(), tidegate_geo::Error> {
        for one in rejected {
            let out = match &mut self.out {
                Some(out) => out,
                None => self.out.insert(BufWriter::new(std::fs::File::create(&self.path)?)),
            };
            let problems: Vec<_> = one
                .problems
                .iter()
                .map(|p| serde_json::json!({"code": p.code.as_str(), "message": p.message, "path": p.path}))
                .collect();
            let text = String::from_utf8_lossy(&one.raw);
            let feature: serde_json::Value =
                serde_json::from_str(&text).unwrap_or_else(|_| serde_json::Value::from(text.as_ref()));
            let line = serde_json::json!({"record": one.record, "problems": problems, "feature": feature});
            writeln!(out, "{line}")?;
            self.count += 1;
        }
        Ok(())
    }

    fn finish(self) -> Result<(u64, Option<PathBuf>), tidegate_geo::Error> {
        let Some(mut out) = self.out else { return Ok((0, None)) };
        out.flush()?;
        out.get_ref().sync_all()?;
        Ok((self.count, Some(self.path)))
    }
}
