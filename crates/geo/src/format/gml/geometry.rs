//! From a geometry of GML to well-known binary.

use tidegate_core::Code;

use super::tree::Node;
use crate::crs::Crs;
use crate::error::Problem;
use crate::wkb::{Dim, Shape, write};

/// The elements that are geometries.
pub(super) const NAMES: [&str; 16] = [
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
];

fn broken(message: impl Into<String>) -> Problem {
    Problem::new(Code::INVALID_GEOMETRY, message)
}

/// What holds for all positions of a geometry.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) dim: Dim,
    /// Whether y stands before x.
    pub(super) turned: bool,
}

/// How a system's name says the order of axes: the system, and whether y stands first.
pub(super) fn system(name: &str) -> Result<(Crs, bool), Problem> {
    let crs: Crs = name.parse()?;
    let lower = name.trim().to_ascii_lowercase();
    let by_authority = lower.starts_with("urn:") || lower.contains("/def/crs/");
    Ok((crs.clone(), by_authority && crs.is_north_first()))
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
pub(super) fn geometry(node: &Node, frame: Frame, out: &mut Vec<u8>) -> Result<(), Problem> {
    match node.name.as_str() {
        "Point" => {
            let positions = positions(node, frame)?;
            match positions.first() {
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
            run(&line(node, frame)?, out);
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
        other => Err(broken(format!("{other} is beyond simple features"))),
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
    for child in &node.children {
        match child.name.as_str() {
            "Polygon" | "PolygonPatch" | "Triangle" | "Rectangle" => found.push(child),
            _ => found.extend(patches(child)),
        }
    }
    found
}

fn members(parts: &[&Node], shape: Shape, frame: Frame, out: &mut Vec<u8>) -> Result<(), Problem> {
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

fn polygon(node: &Node, frame: Frame, out: &mut Vec<u8>) -> Result<(), Problem> {
    let shells = node.children.iter().filter(|c| matches!(c.name.as_str(), "exterior" | "outerBoundaryIs"));
    let holes = node.children.iter().filter(|c| matches!(c.name.as_str(), "interior" | "innerBoundaryIs"));
    let rings: Vec<&Node> = shells.chain(holes).flat_map(|boundary| &boundary.children).collect();
    write::begin(out, Shape::Polygon, frame.dim);
    write::count(out, rings.len());
    for ring in rings {
        run(&line(ring, frame)?, out);
    }
    Ok(())
}

fn envelope(node: &Node, frame: Frame, out: &mut Vec<u8>) -> Result<(), Problem> {
    let corner = |name: &str| -> Result<Vec<f64>, Problem> {
        let node = node.child(name).ok_or_else(|| broken(format!("an Envelope without {name}")))?;
        let numbers = numbers(&node.text)?;
        let frame = Frame { dim: Dim::Xy, ..frame };
        Ok(cut(&numbers, frame)?.into_iter().next().unwrap_or_default())
    };
    let (low, high) = (corner("lowerCorner")?, corner("upperCorner")?);
    let ([w, s, ..], [e, n, ..]) = (low.as_slice(), high.as_slice()) else {
        return Err(broken("a corner of an Envelope has no two numbers"));
    };
    write::begin(out, Shape::Polygon, Dim::Xy);
    write::count(out, 1);
    write::count(out, 5);
    write::position(out, &[*w, *s, *e, *s, *e, *n, *w, *n, *w, *s]);
    Ok(())
}

/// The positions of a line, a ring or a curve of straight segments, one after another.
fn line(node: &Node, frame: Frame) -> Result<Vec<Vec<f64>>, Problem> {
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
                return Err(broken(format!("{name} is beyond simple features")));
            }
            _ => continue,
        };
        // A piece begins where the one before it ended.
        let same = all.last().is_some_and(|last| inner.first() == Some(last));
        all.extend(inner.into_iter().skip(usize::from(same)));
    }
    Ok(all)
}

/// The positions that stand directly in an element, in any of the four spellings.
fn positions(node: &Node, frame: Frame) -> Result<Vec<Vec<f64>>, Problem> {
    let mut all = Vec::new();
    for child in &node.children {
        match child.name.as_str() {
            "pos" | "posList" => all.extend(cut(&numbers(&child.text)?, frame)?),
            "coordinates" => {
                let between = child.attribute("cs").unwrap_or(",");
                let text = child.text.replace(between, " ");
                all.extend(cut(&numbers(&text)?, frame)?);
            }
            "coord" => {
                let text: Vec<&str> = child.children.iter().map(|n| n.text.as_str()).collect();
                all.extend(cut(&numbers(&text.join(" "))?, frame)?);
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

fn numbers(text: &str) -> Result<Vec<f64>, Problem> {
    let number = |word: &str| {
        let number = fast_float2::parse::<f64, _>(word).ok();
        number.ok_or_else(|| broken(format!("{word:.40?} is not a coordinate")))
    };
    text.split_ascii_whitespace().map(number).collect()
}

fn cut(numbers: &[f64], frame: Frame) -> Result<Vec<Vec<f64>>, Problem> {
    let size = frame.dim.size();
    if !numbers.len().is_multiple_of(size) {
        return Err(broken(format!("{} numbers cannot be positions of {size}", numbers.len())));
    }
    let mut all: Vec<Vec<f64>> = numbers.chunks(size).map(<[f64]>::to_vec).collect();
    if frame.turned {
        all.iter_mut().for_each(|position| position.swap(0, 1));
    }
    Ok(all)
}

fn run(positions: &[Vec<f64>], out: &mut Vec<u8>) {
    write::count(out, positions.len());
    for position in positions {
        write::position(out, position);
    }
}
