//! Shapefile.
//!
//! A layer is up to four files: shapes (`.shp`), attributes (`.dbf`), and optionally the coordinate
//! reference system (`.prj`) and the encoding of the attributes (`.cpg`). Lines and polygons are read as
//! multi geometries, because a record may hold one or many, and a layer should have one type. The
//! direction of a ring says whether it is a shell or a hole; the shell of a hole is found by containment.
//!
//! Why our own reader: the crate (`shapefile` 0.9) trusts the counts of a record. A file of 340 bytes that
//! declares 2,147,483,647 parts makes it allocate 8 GiB; here it is refused in 4 MB.
//!
//! The limits of writing are in `write`; GeoPackage and FlatGeobuf have none of them.

mod dbf;
mod read;
mod record;
pub(in crate::format) mod shape;
mod write;

pub use read::ShapefileReader;
pub use write::ShapefileWriter;
