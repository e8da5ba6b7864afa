//! From one file to another: the shortest use of the whole crate.
//!
//! Reading, reprojecting, repairing and writing work batch by batch, so that memory does not
//! depend on the size of the file. A record that one of them cannot handle is set aside with its
//! reason; the others go on. A GeoJSON file can hold only WGS 84, so that anything else is
//! reprojected on the way into one, and the result says how.

use std::path::Path;
use std::sync::Arc;

use tidegate_core::Code;

use crate::batch::Batch;
use crate::crs::{Crs, Operation, Transform};
use crate::error::{Error, Problem};
use crate::format::{self, Format, Options, Rejected, geojson::ReadOptions};
use crate::repair::{self, Outcome};
use crate::schema::Schema;
use crate::validity::Checker;
use crate::wkb::Shape;

/// What to do on the way.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// How to read.
    pub read: ReadOptions,
    /// How to write.
    pub write: Options,
    /// The system to bring coordinates to.
    pub to_crs: Option<Crs>,
    /// The system of a source that does not say its own.
    pub from_crs: Option<Crs>,
    /// Make invalid geometry valid; what cannot be is rejected.
    pub make_valid: bool,
}

/// What a conversion did.
#[derive(Clone, Debug, Default)]
pub struct Converted {
    /// How many features were written.
    pub features: u64,
    /// How many geometries were made valid.
    pub repaired: u64,
    /// The records that could not be read, reprojected or repaired.
    pub rejected: Vec<Rejected>,
    /// How coordinates were brought to another system, if they were.
    pub operation: Option<Operation>,
}

/// Reads every feature of one file and writes it to another.
///
/// # Errors
/// If either file gives up, or there is no way between the systems. A record that cannot be
/// handled is not an error: it is in the result.
pub fn convert(from: &Path, to: &Path, steps: &Steps) -> Result<Converted, Error> {
    let mut reader = format::open(from, &steps.read)?;
    let layer = reader.layer().clone();
    let Some(crs) = layer.crs.clone().or_else(|| steps.from_crs.clone()) else {
        let message = "the source does not say its system; name it";
        return Err(Problem::new(Code::CRS_NOT_FOUND, message).into());
    };
    let only_wgs84 = matches!(
        steps.write.format.or_else(|| Format::of_path(to)),
        Some(Format::GeoJson | Format::GeoJsonLines | Format::GeoJsonSeq)
    );
    let target = steps.to_crs.clone().unwrap_or_else(|| if only_wgs84 { Crs::wgs84() } else { crs.clone() });
    let same = target == crs || (target.is_wgs84() && crs.is_wgs84());
    let transform = if same { None } else { Some(Transform::new(&crs, &target)?) };
    let promote = steps.make_valid.then(|| layer.schema.shape.map(Shape::multi)).flatten();
    let mut schema = Schema::clone(&layer.schema);
    schema.shape = promote.or(schema.shape);
    let schema = Arc::new(schema);

    let mut writer = format::create(to, &schema, &target, &steps.write)?;
    let mut done =
        Converted { operation: transform.as_ref().map(|t| t.operation().clone()), ..Converted::default() };
    let mut checker = Checker::default();
    while let Some(batch) = reader.next_batch(&mut done.rejected)? {
        if transform.is_none() && !steps.make_valid {
            writer.write(&batch)?;
            continue;
        }
        let mut out = Batch::new(schema.clone());
        for row in 0..batch.len() {
            let made = geometry(
                &batch,
                row,
                transform.as_ref(),
                steps.make_valid.then_some(&mut checker),
                &mut done.repaired,
            )
            .map(|wkb| if promote.is_some() { wkb.map(|wkb| repair::promote(&wkb)) } else { wkb });
            match made {
                Ok(wkb) => {
                    out.go_to_record(batch.record(row));
                    let values = batch.columns().iter().map(|column| column.get(row));
                    out.push(wkb.as_deref(), values)?;
                    if let Some(id) = batch.id(row) {
                        out.set_id(id);
                    }
                }
                Err(problem) => {
                    let record = batch.record(row);
                    let (span, raw) = batch.origin(row);
                    let problems = vec![problem.of_record(record)];
                    done.rejected.push(Rejected { record, span, raw: raw.to_vec(), problems });
                }
            }
        }
        writer.write(&out)?;
    }
    done.features = writer.finish()?.features;
    Ok(done)
}

/// One geometry, made valid before it is reprojected: a repair wants the coordinates that were
/// drawn.
fn geometry(
    batch: &Batch,
    row: usize,
    transform: Option<&Transform>,
    checker: Option<&mut Checker>,
    repaired: &mut u64,
) -> Result<Option<Vec<u8>>, Problem> {
    let Some(wkb) = batch.geometry(row) else { return Ok(None) };
    let mut out = Vec::with_capacity(wkb.len());
    match checker.map(|checker| repair::make_valid(wkb, checker, &mut out)) {
        None => out.extend_from_slice(wkb),
        Some(Outcome::Valid) => {}
        Some(Outcome::Repaired(_)) => *repaired += 1,
        Some(Outcome::Hopeless(flaw)) => return Err(Problem::new(Code::INVALID_GEOMETRY, flaw.to_string())),
    }
    if let Some(transform) = transform {
        transform.geometry(&mut out)?;
    }
    Ok(Some(out))
}
