//! Repairs of coordinates, on the GeoJSON of the payload.

use serde_json::{Value, json};

/// A coordinate: x and y.
type Coordinate = [f64; 2];

/// Calls `change` with every list of positions of a geometry and, for a ring, its index in the
/// polygon.
fn each_line(geometry: &mut Value, change: &mut impl FnMut(&mut Vec<Value>, Option<usize>)) {
    if let Some(parts) = geometry.get_mut("geometries").and_then(Value::as_array_mut) {
        return parts.iter_mut().for_each(|part| each_line(part, change));
    }
    let kind = geometry.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(list) = geometry.get_mut("coordinates").and_then(Value::as_array_mut) else { return };
    let mut rings = |polygon: &mut Value| {
        let rings = polygon.as_array_mut().into_iter().flatten();
        for (n, ring) in rings.enumerate() {
            ring.as_array_mut().into_iter().for_each(|ring| change(ring, Some(n)));
        }
    };
    match kind.as_str() {
        "Polygon" => {
            let mut polygon = Value::Array(std::mem::take(list));
            rings(&mut polygon);
            geometry["coordinates"] = polygon;
        }
        "MultiPolygon" => list.iter_mut().for_each(rings),
        "LineString" | "MultiPoint" => change(list, None),
        "MultiLineString" => list.iter_mut().filter_map(Value::as_array_mut).for_each(|l| change(l, None)),
        // A point is wrapped in a list of one position for the call.
        "Point" => {
            let mut one = vec![Value::Array(std::mem::take(list))];
            change(&mut one, None);
            geometry["coordinates"] = one.pop().unwrap_or(Value::Null);
        }
        _ => {}
    }
}

fn xy(position: &Value) -> Option<Coordinate> {
    Some([position.get(0)?.as_f64()?, position.get(1)?.as_f64()?])
}

/// Swaps latitude and longitude; returns the number of positions.
pub(super) fn swap_axes(geometry: &mut Value) -> u64 {
    let mut count = 0;
    each_line(geometry, &mut |line, _| {
        for position in line.iter_mut().filter_map(Value::as_array_mut) {
            if position.len() >= 2 {
                position.swap(0, 1);
                count += 1;
            }
        }
    });
    count
}

/// Closes open rings; returns their number.
pub(super) fn close_rings(geometry: &mut Value) -> u64 {
    let mut count = 0;
    each_line(geometry, &mut |line, ring| {
        if ring.is_some()
            && line.len() >= 3
            && line.first() != line.last()
            && let Some(first) = line.first().cloned()
        {
            line.push(first);
            count += 1;
        }
    });
    count
}

/// Makes shells counter-clockwise and holes clockwise (RFC 7946); returns the number of reversed
/// rings.
pub(super) fn wind(geometry: &mut Value) -> u64 {
    let mut count = 0;
    each_line(geometry, &mut |line, ring| {
        let points: Vec<Coordinate> = line.iter().filter_map(xy).collect();
        let Some(n) = ring else { return };
        let area: f64 = points
            .windows(2)
            .filter_map(|w| Some((w.first()?, w.last()?)))
            .map(|(a, b)| a[0] * b[1] - b[0] * a[1])
            .sum();
        if area != 0.0 && (area > 0.0) != (n == 0) {
            line.reverse();
            count += 1;
        }
    });
    count
}

/// Clips a geometry to a bounding box (west, south, east, north); `None` if nothing is left.
/// Clipped rings may need to be made valid afterwards.
pub(super) fn clip(geometry: &Value, bbox: [f64; 4]) -> Option<Value> {
    let kind = geometry.get("type")?.as_str()?;
    let coordinates = geometry.get("coordinates");
    let points = |value: &Value| -> Vec<Coordinate> {
        value.as_array().into_iter().flatten().filter_map(xy).collect()
    };
    let lines = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let polygon = |value: &Value| -> Option<Vec<Vec<Coordinate>>> {
        let rings: Vec<Vec<Coordinate>> =
            lines(value).iter().map(|ring| clip_ring(&points(ring), bbox)).collect();
        rings
            .first()
            .is_some_and(|shell| shell.len() >= 4)
            .then(|| rings.into_iter().filter(|ring| ring.len() >= 4).collect())
    };
    match kind {
        "Point" => xy(coordinates?).filter(|p| within(*p, bbox)).map(|_| geometry.clone()),
        "MultiPoint" => {
            let kept: Vec<Coordinate> =
                points(coordinates?).into_iter().filter(|p| within(*p, bbox)).collect();
            (!kept.is_empty()).then(|| json!({ "type": "MultiPoint", "coordinates": kept }))
        }
        "LineString" | "MultiLineString" => {
            let all = if kind == "LineString" { vec![coordinates?.clone()] } else { lines(coordinates?) };
            let kept: Vec<Vec<Coordinate>> =
                all.iter().flat_map(|line| clip_line(&points(line), bbox)).collect();
            match kept.as_slice() {
                [] => None,
                [one] => Some(json!({ "type": "LineString", "coordinates": one })),
                many => Some(json!({ "type": "MultiLineString", "coordinates": many })),
            }
        }
        "Polygon" => polygon(coordinates?).map(|rings| json!({ "type": "Polygon", "coordinates": rings })),
        "MultiPolygon" => {
            let kept: Vec<_> = lines(coordinates?).iter().filter_map(polygon).collect();
            (!kept.is_empty()).then(|| json!({ "type": "MultiPolygon", "coordinates": kept }))
        }
        "GeometryCollection" => {
            let parts = geometry.get("geometries")?.as_array()?;
            let kept: Vec<Value> = parts.iter().filter_map(|part| clip(part, bbox)).collect();
            (!kept.is_empty()).then(|| json!({ "type": "GeometryCollection", "geometries": kept }))
        }
        _ => None,
    }
}

