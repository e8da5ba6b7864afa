//! The payload as a GeoJSON feature. Parsing is lenient, because an invalid geometry may be the
//! reason for the letter.

use super::envelope::{Defect, Spatial};
use serde_json::Value;
use std::fmt;
use tidegate_geo::crs::Transform;
use tidegate_geo::wkb::{self, Dim, Shape, write};
use tidegate_geo::{Bounds, Crs, validity};

/// A payload that is a GeoJSON feature or geometry.
#[derive(Clone, Debug, PartialEq)]
pub struct FeaturePayload {
    /// The payload as JSON.
    pub json: Value,
}

/// Why a payload cannot be replayed as a feature.
#[derive(Debug)]
pub enum PayloadError {
    /// It is not JSON.
    Json(serde_json::Error),
    /// It is JSON, but not an object.
    NotAnObject,
    /// It is neither a feature nor a geometry.
    NotAFeature,
    /// It is a collection of features, not one.
    Collection,
    /// Its coordinate reference system is unknown: the message.
    Crs(String),
    /// It has no geometry.
    NoGeometry,
    /// The `type` of its geometry is not a GeoJSON type.
    UnknownType(String),
    /// This member of its geometry is not an array.
    NotAList(&'static str),
    /// A position of its geometry is not a pair of numbers.
    NotAPosition,
    /// The geometry cannot be written as GeoJSON.
    Write(Box<dyn std::error::Error + Send + Sync>),
    /// The geometry is not valid.
    Invalid(validity::Flaw),
    /// Its coordinates cannot be transformed to longitude and latitude.
    Unplaced,
    /// Its bounding box (west, south, east, north) exceeds the range of longitude and latitude in
    /// degrees.
    OutOfBounds([f64; 4]),
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PayloadError::Json(e) => write!(f, "the payload is not JSON: {e}"),
            PayloadError::NotAnObject => f.write_str("the payload is not a JSON object"),
            PayloadError::NotAFeature => f.write_str("the payload is not a GeoJSON feature"),
            PayloadError::Collection => {
                f.write_str("the payload is a collection; a letter holds one feature")
            }
            PayloadError::Crs(why) => f.write_str(why),
            PayloadError::NoGeometry => f.write_str("the payload has no geometry"),
            PayloadError::UnknownType(name) => write!(f, "{name:?} is not a GeoJSON type"),
            PayloadError::NotAList(what) => write!(f, "{what} is not a list"),
            PayloadError::NotAPosition => f.write_str("a position is not a pair of numbers"),
            PayloadError::Write(e) => e.fmt(f),
            PayloadError::Invalid(flaw) => flaw.fmt(f),
            PayloadError::Unplaced => {
                f.write_str("the position in longitude and latitude cannot be computed")
            }
            PayloadError::OutOfBounds([w, s, e, n]) => {
                write!(f, "the bounds {w} {s} {e} {n} are outside the range of longitude and latitude")
            }
        }
    }
}

impl std::error::Error for PayloadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PayloadError::Json(e) => Some(e),
            PayloadError::Write(e) => Some(e.as_ref()),
            PayloadError::NotAnObject
            | PayloadError::NotAFeature
            | PayloadError::Collection
            | PayloadError::Crs(_)
            | PayloadError::NoGeometry
            | PayloadError::UnknownType(_)
            | PayloadError::NotAList(_)
            | PayloadError::NotAPosition
            | PayloadError::Invalid(_)
            | PayloadError::Unplaced
            | PayloadError::OutOfBounds(_) => None,
        }
    }
}

impl FeaturePayload {
    /// Parses a payload.
    ///
    /// # Errors
    /// When it is not a JSON object.
    pub fn parse(bytes: &[u8]) -> Result<FeaturePayload, PayloadError> {
        let json: Value = serde_json::from_slice(bytes).map_err(PayloadError::Json)?;
        if json.is_object() { Ok(FeaturePayload { json }) } else { Err(PayloadError::NotAnObject) }
    }

