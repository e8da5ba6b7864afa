//! OGC API Features: collections, items, and next links that only this server understands.

use std::fmt::Write;

use serde_json::json;

use super::Why;
use crate::chaos::config::Config;
use crate::chaos::hash;
use crate::chaos::reply::Reply;
use crate::chaos::wire::Request;
use crate::chaos::world::{self, Parcel};

const GEOJSON: &str = "application/geo+json";

/// A stretch of the layer.
pub(super) struct Page {
    total: u64,
    start: u64,
    end: u64,
}

impl Page {
    /// `count` features from `start`, as far as the server goes.
    pub(super) fn new(config: &Config, start: u64, count: u64) -> Page {
        let start = start.min(config.features);
        let end = start.saturating_add(count.min(config.page_max)).min(config.features);
        Page { total: config.features, start, end }
    }

    /// The numbers of its features, in order or in reverse order of the whole layer.
    pub(super) fn ids(&self, down: bool) -> impl Iterator<Item = u64> + use<> {
        let total = self.total;
        (self.start..self.end).map(move |index| if down { total - index } else { index + 1 })
    }

    /// Whether something comes after it.
    pub(super) fn more(&self) -> bool {
        self.end < self.total
    }
}

pub(super) fn answer(config: &Config, request: &Request) -> Reply {
    let base = format!("http://{}/ogc", request.host);
    let path = request.path().trim_end_matches('/');
    match path.trim_start_matches("/ogc").trim_start_matches('/') {
        "" => Reply::json(
            200,
            &json!({
                "title": "Generated parcels",
                "links": [
                    {"rel": "self", "type": "application/json", "href": base},
                    {"rel": "conformance", "type": "application/json", "href": format!("{base}/conformance")},
                    {"rel": "data", "type": "application/json", "href": format!("{base}/collections")},
                ],
            }),
        ),
        "conformance" => Reply::json(
            200,
            &json!({"conformsTo": [
                "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/core",
                "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/geojson",
            ]}),
        ),
        "collections" => Reply::json(200, &json!({"collections": [about(&base)], "links": []})),
        "collections/parcels" => Reply::json(200, &about(&base)),
        "collections/parcels/items" => items(config, request, &base),
        other => match other.strip_prefix("collections/parcels/items/").map(item_number) {
            Some(Some(id)) if (1..=config.features).contains(&id) => {
                let mut body = String::new();
                feature(&mut body, &world::parcel(config.seed, id));
                Reply::new(200, GEOJSON, body).worked()
            }
            _ => refusal(404, Why::Bad),
        },
    }
}

fn item_number(text: &str) -> Option<u64> {
    text.trim_start_matches("parcels.").parse().ok()
}

fn about(base: &str) -> serde_json::Value {
    json!({
        "id": "parcels",
        "title": "Parcels",
        "itemType": "feature",
        "crs": ["http://www.opengis.net/def/crs/OGC/1.3/CRS84"],
        "links": [{"rel": "items", "type": GEOJSON, "href": format!("{base}/collections/parcels/items")}],
    })
}

fn items(config: &Config, request: &Request, base: &str) -> Reply {
    let number = |name: &str| request.param(name).map(|v| v.parse::<u64>()).transpose();
    let (Ok(limit), Ok(offset)) = (number("limit"), number("offset")) else { return refusal(400, Why::Bad) };
    let limit = limit.unwrap_or(10);
    let start = match request.param("cursor") {
        None => offset.unwrap_or(0),
        Some(cursor) => match open(config, &cursor) {
            Some(start) => start,
            None => return refusal(400, Why::Bad),
        },
    };
    if limit == 0 {
        return refusal(400, Why::Bad);
    }
    let page = Page::new(config, start, limit);
    let items = format!("{base}/collections/parcels/items");
    let mut links = format!("{{\"rel\":\"self\",\"type\":\"{GEOJSON}\",\"href\":\"{items}\"}}");
    if page.more() {
        let cursor = seal(config, page.end);
        let _ = write!(
            links,
            ",{{\"rel\":\"next\",\"type\":\"{GEOJSON}\",\"href\":\"{items}?limit={limit}&cursor={cursor}\"}}"
        );
    }
    let parcels: Vec<Parcel> = page.ids(false).map(|id| world::parcel(config.seed, id)).collect();
    Reply::new(200, GEOJSON, collection(config, &parcels, config.features, &links, false)).worked()
}

/// A cursor that a client cannot make up.
fn seal(config: &Config, start: u64) -> String {
    format!("{start:x}-{:08x}", hash::mix(config.seed ^ start) as u32)
}

fn open(config: &Config, cursor: &str) -> Option<u64> {
    let start = u64::from_str_radix(cursor.split_once('-')?.0, 16).ok()?;
    (seal(config, start) == cursor).then_some(start)
}

/// A GeoJSON feature collection; `total` features match in all.
pub(super) fn collection(
    config: &Config,
    parcels: &[Parcel],
    total: u64,
    links: &str,
    geoserver: bool,
) -> String {
    let mut out = String::with_capacity(300 + 400 * parcels.len());
    out.push_str("{\"type\":\"FeatureCollection\",\"features\":[");
    for (i, parcel) in parcels.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        feature(&mut out, parcel);
    }
    let _ = write!(out, "],\"numberReturned\":{}", parcels.len());
    if !config.unknown_total {
        let _ = write!(out, ",\"numberMatched\":{total}");
    }
    if geoserver {
        let shown = if config.unknown_total { "\"unknown\"".to_owned() } else { total.to_string() };
        let _ = write!(out, ",\"totalFeatures\":{shown}");
    }
    if !links.is_empty() {
        let _ = write!(out, ",\"links\":[{links}]");
    }
    out.push('}');
    out
}

/// One feature as GeoJSON.
pub(super) fn feature(out: &mut String, parcel: &Parcel) {
    let _ = write!(
        out,
        "{{\"type\":\"Feature\",\"id\":\"parcels.{0}\",\"geometry\":{{\"type\":\"Polygon\",\"coordinates\":[[",
        parcel.id
    );
    for (i, (lon, lat)) in parcel.ring().into_iter().enumerate() {
        let _ = write!(out, "{}[{lon},{lat}]", if i > 0 { "," } else { "" });
    }
    let _ = write!(
        out,
        "]]}},\"properties\":{{\"id\":{},\"name\":\"{}\",\"zone\":\"{}\",\"area\":{},\"updated\":\"{}\"}}}}",
        parcel.id,
        parcel.name,
        parcel.zone,
        parcel.area,
        parcel.updated()
    );
}

pub(super) fn refusal(status: u16, why: Why) -> Reply {
    let title = match why {
        Why::Throttled => "Too many requests",
        Why::Bad => "The request cannot be read",
        Why::Failed => "Something went wrong",
    };
    let body = json!({"type": "about:blank", "title": title, "status": status});
    Reply::new(status, "application/problem+json", body.to_string())
}
