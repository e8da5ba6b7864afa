//! From a geometry of ESRI JSON to well-known binary.

use serde_json::Value;
use tidegate_core::Code;

use super::super::shp::shape::group;
use crate::error::Problem;
use crate::validity::Point;
use crate::wkb::{Dim, Shape, write};

fn broken(message: impl Into<String>) -> Problem {
    Problem::new(Code::INVALID_GEOMETRY, message)
}

/// Appends a geometry; nothing if there is none.
pub(super) fn write(geometry: &Value, layer_dim: Dim, out: &mut Vec<u8>) -> Result<(), Problem> {
    if geometry.is_null() {
        return Ok(());
    }
    if geometry.get("curveRings").is_some() || geometry.get("curvePaths").is_some() {
        return Err(broken("curves are beyond simple features; ask the server for returnTrueCurves=false"));
    }
    let flag = |name: &str, layer: bool| geometry[name].as_bool().unwrap_or(layer);
    let dim = Dim::new(flag("hasZ", layer_dim.has_z()), flag("hasM", layer_dim.has_m()));
    if let Some(rings) = geometry.get("rings") {
        return polygon(&parts(rings, dim)?, dim, out);
    }
    if let Some(paths) = geometry.get("paths") {
        let paths = parts(paths, dim)?;
        write::begin(out, Shape::MultiLineString, dim);
        write::count(out, paths.len());
        for path in &paths {
            write::begin(out, Shape::LineString, dim);
            run(path, out);
        }
        return Ok(());
    }
    if let Some(points) = geometry.get("points") {
        let points = positions(points, dim)?;
        write::begin(out, Shape::MultiPoint, dim);
        write::count(out, points.len());
        for point in &points {
            write::begin(out, Shape::Point, dim);
            write::position(out, point);
        }
        return Ok(());
    }
    if geometry.get("xmin").is_some() {
        return envelope(geometry, out);
    }
    point(geometry, out)
}

fn point(geometry: &Value, out: &mut Vec<u8>) -> Result<(), Problem> {
    let number = |name: &str| geometry.get(name).and_then(Value::as_f64);
    // An empty point is written with NaN, as text, or with null.
    let Some((x, y)) = number("x").zip(number("y")) else {
        if geometry.get("x").is_some_and(|x| x.is_null() || x.as_str() == Some("NaN")) {
            write::empty_point(out, Dim::Xy);
            return Ok(());
        }
        return Err(broken("the geometry has neither x and y, nor points, paths or rings"));
    };
    let (z, m) = (number("z"), number("m"));
    write::begin(out, Shape::Point, Dim::new(z.is_some(), m.is_some()));
    write::position(out, &[x, y]);
    for extra in [z, m].into_iter().flatten() {
        write::position(out, &[extra]);
    }
    Ok(())
}

fn envelope(geometry: &Value, out: &mut Vec<u8>) -> Result<(), Problem> {
    let side =
        |name: &str| geometry[name].as_f64().ok_or_else(|| broken(format!("the envelope has no {name}")));
    let (w, s, e, n) = (side("xmin")?, side("ymin")?, side("xmax")?, side("ymax")?);
    write::begin(out, Shape::MultiPolygon, Dim::Xy);
    write::count(out, 1);
    write::begin(out, Shape::Polygon, Dim::Xy);
    write::count(out, 1);
    write::count(out, 5);
    write::position(out, &[w, s, e, s, e, n, w, n, w, s]);
    Ok(())
}

fn polygon(rings: &[Vec<Vec<f64>>], dim: Dim, out: &mut Vec<u8>) -> Result<(), Problem> {
    let all: Vec<&Vec<f64>> = rings.iter().flatten().collect();
    let flat: Vec<Point> =
        all.iter().map(|p| [p.first().copied().unwrap_or(0.0), p.get(1).copied().unwrap_or(0.0)]).collect();
    let mut start = 0;
    let ranges: Vec<std::ops::Range<usize>> = rings
        .iter()
        .map(|ring| {
            let range = start..start + ring.len();
            start = range.end;
            range
        })
        .filter(|range| !range.is_empty())
        .collect();
    let polygons = group(&flat, ranges);
    write::begin(out, Shape::MultiPolygon, dim);
    write::count(out, polygons.len());
    for rings in polygons {
        write::begin(out, Shape::Polygon, dim);
        write::count(out, rings.len());
        for ring in rings {
            write::count(out, ring.len());
            for position in all.get(ring).unwrap_or_default() {
                write::position(out, position);
            }
        }
    }
    Ok(())
}

fn run(positions: &[Vec<f64>], out: &mut Vec<u8>) {
    write::count(out, positions.len());
    for position in positions {
        write::position(out, position);
    }
}

fn parts(value: &Value, dim: Dim) -> Result<Vec<Vec<Vec<f64>>>, Problem> {
    let parts = value.as_array().ok_or_else(|| broken("paths and rings must be arrays"))?;
    parts.iter().map(|part| positions(part, dim)).collect()
}

/// Positions of as many numbers as the dimensions ask for; a missing height or measure is NaN.
fn positions(value: &Value, dim: Dim) -> Result<Vec<Vec<f64>>, Problem> {
    let positions = value.as_array().ok_or_else(|| broken("positions must be an array"))?;
    let number = |value: &Value| value.as_f64();
    positions
        .iter()
        .map(|position| {
            let numbers = position.as_array().filter(|numbers| numbers.len() >= 2);
            let numbers = numbers.ok_or_else(|| broken("a position needs two numbers"))?;
            let xy = [numbers.first().and_then(number), numbers.get(1).and_then(number)];
            let [Some(x), Some(y)] = xy else { return Err(broken("a coordinate is not a number")) };
            let mut all = vec![x, y];
            all.extend((2..dim.size()).map(|at| numbers.get(at).and_then(number).unwrap_or(f64::NAN)));
            Ok(all)
        })
        .collect()
}
