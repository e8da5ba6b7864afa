//! A page of GML, 3.1 or 3.2, as GeoJSON text: the simple features profile.
//!
//! Points, lines, polygons, their collections, surfaces of one or more patches and curves of
//! straight segments. What is none of these (arcs, solids) makes a feature that is refused later
//! with its reason, not one without geometry. Coordinates are turned to x before y where the name
//! of the reference system says that the authority's order is meant.

use super::page::{Feature, Page, lasting, whole};
use super::xml::{self, Node};
use bytes::Bytes;
use serde_json::{Map, Number, Value, json};
use tidegate_geo::{Crs, Kind, Schema};

/// Reads a page.
///
/// # Errors
/// Why it is none, or that it holds fewer features than it says.
pub(super) fn page(body: &Bytes, schema: &Schema) -> Result<Page, String> {
    let root = xml::parse(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body))?;
    if root.name != "FeatureCollection" {
        return Err(format!("the page is a {:?} and no feature collection", root.name));
    }
    let holders = root
        .children
        .iter()
        .filter(|c| matches!(c.name.as_str(), "member" | "featureMember" | "featureMembers"));
    let members: Vec<&Node> = holders.flat_map(|holder| &holder.children).collect();
    let number = |name| root.attribute(name).and_then(|n| n.parse::<u64>().ok());
    whole(number("numberReturned").or(number("numberOfFeatures")), members.len())?;
    let srs = root.child("boundedBy").and_then(first_srs);
    let mut text = Vec::with_capacity(body.len() / 2);
    let mut features = Vec::with_capacity(members.len());
    let mut named = None;
    for member in members {
        let start = text.len();
        let (feature, crs) = feature(member, schema, srs);
        named = named.or(crs);
        // A map of texts and numbers can always be written.
        let _ = serde_json::to_writer(&mut text, &feature);
        let id = member.attribute("id").map(|id| Value::from(id).to_string());
        features.push(Feature { at: start..text.len(), id: id.and_then(|id| lasting(&id)), key: None });
        text.push(b'\n');
    }
    Ok(Page { text: text.into(), features, matched: number("numberMatched"), crs: named, ..Page::default() })
}

fn first_srs(node: &Node) -> Option<&str> {
    let mut found = None;
    node.walk(&mut |node| found = found.or(node.attribute("srsName")));
    found
}

fn feature(member: &Node, schema: &Schema, srs: Option<&str>) -> (Value, Option<String>) {
    let mut properties = Map::new();
    let mut geometry = Value::Null;
    let mut crs = None;
    for child in member.children.iter().filter(|c| c.name != "boundedBy") {
        if let Some(shape) = child.children.iter().find(|c| is_shape(&c.name)) {
            // The last geometry of several, as other readers have it, would hide the others.
            if geometry.is_null() {
                let name = first_srs(shape).or(srs);
                crs = name.map(str::to_owned);
                geometry = read(shape, name.is_some_and(north_first));
                continue;
            }
        }
        let kind = schema.position(&child.name).and_then(|at| schema.fields().get(at)).map(|f| f.kind);
        let value = value(child, kind);
        match properties.get_mut(&child.name) {
            None => _ = properties.insert(child.name.clone(), value),
            Some(Value::Array(many)) => many.push(value),
            Some(one) => *one = json!([one.take(), value]),
        }
    }
    let id = member.attribute("id");
    (json!({"type": "Feature", "id": id, "geometry": geometry, "properties": properties}), crs)
}

fn value(node: &Node, kind: Option<Kind>) -> Value {
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
        Some(Kind::Date) => Some(Value::from(text.trim_end_matches('Z'))),
        _ => None,
    };
    match read {
        Some(value) => value,
        None if text.is_empty() && kind.is_some_and(|k| k != Kind::Text) => Value::Null,
        None => Value::from(node.text.as_str()),
    }
}

fn is_shape(name: &str) -> bool {
    matches!(
        name,
        "Point"
            | "LineString"
            | "Polygon"
            | "MultiPoint"
            | "MultiLineString"
            | "MultiPolygon"
            | "MultiCurve"
            | "MultiSurface"
            | "MultiGeometry"
            | "Curve"
            | "Surface"
            | "LinearRing"
            | "Solid"
            | "CompositeCurve"
            | "CompositeSurface"
            | "PolyhedralSurface"
            | "Tin"
            | "OrientableSurface"
            | "OrientableCurve"
    )
}

/// Whether this way of naming a system means the authority's order of axes, and that puts north
/// first. `EPSG:4326` and the old `epsg.xml#4326` mean x before y by convention.
fn north_first(name: &str) -> bool {
    let strict = name.starts_with("urn:") || name.contains("/def/crs/");
    strict && name.parse::<Crs>().is_ok_and(|crs| crs.is_north_first())
}

