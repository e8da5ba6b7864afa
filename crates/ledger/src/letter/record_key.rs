//! The keys of records that become letters: one key for one record, however it is spelled.
//!
//! What is canonical is decided in [`tidegate_core::key`]. Here a feature is taken apart for it: its
//! properties are the attributes, and its identifier is one more, called `$id`. So the same feature
//! has the same key whether `run`, `geocode` or `dlq capture` gives it up, and whether its text says
//! `1` or `1.0`.
//!
//! Records that are equal in everything are still several. The second and every further one of a
//! source has the attribute `$nth`, so that none of them is taken for another. A record of a task has
//! the key of the task and its number in it instead (`$task`, `$record`): several workers give up equal
//! records of different tasks, and none of them ends, so that nothing can be counted or remembered.

use std::collections::HashMap;

use serde_json::Value;
use tidegate_core::key::{KeyGeometry, KeyPosition, KeyShape, KeyValue, MultiKind, key};

use super::feature::FeaturePayload;

/// What the key of a record is made of.
#[derive(Clone, Copy, Debug)]
pub enum KeyedRecord<'a> {
    /// A feature, and the record that was made of it, if both tell it from its siblings.
    Features(&'a [&'a FeaturePayload]),
    /// A record that is no feature.
    Bytes(&'a [u8]),
}

