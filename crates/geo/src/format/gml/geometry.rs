//! Parsing a GML geometry into well-known binary.

use tidegate_core::Code;

use crate::crs::Crs;
use crate::error::Problem;
use crate::wkb::{Dim, Shape, write};
use crate::xml::Node;

/// The geometry elements, including those beyond simple features: a feature with one of those is refused,
/// instead of losing its geometry.
const NAMES: [&str; 23] = [
    "Point",
    "LineString",
    "Polygon",
    "MultiPoint",
    "MultiLineString",
    "MultiPolygon",
    "MultiCurve",
    "MultiSurface",
    "MultiGeometry",
    "Curve",
    "Surface",
    "LinearRing",
    "CompositeCurve",
    "CompositeSurface",
    "PolyhedralSurface",
    "Envelope",
    "Solid",
    "MultiSolid",
    "CompositeSolid",
    "Tin",
    "TriangulatedSurface",
    "OrientableCurve",
    "OrientableSurface",
];

fn broken(message: impl Into<String>) -> Problem {
    Problem::new(Code::INVALID_GEOMETRY, message)
}

/// The geometry within a property, if it is one.
pub(super) fn geometry_of(property: &Node) -> Option<&Node> {
    property.children.iter().find(|child| NAMES.contains(&child.name.as_str()))
}

/// The first system that an element or one below it names.
pub(super) fn system_of(node: &Node) -> Option<&str> {
    let own = node.attribute("srsName").filter(|name| !name.is_empty());
    own.or_else(|| node.children.iter().find_map(system_of))
}

/// What holds for all positions of a geometry.
#[derive(Clone, Copy)]
pub(super) struct PositionLayout {
    dim: Dim,
    /// Whether y stands before x.
    turned: bool,
}

impl PositionLayout {
    pub(super) fn of(shape: &Node, turned: bool) -> Result<PositionLayout, Problem> {
        match dimension(shape).or_else(|| guess(shape)).unwrap_or(2) {
            size @ (2 | 3) => Ok(PositionLayout { dim: Dim::new(size == 3, false), turned }),
            size => Err(broken(format!("positions of {size} numbers are not supported"))),
        }
    }

    /// How many numbers a position has.
    fn size(self) -> usize {
        self.dim.size()
    }
}

/// Whether this form of a system's name implies the authority's axis order, and that is north first.
/// `EPSG:4326` and the old `epsg.xml#4326` mean x before y by convention.
fn is_turned(name: &str, crs: &Crs) -> bool {
    let lower = name.trim().to_ascii_lowercase();
    (lower.starts_with("urn:") || lower.contains("/def/crs/")) && crs.is_north_first()
}

/// The system of this name, and whether y stands first.
pub(super) fn system(name: &str) -> Result<(Crs, bool), Problem> {
    let crs: Crs = name.parse()?;
    let turned = is_turned(name, &crs);
    Ok((crs, turned))
}

/// As [`system`], where the system need not be known.
pub(super) fn turned(name: &str) -> bool {
    system(name).is_ok_and(|(_, turned)| turned)
}

/// The dimension that a geometry says: its own, or that of the first part that says one.
pub(super) fn dimension(node: &Node) -> Option<usize> {
    let own = node.attribute("srsDimension").or_else(|| node.attribute("dimension"));
    own.and_then(|text| text.parse().ok()).or_else(|| node.children.iter().find_map(dimension))
}

/// The first position's count of numbers, where nobody says a dimension.
pub(super) fn guess(node: &Node) -> Option<usize> {
    match node.name.as_str() {
        "pos" => Some(node.text.split_ascii_whitespace().count()),
        "coordinates" => node.text.split_ascii_whitespace().next().map(|tuple| tuple.split(',').count()),
        _ => node.children.iter().find_map(guess),
    }
}

/// Appends a geometry.
pub(super) fn geometry(node: &Node, frame: PositionLayout, out: &mut Vec<u8>) -> Result<(), Problem> {
    match node.name.as_str() {
        "Point" => {
            let positions = positions(node, frame)?;
            match positions.get(..frame.size()) {
                Some(position) => {
                    write::begin(out, Shape::Point, frame.dim);
                    write::position(out, position);
                }
                None => write::empty_point(out, frame.dim),
            }
            Ok(())
        }
        "LineString" | "Curve" | "CompositeCurve" | "LinearRing" => {
            write::begin(out, Shape::LineString, frame.dim);
            run(&line(node, frame)?, frame, out);
            Ok(())
        }
        "Polygon" => polygon(node, frame, out),
        "Envelope" => envelope(node, frame, out),
        "Surface" | "CompositeSurface" | "PolyhedralSurface" => {
            let patches = patches(node);
            if let [only] = patches.as_slice() {
                return polygon(only, frame, out);
            }
            members(&patches, Shape::MultiPolygon, frame, out)
        }
        "MultiPoint" => members(&parts(node), Shape::MultiPoint, frame, out),
        "MultiLineString" | "MultiCurve" => members(&parts(node), Shape::MultiLineString, frame, out),
        "MultiPolygon" | "MultiSurface" => {
            let all = parts(node).into_iter().flat_map(|part| match part.name.as_str() {
                "Polygon" => vec![part],
                _ => patches(part),
            });
            members(&all.collect::<Vec<_>>(), Shape::MultiPolygon, frame, out)
        }
        "MultiGeometry" => members(&parts(node), Shape::GeometryCollection, frame, out),
        other => Err(broken(format!("{other:.40} is beyond simple features"))),
    }
}

/// The geometries within the members of a multi geometry.
fn parts(node: &Node) -> Vec<&Node> {
    node.children
        .iter()
        .flat_map(|member| &member.children)
        .filter(|n| NAMES.contains(&n.name.as_str()))
        .collect()
}

