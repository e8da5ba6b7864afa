//! Converting a feature of a WFS page to GeoJSON text.
//!
//! The service describes its fields, so types are not inferred. A geometry beyond simple features keeps its
//! name, which no GeoJSON reader accepts: the feature is refused later with that reason, and does not lose
//! its geometry silently.

use serde_json::{Map, Number, Value, json};

use super::geometry::{self, PositionLayout, geometry_of, system_of};
use super::read::{is_collection, is_holder, plain};
use crate::error::Problem;
use crate::format::geojson;
use crate::schema::{Kind, Schema};
use crate::wkb;
use crate::xml::Node;

/// The first name of a reference system in an element or below it.
#[must_use]
pub fn system_name(node: &Node) -> Option<&str> {
    system_of(node)
}

/// The features of a collection, and of collections within it: an answer to several queries has one for
/// each, as members.
#[must_use]
pub fn features(collection: &Node) -> Vec<&Node> {
    let mut all = Vec::new();
    let holders = collection.children.iter().filter(|child| is_holder(child));
    for member in holders.flat_map(|holder| &holder.children) {
        if is_collection(member) {
            all.extend(features(member));
        } else {
            all.push(member);
        }
    }
    all
}

/// Appends a feature as GeoJSON with fields of these kinds; the name of the system that its geometry is
/// in, which is `system` unless the geometry names its own. Coordinates come out x first.
pub fn to_geojson(
    feature: &Node,
    schema: &Schema,
    system: Option<&str>,
    out: &mut Vec<u8>,
) -> Option<String> {
    let mut properties = Map::new();
    let mut geometry = None;
    let mut named = None;
    for property in feature.children.iter().filter(|child| child.name != "boundedBy") {
        // Other readers take the last of several geometries, which hides the others.
        if let Some(shape) = geometry_of(property).filter(|_| geometry.is_none()) {
            named = system_of(shape).or(system).map(str::to_owned);
            geometry = Some(text(shape, named.as_deref().is_some_and(geometry::turned)));
            continue;
        }
        let kind = schema.position(&property.name).and_then(|at| schema.fields().get(at)).map(|f| f.kind);
        let value = value(property, kind);
        match properties.get_mut(&property.name) {
            None => _ = properties.insert(property.name.clone(), value),
            Some(Value::Array(many)) => many.push(value),
            Some(one) => *one = json!([one.take(), value]),
        }
    }
    out.extend_from_slice(b"{\"type\":\"Feature\",\"id\":");
    out.extend_from_slice(Value::from(feature.attribute("id")).to_string().as_bytes());
    out.extend_from_slice(b",\"geometry\":");
    out.extend_from_slice(geometry.as_deref().unwrap_or(b"null"));
    out.extend_from_slice(b",\"properties\":");
    out.extend_from_slice(Value::Object(properties).to_string().as_bytes());
    out.push(b'}');
    named
}

/// The text of a geometry.
fn text(shape: &Node, turned: bool) -> Vec<u8> {
    let made = || -> Result<Vec<u8>, Problem> {
        let (mut raw, mut checked, mut text) = (Vec::new(), Vec::new(), Vec::new());
        geometry::geometry(shape, PositionLayout::of(shape, turned)?, &mut raw)?;
        wkb::canonicalise(&raw, &mut checked)?;
        geojson::geometry(&checked, &mut text)?;
        Ok(text)
    };
    made().unwrap_or_else(|_| {
        json!({"type": format!("gml:{}", shape.name), "coordinates": []}).to_string().into_bytes()
    })
}

