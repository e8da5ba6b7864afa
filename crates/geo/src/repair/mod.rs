//! Making geometry valid.
//!
//! The method is the one that PostGIS and shapely call *linework*: take the edges of all rings as
//! a drawing, and keep what they enclose. Crossing an edge of the drawing once from the outside
//! leads in, crossing the next leads out; a doubled edge is one edge, and an edge that encloses
//! nothing changes nothing. So a bow tie becomes two triangles, a loop that runs twice around an
//! area leaves a hole, and a spike vanishes. In the words of the code: segments are cut where they
//! meet (`node`), faces are found (`graph`), those at odd depth are chosen and joined to
//! polygons (`assemble`).
//!
//! Why not an overlay library: the even-odd rule counts doubled edges twice, so that its area
//! differs from GEOS in 3 % of invalid inputs; and its integer grid moves the coordinates.
//!
//! The other method, *structure*, keeps what the rings say they are (`structure`): a shell covers
//! what it winds around, a hole takes away, and surfaces that overlap are joined.
//!
//! Where edges nearly coincide (within the last bits) a sliver lies between them, and crossing both
//! leads in and out again. `node` therefore follows GEOS in when it moves edges together;
//! `oracle/check_repair.py` counts where areas differ all the same.
//!
//! What has lost its area (a spike, a collapsed ring) is dropped and said so, where GEOS adds lines
//! to a collection: a layer of polygons stays a layer of polygons. Valid geometry is not touched.

mod assemble;
mod fit;
mod graph;
mod node;
mod small;
mod snap;
mod structure;

pub use fit::{Fit, fit};
pub use small::{close_rings, drop_repeated, extract, promote, wind};

use crate::limits::{WorkBound, WorkMeter};
use crate::validity::{Checker, Flaw, Point, Reason, edges_at_most};
use crate::wkb::{Cursor, Dim, Event, Shape, write};

/// How to make surfaces valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Take the edges as a drawing and keep what they enclose, as PostGIS and shapely do by default.
    #[default]
    Linework,
    /// Take shells as areas to cover and holes as areas to take away.
    Structure,
}

impl Method {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Method::Linework => "linework",
            Method::Structure => "structure",
        }
    }
}

/// What a repair did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Repaired {
    /// The area before, by the rule of the signed sum; after, as it is now.
    pub area: (f64, f64),
    /// The length of its lines before and after.
    pub length: (f64, f64),
    /// Whether heights and measures were dropped.
    pub flattened: bool,
    /// Whether rings had to be closed.
    pub closed: bool,
}

/// Why a geometry was left as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// It was valid.
    Valid,
    /// It is now valid.
    Repaired(Repaired),
    /// It cannot be made valid: this flaw stays.
    Hopeless(Flaw),
}

/// How often a result that rounding made invalid is treated again.
const TRIES_MAX: usize = 4;

/// Makes canonical well-known binary valid by its linework. See [`make_valid_by`].
pub fn make_valid(wkb: &[u8], checker: &mut Checker, out: &mut Vec<u8>) -> Outcome {
    make_valid_by(wkb, Method::Linework, checker, out)
}

/// Makes canonical well-known binary valid, appending the result to `out`. What was valid is
/// appended as it was, and so is what cannot be repaired, or not within the work that the checker may
/// do ([`Reason::TooCostly`]).
pub fn make_valid_by(wkb: &[u8], method: Method, checker: &mut Checker, out: &mut Vec<u8>) -> Outcome {
    checker.work.begin(edges_at_most(wkb));
    let Some(flaw) = checker.flaw_of(wkb) else {
        out.extend_from_slice(wkb);
        return Outcome::Valid;
    };
    if matches!(flaw.reason, Reason::InvalidCoordinate | Reason::NotWkb | Reason::TooCostly(_)) {
        out.extend_from_slice(wkb);
        return Outcome::Hopeless(flaw);
    }
    let mut first: Option<Repaired> = None;
    let mut now = wkb.to_vec();
    for _ in 0..TRIES_MAX {
        let mut next = Vec::with_capacity(now.len());
        let mut round = Repaired::default();
        if let Err(bound) = rebuild(&now, method, &mut next, &mut round, &mut checker.work) {
            out.extend_from_slice(wkb);
            return Outcome::Hopeless(Flaw { reason: Reason::TooCostly(bound), ..flaw });
        }
        now = next;
        // What was there before shows in the first round.
        let first = *first.get_or_insert(round);
        let (area, length) = ((first.area.0, round.area.1), (first.length.0, round.length.1));
        match checker.flaw_of(&now) {
            None => {
                out.extend_from_slice(&now);
                return Outcome::Repaired(Repaired { area, length, ..first });
            }
            Some(flaw) if flaw.reason == Reason::NotWkb => break,
            Some(flaw) if matches!(flaw.reason, Reason::TooCostly(_)) => {
                out.extend_from_slice(wkb);
                return Outcome::Hopeless(flaw);
            }
            Some(_) => {}
        }
    }
    out.extend_from_slice(wkb);
    Outcome::Hopeless(flaw)
}

