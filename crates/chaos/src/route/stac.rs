//! A STAC API: a catalogue with a search by GET and by POST.

use std::fmt::Write;

use serde_json::{Value, json};

use super::Told;
use super::ogc::{self, Page};
use crate::reply::Reply;
use crate::wire::Request;
use crate::world::Parcel;

const GEOJSON: &str = "application/geo+json";

pub(super) fn answer(told: &Told<'_>, request: &Request) -> Reply {
    let base = format!("http://{}/stac", request.host);
    let path = request.path().trim_end_matches('/');
    match path.trim_start_matches("/stac").trim_start_matches('/') {
        "" => {
            let search = format!("{base}/search");
            Reply::json(
                200,
                &json!({
                    "stac_version": "1.0.0", "type": "Catalog", "id": "chaos", "description": "Generated parcels",
                    "links": [
                        {"rel": "self", "href": base},
                        {"rel": "search", "type": GEOJSON, "href": search, "method": "GET"},
                        {"rel": "search", "type": GEOJSON, "href": search, "method": "POST"},
                    ],
                }),
            )
        }
        "search" => search(told, request, &base),
        "collections/parcels/items" => search(told, request, &base),
        _ => ogc::refusal(404, super::Why::Bad),
    }
}

fn search(told: &Told<'_>, request: &Request, base: &str) -> Reply {
    let post = request.method == "POST";
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let field = |name: &str| {
        if !post {
            return request.param(name);
        }
        body.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let limit = field("limit").map_or(Ok(10), |n| n.parse::<u64>());
    let start = field("token").map_or(Some(0), |token| ogc::open(told.config, &token));
    let (Ok(limit), Some(start)) = (limit, start) else { return ogc::refusal(400, super::Why::Bad) };
    let asked = field("collections").unwrap_or_default();
    if limit == 0 || (!asked.is_empty() && !asked.contains("parcels")) {
        return ogc::refusal(400, super::Why::Bad);
    }
    let page = Page::new(told, start, limit);
    let parcels = page.parcels(told, false);
    let mut out = String::from("{\"type\":\"FeatureCollection\",\"features\":[");
    for (i, parcel) in told.kept(&parcels).iter().enumerate() {
        let _ = write!(out, "{}{}", if i > 0 { "," } else { "" }, item(parcel, base));
    }
    let _ = write!(out, "],\"numberReturned\":{}", parcels.len());
    if !told.config.unknown_total {
        let _ = write!(out, ",\"numberMatched\":{0},\"context\":{{\"matched\":{0}}}", told.total());
    }
    let mut links = vec![json!({"rel": "self", "href": format!("{base}/search")})];
    if let Some(next) = page.next(told) {
        let token = ogc::seal(told.config, next);
        let link = if post {
            json!({"rel": "next", "href": format!("{base}/search"), "method": "POST", "merge": true,
                   "body": {"token": token}})
        } else {
            let target = request.path();
            let href = format!("http://{}{target}?limit={limit}&token={token}", request.host);
            json!({"rel": "next", "href": href, "method": "GET"})
        };
        links.push(link);
    }
    let _ = write!(out, ",\"links\":{}}}", Value::from(links));
    told.turn();
    Reply::new(200, GEOJSON, out).worked()
}

fn item(parcel: &Parcel, base: &str) -> String {
    let mut text = String::new();
    ogc::feature(&mut text, parcel);
    // Everything that an item has and a feature has not.
    let more = format!(
        "{{\"stac_version\":\"1.0.0\",\"collection\":\"parcels\",\"links\":[],\
         \"assets\":{{\"data\":{{\"href\":\"{base}/assets/{}.tif\"}}}},",
        parcel.id
    );
    format!("{more}{}", text.get(1..).unwrap_or_default())
}
