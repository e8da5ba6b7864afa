//! A page of Esri JSON as GeoJSON text.
//!
//! Rings come in one list: outer ones clockwise, holes counter-clockwise, in any order. Each hole
//! goes to the smallest outer ring that holds it. Dates come as milliseconds since 1970 and leave
//! as ISO 8601.

use super::page::{Feature, Page};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt::Write;
use tidegate_geo::Crs;

/// The fields of a layer.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    /// Name and type.
    pub(super) all: Vec<(String, String)>,
    /// The field of object ids.
    pub(super) key: Option<String>,
}

impl Fields {
    pub(super) fn of(about: &Value) -> Fields {
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let fields = about.get("fields").and_then(Value::as_array).into_iter().flatten();
        let all: Vec<(String, String)> =
            fields.filter_map(|f| Some((text(f, "name")?, text(f, "type")?))).collect();
        let key = all.iter().find(|(_, kind)| kind == "esriFieldTypeOID").map(|(name, _)| name.clone());
        Fields { all, key }
    }

    fn is_date(&self, name: &str) -> bool {
        self.all.iter().any(|(n, kind)| n == name && kind == "esriFieldTypeDate")
    }
}

#[derive(Deserialize)]
struct Set<'a> {
    #[serde(borrow)]
    features: Option<Vec<Row<'a>>>,
    #[serde(rename = "exceededTransferLimit")]
    exceeded: Option<bool>,
    #[serde(rename = "spatialReference")]
    reference: Option<Value>,
}

#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    attributes: Option<Pairs<'a>>,
    geometry: Option<Shape>,
}

/// An object whose members keep their order and their text.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Pairs<'a>, D::Error> {
        struct Visit<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> serde::de::Visitor<'de> for Visit<'a> {
            type Value = Pairs<'a>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'a>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Visit(std::marker::PhantomData))
    }
}

type Position = Vec<f64>;
type Line = Vec<Position>;

#[derive(Default, Deserialize)]
struct Shape {
    x: Option<Value>,
    y: Option<Value>,
    z: Option<Value>,
    points: Option<Line>,
    paths: Option<Vec<Line>>,
    rings: Option<Vec<Line>>,
    #[serde(rename = "curveRings")]
    curve_rings: Option<Value>,
    #[serde(rename = "curvePaths")]
    curve_paths: Option<Value>,
    #[serde(rename = "hasZ")]
    has_z: Option<bool>,
    #[serde(rename = "hasM")]
    has_m: Option<bool>,
}

/// Reads a page.
///
/// # Errors
/// Why it is none.
pub(super) fn page(body: &Bytes, fields: &Fields, key: &str) -> Result<Page, String> {
    let set: Set<'_> =
        serde_json::from_slice(body).map_err(|e| format!("the page is no feature set: {e}"))?;
    let rows = set.features.ok_or("the page holds no member `features`")?;
    let mut text = String::with_capacity(body.len() * 3 / 2);
    let mut features = Vec::with_capacity(rows.len());
    for row in rows {
        let start = text.len();
        let pairs = row.attributes.map(|pairs| pairs.0).unwrap_or_default();
        let id =
            pairs.iter().find(|(name, _)| name == key).and_then(|(_, raw)| raw.get().parse::<i64>().ok());
        text.push_str("{\"type\":\"Feature\",");
        if let Some(id) = id {
            let _ = write!(text, "\"id\":{id},");
        }
        text.push_str("\"geometry\":");
        geometry(row.geometry.as_ref(), &mut text);
        text.push_str(",\"properties\":{");
        for (at, (name, raw)) in pairs.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(text, "{comma}{}:", Value::from(name.as_str()));
            match raw.get().parse::<i64>() {
                Ok(ms) if fields.is_date(name) => _ = write!(text, "\"{}\"", moment(ms)),
                _ => text.push_str(raw.get()),
            }
        }
        text.push_str("}}");
        let id_text = id.map(|id| id.to_string().into());
        features.push(Feature { at: start..text.len(), id: id_text, key: id });
        text.push('\n');
    }
    let crs = set.reference.as_ref().and_then(crs).map(|crs| crs.to_string());
    let more = Some(set.exceeded.unwrap_or(false));
    Ok(Page { text: text.into(), features, more, crs, ..Page::default() })
}

