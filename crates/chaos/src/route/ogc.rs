//! OGC API Features: collections, items, and next links with an opaque cursor.

use std::fmt::Write;

use serde_json::json;

use super::wfs::to_mercator;
use super::{FeatureContext, RefusalReason};
use crate::config::Config;
use crate::hash;
use crate::quirk::Quirk;
use crate::reply::ResponseDraft;
use crate::wire::ReceivedRequest;
use crate::world::{self, Parcel};

const GEOJSON: &str = "application/geo+json";

/// The window of one page: indexes of features in the layer.
pub(super) struct PageWindow {
    total: u64,
    start: u64,
    end: u64,
}

impl PageWindow {
    /// `count` features from `start`, limited by the server's page size.
    pub(super) fn new(context: &FeatureContext<'_>, start: u64, count: u64) -> PageWindow {
        let total = context.view.count();
        let start = start.min(total);
        let end = start.saturating_add(count.min(context.config.page_max)).min(total);
        PageWindow { total, start, end }
    }

    /// Its features, in the order of the layer or in reverse.
    pub(super) fn parcels(&self, context: &FeatureContext<'_>, down: bool) -> Vec<Parcel> {
        let place = |index: u64| if down { self.total - 1 - index } else { index };
        let ids = (self.start..self.end).filter_map(|index| context.view.nth(place(index)));
        ids.map(|id| world::parcel(context.config.seed, id)).collect()
    }

    /// The start of the next page, if there is one.
    pub(super) fn next(&self, context: &FeatureContext<'_>) -> Option<u64> {
        let again = context.config.unrest.loop_after;
        if again > 0 && self.end >= again && self.end > self.start {
            return Some(self.end - self.start);
        }
        (self.end < self.total).then_some(self.end)
    }
}