fn value(node: &Node, kind: Option<Kind>) -> Value {
    let node = plain(node);
    if !node.children.is_empty() {
        let inner = node.children.iter().map(|c| (c.name.clone(), value(c, None)));
        return Value::Object(inner.collect());
    }
    if node.attribute("nil") == Some("true") {
        return Value::Null;
    }
    let text = node.text.trim();
    let read = match kind {
        Some(Kind::Int) => text.parse::<i64>().ok().map(Value::from),
        Some(Kind::Real) => text.parse::<f64>().ok().and_then(Number::from_f64).map(Value::Number),
        Some(Kind::Bool) => match text {
            "true" | "1" => Some(Value::Bool(true)),
            "false" | "0" => Some(Value::Bool(false)),
            _ => None,
        },
        // XML Schema lets a date carry a zone.
        Some(Kind::Date) if !text.is_empty() => Some(Value::from(text.trim_end_matches('Z'))),
        _ => None,
    };
    match read {
        Some(value) => value,
        None if text.is_empty() && kind.is_some_and(|k| k != Kind::Text) => Value::Null,
        None => Value::from(node.text.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml;

    fn of(shape: &str) -> Value {
        serde_json::from_slice(&text(&xml::parse(shape.as_bytes()).unwrap(), false)).unwrap()
    }

    #[test]
    fn shapes_of_the_profile() {
        assert_eq!(of("<Point><pos>1 2 3</pos></Point>"), json!({"type": "Point", "coordinates": [1, 2, 3]}));
        let square = "<exterior><LinearRing><posList>0 0 1 0 1 1 0 0</posList></LinearRing></exterior>";
        let ring = json!([[[0, 0], [1, 0], [1, 1], [0, 0]]]);
        assert_eq!(
            of(&format!("<Polygon>{square}</Polygon>")),
            json!({"type": "Polygon", "coordinates": ring})
        );
        let patch = format!("<Surface><patches><PolygonPatch>{square}</PolygonPatch></patches></Surface>");
        assert_eq!(of(&patch), json!({"type": "Polygon", "coordinates": ring}));
        let multi = format!("<MultiSurface><surfaceMember>{patch}</surfaceMember></MultiSurface>");
        assert_eq!(of(&multi), json!({"type": "MultiPolygon", "coordinates": [ring]}));
        let curve = "<Curve><segments><LineStringSegment><posList>0 0 1 1</posList></LineStringSegment>\
            <LineStringSegment><posList>1 1 2 0</posList></LineStringSegment></segments></Curve>";
        let line = json!([[0, 0], [1, 1], [2, 0]]);
        assert_eq!(of(curve), json!({"type": "LineString", "coordinates": line}));
        let old = "<MultiLineString><lineStringMember><LineString><coordinates>0,0 1,1 2,0</coordinates></LineString>\
            </lineStringMember></MultiLineString>";
        assert_eq!(of(old), json!({"type": "MultiLineString", "coordinates": [line]}));
        for odd in [
            "<Solid/>",
            "<Curve><segments><Arc><posList>0 0 1 1 2 0</posList></Arc></segments></Curve>",
            "<Point><pos>NaN 1</pos></Point>",
            "<LineString srsDimension='4'><posList>0 0 1 1 2 0 3 3</posList></LineString>",
        ] {
            let kind = of(odd)["type"].as_str().unwrap().to_owned();
            assert!(kind.starts_with("gml:"), "{kind}");
        }
    }

    #[test]
    fn a_moment_is_its_text_and_no_date_is_none() {
        let of = |xml: &str, kind: Kind| value(&xml::parse(xml.as_bytes()).unwrap(), Some(kind));
        let moment =
            "<begin><TimeInstant><timePosition>2020-01-02T03:04:05Z</timePosition></TimeInstant></begin>";
        assert_eq!(of(moment, Kind::DateTime), json!("2020-01-02T03:04:05Z"));
        assert_eq!(
            of("<begin><timePosition>2020-01-02</timePosition></begin>", Kind::Date),
            json!("2020-01-02")
        );
        assert_eq!(of("<begin><timePosition/></begin>", Kind::Date), Value::Null);
        assert_eq!(of("<begin></begin>", Kind::Date), Value::Null);
        assert_eq!(of("<begin/>", Kind::DateTime), Value::Null);
    }

    #[test]
    fn the_name_of_the_system_tells_the_order() {
        use super::geometry::turned;
        assert!(turned("urn:ogc:def:crs:EPSG::4326"));
        assert!(turned("http://www.opengis.net/def/crs/EPSG/0/4326"));
        assert!(!turned("EPSG:4326") && !turned("http://www.opengis.net/gml/srs/epsg.xml#4326"));
        assert!(!turned("urn:ogc:def:crs:EPSG::25832") && !turned("urn:ogc:def:crs:OGC:1.3:CRS84"));
    }
}
