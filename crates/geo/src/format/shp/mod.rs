//! Shapefile, read only.
//!
//! Four files make one layer: shapes (`.shp`), a table (`.dbf`), and if they are there the system
//! (`.prj`) and the encoding of the table (`.cpg`). Lines and surfaces come out as multi shapes,
//! because a record may hold one or many and a layer should be of one kind. Rings say by their
//! direction whether they are shells or holes; which hole belongs to which shell is found by
//! looking.
//!
//! Not written: names of ten letters, no null, no more than 2 GB. Write GeoPackage or FlatGeobuf.

mod dbf;
mod read;
pub(in crate::format) mod shape;

pub use read::Reader;