fn within(p: Coordinate, [w, s, e, n]: [f64; 4]) -> bool {
    (w..=e).contains(&p[0]) && (s..=n).contains(&p[1])
}

/// The sides of the box: the axis, its limit, and whether greater values are inside.
fn sides([w, s, e, n]: [f64; 4]) -> [(usize, f64, bool); 4] {
    [(0, w, true), (1, s, true), (0, e, false), (1, n, false)]
}

fn at(p: Coordinate, axis: usize) -> f64 {
    if axis == 0 { p[0] } else { p[1] }
}

/// The intersection of the segment a–b with a side.
fn cross(a: Coordinate, b: Coordinate, axis: usize, border: f64) -> Coordinate {
    let t = (border - at(a, axis)) / (at(b, axis) - at(a, axis));
    let mut p = [a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t];
    if axis == 0 {
        p[0] = border;
    } else {
        p[1] = border;
    }
    p
}

/// Clips a closed ring, one side of the box after another.
fn clip_ring(ring: &[Coordinate], bbox: [f64; 4]) -> Vec<Coordinate> {
    let mut ring = ring.to_vec();
    if ring.len() > 1 && ring.first() == ring.last() {
        ring.pop();
    }
    for (axis, border, greater) in sides(bbox) {
        let inside = |p: Coordinate| if greater { at(p, axis) >= border } else { at(p, axis) <= border };
        let mut next = Vec::with_capacity(ring.len() + 4);
        let mut before = ring.last().copied();
        for p in ring {
            if let Some(before) = before
                && inside(before) != inside(p)
            {
                next.push(cross(before, p, axis, border));
            }
            if inside(p) {
                next.push(p);
            }
            before = Some(p);
        }
        next.dedup();
        ring = next;
    }
    ring.extend(ring.first().copied());
    ring
}

/// The parts of a line inside the box.
fn clip_line(line: &[Coordinate], bbox: [f64; 4]) -> Vec<Vec<Coordinate>> {
    let mut pieces: Vec<Vec<Coordinate>> = vec![line.to_vec()];
    for (axis, border, greater) in sides(bbox) {
        let inside = |p: Coordinate| if greater { at(p, axis) >= border } else { at(p, axis) <= border };
        let mut next: Vec<Vec<Coordinate>> = Vec::new();
        for piece in pieces {
            let mut open: Vec<Coordinate> = Vec::new();
            let mut before: Option<Coordinate> = None;
            for p in piece {
                if let Some(before) = before
                    && inside(before) != inside(p)
                {
                    open.push(cross(before, p, axis, border));
                }
                if inside(p) {
                    open.push(p);
                } else if !open.is_empty() {
                    next.push(std::mem::take(&mut open));
                }
                before = Some(p);
            }
            next.push(open);
        }
        next.iter_mut().for_each(Vec::dedup);
        next.retain(|piece| piece.len() >= 2);
        pieces = next;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOX: [f64; 4] = [0.0, 0.0, 10.0, 10.0];

    #[test]
    fn what_lies_in_the_box_is_kept() {
        let ring = json!({"type":"Polygon","coordinates":[[[5,5],[15,5],[15,8],[5,8],[5,5]]]});
        let want =
            json!({"type":"Polygon","coordinates":[[[5.0,5.0],[10.0,5.0],[10.0,8.0],[5.0,8.0],[5.0,5.0]]]});
        assert_eq!(clip(&ring, BOX), Some(want));
        let line = json!({"type":"LineString","coordinates":[[-5,5],[5,5],[5,15],[7,15],[7,5]]});
        let want = json!({"type":"MultiLineString","coordinates":[[[0.0,5.0],[5.0,5.0],[5.0,10.0]],[[7.0,10.0],[7.0,5.0]]]});
        assert_eq!(clip(&line, BOX), Some(want));
        assert_eq!(clip(&json!({"type":"Point","coordinates":[11, 5]}), BOX), None);
        assert_eq!(
            clip(&json!({"type":"MultiPoint","coordinates":[[11,5],[1,1]]}), BOX),
            Some(json!({"type":"MultiPoint","coordinates":[[1.0,1.0]]}))
        );
    }

    #[test]
    fn small_repairs() {
        let mut open = json!({"type":"Polygon","coordinates":[[[0,0],[4,0],[4,4]]]});
        assert_eq!((close_rings(&mut open), close_rings(&mut open)), (1, 0));
        assert_eq!(open["coordinates"][0].as_array().map(Vec::len), Some(4));
        let mut clockwise = json!({"type":"MultiPolygon","coordinates":[[[[0,0],[0,4],[4,4],[0,0]]]]});
        assert_eq!((wind(&mut clockwise), wind(&mut clockwise)), (1, 0));
        let mut point = json!({"type":"Point","coordinates":[48.2, 16.3]});
        assert_eq!(swap_axes(&mut point), 1);
        assert_eq!(point, json!({"type":"Point","coordinates":[16.3, 48.2]}));
    }

    proptest! {
        #[test]
        fn nothing_of_a_clipped_ring_lies_outside(
            ring in prop::collection::vec(prop::array::uniform2(-20.0f64..20.0), 3..12)
        ) {
            for p in clip_ring(&ring, BOX) {
                prop_assert!(within(p, BOX), "{p:?}");
            }
            for p in clip_line(&ring, BOX).into_iter().flatten() {
                prop_assert!(within(p, BOX), "{p:?}");
            }
        }
    }
}
