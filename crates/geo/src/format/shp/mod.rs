//! Shapefile.
//!
//! Four files make one layer: shapes (`.shp`), a table (`.dbf`), and if they are there the system
//! (`.prj`) and the encoding of the table (`.cpg`). Lines and surfaces come out as multi shapes,
//! because a record may hold one or many and a layer should be of one kind. Rings say by their
//! direction whether they are shells or holes; which hole belongs to which shell is found by
//! looking.
//!
//! Written too, with the limits that `write` states; GeoPackage and FlatGeobuf have none of them.

mod dbf;
mod read;
mod record;
pub(in crate::format) mod shape;
mod write;

pub use read::ShapefileReader;
pub use write::ShapefileWriter;
