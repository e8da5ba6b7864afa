//! Parsing an ESRI JSON geometry into well-known binary.
//!
//! Coordinates are parsed into one list of numbers: as JSON values they would take thirty times the memory
//! of their text.

use serde_json::{Map, Value};
use tidegate_core::Code;

use super::super::geojson::scan::{Scan, Stop};
use super::super::shp::shape::group;
use super::text::{members, value};
use crate::error::Problem;
use crate::validity::Point;
use crate::wkb::{Dim, Shape, write};

fn broken(message: impl Into<String>) -> Problem {
    Problem::new(Code::INVALID_GEOMETRY, message)
}

/// Lists of positions, all numbers one after another.
#[derive(Default)]
struct Parts {
    numbers: Vec<f64>,
    /// How many numbers a position has, by the first one.
    size: usize,
    /// Where each list ends, in positions.
    ends: Vec<usize>,
}

/// What a geometry says of its dimensions.
pub(super) struct Flags {
    /// `hasZ`, if it is there.
    pub(super) z: Option<bool>,
    /// `hasM`, if it is there.
    pub(super) m: Option<bool>,
    /// Numbers in its first position.
    pub(super) size: usize,
}

/// Appends a geometry; nothing if there is none.
pub(super) fn write(text: &[u8], layer_dim: Dim, out: &mut Vec<u8>) -> Result<(), Problem> {
    let dim =
        |said: Flags| Dim::new(said.z.unwrap_or(layer_dim.has_z()), said.m.unwrap_or(layer_dim.has_m()));
    write_with(text, dim, true, out)
}

/// Appends a geometry with the dimensions that `dim` chooses; nothing if there is none. A point says
/// its dimensions by its members; `measures` is whether its measure is kept.
pub(super) fn write_with(
    text: &[u8],
    dim: impl FnOnce(Flags) -> Dim,
    measures: bool,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    if matches!(text, b"" | b"null") {
        return Ok(());
    }
    let (mut small, mut parts, mut curves) = (Map::new(), None, false);
    let read = members(&mut Scan::new(text, 0), |scan, name| {
        match name {
            b"rings" => parts = Some((Shape::Polygon, Parts::lists(scan)?)),
            b"paths" => parts = Some((Shape::LineString, Parts::lists(scan)?)),
            b"points" => {
                let mut points = Parts::default();
                points.list(scan)?;
                parts = Some((Shape::Point, points));
            }
            b"curveRings" | b"curvePaths" => {
                curves = true;
                scan.skip()?;
            }
            name => _ = small.insert(String::from_utf8_lossy(name).into_owned(), value(scan)?),
        }
        Ok(())
    });
    read.map_err(|stop| match stop {
        Stop::Bad(_, message) => broken(message),
        Stop::More => broken("the geometry is cut"),
    })?;
    if curves {
        return Err(broken("curves are beyond simple features; ask the server for returnTrueCurves=false"));
    }
    let flag = |name: &str| small.get(name).and_then(Value::as_bool);
    let size = parts.as_ref().map_or(0, |(_, parts)| parts.size);
    let dim = dim(Flags { z: flag("hasZ"), m: flag("hasM"), size });
    match parts {
        Some((Shape::Polygon, rings)) => rings.write_polygons(dim, out),
        Some((Shape::LineString, paths)) => {
            write::begin(out, Shape::MultiLineString, dim);
            write::count(out, paths.ends.len());
            for path in paths.ranges() {
                write::begin(out, Shape::LineString, dim);
                paths.write(path, dim, out);
            }
        }
        Some((_, points)) => {
            let count = points.ends.last().copied().unwrap_or(0);
            write::begin(out, Shape::MultiPoint, dim);
            write::count(out, count);
            for at in 0..count {
                write::begin(out, Shape::Point, dim);
                points.position(at, dim, out);
            }
        }
        None if small.contains_key("xmin") => return envelope(&small, out),
        None if small.keys().all(|name| matches!(name.as_str(), "hasZ" | "hasM" | "spatialReference")) => {}
        None => return point(&small, measures, out),
    }
    Ok(())
}

fn point(geometry: &Map<String, Value>, measures: bool, out: &mut Vec<u8>) -> Result<(), Problem> {
    let number = |name: &str| geometry.get(name).and_then(Value::as_f64);
    // An empty point is written with NaN, as text, or with null.
    let Some((x, y)) = number("x").zip(number("y")) else {
        if geometry.get("x").is_some_and(|x| x.is_null() || x.as_str() == Some("NaN")) {
            write::empty_point(out, Dim::Xy);
            return Ok(());
        }
        return Err(broken("the geometry has neither x and y, nor points, paths or rings"));
    };
    let (z, m) = (number("z"), number("m").filter(|_| measures));
    write::begin(out, Shape::Point, Dim::new(z.is_some(), m.is_some()));
    write::position(out, &[x, y]);
    for extra in [z, m].into_iter().flatten() {
        write::position(out, &[extra]);
    }
    Ok(())
}

