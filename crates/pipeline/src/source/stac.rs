//! STAC API: search by POST where the catalogue offers it, else by GET; pages by the link `next`.
//!
//! What an item has beside its properties (collection, assets) becomes two properties more, so
//! that it survives every format.

use super::error::SourceError;
use super::ogcapi::accepting;
use super::page::{FeaturePage, Link, PageFeature, geojson, matched};
use super::page_size::PageSize;
use super::position::NextPage;
use super::service::PagedLayer;
use super::wire::Wire;
use crate::http::{Request, Response};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidegate_core::Code;
use tidegate_geo::Crs;
use url::Url;

/// What to ask of a catalogue.
#[derive(Clone, Debug, Default)]
pub struct StacOptions {
    /// The collections, joined by commas; all by default.
    pub layer: Option<String>,
    /// Items on a page.
    pub page_size: Option<u64>,
}

/// A search in a catalogue.
pub(super) struct Stac {
    url: Url,
    layer: String,
    size: PageSize,
    /// Posted first, with the limit; the links of pages may say what to change in it.
    body: Option<Value>,
}

const SIZE: u64 = 250;

impl Stac {
    pub(super) async fn open(wire: &Wire, url: &Url, options: StacOptions) -> Result<Stac, SourceError> {
        let own = url.query_pairs().find(|(n, _)| n == "limit").and_then(|(_, v)| v.parse().ok());
        let size = PageSize::new(options.page_size.or(own), SIZE);
        let (search, post) = place(wire, url).await?;
        let layer = options.layer.clone().unwrap_or_else(|| "items".into());
        let collections = options.layer.as_deref().filter(|_| search.path().ends_with("/search"));
        if post {
            // Parameters of the URL become members of the search.
            let mut body = json!({});
            for (name, value) in search.query_pairs().filter(|(n, _)| n != "limit") {
                body[name.as_ref()] = member(&name, &value);
            }
            if let Some(collections) = collections {
                body["collections"] = collections.split(',').map(|c| Value::from(c.trim())).collect();
            }
            let mut url = search;
            url.set_query(None);
            return Ok(Stac { url, layer, size, body: Some(body) });
        }
        let mut url = search;
        let kept: Vec<(String, String)> =
            url.query_pairs().filter(|(n, _)| n != "limit").map(|(n, v)| (n.into(), v.into())).collect();
        let mut pairs = url.query_pairs_mut();
        pairs.clear().extend_pairs(kept);
        if let Some(collections) = collections {
            pairs.append_pair("collections", collections);
        }
        drop(pairs);
        Ok(Stac { url, layer, size, body: None })
    }

    /// What is posted first.
    fn search(&self) -> Option<Value> {
        let mut body = self.body.clone()?;
        body["limit"] = Value::from(self.size.get());
        Some(body)
    }
}

/// A parameter of a URL as a member of a search: lists are separated by commas in the one and JSON lists in
/// the other.
fn member(name: &str, value: &str) -> Value {
    let plain = |value: &str| serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    match name {
        "bbox" if !value.starts_with('[') => value.split(',').map(|n| plain(n.trim())).collect(),
        "ids" | "collections" if !value.starts_with('[') => {
            value.split(',').map(|id| Value::from(id.trim())).collect()
        }
        _ => plain(value),
    }
}

/// Where to search, and whether by POST.
async fn place(wire: &Wire, url: &Url) -> Result<(Url, bool), SourceError> {
    let path = url.path().trim_end_matches('/');
    if path.ends_with("/items") {
        return Ok((url.clone(), false));
    }
    let mut root = url.clone();
    if let Some(root_path) = path.strip_suffix("/search") {
        root.set_path(if root_path.is_empty() { "/" } else { root_path });
    }
    root.set_query(None);
    let response = wire.ask(&accepting(wire.get(root.clone())), "the catalogue").await?;
    let value: Value = serde_json::from_slice(&response.body)
        .map_err(|e| SourceError::broken(Code::UNEXPECTED_BODY, format!("the catalogue: {e}")))?;
    let links: Vec<Link> =
        value.get("links").and_then(|links| serde_json::from_value(links.clone()).ok()).unwrap_or_default();
    let searches: Vec<&Link> = links.iter().filter(|l| l.rel == "search").collect();
    let post = searches.iter().find(|l| l.method.as_deref().is_some_and(|m| m.eq_ignore_ascii_case("post")));
    let Some(link) = post.or(searches.first()) else {
        let message = format!("{root} has no search endpoint; is it a STAC API?");
        return Err(SourceError::setup(message));
    };
    let mut search = wire.follow(&response.url, &link.href)?;
    search.set_query(url.query());
    Ok((search, post.is_some()))
}

