//! GeoJSON by RFC 7946: one collection, one feature per line, or the text sequence of RFC 8142.

mod feature;
mod file;
mod geometry;
mod infer;
mod issues;
mod named;
mod read;
pub(crate) mod scan;
pub(in crate::format) mod stream;
mod write;

pub(super) use file::open;
pub use geometry::Rules;
pub use infer::{Inferred, infer};
pub use read::{GeoJsonReader, ReadOptions};
pub(in crate::format) use write::is_clockwise;
pub use write::{Frame, GeoJsonWriter, check_geometry, geometry};
