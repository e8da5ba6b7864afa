//! A page: what a service sent, cut into features.
//!
//! Whatever a service speaks, a page is kept as the text of GeoJSON features: one form for the
//! spool, the batches and the dead letters. A page of GeoJSON is not copied; its features are
//! places in the body.

use super::position::NextPage;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::ops::Range;

/// One page.
#[derive(Clone, Debug, Default)]
pub(super) struct FeaturePage {
    /// The text in which the features are.
    pub(super) text: Bytes,
    pub(super) features: Vec<PageFeature>,
    /// How many features match in all, as this page says.
    pub(super) matched: Option<u64>,
    /// Where the next page is, if the page says it.
    pub(super) next: Option<NextPage>,
    /// Whether the page says that more follows.
    pub(super) more: Option<bool>,
    /// The reference system, as the page names it.
    pub(super) crs: Option<String>,
    /// Why the page cannot be used although it is whole: no other attempt would help.
    pub(super) refusal: Option<String>,
}

/// One feature on a page.
#[derive(Clone, Debug)]
pub(super) struct PageFeature {
    pub(super) at: Range<usize>,
    /// Its identifier as JSON text, if it has one that stays.
    pub(super) id: Option<Box<str>>,
    /// Its key, where pages go by keys.
    pub(super) key: Option<i64>,
}

impl FeaturePage {
    /// The text of a feature.
    pub(super) fn feature(&self, feature: &PageFeature) -> &[u8] {
        self.text.get(feature.at.clone()).unwrap_or_default()
    }

    /// What tells a feature from others: its identifier, or all of it.
    pub(super) fn print<'a>(&'a self, feature: &'a PageFeature) -> &'a [u8] {
        feature.id.as_deref().map_or_else(|| self.feature(feature), str::as_bytes)
    }
}

/// A link of a page.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Link {
    #[serde(default)]
    pub(super) rel: String,
    #[serde(default)]
    pub(super) href: String,
    #[serde(default)]
    pub(super) method: Option<String>,
    #[serde(default)]
    pub(super) body: Option<Value>,
    #[serde(default)]
    pub(super) merge: Option<bool>,
}

#[derive(Deserialize)]
struct PageCollection<'a> {
    #[serde(borrow)]
    features: Option<Vec<&'a RawValue>>,
    #[serde(rename = "numberMatched")]
    matched: Option<Value>,
    #[serde(rename = "numberReturned")]
    returned: Option<Value>,
    #[serde(rename = "totalFeatures")]
    total: Option<Value>,
    context: Option<Value>,
    #[serde(default)]
    links: Vec<Link>,
    crs: Option<Value>,
    #[serde(rename = "exceededTransferLimit")]
    exceeded: Option<bool>,
    properties: Option<Value>,
}

/// The member `id` of an object, and nothing behind it.
struct Id<'a, 'o>(&'o mut Option<&'a str>);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Name {
    Id,
    #[serde(other)]
    Other,
}

impl<'a> Visitor<'a> for Id<'a, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key()? {
            if let Name::Id = name {
                *self.0 = Some(map.next_value::<&RawValue>()?.get());
                break;
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// How many features match in all, as a page says; it may be a page without features.
pub(super) fn matched(body: &[u8]) -> Result<Option<u64>, String> {
    let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let read: PageCollection<'_> =
        serde_json::from_slice(text).map_err(|e| format!("the page is not a feature collection: {e}"))?;
    Ok(read.matched())
}

impl PageCollection<'_> {
    fn matched(&self) -> Option<u64> {
        let context = self.context.as_ref().and_then(|c| c.get("matched"));
        let counts = [self.matched.as_ref(), self.total.as_ref(), context];
        counts.into_iter().flatten().find_map(Value::as_u64)
    }
}

