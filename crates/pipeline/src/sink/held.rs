//! The geometry types that a sink holds.
//!
//! A remedy may change the type of a geometry, so a replay asks the sink what it holds, not the
//! manifest: a table may have been made by somebody else, and a layer may hold any type since the
//! last replay.

use std::sync::Arc;

use tidegate_geo::format::geojson::ReadOptions;
use tidegate_geo::format::gpkg::hold_any_shape;
use tidegate_geo::format::{self, Format};
use tidegate_geo::wkb::Shape;

use super::{SinkError, SinkTarget, Spec};

/// The geometry types that a sink holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldShape {
    /// The only one; `None` if it holds any.
    pub only: Option<Shape>,
    /// What has to be done before it holds the multi of that type; `None` if a replay does it.
    pub advice: Option<String>,
}

impl Spec {
    /// Asks the sink.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn held_shape(&self) -> Result<HeldShape, SinkError> {
        let read = |path: &std::path::Path, layer: Option<String>| {
            let options = ReadOptions { layer, ..ReadOptions::default() };
            let reader = format::open(path, &options).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok::<_, String>(HeldShape { only: reader.layer().schema.shape, advice: None })
        };
        match &self.target {
            SinkTarget::GeoPackage(path, layer) if path.exists() => Ok(read(path, Some(layer.clone()))?),
            SinkTarget::File(path, Format::FlatGeobuf) if path.exists() => Ok(read(path, None)?),
            SinkTarget::File(_, Format::Csv) => {
                let only = self.schema.shape.filter(|shape| *shape == Shape::Point);
                let advice = "its columns hold points only; write to a .gpkg file".to_owned();
                Ok(HeldShape { only, advice: Some(advice) })
            }
            SinkTarget::Table(table) => super::postgis::held_shape(table),
            _ => Ok(HeldShape::default()),
        }
    }

    /// Lets the layer hold geometries of any type.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn hold_any_shape(&mut self) -> Result<(), SinkError> {
        if let SinkTarget::GeoPackage(path, layer) = &self.target {
            hold_any_shape(path, layer).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        self.set_shape(None);
        Ok(())
    }

    /// Sets the geometry type that the sink holds.
    pub fn set_shape(&mut self, only: Option<Shape>) {
        let mut schema = tidegate_geo::Schema::clone(&self.schema);
        schema.shape = only;
        self.schema = Arc::new(schema);
    }
}