/// Copies a geometry and rebuilds each surface in it, in two dimensions.
fn rebuild(
    wkb: &[u8],
    method: Method,
    out: &mut Vec<u8>,
    repaired: &mut Repaired,
    work: &mut WorkMeter,
) -> Result<(), WorkBound> {
    let mut cursor = Cursor::default();
    let mut open: Vec<(Shape, usize, usize)> = Vec::new();
    let mut polygons: Vec<Vec<Vec<Point>>> = Vec::new();
    let mut surface: Option<usize> = None;
    while let Ok(Some(event)) = cursor.next(wkb) {
        match event {
            Event::Begin { shape, dim, .. } => {
                repaired.flattened |= dim != Dim::Xy;
                if surface.is_none() {
                    if let Some((_, count, _)) = open.last_mut() {
                        *count += 1;
                    }
                    if matches!(shape, Shape::Polygon | Shape::MultiPolygon) {
                        surface = Some(open.len());
                        polygons.clear();
                    } else {
                        write::begin(out, shape, Dim::Xy);
                    }
                }
                if shape == Shape::Polygon {
                    polygons.push(Vec::new());
                }
                let counted = surface.is_none() && !matches!(shape, Shape::Point | Shape::LineString);
                let hole = if counted { write::hole(out) } else { 0 };
                open.push((shape, 0, hole));
            }
            Event::Coords(run) => {
                let mut line: Vec<Point> = run.xy(wkb).map(|(x, y)| [x, y]).collect();
                if surface.is_some() {
                    if line.first() != line.last() {
                        line.extend(line.first().copied());
                        repaired.closed = true;
                    }
                    polygons.last_mut().into_iter().for_each(|rings| rings.push(std::mem::take(&mut line)));
                } else {
                    copy_run(&line, open.last().map(|level| level.0), out, repaired);
                }
            }
            Event::End(shape) => {
                let level = open.pop();
                if surface == Some(open.len()) {
                    surface = None;
                    write_surface(&polygons, method, shape, out, repaired, work)?;
                } else if let (None, Some((shape, count, hole))) = (surface, level)
                    && !matches!(shape, Shape::Point | Shape::LineString)
                {
                    write::fill(out, hole, count);
                }
            }
        }
    }
    Ok(())
}

/// The signed area of a closed ring, positive if counter-clockwise.
pub(crate) fn ring_area(ring: &[Point]) -> f64 {
    graph::double_area(ring) / 2.0
}

/// A line that is only one place has no length: it becomes empty.
fn copy_run(line: &[Point], shape: Option<Shape>, out: &mut Vec<u8>, repaired: &mut Repaired) {
    let is_line = shape != Some(Shape::Point);
    let keep = !is_line || line.iter().any(|p| Some(p) != line.first());
    let line = if keep { line } else { &[] };
    let edges = line.iter().zip(line.iter().skip(1));
    let length: f64 = edges.map(|(a, b)| f64::hypot(b[0] - a[0], b[1] - a[1])).sum();
    // A line that is dropped has no length.
    repaired.length.0 += length;
    repaired.length.1 += length;
    if is_line {
        write::count(out, line.len());
    }
    for p in line {
        write::position(out, p);
    }
}