/// The object id of a GeoJSON feature: among its properties, or its identifier.
pub(super) fn key_of(feature: &[u8], key: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct Head<'a> {
        id: Option<Value>,
        #[serde(borrow)]
        properties: Option<Pairs<'a>>,
    }
    let head: Head<'_> = serde_json::from_slice(feature).ok()?;
    let pairs = head.properties.map(|p| p.0).unwrap_or_default();
    let named = pairs.iter().find(|(name, _)| name == key).and_then(|(_, raw)| raw.get().parse().ok());
    named.or_else(|| match head.id? {
        Value::Number(n) => n.as_i64(),
        Value::String(s) => s.rsplit('.').next().and_then(|n| n.parse().ok()),
        _ => None,
    })
}

/// The system that a spatial reference means.
pub(super) fn crs(reference: &Value) -> Option<Crs> {
    let code = |name: &str| reference.get(name).and_then(Value::as_u64);
    let numbers = [code("latestWkid"), code("wkid")].into_iter().flatten();
    let mut named = numbers.flat_map(|n| [format!("EPSG:{n}"), format!("ESRI:{n}")]);
    let found = named.find_map(|name| name.parse::<Crs>().ok());
    found.or_else(|| reference.get("wkt")?.as_str()?.parse().ok())
}

fn geometry(shape: Option<&Shape>, out: &mut String) {
    let Some(shape) = shape else { return out.push_str("null") };
    // The measure that GeoJSON cannot say is left out; height stays.
    let keep = if shape.has_z == Some(true) || shape.has_m != Some(true) { 3 } else { 2 };
    let made: Option<String> = if let Some(rings) = &shape.rings {
        Some(polygons(rings, keep))
    } else if let Some(paths) = &shape.paths {
        Some(match paths.as_slice() {
            [one] => format!("{{\"type\":\"LineString\",\"coordinates\":{}}}", line(one, keep)),
            many => format!(
                "{{\"type\":\"MultiLineString\",\"coordinates\":{}}}",
                list(many.iter().map(|l| line(l, keep)))
            ),
        })
    } else if let Some(points) = &shape.points {
        Some(format!("{{\"type\":\"MultiPoint\",\"coordinates\":{}}}", line(points, keep)))
    } else if shape.curve_rings.is_some() || shape.curve_paths.is_some() {
        // Refused later, with this as the reason.
        Some("{\"type\":\"esri:curve\",\"coordinates\":[]}".into())
    } else {
        let number = |v: &Option<Value>| v.as_ref().and_then(Value::as_f64);
        number(&shape.x).zip(number(&shape.y)).map(|(x, y)| {
            let z = number(&shape.z).map(|z| format!(",{z}")).unwrap_or_default();
            format!("{{\"type\":\"Point\",\"coordinates\":[{x},{y}{z}]}}")
        })
    };
    out.push_str(made.as_deref().unwrap_or("null"));
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn line(positions: &[Position], keep: usize) -> String {
    list(positions.iter().map(|p| list(p.iter().take(keep).map(f64::to_string))))
}

/// Twice the area, positive for counter-clockwise rings.
fn area(ring: &[Position]) -> f64 {
    let at = |p: &Position, i: usize| p.get(i).copied().unwrap_or_default();
    ring.iter().zip(ring.iter().skip(1)).map(|(a, b)| at(a, 0) * at(b, 1) - at(b, 0) * at(a, 1)).sum()
}

fn holds(ring: &[Position], point: &Position) -> bool {
    let (Some(&x), Some(&y)) = (point.first(), point.get(1)) else { return false };
    let mut inside = false;
    for (a, b) in ring.iter().zip(ring.iter().skip(1)) {
        let (Some(&ax), Some(&ay), Some(&bx), Some(&by)) = (a.first(), a.get(1), b.first(), b.get(1)) else {
            continue;
        };
        if (ay > y) != (by > y) && x < (bx - ax) * (y - ay) / (by - ay) + ax {
            inside = !inside;
        }
    }
    inside
}

fn polygons(rings: &[Line], keep: usize) -> String {
    let areas: Vec<f64> = rings.iter().map(|ring| area(ring)).collect();
    let is_outer = |at: usize| rings.len() == 1 || areas.get(at).is_some_and(|a| *a <= 0.0);
    let mut groups: Vec<(usize, Vec<usize>)> =
        (0..rings.len()).filter(|at| is_outer(*at)).map(|at| (at, Vec::new())).collect();
    for hole in (0..rings.len()).filter(|at| !is_outer(*at)) {
        let point = rings.get(hole).and_then(|ring| ring.first());
        let home = groups
            .iter_mut()
            .filter(|(outer, _)| rings.get(*outer).zip(point).is_some_and(|(ring, p)| holds(ring, p)))
            .min_by(|(a, _), (b, _)| {
                let size = |at: &usize| areas.get(*at).map_or(0.0, |a| a.abs());
                size(a).total_cmp(&size(b))
            });
        match home {
            Some((_, holes)) => holes.push(hole),
            // A hole in nothing is a ring drawn the wrong way round.
            None => groups.push((hole, Vec::new())),
        }
    }
    let ring = |at: usize, positive: bool| {
        let ring = rings.get(at).map(Vec::as_slice).unwrap_or_default();
        if (areas.get(at).is_some_and(|a| *a > 0.0)) == positive {
            line(ring, keep)
        } else {
            let turned: Vec<Position> = ring.iter().rev().cloned().collect();
            line(&turned, keep)
        }
    };
    let polygon = |(outer, holes): &(usize, Vec<usize>)| {
        list(std::iter::once(ring(*outer, true)).chain(holes.iter().map(|hole| ring(*hole, false))))
    };
    match groups.as_slice() {
        [one] => format!("{{\"type\":\"Polygon\",\"coordinates\":{}}}", polygon(one)),
        many => format!("{{\"type\":\"MultiPolygon\",\"coordinates\":{}}}", list(many.iter().map(polygon))),
    }
}

/// Milliseconds since 1970 as ISO 8601 in UTC.
fn moment(ms: i64) -> String {
    let (days, rest) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    // Years begin in March, so that the leap day is the last of the year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day = shifted.rem_euclid(146_097);
    let of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * of_era + of_era / 4 - of_era / 100);
    let march = (5 * of_year + 2) / 153;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = of_era + era * 400 + i64::from(month <= 2);
    let date = of_year - (153 * march + 2) / 5 + 1;
    let (second, milli) = (rest / 1_000, rest % 1_000);
    let fraction = if milli == 0 { String::new() } else { format!(".{milli:03}") };
    format!(
        "{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}{fraction}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shape(value: Value) -> Value {
        let shape: Shape = serde_json::from_value(value).unwrap();
        let mut out = String::new();
        geometry(Some(&shape), &mut out);
        serde_json::from_str(&out).unwrap()
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
        let made = shape(rings);
        assert_eq!(made["type"], "MultiPolygon");
        let counts: Vec<usize> =
            made["coordinates"].as_array().unwrap().iter().map(|p| p.as_array().unwrap().len()).collect();
        assert_eq!(counts, [2, 2]);
        assert_eq!(made["coordinates"][0][0], square(0, 10, false), "outer rings leave counter-clockwise");
        assert_eq!(made["coordinates"][0][1], square(1, 2, true));
        assert_eq!(shape(json!({"rings": [square(0, 1, false)]}))["type"], "Polygon");
    }

    #[test]
    fn the_other_shapes() {
        assert_eq!(
            shape(json!({"x": 1.5, "y": 2, "z": 3})),
            json!({"type": "Point", "coordinates": [1.5, 2, 3]})
        );
        assert_eq!(shape(json!({"x": "NaN", "y": "NaN"})), Value::Null);
        assert_eq!(shape(json!({"paths": [[[0, 0], [1, 1]]]}))["type"], "LineString");
        assert_eq!(shape(json!({"points": [[0, 0, 5]], "hasM": true}))["coordinates"], json!([[0, 0]]));
        assert_eq!(shape(json!({"curveRings": []}))["type"], "esri:curve");
    }

    #[test]
    fn a_page_with_dates_and_the_flag() {
        let about = json!({"fields": [{"name": "OID", "type": "esriFieldTypeOID"}, {"name": "d", "type": "esriFieldTypeDate"}]});
        let body = json!({"features": [{"attributes": {"OID": 7, "d": 1_709_251_199_250_i64, "n": null}}],
            "exceededTransferLimit": true, "spatialReference": {"wkid": 102100, "latestWkid": 3857}});
        let page = page(&Bytes::from(body.to_string()), &Fields::of(&about), "OID").unwrap();
        let feature: Value = serde_json::from_slice(page.feature(&page.features[0])).unwrap();
        assert_eq!(feature["properties"], json!({"OID": 7, "d": "2024-02-29T23:59:59.250Z", "n": null}));
        assert_eq!(
            (page.more, page.crs.as_deref(), page.features[0].key),
            (Some(true), Some("EPSG:3857"), Some(7))
        );
        assert_eq!(moment(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(key_of(b"{\"id\":\"p.9\",\"properties\":{\"a\":1}}", "OID"), Some(9));
    }
}
