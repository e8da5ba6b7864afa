//! The identifier of a feature as a field, so that it is in every sink and can be its key.
//!
//! GeoJSON keeps it beside the properties, GML in an attribute, and for many services it is the only
//! key: pygeoapi takes the key out of the properties, STAC has it nowhere else. It becomes the field
//! `id`, or `feature_id` if the features have an `id` of their own. Where a property says the same
//! (`17` for `parcels.17`), nothing is added. The first page that has identifiers decides, for the
//! whole layer and across a resume.

use super::page::{FeaturePage, PageFeature};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::io::Write;

/// Features that are looked at.
const SAMPLE: usize = 200;

#[derive(Deserialize)]
struct IdentifiedFeature<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    properties: Option<&'a RawValue>,
}

/// The field for the identifiers of this page, or the empty text if none is needed; nothing if the
/// page has no identifiers that stay.
pub(super) fn field_of(page: &FeaturePage) -> Option<String> {
    let mut same: Option<Vec<String>> = None;
    let mut names: Vec<String> = Vec::new();
    for feature in page.features.iter().filter(|f| f.id.is_some()).take(SAMPLE) {
        let Ok(read) = serde_json::from_slice::<IdentifiedFeature<'_>>(page.feature(feature)) else {
            continue;
        };
        let Some(id) = read.id.and_then(|id| serde_json::from_str::<Value>(id.get()).ok()) else { continue };
        let properties: Map<String, Value> =
            read.properties.and_then(|p| serde_json::from_str(p.get()).ok()).unwrap_or_default();
        let id = words(&id);
        let alike = |value: &Value| {
            let value = words(value);
            !value.is_empty() && (id == value || id.rsplit_once('.').is_some_and(|(_, last)| last == value))
        };
        let here = properties.iter().filter(|(name, value)| is_key(name) && alike(value));
        let here: Vec<String> = here.map(|(name, _)| name.clone()).collect();
        same = Some(match same {
            None => here,
            Some(before) => before.into_iter().filter(|name| here.contains(name)).collect(),
        });
        names.extend(properties.into_iter().map(|(name, _)| name.to_ascii_lowercase()));
    }
    let same = same?;
    Some(if !same.is_empty() {
        String::new()
    } else if names.iter().all(|name| name != "id") {
        "id".into()
    } else {
        "feature_id".into()
    })
}

/// Whether a field can be a key, by its name. Others are equal to an identifier by chance.
fn is_key(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("id") || matches!(name.as_str(), "pk" | "key" | "identifier" | "code")
}

fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The page with the identifier of each feature among its properties.
pub(super) fn put(page: FeaturePage, field: &str) -> FeaturePage {
    let mut text = Vec::with_capacity(page.text.len() + 32 * page.features.len());
    let mut features = Vec::with_capacity(page.features.len());
    for feature in &page.features {
        let start = text.len();
        with_id(page.feature(feature), field, &mut text);
        features.push(PageFeature { at: start..text.len(), ..feature.clone() });
        text.push(b'\n');
    }
    FeaturePage { text: text.into(), features, ..page }
}

fn with_id(feature: &[u8], field: &str, out: &mut Vec<u8>) {
    let read: Result<IdentifiedFeature<'_>, _> = serde_json::from_slice(feature);
    let parts = read.ok().and_then(|read| {
        let properties = read.properties?.get();
        let at = (properties.as_ptr() as usize).checked_sub(feature.as_ptr() as usize)?;
        Some((read.id.map_or("null", RawValue::get), properties, at))
    });
    let whole = parts.and_then(|(id, properties, at)| {
        let (before, after) = (feature.get(..at)?, feature.get(at + properties.len()..)?);
        Some((id, properties, before, after))
    });
    let Some((id, properties, before, after)) = whole else {
        // Whoever reads it will say what is wrong with it.
        return out.extend_from_slice(feature);
    };
    out.extend_from_slice(before);
    let name = Value::from(field);
    let inner = properties.strip_prefix('{').and_then(|p| p.strip_suffix('}')).unwrap_or_default().trim();
    let comma = if inner.is_empty() { "" } else { "," };
    let _ = write!(out, "{{{name}:{id}{comma}{inner}}}");
    out.extend_from_slice(after);
}

#[cfg(test)]
mod tests {
    use super::super::page::geojson;
    use super::*;
    use bytes::Bytes;

    fn page(features: &str) -> FeaturePage {
        let text = format!("{{\"type\":\"FeatureCollection\",\"features\":[{features}]}}");
        geojson(&Bytes::from(text)).unwrap().0
    }

    #[test]
    fn an_identifier_that_is_nowhere_else_becomes_a_field() {
        let none = page("{\"properties\":{\"a\":1}},{\"id\":\"l.fid-1_2\",\"properties\":{}}");
        assert_eq!(field_of(&none), None);
        let alone = page("{\"id\":7,\"properties\":{\"a\":1}},{\"id\":8,\"properties\":null}");
        assert_eq!(field_of(&alone).as_deref(), Some("id"));
        let taken = page("{\"id\":\"s-1\",\"properties\":{\"ID\":\"x\"}}");
        assert_eq!(field_of(&taken).as_deref(), Some("feature_id"));
        let same =
            page("{\"id\":\"p.1\",\"properties\":{\"gid\":1}},{\"id\":\"p.2\",\"properties\":{\"gid\":2}}");
        assert_eq!(field_of(&same).as_deref(), Some(""));
        let chance =
            page("{\"id\":\"p.1\",\"properties\":{\"gid\":1}},{\"id\":\"p.2\",\"properties\":{\"gid\":1}}");
        assert_eq!(field_of(&chance).as_deref(), Some("id"));
    }

    #[test]
    fn it_is_put_before_the_other_properties_and_nothing_else_changes() {
        let page = page(
            "{\"type\":\"Feature\",\"id\":\"a\\\"b\",\"properties\":{ \"n\":1.50 },\"geometry\":null},\
             {\"id\":9007199254740993,\"properties\":{}},{\"properties\":null,\"id\":3},{\"id\":4}",
        );
        let page = put(page, "id");
        let texts: Vec<_> =
            page.features.iter().map(|f| std::str::from_utf8(page.feature(f)).unwrap()).collect();
        assert_eq!(
            texts[0],
            "{\"type\":\"Feature\",\"id\":\"a\\\"b\",\"properties\":{\"id\":\"a\\\"b\",\"n\":1.50},\"geometry\":null}"
        );
        assert_eq!(texts[1], "{\"id\":9007199254740993,\"properties\":{\"id\":9007199254740993}}");
        assert_eq!(texts[3], "{\"id\":4}");
        assert_eq!(page.features[1].id.as_deref(), Some("9007199254740993"));
    }
}