fn write_surface(
    given: &[Vec<Vec<Point>>],
    method: Method,
    shape: Shape,
    out: &mut Vec<u8>,
    repaired: &mut Repaired,
    work: &mut WorkMeter,
) -> Result<(), WorkBound> {
    let edges = |(number, ring): (usize, &Vec<Point>)| {
        let edges = ring.windows(2).filter_map(|w| Some((*w.first()?, *w.last()?)));
        edges.map(|edge| (edge, number)).collect::<Vec<_>>()
    };
    let (segments, rings): (Vec<_>, Vec<_>) = given.iter().flatten().enumerate().flat_map(edges).unzip();
    let pieces = node::node(&segments, work)?.into_iter();
    let pieces = pieces.filter_map(|(piece, source)| Some((piece, *rings.get(source)?)));
    let graph = graph::Graph::new(pieces, work)?;
    let chosen: Vec<bool> = match method {
        Method::Linework => graph.depths().iter().map(|depth| depth % 2 == 1).collect(),
        Method::Structure => structure::chosen(&graph, given, work)?,
    };
    let polygons = assemble::polygons(&graph, |face| chosen.get(face).copied().unwrap_or(false), work)?;
    let signed = |ring: &Vec<Point>| graph::double_area(ring) / 2.0;
    repaired.area.0 += given.iter().flatten().map(signed).sum::<f64>().abs();
    repaired.area.1 += polygons.iter().flatten().map(|ring| graph::double_area(ring) / 2.0).sum::<f64>();
    if let ([polygon], Shape::Polygon) = (polygons.as_slice(), shape) {
        write_polygon(polygon, out);
        return Ok(());
    }
    if polygons.is_empty() {
        write::begin(out, shape, Dim::Xy);
        write::count(out, 0);
        return Ok(());
    }
    write::begin(out, Shape::MultiPolygon, Dim::Xy);
    write::count(out, polygons.len());
    for polygon in &polygons {
        write_polygon(polygon, out);
    }
    Ok(())
}

