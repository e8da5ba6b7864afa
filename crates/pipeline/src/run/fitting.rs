//! Fits repaired geometries into what the sink holds.
//!
//! A remedy may turn a polygon into several. The part of the right kind is taken where nothing is
//! lost by it, a layer of a GeoPackage or FlatGeobuf is made to hold any type, and where neither is
//! right the record is refused with what to do: the type of a column of a database is its owner's.

use tidegate_core::Code;
use tidegate_geo::repair::{Fit, fit as fit_geometry};
use tidegate_geo::wkb::{self, Shape};
use tidegate_geo::{Batch, Problem};

use super::build::PipelineParts;
use super::payload::read;
use crate::letter::{Letter, Payload};
use crate::sink::{HeldShape, Spec};
use crate::step::Aside;

/// Fits the geometries of a batch; the rest is rejected. Tells whether the layer must hold any type
/// first.
pub(super) fn fit(batch: Batch, held: &HeldShape, sink: &Spec, aside: &mut Aside) -> (Batch, bool) {
    let mut widen = false;
    let mut refused = Vec::new();
    let schema = batch.schema().clone();
    let (batch, _) = batch.map_geometry(schema, |row, geometry, out| {
        let Some(geometry) = geometry else { return Ok(()) };
        match fit_geometry(geometry, held.only) {
            Fit::Changed(fitted) => {
                out.extend_from_slice(&fitted);
                return Ok(());
            }
            Fit::Same => {}
            Fit::Several if held.advice.is_none() => widen = true,
            Fit::Several | Fit::Never => {
                let problem = Problem::new(Code::SCHEMA_MISMATCH, cannot(geometry, held, sink));
                refused.push((row, problem));
            }
        }
        out.extend_from_slice(geometry);
        Ok(())
    });
    aside.stage = "sink".into();
    (aside.set_aside(batch, refused), widen)
}

/// Why the sink cannot hold a geometry, and what to do.
fn cannot(geometry: &[u8], held: &HeldShape, sink: &Spec) -> String {
    let only = held.only.map_or("geometries", Shape::name);
    let shape = wkb::head(geometry).map_or("geometry", |(shape, _)| shape.name());
    let several = fit_geometry(geometry, held.only) == Fit::Several;
    let advice = match &held.advice {
        Some(advice) if several => format!("; add a step `promote_to_multi` and run again, or {advice}"),
        _ => String::new(),
    };
    format!("{} holds {only} and cannot hold a {shape}{advice}", sink.describe())
}

/// Why the sink cannot hold what a remedy made of a letter; `None` if it can, or if that is not known
/// before a service is called.
///
/// # Errors
/// When the steps cannot work.
pub(super) fn refusal(
    parts: &mut PipelineParts,
    held: &HeldShape,
    letter: &Letter,
    payload: &[u8],
) -> Result<Option<String>, String> {
    let letter = Letter {
        payload: Payload { received: letter.payload.received.clone(), current: Some(payload.to_vec()) },
        ..letter.clone()
    };
    let mut aside = Aside::default();
    let (from, flow, after) = parts.stage(&letter.stage)?;
    let mut batch = Batch::new(flow.schema.clone());
    read(&letter, 0, (flow, after), &mut batch, &mut aside)?;
    for step in parts.steps.iter_mut().skip(from) {
        if step.step.as_remote().is_some() {
            return Ok(None);
        }
        batch = step.step.apply(batch, &mut aside)?;
    }
    // What else is wrong with the record is found by the replay.
    let mut refused = Aside::default();
    fit(batch, held, &parts.sink, &mut refused);
    Ok(refused.rejected.into_iter().flat_map(|reject| reject.problems).map(|problem| problem.message).next())
}