    /// The payload as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.json.to_string().into_bytes()
    }

    /// The geometry, if there is one.
    #[must_use]
    pub fn geometry(&self) -> Option<&Value> {
        let found = match self.json.get("type").and_then(Value::as_str) {
            Some("Feature") => self.json.get("geometry"),
            Some(_) => Some(&self.json),
            None => None,
        };
        found.filter(|geometry| geometry.get("type").is_some())
    }

    /// Replaces the geometry.
    pub fn set_geometry(&mut self, geometry: Value) {
        if self.json.get("type").and_then(Value::as_str) == Some("Feature") {
            self.json["geometry"] = geometry;
        } else {
            self.json = geometry;
        }
    }

    /// The geometry as canonical well-known binary, in two dimensions.
    ///
    /// # Errors
    /// When it is not a GeoJSON geometry.
    pub fn wkb(&self) -> Result<Vec<u8>, PayloadError> {
        let geometry = self.geometry().ok_or(PayloadError::NoGeometry)?;
        let mut out = Vec::new();
        to_wkb(geometry, &mut out)?;
        Ok(out)
    }

    /// The location for the envelope. The coordinate reference system is `crs`, else that of the
    /// payload's `crs` member, else WGS 84.
    #[must_use]
    pub fn spatial(&self, crs: Option<&str>) -> Option<Spatial> {
        let wkb = self.wkb().ok()?;
        let said = crs.map(str::to_owned).or_else(|| self.said_crs());
        let system = said.as_deref().map_or_else(|| Some(Crs::wgs84()), |text| text.parse().ok());
        let native = Bounds::of_wkb(&wkb).map(|b| [b.min_x, b.min_y, b.max_x, b.max_y]);
        let transform = match &system {
            Some(crs) if crs.is_wgs84() => None,
            Some(crs) => Transform::new(crs, &Crs::wgs84()).ok(),
            None => None,
        };
        let degrees = system.as_ref().is_some_and(Crs::is_wgs84);
        let place = |x: f64, y: f64| match (&transform, degrees) {
            (Some(transform), _) => transform.position(x, y, 0.0).ok().map(|(x, y, _)| (x, y)),
            (None, true) => Some((x, y)),
            (None, false) => None,
        };
        let mut turned = wkb.clone();
        let bbox = match &transform {
            Some(transform) => transform.geometry(&mut turned).ok().and_then(|_| Bounds::of_wkb(&turned)),
            None if degrees => Bounds::of_wkb(&wkb),
            None => None,
        };
        let defect = validity::first_flaw(&wkb).and_then(|flaw| {
            let (lon, lat) = place(flaw.x, flaw.y)?;
            Some(Defect { lon, lat, reason: flaw.reason.to_string() })
        });
        Some(Spatial {
            bbox: bbox.map(|b| [b.min_x, b.min_y, b.max_x, b.max_y]),
            native_bbox: native.filter(|_| !degrees),
            source_crs: said.unwrap_or_else(|| "OGC:CRS84".into()),
            target_crs: String::new(),
            axis_order: "xy".into(),
            geometry_type: wkb::head(&wkb).map_or_else(String::new, |(shape, _)| shape.name().into()),
            vertices: positions(&wkb),
            defect,
        })
    }

    /// The coordinate reference system in the payload's `crs` member, as in GeoJSON of 2008.
    #[must_use]
    pub fn said_crs(&self) -> Option<String> {
        let crs = self.json.get("crs")?;
        let name = crs.get("properties").and_then(|p| p.get("name")).or(Some(crs))?;
        name.as_str().map(str::to_owned)
    }
}

fn positions(wkb: &[u8]) -> u64 {
    let mut cursor = wkb::Cursor::default();
    let mut count = 0;
    while let Ok(Some(event)) = cursor.next(wkb) {
        if let wkb::Event::Coords(run) = event {
            count += run.xy(wkb).len() as u64;
        }
    }
    count
}