/// A geometry as GeoJSON. One that cannot be said in it keeps its name, which no reader takes.
fn read(shape: &Node, turn: bool) -> Value {
    let made = match shape.name.as_str() {
        "Point" => positions(shape, turn).and_then(|p| p.into_iter().next()).map(|p| ("Point", p)),
        "LineString" => line(shape, turn).map(|l| ("LineString", l)),
        "Curve" => curve(shape, turn).map(|l| ("LineString", l)),
        "Polygon" => polygon(shape, turn).map(|p| ("Polygon", p)),
        "Surface" | "PolyhedralSurface" => surface(shape, turn),
        "MultiPoint" => many(shape, turn, &["Point"]).map(|m| ("MultiPoint", m)),
        "MultiLineString" | "MultiCurve" | "CompositeCurve" => {
            many(shape, turn, &["LineString"]).map(|m| ("MultiLineString", m))
        }
        "MultiPolygon" | "MultiSurface" | "CompositeSurface" => {
            many(shape, turn, &["Polygon", "MultiPolygon"]).map(|m| ("MultiPolygon", m))
        }
        "MultiGeometry" => {
            let parts: Vec<Value> = parts(shape).map(|part| read(part, turn)).collect();
            return json!({"type": "GeometryCollection", "geometries": parts});
        }
        _ => None,
    };
    match made {
        Some((kind, coordinates)) => json!({"type": kind, "coordinates": coordinates}),
        None => json!({"type": format!("gml:{}", shape.name), "coordinates": []}),
    }
}

/// The geometries in the members of a collection.
fn parts(shape: &Node) -> impl Iterator<Item = &Node> {
    shape.children.iter().flat_map(|member| &member.children).filter(|c| is_shape(&c.name))
}

fn many(shape: &Node, turn: bool, kinds: &[&str]) -> Option<Value> {
    let mut all = Vec::new();
    for part in parts(shape) {
        let made = read(part, turn);
        let kind = made.get("type")?.as_str()?;
        if !kinds.contains(&kind) {
            return None;
        }
        let coordinates = made.get("coordinates")?.clone();
        match (kind, coordinates) {
            ("MultiPolygon", Value::Array(patches)) => all.extend(patches),
            (_, coordinates) => all.push(coordinates),
        }
    }
    Some(Value::Array(all))
}

fn surface(shape: &Node, turn: bool) -> Option<(&'static str, Value)> {
    let holder = shape.child("patches").or_else(|| shape.child("polygonPatches"))?;
    let mut patches = Vec::new();
    for patch in &holder.children {
        if !matches!(patch.name.as_str(), "PolygonPatch" | "Rectangle" | "Triangle") {
            return None;
        }
        patches.push(polygon(patch, turn)?);
    }
    match patches.len() {
        1 => patches.pop().map(|one| ("Polygon", one)),
        _ => Some(("MultiPolygon", Value::Array(patches))),
    }
}

fn polygon(shape: &Node, turn: bool) -> Option<Value> {
    let mut rings = Vec::new();
    for border in &shape.children {
        if !matches!(border.name.as_str(), "exterior" | "interior" | "outerBoundaryIs" | "innerBoundaryIs") {
            continue;
        }
        let ring = match border.child("LinearRing") {
            Some(ring) => line(ring, turn)?,
            None => {
                // A ring of curves, each going on where the one before ended.
                let mut whole: Vec<Value> = Vec::new();
                for member in &border.child("Ring")?.children {
                    let Value::Array(next) = curve(member.children.first()?, turn)? else { return None };
                    let skip = usize::from(whole.last().is_some() && whole.last() == next.first());
                    whole.extend(next.into_iter().skip(skip));
                }
                Value::Array(whole)
            }
        };
        rings.push(ring);
    }
    Some(Value::Array(rings))
}

fn curve(shape: &Node, turn: bool) -> Option<Value> {
    if shape.name == "LineString" {
        return line(shape, turn);
    }
    let mut whole: Vec<Value> = Vec::new();
    for segment in &shape.child("segments")?.children {
        if segment.name != "LineStringSegment" {
            return None;
        }
        let next = positions(segment, turn)?;
        let skip = usize::from(whole.last().is_some() && whole.last() == next.first());
        whole.extend(next.into_iter().skip(skip));
    }
    Some(Value::Array(whole))
}

fn line(shape: &Node, turn: bool) -> Option<Value> {
    positions(shape, turn).map(Value::Array)
}

