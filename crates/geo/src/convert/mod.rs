//! From one file to another: the shortest use of the whole crate.
//!
//! Reading, choosing, mapping, repairing, reprojecting and writing work batch by batch, so that
//! memory does not depend on the size of the file; reading and writing take turns on two threads.
//! A record that one of them cannot handle is set aside with its reason; the others go on. A
//! GeoJSON file can hold only WGS 84, so that anything else is reprojected on the way into one, and
//! the result says how.

mod work;

use std::path::Path;
use std::sync::Arc;

use tidegate_core::Code;

use crate::batch::Batch;
use crate::crs::{Crs, Grids, Operation};
use crate::error::{Error, Problem};
use crate::format::{self, Format, Options, Reader, Rejected, Writer, geojson::ReadOptions};
use crate::mapping::Rule;
use crate::repair::Method;
use crate::schema::Schema;
use work::Work;

/// What to do on the way.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// How to read. Of a file with several layers and no name given, all are converted if the
    /// target can hold them.
    pub read: ReadOptions,
    /// How to write.
    pub write: Options,
    /// Keep only the features for which this condition is true (see [`crate::filter`]).
    pub filter: Option<String>,
    /// The fields of the result; all fields of the source if this is not given.
    pub fields: Option<Vec<Rule>>,
    /// The system to bring coordinates to.
    pub to_crs: Option<Crs>,
    /// The system of a source that does not say its own.
    pub from_crs: Option<Crs>,
    /// Make invalid geometry valid by this method; what cannot be is rejected.
    pub make_valid: Option<Method>,
    /// Make every shape the multi of itself.
    pub promote: bool,
    /// Add positions, so that no edge is longer than this, in the unit of the source.
    pub densify: Option<f64>,
    /// What to do with features outside the area that a system is meant for.
    pub outside: Outside,
    /// Refuse a way between systems that is less accurate than this, in metres, or whose accuracy
    /// nobody states.
    pub accuracy_max: Option<f32>,
    /// Where grids of datum shifts lie.
    pub grids: Grids,
    /// Take the coordinates to be in the system that they are said to be in, even if they cannot be.
    pub trust_crs: bool,
}

/// What to do with a feature outside the area that one of the two systems is meant for. There the
/// result may be meaningless: PROJ projects it all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outside {
    /// Convert it and count it.
    #[default]
    Warn,
    /// Reject it.
    Refuse,
}

/// How many rejected records a result keeps; all are counted, and all are told as they come.
const KEPT_MAX: usize = 100;

/// What a conversion did with one layer.
#[derive(Clone, Debug, Default)]
pub struct Converted {
    /// The layer's name in the source.
    pub layer: String,
    /// How many records were read, rejected ones not counted.
    pub read: u64,
    /// How many features were written.
    pub features: u64,
    /// How many the condition left out.
    pub left_out: u64,
    /// What was repaired.
    pub repaired: Repairs,
    /// How many features reach beyond the area that a system is meant for.
    pub outside: u64,
    /// How many records could not be read, mapped, reprojected or repaired.
    pub rejected: u64,
    /// The first of them.
    pub first_rejected: Vec<Rejected>,
    /// How coordinates were brought to another system, if they were.
    pub operation: Option<Operation>,
    /// The system of the result.
    pub crs: Option<Crs>,
}

/// The sum of what repairs did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repairs {
    /// How many geometries were made valid.
    pub geometries: u64,
    /// How many of them had rings to close.
    pub closed: u64,
    /// How many of them lost heights or measures.
    pub flattened: u64,
    /// How many of them changed their shape, such as from Polygon to MultiPolygon.
    pub reshaped: u64,
    /// Their area before and after, in square units of the source.
    pub area: (f64, f64),
    /// The length of their lines before and after.
    pub length: (f64, f64),
}

/// Reads every feature of a file and writes it to another; each layer's result.
///
/// # Errors
/// As [`convert_with`].
pub fn convert(from: &Path, to: &Path, steps: &Steps) -> Result<Vec<Converted>, Error> {
    convert_with(from, to, steps, &mut |_| Ok(()))
}

