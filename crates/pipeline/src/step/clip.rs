//! clip: geometries cut at a rectangle.
//!
//! Points are kept or not. Lines are cut edge by edge (Liang and Barsky) and fall into pieces. A
//! ring is cut side by side (Sutherland and Hodgman), which is short and exact on the sides of the
//! rectangle but joins separate pieces by edges along them; the repair then takes those doubled
//! edges away, because an edge that encloses nothing changes nothing. What lies wholly inside is
//! not touched. Heights and measures of what is cut go, because the new corners have none.

use std::sync::Arc;

use tidegate_geo::repair::{self, Outcome};
use tidegate_geo::validity::Checker;
use tidegate_geo::wkb::{self, Cursor, Dim, Event, Shape, write};
use tidegate_geo::{Batch, Bounds, Problem, Schema};

use super::{Aside, Flow, Step, StepError};

struct Clip {
    schema: Arc<Schema>,
    to: Bounds,
    checker: Checker,
}

pub(super) fn build(rectangle: &[f64], flow: &mut Flow) -> Result<Box<dyn Step>, String> {
    let [min_x, min_y, max_x, max_y] = rectangle else {
        return Err("the bounding box must be four numbers: west, south, east, north".into());
    };
    if min_x >= max_x || min_y >= max_y {
        return Err(format!(
            "the bounding box [{min_x}, {min_y}, {max_x}, {max_y}] is empty; expected west, south, east, north"
        ));
    }
    let mut schema = Schema::clone(&flow.schema);
    // A line or a surface may fall into several.
    schema.shape = schema.shape.filter(|shape| !matches!(shape, Shape::LineString | Shape::Polygon));
    flow.schema = Arc::new(schema);
    let to = Bounds { min_x: *min_x, min_y: *min_y, max_x: *max_x, max_y: *max_y };
    Ok(Box::new(Clip { schema: flow.schema.clone(), to, checker: Checker::within(&flow.limits) }))
}

impl Step for Clip {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let mut keep = vec![true; batch.len()];
        let (to, checker) = (self.to, &mut self.checker);
        let (batch, refused) = batch.map_geometry(self.schema.clone(), |row, old, out| {
            let Some(old) = old else { return Ok(()) };
            let inside = match Bounds::of_wkb(old) {
                None => false,
                Some(b)
                    if b.min_x >= to.min_x
                        && b.min_y >= to.min_y
                        && b.max_x <= to.max_x
                        && b.max_y <= to.max_y =>
                {
                    out.extend_from_slice(old);
                    true
                }
                Some(b) => b.meets(to) && cut(old, to, checker, out)?,
            };
            if let (false, Some(flag)) = (inside, keep.get_mut(row)) {
                *flag = false;
            }
            Ok(())
        });
        for (row, _) in &refused {
            if let Some(flag) = keep.get_mut(*row) {
                *flag = true;
            }
        }
        aside.filtered += keep.iter().filter(|keep| !**keep).count() as u64;
        // Rows that are refused stay for now, those outside go; both at once would mix their places.
        let mut stays = keep.clone();
        if !refused.is_empty() {
            for (row, _) in &refused {
                if let Some(flag) = stays.get_mut(*row) {
                    *flag = false;
                }
            }
            drop(aside.set_aside(batch.clone(), refused));
        }
        Ok(batch.filter(&stays))
    }
}

type ClipPoint = (f64, f64);
/// How far inside of one side a point lies.
type Depth = fn(ClipPoint, Bounds) -> f64;