#[derive(Deserialize)]
struct StacItem<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    geometry: Option<&'a RawValue>,
    #[serde(borrow)]
    properties: Option<&'a RawValue>,
    #[serde(borrow)]
    collection: Option<&'a RawValue>,
    #[serde(borrow)]
    assets: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct InCollection<'a> {
    #[serde(borrow)]
    collection: Option<&'a RawValue>,
}

/// The item with all it has among its properties.
fn flat(text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let item: StacItem<'_> = serde_json::from_slice(text).map_err(|e| format!("cannot read an item: {e}"))?;
    let or_null = |raw: Option<&RawValue>| raw.map_or("null", RawValue::get).to_owned();
    let properties = item.properties.map_or("{}", RawValue::get).trim();
    let inner = properties.strip_prefix('{').and_then(|p| p.strip_suffix('}')).unwrap_or_default().trim();
    let comma = if inner.is_empty() { "" } else { "," };
    let text = format!(
        "{{\"type\":\"Feature\",\"id\":{},\"geometry\":{},\"properties\":{{{inner}{comma}\"collection\":{},\"assets\":{}}}}}",
        or_null(item.id),
        or_null(item.geometry),
        or_null(item.collection),
        or_null(item.assets)
    );
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

#[async_trait]
impl PagedLayer for Stac {
    fn layer(&self) -> &str {
        &self.layer
    }

    fn first(&self) -> NextPage {
        if let Some(body) = self.search() {
            return NextPage::Link { url: self.url.to_string(), body: Some(body.to_string()) };
        }
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair("limit", &self.size.get().to_string());
        NextPage::Link { url: url.to_string(), body: None }
    }

    fn request(&self, wire: &Wire, step: &NextPage) -> Result<Request, SourceError> {
        let NextPage::Link { url, body } = step else {
            return Err(SourceError::setup("the saved position is not from a STAC API"));
        };
        let url = wire.follow(&self.url, url)?;
        Ok(accepting(match body {
            Some(body) => wire.post(url, body.clone()),
            None => wire.get(url),
        }))
    }

    fn read(&self, response: &Response) -> Result<FeaturePage, String> {
        let (page, links) = geojson(&response.body)?;
        let mut text = Vec::with_capacity(page.text.len());
        let mut features = Vec::with_capacity(page.features.len());
        for feature in &page.features {
            let start = text.len();
            flat(page.feature(feature), &mut text)?;
            let id = text.get(start..).and_then(|text| self.identity(text));
            features.push(PageFeature { at: start..text.len(), id, key: None });
        }
        let next = links.iter().find(|l| l.rel == "next" && !l.href.is_empty()).map(|link| {
            let post = link.method.as_deref().is_some_and(|m| m.eq_ignore_ascii_case("post"));
            let body = post.then(|| {
                let mut body = link.body.clone().unwrap_or_else(|| json!({}));
                if let (Some(true), Some(Value::Object(all)), Value::Object(change)) =
                    (link.merge, self.search(), &body)
                {
                    let mut all = all;
                    all.extend(change.clone());
                    body = Value::Object(all);
                }
                body.to_string()
            });
            NextPage::Link { url: link.href.clone(), body }
        });
        Ok(FeaturePage { text: text.into(), features, next, ..page })
    }

    /// Equal identifiers in two collections are two items.
    fn identity(&self, feature: &[u8]) -> Option<Box<str>> {
        let id = super::page::identity(feature)?;
        let item: StacItem<'_> = serde_json::from_slice(feature).ok()?;
        let properties: Option<InCollection<'_>> =
            item.properties.and_then(|p| serde_json::from_str(p.get()).ok());
        let collection = properties.and_then(|p| p.collection).map_or("", RawValue::get);
        Some(format!("{collection}/{}", id.trim_matches('"')).into())
    }

    fn size(&self) -> u64 {
        self.size.get()
    }

    fn relent(&self) -> bool {
        self.size.halve()
    }

    async fn count(&self, wire: &Wire) -> Result<Option<u64>, SourceError> {
        // Only a page says it, if the catalogue knows it.
        let request = self.request(wire, &self.first())?;
        let what = format!("{}, the number of items", self.layer);
        let response = wire.ask(&request, &what).await?;
        matched(&response.body)
            .map_err(|why| SourceError::broken(Code::UNEXPECTED_BODY, format!("{what}: {why}")))
    }

    fn crs(&self) -> Option<Crs> {
        Some(Crs::wgs84())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_a_url_become_lists_of_a_search() {
        assert_eq!(member("bbox", "16.1, 48,-1e1,49"), json!([16.1, 48, -10.0, 49]));
        assert_eq!(member("bbox", "[1,2,3,4]"), json!([1, 2, 3, 4]));
        assert_eq!(member("ids", "7,a"), json!(["7", "a"]));
        assert_eq!(member("datetime", "2026-01-01T00:00:00Z/.."), json!("2026-01-01T00:00:00Z/.."));
        assert_eq!(member("intersects", r#"{"type":"Point"}"#), json!({"type": "Point"}));
    }
}