/// As [`convert`], telling every rejected record to a function.
///
/// # Errors
/// If either file gives up, the function fails, there is no way between the systems, the coordinates cannot be in the
/// system that they are said to be in ([`crate::crs::Plausibility`]), or there are
/// several layers where the target holds one. A record that cannot be handled is not an error: it
/// is in the result. The target is then as it was before.
pub fn convert_with(
    from: &Path,
    to: &Path,
    steps: &Steps,
    tell: &mut dyn FnMut(&Rejected) -> std::io::Result<()>,
) -> Result<Vec<Converted>, Error> {
    let format = steps.write.format.or_else(|| Format::of_path(to));
    let names: Vec<Option<String>> = match &steps.read.layer {
        Some(name) => vec![Some(name.clone())],
        None => match format::layers(from, &steps.read)? {
            names if names.len() < 2 => vec![None],
            names if format == Some(Format::GeoPackage) => names.into_iter().map(Some).collect(),
            names => {
                let message = format!(
                    "the input has several layers, but {} can hold only one; select one of {names:?} with --layer",
                    to.display()
                );
                return Err(Problem::new(Code::NOT_FOUND, message).into());
            }
        },
    };
    let several = names.len() > 1;
    let mut writer: Option<Box<dyn Writer>> = None;
    let mut all: Vec<Converted> = Vec::new();
    for name in names {
        let mut options = steps.write.clone();
        if several {
            options.layer.clone_from(&name);
        }
        let crs = steps.from_crs.clone();
        let reader = format::open(from, &ReadOptions { layer: name, crs, ..steps.read.clone() })?;
        let (work, schema, target) = prepare(&*reader, format, steps)?;
        match &mut writer {
            None => writer = Some(format::create(to, &schema, &target, &options)?),
            Some(writer) => writer.next_layer(&schema, &target, &options)?,
        }
        let Some(writer) = &mut writer else { continue };
        all.push(one_layer(reader, work, writer.as_mut(), target, tell)?);
    }
    let written = writer.map(Writer::finish).transpose()?.unwrap_or_default();
    debug_assert_eq!(written.features, all.iter().map(|layer| layer.features).sum::<u64>());
    Ok(all)
}

/// The work on a layer, and what the writer must know of the result.
fn prepare(
    reader: &dyn Reader,
    format: Option<Format>,
    steps: &Steps,
) -> Result<(Work, Arc<Schema>, Crs), Error> {
    let layer = reader.layer();
    let Some(crs) = layer.crs.clone().or_else(|| steps.from_crs.clone()) else {
        let message = "the input declares no coordinate reference system, or its .prj file names none that is \
                       known; pass it, for example --from-crs EPSG:4326";
        return Err(Problem::new(Code::CRS_NOT_FOUND, message).into());
    };
    if let Some(asked) = steps.from_crs.as_ref().filter(|asked| !is_same(asked, &crs)) {
        let message = format!("the source says that it is in {crs}, and --from-crs says {asked}");
        return Err(Problem::new(Code::CRS_MISMATCH, message).under("--from-crs").into());
    }
    let only_wgs84 = format.is_some_and(Format::is_only_wgs84);
    let target = steps.to_crs.clone().unwrap_or_else(|| if only_wgs84 { Crs::wgs84() } else { crs.clone() });
    let work = Work::new(layer, &crs, &target, steps)?;
    let schema = work.schema().clone();
    Ok((work, schema, target))
}

/// Whether coordinates in both are the same numbers.
fn is_same(a: &Crs, b: &Crs) -> bool {
    a == b || (a.is_wgs84() && b.is_wgs84())
}

/// Reads and works on one thread, writes on this one.
fn one_layer(
    reader: Box<dyn Reader>,
    mut work: Work,
    writer: &mut dyn Writer,
    target: Crs,
    tell: &mut dyn FnMut(&Rejected) -> std::io::Result<()>,
) -> Result<Converted, Error> {
    let mut done = Converted {
        layer: reader.layer().name.clone(),
        operation: work.operation().cloned(),
        crs: Some(target),
        ..Converted::default()
    };
    let put = |batch: Option<Batch>, rejected: Vec<Rejected>| {
        if let Some(batch) = batch {
            writer.write(&batch)?;
            done.features += batch.len() as u64;
        }
        for mut one in rejected {
            tell(&one)?;
            done.rejected += 1;
            if done.first_rejected.len() < KEPT_MAX {
                // Their bytes have been told; a hundred of them may be larger than everything else.
                one.raw = Vec::new();
                one.problems.truncate(KEPT_MAX);
                done.first_rejected.push(one);
            }
        }
        Ok(())
    };
    format::beside(reader, |batch, rejected| work.batch(batch, rejected), put)?;
    work.sum_up(&mut done);
    Ok(done)
}
