//! ESRI JSON: the feature sets that ArcGIS servers answer with.
//!
//! The text goes through the same stream as GeoJSON, feature by feature, so that memory does not
//! depend on its size. What stands beside the features (fields, system) may stand before or after
//! them; so a first pass looks for it, as for GeoJSON. Lines and surfaces come out as multi shapes
//! and rings find their shells, for the reasons that the Shapefile reader gives. Dates are counted
//! in milliseconds and come out as moments in UTC. A server's error in place of features is told as
//! such.

mod fields;
mod geojson;
mod geometry;
mod read;
mod text;
mod write;

pub use fields::{EsriFields, crs, date_text};
pub use geojson::{SetFlags, write_geojson};
pub use read::EsriJsonReader;
pub use write::EsriJsonWriter;

/// Whether the first bytes of a JSON text are those of ESRI JSON.
pub(super) fn is_likely(head: &[u8]) -> bool {
    const SIGNS: [&[u8]; 6] = [
        b"\"esriGeometry",
        b"\"esriFieldType",
        b"\"attributes\"",
        b"\"objectIdFieldName\"",
        b"\"wkid\"",
        b"\"rings\"",
    ];
    let has = |sign: &[u8]| memchr::memmem::find(head, sign).is_some();
    SIGNS.into_iter().any(has) && !has(b"\"FeatureCollection\"") && !has(b"\"properties\"")
}
