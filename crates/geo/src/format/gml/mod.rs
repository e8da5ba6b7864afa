//! GML, the subset that WFS 1.1 and 2.0 answer with for simple features.
//!
//! Features are taken out of the stream one by one as small trees ([`crate::xml`]), so that memory does not
//! depend on the size of the file. Without the server's schema at hand, names and kinds are found by
//! a first pass, as for GeoJSON. A property with parts of its own stays JSON.
//!
//! Axis order is decided by how the system is named, as the standards and GDAL have it: a URN or a
//! `http://www.opengis.net/def/crs/` URI means the authority's order (latitude first for EPSG:4326),
//! `EPSG:4326` and the old `epsg.xml#4326` mean x first. Coordinates come out x first.
//!
//! Document types are refused, so that no entity can be defined.

mod feature;
mod geometry;
mod read;
mod write;

pub use feature::{system_name, to_geojson};
pub use read::GmlReader;
pub use write::GmlWriter;