/// Reads a page of GeoJSON, and its links.
///
/// # Errors
/// Why it is none, or that it holds fewer features than it says.
pub(super) fn geojson(body: &Bytes) -> Result<(FeaturePage, Vec<Link>), String> {
    let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let read: PageCollection<'_> =
        serde_json::from_slice(text).map_err(|e| format!("the page is not a feature collection: {e}"))?;
    let matched = read.matched();
    let features = read.features.ok_or("the page has no member `features`")?;
    let said = read.returned.as_ref().and_then(Value::as_u64);
    whole(said, features.len())?;
    let base = body.as_ptr() as usize;
    let features = features.into_iter().map(|raw| {
        let raw = raw.get();
        let start = (raw.as_ptr() as usize).saturating_sub(base);
        PageFeature { at: start..start + raw.len(), id: identity(raw.as_bytes()), key: None }
    });
    let features = features.collect();
    let nested =
        read.properties.as_ref().and_then(|p| p.get("exceededTransferLimit")).and_then(Value::as_bool);
    let crs = read.crs.as_ref().and_then(|c| c.pointer("/properties/name")).and_then(Value::as_str);
    let page = FeaturePage {
        text: body.clone(),
        features,
        matched,
        next: None,
        more: read.exceeded.or(nested),
        crs: crs.map(str::to_owned),
        refusal: None,
    };
    Ok((page, read.links))
}

/// Whether a page holds what it says it holds: a page that was cut between two features is valid
/// in every other way.
pub(super) fn whole(said: Option<u64>, had: usize) -> Result<(), String> {
    match said {
        Some(said) if said != had as u64 => {
            Err(format!("the page declares {said} features but contains {had}"))
        }
        _ => Ok(()),
    }
}

/// The identifier of a feature, from its text. It is read up to there: most stand near the
/// beginning, and that the rest is JSON is known.
pub(super) fn identity(feature: &[u8]) -> Option<Box<str>> {
    let mut id = None;
    // What is left unread is told as an error.
    let _ = serde_json::Deserializer::from_slice(feature).deserialize_map(Id(&mut id));
    id.and_then(lasting)
}

/// The identifier, unless it is null or one that a server makes up anew for each answer, as
/// GeoServer does for tables without a primary key (`layer.fid-1c2d_18f_-7ffe`).
pub(super) fn lasting(id: &str) -> Option<Box<str>> {
    (id != "null" && !id.contains(".fid-")).then(|| id.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_places_in_the_body() {
        let text = "\u{feff}{\"type\":\"FeatureCollection\",\"features\":[ {\"id\":\"a.1\",\"geometry\":null} ,\
            {\"id\":7},{\"id\":null},{\"id\":\"l.fid-1a_2\"},{\"geometry\":{\"id\":1},\"id\":2}],\"numberReturned\":5,\"numberMatched\":\"unknown\",\
            \"totalFeatures\":9,\"links\":[{\"rel\":\"next\",\"href\":\"/n\"}],\
            \"crs\":{\"type\":\"name\",\"properties\":{\"name\":\"EPSG:3857\"}}}";
        let (page, links) = geojson(&Bytes::from_static(text.as_bytes())).unwrap();
        let texts: Vec<_> =
            page.features.iter().map(|f| std::str::from_utf8(page.feature(f)).unwrap()).collect();
        assert_eq!(texts[0], "{\"id\":\"a.1\",\"geometry\":null}");
        assert_eq!(texts[1], "{\"id\":7}");
        let ids: Vec<_> = page.features.iter().map(|f| f.id.as_deref()).collect();
        assert_eq!(ids, [Some("\"a.1\""), Some("7"), None, None, Some("2")]);
        assert_eq!((page.matched, page.crs.as_deref()), (Some(9), Some("EPSG:3857")));
        assert_eq!((links[0].rel.as_str(), links[0].href.as_str()), ("next", "/n"));
    }

    #[test]
    fn half_a_page_is_no_page() {
        for (text, why) in [
            ("{\"features\":[{}],\"numberReturned\":2}", "declares 2 features but contains 1"),
            ("{\"features\":[{}", "not a feature collection"),
            ("{\"type\":\"x\"}", "no member `features`"),
            ("[]", "not a feature collection"),
        ] {
            let error = geojson(&Bytes::from_static(text.as_bytes())).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
