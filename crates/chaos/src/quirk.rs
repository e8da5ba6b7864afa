//! Habits of real servers, each found by the suite in `tools/real` and kept here, so that it stays
//! found without the server. They are no faults: the server means it, every time.

/// One habit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Quirk {
    /// WFS: a row without geometry stands on the first page, counts for `startIndex` and `count` and
    /// is not sent; a page that is short for it says that it is the last, with a total of its own
    /// (MapServer).
    HiddenRow,
    /// WFS 1.1: `hits` is never more than a page holds (MapServer).
    CappedHits,
    /// WFS: every page begins at the first feature, whatever `startIndex` says.
    IgnoredStart,
    /// OGC API and STAC: a `limit` above the largest page is refused with 422 (tipg).
    RefusedLimit,
    /// WFS: GeoJSON is offered as `application/json; subtype=geojson`, and every other name for it is
    /// refused (MapServer).
    JsonSubtype,
    /// WFS: the layer is in EPSG:3857, and GeoJSON is in WGS 84 all the same and does not say so
    /// (QGIS Server).
    JsonDegrees,
    /// WFS: GML names `EPSG:4326` and puts north first, also if it is asked by URN (MapServer and QGIS
    /// Server do the first).
    NorthFirst,
    /// OGC API and STAC: the key is the identifier of a feature and no property (pygeoapi).
    HiddenKey,
    /// ArcGIS: the spatial reference of the layer means nothing to anybody; asked for `outSR` the
    /// server answers in that.
    UnknownSystem,
    /// ArcGIS: `outSR` is ignored.
    IgnoredSystem,
    /// WFS and OGC API: no extent of the layer is told.
    NoExtent,
    /// OGC API: pages are in EPSG:3857, whatever is asked for. The header `Content-Crs` says so, and
    /// the member `crs` of the page says CRS84.
    ContentCrs,
    /// STAC: an asset is answered with the picture of an error and status 200.
    ErrorImage,
    /// STAC: the stated checksums of assets are those of something else.
    WrongChecksum,
    /// STAC: the stated sizes of assets are one byte too large.
    WrongSize,
    /// OGC API: pages are latitude first, and nothing says so (pygeoapi over PostGIS).
    SwappedAxes,
}
