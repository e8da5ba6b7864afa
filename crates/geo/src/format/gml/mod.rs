//! GML: the simple features of WFS 1.1 and 2.0.
//!
//! Features are read from the stream one by one as small trees ([`crate::xml`]), so memory does not depend
//! on the size of the file. Without the server's schema, names and types are inferred by a first pass, as
//! for GeoJSON. A property with child elements becomes JSON.
//!
//! The form of the system's name decides the axis order, as in the standards and GDAL: a URN or a
//! `http://www.opengis.net/def/crs/` URI means the authority's order (latitude first for EPSG:4326),
//! `EPSG:4326` and the old `epsg.xml#4326` mean x first. Coordinates come out x first.
//!
//! Document type declarations are refused, so no entities can be defined.

mod feature;
mod geometry;
mod read;
mod write;

pub use feature::{features, system_name, to_geojson};
pub use read::GmlReader;
pub use write::GmlWriter;
