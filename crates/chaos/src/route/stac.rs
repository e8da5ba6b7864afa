//! A STAC API: a catalogue, with search by GET and POST.

use std::fmt::Write;

use serde_json::{Value, json};

use super::FeatureContext;
use super::asset;
use super::ogc::{self, PageWindow};
use crate::config::Config;
use crate::quirk::Quirk;
use crate::reply::ResponseDraft;
use crate::wire::ReceivedRequest;
use crate::world::Parcel;

const GEOJSON: &str = "application/geo+json";

pub(super) fn answer(context: &FeatureContext<'_>, request: &ReceivedRequest) -> ResponseDraft {
    let base = format!("http://{}/stac", request.host);
    let path = request.path().trim_end_matches('/');
    match path.trim_start_matches("/stac").trim_start_matches('/') {
        "" => {
            let search = format!("{base}/search");
            ResponseDraft::json(
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
        "search" => search(context, request, &base),
        asset if asset.starts_with("assets/") => asset::answer(context.config, asset, request),
        "collections/parcels/items" => search(context, request, &base),
        _ => ogc::refusal(404, super::RefusalReason::Bad),
    }
}

fn search(context: &FeatureContext<'_>, request: &ReceivedRequest, base: &str) -> ResponseDraft {
    let post = request.method == "POST";
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let field = |name: &str| {
        if !post {
            return request.param(name);
        }
        body.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let limit = field("limit").map_or(Ok(10), |n| n.parse::<u64>());
    let start = field("token").map_or(Some(0), |token| ogc::open(context.config, &token));
    let (Ok(limit), Some(start)) = (limit, start) else {
        return ogc::refusal(400, super::RefusalReason::Bad);
    };
    let asked = field("collections").unwrap_or_default();
    if limit == 0 || (!asked.is_empty() && !asked.contains("parcels")) {
        return ogc::refusal(400, super::RefusalReason::Bad);
    }
    if let Some(refused) = ogc::refused_limit(context.config, limit) {
        return refused;
    }
    let page = PageWindow::new(context, start, limit);
    let parcels = page.parcels(context, false);
    let hidden_key = context.config.has(Quirk::HiddenKey);
    let mut out = String::from("{\"type\":\"FeatureCollection\",\"features\":[");
    for (i, parcel) in context.sent_parcels(&parcels).iter().enumerate() {
        let _ =
            write!(out, "{}{}", if i > 0 { "," } else { "" }, item(context.config, parcel, base, hidden_key));
    }
    let _ = write!(out, "],\"numberReturned\":{}", parcels.len());
    if !context.config.unknown_total {
        let _ = write!(out, ",\"numberMatched\":{0},\"context\":{{\"matched\":{0}}}", context.total());
    }
    let mut links = vec![json!({"rel": "self", "href": format!("{base}/search")})];
    if let Some(next) = page.next(context) {
        let token = ogc::seal(context.config, next);
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
    context.turn();
    ResponseDraft::new(200, GEOJSON, out).worked()
}

fn item(config: &Config, parcel: &Parcel, base: &str, hidden_key: bool) -> String {
    let mut text = String::new();
    ogc::feature(&mut text, parcel, hidden_key, ogc::Coordinates::Degrees);
    // The members that an item has and a feature does not.
    let more = format!(
        "{{\"stac_version\":\"1.0.0\",\"collection\":\"parcels\",\"links\":[],\
         \"assets\":{{\"data\":{{\"href\":\"{base}/assets/{}.tif\"}},{}}},",
        parcel.id,
        asset::members(config, parcel.id, base)
    );
    format!("{more}{}", text.get(1..).unwrap_or_default())
}