/// The polygons and patches of a surface, however they are wrapped.
fn patches(node: &Node) -> Vec<&Node> {
    let mut found = Vec::new();
    node.children.iter().for_each(|child| gather(child, &mut found));
    found
}

fn gather<'a>(node: &'a Node, found: &mut Vec<&'a Node>) {
    match node.name.as_str() {
        "Polygon" | "PolygonPatch" | "Triangle" | "Rectangle" => found.push(node),
        _ => node.children.iter().for_each(|child| gather(child, found)),
    }
}

fn members(parts: &[&Node], shape: Shape, frame: PositionLayout, out: &mut Vec<u8>) -> Result<(), Problem> {
    write::begin(out, shape, frame.dim);
    write::count(out, parts.len());
    for part in parts {
        match shape {
            Shape::MultiPolygon => polygon(part, frame, out)?,
            _ => geometry(part, frame, out)?,
        }
    }
    Ok(())
}

fn polygon(node: &Node, frame: PositionLayout, out: &mut Vec<u8>) -> Result<(), Problem> {
    let shells = node.children.iter().filter(|c| matches!(c.name.as_str(), "exterior" | "outerBoundaryIs"));
    let holes = node.children.iter().filter(|c| matches!(c.name.as_str(), "interior" | "innerBoundaryIs"));
    let rings: Vec<&Node> = shells.chain(holes).flat_map(|boundary| &boundary.children).collect();
    write::begin(out, Shape::Polygon, frame.dim);
    write::count(out, rings.len());
    for ring in rings {
        run(&line(ring, frame)?, frame, out);
    }
    Ok(())
}

fn envelope(node: &Node, frame: PositionLayout, out: &mut Vec<u8>) -> Result<(), Problem> {
    let corner = |name: &str| -> Result<Vec<f64>, Problem> {
        let node = node.child(name).ok_or_else(|| broken(format!("an Envelope needs {name}")))?;
        let mut numbers = Vec::new();
        push(&node.text, " ", PositionLayout { dim: Dim::Xy, ..frame }, &mut numbers)?;
        Ok(numbers)
    };
    let (low, high) = (corner("lowerCorner")?, corner("upperCorner")?);
    let ([w, s, ..], [e, n, ..]) = (low.as_slice(), high.as_slice()) else {
        return Err(broken("a corner of an Envelope needs two numbers"));
    };
    write::begin(out, Shape::Polygon, Dim::Xy);
    write::count(out, 1);
    write::count(out, 5);
    write::position(out, &[*w, *s, *e, *s, *e, *n, *w, *n, *w, *s]);
    Ok(())
}

/// The positions of a line, a ring or a curve of straight segments, one after another.
fn line(node: &Node, frame: PositionLayout) -> Result<Vec<f64>, Problem> {
    let mut all = positions(node, frame)?;
    for child in &node.children {
        let inner = match child.name.as_str() {
            "segments" | "curveMember" | "baseCurve" | "LineStringSegment" | "Curve" | "LineString"
            | "CompositeCurve" | "Ring" | "LinearRing" => line(child, frame)?,
            name if name.starts_with("Arc")
                || name.starts_with("Circle")
                || name.ends_with("Spline")
                || name == "Bezier" =>
            {
                return Err(broken(format!("{name:.40} is beyond simple features")));
            }
            _ => continue,
        };
        // A piece begins where the one before it ended.
        let size = frame.size();
        let ends = all.len().checked_sub(size).and_then(|last| all.get(last..));
        let same = ends.is_some_and(|last| inner.get(..size) == Some(last));
        all.extend(inner.iter().skip(if same { size } else { 0 }));
    }
    Ok(all)
}

/// The positions directly in an element, in any of the four forms, as one list of numbers: a list for each
/// position would take many times the memory of the text.
fn positions(node: &Node, frame: PositionLayout) -> Result<Vec<f64>, Problem> {
    let mut all = Vec::new();
    for child in &node.children {
        match child.name.as_str() {
            "pos" | "posList" => push(&child.text, " ", frame, &mut all)?,
            "coordinates" => push(&child.text, child.attribute("cs").unwrap_or(","), frame, &mut all)?,
            "coord" => {
                let text: Vec<&str> = child.children.iter().map(|n| n.text.as_str()).collect();
                push(&text.join(" "), " ", frame, &mut all)?;
            }
            "pointProperty" | "pointRep" => {
                for point in &child.children {
                    all.extend(positions(point, frame)?);
                }
            }
            _ => {}
        }
    }
    Ok(all)
}

/// Appends the numbers of a text that has this between them, or space, turned to x before y.
fn push(text: &str, between: &str, frame: PositionLayout, all: &mut Vec<f64>) -> Result<(), Problem> {
    let from = all.len();
    for tuple in text.split_ascii_whitespace() {
        let words = tuple.split(|c: char| between.contains(c)).filter(|word| !word.is_empty());
        for word in words {
            let number = fast_float2::parse::<f64, _>(word).ok();
            all.push(number.ok_or_else(|| broken(format!("{word:.40?} is not a coordinate")))?);
        }
    }
    let (count, size) = (all.len() - from, frame.size());
    if !count.is_multiple_of(size) {
        return Err(broken(format!("{count} numbers cannot be positions of {size}")));
    }
    if frame.turned {
        let added = all.get_mut(from..).unwrap_or_default();
        added.chunks_exact_mut(size).for_each(|position| position.swap(0, 1));
    }
    Ok(())
}

fn run(positions: &[f64], frame: PositionLayout, out: &mut Vec<u8>) {
    write::count(out, positions.len() / frame.size());
    write::position(out, positions);
}
