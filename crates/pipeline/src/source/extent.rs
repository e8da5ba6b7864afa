//! Where a layer is, as its service declares it, and whether what a page holds can be there.
//!
//! A page may leave open in which system its coordinates are, or which of the two comes first. The
//! declared extent decides that: of two readings only one lies where the layer is.

use serde_json::Value;
use tidegate_geo::crs::Plausibility;
use tidegate_geo::xml::Node;
use tidegate_geo::{Bounds, Crs};

/// An extent in degrees, if it is one: some services declare metres there, or nothing but zeros.
pub(super) fn degrees(west: f64, south: f64, east: f64, north: f64) -> Option<Bounds> {
    let on_globe =
        [west, east].iter().all(|x| x.abs() <= 180.0) && [south, north].iter().all(|y| y.abs() <= 90.0);
    let some = west <= east && south <= north && [west, south, east, north].iter().any(|n| *n != 0.0);
    (on_globe && some).then_some(Bounds { min_x: west, min_y: south, max_x: east, max_y: north })
}

/// The extent of a feature type of a WFS: its `WGS84BoundingBox`.
pub(super) fn of_feature_type(feature_type: &Node) -> Option<Bounds> {
    let found = feature_type.child("WGS84BoundingBox")?;
    let corner = |name: &str| {
        let text = &found.child(name)?.text;
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<f64>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    let ((west, south), (east, north)) = (corner("LowerCorner")?, corner("UpperCorner")?);
    degrees(west, south, east, north)
}

/// The extent of a collection of an OGC API: the first rectangle, which holds all others.
pub(super) fn of_collection(collection: &Value) -> Option<Bounds> {
    let crs = collection.pointer("/extent/spatial/crs").and_then(Value::as_str);
    if crs.is_some_and(|crs| !crs.contains("CRS84")) {
        return None;
    }
    let all = collection.pointer("/extent/spatial/bbox/0")?.as_array()?;
    let numbers: Vec<f64> = all.iter().filter_map(Value::as_f64).collect();
    match numbers.as_slice() {
        [west, south, east, north] | [west, south, _, east, north, _] => {
            degrees(*west, *south, *east, *north)
        }
        _ => None,
    }
}

/// The extent of an ArcGIS layer, which is in the layer's own system.
pub(super) fn of_esri(about: &Value, crs: Option<&Crs>) -> Option<Bounds> {
    let side = |name: &str| about.pointer("/extent").and_then(|e| e.get(name)).and_then(Value::as_f64);
    let bounds =
        Bounds { min_x: side("xmin")?, min_y: side("ymin")?, max_x: side("xmax")?, max_y: side("ymax")? };
    let turned = Plausibility::new(crs?).placed(bounds)?;
    degrees(turned.min_x, turned.min_y, turned.max_x, turned.max_y)
}

/// Whether coordinates within these bounds, in this system and east first, can be in the extent.
pub(super) fn fits(crs: &Crs, bounds: Bounds, declared: Bounds) -> bool {
    Plausibility::new(crs).is_in(bounds, declared)
}

/// The bounds of all coordinates in the text of GeoJSON features, of some of them.
pub(super) fn of_features<'a>(features: impl Iterator<Item = &'a [u8]>) -> Option<Bounds> {
    fn walk(value: &Value, bounds: &mut Option<Bounds>) {
        let Some(items) = value.as_array() else { return };
        match (items.first().and_then(Value::as_f64), items.get(1).and_then(Value::as_f64)) {
            (Some(x), Some(y)) => extend(bounds, x, y),
            _ => items.iter().for_each(|item| walk(item, bounds)),
        }
    }
    let mut bounds = None;
    for feature in features {
        let Ok(feature) = serde_json::from_slice::<Value>(feature) else { continue };
        if let Some(coordinates) = feature.pointer("/geometry/coordinates") {
            walk(coordinates, &mut bounds);
        }
    }
    bounds
}

/// Grows bounds that may not exist yet.
pub(super) fn extend(bounds: &mut Option<Bounds>, x: f64, y: f64) {
    if x.is_finite() && y.is_finite() {
        let point = Bounds { min_x: x, min_y: y, max_x: x, max_y: y };
        *bounds = Some(bounds.map_or(point, |all| all.union(point)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_two_readings_one_lies_where_the_layer_is() {
        let declared = degrees(10.4, 47.3, 14.3, 53.7).unwrap();
        let crs = Crs::epsg(31468);
        let right = Bounds { min_x: 4.42e6, min_y: 5.3e6, max_x: 4.6e6, max_y: 5.9e6 };
        let turned = Bounds { min_x: 5.3e6, min_y: 4.42e6, max_x: 5.9e6, max_y: 4.6e6 };
        assert!(fits(&crs, right, declared) && !fits(&crs, turned, declared));
        assert!(!fits(&Crs::wgs84(), right, declared));
    }

    #[test]
    fn what_is_not_on_the_globe_is_no_extent() {
        assert_eq!(degrees(300_000.0, 5_250_000.0, 800_000.0, 6_050_000.0), None);
        assert_eq!(degrees(0.0, 0.0, 0.0, 0.0), None);
        let collection = json!({"extent": {"spatial": {"bbox": [[5.0, 45.0, 10.0, 50.0]]}}});
        assert_eq!(of_collection(&collection), degrees(5.0, 45.0, 10.0, 50.0));
        let about = json!({"extent": {"xmin": 0.0, "ymin": 0.0, "xmax": 111_319.49, "ymax": 111_325.14}});
        let found = of_esri(&about, Some(&Crs::epsg(3857))).unwrap();
        assert!((found.max_x - 1.0).abs() < 1e-5 && (found.max_y - 1.0).abs() < 1e-4);
    }
}