pub(super) fn answer(context: &FeatureContext<'_>, request: &ReceivedRequest) -> ResponseDraft {
    let base = format!("http://{}/ogc", request.host);
    let path = request.path().trim_end_matches('/');
    match path.trim_start_matches("/ogc").trim_start_matches('/') {
        "" => ResponseDraft::json(
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
        "conformance" => ResponseDraft::json(
            200,
            &json!({"conformsTo": [
                "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/core",
                "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/geojson",
            ]}),
        ),
        "collections" => {
            ResponseDraft::json(200, &json!({"collections": [about(context.config, &base)], "links": []}))
        }
        "collections/parcels" => ResponseDraft::json(200, &about(context.config, &base)),
        "collections/parcels/items" => items(context, request, &base),
        other => match other.strip_prefix("collections/parcels/items/").map(item_number) {
            Some(Some(id)) if context.view.has(id) => {
                let mut body = String::new();
                let parcel = world::parcel(context.config.seed, id);
                feature(&mut body, &parcel, false, Coordinates::Degrees);
                ResponseDraft::new(200, GEOJSON, body).worked()
            }
            _ => refusal(404, RefusalReason::Bad),
        },
    }
}

fn item_number(text: &str) -> Option<u64> {
    text.trim_start_matches("parcels.").parse().ok()
}

fn about(config: &Config, base: &str) -> serde_json::Value {
    let mut about = json!({
        "id": "parcels",
        "title": "Parcels",
        "itemType": "feature",
        "crs": ["http://www.opengis.net/def/crs/OGC/1.3/CRS84"],
        "links": [{"rel": "items", "type": GEOJSON, "href": format!("{base}/collections/parcels/items")}],
    });
    if !config.has(Quirk::NoExtent) {
        about["extent"] = json!({"spatial": {"bbox": [[-5.0, 40.0, -3.99, 50.01]]}});
    }
    about
}

fn items(context: &FeatureContext<'_>, request: &ReceivedRequest, base: &str) -> ResponseDraft {
    let config = context.config;
    let number = |name: &str| request.param(name).map(|v| v.parse::<u64>()).transpose();
    let (Ok(limit), Ok(offset)) = (number("limit"), number("offset")) else {
        return refusal(400, RefusalReason::Bad);
    };
    let limit = limit.unwrap_or(10);
    let start = match request.param("cursor") {
        None => offset.unwrap_or(0),
        Some(cursor) => match open(config, &cursor) {
            Some(start) => start,
            None => return refusal(400, RefusalReason::Bad),
        },
    };
    if limit == 0 {
        return refusal(400, RefusalReason::Bad);
    }
    if let Some(refused) = refused_limit(config, limit) {
        return refused;
    }
    let page = PageWindow::new(context, start, limit);
    let items = format!("{base}/collections/parcels/items");
    let mut links = format!("{{\"rel\":\"self\",\"type\":\"{GEOJSON}\",\"href\":\"{items}\"}}");
    if let Some(next) = page.next(context) {
        let cursor = seal(config, next);
        let _ = write!(
            links,
            ",{{\"rel\":\"next\",\"type\":\"{GEOJSON}\",\"href\":\"{items}?limit={limit}&cursor={cursor}\"}}"
        );
    }
    let parcels = page.parcels(context, false);
    let body = collection(context, &parcels, &links, false);
    context.turn();
    let mut response = ResponseDraft::new(200, GEOJSON, body).worked();
    if config.has(Quirk::ContentCrs) {
        let uri = "<http://www.opengis.net/def/crs/EPSG/0/3857>";
        response.headers.push(("Content-Crs", uri.to_owned()));
    }
    response
}

/// The error for a page size above the maximum, as tipg words it.
pub(super) fn refused_limit(config: &Config, limit: u64) -> Option<ResponseDraft> {
    let most = config.page_max;
    (config.has(Quirk::RefusedLimit) && limit > most).then(|| {
        let message = format!("Input should be less than or equal to {most}");
        let detail = json!([{"type": "less_than_equal", "loc": ["query", "limit"], "msg": message,
                             "input": limit.to_string(), "ctx": {"le": most}}]);
        ResponseDraft::json(422, &json!({"detail": detail}))
    })
}

/// A cursor that a client cannot construct.
pub(super) fn seal(config: &Config, start: u64) -> String {
    format!("{start:x}-{:08x}", hash::mix(config.seed ^ start) as u32)
}

pub(super) fn open(config: &Config, cursor: &str) -> Option<u64> {
    let start = u64::from_str_radix(cursor.split_once('-')?.0, 16).ok()?;
    (seal(config, start) == cursor).then_some(start)
}

/// A GeoJSON feature collection.
pub(super) fn collection(
    context: &FeatureContext<'_>,
    parcels: &[Parcel],
    links: &str,
    geoserver: bool,
) -> String {
    let (config, total) = (context.config, context.total());
    let coordinates = if !geoserver && config.has(Quirk::ContentCrs) {
        Coordinates::Mercator
    } else if !geoserver && config.has(Quirk::SwappedAxes) {
        Coordinates::NorthFirst
    } else {
        Coordinates::Degrees
    };
    let mut out = String::with_capacity(300 + 400 * parcels.len());
    out.push_str("{\"type\":\"FeatureCollection\",\"features\":[");
    for (i, parcel) in context.sent_parcels(parcels).iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        feature(&mut out, parcel, config.has(Quirk::HiddenKey), coordinates);
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
    if matches!(coordinates, Coordinates::Mercator) {
        out.push_str(
            ",\"crs\":{\"type\":\"name\",\"properties\":{\"name\":\"urn:ogc:def:crs:OGC:1.3:CRS84\"}}",
        );
    }
    out.push('}');
    out
}

/// The coordinates of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coordinates {
    /// Longitude, latitude.
    Degrees,
    /// Latitude, longitude.
    NorthFirst,
    /// EPSG:3857.
    Mercator,
}

/// One feature as GeoJSON. A hidden key is its id but not a property.
pub(super) fn feature(out: &mut String, parcel: &Parcel, hidden_key: bool, coordinates: Coordinates) {
    let _ = write!(
        out,
        "{{\"type\":\"Feature\",\"id\":\"parcels.{0}\",\"geometry\":{{\"type\":\"Polygon\",\"coordinates\":[[",
        parcel.id
    );
    for (i, (lon, lat)) in parcel.ring().into_iter().enumerate() {
        let (x, y) = match coordinates {
            Coordinates::Degrees => (lon, lat),
            Coordinates::NorthFirst => (lat, lon),
            Coordinates::Mercator => to_mercator(lon, lat),
        };
        let _ = write!(out, "{}[{x},{y}]", if i > 0 { "," } else { "" });
    }
    let key = if hidden_key { String::new() } else { format!("\"id\":{},", parcel.id) };
    let _ = write!(
        out,
        "]]}},\"properties\":{{{key}\"name\":\"{}\",\"zone\":\"{}\",\"area\":{},\"updated\":\"{}\"}}}}",
        parcel.name,
        parcel.zone,
        parcel.area,
        parcel.updated()
    );
}

pub(super) fn refusal(status: u16, why: RefusalReason) -> ResponseDraft {
    let title = match why {
        RefusalReason::Throttled => "Too many requests",
        RefusalReason::Bad => "The request cannot be read",
        RefusalReason::Failed => "Something went wrong",
    };
    let body = json!({"type": "about:blank", "title": title, "status": status});
    ResponseDraft::new(status, "application/problem+json", body.to_string())
}
