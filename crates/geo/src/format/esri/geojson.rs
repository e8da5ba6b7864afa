//! Converting ESRI JSON geometries to GeoJSON text, in which pages of a service are stored.

use super::geometry::{Flags, write_with};
use crate::error::Problem;
use crate::format::geojson;
use crate::wkb::{self, Dim, Shape};

/// Which numbers the positions of a feature set have, as far as it says.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetFlags {
    /// Its member `hasZ`.
    pub has_z: Option<bool>,
    /// Its member `hasM`.
    pub has_m: Option<bool>,
}

/// Appends a geometry as GeoJSON, `null` if there is none or it is empty. A single line or surface is not
/// written as a multi shape. Measures, which GeoJSON cannot say, are left out; a third number without a
/// flag is a height, as GDAL has it.
///
/// # Errors
/// What is wrong with the geometry. Nothing is appended then.
pub fn write_geojson(text: &[u8], set: SetFlags, out: &mut Vec<u8>) -> Result<(), Problem> {
    let dim = |said: Flags| {
        let (z, m) = (said.z.or(set.has_z), said.m.or(set.has_m));
        Dim::new(z == Some(true) || (m != Some(true) && said.size > 2), false)
    };
    let mut found = Vec::new();
    write_with(text, dim, false, &mut found)?;
    match wkb::head(&found) {
        None => out.extend_from_slice(b"null"),
        Some((Shape::Point, _)) if wkb::is_empty(&found) => out.extend_from_slice(b"null"),
        Some((shape, _)) => {
            let single = matches!(shape, Shape::MultiLineString | Shape::MultiPolygon);
            let wkb = wkb::only_part(&found).filter(|_| single).unwrap_or(&found);
            let start = out.len();
            geojson::geometry(wkb, out).inspect_err(|_| out.truncate(start))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn geojson_with(value: Value, set: SetFlags) -> Value {
        let mut out = Vec::new();
        write_geojson(value.to_string().as_bytes(), set, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    fn geojson(value: Value) -> Value {
        geojson_with(value, SetFlags::default())
    }

    fn square(x: i64, side: i64, clockwise: bool) -> Value {
        let mut ring = vec![[x, x], [x + side, x], [x + side, x + side], [x, x + side], [x, x]];
        if clockwise {
            ring.reverse();
        }
        json!(ring)
    }

    #[test]
    fn rings_find_their_polygons() {
        let rings = json!({"rings": [square(1, 2, false), square(0, 10, true), square(20, 5, true), square(21, 1, false)]});
        let made = geojson(rings);
        assert_eq!(made["type"], "MultiPolygon");
        let counts: Vec<usize> =
            made["coordinates"].as_array().unwrap().iter().map(|p| p.as_array().unwrap().len()).collect();
        assert_eq!(counts, [2, 2]);
        assert_eq!(made["coordinates"][0][0], square(0, 10, false), "outer rings leave counter-clockwise");
        assert_eq!(made["coordinates"][0][1], square(1, 2, true));
        assert_eq!(geojson(json!({"rings": [square(0, 1, false)]}))["type"], "Polygon");
    }

    #[test]
    fn the_other_shapes() {
        assert_eq!(
            geojson(json!({"x": 1.5, "y": 2, "z": 3})),
            json!({"type": "Point", "coordinates": [1.5, 2, 3]})
        );
        assert_eq!(geojson(json!({"x": 1.5, "y": 2, "z": 3, "m": 4}))["coordinates"], json!([1.5, 2, 3]));
        assert_eq!(geojson(json!({"x": "NaN", "y": "NaN"})), Value::Null);
        assert_eq!(geojson(json!({})), Value::Null);
        assert_eq!(geojson(json!({"paths": [[[0, 0], [1, 1]]]}))["type"], "LineString");
        assert_eq!(
            geojson(json!({"paths": [[[0, 0], [1, 1]], [[2, 2], [3, 3]]]}))["type"],
            "MultiLineString"
        );
    }

    #[test]
    fn heights_stay_and_measures_go() {
        let of = |geometry: Value, has_z, has_m| {
            geojson_with(geometry, SetFlags { has_z, has_m })["coordinates"].clone()
        };
        assert_eq!(of(json!({"points": [[0, 0, 5]], "hasM": true}), None, None), json!([[0, 0]]));
        assert_eq!(of(json!({"points": [[0, 0, 5]]}), None, Some(true)), json!([[0, 0]]));
        assert_eq!(of(json!({"points": [[0, 0, 5]]}), None, None), json!([[0, 0, 5]]));
        assert_eq!(of(json!({"points": [[0, 0, 5, 6]]}), Some(true), Some(true)), json!([[0, 0, 5]]));
    }

    #[test]
    fn what_cannot_be_read_leaves_nothing() {
        for bad in [json!({"curveRings": []}), json!({"rings": [[[0, null], [1, 1]]]})] {
            let mut out = Vec::new();
            assert!(write_geojson(bad.to_string().as_bytes(), SetFlags::default(), &mut out).is_err());
            assert_eq!(out, b"");
        }
    }
}
