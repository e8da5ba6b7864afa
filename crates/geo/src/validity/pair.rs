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
pub(crate) fn crossing(a: Point, b: Point, c: Point, d: Point) -> Point {
    let along = |from: Point, to: Point| [0, 1].map(|i| Double::difference(to[i], from[i]));
    let cross = |p: [Double; 2], q: [Double; 2]| p[0].times(q[1]).minus(p[1].times(q[0]));
    let (ab, cd, ac) = (along(a, b), along(c, d), along(a, c));
    let share = cross(ac, cd).over(cross(ab, cd));
    let at = [0, 1].map(|i| share.times(ab[i]).plus(a[i]).high);
    // Rounding must not leave the boxes of the segments, else cutting would never end.
    [0, 1].map(|i| {
        let low = a[i].min(b[i]).max(c[i].min(d[i]));
        let high = a[i].max(b[i]).min(c[i].max(d[i]));
        if low <= high { at[i].clamp(low, high) } else { at[i] }
    })
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
