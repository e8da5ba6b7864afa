//! Shapefile.
//!
//! Four files make one layer: shapes (`.shp`), a table (`.dbf`), and if they are there the system
//! (`.prj`) and the encoding of the table (`.cpg`). Lines and surfaces come out as multi shapes,
//! because a record may hold one or many and a layer should be of one kind. Rings say by their
//! direction whether they are shells or holes; which hole belongs to which shell is found by
//! looking.
//!
//! Why our own reader: the crate (`shapefile` 0.9) believes the counts of a record. A file of 340 bytes
//! that tells of 2 147 483 647 parts makes it ask for 8 GiB; here it is refused in 4 MB.
//!
//! Written too, with the limits that `write` states; GeoPackage and FlatGeobuf have none of them.

mod dbf;
mod read;
mod record;
pub(in crate::format) mod shape;
mod write;

pub use read::ShapefileReader;
pub use write::ShapefileWriter;
