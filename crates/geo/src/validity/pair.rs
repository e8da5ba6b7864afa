//! How two segments meet.

use super::Point;
use super::double::Double;
use super::side::side;

/// How two segments meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Meeting {
    /// Not at all.
    Apart,
    /// In one point, which is an end of at least one of them.
    Vertex(Point),
    /// In one point inside both.
    Cross,
    /// Along a piece of line.
    Overlap(Point),
}

/// How the segments from `a` to `b` and from `c` to `d` meet.
#[inline]
pub(crate) fn meeting(a: Point, b: Point, c: Point, d: Point) -> Meeting {
    let apart = |i: usize| a[i].max(b[i]) < c[i].min(d[i]) || c[i].max(d[i]) < a[i].min(b[i]);
    if apart(0) || apart(1) {
        return Meeting::Apart;
    }
    let (side_c, side_d) = (side(a, b, c), side(a, b, d));
    if (side_c > 0.0 && side_d > 0.0) || (side_c < 0.0 && side_d < 0.0) {
        return Meeting::Apart;
    }
    let (side_a, side_b) = (side(c, d, a), side(c, d, b));
    if (side_a > 0.0 && side_b > 0.0) || (side_a < 0.0 && side_b < 0.0) {
        return Meeting::Apart;
    }
    if side_c == 0.0 && side_d == 0.0 && side_a == 0.0 && side_b == 0.0 {
        return along_one_line(a, b, c, d);
    }
    if side_c != 0.0 && side_d != 0.0 && side_a != 0.0 && side_b != 0.0 {
        return Meeting::Cross;
    }
    Meeting::Vertex(if a == c || a == d {
        a
    } else if b == c || b == d {
        b
    } else if side_c == 0.0 {
        c
    } else if side_d == 0.0 {
        d
    } else if side_a == 0.0 {
        a
    } else {
        b
    })
}

fn along_one_line(a: Point, b: Point, c: Point, d: Point) -> Meeting {
    let within =
        |p: Point, a: Point, b: Point| (0..2).all(|i| a[i].min(b[i]) <= p[i] && p[i] <= a[i].max(b[i]));
    let mut met: Option<Point> = None;
    for (p, held) in [(c, within(c, a, b)), (d, within(d, a, b)), (a, within(a, c, d)), (b, within(b, c, d))]
    {
        if !held {
            continue;
        }
        match met {
            Some(other) if other != p => return Meeting::Overlap(other),
            _ => met = Some(p),
        }
    }
    met.map_or(Meeting::Apart, Meeting::Vertex)
}

/// Where two crossing segments cross, to the nearest double or close to it.
///
/// Both lines in homogeneous coordinates, in double-double arithmetic: so GEOS does it, and the same
/// bits make the same drawing. Segments that are nearly parallel can have no such place within both
/// their boxes; then the end that lies nearest to the other segment takes its part.
pub(crate) fn crossing(a: Point, b: Point, c: Point, d: Point) -> Point {
    let line = |p: Point, q: Point| {
        let across = Double::product(p[0], q[1]).minus(Double::product(q[0], p[1]));
        [Double::difference(p[1], q[1]), Double::difference(q[0], p[0]), across]
    };
    let ([px, py, pw], [qx, qy, qw]) = (line(a, b), line(c, d));
    let x = py.times(qw).minus(qy.times(pw));
    let y = qx.times(pw).minus(px.times(qw));
    let w = px.times(qy).minus(qx.times(py));
    let at = [x.over(w).rounded(), y.over(w).rounded()];
    let within = |p: Point, q: Point| (0..2).all(|i| p[i].min(q[i]) <= at[i] && at[i] <= p[i].max(q[i]));
    if within(a, b) && within(c, d) {
        return at;
    }
    let ends =
        [(a, distance(a, c, d)), (b, distance(b, c, d)), (c, distance(c, a, b)), (d, distance(d, a, b))];
    ends.into_iter().reduce(|best, end| if end.1 < best.1 { end } else { best }).map_or(at, |(end, _)| end)
}

/// How far a place lies from a segment.
pub(crate) fn distance(p: Point, a: Point, b: Point) -> f64 {
    let (along, to) = ([b[0] - a[0], b[1] - a[1]], [p[0] - a[0], p[1] - a[1]]);
    let square = along[0] * along[0] + along[1] * along[1];
    let share = (to[0] * along[0] + to[1] * along[1]) / square;
    if share > 0.0 && share < 1.0 {
        ((to[0] * along[1] - to[1] * along[0]) / square).abs() * square.sqrt()
    } else {
        let end = if share >= 1.0 { b } else { a };
        f64::hypot(p[0] - end[0], p[1] - end[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_meet() {
        let o = [0.0, 0.0];
        for (b, c, d, want) in [
            ([2.0, 2.0], [0.0, 2.0], [2.0, 0.0], Meeting::Cross),
            ([2.0, 2.0], [1.0, 1.0], [2.0, 0.0], Meeting::Vertex([1.0, 1.0])),
            ([2.0, 2.0], [2.0, 2.0], [3.0, 0.0], Meeting::Vertex([2.0, 2.0])),
            ([2.0, 2.0], [2.0, 2.0], [3.0, 3.0], Meeting::Vertex([2.0, 2.0])),
            ([2.0, 2.0], [1.0, 1.0], [3.0, 3.0], Meeting::Overlap([1.0, 1.0])),
            ([2.0, 2.0], [3.0, 3.0], [4.0, 4.0], Meeting::Apart),
            ([2.0, 2.0], [1.0, 0.0], [2.0, 1.0], Meeting::Apart),
        ] {
            assert_eq!(meeting(o, b, c, d), want, "{b:?} {c:?} {d:?}");
        }
    }
}
