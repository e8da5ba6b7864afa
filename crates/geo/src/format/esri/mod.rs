//! ESRI JSON: the feature sets of ArcGIS servers.
//!
//! The text goes through the same stream as GeoJSON, feature by feature, so memory does not depend on its
//! size. Fields and system may come before or after the features, so a first pass looks for them, as for
//! GeoJSON. Lines and polygons become multi geometries and holes are assigned to shells, as for Shapefiles.
//! Dates are milliseconds since 1970 and become datetimes in UTC. A server's error in place of features is
//! reported as such.

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
