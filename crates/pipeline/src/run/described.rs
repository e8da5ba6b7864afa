//! The description of a source when a run began.
//!
//! Steps, gates and sink are built from it, so a resumed run must use the same one, and so must a
//! replay, which has no source. A service may describe itself differently the next time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_geo::format::Layer;
use tidegate_geo::wkb::{Dim, Shape};
use tidegate_geo::{Crs, Kind, Schema};

use super::build::{PipelineParts, step_label};
use super::source::{Page, Source};
use crate::error::SetupError;
use crate::manifest::Manifest;
use crate::source::IdentifierHash;
use crate::step::{StepError, cast};

/// The description of a layer, in a serializable form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// The stamp of the source.
    pub stamp: String,
    name: String,
    crs: Option<String>,
    /// The names and types of the fields.
    fields: Vec<(String, String)>,
    /// The geometry type of all records, if it is one.
    shape: Option<String>,
    /// The geometry type of the first records.
    seems: Option<String>,
    has_z: bool,
    has_m: bool,
    /// The declared number of records.
    records: Option<u64>,
}

fn shape_of(name: Option<&String>) -> Option<Shape> {
    name.and_then(|name| Shape::ALL.into_iter().find(|shape| shape.name() == name))
}

impl Described {
    /// The current description of a source.
    #[must_use]
    pub fn of(source: &dyn Source) -> Described {
        let layer = source.layer();
        let schema = &layer.schema;
        Described {
            stamp: source.stamp(),
            name: layer.name.clone(),
            crs: layer.crs.as_ref().map(ToString::to_string),
            fields: schema.fields().iter().map(|f| (f.name.clone(), f.kind.to_string())).collect(),
            shape: schema.shape.map(|shape| shape.name().to_owned()),
            seems: source.shape().map(|shape| shape.name().to_owned()),
            has_z: schema.dim.has_z(),
            has_m: schema.dim.has_m(),
            records: layer.records,
        }
    }

    /// Converts the description to a layer.
    ///
    /// # Errors
    /// When another version wrote it in another form.
    pub fn layer(&self) -> Result<Layer, SetupError> {
        let mut schema = Schema::default();
        for (name, kind) in &self.fields {
            schema.add(name.clone(), kind.parse::<Kind>()?);
        }
        schema.shape = shape_of(self.shape.as_ref());
        schema.dim = Dim::new(self.has_z, self.has_m);
        let crs = self.crs.as_ref().map(|name| name.parse::<Crs>().map_err(|problem| problem.message));
        Ok(Layer {
            name: self.name.clone(),
            schema: Arc::new(schema),
            crs: crs.transpose()?,
            records: self.records,
        })
    }

    /// The geometry type of the first records.
    #[must_use]
    pub fn shape(&self) -> Option<Shape> {
        shape_of(self.seems.as_ref())
    }
}

/// The manifest for a replay, which has no source: the fields that `flatten` found in it are named.
pub(super) fn without_source(manifest: &Manifest, parts: &PipelineParts) -> Manifest {
    let mut manifest = manifest.clone();
    for (at, form) in manifest.pipeline.steps.iter_mut().enumerate() {
        let label = step_label(at, form);
        let Some(flatten) = form.flatten.as_mut().filter(|flatten| flatten.fields.is_empty()) else {
            continue;
        };
        let mut steps = parts.steps.iter().skip_while(|step| step.label != label);
        let Some(step) = steps.next() else { continue };
        let after = steps.next().map_or(&parts.flow, |next| &next.before);
        let new =
            after.schema.fields().iter().filter(|field| step.before.schema.position(&field.name).is_none());
        flatten.fields = new.map(|field| (field.name.clone(), cast(field.kind))).collect();
    }
    manifest
}

/// A source without records, for replays.
pub(super) struct ReplaySource {
    described: Described,
    layer: Layer,
}

impl ReplaySource {
    pub(super) fn new(described: &Described) -> Result<ReplaySource, String> {
        Ok(ReplaySource { layer: described.layer()?, described: described.clone() })
    }
}

impl Source for ReplaySource {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn shape(&self) -> Option<Shape> {
        self.described.shape()
    }

    fn stamp(&self) -> String {
        self.described.stamp.clone()
    }

    fn seek(&mut self, _: &str, _: Vec<IdentifierHash>) -> Result<(), StepError> {
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Page>, StepError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_comes_back_as_it_was() {
        let mut schema = Schema::new([("id", Kind::Int), ("seen", Kind::DateTime)]).of_dim(Dim::Xyz);
        schema.shape = Some(Shape::Polygon);
        let layer = Layer {
            name: "parcels".into(),
            schema: Arc::new(schema),
            crs: Some(Crs::epsg(31287)),
            records: Some(7),
        };
        let described =
            Described::of(&ReplaySource { layer: layer.clone(), described: Described::default() });
        let again: Described = serde_json::from_str(&serde_json::to_string(&described).unwrap()).unwrap();
        let back = again.layer().unwrap();
        assert_eq!((back.schema, back.crs, back.records), (layer.schema, layer.crs, layer.records));
    }
}
