//! From the records of a `.shp` file to well-known binary.

use tidegate_core::Code;

use crate::error::Problem;
use crate::validity::{Point, is_counter_clockwise, is_nested};
use crate::wkb::{Dim, Shape, write};

/// The geometry type of a type number; `None` for null shapes and unknown numbers.
pub(super) fn shape_of(number: i32) -> Option<Shape> {
    match number % 10 {
        1 => Some(Shape::Point),
        3 => Some(Shape::MultiLineString),
        5 => Some(Shape::MultiPolygon),
        8 => Some(Shape::MultiPoint),
        _ => None,
    }
    .filter(|_| (0..30).contains(&number))
}

fn broken(message: &str) -> Problem {
    Problem::new(Code::INVALID_GEOMETRY, message)
}

struct RecordInput<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl RecordInput<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        self.at += N;
        taken.copied().ok_or_else(|| broken("the record ends within the shape"))
    }

    fn i32(&mut self) -> Result<i32, Problem> {
        self.take().map(i32::from_le_bytes)
    }

    /// A count, checked against the length of the record.
    fn count(&mut self, size: usize) -> Result<usize, Problem> {
        let count = usize::try_from(self.i32()?).map_err(|_| broken("a count is negative"))?;
        if count.saturating_mul(size) > self.bytes.len() {
            return Err(broken("a count exceeds the record"));
        }
        Ok(count)
    }

    fn f64(&mut self) -> Result<f64, Problem> {
        self.take().map(f64::from_le_bytes)
    }

    fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// One number per position, after their minimum and maximum.
    fn extra(&mut self, count: usize) -> Result<Vec<f64>, Problem> {
        self.at += 16;
        (0..count).map(|_| self.f64()).collect()
    }
}

/// Measures below this mean "no data".
const NO_MEASURE: f64 = -1e38;

/// Appends a record's shape; nothing for a null shape.
pub(super) fn write_shape(record: &[u8], out: &mut Vec<u8>) -> Result<(), Problem> {
    let mut input = RecordInput { bytes: record, at: 0 };
    let number = input.i32()?;
    if number == 0 {
        return Ok(());
    }
    let shape = shape_of(number).ok_or_else(|| broken(&format!("shape type {number} is not supported")))?;
    let (z, m) = (number / 10 == 1, number / 10 >= 1);
    if shape == Shape::Point {
        let mut numbers = vec![input.f64()?, input.f64()?];
        if z {
            numbers.push(input.f64()?);
        }
        let measure =
            if m && input.left() >= 8 { Some(input.f64()?).filter(|m| *m > NO_MEASURE) } else { None };
        numbers.extend(measure);
        write::begin(out, shape, Dim::new(z, measure.is_some()));
        write::position(out, &numbers);
        return Ok(());
    }
    input.at += 32;
    let (part_count, point_count) = match shape {
        Shape::MultiPoint => (0, input.count(16)?),
        _ => (input.count(4)?, input.count(16)?),
    };
    let mut starts: Vec<usize> = Vec::with_capacity(part_count + 1);
    for _ in 0..part_count {
        let start = usize::try_from(input.i32()?).ok().filter(|start| *start <= point_count);
        let start = start.filter(|start| starts.last().is_none_or(|last| last <= start));
        starts.push(start.ok_or_else(|| broken("the start of a part is out of range"))?);
    }
    starts.push(point_count);
    let points: Vec<Point> =
        (0..point_count).map(|_| Ok([input.f64()?, input.f64()?])).collect::<Result<_, Problem>>()?;
    let heights = if z { input.extra(point_count)? } else { Vec::new() };
    let mut measures =
        if m && input.left() >= 16 + point_count * 8 { input.extra(point_count)? } else { Vec::new() };
    if measures.iter().all(|m| *m <= NO_MEASURE) {
        measures.clear();
    }
    let all = ShapePositions { points: &points, heights: &heights, measures: &measures };
    let parts: Vec<std::ops::Range<usize>> = starts
        .windows(2)
        .filter_map(|pair| Some(*pair.first()?..*pair.last()?))
        .filter(|part| !part.is_empty())
        .collect();
    write::begin(out, shape, all.dim());
    match shape {
        Shape::MultiPoint => {
            write::count(out, point_count);
            for at in 0..point_count {
                write::begin(out, Shape::Point, all.dim());
                all.write(at, out);
            }
        }
        Shape::MultiLineString => {
            write::count(out, parts.len());
            for part in parts {
                write::begin(out, Shape::LineString, all.dim());
                all.write_run(part, out);
            }
        }
        _ => {
            let polygons = group(&points, parts);
            write::count(out, polygons.len());
            for rings in polygons {
                write::begin(out, Shape::Polygon, all.dim());
                write::count(out, rings.len());
                for ring in rings {
                    all.write_run(ring, out);
                }
            }
        }
    }
    Ok(())
}

struct ShapePositions<'a> {
    points: &'a [Point],
    heights: &'a [f64],
    measures: &'a [f64],
}

impl ShapePositions<'_> {
    fn dim(&self) -> Dim {
        Dim::new(!self.heights.is_empty(), !self.measures.is_empty())
    }

    fn write(&self, at: usize, out: &mut Vec<u8>) {
        write::position(out, self.points.get(at).map_or(&[], |point| point.as_slice()));
        for list in [self.heights, self.measures] {
            write::position(out, list.get(at..=at).unwrap_or_default());
        }
    }

    fn write_run(&self, part: std::ops::Range<usize>, out: &mut Vec<u8>) {
        write::count(out, part.len());
        for at in part {
            self.write(at, out);
        }
    }
}

/// Groups rings into polygons. Clockwise rings are shells; every other ring is a hole of the smallest shell
/// that contains it, or a shell if there is none.
pub(in crate::format) fn group(
    points: &[Point],
    parts: Vec<std::ops::Range<usize>>,
) -> Vec<Vec<std::ops::Range<usize>>> {
    if parts.len() <= 1 {
        return parts.into_iter().map(|ring| vec![ring]).collect();
    }
    let ring = |part: &std::ops::Range<usize>| points.get(part.clone()).unwrap_or_default();
    let (holes, shells): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| is_counter_clockwise(ring(part)));
    let mut polygons: Vec<Vec<_>> = shells.into_iter().map(|shell| vec![shell]).collect();
    let alone = polygons.len() == 1;
    for hole in holes {
        let holders = polygons.iter().enumerate().filter(|(_, polygon)| {
            alone || polygon.first().is_some_and(|shell| is_nested(ring(&hole), ring(shell)))
        });
        let smallest = holders.min_by(|(_, a), (_, b)| {
            let size =
                |polygon: &[std::ops::Range<usize>]| polygon.first().map_or(0.0, |shell| area(ring(shell)));
            size(a).total_cmp(&size(b))
        });
        match smallest.map(|(at, _)| at) {
            Some(at) => polygons.get_mut(at).into_iter().for_each(|polygon| polygon.push(hole.clone())),
            None => polygons.push(vec![hole]),
        }
    }
    polygons
}

fn area(ring: &[Point]) -> f64 {
    ring.iter().zip(ring.iter().skip(1)).map(|(a, b)| a[0] * b[1] - b[0] * a[1]).sum::<f64>().abs()
}
