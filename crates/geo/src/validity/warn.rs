//! What is valid and still looks wrong: repeated positions, spikes, tiny rings, coarse coordinates,
//! lines that meet themselves.
//!
//! None of these makes a geometry invalid, and each has honest uses; so they are warnings with a
//! place, and the thresholds are the caller's.

use std::fmt;

use super::{NotSimple, Point, is_simple};
use crate::limits::RecordLimits;
use crate::wkb::{Cursor, Event, Shape};

/// What looks wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Concern {
    /// A position repeats the one before.
    RepeatedPosition,
    /// A line goes out and back again, or nearly so.
    Spike,
    /// A ring that encloses next to nothing.
    TinyRing,
    /// A position of which both coordinates have too few decimals.
    CoarsePosition,
    /// A line meets itself.
    NotSimple,
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Concern::RepeatedPosition => "Repeated position",
            Concern::Spike => "Spike",
            Concern::TinyRing => "Tiny ring",
            Concern::CoarsePosition => "Coarse position",
            Concern::NotSimple => "Not simple",
        })
    }
}

/// What looks wrong, and where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warning {
    /// What.
    pub concern: Concern,
    /// Where.
    pub x: f64,
    /// Where.
    pub y: f64,
}

/// From when on to warn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Decimals that a coordinate must have; one of both may have fewer, because real numbers may
    /// end in zeros. None by default.
    pub decimals_min: Option<u8>,
    /// A corner sharper than this, in degrees, is a spike.
    pub spike_degrees: f64,
    /// A ring of less area than this, in square units, is tiny.
    pub ring_area_min: f64,
    /// Whether to look for lines that meet themselves.
    pub simple: bool,
}

impl Limits {
    /// The usual ones: spikes of half a degree, rings of a tenth of a square metre.
    #[must_use]
    pub fn usual(in_degrees: bool) -> Limits {
        Limits {
            decimals_min: None,
            spike_degrees: 0.5,
            ring_area_min: if in_degrees { 1e-11 } else { 0.1 },
            simple: true,
        }
    }
}

/// How many warnings one geometry gives.
const PER_GEOMETRY_MAX: usize = 100;

/// Adds the warnings of canonical well-known binary. Lines of which it would be too much work to say whether they
/// meet themselves pass.
pub fn warnings(wkb: &[u8], limits: &Limits, out: &mut Vec<Warning>) {
    let room = out.len() + PER_GEOMETRY_MAX;
    let mut cursor = Cursor::default();
    let mut open: Vec<Shape> = Vec::new();
    let mut has_lines = false;
    while let Ok(Some(event)) = cursor.next(wkb) {
        match event {
            Event::Begin { shape, .. } => {
                has_lines |= shape == Shape::LineString;
                open.push(shape);
            }
            Event::End(_) => {
                open.pop();
            }
            Event::Coords(run) => {
                let positions: Vec<Point> = run.xy(wkb).map(|(x, y)| [x, y]).collect();
                coarse(&positions, limits, out);
                if open.last() != Some(&Shape::Point) {
                    path(&positions, open.last() == Some(&Shape::Polygon), limits, out);
                }
            }
        }
        out.truncate(room);
    }
    if limits.simple
        && has_lines
        && let Err(NotSimple::At(x, y)) = is_simple(wkb, &RecordLimits::default())
    {
        out.push(Warning { concern: Concern::NotSimple, x, y });
    }
}

fn path(positions: &[Point], is_ring: bool, limits: &Limits, out: &mut Vec<Warning>) {
    let mut warn = |concern, at: Point| out.push(Warning { concern, x: at[0], y: at[1] });
    for (a, b) in positions.iter().zip(positions.iter().skip(1)) {
        if a == b {
            warn(Concern::RepeatedPosition, *b);
        }
    }
    let mut plain = positions.to_vec();
    plain.dedup();
    let sharp = limits.spike_degrees.to_radians().cos();
    let corners =
        plain.iter().zip(plain.iter().skip(1)).zip(plain.iter().skip(2)).map(|((a, b), c)| (a, b, c));
    // The corner where a ring closes is one too.
    let closing = match plain.as_slice() {
        [first, second, .., before, last] if is_ring && first == last => Some((before, first, second)),
        _ => None,
    };
    for (a, b, c) in corners.chain(closing) {
        let (ux, uy, vx, vy) = (a[0] - b[0], a[1] - b[1], c[0] - b[0], c[1] - b[1]);
        let cosine = (ux * vx + uy * vy) / (f64::hypot(ux, uy) * f64::hypot(vx, vy));
        if cosine > sharp {
            warn(Concern::Spike, *b);
        }
    }
    if is_ring
        && let Some(first) = plain.first()
        && crate::repair::ring_area(positions).abs() < limits.ring_area_min
    {
        warn(Concern::TinyRing, *first);
    }
}

fn coarse(positions: &[Point], limits: &Limits, out: &mut Vec<Warning>) {
    let Some(least) = limits.decimals_min else { return };
    let few = |x: f64| x.is_finite() && decimals(x) < usize::from(least);
    if let Some(p) = positions.iter().find(|p| few(p[0]) && few(p[1])) {
        out.push(Warning { concern: Concern::CoarsePosition, x: p[0], y: p[1] });
    }
}

/// How many decimals the shortest spelling of a number has.
fn decimals(x: f64) -> usize {
    let text = format!("{x}");
    text.split_once('.').map_or(0, |(_, decimals)| decimals.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, limits: &Limits) -> Vec<String> {
        let (mut wkb, mut out) = (Vec::new(), Vec::new());
        crate::wkt::read(text, &mut wkb).unwrap();
        warnings(&wkb, limits, &mut out);
        out.iter().map(|w| format!("{} {} {}", w.concern, w.x, w.y)).collect()
    }

    #[test]
    fn each_concern_is_told_with_its_place() {
        let limits = Limits { decimals_min: Some(2), ..Limits::usual(true) };
        for (text, want) in [
            ("POINT (1.25 3)", &[][..]),
            ("POINT (1.5 3)", &["Coarse position 1.5 3"]),
            ("POINT EMPTY", &[]),
            ("LINESTRING (0.25 0.25, 0.25 0.25, 1.25 1.25)", &["Repeated position 0.25 0.25"]),
            ("LINESTRING (0.25 0.25, 1.25 1.25, 0.75 0.75)", &["Spike 1.25 1.25", "Not simple 1.25 1.25"]),
            ("LINESTRING (0.25 0.25, 1.25 1.25, 1.25 0.25, 0.25 1.25)", &["Not simple 0.75 0.75"]),
            (
                "POLYGON ((0.01 0.01, 9.01 0.01, 9.01 9.01, 0.01 0.01), (5.01 2.01, 5.010001 2.010001, 5.010001 2.01, 5.01 2.01))",
                &["Tiny ring 5.01 2.01"],
            ),
            ("POLYGON ((0.01 0.01, 9.01 0.01, 9.01 0.02, 0.01 0.01))", &["Spike 0.01 0.01"]),
        ] {
            assert_eq!(told(text, &limits), want, "{text}");
        }
    }
}
