//! Formats, conversion and coordinate systems, as one program: it is linked once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod convert;
mod crs;
mod esri;
mod geojson;
mod geopackage;
mod gml;
#[cfg(feature = "parquet")]
mod parquet;
mod shapefile;
mod zip;