/// The positions directly in an element, in any of the ways that GML has for them.
fn positions(shape: &Node, turn: bool) -> Option<Vec<Value>> {
    let mut all = Vec::new();
    let mut put = |numbers: &[f64]| {
        let mut p: Vec<f64> = numbers.to_vec();
        if turn && p.len() >= 2 {
            p.swap(0, 1);
        }
        all.push(json!(p));
    };
    let read = |text: &str, between: &[char]| -> Option<Vec<f64>> {
        let words = text.split(between).filter(|w| !w.is_empty());
        words.map(|word| word.parse::<f64>().ok().filter(|n| n.is_finite())).collect()
    };
    let space = [' ', '\n', '\t', '\r'];
    for child in &shape.children {
        match child.name.as_str() {
            "pos" => put(&read(&child.text, &space)?),
            "pointProperty" | "pointRep" => {
                let inner = child.child("Point").and_then(|p| p.child("pos"))?;
                put(&read(&inner.text, &space)?);
            }
            "posList" => {
                let dim = child.attribute("srsDimension").or_else(|| shape.attribute("srsDimension"));
                let dim = dim.and_then(|d| d.parse::<usize>().ok()).filter(|d| *d >= 2).unwrap_or(2);
                let numbers = read(&child.text, &space)?;
                if !numbers.len().is_multiple_of(dim) {
                    return None;
                }
                numbers.chunks(dim).for_each(&mut put);
            }
            "coordinates" => {
                for tuple in child.text.split_whitespace() {
                    put(&read(tuple, &[','])?);
                }
            }
            _ => {}
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(shape: &str) -> Value {
        read(&xml::parse(shape.as_bytes()).unwrap(), false)
    }

    #[test]
    fn shapes_of_the_profile() {
        assert_eq!(
            of("<Point><pos>1 2 3</pos></Point>"),
            json!({"type": "Point", "coordinates": [1.0, 2.0, 3.0]})
        );
        let square = "<exterior><LinearRing><posList>0 0 1 0 1 1 0 0</posList></LinearRing></exterior>";
        let ring = json!([[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]]);
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
        let line = json!([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]]);
        assert_eq!(of(curve), json!({"type": "LineString", "coordinates": line}));
        let old = "<MultiLineString><lineStringMember><LineString><coordinates>0,0 1,1 2,0</coordinates></LineString>\
            </lineStringMember></MultiLineString>";
        assert_eq!(of(old), json!({"type": "MultiLineString", "coordinates": [line]}));
        for odd in
            ["<Solid/>", "<Curve><segments><Arc><posList>0 0 1 1 2 0</posList></Arc></segments></Curve>"]
        {
            let kind = of(odd)["type"].as_str().unwrap().to_owned();
            assert!(kind.starts_with("gml:"), "{kind}");
        }
    }

    #[test]
    fn the_name_of_the_system_tells_the_order() {
        assert!(north_first("urn:ogc:def:crs:EPSG::4326"));
        assert!(north_first("http://www.opengis.net/def/crs/EPSG/0/4326"));
        assert!(!north_first("EPSG:4326") && !north_first("http://www.opengis.net/gml/srs/epsg.xml#4326"));
        assert!(!north_first("urn:ogc:def:crs:EPSG::25832") && !north_first("urn:ogc:def:crs:OGC:1.3:CRS84"));
    }

    #[test]
    fn a_page_keeps_kinds_and_notices_what_is_missing() {
        let page_of = |returned: u32| {
            let text = format!(
                "<wfs:FeatureCollection xmlns:wfs='w' xmlns:gml='g' numberMatched='7' numberReturned='{returned}'>\
                 <wfs:member><t:p xmlns:t='t' gml:id='p.1'><t:n>7</t:n><t:s>a &amp; b</t:s><t:e/><t:m>1</t:m><t:m>2</t:m>\
                 <t:g><gml:Point srsName='urn:ogc:def:crs:EPSG::4326'><gml:pos>48 16</gml:pos></gml:Point></t:g></t:p>\
                 </wfs:member></wfs:FeatureCollection>"
            );
            let schema = Schema::new([("n", Kind::Int), ("s", Kind::Text), ("e", Kind::Real)]);
            page(&Bytes::from(text), &schema)
        };
        let page = page_of(1).unwrap();
        let feature: Value = serde_json::from_slice(page.feature(&page.features[0])).unwrap();
        let geometry = json!({"type": "Point", "coordinates": [16.0, 48.0]});
        let properties = json!({"n": 7, "s": "a & b", "e": null, "m": ["1", "2"]});
        assert_eq!(
            feature,
            json!({"type": "Feature", "id": "p.1", "geometry": geometry, "properties": properties})
        );
        assert_eq!((page.matched, page.crs.as_deref()), (Some(7), Some("urn:ogc:def:crs:EPSG::4326")));
        assert!(page_of(2).unwrap_err().contains("holds 1"));
    }
}