/// Appends what of a geometry lies in the rectangle; false if nothing does.
fn cut(wkb: &[u8], to: Bounds, checker: &mut Checker, out: &mut Vec<u8>) -> Result<bool, Problem> {
    let Some((shape, _)) = wkb::head(wkb) else { return Ok(false) };
    let (mut points, mut lines, mut polygons) = (Vec::new(), Vec::new(), Vec::<Vec<Vec<ClipPoint>>>::new());
    let mut cursor = Cursor::default();
    let mut open = Vec::new();
    while let Some(event) = cursor.next(wkb)? {
        match event {
            Event::Begin { shape, .. } => {
                if shape == Shape::Polygon {
                    polygons.push(Vec::new());
                }
                open.push(shape);
            }
            Event::Coords(run) => match open.last() {
                Some(Shape::Point) => points.extend(run.xy(wkb).filter(|p| holds(to, *p))),
                Some(Shape::LineString) => pieces(run.xy(wkb), to, &mut lines),
                _ => {
                    let ring = ring(run.xy(wkb).collect(), to);
                    if let (Some(polygon), true) = (polygons.last_mut(), ring.len() >= 3) {
                        polygon.push(ring);
                    }
                }
            },
            Event::End(_) => drop(open.pop()),
        }
    }
    polygons.retain(|rings| !rings.is_empty());
    let kinds =
        usize::from(!points.is_empty()) + usize::from(!lines.is_empty()) + usize::from(!polygons.is_empty());
    if kinds == 0 {
        return Ok(false);
    }
    if shape == Shape::GeometryCollection {
        write::begin(out, shape, Dim::Xy);
        write::count(out, kinds);
    }
    if !points.is_empty() {
        write_points(&points, shape == Shape::Point, out);
    }
    if !lines.is_empty() {
        write_lines(&lines, shape, out);
    }
    if !polygons.is_empty() {
        let mut drawn = Vec::new();
        write_polygons(&polygons, &mut drawn);
        let start = out.len();
        if let Outcome::Hopeless(flaw) = repair::make_valid(&drawn, checker, out) {
            return Err(Problem::new(flaw.reason.code(), format!("cannot clip: {flaw}")));
        }
        let made = out.get(start..).unwrap_or_default();
        if wkb::is_empty(made) {
            return Ok(kinds > 1);
        }
        // A layer of multi surfaces stays one, a surface that is one stays one.
        if shape == Shape::MultiPolygon {
            let made = repair::promote(made);
            out.truncate(start);
            out.extend_from_slice(&made);
        }
    }
    Ok(true)
}

fn holds(to: Bounds, (x, y): ClipPoint) -> bool {
    x >= to.min_x && x <= to.max_x && y >= to.min_y && y <= to.max_y
}

/// The pieces of a line within the rectangle.
fn pieces(line: impl Iterator<Item = ClipPoint>, to: Bounds, out: &mut Vec<Vec<ClipPoint>>) {
    let mut last: Option<ClipPoint> = None;
    let mut piece: Vec<ClipPoint> = Vec::new();
    for end in line {
        let Some(start) = last.replace(end) else { continue };
        let Some((a, b)) = segment(start, end, to) else {
            flush(&mut piece, out);
            continue;
        };
        if piece.last() != Some(&a) {
            flush(&mut piece, out);
            piece.push(a);
        }
        if a != b {
            piece.push(b);
        }
    }
    flush(&mut piece, out);
}

fn flush(piece: &mut Vec<ClipPoint>, out: &mut Vec<Vec<ClipPoint>>) {
    let piece = std::mem::take(piece);
    if piece.len() >= 2 {
        out.push(piece);
    }
}

/// The part of a segment within the rectangle.
fn segment(a: ClipPoint, b: ClipPoint, to: Bounds) -> Option<(ClipPoint, ClipPoint)> {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let (mut enters, mut leaves) = (0.0f64, 1.0f64);
    for (p, q) in [(-dx, a.0 - to.min_x), (dx, to.max_x - a.0), (-dy, a.1 - to.min_y), (dy, to.max_y - a.1)] {
        if p == 0.0 {
            if q < 0.0 {
                return None;
            }
        } else if p < 0.0 {
            enters = enters.max(q / p);
        } else {
            leaves = leaves.min(q / p);
        }
    }
    if enters > leaves {
        return None;
    }
    let at = |t: f64, end: ClipPoint| {
        if t == 0.0 {
            a
        } else if t == 1.0 {
            end
        } else {
            (a.0 + t * dx, a.1 + t * dy)
        }
    };
    Some((at(enters, b), at(leaves, b)))
}