fn write_polygon(polygon: &[Vec<Point>], out: &mut Vec<u8>) {
    write::begin(out, Shape::Polygon, Dim::Xy);
    write::count(out, polygon.len());
    for ring in polygon {
        write::count(out, ring.len());
        for p in ring {
            write::position(out, p);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RecordLimits;

    fn repaired(text: &str) -> String {
        let (mut wkb, mut out) = (Vec::new(), Vec::new());
        crate::wkt::read(text, &mut wkb).unwrap();
        match make_valid(&wkb, &mut Checker::default(), &mut out) {
            Outcome::Hopeless(flaw) => flaw.to_string(),
            _ => crate::wkt::to_string(&out),
        }
    }

    #[test]
    fn valid_geometry_is_not_touched() {
        for text in ["POINT Z (1 2 3)", "POLYGON ((0 0, 0 4, 4 4, 0 0))", "LINESTRING (0 0, 2 2, 2 0, 0 2)"] {
            assert_eq!(repaired(text), text);
        }
    }

    /// A star with every second corner far away, whose edges all cross.
    fn star(corners: u32) -> String {
        let place = |i: u32| {
            let turn = f64::from(i * (corners / 2) % corners) / f64::from(corners) * std::f64::consts::TAU;
            format!("{} {}", turn.cos() * 1000.0, turn.sin() * 1000.0)
        };
        let ring: Vec<String> = (0..corners).chain([0]).map(place).collect();
        format!("POLYGON (({}))", ring.join(", "))
    }

    #[test]
    fn a_star_is_repaired_or_given_up_and_never_the_end() {
        assert!(repaired(&star(31)).starts_with("MULTIPOLYGON"));
        let mut wkb = Vec::new();
        crate::wkt::read(&star(10_001), &mut wkb).unwrap();
        let mut out = Vec::new();
        let outcome = make_valid(&wkb, &mut Checker::default(), &mut out);
        let Outcome::Hopeless(flaw) = outcome else { panic!("{outcome:?}") };
        assert_eq!(flaw.reason.code(), tidegate_core::Code::REPAIR_TOO_COSTLY);
        assert_eq!(out, wkb, "as it was");
        let said = flaw.to_string();
        assert!(said.contains("`limits.work_steps` is 25000000") && said.contains("crossings"), "{said}");
        // The bound holds for the checks of a repair too, and can be set.
        out.clear();
        let few = RecordLimits { work_steps_max: 0, ..RecordLimits::default() };
        crate::wkt::read(&star(31), &mut wkb).unwrap();
        let outcome = make_valid(&wkb[wkb.len() / 2..], &mut Checker::within(&few), &mut out);
        assert!(matches!(outcome, Outcome::Hopeless(_)), "{outcome:?}");
    }

    /// Shapes whose parts are many and simple: the work grows with them, and not with their square.
    #[test]
    fn many_parts_are_repaired_within_the_work_that_their_edges_are_good_for() {
        let few = RecordLimits { work_steps_max: 100_000, ..RecordLimits::default() };
        let square = |x: f64, y: f64, s: f64| {
            format!("{x} {y}, {} {y}, {} {}, {x} {}, {x} {y}", x + s, x + s, y + s, y + s)
        };
        let bow = |x: f64, y: f64| {
            format!("{x} {y}, {} {}, {} {y}, {x} {}, {x} {y}", x + 1.0, y + 1.0, x + 1.0, y + 1.0)
        };
        let at = |n: i32| (f64::from(n % 60) * 3.0, f64::from(n / 60) * 3.0);
        let bows: Vec<String> = (0..3600).map(|n| format!("(({}))", bow(at(n).0, at(n).1))).collect();
        let holes: Vec<String> = (0..3600).map(|n| format!("({})", square(at(n).0, at(n).1, 1.0))).collect();
        let same: Vec<String> = (0..2000).map(|_| format!("(({}))", bow(0.0, 0.0))).collect();
        for text in [
            format!("MULTIPOLYGON ({})", bows.join(", ")),
            format!("POLYGON (({}), {}, ({}))", square(-9.0, -9.0, 300.0), holes.join(", "), bow(-5.0, -5.0)),
            format!("MULTIPOLYGON ({})", same.join(", ")),
        ] {
            let (mut wkb, mut out) = (Vec::new(), Vec::new());
            crate::wkt::read(&text, &mut wkb).unwrap();
            for method in [Method::Linework, Method::Structure] {
                out.clear();
                let outcome = make_valid_by(&wkb, method, &mut Checker::within(&few), &mut out);
                assert!(matches!(outcome, Outcome::Repaired(_)), "{method:?} {}: {outcome:?}", &text[..40]);
            }
        }
    }

    #[test]
    fn the_classic_cases() {
        for (text, want) in [
            (
                "POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))",
                "MULTIPOLYGON (((0 2, 0 0, 1 1, 0 2)), ((1 1, 2 0, 2 2, 1 1)))",
            ),
            ("POLYGON ((0 0, 4 0, 4 4, 0 4))", "POLYGON ((0 4, 0 0, 4 0, 4 4, 0 4))"),
            ("POLYGON ((0 0, 4 0, 6 0, 4 0, 4 4, 0 4, 0 0))", "POLYGON ((0 4, 0 0, 4 0, 4 4, 0 4))"),
            (
                "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0), (5 5, 6 5, 6 6, 5 6, 5 5))",
                "MULTIPOLYGON (((5 6, 5 5, 6 5, 6 6, 5 6)), ((0 4, 0 0, 4 0, 4 4, 0 4)))",
            ),
            (
                "POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), (1 1, 8 1, 8 8, 1 8, 1 1), (2 2, 3 2, 3 3, 2 3, 2 2))",
                "MULTIPOLYGON (((2 3, 2 2, 3 2, 3 3, 2 3)), ((0 9, 0 0, 9 0, 9 9, 0 9), (1 1, 1 8, 8 8, 8 1, 1 1)))",
            ),
            ("POLYGON ((0 0, 1 1, 2 2, 0 0))", "POLYGON EMPTY"),
            ("LINESTRING (1 1, 1 1)", "LINESTRING EMPTY"),
            ("POLYGON ((0 0, inf 0, 4 4, 0 0))", "Invalid Coordinate[inf 0]"),
            (
                "GEOMETRYCOLLECTION (POINT (1 1), POLYGON ((0 0, 4 0, 6 0, 4 0, 4 4, 0 4, 0 0)))",
                "GEOMETRYCOLLECTION (POINT (1 1), POLYGON ((0 4, 0 0, 4 0, 4 4, 0 4)))",
            ),
        ] {
            assert_eq!(repaired(text), want, "{text}");
        }
    }
}