/// Encodes a GeoJSON geometry as well-known binary without checking its validity.
///
/// # Errors
/// When a member required by its type is missing or malformed.
pub fn to_wkb(geometry: &Value, out: &mut Vec<u8>) -> Result<(), PayloadError> {
    let name = geometry.get("type").and_then(Value::as_str).unwrap_or_default();
    let shape = Shape::ALL.into_iter().find(|shape| shape.name() == name);
    let shape = shape.ok_or_else(|| PayloadError::UnknownType(name.to_owned()))?;
    if shape == Shape::GeometryCollection {
        let parts = list(geometry.get("geometries"), "geometries")?;
        write::begin(out, shape, Dim::Xy);
        write::count(out, parts.len());
        return parts.iter().try_for_each(|part| to_wkb(part, out));
    }
    part(shape, geometry.get("coordinates"), out)
}

fn list<'a>(value: Option<&'a Value>, what: &'static str) -> Result<&'a [Value], PayloadError> {
    let list = value.and_then(Value::as_array).ok_or(PayloadError::NotAList(what))?;
    Ok(list)
}

fn part(shape: Shape, value: Option<&Value>, out: &mut Vec<u8>) -> Result<(), PayloadError> {
    let items = list(value, "coordinates")?;
    write::begin(out, shape, Dim::Xy);
    if shape == Shape::Point {
        return xy(value).map(|xy| write::position(out, &xy));
    }
    write::count(out, items.len());
    for item in items {
        match shape.member() {
            Some(member) => part(member, Some(item), out)?,
            None if shape == Shape::LineString => write::position(out, &xy(Some(item))?),
            None => {
                let ring = list(Some(item), "a ring")?;
                write::count(out, ring.len());
                ring.iter().try_for_each(|p| xy(Some(p)).map(|xy| write::position(out, &xy)))?;
            }
        }
    }
    Ok(())
}

fn xy(value: Option<&Value>) -> Result<[f64; 2], PayloadError> {
    let number = |i: usize| value.and_then(|v| v.get(i)).and_then(Value::as_f64);
    number(0).zip(number(1)).map(|(x, y)| [x, y]).ok_or(PayloadError::NotAPosition)
}

/// Decodes well-known binary into a GeoJSON geometry.
///
/// # Errors
/// When GeoJSON cannot represent it.
pub fn from_wkb(wkb: &[u8]) -> Result<Value, PayloadError> {
    let mut text = Vec::new();
    tidegate_geo::format::geojson::geometry(wkb, &mut text).map_err(|e| PayloadError::Write(e.into()))?;
    serde_json::from_slice(&text).map_err(|e| PayloadError::Write(e.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_geometry_is_read_and_placed() {
        let text = br#"{"type":"Feature","properties":{},"geometry":
            {"type":"Polygon","coordinates":[[[0,0],[2,2],[2,0],[0,2],[0,0]]]}}"#;
        let feature = FeaturePayload::parse(text).unwrap();
        let spatial = feature.spatial(None).unwrap();
        assert_eq!(spatial.bbox, Some([0.0, 0.0, 2.0, 2.0]));
        assert_eq!((spatial.vertices, spatial.geometry_type.as_str()), (5, "Polygon"));
        let defect = spatial.defect.unwrap();
        assert_eq!((defect.lon, defect.lat, defect.reason.as_str()), (1.0, 1.0, "Self-intersection"));
        assert_eq!(&from_wkb(&feature.wkb().unwrap()).unwrap(), feature.geometry().unwrap());
    }

    #[test]
    fn other_systems_are_brought_to_degrees_and_unknown_ones_have_no_place() {
        let text = br#"{"type":"Point","coordinates":[600000,200000]}"#;
        let feature = FeaturePayload::parse(text).unwrap();
        let bern = feature.spatial(Some("EPSG:21781")).unwrap();
        let [w, s, _, _] = bern.bbox.unwrap();
        assert!((w - 7.44).abs() < 0.01 && (s - 46.95).abs() < 0.01, "{w} {s}");
        assert_eq!(bern.native_bbox, Some([600_000.0, 200_000.0, 600_000.0, 200_000.0]));
        assert_eq!(feature.spatial(Some("nonsense")).unwrap().bbox, None);
        for bad in [&b"[1]"[..], b"{", b"7"] {
            assert!(FeaturePayload::parse(bad).is_err());
        }
        assert!(FeaturePayload::parse(br#"{"type":"Polygon","coordinates":[1]}"#).unwrap().wkb().is_err());
    }
}