/// A ring cut at the four sides; open, and possibly with edges along the sides.
fn ring(mut ring: Vec<ClipPoint>, to: Bounds) -> Vec<ClipPoint> {
    if ring.first() == ring.last() {
        ring.pop();
    }
    let sides: [(Depth, bool); 4] = [
        (|p, to| p.0 - to.min_x, true),
        (|p, to| to.max_x - p.0, true),
        (|p, to| p.1 - to.min_y, false),
        (|p, to| to.max_y - p.1, false),
    ];
    for (at, (depth, vertical)) in sides.into_iter().enumerate() {
        let edge = match at {
            0 => to.min_x,
            1 => to.max_x,
            2 => to.min_y,
            _ => to.max_y,
        };
        let mut kept = Vec::with_capacity(ring.len() + 4);
        let mut last = ring.last().copied();
        for &point in &ring {
            if let Some(before) = last.replace(point) {
                let (a, b) = (depth(before, to), depth(point, to));
                if (a < 0.0) != (b < 0.0) {
                    let t = a / (a - b);
                    let (x, y) = (before.0 + t * (point.0 - before.0), before.1 + t * (point.1 - before.1));
                    kept.push(if vertical { (edge, y) } else { (x, edge) });
                }
                if b >= 0.0 {
                    kept.push(point);
                }
            }
        }
        ring = kept;
    }
    ring
}

fn write_points(points: &[ClipPoint], single: bool, out: &mut Vec<u8>) {
    if let ([point], true) = (points, single) {
        return write::point(out, &[point.0, point.1]);
    }
    write::begin(out, Shape::MultiPoint, Dim::Xy);
    write::count(out, points.len());
    points.iter().for_each(|point| write::point(out, &[point.0, point.1]));
}

fn write_lines(lines: &[Vec<ClipPoint>], shape: Shape, out: &mut Vec<u8>) {
    let line = |line: &Vec<ClipPoint>, out: &mut Vec<u8>| {
        write::begin(out, Shape::LineString, Dim::Xy);
        write::count(out, line.len());
        line.iter().for_each(|point| write::position(out, &[point.0, point.1]));
    };
    if let ([only], Shape::LineString) = (lines, shape) {
        return line(only, out);
    }
    write::begin(out, Shape::MultiLineString, Dim::Xy);
    write::count(out, lines.len());
    lines.iter().for_each(|each| line(each, out));
}

fn write_polygons(polygons: &[Vec<Vec<ClipPoint>>], out: &mut Vec<u8>) {
    let polygon = |rings: &Vec<Vec<ClipPoint>>, out: &mut Vec<u8>| {
        write::begin(out, Shape::Polygon, Dim::Xy);
        write::count(out, rings.len());
        for ring in rings {
            write::count(out, ring.len() + 1);
            ring.iter().chain(ring.first()).for_each(|point| write::position(out, &[point.0, point.1]));
        }
    };
    if let [only] = polygons {
        return polygon(only, out);
    }
    write::begin(out, Shape::MultiPolygon, Dim::Xy);
    write::count(out, polygons.len());
    polygons.iter().for_each(|each| polygon(each, out));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clipped(text: &str) -> Option<String> {
        let (mut wkb, mut out) = (Vec::new(), Vec::new());
        tidegate_geo::wkt::read(text, &mut wkb).unwrap();
        let to = Bounds { min_x: 0.0, min_y: 0.0, max_x: 10.0, max_y: 10.0 };
        cut(&wkb, to, &mut Checker::default(), &mut out).unwrap().then(|| tidegate_geo::wkt::to_string(&out))
    }

    #[test]
    fn each_shape_is_cut_at_the_rectangle() {
        for (text, want) in [
            ("POINT (5 5)", Some("POINT (5 5)")),
            ("POINT (11 5)", None),
            ("MULTIPOINT ((5 5), (11 5))", Some("MULTIPOINT ((5 5))")),
            ("LINESTRING (-5 5, 15 5)", Some("LINESTRING (0 5, 10 5)")),
            ("LINESTRING (5 5, 5 15, 6 15, 6 5)", Some("MULTILINESTRING ((5 5, 5 10), (6 10, 6 5))")),
            ("LINESTRING (-5 5, -1 20)", None),
            ("POLYGON ((20 20, 30 20, 30 30, 20 20))", None),
        ] {
            assert_eq!(clipped(text).as_deref(), want, "{text}");
        }
        // A comb whose teeth reach in becomes as many surfaces, without the edges between them.
        let comb = "POLYGON ((20 0, 5 1, 20 2, 20 4, 5 5, 20 6, 20 0))";
        let cut = clipped(comb).unwrap();
        assert!(cut.starts_with("MULTIPOLYGON"), "{cut}");
        assert_eq!(cut.matches("((").count(), 2, "{cut}");
        assert!(
            clipped("POLYGON ((-5 -5, 15 -5, 15 15, -5 15, -5 -5), (2 2, 2 3, 3 3, 3 2, 2 2))")
                .unwrap()
                .contains("), (")
        );
    }
}