fn envelope(geometry: &Map<String, Value>, out: &mut Vec<u8>) -> Result<(), Problem> {
    let side = |name: &str| {
        let side = geometry.get(name).and_then(Value::as_f64);
        side.ok_or_else(|| broken(format!("the envelope has no {name}")))
    };
    let (w, s, e, n) = (side("xmin")?, side("ymin")?, side("xmax")?, side("ymax")?);
    write::begin(out, Shape::MultiPolygon, Dim::Xy);
    write::count(out, 1);
    write::begin(out, Shape::Polygon, Dim::Xy);
    write::count(out, 1);
    write::count(out, 5);
    write::position(out, &[w, s, e, s, e, n, w, n, w, s]);
    Ok(())
}

impl Parts {
    /// A list of lists of positions.
    fn lists(scan: &mut Scan<'_>) -> Result<Parts, Stop> {
        let mut parts = Parts::default();
        scan.expect(b'[', "paths and rings must be arrays")?;
        let mut more = !scan.eat(b']')?;
        while more {
            parts.list(scan)?;
            more = scan.comma_or(b']')?;
        }
        Ok(parts)
    }

    /// A list of positions.
    fn list(&mut self, scan: &mut Scan<'_>) -> Result<(), Stop> {
        scan.expect(b'[', "positions must be an array")?;
        let mut more = !scan.eat(b']')?;
        while more {
            self.read(scan)?;
            more = scan.comma_or(b']')?;
        }
        self.ends.push(self.numbers.len().checked_div(self.size).unwrap_or(0));
        Ok(())
    }

    /// A position; a missing height or measure is NaN.
    fn read(&mut self, scan: &mut Scan<'_>) -> Result<(), Stop> {
        const SHORT: &str = "a position needs two numbers";
        scan.expect(b'[', SHORT)?;
        let (at, mut numbers, mut count) = (scan.at, [f64::NAN; 4], 0);
        let mut more = !scan.eat(b']')?;
        while more {
            let number = match scan.peek()? {
                b'-' | b'0'..=b'9' => Some(scan.number()?),
                _ => {
                    scan.skip()?;
                    None
                }
            };
            if number.is_none() && count < 2 {
                return Err(Stop::Bad(at, "a coordinate is not a number"));
            }
            if let Some(slot) = numbers.get_mut(count) {
                *slot = number.unwrap_or(f64::NAN);
            }
            count += 1;
            more = scan.comma_or(b']')?;
        }
        if count < 2 {
            return Err(Stop::Bad(at, SHORT));
        }
        if self.size == 0 {
            self.size = count.min(4);
        }
        self.numbers.extend(numbers.iter().take(self.size));
        Ok(())
    }

    /// The places of each list.
    fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let mut start = 0;
        self.ends.iter().map(move |end| std::mem::replace(&mut start, *end)..*end)
    }

    /// As many numbers of a position as the dimensions ask for.
    fn position(&self, at: usize, dim: Dim, out: &mut Vec<u8>) {
        let from = at * self.size;
        let numbers = self.numbers.get(from..from + self.size).unwrap_or_default();
        for at in 0..dim.size() {
            write::position(out, &[numbers.get(at).copied().unwrap_or(f64::NAN)]);
        }
    }

    fn write(&self, list: std::ops::Range<usize>, dim: Dim, out: &mut Vec<u8>) {
        write::count(out, list.len());
        list.for_each(|at| self.position(at, dim, out));
    }

    fn write_polygons(&self, dim: Dim, out: &mut Vec<u8>) {
        let pair = |numbers: &[f64]| match numbers {
            [x, y, ..] => [*x, *y],
            _ => [0.0, 0.0],
        };
        let points: Vec<Point> = self.numbers.chunks_exact(self.size.max(2)).map(pair).collect();
        let polygons = group(&points, self.ranges().filter(|ring| !ring.is_empty()).collect());
        write::begin(out, Shape::MultiPolygon, dim);
        write::count(out, polygons.len());
        for rings in polygons {
            write::begin(out, Shape::Polygon, dim);
            write::count(out, rings.len());
            rings.into_iter().for_each(|ring| self.write(ring, dim, out));
        }
    }
}
