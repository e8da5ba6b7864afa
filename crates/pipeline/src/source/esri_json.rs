//! A page of ESRI JSON as GeoJSON text. The language itself is understood in [`tidegate_geo::format::esri`].

use super::page::{FeaturePage, PageFeature};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::Write;
use tidegate_geo::format::esri::{EsriFields, SetFlags, crs, date_text, write_geojson};

#[derive(Deserialize)]
struct FeatureSet<'a> {
    #[serde(borrow)]
    features: Option<Vec<EsriFeature<'a>>>,
    #[serde(rename = "exceededTransferLimit")]
    exceeded: Option<bool>,
    #[serde(rename = "spatialReference")]
    reference: Option<Value>,
    #[serde(rename = "hasZ")]
    has_z: Option<bool>,
    #[serde(rename = "hasM")]
    has_m: Option<bool>,
}

#[derive(Deserialize)]
struct EsriFeature<'a> {
    #[serde(borrow)]
    attributes: Option<OrderedMembers<'a>>,
    #[serde(borrow)]
    geometry: Option<&'a RawValue>,
}

/// An object whose members keep their order and their text.
struct OrderedMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for OrderedMembers<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<OrderedMembers<'a>, D::Error> {
        struct Visit<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> serde::de::Visitor<'de> for Visit<'a> {
            type Value = OrderedMembers<'a>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<OrderedMembers<'a>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(OrderedMembers(pairs))
            }
        }
        deserializer.deserialize_map(Visit(std::marker::PhantomData))
    }
}

/// Reads a page.
///
/// # Errors
/// Why it is none.
pub(super) fn page(body: &Bytes, fields: &EsriFields, key: &str) -> Result<FeaturePage, String> {
    let set: FeatureSet<'_> =
        serde_json::from_slice(body).map_err(|e| format!("the page is not a feature set: {e}"))?;
    let rows = set.features.ok_or("the page has no member `features`")?;
    let flags = SetFlags { has_z: set.has_z, has_m: set.has_m };
    let mut text = Vec::with_capacity(body.len() * 3 / 2);
    let mut features = Vec::with_capacity(rows.len());
    for row in rows {
        let start = text.len();
        let pairs = row.attributes.map(|pairs| pairs.0).unwrap_or_default();
        let id =
            pairs.iter().find(|(name, _)| name == key).and_then(|(_, raw)| raw.get().parse::<i64>().ok());
        text.extend_from_slice(b"{\"type\":\"Feature\",");
        if let Some(id) = id {
            let _ = write!(text, "\"id\":{id},");
        }
        text.extend_from_slice(b"\"geometry\":");
        geometry(row.geometry, flags, &mut text);
        text.extend_from_slice(b",\"properties\":{");
        for (at, (name, raw)) in pairs.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(text, "{comma}{}:", Value::from(name.as_str()));
            let number = if fields.is_date(name) { serde_json::from_str(raw.get()).ok() } else { None };
            match number.as_ref().and_then(date_text) {
                Some(date) => _ = write!(text, "\"{date}\""),
                None => text.extend_from_slice(raw.get().as_bytes()),
            }
        }
        text.extend_from_slice(b"}}");
        let id_text = id.map(|id| id.to_string().into());
        features.push(PageFeature { at: start..text.len(), id: id_text, key: id });
        text.push(b'\n');
    }
    let crs = set.reference.as_ref().and_then(|reference| crs(reference).ok()).map(|crs| crs.to_string());
    let more = Some(set.exceeded.unwrap_or(false));
    Ok(FeaturePage { text: text.into(), features, more, crs, ..FeaturePage::default() })
}

/// A geometry that cannot be read stays as it is, under a type that is refused later.
fn geometry(raw: Option<&RawValue>, flags: SetFlags, out: &mut Vec<u8>) {
    let raw = raw.map_or("null", RawValue::get);
    if let Err(problem) = write_geojson(raw.as_bytes(), flags, out) {
        let why = Value::from(format!("esri: {}", problem.message));
        let _ = write!(out, "{{\"type\":{why},\"coordinates\":[],\"esri\":{raw}}}");
    }
}

/// The object id of a GeoJSON feature: among its properties, or its identifier.
pub(super) fn key_of(feature: &[u8], key: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct FeatureHead<'a> {
        id: Option<Value>,
        #[serde(borrow)]
        properties: Option<OrderedMembers<'a>>,
    }
    let head: FeatureHead<'_> = serde_json::from_slice(feature).ok()?;
    let pairs = head.properties.map(|p| p.0).unwrap_or_default();
    let named = pairs.iter().find(|(name, _)| name == key).and_then(|(_, raw)| raw.get().parse().ok());
    named.or_else(|| match head.id? {
        Value::Number(n) => n.as_i64(),
        Value::String(s) => s.rsplit('.').next().and_then(|n| n.parse().ok()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_with_dates_and_the_flag() {
        let about =
            json!([{"name": "OID", "type": "esriFieldTypeOID"}, {"name": "d", "type": "esriFieldTypeDate"}]);
        let fields = EsriFields::declared(about.as_array().unwrap());
        let body = json!({"features": [{"attributes": {"OID": 7, "d": 1_709_251_199_250_i64, "n": null}}],
            "exceededTransferLimit": true, "spatialReference": {"wkid": 102100, "latestWkid": 3857}});
        let page = page(&Bytes::from(body.to_string()), &fields, "OID").unwrap();
        let feature: Value = serde_json::from_slice(page.feature(&page.features[0])).unwrap();
        assert_eq!(feature["properties"], json!({"OID": 7, "d": "2024-02-29T23:59:59.25Z", "n": null}));
        assert_eq!(feature["geometry"], Value::Null);
        assert_eq!(
            (page.more, page.crs.as_deref(), page.features[0].key),
            (Some(true), Some("EPSG:3857"), Some(7))
        );
        assert_eq!(fields.key.as_deref(), Some("OID"));
        assert_eq!(key_of(b"{\"id\":\"p.9\",\"properties\":{\"a\":1}}", "OID"), Some(9));
    }

    #[test]
    fn a_geometry_that_cannot_be_read_costs_its_own_feature() {
        let body = json!({"features": [{"geometry": {"curveRings": [1]}}, {"geometry": {"x": 1, "y": 2}}]});
        let page = page(&Bytes::from(body.to_string()), &EsriFields::default(), "OID").unwrap();
        let of = |at: usize| serde_json::from_slice::<Value>(page.feature(&page.features[at])).unwrap();
        assert!(of(0)["geometry"]["type"].as_str().unwrap().contains("curves"));
        assert_eq!(of(0)["geometry"]["esri"], json!({"curveRings": [1]}));
        assert_eq!(of(1)["geometry"], json!({"type": "Point", "coordinates": [1, 2]}));
    }
}
