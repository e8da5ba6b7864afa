//! OGC API Features: pages by the link `next`, which only the server understands.
//!
//! The header `Content-Crs` says in which system a page is. GeoJSON has no member for that any more,
//! and an old one that is there may be left over from the file behind the service. So the header
//! counts, and a page that is not in the system that was asked for is refused.

use super::error::{SourceError, Trouble};
use super::extent;
use super::page::{FeaturePage, Link, geojson, matched};
use super::page_size::PageSize;
use super::position::NextPage;
use super::service::PagedLayer;
use super::wire::Wire;
use crate::http::{Request, Response, path};
use async_trait::async_trait;
use http::{HeaderValue, header};
use serde_json::Value;
use tidegate_core::Code;
use tidegate_geo::{Bounds, Crs, Problem};
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
    /// Where it is, as its description says.
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
        let OgcCollection { mut items, name, extent } = find(wire, url, options.layer).await?;
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
        Ok(Ogc { items, layer: name, crs: options.crs, extent, size })
    }

    fn items(&self, limit: u64) -> Url {
        let mut url = self.items.clone();
        url.query_pairs_mut().append_pair("limit", &limit.to_string());
        url
    }

    /// Settles the system of a page by the header `Content-Crs`.
    ///
    /// # Errors
    /// Why the page cannot be used.
    fn system(&self, named: &str) -> Result<String, String> {
        let crs: Crs = named.parse().map_err(|problem: Problem| {
            format!("the service answers in {named:?} (Content-Crs): {}", problem.message)
        })?;
        match &self.crs {
            Some(asked) if *asked != crs && !(asked.is_wgs84() && crs == Crs::wgs84()) => Err(format!(
                "asked for {asked}, the service answers in {crs} (Content-Crs); \
                 remove --crs to take the layer as it is"
            )),
            _ if crs.is_north_first() => Err(format!(
                "the service answers in {crs} (Content-Crs), which is north first, and GeoJSON pages do not \
                 show that; ask for another system with --crs"
            )),
            _ => Ok(crs.to_string()),
        }
    }
}

/// The value of the header `Content-Crs`: a URI in angle brackets.
fn content_crs(response: &Response) -> Option<&str> {
    let text = response.headers.get("content-crs")?.to_str().ok()?.trim();
    Some(text.strip_prefix('<').and_then(|uri| uri.strip_suffix('>')).unwrap_or(text))
}

/// A collection that was found.
struct OgcCollection {
    /// The address of its items.
    items: Url,
    name: String,
    extent: Option<Bounds>,
}

async fn find(wire: &Wire, url: &Url, layer: Option<String>) -> Result<OgcCollection, SourceError> {
    let mut base = url.clone();
    let path = base.path().trim_end_matches('/').to_owned();
    let parts: Vec<&str> = path.split('/').collect();
    let named = parts.iter().rposition(|p| *p == "collections").and_then(|at| parts.get(at + 1).copied());
    if let Some(named) = named {
        let own = path.strip_suffix("/items").unwrap_or(&path);
        base.set_path(own);
        let extent = declared(wire, &base).await?;
        let name = layer.unwrap_or_else(|| named.to_owned());
        base.set_path(&format!("{own}/items"));
        return Ok(OgcCollection { items: base, name, extent });
    }
    let root = path.strip_suffix("/collections").unwrap_or(&path).to_owned();
    let (name, extent) = match layer {
        Some(name) => {
            base.set_path(&format!("{root}/collections/{name}"));
            let extent = declared(wire, &base).await?;
            (name, extent)
        }
        None => {
            base.set_path(&format!("{root}/collections"));
            let all = described(wire, &base, "the collections").await?;
            let all: Vec<&Value> =
                all.get("collections").and_then(Value::as_array).into_iter().flatten().collect();
            let named = |c: &&Value| c.get("id").and_then(Value::as_str).map(str::to_owned);
            let name = only(&all.iter().filter_map(named).collect::<Vec<_>>())?;
            // It comes from the service, and becomes a part of the path.
            path::check_value(&name).map_err(|why| {
                SourceError::broken(Code::PATH_NOT_ALLOWED, format!("the collection {name:?}: {why}"))
            })?;
            (name, all.first().and_then(|c| extent::of_collection(c)))
        }
    };
    base.set_path(&format!("{root}/collections/{name}/items"));
    Ok(OgcCollection { items: base, name, extent })
}

/// The extent that the description of a collection declares. One that cannot be read declares none. A
/// key that is refused here would be refused for the items too.
async fn declared(wire: &Wire, url: &Url) -> Result<Option<Bounds>, SourceError> {
    match described(wire, url, "the description of the collection").await {
        Ok(collection) => Ok(extent::of_collection(&collection)),
        Err(error)
            if error.trouble == Trouble::Broken
                && ![Code::UNAUTHORIZED, Code::FORBIDDEN].contains(&error.code) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
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
        let (mut page, links) = geojson(&response.body)?;
        if let Some(named) = content_crs(response).filter(|_| !page.features.is_empty()) {
            match self.system(named) {
                Ok(crs) => page.crs = Some(crs),
                Err(why) => page.refusal = Some(why),
            }
        }
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

    fn extent(&self) -> Option<Bounds> {
        self.extent
    }

    fn crs(&self) -> Option<Crs> {
        self.crs.clone()
    }
}
