//! reproject, make_valid, promote_to_multi, force_2d, round.

use std::sync::Arc;

use tidegate_geo::crs::Transform;
use tidegate_geo::repair::{self, Outcome};
use tidegate_geo::validity::Checker;
use tidegate_geo::wkb::{self, Cursor, Dim, Event, Shape, write};
use tidegate_geo::{Batch, Crs, Problem, Schema};

use super::{Aside, Flow, Step, StepError};

/// A change of one geometry at a time: appends the new one, tells whether it was repaired.
type Change = Box<dyn FnMut(&[u8], &mut Vec<u8>) -> Result<bool, Problem> + Send>;

struct Each {
    schema: Arc<Schema>,
    change: Change,
}

impl Step for Each {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let mut repaired = 0;
        let mut old: Vec<(usize, Vec<u8>)> = Vec::new();
        let (batch, refused) = batch.map_geometry(self.schema.clone(), |row, geometry, out| {
            let Some(geometry) = geometry else { return Ok(()) };
            match (self.change)(geometry, out) {
                Ok(was_repaired) => repaired += u64::from(was_repaired),
                Err(problem) => {
                    old.push((row, geometry.to_vec()));
                    return Err(problem);
                }
            }
            Ok(())
        });
        aside.repaired += repaired;
        if refused.is_empty() {
            return Ok(batch);
        }
        // What is set aside must show the geometry as it was.
        let (batch, _) = batch.map_geometry(self.schema.clone(), |row, geometry, out| {
            let before = old.iter().find(|(at, _)| *at == row).map(|(_, wkb)| wkb.as_slice());
            out.extend_from_slice(before.or(geometry).unwrap_or_default());
            Ok(())
        });
        Ok(aside.set_aside(batch, refused))
    }
}

fn each(
    schema: Arc<Schema>,
    change: impl FnMut(&[u8], &mut Vec<u8>) -> Result<bool, Problem> + Send + 'static,
) -> Box<dyn Step> {
    Box::new(Each { schema, change: Box::new(change) })
}

/// `None` if the records are in that system already.
pub(super) fn reproject(to: &Crs, flow: &mut Flow) -> Result<Option<Box<dyn Step>>, String> {
    let Some(from) = flow.crs.replace(to.clone()) else {
        return Err(
            "the source declares no coordinate reference system; set `source.crs` or add a step `set_crs`"
                .into(),
        );
    };
    if from == *to || (from.is_wgs84() && to.is_wgs84()) {
        return Ok(None);
    }
    let transform = Transform::with_grids(&from, to, &flow.grids).map_err(|problem| problem.message)?;
    flow.operations.push(transform.operation().clone());
    Ok(Some(each(flow.schema.clone(), move |old, out| {
        let start = out.len();
        out.extend_from_slice(old);
        transform.geometry(out.get_mut(start..).unwrap_or_default())?;
        Ok(false)
    })))
}

fn with_shape(flow: &mut Flow, shape: Option<Shape>, dim: Dim) {
    let mut schema = Schema::clone(&flow.schema);
    (schema.shape, schema.dim) = (shape, dim);
    flow.schema = Arc::new(schema);
}

pub(super) fn make_valid(flow: &mut Flow) -> Box<dyn Step> {
    // A surface may fall apart into several, so that a layer of polygons is one of either kind.
    let shape = flow.schema.shape.filter(|shape| *shape != Shape::Polygon);
    with_shape(flow, shape, flow.schema.dim);
    let mut checker = Checker::within(&flow.limits);
    each(flow.schema.clone(), move |old, out| match repair::make_valid(old, &mut checker, out) {
        Outcome::Valid => Ok(false),
        Outcome::Repaired(_) => Ok(true),
        Outcome::Hopeless(flaw) => {
            Err(Problem::new(flaw.reason.code(), format!("cannot make the geometry valid: {flaw}")))
        }
    })
}

pub(super) fn promote(flow: &mut Flow) -> Box<dyn Step> {
    with_shape(flow, flow.multi, flow.schema.dim);
    each(flow.schema.clone(), |old, out| {
        out.extend_from_slice(&repair::promote(old));
        Ok(false)
    })
}

pub(super) fn force_2d(flow: &mut Flow) -> Box<dyn Step> {
    with_shape(flow, flow.schema.shape, Dim::Xy);
    each(flow.schema.clone(), |old, out| {
        flatten(old, out);
        Ok(false)
    })
}

/// Copies a geometry without heights and measures.
fn flatten(wkb: &[u8], out: &mut Vec<u8>) {
    if matches!(wkb::head(wkb), Some((_, Dim::Xy))) {
        out.extend_from_slice(wkb);
        return;
    }
    let mut cursor = Cursor::default();
    let mut shapes = Vec::new();
    while let Ok(Some(event)) = cursor.next(wkb) {
        match event {
            Event::Begin { shape, count, .. } => {
                write::begin(out, shape, Dim::Xy);
                if !matches!(shape, Shape::Point | Shape::LineString) {
                    write::count(out, count);
                }
                shapes.push(shape);
            }
            Event::Coords(run) => {
                if shapes.last() != Some(&Shape::Point) {
                    write::count(out, run.count);
                }
                run.xy(wkb).for_each(|(x, y)| write::position(out, &[x, y]));
            }
            Event::End(_) => drop(shapes.pop()),
        }
    }
}

pub(super) fn round(decimals: u32) -> Box<dyn Step> {
    Box::new(Round { scale: 10f64.powi(i32::try_from(decimals).unwrap_or(15)) })
}

struct Round {
    scale: f64,
}

impl Step for Round {
    fn apply(&mut self, mut batch: Batch, _: &mut Aside) -> Result<Batch, StepError> {
        let round = |x: &mut f64| {
            let rounded = (*x * self.scale).round() / self.scale;
            if rounded.is_finite() {
                *x = rounded;
            }
        };
        for row in 0..batch.len() {
            let Some(wkb) = batch.geometry_mut(row) else { continue };
            let Ok(()) = wkb::map_positions(wkb, |x, y, z| {
                round(x);
                round(y);
                if let Some(z) = z {
                    round(z);
                }
                Ok::<(), std::convert::Infallible>(())
            });
        }
        Ok(batch)
    }
}
