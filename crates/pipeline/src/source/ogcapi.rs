//! OGC API Features: pages by the link `next`, which only the server understands.

use super::error::SourceError;
use super::extent;
use super::page::{FeaturePage, Link, geojson, matched};
use super::page_size::PageSize;
use super::position::NextPage;
use super::service::PagedLayer;
use super::wire::Wire;
use crate::http::{Request, Response};
use async_trait::async_trait;
use http::{HeaderValue, header};
use serde_json::Value;
use tidegate_core::Code;
use tidegate_geo::{Bounds, Crs};
use url::Url;

/// What to ask of an OGC API.
#[derive(Clone, Debug, Default)]
pub struct OgcOptions {
    /// The collection; may be left out if the URL names it or there is only one.
    pub layer: Option<String>,
    /// The reference system to ask for.
    pub crs: Option<Crs>,
    /// Features on a page.
    pub page_size: Option<u64>,
}

/// A collection of an OGC API.
pub(super) struct Ogc {
    items: Url,
    layer: String,
    crs: Option<Crs>,
    /// Where it is, if its description was read on the way.
    extent: Option<Bounds>,
    size: PageSize,
}

const SIZE: u64 = 1000;

impl Ogc {
    pub(super) async fn open(wire: &Wire, url: &Url, options: OgcOptions) -> Result<Ogc, SourceError> {
        // Pages in such a system have latitude first, and nothing in them says so.
        if let Some(crs) = options.crs.as_ref().filter(|crs| crs.is_north_first()) {
            let message =
                format!("{crs} has north-first axis order, which GeoJSON pages do not show; remove --crs");
            return Err(SourceError::setup(message));
        }
        let (mut items, layer, extent) = place(wire, url, options.layer).await?;
        let own = items.query_pairs().find(|(n, _)| n == "limit").and_then(|(_, v)| v.parse().ok());
        let size = PageSize::new(options.page_size.or(own), SIZE);
        let kept: Vec<(String, String)> =
            items.query_pairs().filter(|(n, _)| n != "limit").map(|(n, v)| (n.into(), v.into())).collect();
        let mut pairs = items.query_pairs_mut();
        pairs.clear().extend_pairs(kept);
        if let Some(code) = options.crs.as_ref().and_then(Crs::epsg_code) {
            pairs.append_pair("crs", &format!("http://www.opengis.net/def/crs/EPSG/0/{code}"));
        }
        drop(pairs);
        Ok(Ogc { items, layer, crs: options.crs, extent, size })
    }

    fn items(&self, limit: u64) -> Url {
        let mut url = self.items.clone();
        url.query_pairs_mut().append_pair("limit", &limit.to_string());
        url
    }
}

/// The address of the items, the name of the collection, and where it is.
async fn place(
    wire: &Wire,
    url: &Url,
    layer: Option<String>,
) -> Result<(Url, String, Option<Bounds>), SourceError> {
    let mut base = url.clone();
    let path = base.path().trim_end_matches('/').to_owned();
    let parts: Vec<&str> = path.split('/').collect();
    let named = parts.iter().rposition(|p| *p == "collections").and_then(|at| parts.get(at + 1).copied());
    if let Some(named) = named {
        let layer = layer.unwrap_or_else(|| named.to_owned());
        if !path.ends_with("/items") {
            base.set_path(&format!("{path}/items"));
        }
        return Ok((base, layer, None));
    }
    let root = path.strip_suffix("/collections").unwrap_or(&path).to_owned();
    let (layer, extent) = match layer {
        Some(layer) => (layer, None),
        None => {
            base.set_path(&format!("{root}/collections"));
            let all = described(wire, &base, "the collections").await?;
            let all: Vec<&Value> =
                all.get("collections").and_then(Value::as_array).into_iter().flatten().collect();
            let named = |c: &&Value| c.get("id").and_then(Value::as_str).map(str::to_owned);
            let layer = only(&all.iter().filter_map(named).collect::<Vec<_>>())?;
            (layer, all.first().and_then(|c| extent::of_collection(c)))
        }
    };
    base.set_path(&format!("{root}/collections/{layer}/items"));
    Ok((base, layer, extent))
}

async fn described(wire: &Wire, url: &Url, what: &str) -> Result<Value, SourceError> {
    let response = wire.ask(&accepting(wire.get(url.clone())), what).await?;
    serde_json::from_slice(&response.body)
        .map_err(|e| SourceError::broken(Code::UNEXPECTED_BODY, format!("{what}: {e}")))
}

fn only(names: &[String]) -> Result<String, SourceError> {
    match names {
        [one] => Ok(one.clone()),
        [] => Err(SourceError::setup("the service lists no collections; pass one with --layer")),
        many => Err(SourceError::setup(format!(
            "choose a collection with --layer; expected one of {}",
            many.join(", ")
        ))),
    }
}

/// A request for JSON: some servers would send a page for people.
pub(super) fn accepting(mut request: Request) -> Request {
    let json = HeaderValue::from_static("application/geo+json, application/json;q=0.9");
    request.headers.insert(header::ACCEPT, json);
    request
}

/// The step that the link `next` means.
pub(super) fn next(links: &[Link]) -> Option<NextPage> {
    let link = links.iter().find(|link| link.rel == "next" && !link.href.is_empty())?;
    Some(NextPage::Link { url: link.href.clone(), body: None })
}

#[async_trait]
impl PagedLayer for Ogc {
    fn layer(&self) -> &str {
        &self.layer
    }

    fn first(&self) -> NextPage {
        NextPage::Link { url: self.items(self.size.get()).to_string(), body: None }
    }

    fn request(&self, wire: &Wire, step: &NextPage) -> Result<Request, SourceError> {
        let NextPage::Link { url, .. } = step else {
            return Err(SourceError::setup("the saved position is not from an OGC API"));
        };
        Ok(accepting(wire.get(wire.follow(&self.items, url)?)))
    }

    fn read(&self, response: &Response) -> Result<FeaturePage, String> {
        let (page, links) = geojson(&response.body)?;
        Ok(FeaturePage { next: next(&links), ..page })
    }

    fn size(&self) -> u64 {
        self.size.get()
    }

    fn relent(&self) -> bool {
        self.size.halve()
    }

    async fn count(&self, wire: &Wire) -> Result<Option<u64>, SourceError> {
        let what = format!("{}, the number of features", self.layer);
        let response = wire.ask(&accepting(wire.get(self.items(1))), &what).await?;
        matched(&response.body)
            .map_err(|why| SourceError::broken(Code::UNEXPECTED_BODY, format!("{what}: {why}")))
    }

    async fn extent(&self, _wire: &Wire) -> Option<Bounds> {
        self.extent
    }

    fn crs(&self) -> Option<Crs> {
        self.crs.clone()
    }
}