impl KeyedRecord<'_> {
    /// The key of a record of a task: the same whenever the task is delivered.
    #[must_use]
    pub fn of_task(self, source: &str, (task, number): (&str, u64)) -> String {
        self.key(source, &[("$task", KeyValue::Text(task)), ("$record", KeyValue::Int(number.into()))])
    }

    fn key(self, source: &str, more: &[(&str, KeyValue<'_>)]) -> String {
        match self {
            KeyedRecord::Features(features) => feature_key(source, features, more),
            KeyedRecord::Bytes(bytes) => {
                let mut attributes = vec![("$received", KeyValue::Bytes(bytes))];
                attributes.extend(more.iter().cloned());
                key(source, &attributes, None)
            }
        }
    }
}

/// Gives out the keys of one source that ends.
#[derive(Debug, Default)]
pub struct RecordKeys {
    /// The numbers of the records that have a key, in the order in which they came.
    numbers: HashMap<String, Vec<u64>>,
}

impl RecordKeys {
    /// The key of the feature with this number. Asked for again, it is the same.
    pub fn of_feature(&mut self, source: &str, feature: &FeaturePayload, number: u64) -> String {
        self.of_parts(source, &[feature], number)
    }

    /// The key of a record that is made of another: both of them tell it from its siblings.
    pub fn of_parts(&mut self, source: &str, features: &[&FeaturePayload], number: u64) -> String {
        self.of_record(source, KeyedRecord::Features(features), number)
    }

    /// The key of a record that is no feature.
    pub fn of_bytes(&mut self, source: &str, bytes: &[u8], number: u64) -> String {
        self.of_record(source, KeyedRecord::Bytes(bytes), number)
    }

    /// The key of the record with this number.
    pub fn of_record(&mut self, source: &str, record: KeyedRecord<'_>, number: u64) -> String {
        let first = record.key(source, &[]);
        let numbers = self.numbers.entry(first.clone()).or_default();
        let at = numbers.iter().position(|known| *known == number).unwrap_or_else(|| {
            numbers.push(number);
            numbers.len() - 1
        });
        let nth = u32::try_from(at + 1).unwrap_or(u32::MAX);
        if at == 0 { first } else { record.key(source, &[("$nth", KeyValue::Int(nth.into()))]) }
    }
}

fn feature_key(source: &str, features: &[&FeaturePayload], more: &[(&str, KeyValue<'_>)]) -> String {
    let Some((feature, others)) = features.split_first() else { return key(source, &[], None) };
    let geometry = feature.geometry();
    let shape = geometry.and_then(OwnedGeometry::of);
    let mut attributes = attributes(feature);
    if let (Some(geometry), None) = (geometry, &shape) {
        attributes.push(("$geometry", value(geometry)));
    }
    for other in others {
        attributes.push(("$part", value(&other.json)));
    }
    attributes.extend(more.iter().cloned());
    let shape = shape.as_ref().map(|shape| KeyGeometry { dims: shape.dims, shape: shape.shape.borrowed() });
    key(source, &attributes, shape.as_ref())
}

fn attributes(feature: &FeaturePayload) -> Vec<(&str, KeyValue<'_>)> {
    let properties = feature.json.get("properties").and_then(Value::as_object);
    let mut all: Vec<(&str, KeyValue<'_>)> =
        properties.into_iter().flatten().map(|(name, property)| (name.as_str(), value(property))).collect();
    if let Some(id) = feature.json.get("id").filter(|id| !id.is_null()) {
        all.push(("$id", value(id)));
    }
    all
}

fn value(json: &Value) -> KeyValue<'_> {
    match json {
        Value::Null => KeyValue::Null,
        Value::Bool(b) => KeyValue::Bool(*b),
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(n), _) => KeyValue::Int(n.into()),
            (None, Some(n)) => KeyValue::Int(n.into()),
            (None, None) => KeyValue::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => KeyValue::Text(text),
        Value::Array(items) => KeyValue::List(items.iter().map(value).collect()),
        Value::Object(members) => {
            KeyValue::Map(members.iter().map(|(name, member)| (name.as_str(), value(member))).collect())
        }
    }
}

/// A geometry that a key can be made of.
struct OwnedGeometry {
    dims: u8,
    shape: OwnedShape,
}

enum OwnedShape {
    Point(KeyPosition),
    Line(Vec<KeyPosition>),
    Polygon(Vec<Vec<KeyPosition>>),
    Multi(MultiKind, Vec<OwnedShape>),
}

impl OwnedGeometry {
    /// `None` if it is no geometry of GeoJSON; then it is compared as JSON.
    fn of(geometry: &Value) -> Option<OwnedGeometry> {
        let mut dims = None;
        let shape = OwnedShape::of(geometry, &mut dims)?;
        Some(OwnedGeometry { dims: dims.unwrap_or(2), shape })
    }
}

impl OwnedShape {
    fn of(geometry: &Value, dims: &mut Option<u8>) -> Option<OwnedShape> {
        let name = geometry.get("type")?.as_str()?;
        if name == "GeometryCollection" {
            let parts = geometry.get("geometries")?.as_array()?;
            let parts = parts.iter().map(|part| OwnedShape::of(part, dims)).collect::<Option<_>>()?;
            return Some(OwnedShape::Multi(MultiKind::Collection, parts));
        }
        let coordinates = geometry.get("coordinates")?;
        let (kind, single) = match name {
            "MultiPoint" => (MultiKind::Points, "Point"),
            "MultiLineString" => (MultiKind::Lines, "LineString"),
            "MultiPolygon" => (MultiKind::Polygons, "Polygon"),
            _ => return OwnedShape::single(name, coordinates, dims),
        };
        let parts = coordinates.as_array()?.iter().map(|part| OwnedShape::single(single, part, dims));
        Some(OwnedShape::Multi(kind, parts.collect::<Option<_>>()?))
    }

    fn single(name: &str, coordinates: &Value, dims: &mut Option<u8>) -> Option<OwnedShape> {
        Some(match name {
            "Point" => OwnedShape::Point(position(coordinates, dims)?),
            "LineString" => OwnedShape::Line(line(coordinates, dims)?),
            "Polygon" => {
                let rings = coordinates.as_array()?.iter().map(|ring| line(ring, dims));
                OwnedShape::Polygon(rings.collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }

    fn borrowed(&self) -> KeyShape<'_> {
        match self {
            OwnedShape::Point(point) => KeyShape::Point(*point),
            OwnedShape::Line(line) => KeyShape::Line(line),
            OwnedShape::Polygon(rings) => KeyShape::Polygon(rings.iter().map(Vec::as_slice).collect()),
            OwnedShape::Multi(kind, parts) => {
                KeyShape::Multi(*kind, parts.iter().map(OwnedShape::borrowed).collect())
            }
        }
    }
}

fn line(coordinates: &Value, dims: &mut Option<u8>) -> Option<Vec<KeyPosition>> {
    coordinates.as_array()?.iter().map(|one| position(one, dims)).collect()
}

/// All positions have as many numbers as the first.
fn position(coordinates: &Value, dims: &mut Option<u8>) -> Option<KeyPosition> {
    let numbers = coordinates.as_array()?;
    let len = u8::try_from(numbers.len()).ok().filter(|len| (2..=4).contains(len))?;
    if *dims.get_or_insert(len) != len {
        return None;
    }
    let mut position = [0.0; 4];
    for (slot, number) in position.iter_mut().zip(numbers) {
        *slot = number.as_f64()?;
    }
    Some(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> Vec<String> {
        let mut keys = RecordKeys::default();
        let key = |(n, text): (usize, &&str)| {
            keys.of_feature("s", &FeaturePayload::parse(text.as_bytes()).unwrap(), n as u64)
        };
        texts.iter().enumerate().map(key).collect()
    }

    fn polygon(ring: &str, properties: &str) -> String {
        format!(
            r#"{{"type":"Feature","properties":{{{properties}}},"geometry":{{"type":"Polygon","coordinates":[[{ring}]]}}}}"#
        )
    }

    #[test]
    fn five_spellings_are_one_record() {
        for other in [
            polygon("[0,0],[2,0],[2,2],[0,0]", r#""b":0,"a":1"#),
            polygon("[0,0],[2,0],[2,2],[0,0]", r#""a":1.0,"b":-0.0"#),
            polygon("[2,0],[2,2],[0,0],[2,0]", r#""a":1e0,"b":0"#),
            polygon("[0,0],[2,2],[2.0,0],[0,0]", r#""a":1,"b":0.0"#),
            polygon("[-0.0,0],[2,0],[2,2]", r#""a":1,"b":0"#),
        ] {
            let first = polygon("[0,0],[2,0],[2,2],[0,0]", r#""a":1,"b":0"#);
            assert_eq!(of(&[&first]), of(&[&other]), "{other}");
        }
    }

    #[test]
    fn what_differs_has_another_key() {
        let all = [
            polygon("[0,0],[2,0],[2,2],[0,0]", r#""a":1"#),
            polygon("[0,0],[2,0],[2,3],[0,0]", r#""a":1"#),
            polygon("[0,0,0],[2,0,0],[2,2,0],[0,0,0]", r#""a":1"#),
            polygon("[0,0],[2,0],[2,2],[0,0]", r#""a":"1""#),
            polygon("[0,0],[2,0],[2,2],[0,0]", r#""a":1,"b":null"#),
            polygon("[0,0],[2,0],[2,2,7],[0,0]", r#""a":1"#),
            polygon("[0,0],[2,0],[2,2],[0,0]", r#""a":1"#).replacen('{', r#"{"id":7,"#, 1),
        ];
        let keys = of(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let different: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn equal_records_are_counted_and_asked_again_are_the_same() {
        let mut keys = RecordKeys::default();
        let feature = FeaturePayload::parse(br#"{"type":"Feature","properties":{"a":1}}"#).unwrap();
        let mut key = |number| keys.of_feature("s", &feature, number);
        let (first, second) = (key(3), key(9));
        assert_ne!(first, second);
        assert_eq!((key(3), key(9)), (first.clone(), second));
        assert_eq!(of(&[r#"{"properties":{"a":1.0},"type":"Feature"}"#]), [first]);
        assert_ne!(keys.of_bytes("s", b"a", 1), keys.of_bytes("s", b"a", 2));
    }

    #[test]
    fn a_record_of_a_task_is_known_by_the_task() {
        let feature = FeaturePayload::parse(br#"{"type":"Feature","properties":{"a":1}}"#).unwrap();
        let features = [&feature];
        let key = |task, number| KeyedRecord::Features(&features).of_task("s", (task, number));
        assert_eq!(key("t1", 0), key("t1", 0));
        let bytes = KeyedRecord::Bytes(b"x").of_task("s", ("t1", 0));
        let all = [key("t1", 0), key("t2", 0), key("t1", 1), bytes];
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 4);
    }
}
